"""The stored list of registries: what it holds, and how a broken one is told."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from bellwether.errors import TableError
from bellwether.registries import listed
from bellwether.registries.listed import Part, Registries
from support import ROOT

COUNTS = {
    ("vllm", "tool"): 58,
    ("vllm", "reasoning"): 42,
    ("vllm", "renderer"): 11,
    ("vllm", "tokenizer"): 10,
    ("sglang", "tool"): 44,
    ("sglang", "reasoning"): 36,
    ("smg", "tool"): 26 + 1,
    ("smg", "reasoning"): 21 + 1,
}
"""By hand, of vLLM 0.33.0, SGLang 0.5.23 and SMG 1.13.0, whose Harmony has no registry."""
ORIGIN = {"package": "pypi:p", "version": "1", "commit": None, "sha256": "0" * 64}
SMALL = Registries(
    systems=dict.fromkeys(listed.ROLES, ORIGIN),
    patterns={"smg": {"tool": (("qwen*", "qwen"),)}},
    left_out={"smg-symphony": {"tool": ("plain",)}},
    parts=tuple(Part("tool", system, f"p-{system}", "m:C") for system in listed.ROLES),
)


def stored(root: Path, text: str) -> Path:
    listed.path(root).parent.mkdir(parents=True, exist_ok=True)
    listed.path(root).write_text(text, "utf-8")
    return root


def changed(number: int, **values: object) -> str:
    lines = listed.render(SMALL).splitlines()
    lines[number] = json.dumps(json.loads(lines[number]) | values)
    return "\n".join(lines) + "\n"


def test_the_list_in_git_holds_what_is_known_of_the_releases():
    """Names by system and kind."""
    found = Counter((one.system, one.kind) for one in listed.read(ROOT).parts)
    assert {at: found[at] for at in COUNTS} == COUNTS


@pytest.mark.parametrize(
    "known",
    [
        "tool vllm hermes vllm.tool_parsers.hermes_tool_parser:Hermes2ProToolParser",
        "reasoning vllm mistral vllm.reasoning.mistral_reasoning_parser:MistralParserReasoningAdapter",
        "tool sglang deepseekv3 sglang.srt.function_call.deepseekv3_detector:DeepSeekV3Detector",
        "reasoning sglang glm45 sglang.srt.parser.reasoning_parser:Glm45Detector",
        "reasoning sglang gpt-oss sglang.srt.parser.reasoning_parser:GptOssDetector",
        "tool smg qwen_coder tool_parser::parsers:QwenXmlParser",
    ],
)
def test_the_list_in_git_says_what_implements_a_name(known: str):
    """Module and class, as the package has them."""
    assert Part(*known.split()) in listed.read(ROOT).parts


def test_what_is_written_is_read(tmp_path: Path):
    """With patterns and what was left out."""
    assert listed.read(stored(tmp_path, listed.render(SMALL))) == SMALL


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "not of schema version"),
        ("{", r":1: "),
        ("[]\n", ":1: it has other keys"),
        (changed(0, schema_version="2"), "not of schema version 1"),
        (changed(0, systems={"vllm": ORIGIN}), "its systems are not"),
        (changed(0, more=1), ":1: it has other keys"),
        (changed(2, more=1), ":3: it has other keys"),
        (changed(2, kind="parser"), ":3: its kind or system is unknown"),
        (changed(2, system="tgi"), ":3: its kind or system is unknown"),
        (changed(2, name=""), ":3: a value is no text"),
        (changed(2, implementation=None), ":3: a value is no text"),
        (listed.render(SMALL) + listed.render(SMALL).splitlines()[1] + "\n", "a name has two lines"),
        ("\n".join(listed.render(SMALL).splitlines()[:-1]) + "\n", "nothing of smg-symphony"),
    ],
)
def test_a_broken_list_is_an_error(tmp_path: Path, text: str, told: str):
    """A list cut short would be a system that registers less."""
    with pytest.raises(TableError, match=told):
        listed.read(stored(tmp_path, text))


def test_no_list_is_an_error(tmp_path: Path):
    """Never an empty one: nothing registered and nothing known are not the same."""
    with pytest.raises(TableError, match="does not exist"):
        listed.read(tmp_path)
