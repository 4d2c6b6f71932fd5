"""The recorded observations of gateways. `make test-data` runs this; `make repro` or `dvc pull` has to come before."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from bellwether.chunk_plans import chunk_plans
from bellwether.observing.table import OBSERVATION

ROOT = Path(__file__).resolve().parents[2]
SCOPE = yaml.safe_load((ROOT / "params.yaml").read_text("utf-8"))
CHECKPOINTS, TARGETS = SCOPE["checkpoints"], SCOPE["targets"]
SMG = "smg-1.13.0"
MACHINE = re.compile(
    r"/(home|root|tmp|work|usr|var)/|127\.0\.0\.1:\d|localhost:\d|0x[0-9a-f]{8}|[0-9a-f]{8}-[0-9a-f]{4}-"
)
"""What would differ on another machine, or in another run."""

each_target = pytest.mark.parametrize("name", TARGETS)


def path_of(name: str, slug: str) -> Path:
    return ROOT / "fixtures" / "observations" / name / f"{slug}.parquet"


@cache
def observations(name: str, *columns: str) -> list[dict[str, Any]]:
    return [row for slug in CHECKPOINTS for row in pq.read_table(path_of(name, slug), columns=[*columns]).to_pylist()]


@each_target
def test_observations_have_the_schema(name):
    """Names, types and the schema version are in the file itself."""
    for slug in CHECKPOINTS:
        found = pq.read_schema(path_of(name, slug))
        assert found.equals(OBSERVATION), slug
        assert found.metadata == OBSERVATION.metadata, slug


@each_target
def test_each_replay_has_one_row(name):
    """By case, output and plan; the provenance counts them."""
    rows = observations(name, "checkpoint", "kind", "case_id", "mode", "plan", "outcome", "output_sha256")
    key = ("checkpoint", "case_id", "mode", "plan")
    replays = Counter(
        (*(row[part] for part in key), row["output_sha256"] if row["kind"] == "parse" else None) for row in rows
    )
    assert set(replays.values()) == {1}
    assert {(row["mode"], row["plan"] is None) for row in rows} <= {("full", True), ("stream", False)}
    counted = Counter((row["checkpoint"], row["kind"], row["outcome"]) for row in rows)
    said = Counter()
    for slug in CHECKPOINTS:
        provenance = json.loads(path_of(name, slug).with_suffix(".json").read_text("utf-8"))
        for kind, outcomes in provenance["outcomes"].items():
            said.update({(slug, kind, outcome): number for outcome, number in outcomes.items()})
    assert counted == said


@each_target
def test_nothing_of_one_machine_or_run_is_in_a_row(name):
    """Two runs give the same bytes."""
    for row in observations(name, "case_id", "outcome", "reason_code", "reason", "http_status"):
        assert (row["outcome"] == "result") == (row["reason_code"] is None), row
        assert not MACHINE.search(f"{row['reason_code']} {row['reason']}"), row


@each_target
def test_an_outcome_carries_what_it_may(name):
    """Without an answer there is no value, and every message has its digests."""
    columns = ("kind", "outcome", "content", "prompt_ids", "output_ids", "message_sha256", "output_text_sha256")
    for row in observations(name, *columns):
        values = {column for column in columns[2:] if row[column] is not None}
        if row["outcome"] != "result":
            assert values == set(), row
        elif row["kind"] == "parse":
            assert "message_sha256" in values and values.isdisjoint({"prompt_ids", "output_ids"}), row
        else:
            wanted = {"render": "prompt_ids", "tokenize": "output_ids", "detokenize": "output_text_sha256"}
            assert values == {wanted[row["kind"]]}, row


def test_hand_made_outputs_are_streamed_by_every_plan():
    """Through the gateway that has no reason not to."""
    rows = observations(SMG, "checkpoint", "case_id", "mode", "plan", "output_sha256", "completion_tokens", "outcome")
    plans: dict[tuple, set[str]] = {}
    lengths: dict[tuple, int] = {}
    for row in rows:
        if row["case_id"].startswith("parse/common/") and row["outcome"] == "result":
            key = (row["checkpoint"], row["case_id"], row["output_sha256"])
            plans.setdefault(key, set()).add(row["plan"])
            lengths[key] = row["completion_tokens"]
    assert len(plans) > 100
    for key, found in plans.items():
        # the engine counts the id that ends the turn, which a plan does not
        assert found - {None} in (set(chunk_plans(lengths[key])), set(chunk_plans(lengths[key] - 1))), key


def test_where_smg_is_known_to_differ_it_is_seen_to():
    """Classes of the gateway's render and parse that others have described, each in its layer, on Qwen3-8B."""
    with (ROOT / "queries" / "reports" / "defects.csv").open(encoding="utf-8") as file:
        found = {
            (row["target"], row["layer"], row["what"], row["field"])
            for row in csv.DictReader(file)
            if row["checkpoint"] == "qwen3-8b"
        }
    wanted = {
        (SMG, "template", "prompt-ids", ""),  # add_generation_prompt ignored, keys of tools in another order
        (SMG, "template", "rejected", "invalid_value"),  # a role it does not know
        (SMG, "streaming", "message", "reasoning_content"),  # <think> leaks into a stream's reasoning
        (SMG, "streaming", "message", "content"),  # content before a call lost, depending on chunks
        (f"{SMG}-symphony", "parse", "message", "content"),  # a pair of tags in content becomes reasoning
    }
    assert wanted <= found
