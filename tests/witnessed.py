"""Checkouts made for tests of queries over references and witnesses: rows by hand, digests of what they stand for."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bellwether.layout import RECORDED, corpus_folder, materials_table, reference_table, witness_table
from bellwether.reports.database import connect
from bellwether.tables import CASES, MATERIALS, PER_CORPUS, REFERENCE, WITNESS, TableWriter
from manifests import bare_manifest
from support import ROOT

SLUG = "alpha"
PARAMS = """
checkpoints: [{slugs}]
corpora: [toy]
engines: [{engines}]
oracle: {{versions: {{}}, clock: "2026-01-15T12:00:00", other_clock: "2027-10-02T23:30:00", template_seconds: 20}}
"""
SOURCES = {"render": "hf-template", "parse": "roundtrip", "tokenize": "hf-tokenizer", "detokenize": "hf-tokenizer"}
FOLDERS = {"render": "render", "parse": "parse", "tokenize": "tokens", "detokenize": "tokens"}
Row = dict[str, Any]


def digest(said: object) -> bytes:
    """Return a digest of whatever an answer is called in a test."""
    return hashlib.sha256(repr(said).encode()).digest()


def holds(kind: str, said: str | None, *, given: str = "ids", spelt: str = "", spaced: str = "") -> Row:
    """Return the digests of an answer `said`; None for one that holds nothing to compare by. `spelt` and `spaced` are
    what two messages of one value, or of one value but for white space, differ in."""
    key = {"output_sha256": digest(given)} if kind in ("parse", "detokenize") else {}
    if said is None:
        return key
    return (
        key
        | {
            "render": {"prompt_sha256": digest(said), "prompt_text_sha256": digest(said)},
            "tokenize": {"output_sha256": digest(said)},
            "detokenize": {"output_text_sha256": digest(said), "pieces_sha256": digest(said)},
            "parse": {
                "message_bare_sha256": digest(said),
                "message_value_sha256": digest(said + spaced),
                "message_sha256": digest(said + spaced + spelt),
                "content": said + spaced,
            },
        }[kind]
    )


def claim(case_id: str, said: str | None = "a", slug: str = SLUG, encoder: str | None = "both", **columns: Any) -> Row:
    """Return a deciding reference row that says `said`; digest options of `holds` are taken too."""
    kind = case_id.split("/")[0]
    options = {name: columns.pop(name) for name in ("given", "spelt", "spaced") if name in columns}
    row = {"checkpoint": slug, "case_id": case_id, "kind": kind, "source": SOURCES[kind], "outcome": "result"}
    row |= {"encoder": encoder, "normalisation": "both" if kind in ("render", "parse") else None}
    return row | holds(kind, said, **options) | columns


def no_claim(case_id: str, outcome: str = "rejected", reason_class: str | None = "unproven", **columns: Any) -> Row:
    """Return a reference row without a value."""
    return claim(case_id, None, output_sha256=None, outcome=outcome, reason_class=reason_class, **columns)


def heard(case_id: str, release: str, said: str | None = "a", slug: str = SLUG, **columns: Any) -> Row:
    """Return a witness row of `<engine>-<version>` that says `said`."""
    kind = case_id.split("/")[0]
    engine, _, version = release.rpartition("-")
    options = {name: columns.pop(name) for name in ("given", "spelt", "spaced") if name in columns}
    row = {"checkpoint": slug, "case_id": case_id, "kind": kind, "engine": engine, "engine_version": version}
    return row | {"mode": "one-shot", "outcome": "result"} | holds(kind, said, **options) | columns


def refusal(case_id: str, release: str, **columns: Any) -> Row:
    return heard(case_id, release, None, outcome="refused", **columns)


def failure(case_id: str, release: str, **columns: Any) -> Row:
    return heard(case_id, release, None, outcome="measurement_failed", **columns)


def checkout(
    root: Path,
    claims: Sequence[Row],
    answers: Sequence[Row],
    *,
    engines: Sequence[str] = ("vllm-2.0", "vllm-rust-2.0"),
    slugs: Sequence[str] = (SLUG,),
    cases: Iterable[str] = (),
    malformed: Iterable[str] = (),
) -> Path:
    """Write a checkout of these rows with the real queries; its cases are those of the rows, and `cases`."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "params.yaml").write_text(PARAMS.format(slugs=", ".join(slugs), engines=", ".join(engines)), "utf-8")
    shutil.copytree(ROOT / "queries", root / "queries", ignore=shutil.ignore_patterns("reports", "*.toml", "known"))
    named = sorted({row["case_id"] for row in (*claims, *answers)} | set(cases) | set(malformed))
    for name, schema in PER_CORPUS.items():
        with TableWriter(corpus_folder(root, "toy") / f"{name}.parquet", schema) as table:
            if schema is CASES:
                table.write_rows(_case(case_id, case_id in set(malformed)) for case_id in named)
    for slug in slugs:
        bare_manifest(root, slug)
        with TableWriter(materials_table(root, slug), MATERIALS):
            pass
        for folder in RECORDED:
            write_claims(root, slug, folder, claims)
        for release in engines:
            write_answers(root, release, slug, answers)
    return root


def write_claims(root: Path, slug: str, folder: str, claims: Iterable[Row]) -> None:
    with TableWriter(reference_table(root, slug, folder), REFERENCE) as table:
        table.write_rows(row for row in claims if row["checkpoint"] == slug and FOLDERS[row["kind"]] == folder)


def write_answers(root: Path, release: str, slug: str, answers: Iterable[Row]) -> None:
    with TableWriter(witness_table(root, release, slug), WITNESS) as table:
        table.write_rows(
            row
            for row in answers
            if row["checkpoint"] == slug and f"{row['engine']}-{row['engine_version']}" == release
        )


def ask(root: Path, query: str, against: str | None = None) -> list[Row]:
    """Return the rows of a stored query, or of SQL."""
    text = query if " " in query else (root / "queries" / f"{query}.sql").read_text("utf-8")
    result = connect(root, against, asked=text).connection.execute(text)
    names = [column[0] for column in result.description]
    return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def columns(rows: Iterable[Row], *names: str) -> list[tuple]:
    return [tuple(row[name] for name in names) for row in rows]


def _case(case_id: str, malformed: bool) -> Row:
    kind, set_name, name = case_id.split("/")
    row = {"case_id": case_id, "corpus": "toy", "kind": kind, "set": set_name, "name": name}
    return row | {"malformed": malformed if kind == "parse" else None}
