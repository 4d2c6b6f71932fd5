"""The token references: text → ids for tokenize cases, ids → streamed pieces for detokenize cases."""

from __future__ import annotations

from typing import Any

from bellwether.oracles import rows
from bellwether.oracles.checkpoint import Checkpoint
from bellwether.oracles.encoders import Encoder
from bellwether.oracles.refusals import Refusal
from bellwether.oracles.roundtrip import piece_ends


def answer(checkpoint: Checkpoint, cases: list[dict[str, Any]]) -> list[rows.Row]:
    """Return the reference rows of `cases`, in order."""
    answers = []
    for case in cases:
        base = {"checkpoint": checkpoint.manifest.slug, "case_id": case["case_id"], "kind": case["kind"]}
        base |= {"source": "hf-tokenizer"}
        if case["requires"] and case["requires"].hex() != checkpoint.manifest.inputs.get("tokenizer.json"):
            answers.append({**base, **rows.refused(Refusal("other-vocabulary"))})
            continue
        kind = _tokenize if case["kind"] == "tokenize" else _detokenize
        outputs = {encoder.name: kind(encoder, case) for encoder in checkpoint.encoders}
        answers += [{**base, **row} for row in rows.distinct(outputs)]
    return answers


def _tokenize(encoder: Encoder, case: dict[str, Any]) -> rows.Row:
    [ids] = encoder.encode([case["text"]])
    return {"outcome": "result", **rows.output(None, ids)}


def _detokenize(encoder: Encoder, case: dict[str, Any]) -> rows.Row:
    """Text cases take the ids the encoder gives them; a normalizer may make that text another one, which is
    recorded."""
    ids = case["ids"] if case["ids"] is not None else encoder.encode([case["text"]])[0]
    text = encoder.decode(ids)
    ends = piece_ends(encoder.pieces(ids), text)
    if ends is None:
        return rows.refused(Refusal("pieces-do-not-join")) | rows.output(text, ids)
    return {"outcome": "result", **rows.output(text, ids, ends)}
