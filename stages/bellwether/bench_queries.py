"""Bench part: queries over a million answers, half of them prompts and half messages, made up and written as tables.

Beside each reference stands the answer of one of vLLM's front ends: the Rust one's to prompts, the Python one's to
messages; every hundredth differs. So does every seventieth that a gateway gives. One process runs one query and keeps
its rows in DuckDB, as a query that asks them further would.
"""

from __future__ import annotations

import hashlib
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from bellwether.layout import (
    RECORDED,
    corpus_folder,
    materials_table,
    observation_table,
    reference_table,
    witness_table,
)
from bellwether.observing.table import OBSERVATION
from bellwether.progress import say
from bellwether.reports.database import connect
from bellwether.tables import GROUP_ROWS, MATERIALS, PER_CORPUS, REFERENCE, WITNESS, TableWriter

ROWS = 1_000_000
"""Reference answers; the witnesses have as many again, and so has the gateway."""
SLUGS = tuple(f"bench-{number}" for number in range(20))
ENGINES = {"vllm-rust-0.33.0": "render", "vllm-0.33.0": "parse"}
"""Release → the kind it is asked."""
TARGET = "smg-1.13.0"
QUERIES = ("standing", "disputes", "verdict")
SOURCES = {"render": "hf-template", "parse": "roundtrip"}
WORDS = "You are given a table of readings and one question about them. Call the tool when it helps; say so if not. "


def compare(root: Path, work: Path) -> list[list[str]]:
    """Build the tables below `work`, run each query of `root` over them, and return the rows of the bench's table."""
    say("queries over a million rows")
    build(root, work)
    ran = {name: _child(work, name) for name in QUERIES}
    seconds = ran["standing"]["seconds"] + ran["disputes"]["seconds"]
    rows = [
        [f"{name} over {ROWS:,} answers, s", f"{one['seconds']:.2f}", "", f"{one['rows']:,} rows", ""]
        for name, one in ran.items()
    ]
    rows.append(["standing and disputes, s", f"{seconds:.2f}", "3.00", f"{seconds / 3:.2f}", "≤ 1"])
    seconds = ran["verdict"]["seconds"]
    rows.append(["verdict, s", f"{seconds:.2f}", "5.00", f"{seconds / 5:.2f}", "≤ 1"])
    for names in (("standing", "disputes"), ("verdict",)):
        peak = max(ran[name]["peak"] for name in names)
        rows.append([f"{' and '.join(names)}, peak memory in MB", f"{peak:,.0f}", "2,000", f"{peak / 2000:.2f}", "≤ 1"])
    return rows


def build(root: Path, work: Path, rows: int = ROWS) -> None:
    """Write a checkout with `rows` reference answers, as many answers of engines, and as many of a gateway."""
    (work / "queries").mkdir(parents=True)
    for path in (root / "queries").glob("*.sql"):
        (work / "queries" / path.name).write_bytes(path.read_bytes())
    _, _, oracle = (root / "params.yaml").read_text("utf-8").partition("oracle:")
    scope = (
        f"checkpoints: [{', '.join(SLUGS)}]\ncorpora: [bench]\nengines: [{', '.join(ENGINES)}]\ntargets: [{TARGET}]\n"
    )
    (work / "params.yaml").write_text(f"{scope}oracle:{oracle}", "utf-8")
    each = rows // len(SLUGS) // len(SOURCES)
    for name, schema in PER_CORPUS.items():
        with TableWriter(corpus_folder(work, "bench") / f"{name}.parquet", schema) as table:
            if name == "cases":
                table.write_rows(_case(kind, number) for kind in SOURCES for number in range(each))
    for slug in SLUGS:
        folder = work / "fixtures" / slug
        folder.mkdir(parents=True)
        (folder / "manifest.toml").write_text(
            f'model = "o/{slug}"\nrevision = "{"0" * 40}"\ntier = 3\nlicense = "MIT"\n[authority]\n'
            'render = ["hf-template"]\nparse = ["roundtrip"]\n[inputs]\n',
            "utf-8",
        )
        with TableWriter(materials_table(work, slug), MATERIALS):
            pass
        for recorded in RECORDED:
            with TableWriter(reference_table(work, slug, recorded), REFERENCE) as table:
                if recorded in SOURCES:
                    for batch in _reference(slug, recorded, each):
                        table.write(batch)
        for name, kind in ENGINES.items():
            with TableWriter(witness_table(work, name, slug), WITNESS) as table:
                for batch in _witness(slug, kind, each, *name.rsplit("-", 1)):
                    table.write(batch)
        with TableWriter(observation_table(work, TARGET, slug), OBSERVATION) as table:
            for kind in SOURCES:
                for batch in _observation(slug, kind, each):
                    table.write(batch)


