"""Where a checkpoint's chat templates are, which one a request gets, and what of a request reaches it."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from asking import checkpoint, says
from bellwether.environments import ENVIRONMENTS
from support import load_checkpoint, snapshot


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module as a script gets it: from the server that runs it."""
    monkeypatch.syspath_prepend(str(ENVIRONMENTS))
    monkeypatch.delitem(sys.modules, "serve", raising=False)
    import serve

    yield serve.beside("chat_template")
    for name in ("serve", "chat_template"):
        sys.modules.pop(name, None)


def test_a_template_in_a_file_goes_before_one_in_the_configuration(module: ModuleType, tmp_path: Path) -> None:
    """transformers writes chat_template.jinja since 4.49, and reads it first."""
    checkpoint(tmp_path, "old")
    (tmp_path / "chat_template.jinja").write_text("new")
    assert module.templates(tmp_path).named == {"default": "new"}


def test_templates_can_be_a_list_of_names_and_texts(module: ModuleType, tmp_path: Path) -> None:
    """The form in which tokenizer_config.json holds several, as older Command R checkpoints do."""
    named = [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]
    assert module.templates(checkpoint(tmp_path, named)).named == {"default": "d", "tool_use": "t"}


def test_templates_can_lie_in_a_folder_beside_the_default(module: ModuleType) -> None:
    """Command R has `tool_use` in additional_chat_templates; transformers sees the same."""
    found = module.templates(snapshot("command-r"))
    assert found.named == load_checkpoint("command-r").tokenizer.chat_template
    assert "tool_use" in found.named


@pytest.mark.parametrize(("tools", "name"), [(None, "default"), ([], "tool_use"), ([{}], "tool_use")])
def test_a_request_with_tools_gets_the_template_for_tools(module: ModuleType, tools: list | None, name: str) -> None:
    """transformers asks whether `tools` is None, not whether it is empty."""
    assert module.Templates({"default": "", "tool_use": ""}, {}).name_for(tools) == name


def test_without_a_template_for_tools_there_is_one_for_all(module: ModuleType) -> None:
    assert module.Templates({"default": ""}, {}).name_for([{}]) == "default"


@pytest.mark.parametrize("template", [None, [{"name": "rag", "template": "r"}]])
def test_no_default_template_is_an_error(module: ModuleType, tmp_path: Path, template: list | None) -> None:
    with pytest.raises(ValueError, match="no default chat template"):
        module.templates(checkpoint(tmp_path, template))


def test_special_tokens_stand_as_text_or_with_how_they_are_matched(module: ModuleType, tmp_path: Path) -> None:
    """`bos_token` of Qwen3 is null and of DeepSeek-V3 an object; flags such as add_bos_token are no tokens."""
    bos = {"content": "<s>", "lstrip": False, "special": True}
    folder = checkpoint(tmp_path, "", bos_token=bos, eos_token="</s>", pad_token=None, add_bos_token=True)
    assert module.templates(folder).tokens == {"bos_token": "<s>", "eos_token": "</s>"}


def test_digests_are_those_of_the_texts(module: ModuleType) -> None:
    digest = hashlib.sha256("ä".encode()).hexdigest()
    assert module.Templates({"default": "ä"}, {}).digests == {"default": digest}


def test_a_request_reaches_a_template_as_transformers_gives_it(module: ModuleType) -> None:
    """Keys that are null are no keys, in messages only; key order is kept; other fields stay outside."""
    call = {"function": {"name": "f", "arguments": None}}
    message = {"tool_calls": [call], "role": "assistant", "content": None}
    asked = module.asked(
        json.dumps({"messages": [message], "tool_choice": "none", "chat_template_kwargs": {"b": None}})
    )
    assert asked.messages == [{"tool_calls": [call], "role": "assistant"}]
    assert list(asked.messages[0]) == ["tool_calls", "role"]
    assert (asked.tools, asked.kwargs, asked.add_generation_prompt) == (None, {"b": None}, True)


def test_a_generation_prompt_can_be_declined(module: ModuleType) -> None:
    assert not module.asked(json.dumps(says("", add_generation_prompt=False))).add_generation_prompt


def test_half_a_surrogate_pair_is_refused_wherever_it_stands(module: ModuleType) -> None:
    """JSON can spell it, UTF-8 cannot: serde_json and nlohmann's JSON refuse it. A whole pair is a character."""
    for request in (r'{"messages": [{"role": "user", "content": "a\ud83d"}]}', r'{"messages": [{"\ude00": 1}]}'):
        with pytest.raises(sys.modules["serve"].Refused, match=r"U\+D83D|U\+DE00"):
            module.asked(request)
    assert module.asked(r'{"messages": [{"content": "\ud83d\ude00"}]}').messages == [{"content": "😀"}]


def test_continuing_a_message_is_no_question_to_a_template_engine(module: ModuleType) -> None:
    """transformers cuts the text after rendering it; to call an engine's text different would be wrong."""
    with pytest.raises(module.NoMeasurement):
        module.asked(json.dumps(says("", continue_final_message=True)))
