"""The parse reference as rows: an engine output the round trip proves, and the message it stands for."""

from __future__ import annotations

import json
from typing import Any

from bellwether.oracles import rows
from bellwether.oracles.checkpoint import Checkpoint
from bellwether.oracles.encoders import Encoder
from bellwether.oracles.limits import time_limit
from bellwether.oracles.refusals import Refusal
from bellwether.oracles.roundtrip import Refused, RoundTrip, piece_ends


def answer(checkpoint: Checkpoint, cases: list[dict[str, Any]]) -> list[rows.Row]:
    """Return the reference rows of `cases`, in order."""
    answers = []
    for case in cases:
        with time_limit(checkpoint.params.template_seconds, f"{checkpoint.manifest.slug} {case['case_id']}"):
            answers += parse(checkpoint, case)
    return answers


def parse(checkpoint: Checkpoint, case: dict[str, Any]) -> list[rows.Row]:
    """Return the rows of one case: one, or one per encoder where they differ.

    A refused case keeps its prompt when there is one, and a malformed one its output: both can be replayed.
    """
    base = {"checkpoint": checkpoint.manifest.slug, "case_id": case["case_id"], "kind": "parse"}
    base |= {"source": "roundtrip", "normalisation": "vllm", "content_format": "string"}
    message = json.loads(case["message"]) if case["message"] is not None else {}
    if message.get("tool_calls") and not checkpoint.renders_calls:
        return [{**base, **rows.refused(Refusal("template-renders-no-calls"))}]
    trip = RoundTrip(checkpoint, json.loads(case["request"]), message)
    stop_ids = frozenset(checkpoint.stop_ids.parse)
    try:
        prompt = trip.prompt
        base["reads_clock"] = checkpoint.differs_at_other_clock(
            prompt, trip.history, trip.tools, kwargs=trip.kwargs, add_generation_prompt=True
        )
    except Refused as refused:
        return [{**base, **rows.refused(refused.refusal)}]

    outputs = {}
    for encoder in checkpoint.encoders:
        [ids] = encoder.encode([prompt])
        output = _malformed(encoder, case["text"]) if case["malformed"] else _proven(trip, encoder, stop_ids)
        outputs[encoder.name] = rows.prompt(prompt, ids) | output
    return [{**base, **row} for row in rows.distinct(outputs)]


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
