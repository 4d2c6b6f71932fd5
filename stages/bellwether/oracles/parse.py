"""The parse reference as rows: an engine output the round trip proves, and the message it stands for.

A second reference proves the output vLLM's example template writes. A response template is no proof: it is what the
checkpoint itself reads out of an output the round trip gave.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from bellwether.oracles import rows
from bellwether.oracles.checkpoint import Checkpoint
from bellwether.oracles.content_format import STRING
from bellwether.oracles.encoders import Encoder
from bellwether.oracles.limits import time_limit
from bellwether.oracles.normalisation import VLLM
from bellwether.oracles.prompts import Prompts
from bellwether.oracles.refusals import Refusal
from bellwether.oracles.response_template import RESPONSE_TEMPLATE, read_output
from bellwether.oracles.roundtrip import Refused, RoundTrip, piece_ends
from bellwether.oracles.shared import one_case

ROUND_TRIP = "roundtrip"


def answer(checkpoint: Checkpoint, cases: list[dict[str, Any]]) -> list[rows.Row]:
    """Return the reference rows of `cases`, in order."""
    answers = []
    for case in cases:
        with time_limit(checkpoint.params.template_seconds, f"{checkpoint.manifest.slug} {case['case_id']}"):
            answers += parse(checkpoint, case)
    return answers


def parse(checkpoint: Checkpoint, case: dict[str, Any]) -> Iterator[rows.Row]:
    """Yield the rows of one case: per source one, or one per encoder where they differ.

    A refused case keeps its prompt when there is one, and a malformed one its output: both can be replayed.
    """
    request = json.loads(case["request"])
    with one_case(request.get("tools")):
        yield from _sources(checkpoint, case, request)


def _sources(checkpoint: Checkpoint, case: dict[str, Any], request: dict[str, Any]) -> Iterator[rows.Row]:
    message = json.loads(case["message"]) if case["message"] is not None else {}
    head = {"checkpoint": checkpoint.manifest.slug, "case_id": case["case_id"], "kind": "parse"}
    sources = checkpoint.manifest.authority["parse"]
    proven = [head | row for row in _round_trip(checkpoint, checkpoint.writer, case, request, message)]
    for source in sources:
        if source == RESPONSE_TEMPLATE:
            yield from (read_output(checkpoint.tokenizer, row, request.get("tools")) for row in proven)
        else:
            yield from ({**row, "source": source} for row in proven)
    for second in checkpoint.seconds if request.get("tools") else ():
        for row in _round_trip(second, second, case, request, message):
            yield {**head, "source": f"{ROUND_TRIP}:{second.source}", **row}


def _round_trip(
    checkpoint: Checkpoint, writer: Prompts, case: dict[str, Any], request: dict[str, Any], message: dict[str, Any]
) -> Iterator[rows.Row]:
    """Yield the rows of one round trip, without their heads."""
    base: rows.Row = {"normalisation": VLLM}
    base["content_format"] = STRING if isinstance(writer, Checkpoint) else writer.content_format
    if message.get("tool_calls") and not writer.renders_calls:
        yield {**base, **rows.refused(Refusal("template-renders-no-calls"))}
        return
    trip = RoundTrip(writer, request, message)
    stop_ids = frozenset(checkpoint.stop_ids.parse)
    try:
        base["reads_clock"] = trip.made.reads_clock
    except Refused as refused:
        yield {**base, **rows.refused(refused.refusal)}
        return

    outputs = {}
    for encoder in checkpoint.encoders:
        ids = trip.made.ids
        if ids is None:
            [ids] = encoder.encode_packed([trip.prompt], [f"{checkpoint.manifest.slug} {case['case_id']}"])
        output = _malformed(encoder, case["text"]) if case["malformed"] else _proven(trip, encoder, stop_ids)
        outputs[encoder.name] = rows.prompt(trip.prompt, ids) | output
    for row in rows.distinct(outputs):
        yield {**base, **row}


def _proven(trip: RoundTrip, encoder: Encoder, stop_ids: frozenset[int]) -> rows.Row:
    proof = trip.prove(encoder, stop_ids)
    if isinstance(proof, Refusal):
        return rows.refused(proof)
    return {
        "outcome": "result",
        **rows.output(proof.text, proof.ids, proof.piece_ends),
        **rows.message(trip.message),
        "finish_reason": proof.finish_reason,
        "stop_id": proof.stop_id,
        "stop_found_by": proof.found_by,
    }


def _malformed(encoder: Encoder, text: str) -> rows.Row:
    [ids] = encoder.encode([text])
    return rows.refused(Refusal("malformed")) | rows.output(text, ids, piece_ends(encoder.pieces(ids), text))
