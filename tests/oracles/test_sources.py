"""Sources beside the checkpoint's own template: second references, and vendors' encoders."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from types import SimpleNamespace

import pytest

from bellwether import second_references
from bellwether.errors import InputUnavailable, OracleError, PinMismatch
from bellwether.oracles import parse, render, vendor
from bellwether.oracles.sources import with_sources
from bellwether.oracles.vendor_prompts import VendorPrompts
from support import ROOT, load_checkpoint

HI = {"messages": [{"role": "user", "content": "Say hi."}]}
TOOLS = [{"type": "function", "function": {"name": "f", "description": "F", "parameters": {"type": "object"}}}]
CALL = {"type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}


def asked(kind: str, request: dict, message: dict | None = None) -> dict:
    case = {"case_id": f"{kind}/x/y", "kind": kind, "request": json.dumps(request), "text": None, "malformed": False}
    return {**case, "message": json.dumps(message) if message is not None else None}


# ── second references ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A checkout with the example templates laid out."""
    root = tmp_path_factory.mktemp("project")
    (root / "fixtures").mkdir()
    for name in ("packages.toml", "second-references.toml"):
        shutil.copy(ROOT / "fixtures" / name, root / "fixtures")
    second_references.main(root)
    return root


@pytest.fixture
def deepseek(project):
    """deepseek-v3-0324 with the example template vLLM's documentation names for it."""
    with with_sources(load_checkpoint("deepseek-v3-0324"), project) as checkpoint:
        yield checkpoint


def test_only_named_checkpoints_have_second_references(project, deepseek):
    """By slug; Mistral has two, and Qwen3 none."""

    def sources(slug: str) -> list[str]:
        loaded = load_checkpoint(slug)
        alone = dataclasses.replace(loaded.manifest, authority={"render": ("hf-template",), "parse": ("roundtrip",)})
        with with_sources(dataclasses.replace(loaded, manifest=alone), project) as checkpoint:
            return [second.source for second in checkpoint.seconds]

    assert [second.source for second in deepseek.seconds] == ["vllm-example:deepseekv3"]
    assert sources("mistral-7b-instruct-v0.3") == ["vllm-example:mistral", "vllm-example:mistral_parallel"]
    assert sources("qwen3-8b") == []


def test_second_prompt_stands_beside_the_first(deepseek):
    """DeepSeek-V3's own template ignores tools, vLLM's example writes them; both are rows of the case."""
    first, second = render.answer(deepseek, [asked("render", {**HI, "tools": TOOLS})])
    assert (first["source"], second["source"]) == ("hf-template", "vllm-example:deepseekv3")
    assert "# Tools" not in first["prompt_text"]
    assert "# Tools" in second["prompt_text"]
    assert list(second["prompt_ids"]) == deepseek.encoders[0].encode([second["prompt_text"]])[0]


def test_case_without_tools_has_no_second_reference(deepseek):
    """Example templates are tool templates."""
    for request in (HI, {**HI, "tools": []}, {**HI, "tools": None}):
        assert [row["source"] for row in render.answer(deepseek, [asked("render", request)])] == ["hf-template"]
        rows = parse.answer(deepseek, [asked("parse", request, {"content": "Hi."})])
        assert [row["source"] for row in rows] == ["roundtrip"]


def test_second_output_is_proved_with_the_second_template(deepseek):
    """The own template refuses argument objects. The example writes the call; its round trip has rows of its own."""
    case = asked("parse", {**HI, "tools": TOOLS}, {"content": "Hi."})
    first, second = parse.answer(deepseek, [case])
    assert (first["source"], second["source"]) == ("roundtrip", "roundtrip:vllm-example:deepseekv3")
    assert "# Tools" not in first["prompt_text"]
    assert "# Tools" in second["prompt_text"]
    assert first["output_text"] == "Hi."


