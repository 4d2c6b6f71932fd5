"""The gap matrix on rows made by hand: every status, how names become keys, and which cases count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bellwether.reports.database import DECIDING
from bellwether.reports.gap_tables import TABLES
from bellwether.tables import REFERENCE

QUERY = (Path(__file__).resolve().parents[2] / "queries" / "gaps.sql").read_text("utf-8")
SYSTEMS = {"vllm": "engine", "sglang": "engine", "smg": "gateway", "smg-symphony": "gateway"}
CALL = [{"name": "f", "arguments": "{}"}]
STATUSES = {"covered", "no_fixtures", "gateway_missing", "gateway_only", "engines_differ"}


def registered(system: str, name: str, kind: str = "tool") -> tuple:
    place = list(SYSTEMS).index(system)
    return (kind, system, "1.0", SYSTEMS[system], place, name, f"m:{name}")


def answer(case_id: str, checkpoint: str = "beta", **columns: Any) -> dict[str, Any]:
    kind = case_id.split("/")[0]
    source, normalisation = {"render": ("hf-template", "raw"), "parse": ("roundtrip", "vllm")}.get(
        kind, ("hf-tokenizer", None)
    )
    row = {"checkpoint": checkpoint, "case_id": case_id, "kind": kind, "source": source, "outcome": "result"}
    return row | {"normalisation": normalisation} | columns


def matrix(
    registry: list[tuple],
    *,
    aliases: list[tuple] = (),
    uses: list[tuple] = (),
    reference: list[dict] = (),
    authority: list[tuple] = (),
) -> dict[tuple[str, str], dict[str, Any]]:
    """Return (kind, key) → row. Unless `authority` says more, each source decides its kind."""
    connection = duckdb.connect()
    connection.execute(TABLES)
    columns = REFERENCE.names
    rows = pa.Table.from_pylist([dict.fromkeys(columns) | row for row in reference], REFERENCE)
    connection.register("reference", rows)
    connection.execute("create table authority (checkpoint text, kind text, source text, place integer)")
    told = {(row["checkpoint"], row["kind"]) for row in authority_rows(authority)}
    every = {(row["checkpoint"], row["kind"], row["source"], 0) for row in reference}
    for row in [*authority, *(one for one in every if one[:2] not in told)]:
        connection.execute("insert into authority values (?, ?, ?, ?)", list(row))
    connection.execute(DECIDING)
    for table, values in (("registry", registry), ("aliases", aliases), ("uses", uses)):
        for row in values:
            connection.execute(f"insert into {table} values ({', '.join('?' * len(row))})", list(row))
    result = connection.execute(QUERY)
    names = [column[0] for column in result.description]
    found = [dict(zip(names, row, strict=True)) for row in result.fetchall()]
    keyed = {(row["kind"], row["key"]): row for row in found}
    assert len(keyed) == len(found), "one row per kind and key"
    return keyed


def authority_rows(authority: list[tuple]) -> list[dict[str, str]]:
    return [{"checkpoint": checkpoint, "kind": kind} for checkpoint, kind, *_ in authority]


def only(*arguments: Any, **more: Any) -> dict[str, Any]:
    (row,) = matrix(*arguments, **more).values()
    return row


WITH_CALL = [answer("parse/one/a", tool_calls=CALL)]
USED = [("beta", "tool", "vllm", "p")]


@pytest.mark.parametrize(
    ("systems", "uses", "reference", "status"),
    [
        (["vllm", "sglang", "smg"], USED, WITH_CALL, "covered"),
        (["vllm", "smg"], USED, WITH_CALL, "covered"),
        (["vllm", "sglang", "smg-symphony"], USED, WITH_CALL, "covered"),
        (["vllm", "sglang", "smg", "smg-symphony"], [], [], "no_fixtures"),
        (["vllm", "sglang", "smg"], USED, [], "no_fixtures"),
        (["vllm", "sglang"], USED, WITH_CALL, "gateway_missing"),
        (["vllm"], [], [], "gateway_missing"),
        (["sglang"], [], [], "gateway_missing"),
        (["smg"], [], [], "gateway_only"),
        (["smg-symphony"], [], [], "gateway_only"),
        (["vllm", "smg"], [], [], "engines_differ"),
        (["sglang", "smg-symphony"], [], [], "engines_differ"),
        (["vllm", "smg"], USED, [], "engines_differ"),
    ],
)
def test_the_status_of_a_row(systems: list[str], uses: list, reference: list, status: str):
    """By who registers it, and whether a case exercises it; a checkpoint without a proved case exercises nothing."""
    row = only([registered(system, "p") for system in systems], uses=uses, reference=reference)
    assert row["status"] == status


def test_what_only_fixtures_have_is_missing_in_the_gateway():
    """A source nobody registers is a row too: somebody's prompts are made by it."""
    row = only([], uses=[("beta", "renderer", "source", "vendor-code:own")])
    assert (row["status"], row["label"], row["fixtures"]) == ("gateway_missing", "vendorcodeown", ["beta"])
    assert (row["vllm"], row["smg"]) == ([], [])


