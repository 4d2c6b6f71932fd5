"""What an engine is asked: from real cases and real references."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from bellwether import record
from bellwether.chunk_plans import chunk_plans
from bellwether.errors import TableError
from bellwether.params import Scope, read_manifest, read_params
from bellwether.tables import REFERENCE, TableWriter
from bellwether.witnesses.questions import Ask, Questions
from support import miniature

SLUG = "smollm2-135m-instruct"
KINDS = ("render", "parse", "tokenize", "detokenize")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of one checkpoint with its references of the hand-made cases."""
    root = miniature(tmp_path_factory.mktemp("questions"), [SLUG])
    record.main(root, SLUG, 1)
    return root


def questions(root: Path, *kinds: str, clock: bool = True, **scope: object) -> Questions:
    params = dataclasses.replace(read_params(root), witness=Scope(**scope))
    return Questions(root, params, read_manifest(root, SLUG), kinds or KINDS, clock)


def asked(root: Path, *kinds: str, **settings: object) -> list[Ask]:
    found = questions(root, *kinds, **settings)
    asks = list(found.stream())
    assert found.count() == len(asks)
    return asks


def cases(root: Path) -> list[dict]:
    path = root / "corpus" / "imported" / "handmade"
    return duckdb.sql(
        f"select case_id, kind, text, request from '{path}/cases.parquet' left join '{path}/requests.parquet'"
        " using (request_sha256) order by case_index"
    ).fetchall()


def references(root: Path, table: str) -> dict[str, dict]:
    rows = pq.read_table(root / "fixtures" / SLUG / table / "reference.parquet").to_pylist()
    return {row["case_id"]: row for row in rows}


def test_requests_and_texts_are_asked_as_they_are_written(root: Path) -> None:
    """In case order, byte for byte: key order is data."""
    found = asked(root, "render", "tokenize")
    expected = [(one, kind, request) for one, kind, _, request in cases(root) if kind == "render"]
    expected += [(one, kind, text) for one, kind, text, _ in cases(root) if kind == "tokenize"]
    given = [(ask.case_id, ask.kind, ask.question.get("request", ask.question.get("text"))) for ask in found]
    assert given == expected


def test_outputs_are_asked_with_all_that_reproduces_them(root: Path) -> None:
    """Ids alone, for engines make their own text of them; the prompt, what ends the turn, all plans when hand-made."""
    rows = references(root, "parse")
    found = asked(root, "parse")
    assert [ask.case_id for ask in found] == [one for one, row in rows.items() if row["output_ids"] is not None]
    for ask in found:
        row, question = rows[ask.case_id], ask.question
        assert question["ids"] == row["output_ids"] and not {"text", "pieces"} & question.keys()
        assert (question["prompt_ids"], question["stop_id"]) == (row["prompt_ids"], row["stop_id"])
        assert question["plans"] == (chunk_plans(len(question["ids"])) if question["ids"] else {})
        assert ask.output_sha256 == row["output_sha256"]
        assert json.loads(question["request"])


def test_malformed_outputs_are_asked_too(root: Path) -> None:
    """No reference claims anything about them; what engines make of them is worth a row."""
    malformed = {one for one, row in references(root, "parse").items() if row["reason_code"] == "malformed"}
    assert malformed
    assert malformed <= {ask.case_id for ask in asked(root, "parse")}


def test_ids_are_asked_where_they_mean_something(root: Path) -> None:
    """A case of another vocabulary's ids has no reference here."""
    rows = references(root, "tokens")
    found = {ask.case_id: ask for ask in asked(root, "detokenize")}
    assert found.keys() == {
        one for one, row in rows.items() if row["kind"] == "detokenize" and row["outcome"] == "result"
    }
    assert all(ask.question["ids"] == rows[one]["output_ids"] for one, ask in found.items())


def test_hand_made_cases_are_asked_whatever_the_share(root: Path) -> None:
    """And none is out of it."""
    assert len(asked(root, share=0.0)) == len(asked(root, share=1.0))
    assert questions(root, share=0.0).not_asked() == {"out of share": 0, "reads the clock": 0}


def rewritten(root: Path, copy: Path, table: str, change) -> Path:
    """Return a copy of the checkout in which `change` was applied to each row of a reference table."""
    copy.mkdir()
    for name in ("params.yaml", "corpus", "fixtures"):
        (copy / name).symlink_to(root / name)
    (copy / "fixtures").unlink()
    (copy / "fixtures" / SLUG / table).mkdir(parents=True)
    for name in ("manifest.toml", "render", "parse", "tokens"):
        if name != table:
            (copy / "fixtures" / SLUG / name).symlink_to(root / "fixtures" / SLUG / name)
    path = f"fixtures/{SLUG}/{table}/reference.parquet"
    with TableWriter(copy / path, REFERENCE) as writer:
        writer.write_rows(one for row in pq.read_table(root / path).to_pylist() for one in change(row))
    return copy


