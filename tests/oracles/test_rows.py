"""Reference rows of the three recorders, on real checkpoints and the reported faults whose right values are known."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import struct
from array import array
from functools import cache

import pytest
from tokenizers import Tokenizer

from bellwether.corpora import handmade
from bellwether.oracles import parse, render, rows, tokens
from bellwether.oracles.encoders import Encoder
from support import ROOT, load_checkpoint

RIGHT_FILE = ROOT / "tests/expected/reported_bugs_right.jsonl"
RIGHT = [json.loads(line) for line in RIGHT_FILE.read_text("utf-8").split("\n") if line]
HI = {"messages": [{"role": "user", "content": "Say hi."}]}


@cache
def handmade_cases() -> dict[str, dict]:
    """case_id → the case as a recorder gets it."""
    return {
        case.case_id: {
            "case_id": case.case_id,
            "kind": case.kind,
            "request": case.request,
            "message": case.message,
            "text": case.text,
            "ids": list(case.ids) if case.ids is not None else None,
            "requires": bytes.fromhex(case.requires) if case.requires else None,
            "malformed": case.malformed,
        }
        for case in handmade.cases(ROOT / "corpus/handmade")
    }


def asked(kind: str, **fields) -> dict:
    case = {"case_id": f"{kind}/x/y", "kind": kind, "request": None, "message": None, "text": None, "ids": None}
    return {**case, "requires": None, "malformed": False, **fields}


def by_template(loaded):
    """A checkpoint whose prompts are asked of its chat template only."""
    authority = {**loaded.manifest.authority, "render": ("hf-template",)}
    return dataclasses.replace(loaded, manifest=dataclasses.replace(loaded.manifest, authority=authority))


def digest(ids: list[int]) -> bytes:
    return hashlib.sha256(struct.pack(f"<{len(ids)}I", *ids)).digest()


def of_text(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


# ── render ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_published_render_fixture(checkpoint):
    """The published fixture of Qwen3-8B for one user message: text, ids, and their digest."""
    [row] = render.answer(checkpoint("qwen3-8b"), [asked("render", request=json.dumps(HI))])
    ids = [151644, 872, 198, 45764, 15588, 13, 151645, 198, 151644, 77091, 198]
    assert row == {
        "checkpoint": "qwen3-8b",
        "case_id": "render/x/y",
        "kind": "render",
        "source": "hf-template",
        "outcome": "result",
        "normalisation": "both",
        "content_format": "string",
        "reads_clock": False,
        "encoder": "both",
        "prompt_text": "<|im_start|>user\nSay hi.<|im_end|>\n<|im_start|>assistant\n",
        "prompt_text_sha256": of_text("<|im_start|>user\nSay hi.<|im_end|>\n<|im_start|>assistant\n"),
        "prompt_ids": array("I", ids),
        "prompt_sha256": digest(ids),
    }


def test_prompt_that_names_the_date_is_marked(checkpoint):
    """gpt-oss's prompt differs between the two dates of params.yaml; the recorded one has the first."""
    [row] = render.answer(by_template(checkpoint("gpt-oss-20b")), [asked("render", request=json.dumps(HI))])
    assert row["reads_clock"] is True
    assert "Current date: 2026-01-15" in row["prompt_text"]


def test_refused_prompt_is_a_row(checkpoint):
    """A template that raises answers: class, code and message, and no prompt column at all."""
    parts = {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]}
    cases = [asked("render", request=json.dumps(HI)), asked("render", request=json.dumps(parts))]
    _, row = render.answer(checkpoint("hermes-4-14b"), cases)
    assert row == {
        "checkpoint": "hermes-4-14b",
        "case_id": "render/x/y",
        "kind": "render",
        "source": "hf-template",
        "outcome": "rejected",
        "reason_class": "error",
        "reason_code": "template-error",
        "reason": 'TypeError: can only concatenate str (not "list") to str',
        "normalisation": "both",
        "content_format": "string",
    }


def test_request_fields_that_are_no_template_variables_change_nothing(checkpoint):
    """tool_choice, sampling, response_format and the like never reach a template."""
    extra = {"tool_choice": "auto", "temperature": 0.5, "response_format": {"type": "json_object"}, "stop": ["x"]}
    plain, more = render.answer(
        checkpoint("qwen3-8b"),
        [asked("render", request=json.dumps(HI)), asked("render", request=json.dumps({**HI, **extra}))],
    )
    assert plain == more


