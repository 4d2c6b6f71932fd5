"""The recorded answers of engines. `make test-data` runs this; `make repro` or `dvc pull` has to come before."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from bellwether.digests import ids_sha256, message_sha256, text_sha256
from bellwether.tables import WITNESS
from bellwether.witnesses.engines import ENGINES

ROOT = Path(__file__).resolve().parents[2]
SCOPE = yaml.safe_load((ROOT / "params.yaml").read_text("utf-8"))
CHECKPOINTS, NAMES = SCOPE["checkpoints"], SCOPE["engines"]
PLANS_OF_IMPORTED = 5
MACHINE = re.compile(r"/(home|root|tmp|work|usr|var)/|127\.0\.0\.1:\d|0x[0-9a-f]{8}")
"""What would differ on another machine, or in another run."""

each_engine = pytest.mark.parametrize("name", NAMES)


def corpus_rows() -> list[dict[str, Any]]:
    """Return the cases of all corpora, in the order of params.yaml."""
    paths = [ROOT / "corpus" / "imported" / corpus / "cases.parquet" for corpus in SCOPE["corpora"]]
    return [row for path in paths for row in pq.read_table(path, columns=["case_id", "corpus"]).to_pylist()]


@cache
def answers(name: str) -> list[dict[str, Any]]:
    columns = [column for column in WITNESS.names if column not in ("prompt_text", "output_text", "piece_ends")]
    paths = [ROOT / "fixtures" / "witnesses" / name / f"{slug}.parquet" for slug in CHECKPOINTS]
    return [row for path in paths for row in pq.read_table(path, columns=columns).to_pylist()]


@cache
def corpus_of() -> dict[str, str]:
    return {case["case_id"]: case["corpus"] for case in corpus_rows()}


@each_engine
def test_witness_tables_have_the_schema(name):
    """Names, types, descriptions and the schema version are in the file itself."""
    for slug in CHECKPOINTS:
        path = ROOT / "fixtures" / "witnesses" / name / f"{slug}.parquet"
        found = pq.read_schema(path)
        assert found.equals(WITNESS), slug
        assert found.metadata == WITNESS.metadata, slug
        assert all(one.metadata[b"description"] == WITNESS.field(one.name).metadata[b"description"] for one in found)


@each_engine
def test_rows_are_of_their_engine_and_of_known_cases(name):
    """A table of one release holds no other's answers, and each case is asked at once only once per output."""
    engine, _, version = name.rpartition("-")
    rows = answers(name)
    assert {(row["engine"], row["engine_version"]) for row in rows} <= {(engine, version)}
    assert {row["case_id"] for row in rows} <= corpus_of().keys()
    asked = Counter(
        (row["checkpoint"], row["case_id"], row["output_sha256"] if row["kind"] == "parse" else None)
        for row in rows
        if row["mode"] == "one-shot"
    )
    assert set(asked.values()) <= {1}


@each_engine
def test_an_outcome_carries_what_it_may(name):
    """A refusal and a failed measurement have a code and words, and no answer; nothing of this machine is in them."""
    for row in answers(name):
        where = (row["checkpoint"], row["case_id"], row["mode"])
        answer = ("prompt_ids", "prompt_sha256", "prompt_text_sha256", "output_ids", "message_sha256", "pieces_sha256")
        if row["outcome"] == "result":
            assert row["reason_code"] is None and row["reason"] is None, where
            assert any(row[column] is not None for column in answer), where
        else:
            assert row["outcome"] in ("refused", "measurement_failed"), where
            assert row["reason_code"], where
            assert not any(row[column] is not None for column in answer), where
            assert not MACHINE.search(row["reason"] or ""), (where, row["reason"])


@each_engine
def test_no_refusal_only_says_how_the_engine_was_started(name):
    """A server without a tool parser refuses every request with tools: that is our setting, and no evidence."""
    ours = re.compile(r"--[a-z]+-|tool parsing is not available")
    refused = [row for row in answers(name) if row["outcome"] == "refused"]
    assert [(row["checkpoint"], row["case_id"], row["reason"]) for row in refused if ours.search(row["reason"])] == []


