"""What a checkpoint's own response template reads out of an output: transformers' `parse_response`.

It is a second opinion on the message of a proven output, or on what a malformed one says. Rows keep the output and
change the message; whether the two messages agree is a question for SQL.
"""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedTokenizerBase

from bellwether.case import json_text
from bellwether.oracles import rows
from bellwether.oracles.refusals import Refusal, reason

RESPONSE_TEMPLATE = "response-template"


def read_output(tokenizer: PreTrainedTokenizerBase, row: rows.Row, tools: list | None) -> rows.Row:
    """Return what the response template reads out of the output of a round trip's `row`.

    A case that is not for the checkpoint stays so, and one without an output has nothing to read.
    """
    of_answer = ("outcome", "reason_class", "reason_code", "reason", *rows.message({}))
    base = {key: value for key, value in row.items() if key not in of_answer} | {"source": RESPONSE_TEMPLATE}
    if row["outcome"] == "not_applicable":
        return {**row, **base}
    if row.get("output_text") is None:
        return {**base, **rows.refused(Refusal("no-output"))}
    try:
        message = _message(tokenizer.parse_response(row["output_text"], prefix=row["prompt_text"], tools=tools))
    except Exception as error:  # a stranger's patterns on any text: whatever they raise is their answer
        ends = ("finish_reason", "stop_id", "stop_found_by")
        base = {key: value for key, value in base.items() if key not in ends}
        return {**base, **rows.refused(Refusal("response-template-error", reason(error)))}
    finish = {"finish_reason": "tool_calls" if message.get("tool_calls") else "stop"}
    return {**base, "outcome": "result", **rows.message(message), **finish}


def _message(parsed: dict[str, Any]) -> dict[str, Any]:
    """Return a parsed message in the form of the corpus, where a call's arguments are JSON text."""
    calls = [
        {"function": {"name": call["function"]["name"], "arguments": _text(call["function"].get("arguments"))}}
        for call in parsed.get("tool_calls") or ()
    ]
    texts = {part: parsed[part] for part in ("content", "reasoning_content") if isinstance(parsed.get(part), str)}
    return {**texts, "tool_calls": calls}


def _text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json_text(arguments)
