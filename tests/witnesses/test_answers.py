"""Rows of answers: what is kept of a good one, and what a bad one's row says."""

from __future__ import annotations

import hashlib
import json
import struct
from typing import Any

import pytest

from bellwether.tables import WITNESS, record_batch
from bellwether.witnesses.answers import rows
from bellwether.witnesses.outcome import Answered, Failed, Outcome, Refused
from bellwether.witnesses.questions import Ask

HEAD = {"checkpoint": "some", "engine": "toy", "engine_version": "1"}
GIVEN = hashlib.sha256(b"given").digest()
PLANS = {"whole": [2], "per_token": [1, 1], "split-1": [1, 1]}


def ask(kind: str, **question: Any) -> Ask:
    given = GIVEN if kind in ("parse", "detokenize") else None
    return Ask(f"{kind}/common/x", kind, {"kind": kind, **question}, given)


RENDER, TOKENIZE, DETOKENIZE = ask("render", request="{}"), ask("tokenize", text="a"), ask("detokenize", ids=[1, 2])
PARSE = ask("parse", plans=PLANS)


def of(one: Ask, outcome: Outcome) -> list[dict]:
    """Return the rows as a table holds them, without what is null."""
    found = rows(one, outcome, HEAD, {"/here": "<model>"})
    batch = record_batch(found, WITNESS)
    return [{name: value for name, value in row.items() if value is not None} for row in batch.to_pylist()]


def digest(*ids: int) -> bytes:
    return hashlib.sha256(struct.pack(f"<{len(ids)}I", *ids)).digest()


def message(content: str | None = None, reasoning: str | None = None, *calls: tuple[str | None, str]) -> dict:
    called = [{"name": name, "arguments": arguments} for name, arguments in calls]
    return {"message": {"content": content, "reasoning_content": reasoning, "tool_calls": called}}


def parsed(one_shot: dict, **others: dict) -> list[dict]:
    """Return the rows of a parse question; plans that are not named answer as one-shot does."""
    plans = {name: others.get(name.replace("-", "_"), one_shot) for name in PLANS}
    return of(PARSE, Answered({"modes": {"one-shot": one_shot, **plans}}))


def test_a_prompt_of_ids() -> None:
    """The digest is the reference's: of the ids as little-endian u32."""
    [row] = of(RENDER, Answered({"prompt_ids": [1, 70_000], "prompt_text": None}))
    assert row == {
        **HEAD,
        **{"case_id": "render/common/x", "kind": "render", "mode": "one-shot", "outcome": "result"},
        **{"prompt_ids": [1, 70_000], "prompt_sha256": digest(1, 70_000)},
    }


def test_a_prompt_of_text() -> None:
    """A template engine has no ids."""
    [row] = of(RENDER, Answered({"prompt_ids": None, "prompt_text": "é"}))
    assert row["prompt_text"] == "é"
    assert row["prompt_text_sha256"] == hashlib.sha256("é".encode()).digest()
    assert "prompt_ids" not in row
    assert "prompt_sha256" not in row


def test_ids_of_a_text() -> None:
    """Tokenize: an empty text has none."""
    [row] = of(TOKENIZE, Answered({"ids": []}))
    assert (row["output_ids"], row["output_sha256"]) == ([], digest())


def test_pieces_of_ids() -> None:
    """Detokenize: ends count characters; the digest of the ids is the question's."""
    [row] = of(DETOKENIZE, Answered({"text": "é!", "pieces": ["", "é!"]}))
    assert (row["output_text"], row["piece_ends"], row["output_sha256"]) == ("é!", [0, 2], GIVEN)
    assert row["pieces_sha256"] == hashlib.sha256(b'["", "\\u00e9!"]').digest()
    assert "output_ids" not in row


def test_plans_that_agree_are_counted_and_not_stored() -> None:
    """One row, with the message and its digests."""
    [row] = parsed(message("hi", None, ("f", '{"a": 1}')))
    assert (row["plans"], row["plans_equal"], row["plans_failed"]) == (3, 3, 0)
    assert (row["content"], row["tool_calls"]) == ("hi", [{"name": "f", "arguments": '{"a": 1}'}])
    assert row["output_sha256"] == GIVEN
    canonical = {"content": "hi", "reasoning_content": "", "tool_calls": [["f", '{"a": 1}']]}
    assert row["message_sha256"] == hashlib.sha256(json.dumps(canonical).encode()).digest()
    assert {"message_value_sha256", "message_bare_sha256"} <= row.keys()


def test_an_empty_text_and_none_are_the_same_message() -> None:
    """As everywhere."""
    assert len(parsed(message(None), whole=message(""))) == 1


def test_a_plan_that_spells_arguments_otherwise_is_stored() -> None:
    """Equal is byte for byte: the digest by value tells them together."""
    first, second = parsed(message(None, None, ("f", '{"a":1}')), per_token=message(None, None, ("f", '{"a": 1}')))
    assert (first["plans_equal"], second["mode"]) == (2, "per_token")
    assert first["message_sha256"] != second["message_sha256"]
    assert first["message_value_sha256"] == second["message_value_sha256"]
    assert "plans" not in second


