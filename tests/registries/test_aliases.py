"""Aliases: those in the checkout, and every way in which an entry can be wrong or say nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bellwether.errors import ParamsError
from bellwether.params import read_manifest
from bellwether.registries import aliases, listed
from bellwether.registries.aliases import Alias
from bellwether.registries.values import normal
from bellwether.reports.gap_tables import registered_names
from support import ROOT

NAMES = {
    ("tool", "vllm"): frozenset({"qwen3_xml", "qwen3_coder"}),
    ("tool", "smg"): frozenset({"qwen_xml", "both"}),
    ("tool", "sglang"): frozenset({"left", "right"}),
}
GOOD = 'qwen3_coder = { key = "qwen3xml", reason = "One class." }'


def written(root: Path, text: str) -> Path:
    (root / "queries").mkdir()
    aliases.path(root).write_text(text, "utf-8")
    return root


def test_entries_are_read_with_their_reasons(tmp_path: Path):
    """A name that stands for several keys has a row for each."""
    text = f'[tool.vllm]\n{GOOD}\n[tool.smg]\nboth = {{ key = ["left", "right"], reason = "Reads either." }}\n'
    found = aliases.read(written(tmp_path, text), NAMES)
    assert found == (
        Alias("tool", "vllm", "qwen3_coder", "qwen3xml", "One class."),
        Alias("tool", "smg", "both", "left", "Reads either."),
        Alias("tool", "smg", "both", "right", "Reads either."),
    )
    assert aliases.keys(NAMES, found)["tool", "smg", "both"] == ("left", "right")
    assert aliases.keys(NAMES, found)["tool", "smg", "qwen_xml"] == ("qwenxml",)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[tool.vllm", "is not TOML"),
        (f"[parser.vllm]\n{GOOD}", "'parser' is no kind"),
        (f"[tool.tgi]\n{GOOD}", r"\[tool\.tgi\] has no registry"),
        (f"[reasoning.vllm]\n{GOOD}", r"\[reasoning\.vllm\] has no registry"),
        ('[tool.vllm]\nqwen3_coder = "qwen3xml"', "is of another shape"),
        ('[tool.vllm]\nqwen3_coder = { key = "qwen3xml" }', "is of another shape"),
        ('[tool.vllm]\nqwen3_coder = { key = "qwen3xml", reason = " " }', "has no reason"),
        ('[tool.vllm]\nqwen3_coder = { key = "qwen3_xml", reason = "r" }', "'qwen3_xml' is no key"),
        ('[tool.vllm]\nqwen3_coder = { key = [], reason = "r" }', "is no key"),
        ('[tool.vllm]\nqwen3_coder = { key = ["qwen3xml", "qwen3xml"], reason = "r" }', "lists a key twice"),
        ('[tool.vllm]\nqwen4 = { key = "qwen3xml", reason = "r" }', "qwen4 matches nothing"),
        ('[tool.vllm]\nqwen3_xml = { key = "qwen3xml", reason = "r" }', "qwen3xml is its key anyway"),
        ('[tool.vllm]\nqwen3_coder = { key = "qwen3xmi", reason = "r" }', "no other name has the key qwen3xmi"),
    ],
)
def test_an_entry_that_is_wrong_or_says_nothing_is_an_error(tmp_path: Path, text: str, told: str):
    """A release that drops a name leaves its entry behind; one that matches nothing is noticed, not kept."""
    with pytest.raises(ParamsError, match=told):
        aliases.read(written(tmp_path, text), NAMES)


def test_a_checkout_without_aliases_is_an_error(tmp_path: Path):
    """Without them every second row would be a false gap."""
    with pytest.raises(ParamsError, match="does not exist"):
        aliases.read(tmp_path, NAMES)


@pytest.mark.parametrize(
    "known",
    [
        *("tool vllm qwen3_coder qwen3xml", "tool vllm openai gptoss", "tool vllm muse_glimmer museglimmer"),
        *("tool vllm llama3_json llama3json", "tool vllm hf responsetemplate", "tool sglang qwen3_coder qwen3xml"),
        *("tool sglang glm glm45", "tool sglang muse museglimmer", "tool sglang qwen25 hermes"),
        *("tool sglang qwen hermes", "tool sglang llama3 llama3json", "tool sglang hunyuan hyv4"),
        *("tool smg deepseek32 deepseekv32", "tool smg qwen hermes", "tool smg qwen_xml qwen3xml"),
        *("tool smg qwen_coder qwen3xml", "tool smg nemotron qwen3xml", "tool smg deepseek deepseekv3"),
        *("tool smg deepseek31 deepseekv31", "tool smg llama llama3json", "tool smg glm45_moe glm45"),
        *("tool smg glm47_moe glm47", "tool smg harmony gptoss", "reasoning vllm glm47 glm45"),
        *("reasoning vllm openai_gptoss gptoss", "reasoning vllm muse_glimmer museglimmer"),
        *("reasoning vllm minimax_m2_append_think minimaxappendthink", "reasoning vllm nemotron_v3 nemotronv3"),
        *("reasoning vllm hf responsetemplate", "reasoning sglang muse museglimmer"),
        *("reasoning sglang minimax minimaxm2", "reasoning sglang minimax-append-think minimaxappendthink"),
        *("reasoning sglang hunyuan hyv4", "reasoning sglang nemotron_3 nemotronv3"),
        *("reasoning smg minimax minimaxm2", "reasoning smg nano_v3 nemotronv3"),
        *("reasoning smg kimi_thinking kimik2", "reasoning smg harmony gptoss"),
        *("renderer smg jinja hf", "renderer smg kimi_k3_xtml kimik3", "tokenizer smg huggingface hf"),
    ],
)
def test_names_known_to_be_one(known: str):
    """By an alias, or because their normal forms are the same."""
    kind, system, name, key = known.split()
    assert key in real_keys()[kind, system, name]


def test_one_parser_may_read_what_others_register_apart():
    """SGLang's hunyuan reads Hy3 and Hy4; SMG's cohere reads both Command releases."""
    found = real_keys()
    assert found["tool", "sglang", "hunyuan"] == ("hyv3", "hyv4")
    assert found["tool", "smg", "cohere"] == ("coherecommand3", "coherecommand4")


@given(st.text())
def test_a_normal_form_is_its_own(name: str):
    """Lower-case letters and digits of ASCII, and nothing that changes again."""
    assert (
        normal(normal(name))
        == normal(name)
        == "".join(c for c in name.lower() if c in "abcdefghijklmnopqrstuvwxyz0123456789")
    )


def real_keys() -> dict:
    slugs = sorted(path.parent.name for path in (ROOT / "fixtures").glob("*/manifest.toml"))
    names = registered_names(listed.read(ROOT), [read_manifest(ROOT, slug) for slug in slugs])
    return aliases.keys(names, aliases.read(ROOT, names))