@each_engine
def test_digests_are_of_what_the_row_says(name):
    """Every 20th answer: ids, and messages with empty and null text alike."""
    for row in answers(name)[::20]:
        if row["prompt_ids"] is not None:
            assert row["prompt_sha256"] == ids_sha256(row["prompt_ids"])
        if row["kind"] == "tokenize" and row["output_ids"] is not None:
            assert row["output_sha256"] == ids_sha256(row["output_ids"])
        if row["message_sha256"] is not None:
            said = message_sha256(row["content"], row["reasoning_content"], row["tool_calls"] or ())
            assert row["message_sha256"] == said, (row["checkpoint"], row["case_id"])
    assert text_sha256("") != ids_sha256([0])


@each_engine
def test_plans_are_counted_and_what_differs_is_stored(name):
    """One-shot's row counts the plans; each is equal, or failed, or has a row of its own."""
    rows = [row for row in answers(name) if row["kind"] == "parse"]
    stored: Counter[tuple] = Counter()
    for row in rows:
        if row["mode"] != "one-shot":
            stored[row["checkpoint"], row["case_id"], row["output_sha256"]] += 1
    for row in rows:
        if row["mode"] == "one-shot" and row["outcome"] == "result":
            key = row["checkpoint"], row["case_id"], row["output_sha256"]
            assert row["plans"] == row["plans_equal"] + stored[key], key
            if few := ENGINES[name].plans:
                assert 2 <= row["plans"] <= len(few), key
            elif corpus_of()[row["case_id"]] == "handmade":
                assert row["plans"] >= 32, key
            else:
                assert row["plans"] <= PLANS_OF_IMPORTED, key


@each_engine
def test_outputs_are_those_of_the_reference(name):
    """What an engine is given to read is an output some reference row of the case holds."""
    for slug in CHECKPOINTS:
        outputs = {
            (row["case_id"], row["output_sha256"])
            for recorded in ("parse", "tokens")
            for row in pq.read_table(
                ROOT / "fixtures" / slug / recorded / "reference.parquet", columns=["case_id", "output_sha256"]
            ).to_pylist()
        }
        given = {
            (row["case_id"], row["output_sha256"])
            for row in answers(name)
            if row["checkpoint"] == slug and row["kind"] in ("parse", "detokenize") and row["output_sha256"]
        }
        assert given <= outputs, slug


@each_engine
def test_provenance_counts_the_rows(name):
    """What was asked and how it ended stands beside the table; what was not asked is a number, never an answer."""
    for slug in CHECKPOINTS:
        told = json.loads((ROOT / "fixtures" / "witnesses" / name / f"{slug}.json").read_text("utf-8"))
        rows = [row for row in answers(name) if row["checkpoint"] == slug]
        assert told["asked"] == Counter(row["kind"] for row in rows if row["mode"] == "one-shot"), slug
        for kind, outcomes in told["outcomes"].items():
            assert outcomes == Counter(row["outcome"] for row in rows if row["kind"] == kind), (slug, kind)
        assert not MACHINE.search(json.dumps(told)), slug


@each_engine
def test_every_engine_has_evidence(name):
    """A release that answers nothing anywhere was not asked as it should be."""
    outcomes = Counter(row["outcome"] for row in answers(name))
    assert outcomes["result"] > 1000
    assert outcomes["measurement_failed"] < outcomes["result"]


def test_rows_stand_in_the_order_of_cases():
    """Kind after kind, each in case order: the same answers give the same bytes."""
    place = {case["case_id"]: place for place, case in enumerate(corpus_rows())}
    kinds = ("render", "parse", "tokenize", "detokenize")
    for name in NAMES:
        order = [
            (CHECKPOINTS.index(row["checkpoint"]), kinds.index(row["kind"]), place[row["case_id"]])
            for row in answers(name)
        ]
        assert all(one <= other for one, other in pairwise(order)), name


def reported(query: str) -> list[dict[str, str]]:
    with (ROOT / "queries" / "reports" / f"{query}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_disputes_are_real():
    """The known one: Qwen3's tools with a key vLLM's front ends do not keep; and both front ends have some."""
    fingerprints = {row["fingerprint"] for row in reported("disputes")}
    assert {"vllm:prompt-ids:qwen3-8b", "vllm-rust:prompt-ids:qwen3-8b"} <= fingerprints


def test_drift_between_releases_is_real():
    """vLLM 0.33.0 keeps text after DeepSeek's calls, which 0.32.0 drops: the change its release notes and both codes
    show; SGLang 0.5.23 writes another key into each tool than 0.5.22."""
    moved = {(row["subject"].split()[0], row["what"]) for row in reported("drift") if row["axis"] == "release"}
    assert ("sglang", "prompt-ids") in moved
    assert ("vllm", "message") in moved
