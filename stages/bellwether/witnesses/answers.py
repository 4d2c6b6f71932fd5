"""An outcome of a question as rows of the WITNESS table. What an engine says is checked here, shape by shape.

A parse question has one row of mode one-shot, which counts its plans, and one more row for each plan whose message is
not one-shot's byte for byte, was refused, or could not be measured. A row that takes the place of a malformed answer
says in its reason what was malformed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Any

from bellwether.digests import (
    ids_sha256,
    message_bare_sha256,
    message_sha256,
    message_value_sha256,
    pieces_sha256,
    text_sha256,
)
from bellwether.witnesses.outcome import Answered, Failed, Outcome, Refused, lasting
from bellwether.witnesses.questions import Ask

ONE_SHOT = "one-shot"
LARGEST_ID = (1 << 31) - 1
Row = dict[str, Any]


class _Malformed(Exception):
    """Raised when an answer has another shape than it was asked for."""


def rows(ask: Ask, outcome: Outcome, head: Mapping[str, str], passing: Mapping[str, str]) -> list[Row]:
    """Return the rows of one question. `head` holds what all rows of the table share.

    `passing` is what messages may name that belongs to this run; see `outcome.lasting`.
    """
    base = {**head, "case_id": ask.case_id, "kind": ask.kind, "mode": ONE_SHOT}
    if ask.output_sha256 is not None:
        base["output_sha256"] = ask.output_sha256
    try:
        if isinstance(outcome, Answered):
            answered = list(_answered(ask, outcome.value, passing))
        else:
            answered = [_without_answer(outcome, passing) | _unmeasured(ask, outcome)]
    except _Malformed as fault:
        failed = Failed("malformed-answer", str(fault))
        answered = [_without_answer(failed, passing) | _unmeasured(ask, failed)]
    return [base | row for row in answered]


def _answered(ask: Ask, value: Any, passing: Mapping[str, str]) -> Iterator[Row]:
    match ask.kind:
        case "render":
            yield {"outcome": "result", **_prompt(value)}
        case "tokenize":
            ids = _ids(_member(value, "ids"), "ids")
            yield {"outcome": "result", "output_ids": ids, "output_sha256": ids_sha256(ids)}
        case "detokenize":
            yield {"outcome": "result", **_pieces(value, len(ask.question["ids"]))}
        case "parse":
            yield from _modes(ask, _member(value, "modes"), passing)


def _without_answer(outcome: Refused | Failed, passing: Mapping[str, str]) -> Row:
    kind = "refused" if isinstance(outcome, Refused) else "measurement_failed"
    return {
        "outcome": kind,
        "reason_code": lasting(outcome.code, passing),
        "reason": lasting(outcome.message, passing),
    }


def _unmeasured(ask: Ask, outcome: Refused | Failed) -> Row:
    """Return the plan counts of a parse question that got one outcome for all its plans."""
    if ask.kind != "parse":
        return {}
    plans = len(ask.question["plans"])
    return {"plans": plans, "plans_equal": 0, "plans_failed": plans if isinstance(outcome, Failed) else 0}


# ── shapes ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _prompt(value: Any) -> Row:
    ids, text = _member(value, "prompt_ids"), _member(value, "prompt_text")
    if ids is None and text is None:
        raise _Malformed("neither prompt_ids nor prompt_text")
    row: Row = {}
    if ids is not None:
        row |= {"prompt_ids": _ids(ids, "prompt_ids"), "prompt_sha256": ids_sha256(ids)}
    if text is not None:
        row |= {"prompt_text": _text(text, "prompt_text"), "prompt_text_sha256": text_sha256(text)}
    return row


def _pieces(value: Any, count: int) -> Row:
    text, pieces = _text(_member(value, "text"), "text"), _member(value, "pieces")
    if not isinstance(pieces, list) or len(pieces) != count:
        raise _Malformed(f"pieces is no list of {count}")
    if "".join(_text(piece, "a piece") for piece in pieces) != text:
        raise _Malformed("pieces do not add up to text")
    return {
        "output_text": text,
        "output_text_sha256": text_sha256(text),
        "piece_ends": list(accumulate(map(len, pieces))),
        "pieces_sha256": pieces_sha256(pieces),
    }


def _modes(ask: Ask, modes: Any, passing: Mapping[str, str]) -> Iterator[Row]:
    """Yield the row of one-shot, then those of plans that are stored, in the order they were asked in."""
    wanted = [ONE_SHOT, *ask.question["plans"]]
    if not isinstance(modes, dict) or set(modes) != set(wanted):
        raise _Malformed("modes are not one-shot and the plans")
    first = _mode(modes[ONE_SHOT], passing)
    plans = [
        (mode, first if modes[mode] == modes[ONE_SHOT] else _mode(modes[mode], passing))
        for mode in ask.question["plans"]
    ]
    differing = [(mode, row) for mode, row in plans if not _same(row, first)]
    yield first | {
        "plans": len(plans),
        "plans_equal": len(plans) - len(differing),
        "plans_failed": sum(row["outcome"] == "measurement_failed" for _, row in plans),
    }
    for mode, row in differing:
        yield {"mode": mode, **row}


def _same(row: Row, other: Row) -> bool:
    return "message_sha256" in row and row["message_sha256"] == other.get("message_sha256")


def _mode(value: Any, passing: Mapping[str, str]) -> Row:
    match value:
        case {"message": dict(message), **rest} if not rest:
            try:
                return {"outcome": "result", **_message(message)}
            except _Malformed as fault:
                return _without_answer(Failed("malformed-answer", str(fault)), passing)
        case {"refused": {"code": str(code), "message": str(text)}, **rest} if not rest:
            return _without_answer(Refused(code, text), passing)
        case {"failed": {"code": str(code), "message": str(text)}, **rest} if not rest:
            return _without_answer(Failed(code, text), passing)
    return _without_answer(Failed("malformed-answer", "neither message nor refused nor failed"), passing)


def _message(message: dict[str, Any]) -> Row:
    if set(message) != {"content", "reasoning_content", "tool_calls"}:
        raise _Malformed("a message has other fields than content, reasoning_content and tool_calls")
    texts = [None if message[name] is None else _text(message[name], name) for name in ("content", "reasoning_content")]
    if not isinstance(message["tool_calls"], list):
        raise _Malformed("tool_calls is no list")
    calls = [_call(call) for call in message["tool_calls"]]
    return {
        "content": texts[0],
        "reasoning_content": texts[1],
        "tool_calls": calls,
        "message_sha256": message_sha256(*texts, calls),
        "message_value_sha256": message_value_sha256(*texts, calls),
        "message_bare_sha256": message_bare_sha256(*texts, calls),
    }


def _call(call: Any) -> dict[str, str | None]:
    """Return one call. A stream may end before it has named the function: no name is a value."""
    if not isinstance(call, dict) or set(call) != {"name", "arguments"}:
        raise _Malformed("a call has other fields than name and arguments")
    name = None if call["name"] is None else _text(call["name"], "name")
    return {"name": name, "arguments": _text(call["arguments"], "arguments")}


def _member(value: Any, name: str) -> Any:
    if not isinstance(value, dict) or name not in value:
        raise _Malformed(f"no {name}")
    return value[name]


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise _Malformed(f"{name} is no text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _Malformed(f"{name} holds half of a surrogate pair") from None
    return value


def _ids(value: Any, name: str) -> list[int]:
    if not isinstance(value, list) or not all(type(one) is int and 0 <= one <= LARGEST_ID for one in value):
        raise _Malformed(f"{name} is no list of token ids")
    return value
