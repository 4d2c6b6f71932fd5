"""Response templates: what transformers reads out of an output, with the templates it brings for known families."""

from __future__ import annotations

import ast
import copy
import dataclasses
import json
import shutil
from pathlib import Path

import pytest
import transformers

from bellwether.case import sha256_text
from bellwether.digests import message_sha256
from bellwether.errors import OracleError
from bellwether.oracles import parse
from bellwether.oracles.checkpoint import load
from support import load_checkpoint, snapshot

HI = {"messages": [{"role": "user", "content": "Say hi."}]}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]


def fallback(model_type: str) -> dict:
    """A response template out of transformers' own list, read as data."""
    source = Path(transformers.__file__).parent / "cli" / "serving" / "utils.py"
    for node in ast.parse(source.read_text("utf-8")).body:
        target = node.target if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [None])[0]
        if isinstance(target, ast.Name) and target.id == "_RESPONSE_TEMPLATE_FALLBACKS":
            templates = ast.literal_eval(node.value)
            return next(template for types, template in templates.items() if model_type in types)
    raise AssertionError("transformers keeps its list elsewhere")


@pytest.fixture(scope="module")
def qwen():
    """qwen3-8b, as if it shipped the response template of its family."""
    loaded = load_checkpoint("qwen3-8b")
    tokenizer = copy.copy(loaded.tokenizer)
    tokenizer.response_template = fallback("qwen3")
    authority = {"render": ("hf-template",), "parse": ("roundtrip", "response-template")}
    manifest = dataclasses.replace(loaded.manifest, authority=authority)
    return dataclasses.replace(loaded, tokenizer=tokenizer, manifest=manifest)


def answers(checkpoint, message: dict | None, *, text: str | None = None, **request) -> dict[str, dict]:
    case = {"case_id": "parse/x/y", "request": json.dumps({**HI, **request}), "malformed": message is None}
    case |= {"message": json.dumps(message) if message is not None else None, "text": text}
    return {row["source"]: row for row in parse.answer(checkpoint, [case])}


def call(arguments: str) -> dict:
    return {"content": "", "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": arguments}}]}


def test_message_of_a_proven_output_is_read_back(qwen):
    """Two rows of one output: what was proved, and what the response template reads; here they agree."""
    rows = answers(qwen, {"content": "Hello.", "reasoning_content": "A greeting."})
    proven, read = rows["roundtrip"], rows["response-template"]
    assert read["outcome"] == "result"
    assert (read["content"], read["reasoning_content"]) == ("Hello.", "A greeting.")
    same = ("output_text", "output_ids", "prompt_text", "prompt_sha256", "stop_id", "piece_ends", "message_sha256")
    assert {name: read[name] for name in same} == {name: proven[name] for name in same}


def test_arguments_it_reads_are_values(qwen):
    """It gives values, so the text of arguments is compact JSON, whatever text the corpus has."""
    rows = answers(qwen, call('{"a": 1,  "b": "é"}'), tools=TOOLS)
    read = rows["response-template"]
    assert read["tool_calls"] == [{"name": "f", "arguments": '{"a":1,"b":"é"}'}]
    assert read["finish_reason"] == "tool_calls"
    assert rows["roundtrip"]["tool_calls"] == [{"name": "f", "arguments": '{"a": 1,  "b": "é"}'}]
    assert read["message_sha256"] == message_sha256("", None, read["tool_calls"])


def test_malformed_output_is_read_too(qwen):
    """What the template makes of an output nobody proves is its answer."""
    rows = answers(qwen, None, text="<think>\nHm.")
    assert rows["roundtrip"]["reason_code"] == "malformed"
    read = rows["response-template"]
    assert (read["outcome"], read["output_text"]) == ("result", "<think>\nHm.")
    assert "reason_code" not in read


def test_output_it_cannot_read_is_an_error_of_its_own(qwen):
    """A call that is no JSON makes it raise; that is its answer."""
    read = answers(qwen, None, text='<tool_call>{"name": }</tool_call>')["response-template"]
    assert (read["outcome"], read["reason_class"], read["reason_code"]) == (
        *("rejected", "error", "response-template-error"),
    )
    assert read["reason"].startswith("ValueError: ")
    assert "message_sha256" not in read and "stop_id" not in read


def test_without_a_proven_output_there_is_nothing_to_read(qwen):
    """A refused case has a row of this source as well: it is not forgotten, and claims nothing."""
    rows = answers(qwen, {"content": "It ends with <|im_end|> here."})
    assert rows["roundtrip"]["reason_code"] == "stop-id-in-message"
    read = rows["response-template"]
    assert (read["outcome"], read["reason_class"], read["reason_code"]) == ("rejected", "unproven", "no-output")


def test_case_that_is_not_for_the_checkpoint_stays_so(qwen, monkeypatch):
    """Where the template writes no calls, a call is no case for the response template either."""
    monkeypatch.setitem(qwen.__dict__, "renders_calls", False)
    read = answers(qwen, call("{}"), tools=TOOLS)["response-template"]
    assert (read["outcome"], read["reason_code"]) == ("not_applicable", "template-renders-no-calls")


def test_only_checkpoints_that_list_it_are_asked(checkpoint):
    """[authority] says who answers."""
    assert list(answers(checkpoint("qwen3-8b"), {"content": "Hello."})) == ["roundtrip"]


@pytest.mark.parametrize("shipped", [True, False])
def test_response_template_is_read_from_the_tokenizer_config(tmp_path, params, shipped):
    """It stands in tokenizer_config.json; a checkpoint that is to be asked and has none cannot be recorded."""
    loaded = load_checkpoint("smollm2-135m-instruct")
    folder = tmp_path / "inputs"
    shutil.copytree(snapshot("smollm2-135m-instruct"), folder)
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    text = json.dumps(config | ({"response_template": fallback("qwen3")} if shipped else {}))
    path.write_text(text, "utf-8")
    manifest = dataclasses.replace(
        loaded.manifest,
        inputs={**loaded.manifest.inputs, "tokenizer_config.json": sha256_text(text)},
        authority={"render": ("hf-template",), "parse": ("roundtrip", "response-template")},
    )
    if shipped:
        assert load(manifest, params, folder).tokenizer.response_template == fallback("qwen3")
    else:
        with pytest.raises(OracleError, match="smollm2-135m-instruct has no response template"):
            load(manifest, params, folder)