def test_ends_of_conversations_are_encoded_whole(checkpoint, monkeypatch):
    """Of five prompts the two of a conversation's ends are compared, also one that is a later case's prompt as well."""
    asked_for = []
    encode = Encoder.encode_packed

    def spy(encoder, texts, names=(), ends=None):
        asked_for.append([names[place] for place in ends])
        return encode(encoder, texts, names, ends)

    monkeypatch.setattr(Encoder, "encode_packed", spy)
    grown = [HI["messages"], [*HI["messages"], {"role": "assistant", "content": "Hi."}]]
    grown.append([*grown[1], *HI["messages"]])
    other = [{"role": "user", "content": "Bye."}]
    requests = [{"messages": messages} for messages in (other, *grown, grown[2])]
    cases = [asked("render", request=json.dumps(one), case_id=f"render/x/{n}") for n, one in enumerate(requests)]
    render.answer(checkpoint("qwen3-8b"), cases)
    assert asked_for == [["qwen3-8b render/x/1", "qwen3-8b render/x/4"]]


def test_encoders_that_differ_give_a_row_each(checkpoint):
    """Encoders that agree on a case share its row, which says `both`; where they differ there are two rows."""
    qwen = checkpoint("qwen3-8b")
    state = json.loads(qwen.encoders[0].tokenizer.to_str())
    other = Tokenizer.from_str(json.dumps({**state, "normalizer": {"type": "Lowercase"}}))
    two = dataclasses.replace(
        qwen, encoders=(Encoder("class", other), Encoder("tokenizer.json", qwen.encoders[0].tokenizer))
    )
    lower = {"messages": [{"role": "user", "content": "say hi."}]}
    answers = render.answer(two, [asked("render", request=json.dumps(one)) for one in (lower, HI)])
    assert [row["encoder"] for row in answers] == ["both", "class", "tokenizer.json"]
    assert answers[1]["prompt_ids"] != answers[2]["prompt_ids"]
    assert answers[1]["prompt_text"] == answers[2]["prompt_text"]


