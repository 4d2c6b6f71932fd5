"""Recorded references against transformers itself, asked in the plain way, on a sample drawn by the case's hash."""

from __future__ import annotations

import hashlib
import json

import pytest

from bellwether.oracles.clock import fixed_clock
from bellwether.params import read_manifest, read_params
from bellwether.reports.database import connect
from support import ROOT, load_checkpoint

ONE_IN = 120


@pytest.fixture(scope="module")
def database():
    """All tables of the checkout."""
    return connect(ROOT)


def drawn(case_id: str) -> bool:
    return int(hashlib.sha256(case_id.encode()).hexdigest()[:8], 16) % ONE_IN == 0


@pytest.mark.parametrize("slug", read_params(ROOT).checkpoints)
def test_prompts_are_those_of_the_plain_call(database, params, slug):
    """`apply_chat_template(tokenize=True)` gives the recorded ids, and refuses where a refusal is recorded."""
    tokenizer = load_checkpoint(slug).tokenizer
    rows = database.connection.execute(
        "select case_id, request, outcome, prompt_ids from reference inner join cases using (case_id, kind)"
        " inner join requests using (request_sha256) where checkpoint = ? and kind = 'render'"
        " and source = 'hf-template' and normalisation in ('raw', 'both')"
        " and encoder is distinct from 'tokenizer.json'",
        [slug],
    ).fetchall()
    sample = [row for row in rows if drawn(row[0]) or "/common/" in row[0]]
    if "hf-template" not in read_manifest(ROOT, slug).authority["render"]:
        assert rows == []
        return
    assert len(sample) > 40
    for case_id, request, outcome, ids in sample:
        body = json.loads(request)
        continues = body.get("continue_final_message", False)
        try:
            with fixed_clock(params.clock):
                theirs = tokenizer.apply_chat_template(
                    body["messages"],
                    tools=body.get("tools"),
                    add_generation_prompt=body.get("add_generation_prompt", not continues),
                    continue_final_message=continues,
                    tokenize=True,
                    return_dict=False,
                    **body.get("chat_template_kwargs", {}),
                )
        except Exception:
            theirs = None
        assert theirs == ids, case_id
        assert (theirs is None) == (outcome == "rejected"), case_id


PROVE_NOTHING = {
    "qwq-32b",  # the generation prompt ends in <think>, which no turn of a history has
    "deepseek-r1",  # the same, and the template joins arguments as text, which vLLM hands over as objects
    "mistral-7b-instruct-v0.3",  # ids wanted of calls; and a text alone begins with a space that decoding takes off
}


@pytest.mark.parametrize("slug", read_params(ROOT).checkpoints)
def test_outputs_are_what_the_template_writes_for_the_message(database, slug):
    """Prompt, output and stop token are the beginning of the template's own render of history and message."""
    checkpoint = load_checkpoint(slug)
    if "hf-template" not in checkpoint.manifest.authority["render"]:
        return  # a vendor's encoder writes its turns; tests of the encoder ask it again
    tokenizer = checkpoint.tokenizer
    rows = database.connection.execute(
        "select case_id, request, message, prompt_text, output_text, stop_id, stop_found_by"
        " from reference inner join cases using (case_id, kind) inner join requests using (request_sha256)"
        " where checkpoint = ? and kind = 'parse' and outcome = 'result' and source = 'roundtrip'",
        [slug],
    ).fetchall()
    sample = [row for row in rows if drawn(row[0]) or "/common/" in row[0]]
    assert bool(sample) == (slug not in PROVE_NOTHING)
    for case_id, request, message, prompt, output, stop_id, found_by in sample:
        body, turn = json.loads(request), {"role": "assistant", **json.loads(message)}
        for call in turn.get("tool_calls", ()):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
        with fixed_clock(checkpoint.params.clock):
            whole = tokenizer.apply_chat_template(
                [*body["messages"], turn],
                tools=body.get("tools"),
                tokenize=False,
                **body.get("chat_template_kwargs", {}),
            )
        ending = tokenizer.convert_ids_to_tokens(stop_id) if found_by == "turn" else ""
        assert whole.startswith(prompt + output + ending), case_id