def test_a_row_by_hand():
    """Names, implementations, checkpoints and cases of one key."""
    row = only(
        [
            registered("smg", "qwen_xml"),
            registered("smg", "qwen_coder"),
            registered("vllm", "qwen3_xml"),
            registered("sglang", "qwen3_coder"),
        ],
        aliases=[
            ("tool", "smg", "qwen_xml", "qwen3xml", "r"),
            ("tool", "smg", "qwen_coder", "qwen3xml", "r"),
            ("tool", "sglang", "qwen3_coder", "qwen3xml", "r"),
        ],
        uses=[("beta", "tool", "vllm", "qwen3_xml"), ("alpha", "tool", "sglang", "qwen3_coder")],
        reference=[*WITH_CALL, answer("parse/one/a", "alpha", tool_calls=CALL * 2)],
    )
    assert row == {
        "kind": "tool",
        "key": "qwen3xml",
        "label": "qwen3_xml",
        "status": "covered",
        "vllm": [{"name": "qwen3_xml", "implementation": "m:qwen3_xml"}],
        "sglang": [{"name": "qwen3_coder", "implementation": "m:qwen3_coder"}],
        "smg": [
            {"name": "qwen_coder", "implementation": "m:qwen_coder"},
            {"name": "qwen_xml", "implementation": "m:qwen_xml"},
        ],
        "smg_symphony": [],
        "fixtures": ["alpha", "beta"],
        "cases": 2,
    }


def test_names_that_differ_in_spelling_are_one():
    """Capitals, strokes and dots do not count."""
    found = matrix([registered("vllm", "deepseek_v4"), registered("sglang", "DeepSeek-V4"), registered("smg", "v4")])
    assert set(found) == {("tool", "deepseekv4"), ("tool", "v4")}


def test_an_alias_holds_for_its_kind_and_system_alone():
    """vLLM's hf is a response template as a parser, and a chat template as a renderer."""
    found = matrix(
        [registered("vllm", "hf"), registered("smg", "hf"), registered("vllm", "hf", "renderer")],
        aliases=[("tool", "vllm", "hf", "responsetemplate", "r")],
    )
    assert set(found) == {("tool", "responsetemplate"), ("tool", "hf"), ("renderer", "hf")}


def test_a_name_with_two_keys_stands_in_both_rows():
    """One parser that reads what another system registers apart."""
    found = matrix(
        [registered("vllm", "hy_v3"), registered("vllm", "hy_v4"), registered("sglang", "hunyuan")],
        aliases=[("tool", "sglang", "hunyuan", "hyv3", "r"), ("tool", "sglang", "hunyuan", "hyv4", "r")],
    )
    assert {key: [cell["name"] for cell in row["sglang"]] for (_, key), row in found.items()} == {
        "hyv3": ["hunyuan"],
        "hyv4": ["hunyuan"],
    }


def test_two_engines_that_read_one_checkpoint_count_its_cases_once():
    """A manifest names a parser per engine; with one key they are one row."""
    row = only(
        [registered("vllm", "p"), registered("sglang", "p")],
        uses=[*USED, ("beta", "tool", "sglang", "p")],
        reference=WITH_CALL,
    )
    assert (row["fixtures"], row["cases"]) == (["beta"], 1)


@pytest.mark.parametrize(
    ("kind", "reference", "cases"),
    [
        ("tool", [answer("parse/one/a", tool_calls=CALL), answer("parse/one/b", tool_calls=[])], 1),
        ("tool", [answer("parse/one/a"), answer("parse/one/b", content="x")], 0),
        ("reasoning", [answer("parse/one/a", reasoning_content="t"), answer("parse/one/b", reasoning_content="")], 1),
        ("tool", [answer("parse/one/a", tool_calls=CALL, outcome="rejected")], 0),
        ("tool", [answer("parse/one/a", "alpha", tool_calls=CALL)], 0),
        ("tool", [answer("parse/one/a", tool_calls=CALL, normalisation="raw")], 0),
    ],
)
def test_which_cases_exercise_a_parser(kind: str, reference: list[dict], cases: int):
    """Proved messages with calls or a thought, of the checkpoint, in the form a parse case is judged by."""
    row = only([registered("vllm", "p", kind)], uses=[("beta", kind, "vllm", "p")], reference=reference)
    assert row["cases"] == cases