def test_prompts_of_two_normalisations_are_two_rows(checkpoint):
    """Qwen3.5 refuses arguments as text; as vLLM hands them over they are an object, and there is a prompt."""
    call = {"type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    history = [*HI["messages"], {"role": "assistant", "content": "", "tool_calls": [call]}]
    history.append({"role": "tool", "content": "ok"})
    raw, vllm = render.answer(checkpoint("qwen3.5-9b"), [asked("render", request=json.dumps({"messages": history}))])
    assert (raw["normalisation"], raw["content_format"], raw["outcome"]) == ("raw", "string", "rejected")
    assert (vllm["normalisation"], vllm["content_format"], vllm["outcome"]) == ("vllm", "openai", "result")
    assert "<parameter=a>\n1\n</parameter>" in vllm["prompt_text"]


LOOPS = """{% for message in messages %}{% if message.content is string %}T:{{ message.content }}{% else %}P:{%
for part in message.content %}{{ part.text }}{% endfor %}{% endif %};{% endfor %}"""


def test_content_is_handed_over_as_the_template_loops_over_it(with_template):
    """Under vllm a template with a content loop gets parts: text becomes one, nothing becomes none, tools keep text."""
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": None}]
    messages.append({"role": "tool", "content": "b"})
    raw, vllm = render.answer(with_template(LOOPS), [asked("render", request=json.dumps({"messages": messages}))])
    assert (raw["prompt_text"], raw["normalisation"], raw["content_format"]) == ("T:a;P:;T:b;", "raw", "string")
    assert (vllm["prompt_text"], vllm["normalisation"], vllm["content_format"]) == ("P:a;P:;T:b;", "vllm", "openai")


def test_prompts_of_both_forms_that_are_equal_are_one_row(checkpoint):
    """Qwen3.5's template loops over parts and writes one part as it writes the text."""
    [row] = render.answer(checkpoint("qwen3.5-9b"), [asked("render", request=json.dumps(HI))])
    assert (row["normalisation"], row["content_format"]) == ("both", "both")


def test_part_that_is_no_text_claims_nothing(with_template):
    """An image is beyond this oracle, and a server of a multimodal checkpoint may well take it."""
    parts = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:,"}}]
    request = json.dumps({"messages": [{"role": "user", "content": parts}]})
    raw, vllm = render.answer(with_template(LOOPS), [asked("render", request=request)])
    assert (raw["normalisation"], raw["prompt_text"]) == ("raw", "P:a;")
    assert (vllm["normalisation"], vllm["outcome"], vllm["reason_class"]) == ("vllm", "rejected", "unproven")
    assert (vllm["reason_code"], vllm["reason"]) == ("non-text-part", "message 0 has a part of type image_url")


def test_variable_that_collides_claims_nothing(checkpoint):
    """chat_template_kwargs that name a parameter of transformers' call reach no template: a code of its own."""
    request = json.dumps({**HI, "chat_template_kwargs": {"tokenize": True}})
    [row] = render.answer(checkpoint("qwen3-8b"), [asked("render", request=request)])
    assert (row["outcome"], row["reason_class"]) == ("rejected", "unproven")
    assert (row["reason_code"], row["reason"]) == ("colliding-variable", "tokenize")
    [row] = parse.answer(checkpoint("qwen3-8b"), [asked("parse", request=request, message='{"content": "Hi."}')])
    assert (row["outcome"], row["reason_code"]) == ("rejected", "colliding-variable")


# ── parse ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_parse_row_holds_prompt_output_and_message(checkpoint):
    """One row has the prompt the turn answers, the output's text, ids and piece ends, and the message."""
    message = {
        "content": "",
        "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}],
    }
    request = {**HI, "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]}
    [row] = parse.answer(
        checkpoint("hermes-4-14b"), [asked("parse", request=json.dumps(request), message=json.dumps(message))]
    )
    assert row["output_text"] == '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
    assert row["tool_calls"] == [{"name": "f", "arguments": '{"a":1}'}]
    assert (row["content"], row["reasoning_content"], row["finish_reason"]) == ("", None, "tool_calls")
    assert (row["stop_id"], row["stop_found_by"]) == (151645, "turn")
    assert row["prompt_text"].endswith("<|im_start|>assistant\n")
    assert row["prompt_sha256"] == digest(row["prompt_ids"])
    assert row["output_sha256"] == digest(row["output_ids"])
    assert row["output_text_sha256"] == of_text(row["output_text"])
    assert row["pieces_sha256"] == of_text(json.dumps(rows.pieces(row["output_text"], row["piece_ends"])))
    assert row["piece_ends"][-1] == len(row["output_text"])
    assert row["normalisation"] == "vllm"


def test_refused_parse_row_keeps_its_prompt(checkpoint):
    """What is unproven is the output; the prompt is as good as any."""
    message = json.dumps({"content": "Hi.", "reasoning_content": "Greet."})
    [row] = parse.answer(checkpoint("hermes-4-14b"), [asked("parse", request=json.dumps(HI), message=message)])
    assert (row["outcome"], row["reason_code"], row["reason_class"]) == ("rejected", "part-not-rendered", "unproven")
    assert row["prompt_ids"]
    assert "output_ids" not in row
    assert "message_sha256" not in row


def test_calls_do_not_apply_to_a_template_without_calls(checkpoint):
    """SmolLM2's template writes no call whatever it is, so a tool-call case cannot exist for it; other cases can."""
    call = {"type": "function", "function": {"name": "f", "arguments": "{}"}}
    message = json.dumps({"content": "", "tool_calls": [call]})
    smollm = checkpoint("smollm2-135m-instruct")
    [row] = parse.answer(smollm, [asked("parse", request=json.dumps(HI), message=message)])
    assert (row["outcome"], row["reason_class"]) == ("not_applicable", None)
    assert row["reason_code"] == "template-renders-no-calls"
    [row] = parse.answer(smollm, [asked("parse", request=json.dumps(HI), message='{"content": "Hi."}')])
    assert row["outcome"] == "result"
    assert [checkpoint(slug).renders_calls for slug in ("kimi-k2-instruct", "deepseek-v3-0324")] == [True, True]


def test_template_that_fails_at_the_second_date_only_reads_the_clock(with_template):
    """The recorded answer is that of the first date; failing at the second one shows that the date matters."""
    template = "{% if strftime_now('%Y') != '2026' %}{{ raise_exception('late') }}{% endif %}Hi"
    [row] = render.answer(with_template(template), [asked("render", request=json.dumps(HI))])
    assert (row["outcome"], row["prompt_text"], row["reads_clock"]) == ("result", "Hi", True)


def test_malformed_output_claims_nothing_and_can_be_replayed(checkpoint):
    """A malformed output has ids and pieces, and no message: what a server makes of it is policy."""
    case = asked("parse", request=json.dumps(HI), text="<tool_call>{", malformed=True)
    [row] = parse.answer(checkpoint("qwen3-8b"), [case])
    assert (row["outcome"], row["reason_code"]) == ("rejected", "malformed")
    assert checkpoint("qwen3-8b").encoders[0].decode(row["output_ids"]) == "<tool_call>{"
    assert row["piece_ends"][-1] == 12
    assert "message_sha256" not in row


# ── tokens ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_ids_of_another_vocabulary_do_not_apply(checkpoint):
    """Qwen3's ids mean nothing to gpt-oss: the case is not for it, which is neither a result nor a refusal."""
    case = handmade_cases()["detokenize/reported-bugs/per-token-decode-ufffd"]
    [row] = tokens.answer(checkpoint("gpt-oss-20b"), [case])
    assert (row["outcome"], row["reason_code"]) == ("not_applicable", "other-vocabulary")
    [row] = tokens.answer(checkpoint("qwen3-8b"), [case])
    assert row["outcome"] == "result"


def test_ids_that_end_inside_a_character_do_not_join(checkpoint):
    """The first two of a goose's three ids decode to a replacement character that no stream ever emits."""
    [row] = tokens.answer(checkpoint("qwen3-8b"), [asked("detokenize", ids=[11162, 103])])
    assert (row["outcome"], row["reason_code"]) == ("rejected", "pieces-do-not-join")
    assert row["output_ids"] == [11162, 103]


def test_tokenize_row(checkpoint):
    """Text gives ids, without special tokens that it does not spell."""
    [row] = tokens.answer(checkpoint("qwen3-8b"), [asked("tokenize", text="Say hi.")])
    assert row == {
        "checkpoint": "qwen3-8b",
        "case_id": "tokenize/x/y",
        "kind": "tokenize",
        "source": "hf-tokenizer",
        "outcome": "result",
        "output_text": None,
        "output_text_sha256": None,
        "output_ids": [45764, 15588, 13],
        "output_sha256": digest([45764, 15588, 13]),
        "piece_ends": None,
        "pieces_sha256": None,
        "encoder": "both",
    }


# ── reported faults ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("right", RIGHT, ids=lambda right: f"{right['checkpoint']}-{right['case_id']}")
def test_reported_fault_has_its_right_value(right):
    """The recorded reference of a reported fault is the value that was worked out for it outside this project."""
    checkpoint, case = by_template(load_checkpoint(right["checkpoint"])), handmade_cases()[right["case_id"]]
    expected = right["right"]
    if case["kind"] == "render":
        answers = {row["normalisation"]: row for row in render.answer(checkpoint, [case])}
        if "hf_on_object_input" in expected:
            _check_objects(answers["vllm"], expected["hf_on_object_input"])
        else:
            _check_render(answers.get("both") or answers["raw"], expected)
    else:
        [row] = parse.answer(checkpoint, [case])
        assert row["outcome"] == "result"
        # a prompt may open the think block that the reported output begins with
        assert right.get("output_text", "").strip() in row["prompt_text"] + row["output_text"]
        _check_message(row, expected)


def _check_objects(row: dict, expected: dict | list[str]) -> None:
    """The right value is that of arguments handed over as objects."""
    assert row["outcome"] == "result"
    if isinstance(expected, list):
        assert [part for part in expected if part not in row["prompt_text"]] == []
    else:
        assert row["prompt_text"] == expected["text"]


def _check_render(row: dict, expected: dict) -> None:
    seen = 0
    for key, value in expected.items():
        match key:
            case "text":
                assert row["prompt_text"] == value
            case "token_ids":
                assert list(row["prompt_ids"]) == value
            case "text_sha256":
                assert hashlib.sha256(row["prompt_text"].encode()).hexdigest() == value
            case "must_contain":
                assert [part for part in value if part not in row["prompt_text"]] == []
            case "normalised_to_empty":  # transformers 5.24 drops null content before the template sees it
                assert row["prompt_text"] == value["text"]
            case _:
                continue
        seen += 1
    assert seen


def _check_message(row: dict, expected: dict) -> None:
    if "content" in expected:
        assert (row["content"] or "") == (expected["content"] or "")
    if "reasoning" in expected:
        assert (row["reasoning_content"] or "") == (expected["reasoning"] or "")
    calls = [{"name": call["name"], "arguments": json.loads(call["arguments"])} for call in row["tool_calls"] or ()]
    wanted = [{"name": one["name"], "arguments": one["arguments"]} for one in expected.get("tool_calls") or ()]
    assert calls == wanted