def test_imported_cases_are_asked_by_share(root: Path, tmp_path: Path) -> None:
    """The same cases under the name of an imported corpus: fewer, and counted as such."""
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "fixtures").symlink_to(root / "fixtures")
    (copy / "corpus" / "imported").mkdir(parents=True)
    imported = copy / "corpus" / "imported" / "other"
    imported.mkdir()
    (imported / "requests.parquet").symlink_to(root / "corpus" / "imported" / "handmade" / "requests.parquet")
    cases = pq.read_table(root / "corpus" / "imported" / "handmade" / "cases.parquet")
    pq.write_table(
        cases.set_column(1, cases.schema.field("corpus"), [["other"] * len(cases)]), imported / "cases.parquet"
    )
    (copy / "params.yaml").write_text((root / "params.yaml").read_text().replace("[handmade]", "[other]"))
    some, every = asked(copy, share=0.5), asked(copy, share=1.0)
    assert 0 < len(some) < len(every)
    assert [ask for ask in every if ask.case_id in {one.case_id for one in some}] == some
    assert len(asked(copy, share=0.0)) == 0
    assert questions(copy, share=0.0).not_asked()["out of share"] == len(cases)
    longest = max(every, key=lambda ask: len(ask.question.get("plans", {})))
    assert len(longest.question["plans"]) == 5
    assert len(max(asked(copy, plans="all"), key=lambda ask: len(ask.question.get("plans", {}))).question["plans"]) > 30


def test_an_engine_without_a_clock_is_not_asked_what_reads_it(root: Path, tmp_path: Path) -> None:
    """Its row would be another tomorrow. Where nothing is known of a case, it may read the clock as others do."""

    def change(row: dict) -> list[dict]:
        if row["case_id"] == "render/common/no-such-case":
            return []
        reads = {0: True, 1: False, 2: None}[sum(row["case_id"].encode()) % 3]
        return [row | {"reads_clock": reads}]

    copy = rewritten(root, tmp_path / "copy", "render", change)
    known = {row["case_id"]: row["reads_clock"] for row in references(copy, "render").values()}
    assert set(known.values()) == {True, False, None}
    found = {ask.case_id for ask in asked(copy, "render", clock=False)}
    assert found == {one for one, reads in known.items() if reads is False}
    assert {ask.case_id for ask in asked(copy, "render", clock=True)} == known.keys()
    assert questions(copy, "render", clock=False).not_asked()["reads the clock"] == len(known) - len(found)
    assert len(asked(copy, "parse", "tokenize", clock=False)) == len(asked(root, "parse", "tokenize"))


def test_an_engine_without_a_clock_is_asked_all_where_no_prompt_reads_it(root: Path) -> None:
    """Refused requests too, though nothing is known of their prompt."""
    assert len(asked(root, "render", clock=False)) == len(asked(root, "render"))


def test_outputs_that_differ_by_encoder_are_two_questions(root: Path, tmp_path: Path) -> None:
    """And rows of one output are one. The prompt is the one vLLM would have made."""
    target = next(one for one, row in references(root, "parse").items() if row["outcome"] == "result")

    def change(row: dict) -> list[dict]:
        if row["case_id"] != target:
            return [row]
        other = {**row, "encoder": "class", "output_sha256": bytes(32), "output_ids": row["output_ids"][:1]}
        other |= {"piece_ends": row["piece_ends"][:1]}
        raw, second = {**other, "normalisation": "raw"}, {**other, "source": "roundtrip:vllm-example:x"}
        return [row, {**row, "content_format": "openai"}, other, raw, second]

    copy = rewritten(root, tmp_path / "copy", "parse", change)
    found = [ask for ask in questions(copy, "parse").stream() if ask.case_id == target]
    assert [len(ask.question["ids"]) for ask in found] == [1, len(references(root, "parse")[target]["output_ids"])]


def test_a_missing_table_is_told(root: Path, tmp_path: Path) -> None:
    """With the way to get it."""
    copy = rewritten(root, tmp_path / "copy", "render", lambda row: [row])
    (copy / "fixtures" / SLUG / "render" / "reference.parquet").unlink()
    with pytest.raises(TableError, match=r"render/reference\.parquet does not exist"):
        list(questions(copy, "render").stream())
