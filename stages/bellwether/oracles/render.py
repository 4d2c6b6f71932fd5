"""The render reference: the prompt text and ids the checkpoint's own chat template gives for a request."""

from __future__ import annotations

import json
from typing import Any

from bellwether.oracles import rows
from bellwether.oracles.checkpoint import Checkpoint, TemplateError
from bellwether.oracles.limits import time_limit
from bellwether.oracles.refusals import Refusal


def answer(checkpoint: Checkpoint, cases: list[dict[str, Any]]) -> list[rows.Row]:
    """Return the reference rows of `cases`, in order; all prompts of a batch are encoded together."""
    rendered = [render(checkpoint, case) for case in cases]
    texts = [row["prompt_text"] for row in rendered if row["outcome"] == "result"]
    encoded = {encoder.name: iter(encoder.encode(texts)) for encoder in checkpoint.encoders}
    answers = []
    for case, row in zip(cases, rendered, strict=True):
        base = {"checkpoint": checkpoint.manifest.slug, "case_id": case["case_id"], "kind": "render"}
        base |= {"source": "hf-template"}
        base |= {"normalisation": "raw", "content_format": "string", **row}
        if row["outcome"] == "result":
            prompts = {name: rows.prompt(row["prompt_text"], next(ids)) for name, ids in encoded.items()}
            answers += [{**base, **prompt} for prompt in rows.distinct(prompts)]
        else:
            answers.append(base)
    return answers


def render(checkpoint: Checkpoint, case: dict[str, Any]) -> dict[str, Any]:
    """Return outcome, prompt_text and reads_clock of one case, or its refusal.

    Raises:
        TemplateTimeout, OracleError: no evidence came of it.
    """
    request = json.loads(case["request"])
    continues = request.get("continue_final_message", False)
    arguments = {
        "messages": request["messages"],
        "tools": request.get("tools"),
        "kwargs": request.get("chat_template_kwargs") or {},
        "continue_final_message": continues,
        "add_generation_prompt": request.get("add_generation_prompt", not continues),
    }
    try:
        with time_limit(checkpoint.params.template_seconds, f"{checkpoint.manifest.slug} {case['case_id']}"):
            text = checkpoint.render(**arguments)
            reads_clock = checkpoint.differs_at_other_clock(text, **arguments)
    except TemplateError as error:
        return rows.refused(Refusal("template-error", str(error)))
    return {"outcome": "result", "prompt_text": text, "reads_clock": reads_clock}