def _case(kind: str, number: int) -> dict[str, str]:
    name = f"case-{number:07}"
    return {"case_id": f"{kind}/bench/{name}", "corpus": "bench", "kind": kind, "set": "bench", "name": name}


def _reference(slug: str, kind: str, rows: int) -> Iterator[pa.RecordBatch]:
    for first in range(0, rows, GROUP_ROWS):
        numbers = range(first, min(first + GROUP_ROWS, rows))
        told = {"source": SOURCES[kind], "outcome": "result", "encoder": "both", "normalisation": "both"}
        yield _batch(REFERENCE, _answers(slug, kind, numbers, 0) | told, len(numbers))


def _witness(slug: str, kind: str, rows: int, engine: str, version: str) -> Iterator[pa.RecordBatch]:
    for first in range(0, rows, GROUP_ROWS):
        numbers = range(first, min(first + GROUP_ROWS, rows))
        told = {"engine": engine, "engine_version": version, "mode": "one-shot", "outcome": "result"}
        yield _batch(WITNESS, _answers(slug, kind, numbers, 100) | told, len(numbers))


def _observation(slug: str, kind: str, rows: int) -> Iterator[pa.RecordBatch]:
    for first in range(0, rows, GROUP_ROWS):
        numbers = range(first, min(first + GROUP_ROWS, rows))
        told = {"target": TARGET, "target_version": "1.13.0", "mode": "full", "outcome": "result"}
        told |= dict.fromkeys(("prompt_text", "prompt_text_sha256"))  # of a prompt that is equal, no text is made
        yield _batch(OBSERVATION, _answers(slug, kind, numbers, 70) | told, len(numbers))


def _answers(slug: str, kind: str, numbers: range, every: int) -> dict:
    """Return the columns of answers of one kind; of `every` many one differs from what the reference says."""
    said = [f"{WORDS}{number}" + ("!" if every and not number % every else "") for number in numbers]
    columns: dict = {"checkpoint": slug, "kind": kind, "case_id": [f"{kind}/bench/case-{n:07}" for n in numbers]}
    digests = _digests(slug, kind, said)
    if kind == "render":
        ids = pa.array([[n % 1000, *range(60), len(text)] for n, text in zip(numbers, said, strict=True)])
        return columns | {
            "prompt_text": said,
            "prompt_ids": ids,
            "prompt_text_sha256": digests,
            "prompt_sha256": digests,
        }
    given = _digests(slug, kind, [str(number) for number in numbers])
    calls = [[{"name": "f", "arguments": f'{{"a": {number}}}'}] for number in numbers]
    columns |= {"output_sha256": given, "content": said, "tool_calls": calls, "message_sha256": digests}
    return columns | {"message_value_sha256": digests, "message_bare_sha256": digests}


def _digests(slug: str, kind: str, texts: list[str]) -> list[bytes]:
    return [hashlib.sha256(f"{slug}/{kind}/{text}".encode()).digest() for text in texts]


def _batch(schema: pa.Schema, columns: dict, rows: int) -> pa.RecordBatch:
    arrays = []
    for field in schema:
        value = columns.get(field.name)
        if value is None or isinstance(value, str):
            arrays.append(pa.nulls(rows, field.type) if value is None else pa.array([value] * rows, field.type))
        else:
            arrays.append(value.cast(field.type) if isinstance(value, pa.Array) else pa.array(value, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _child(work: Path, name: str) -> dict[str, float]:
    """Run one query in a process of its own, so that its peak is its own."""
    command = [sys.executable, "-m", "bellwether.bench_queries", str(work), name]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def _measure(work: Path, name: str) -> dict[str, float]:
    begin = time.perf_counter()
    query = (work / "queries" / f"{name}.sql").read_text("utf-8")
    connection = connect(work, asked=query).connection
    connection.execute(f"create temp table result as {query}")
    seconds = time.perf_counter() - begin
    rows = connection.execute("select count(*) from result").fetchone()[0]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    return {"seconds": seconds, "rows": rows, "peak": peak}


if __name__ == "__main__":
    print(json.dumps(_measure(Path(sys.argv[1]), sys.argv[2])))
