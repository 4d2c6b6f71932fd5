"""From an ending to its row: every ending is told apart, and nothing of one run stays."""

from __future__ import annotations

import hashlib
import struct

import pytest

from bellwether.gateways.answer import Answer, Failed, Missing, Prompt, Refused
from bellwether.observing.replays import Replay
from bellwether.observing.rows import Ending, Row, row

HEAD = {"checkpoint": "qwen3-8b", "target": "smg-1.13.0", "target_version": "1.13.0"}
GIVEN = bytes(range(32))


def of(ending: Ending, kind: str = "render", plan: str | None = None, text: str | None = None) -> Row:
    mode = "full" if plan is None else "stream"
    replay = Replay(f"{kind}/common/a", kind, mode, plan, _question(plan), GIVEN if kind == "parse" else None)
    return row(replay, ending, text, HEAD, {"/somewhere/inputs": "<model>"})


def _question(plan: str | None) -> dict:
    return {"ids": [1, 2, 3], "stop_id": 9, "plans": {plan: [3]}}


def digest(*ids: int) -> bytes:
    return hashlib.sha256(struct.pack(f"<{len(ids)}I", *ids)).digest()


def test_a_prompt() -> None:
    """Ids, and their digest."""
    found = of(Prompt([5, 6]))
    assert found.items() >= HEAD.items()
    assert (found["outcome"], found["http_status"], found["mode"], found["plan"]) == ("result", 200, "full", None)
    assert (found["prompt_ids"], found["prompt_sha256"]) == ([5, 6], digest(5, 6))


def test_a_message_says_what_was_counted_by_whom() -> None:
    """The gateway's usage beside what its engine was sent and gave, the id that ends the turn included."""
    call = {"name": "f", "arguments": '{"a": 1}'}
    answer = Answer("hi", None, [call], "tool_calls", (9, 3), parser="legacy", in_pieces=True, prompt_ids=[1] * 8)
    found = of(answer, "parse", "whole")
    assert (found["usage_prompt_tokens"], found["usage_completion_tokens"]) == (9, 3)
    assert (found["prompt_tokens"], found["completion_tokens"]) == (8, 4)
    assert (found["parser_used"], found["finish_reason"], found["tool_calls"]) == ("legacy", "tool_calls", [call])
    assert (found["output_sha256"], found["plan"], found["in_pieces"]) == (GIVEN, "whole", True)
    assert found["prompt_sha256"] == digest(*[1] * 8)


def test_what_was_not_counted_is_unknown() -> None:
    """Without sight of the engine, and without usage."""
    found = of(Answer("hi", None, [], "stop", None), "parse")
    assert [found[name] for name in ("usage_prompt_tokens", "prompt_tokens", "completion_tokens")] == [None] * 3


def test_empty_and_absent_content_have_one_digest() -> None:
    """As everywhere."""
    assert (
        of(Answer("", None, [], "stop", None), "parse")["message_sha256"]
        == of(Answer(None, "", [], "stop", None), "parse")["message_sha256"]
    )


def test_the_decoders_text_stands_with_the_whole_answer_only() -> None:
    """Streams of one output would repeat it."""
    answer = Answer("hi", None, [], "stop", None)
    assert of(answer, "parse", text="hi<end>")["output_text"] == "hi<end>"
    assert "output_text" not in of(answer, "parse", "whole", text="hi<end>")


def test_ids_and_texts() -> None:
    """tokenize and detokenize."""
    assert of([4], "tokenize")["output_sha256"] == digest(4)
    assert of("é", "detokenize")["output_text_sha256"] == hashlib.sha256("é".encode()).digest()


@pytest.mark.parametrize(
    ("ending", "outcome", "code", "status"),
    [
        (Refused("process_messages_failed", "no", 400), "refused", "process_messages_failed", 400),
        (Failed("http-500", "no", 500), "measurement_failed", "http-500", 500),
        (Failed("unreachable"), "measurement_failed", "unreachable", None),
        (Missing(), "missing", "no-capture", 200),
        (Prompt([-1]), "measurement_failed", "malformed-answer", 200),
        (Prompt([2**31]), "measurement_failed", "malformed-answer", 200),
    ],
)
def test_every_ending_is_told_apart(ending: Ending, outcome: str, code: str, status: int | None) -> None:
    """Only a value is a result, and it holds no ids that cannot be."""
    found = of(ending)
    assert (found["outcome"], found["reason_code"], found["http_status"]) == (outcome, code, status)
    assert "prompt_ids" not in found


def test_nothing_of_one_run_stays_in_a_reason() -> None:
    """Ports, folders and random names differ from run to run."""
    said = "127.0.0.1:41233 refused 6f1e1d2c-0000-4000-8000-0123456789ab for /somewhere/inputs"
    assert of(Failed("http-500", said, 500))["reason"] == "… refused … for <model>"
