"""From what came of a replay to its row. What belongs to one run alone, such as a port or an id, is left out."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

from bellwether.digests import ids_sha256, message_bare_sha256, message_sha256, message_value_sha256, text_sha256
from bellwether.gateways.answer import Answer, Failed, Missing, Prompt, Refused
from bellwether.observing.replays import FULL, Replay
from bellwether.witnesses.outcome import lasting

Row = dict[str, Any]
Ending = Prompt | Answer | list[int] | str | Refused | Missing | Failed
"""Of render, parse, tokenize and detokenize; or why there is no value."""

LARGEST_ID = 2**31 - 1
ADDRESS = re.compile(r"\b127\.0\.0\.1:\d+|\blocalhost:\d+")


def row(replay: Replay, ending: Ending, text: str | None, head: Mapping[str, str], passing: Mapping[str, str]) -> Row:
    """Return the row of a replay.

    `text` is what the gateway's decoder makes of the output, where it was asked; `head` the columns all rows share;
    `passing` maps what belongs to this run to a word for it.
    """
    common = {
        **head,
        **{"case_id": replay.case_id, "kind": replay.kind, "mode": replay.mode, "plan": replay.plan},
        "output_sha256": replay.output_sha256,
    }
    match ending:
        case Refused(code=code, message=message, status=status):
            return common | {"outcome": "refused", "http_status": status, **_reason(code, message, passing)}
        case Failed(code=code, message=message, status=status):
            return common | {"outcome": "measurement_failed", "http_status": status, **_reason(code, message, passing)}
        case Missing():
            return common | {"outcome": "missing", "http_status": 200, **_reason("no-capture", "", passing)}
    common |= {"outcome": "result", "http_status": 200}
    try:
        return common | _value(replay, ending, text)
    except _Malformed as fault:
        return common | {"outcome": "measurement_failed", **_reason("malformed-answer", str(fault), passing)}


class _Malformed(Exception):
    pass


def _reason(code: str, message: str, passing: Mapping[str, str]) -> Row:
    return {
        name: lasting(ADDRESS.sub("…", said), passing) for name, said in (("reason_code", code), ("reason", message))
    }


def _value(replay: Replay, ending: Prompt | Answer | list[int] | str, text: str | None) -> Row:
    match ending:
        case Prompt(ids=ids):
            return {"prompt_ids": _ids(ids), "prompt_sha256": ids_sha256(ids)} | (
                {}
                if ending.text is None
                else {"prompt_text": ending.text, "prompt_text_sha256": text_sha256(ending.text)}
            )
        case Answer():
            return _message(replay, ending) | ({} if text is None or replay.mode != FULL else _text(text))
        case list():
            return {"output_ids": _ids(ending), "output_sha256": ids_sha256(ending)}
    return _text(ending)


def _message(replay: Replay, answer: Answer) -> Row:
    texts = answer.content, answer.reasoning_content
    usage, question = answer.usage or (None, None), replay.question
    seen = answer.prompt_ids is not None
    return {
        **{"content": texts[0], "reasoning_content": texts[1], "tool_calls": answer.tool_calls},
        **_digests(*texts, tuple((call["name"], call["arguments"]) for call in answer.tool_calls)),
        **{"finish_reason": answer.finish_reason, "parser_used": answer.parser},
        **{"usage_prompt_tokens": usage[0], "usage_completion_tokens": usage[1]},
        "prompt_tokens": len(answer.prompt_ids) if seen else None,
        # the id that ends the turn is said too, see gateways/spoken.py
        "completion_tokens": len(question["ids"]) + (question["stop_id"] is not None) if seen else None,
        "prompt_sha256": ids_sha256(_ids(answer.prompt_ids)) if seen else None,
        **{"framing": answer.framing, "in_pieces": answer.in_pieces},
    }


@functools.lru_cache(maxsize=64)  # most plans of an output come to one message
def _digests(content: str | None, reasoning: str | None, calls: tuple[tuple[str | None, str], ...]) -> Row:
    message = content, reasoning, [{"name": name, "arguments": arguments} for name, arguments in calls]
    return {
        "message_sha256": message_sha256(*message),
        "message_value_sha256": message_value_sha256(*message),
        "message_bare_sha256": message_bare_sha256(*message),
    }


def _text(text: str) -> Row:
    return {"output_text": text, "output_text_sha256": text_sha256(text)}


def _ids(ids: list[int]) -> list[int]:
    if ids and not (set(map(type, ids)) == {int} and min(ids) >= 0 and max(ids) <= LARGEST_ID):
        raise _Malformed("no list of token ids")
    return ids