def test_each_template_is_probed_for_calls(project):
    """A template that writes no calls makes its calls not applicable, and no other template's."""
    qwen = load_checkpoint("qwen3-8b")
    mute = qwen.with_template("mute", "{% for m in messages %}{{ m.content }}{% endfor %}", "0" * 40)
    both = dataclasses.replace(qwen, seconds=(mute,))
    message = {"content": "", "tool_calls": [CALL]}
    first, second = parse.answer(both, [asked("parse", {**HI, "tools": TOOLS}, message)])
    assert (first["source"], first["outcome"]) == ("roundtrip", "result")
    assert (second["source"], second["outcome"]) == ("roundtrip:vllm-example:mute", "not_applicable")
    assert second["reason_code"] == "template-renders-no-calls"
    assert (qwen.renders_calls, mute.renders_calls) == (True, False)


def test_provenance_names_commit_and_template(deepseek):
    """Where a second reference comes from: vLLM's commit, and the template's sha256."""
    seconds = deepseek.provenance["second_references"]
    assert seconds["vllm-example:deepseekv3"]["vllm_commit"] == "db9527a46873454610df6dbedf79a36d6bf1a7f6"
    assert seconds["vllm-example:deepseekv3"]["chat_template_sha256"].startswith("76233095fd64")
    assert load_checkpoint("deepseek-v3-0324").provenance["second_references"] == {}


def test_changed_or_missing_example_stops_the_recorder(project, tmp_path):
    """Named with both sha256s, or as missing; nothing is recorded with another template."""
    root = tmp_path / "copy"
    shutil.copytree(project, root)
    path = root / "fixtures" / "second-references" / "deepseekv3.jinja"
    path.write_text("other", "utf-8")
    actual = hashlib.sha256(b"other").hexdigest()
    with (
        pytest.raises(PinMismatch, match=f"expected sha256 76233095fd64.*, got {actual}"),
        with_sources(load_checkpoint("deepseek-v3-0324"), root),
    ):
        pass
    path.unlink()
    with (
        pytest.raises(InputUnavailable, match=r"deepseekv3\.jinja is missing"),
        with_sources(load_checkpoint("deepseek-v3-0324"), root),
    ):
        pass


def test_example_that_does_not_compile_stops_the_recorder():
    """It says nothing about any case."""
    with pytest.raises(OracleError, match="the example chat template broken does not compile"):
        load_checkpoint("qwen3-8b").with_template("broken", "{% if %}", "0" * 40)


# ── vendors' encoders ────────────────────────────────────────────────────────────────────────────────────────────────


class Encoder:
    """A vendor encoder made for these tests: it refuses system messages, and writes what a template would."""

    source = "vendor-code:toy"
    normalisation = "vllm"
    content_format = "openai"

    def __init__(self, ids: list[int] | None = None) -> None:
        self.ids = ids
        self.provenance = {"oracle": "vendor-code:toy"}
        self.seen: list[dict] = []
        self.closed = False

    def prompt(self, request: dict) -> SimpleNamespace:
        self.seen.append(request)
        if any(message["role"] == "system" for message in request["messages"]):
            raise vendor.VendorRefused("ValueError: no system")
        text = "".join(self.written(message) for message in request["messages"])
        return SimpleNamespace(text=text + "<|im_start|>" * request.get("add_generation_prompt", True), ids=self.ids)

    @staticmethod
    def written(message: dict) -> str:
        calls = json.dumps([call["function"] for call in message.get("tool_calls", ())])
        return f"<|im_start|>{message.get('content')}{calls}<|im_end|>"

    def __enter__(self) -> Encoder:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True


def with_encoder(encoder: Encoder, *render_sources: str):
    """qwen3-8b whose prompts are asked of `render_sources`."""
    qwen = load_checkpoint("qwen3-8b")
    manifest = dataclasses.replace(qwen.manifest, authority={"render": render_sources, "parse": ("roundtrip",)})
    return dataclasses.replace(qwen, manifest=manifest, vendors={encoder.source: VendorPrompts(encoder)})