def test_a_case_counts_when_every_encoder_proves_it():
    """Two rows of one case are one case; where the encoders part, no claim can be made."""
    rows = [
        answer("parse/one/a", tool_calls=CALL, encoder="class"),
        answer("parse/one/a", tool_calls=CALL, encoder="tokenizer.json"),
        answer("parse/one/b", tool_calls=CALL, encoder="class"),
        answer("parse/one/b", encoder="tokenizer.json", outcome="rejected"),
    ]
    assert only([registered("vllm", "p")], uses=USED, reference=rows)["cases"] == 1


def test_a_parser_is_exercised_by_the_deciding_source_alone():
    """A second source's messages are no truth to compare a parser with."""
    rows = [*WITH_CALL, answer("parse/one/b", tool_calls=CALL, source="response-template")]
    authority = [("beta", "parse", "roundtrip", 0), ("beta", "parse", "response-template", 1)]
    assert only([registered("vllm", "p")], uses=USED, reference=rows, authority=authority)["cases"] == 1


def test_a_renderer_is_exercised_by_its_own_source():
    """A checkpoint whose template and encoder are both recorded exercises two renderers, each by its own prompts."""
    rows = [
        answer("render/one/a"),
        answer("render/one/b"),
        answer("render/one/a", source="vendor-code:harmony", normalisation="both"),
        answer("render/one/c", outcome="rejected"),
    ]
    found = matrix(
        [registered("vllm", "hf", "renderer"), registered("smg", "harmony", "renderer")],
        aliases=[
            ("renderer", "source", "hf-template", "hf", "r"),
            ("renderer", "source", "vendor-code:harmony", "harmony", "r"),
        ],
        uses=[("beta", "renderer", "source", "hf-template"), ("beta", "renderer", "source", "vendor-code:harmony")],
        reference=rows,
        authority=[("beta", "render", "hf-template", 0), ("beta", "render", "vendor-code:harmony", 1)],
    )
    assert {key: row["cases"] for (_, key), row in found.items()} == {"hf": 2, "harmony": 1}


def test_a_tokenizer_is_exercised_both_ways():
    """Ids of texts, and texts of ids."""
    row = only(
        [registered("vllm", "hf", "tokenizer")],
        aliases=[("tokenizer", "source", "hf-tokenizer", "hf", "r")],
        uses=[("beta", "tokenizer", "source", "hf-tokenizer")],
        reference=[answer("tokenize/one/a"), answer("detokenize/one/a"), answer("render/one/a")],
    )
    assert row["cases"] == 2


NAME = st.sampled_from(["p", "q_1", "Q1", "r-2"])


@settings(max_examples=60, deadline=None)
@given(
    registry=st.sets(st.tuples(st.sampled_from(list(SYSTEMS)), NAME, st.sampled_from(["tool", "reasoning"]))),
    uses=st.sets(st.tuples(st.sampled_from(["tool", "reasoning"]), st.sampled_from(["vllm", "sglang"]), NAME)),
    has_call=st.booleans(),
)
def test_every_key_has_one_row_and_one_status(registry: set, uses: set, has_call: bool):
    """Whatever is registered and used: no name is lost, no status is empty."""
    found = matrix(
        [registered(system, name, kind) for system, name, kind in registry],
        uses=[("beta", kind, system, name) for kind, system, name in uses],
        reference=WITH_CALL if has_call else [],
    )
    assert {row["status"] for row in found.values()} <= STATUSES
    cells = sorted(
        (system, cell["name"], kind)
        for (kind, _), row in found.items()
        for system in SYSTEMS
        for cell in row[system.replace("-", "_")]
    )
    assert cells == sorted(registry)
    for row in found.values():
        in_gateway, in_engine = bool(row["smg"] or row["smg_symphony"]), bool(row["vllm"] or row["sglang"])
        assert (row["status"] == "gateway_missing") is not in_gateway
        assert (row["status"] == "covered") is (in_gateway and row["cases"] > 0)
        assert (row["status"] == "gateway_only") is (in_gateway and not in_engine and row["cases"] == 0)
