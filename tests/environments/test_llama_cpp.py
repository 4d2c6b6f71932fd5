"""llama.cpp's template engine as a witness, in its own environment: what is asked of it, and what it makes of that."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from asking import checkpoint, engine, facts, outcomes, says, text
from bellwether.environments import ENVIRONMENTS, environment
from bellwether.witnesses.outcome import Answered, Failed, NotLoaded, Refused
from bellwether.witnesses.process import Server
from support import snapshot

NAME = "llama.cpp-b10775"
TOOL = {"type": "function", "function": {"name": "f", "description": "<b> & 'c'", "parameters": {"type": "object"}}}


@pytest.fixture(scope="module")
def llama_cpp() -> Iterator[Server]:
    """The engine, compiled once."""
    with engine(NAME) as server:
        yield server


def test_a_plain_chat_is_what_the_template_says(llama_cpp: Server) -> None:
    """Qwen3's format, from its model card."""
    prompt = text(llama_cpp, snapshot("qwen3-8b"), says("Hello <there> & 'you'"))
    assert prompt == "<|im_start|>user\nHello <there> & 'you'<|im_end|>\n<|im_start|>assistant\n"


def test_tojson_escapes_nothing_for_html(llama_cpp: Server) -> None:
    """As json.dumps, and unlike the stock filters of Jinja2 and MiniJinja."""
    prompt = text(llama_cpp, snapshot("qwen3-8b"), says("Hi", tools=[TOOL]))
    assert '{"name": "f", "description": "<b> & \'c\'", "parameters": {"type": "object"}}' in prompt


@pytest.mark.parametrize(("kwargs", "written"), [({}, "True"), ({"enable_thinking": False}, "False")])
def test_thinking_is_on_unless_the_request_says_otherwise(
    llama_cpp: Server, tmp_path: Path, kwargs: dict, written: str
) -> None:
    """llama.cpp's own default; transformers leaves the name undefined."""
    folder = checkpoint(tmp_path, "{{ messages[0].content }}{{ enable_thinking }}")
    assert text(llama_cpp, folder, says("", chat_template_kwargs=kwargs)) == written


@pytest.mark.parametrize(
    ("template", "request_", "written"),
    [
        ("{{ bos_token }}|{{ eos_token }}|{{ pad_token is defined }}", says("Hi"), "<s>||False"),
        ("{{ tools is defined }}", says("Hi", tools=[]), "False"),
        ("{{ tools is defined }}", says("Hi", tools=None), "False"),
        ("{{ tools[0].function.name }}", says("Hi", tools=[TOOL]), "f"),
        ("{{ add_generation_prompt }}", says("Hi"), "True"),
        ("{{ add_generation_prompt is defined }}", says("Hi", add_generation_prompt=False), "False"),
        ("{{ a.b }}{{ bos_token }}", says("Hi", chat_template_kwargs={"a": {"b": 1}, "bos_token": "<b>"}), "1<b>"),
        ("{{ messages[0].content }}", says([{"type": "text", "text": part} for part in "ab"]), "a\nb"),
    ],
)
def test_a_template_sees_what_llama_cpp_gives_it(
    llama_cpp: Server, tmp_path: Path, template: str, request_: dict, written: str
) -> None:
    """Two special tokens, empty where there is none; no empty tools; a prompt key only where it is on; parts joined."""
    assert text(llama_cpp, checkpoint(tmp_path, template, bos_token="<s>", pad_token="<p>"), request_) == written