def test_vendor_stands_beside_the_template():
    """Both sources answer, each in a row of its own; the vendor's code is asked once, with the request as it is."""
    encoder = Encoder()
    checkpoint = with_encoder(encoder, "hf-template", "vendor-code:toy")
    history = [*HI["messages"], {"role": "assistant", "content": "", "tool_calls": [CALL]}]
    request = {"messages": history, "reasoning_effort": "low"}
    *own, row = render.answer(checkpoint, [asked("render", request)])
    assert {one["source"] for one in own} == {"hf-template"}
    assert row["source"] == "vendor-code:toy"
    assert encoder.seen == [request]
    assert (row["normalisation"], row["content_format"]) == ("vllm", "openai")
    assert (row["encoder"], row["reads_clock"]) == ("both", None)
    assert list(row["prompt_ids"]) == checkpoint.encoders[0].encode([row["prompt_text"]])[0]


def test_ids_a_vendor_makes_are_its_own():
    """They are not encoded again, and no encoder is named for them."""
    checkpoint = with_encoder(Encoder(ids=[1, 2, 3]), "vendor-code:toy")
    [row] = render.answer(checkpoint, [asked("render", HI)])
    assert row["prompt_ids"] == [1, 2, 3]
    assert "encoder" not in row


def test_vendor_that_refuses_answers():
    """A refusal has the vendor's wording and a code of its own."""
    checkpoint = with_encoder(Encoder(), "vendor-code:toy")
    [row] = render.answer(checkpoint, [asked("render", {"messages": [{"role": "system", "content": "x"}]})])
    assert (row["outcome"], row["reason_class"], row["reason_code"]) == ("rejected", "error", "vendor-error")
    assert row["reason"] == "ValueError: no system"


def test_vendor_writes_the_turns_where_there_is_no_template():
    """The round trip needs something that writes; only without a template it is the vendor's code."""
    message = {"content": "Hello.", "tool_calls": [CALL]}
    request = {**HI, "tools": TOOLS}
    [row] = parse.answer(with_encoder(Encoder(), "vendor-code:toy"), [asked("parse", request, message)])
    assert (row["source"], row["outcome"], row["content_format"]) == ("roundtrip", "result", "openai")
    assert row["output_text"] == 'Hello.[{"name": "f", "arguments": {"a": 1}}]'
    assert (row["stop_id"], row["stop_found_by"], row["tool_calls"]) == (
        *(151645, "turn", [{"name": "f", "arguments": '{"a":1}'}]),
    )
    beside = with_encoder(Encoder(), "hf-template", "vendor-code:toy")
    [row] = parse.answer(beside, [asked("parse", request, message)])
    assert row["output_text"].startswith("<think>") or "<tool_call>" in row["output_text"]


def test_vendor_without_a_text_cannot_write_turns():
    """No evidence came of it, and it is no refusal either."""
    encoder = Encoder(ids=[1])
    encoder.prompt = lambda request: SimpleNamespace(text=None, ids=[1])
    with pytest.raises(OracleError, match="vendor-code:toy writes no text"):
        VendorPrompts(encoder).render([], None, {}, add_generation_prompt=True)


def test_vendors_of_the_manifest_are_opened_and_closed(project, monkeypatch):
    """One encoder per vendor-code source, closed with the body; a checkpoint without any opens none."""
    encoder, opened = Encoder(), []
    monkeypatch.setattr(vendor, "open_encoder", lambda *arguments: opened.append(arguments) or encoder)
    checkpoint = dataclasses.replace(with_encoder(encoder, "hf-template", "vendor-code:toy"), vendors={})
    with with_sources(checkpoint, project) as full:
        assert list(full.vendors) == ["vendor-code:toy"]
        assert not encoder.closed
        assert full.provenance["vendor_code"] == {"vendor-code:toy": {"oracle": "vendor-code:toy"}}
    assert encoder.closed
    [(name, manifest, _, folder)] = opened
    assert (name, manifest.slug) == ("toy", "qwen3-8b")
    assert folder == project / "fixtures" / "qwen3-8b" / "inputs"
    with with_sources(load_checkpoint("qwen3-8b"), project):
        assert len(opened) == 1