def test_plans_that_were_refused_or_not_measured_are_stored() -> None:
    """Neither equals anything; only the one is counted as failed. Rows stand in the order of the plans."""
    failed, refused = {"failed": {"code": "KeyError", "message": "x"}}, {"refused": {"code": "400", "message": "no"}}
    first, second, third = parsed(message("hi"), split_1=refused, whole=failed)
    assert (first["plans"], first["plans_equal"], first["plans_failed"]) == (3, 1, 1)
    assert (second["mode"], second["outcome"], second["reason_code"]) == ("whole", "measurement_failed", "KeyError")
    assert (third["mode"], third["outcome"], third["reason"]) == ("split-1", "refused", "no")


def test_one_shot_that_was_not_measured_equals_nothing() -> None:
    """Plans that were measured are evidence, each in a row of its own."""
    first, *others = parsed(
        {"failed": {"code": "X", "message": ""}}, **dict.fromkeys(("whole", "split_1"), message("a"))
    )
    assert (first["outcome"], first["plans_equal"], first["plans_failed"]) == ("measurement_failed", 0, 1)
    assert [(row["mode"], row["outcome"]) for row in others] == [
        ("whole", "result"),
        ("per_token", "measurement_failed"),
        ("split-1", "result"),
    ]


def test_a_call_that_was_never_named_is_a_call() -> None:
    """A stream may end before."""
    [row] = parsed(message(None, None, (None, "")))
    assert row["tool_calls"] == [{"name": None, "arguments": ""}]


def test_a_refusal_is_evidence_and_a_failure_is_not() -> None:
    """The same question, two outcomes; a refused output was not failed to be measured."""
    [refused] = of(PARSE, Refused("BadRequestError", "no /here/tokenizer.json"))
    [failed] = of(PARSE, Failed("timeout", "gave no answer in time"))
    assert (refused["outcome"], refused["reason_code"]) == ("refused", "BadRequestError")
    assert refused["reason"] == "no <model>/tokenizer.json"
    assert (refused["plans"], refused["plans_equal"], refused["plans_failed"]) == (3, 0, 0)
    assert (failed["outcome"], failed["reason_code"]) == ("measurement_failed", "timeout")
    assert (failed["plans"], failed["plans_equal"], failed["plans_failed"]) == (3, 0, 3)
    assert "plans" not in of(RENDER, Failed("timeout", ""))[0]


@pytest.mark.parametrize(
    ("one", "value", "reason"),
    [
        (RENDER, None, "no prompt_ids"),
        (RENDER, {"prompt_ids": [1]}, "no prompt_text"),
        (RENDER, {"prompt_ids": None, "prompt_text": None}, "neither prompt_ids nor prompt_text"),
        (RENDER, {"prompt_ids": [1, -1], "prompt_text": None}, "prompt_ids is no list of token ids"),
        (RENDER, {"prompt_ids": [True], "prompt_text": None}, "prompt_ids is no list of token ids"),
        (RENDER, {"prompt_ids": [1.0], "prompt_text": None}, "prompt_ids is no list of token ids"),
        (RENDER, {"prompt_ids": [1 << 31], "prompt_text": None}, "prompt_ids is no list of token ids"),
        (RENDER, {"prompt_ids": None, "prompt_text": "\ud800"}, "prompt_text holds half of a surrogate pair"),
        (RENDER, {"prompt_ids": None, "prompt_text": b"x".hex}, "prompt_text is no text"),
        (TOKENIZE, [1], "no ids"),
        (TOKENIZE, {"ids": "1"}, "ids is no list of token ids"),
        (DETOKENIZE, {"text": "ab", "pieces": ["ab"]}, "pieces is no list of 2"),
        (DETOKENIZE, {"text": "ab", "pieces": ["a", "c"]}, "pieces do not add up to text"),
        (DETOKENIZE, {"text": "ab", "pieces": ["ab", None]}, "a piece is no text"),
        (PARSE, {"modes": []}, "modes are not one-shot and the plans"),
        (PARSE, {"modes": {"one-shot": message("a")}}, "modes are not one-shot and the plans"),
        (PARSE, {"modes": dict.fromkeys(["one-shot", *PLANS, "more"], message("a"))}, "modes are not one-shot and the"),
    ],
)
def test_an_answer_of_another_shape_is_a_failed_measurement(one: Ask, value: Any, reason: str) -> None:
    """Its row says what was wrong, and holds nothing of it."""
    [row] = of(one, Answered(value))
    assert (row["outcome"], row["reason_code"]) == ("measurement_failed", "malformed-answer")
    assert row["reason"].startswith(reason)
    assert not {"prompt_ids", "prompt_text", "output_ids", "output_text", "content"} & row.keys()


@pytest.mark.parametrize(
    "mode",
    [
        None,
        {},
        {"message": None},
        {"message": {"content": "a"}},
        {"message": {**message("a")["message"], "role": "assistant"}},
        {"message": {**message("a")["message"], "content": 1}},
        {"message": {**message("a")["message"], "tool_calls": None}},
        {"message": {**message("a")["message"], "tool_calls": [{"name": "f"}]}},
        {"message": {**message("a")["message"], "tool_calls": [{"name": "f", "arguments": {"a": 1}}]}},
        {**message("a"), "failed": {"code": "X", "message": ""}},
        {"failed": "X"},
    ],
)
def test_a_mode_of_another_shape_costs_that_mode(mode: Any) -> None:
    """The others are measured."""
    first, second = parsed(message("a"), per_token=mode)
    assert (first["outcome"], first["plans_equal"], first["plans_failed"]) == ("result", 2, 1)
    assert (second["mode"], second["reason_code"]) == ("per_token", "malformed-answer")