def test_a_template_that_refuses_is_a_refusal(llama_cpp: Server, tmp_path: Path) -> None:
    """raise_exception with its own words, engine errors without the place; the next question is answered."""
    template = (
        "{% if messages[0].content == 'no' %}{{ raise_exception('Not this.') }}{% endif %}{{ messages[0].x | abs }}"
    )
    folder = checkpoint(tmp_path, template)
    refused, wrong, right = outcomes(
        llama_cpp, folder, says("no"), says("yes"), {"messages": [{"role": "user", "content": "", "x": -1}]}
    )
    assert refused == Refused("template-error", "Not this.")
    assert isinstance(wrong, Refused) and wrong.message.startswith("Error: Unknown (built-in) filter 'abs'")
    assert right == Answered({"prompt_ids": None, "prompt_text": "1"})


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{% for i in range(99999) %}{% for i in range(99999) %}{% endfor %}{% endfor %}", "fuel"),
        ("{% for i in range(99999999) %}{% endfor %}", "more than 536,870,912 bytes"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "memory"),
    ],
)
def test_a_template_that_takes_too_much_is_stopped_and_is_no_evidence(
    llama_cpp: Server, tmp_path: Path, template: str, reason: str
) -> None:
    """Instructions, memory, the stack; what comes after is answered by an instance of its own."""
    folder = checkpoint(tmp_path, f"{{% if messages[0].content == 'take' %}}{template}{{% endif %}}A")
    stopped, fine = outcomes(llama_cpp, folder, says("take"), says("leave"))
    assert isinstance(stopped, Failed) and reason in stopped.message
    assert fine == Answered({"prompt_ids": None, "prompt_text": "A"})


def test_syntax_the_engine_does_not_know_stops_the_checkpoint(llama_cpp: Server, tmp_path: Path) -> None:
    with pytest.raises(NotLoaded, match="the default template is not one to the engine"):
        facts(llama_cpp, checkpoint(tmp_path, "{% for %}"))


def test_a_template_that_refuses_the_probe_is_loaded_all_the_same(llama_cpp: Server, tmp_path: Path) -> None:
    """What it says to one conversation is not what it says to all."""
    folder = checkpoint(tmp_path, "{% if messages | length < 2 %}{{ raise_exception('Two.') }}{% endif %}A")
    two = {"messages": [{"role": "user", "content": ""}, {"role": "assistant", "content": ""}]}
    assert text(llama_cpp, folder, two) == "A"


def test_half_a_surrogate_pair_is_refused(llama_cpp: Server) -> None:
    """As llama.cpp's JSON reader does: U+D800..U+DBFF must be followed by U+DC00..U+DFFF."""
    bad, good = outcomes(llama_cpp, snapshot("qwen3-8b"), says("a\ud83d"), says("a😀\x00b"))
    assert bad == Refused("invalid-json", "a lone surrogate: U+D83D")
    assert "a😀\x00b" in good.value["prompt_text"]


def test_its_clock_is_not_ours_and_is_not_called_so(llama_cpp: Server, tmp_path: Path) -> None:
    """Compiled in. Without `clock` in its facts it is not asked what shows the date."""
    folder = checkpoint(tmp_path, "{{ strftime_now('%Y-%m-%d %H:%M') }}")
    assert text(llama_cpp, folder, says("Hi")) == "2026-01-01 00:00"
    assert "clock" not in facts(llama_cpp, folder)


def test_how_it_is_set_up_is_said(llama_cpp: Server) -> None:
    said = facts(llama_cpp, snapshot("qwen3-8b"))
    assert (said["llama.cpp"], said["ggufdoctor"], said["wasmtime"]) == ("b10775", "0.3.0", "48.0.0")
    assert said["wasm_sha256"] == "4de88e68f8792347f1328be3ea377aa15100f2df7d2daf07fa6bee067d9c516f"


def test_another_module_than_the_pinned_one_is_not_run(tmp_path: Path) -> None:
    """The smallest module there is, in the place of the engine."""
    folder = tmp_path / "ggufdoctor" / "engine_data"
    folder.mkdir(parents=True)
    for package in (folder, folder.parent):
        (package / "__init__.py").touch()
    (folder / "llamacpp-jinja.wasm").write_bytes(b"\0asm\x01\0\0\0")
    code = "import sys; sys.path[:0] = sys.argv[1:3]; import serve; serve.by_path('witness', sys.argv[3])"
    script = ENVIRONMENTS / NAME / "witness.py"
    done = subprocess.run(
        [environment(NAME).python, "-c", code, tmp_path, ENVIRONMENTS, script], capture_output=True, text=True
    )
    assert "the WebAssembly module has sha256 93a44bbb" in done.stderr
