"""The render reference: the prompt text and ids each source of a checkpoint makes of a request.

A request is asked in two normalisations. Where both give one answer, which is the rule, one row says `both`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from bellwether.neighbours import conversation_ends
from bellwether.oracles import rows
from bellwether.oracles.checkpoint import Checkpoint
from bellwether.oracles.content_format import STRING
from bellwether.oracles.limits import time_limit
from bellwether.oracles.normalisation import RAW, VLLM, NonTextPart, as_vllm
from bellwether.oracles.prompts import HUB_TEMPLATE, CollidingVariable, Prompts, TemplateError
from bellwether.oracles.refusals import Refusal
from bellwether.oracles.requests import parsed
from bellwether.oracles.shared import one_batch, one_case


def answer(checkpoint: Checkpoint, cases: list[dict[str, Any]]) -> list[rows.Row]:
    """Return the reference rows of `cases`, in order; all prompts of a batch are encoded together.

    The first and last prompt of each conversation are among those whose ids are made in two ways and compared; where
    one reaches beyond the batch is known from `neighbours.with_neighbours`. What turns of a conversation have in common
    is parsed, copied and printed once.
    """
    requests = list(parsed(case["request"] for case in cases))
    ends = {cases[place]["case_id"] for place in conversation_ends(cases, requests)}
    with one_batch():
        made = [row for case, request in zip(cases, requests, strict=True) for row in _rows(checkpoint, case, request)]
    # one text is often the prompt of several rows
    names = {row["prompt_text"]: f"{row['checkpoint']} {row['case_id']}" for row in made if _lacks_ids(row)}
    compared = {row["prompt_text"] for row in made if row["case_id"] in ends and _lacks_ids(row)}
    places = [place for place, text in enumerate(names) if text in compared]
    encoded = {
        encoder.name: dict(zip(names, encoder.encode_packed(list(names), list(names.values()), places), strict=True))
        for encoder in checkpoint.encoders
    }
    answers = []
    for row in made:
        if _lacks_ids(row):
            text = row["prompt_text"]
            prompts = {name: rows.prompt(text, ids[text]) for name, ids in encoded.items()}
            answers += [{**row, **prompt} for prompt in rows.distinct(prompts)]
        else:
            answers.append(row)
    return answers


def _lacks_ids(row: rows.Row) -> bool:
    return row["outcome"] == "result" and "prompt_ids" not in row


def prompts_of(checkpoint: Checkpoint, case: dict[str, Any]) -> Iterator[rows.Row]:
    """Yield the rows of one case, without the ids that encoders add.

    Raises:
        TemplateTimeout, OracleError: no evidence came of it.
    """
    return _rows(checkpoint, case, json.loads(case["request"]))


def _rows(checkpoint: Checkpoint, case: dict[str, Any], request: dict[str, Any]) -> Iterator[rows.Row]:
    head = {"checkpoint": checkpoint.manifest.slug, "case_id": case["case_id"], "kind": "render"}
    limit = time_limit(checkpoint.params.template_seconds, f"{checkpoint.manifest.slug} {case['case_id']}")
    with limit, one_case(request.get("tools")):
        for row in _asked(checkpoint, request):
            yield head | row


def _asked(checkpoint: Checkpoint, request: dict[str, Any]) -> Iterator[rows.Row]:
    """Yield what the sources of [authority] say, and the second references when there are tools."""
    for name in checkpoint.manifest.authority["render"]:
        if name == HUB_TEMPLATE:
            yield from _both(checkpoint, request)
        else:
            vendor = checkpoint.vendors[name]
            form = {"normalisation": vendor.normalisation, "content_format": vendor.content_format}
            yield {"source": name, **form, **_ask(vendor, request)}
    for second in checkpoint.seconds if request.get("tools") else ():
        yield from _both(second, request)


def _both(template: Checkpoint, request: dict[str, Any]) -> Iterator[rows.Row]:
    """Yield one row per distinct answer of the two normalisations."""
    form = template.content_format(request.get("tools"))
    raw = _ask(template, request)
    try:
        messages = as_vllm(request["messages"], form)
        vllm = raw if messages == request["messages"] else _ask(template, {**request, "messages": messages})
    except NonTextPart as error:
        vllm = rows.refused(Refusal("non-text-part", str(error)))
    source = {"source": template.source}
    if raw == vllm:
        forms = STRING if form == STRING else rows.BOTH
        yield {**source, "normalisation": rows.BOTH, "content_format": forms, **raw}
    else:
        yield {**source, "normalisation": RAW, "content_format": STRING, **raw}
        yield {**source, "normalisation": VLLM, "content_format": form, **vllm}


def _ask(source: Prompts, request: dict[str, Any]) -> rows.Row:
    """Return a source's answer to a request, or its refusal."""
    try:
        prompt = source.prompt(request)
    except TemplateError as error:
        return rows.refused(Refusal(error.code, str(error)))
    except CollidingVariable as error:
        return rows.refused(Refusal("colliding-variable", str(error)))
    ids = {} if prompt.ids is None else rows.prompt(prompt.text, prompt.ids)
    return {"outcome": "result", "prompt_text": prompt.text, "reads_clock": prompt.reads_clock, **ids}
