"""`make bench`: speed, memory and size of recording, each beside the floor it is measured against, in one run.

Floors: the plain loop that calls `apply_chat_template` twice a case, as one would write it by hand; `encode_batch`
alone on the same texts, the work nobody can leave out where no text repeats another; the same rows as zstd-compressed
JSON Lines. Processor time per checkpoint, on agent traces too, is bench_cpu's; queries over a million made-up answers
are bench_queries', replays through a gateway bench_gateway's, questions to engines bench_witness's. The last part runs
`make repro` and `make repro-light` in fresh clones of the last commit.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from tabulate import tabulate

from bellwether import bench_cpu, bench_gateway, bench_queries, bench_witness, inputs, record, recording, unpack
from bellwether.corpora.store import count_cases, stream_cases
from bellwether.layout import corpus_folder, inputs_folder, materials_table, reference_table
from bellwether.progress import say
from bellwether.tables import CASES, REFERENCE, REQUESTS, TableWriter

SLUG = "qwen3-8b"
CORPUS = "bfcl"
COPIES = 8
"""How many times the corpus is repeated to see whether memory grows with it."""


def main() -> None:
    """Measure and print one table."""
    root = Path.cwd()
    with tempfile.TemporaryDirectory() as work:
        one, many = _project(root, Path(work) / "one", 1), _project(root, Path(work) / "many", COPIES)
        rows = [*_speed(one), *_memory(one, many), *_size(one)]
        rows += [row for slug in bench_cpu.SLUGS for row in bench_cpu.compare(root, slug)]
        rows += bench_queries.compare(root, Path(work) / "queries")
        rows += bench_gateway.compare(root)
        rows += bench_witness.compare(root)
        rows += _cold(root, Path(work) / "clones")
    print(tabulate(rows, headers=["measure", "ours", "floor", "ratio", "wanted"], disable_numparse=True))


def _speed(project: Path) -> list[list[str]]:
    say("the plain loop")
    plain = _child("plain", project)
    say("encode_batch alone")
    encode = _child("encode", project)
    say("recording")
    seconds = _record_seconds(project)
    ours = _prompt_digest(project)
    cases = plain["cases"]
    return [
        _ratio("render, cases/s against the plain loop", cases / seconds, cases / plain["seconds"], "≥ 2"),
        _ratio("render, cases/s against encode_batch alone", cases / seconds, cases / encode["seconds"], "≥ 0.9"),
        ["render, prompt ids", ours[:12], plain["digest"][:12], _equal(ours, plain["digest"]), "equal"],
    ]  # fmt: skip


def _memory(one: Path, many: Path) -> list[list[str]]:
    say("memory")
    peaks = [_child("record", project) for project in (one, many)]
    rows = []
    for place, name in enumerate(("recorder", "worker")):
        small, large = (peak["peaks"][place] for peak in peaks)
        name = f"peak memory of the {name} in MB, {COPIES} × the corpus against 1 ×"
        rows.append([name, f"{large:,.0f}", f"{small:,.0f}", f"{large / small:.2f}", "≤ 1000, flat"])
    return rows


def _size(project: Path) -> list[list[str]]:
    say("size")
    record.main(project, SLUG, tables=("parse", "tokens"))
    tables = [reference_table(project, SLUG, kind) for kind in ("render", "parse")]
    ours = sum(path.stat().st_size for path in tables)
    codec = pa.Codec("zstd", compression_level=9)
    as_lines = sum(len(codec.compress(_json_lines(path), asbytes=True)) for path in tables)
    unpack.main(project, project / "tree")
    tree = sum(
        len(codec.compress(b"".join(path.read_bytes() for path in sorted(folder.glob("*.jsonl"))), asbytes=True))
        for folder in (project / "tree" / SLUG / kind for kind in ("render", "parse"))
    )
    return [
        _ratio("size in kB against the same rows as JSON Lines, zstd 9", ours / 1000, as_lines / 1000, "≤ 1"),
        _ratio("size in kB against the unpacked tree, zstd 9", ours / 1000, tree / 1000, "≤ 1"),
    ]


def _equal(one: str, other: str) -> str:
    return "equal" if one == other else "DIFFERENT"


def _cold(root: Path, work: Path) -> list[list[str]]:
    """Time `make repro` in a fresh clone of the last commit with empty caches, and again unchanged; and, as cold,
    `make repro-light` in another."""
    everything, light = work / "all", work / "light"
    for clone in (everything, light):
        subprocess.run(["git", "clone", "--quiet", str(root), str(clone)], check=True)
    before = _digest_of_locks(everything)
    whole, again = _make("repro", everything), _make("repro", everything)
    small = _make("repro-light", light)
    return [
        _ratio("make repro in a fresh clone, nothing cached, s", whole, 1500, "≤ 1"),
        _ratio("make repro again, unchanged, s", again, 8, "≤ 1"),
        ["each dvc.lock after it", "", "", _equal(before, _digest_of_locks(everything)), "equal"],
        _ratio("make repro-light in a fresh clone, nothing cached, s", small, 480, "≤ 1"),
    ]


def _make(target: str, clone: Path) -> float:
    """Return the seconds a target takes with the caches of this clone alone."""
    say(f"make {target} in a fresh clone, nothing cached but what it has downloaded before")
    caches = {"BELLWETHER_CACHE": "downloads", "PIP_CACHE_DIR": "pip", "npm_config_cache": "npm"}
    own = {name: str(clone.with_suffix(".caches") / folder) for name, folder in caches.items()}
    begin = time.perf_counter()
    subprocess.run(["make", target], cwd=clone, env={**os.environ, **own}, check=True, capture_output=True)
    return time.perf_counter() - begin


def _digest_of_locks(clone: Path) -> str:
    locks = (path for path in sorted(clone.rglob("dvc.lock")) if ".venv" not in path.parts)
    return hashlib.sha256(b"".join(path.read_bytes() for path in locks)).hexdigest()


def _ratio(name: str, ours: float, floor: float, wanted: str) -> list[str]:
    return [name, f"{ours:,.0f}", f"{floor:,.0f}", f"{ours / floor:.2f}", wanted]


def _project(root: Path, folder: Path, copies: int) -> Path:
    """Lay out a checkout with one checkpoint and `copies` copies of the corpus."""
    source = root / "fixtures" / SLUG
    (folder / "fixtures" / SLUG).mkdir(parents=True)
    for name in ("packages.toml", "second-references.toml"):
        (folder / "fixtures" / name).write_bytes((root / "fixtures" / name).read_bytes())
    (folder / "fixtures" / SLUG / "manifest.toml").write_bytes((source / "manifest.toml").read_bytes())
    _, _, oracle = (root / "params.yaml").read_text("utf-8").partition("oracle:")
    (folder / "params.yaml").write_text(f"checkpoints: [{SLUG}]\ncorpora: [{CORPUS}]\noracle:{oracle}", "utf-8")
    inputs.main(folder, SLUG)
    materials_table(folder, SLUG).unlink()
    imported = corpus_folder(root, CORPUS)
    target = corpus_folder(folder, CORPUS)
    target.mkdir(parents=True)
    for table in imported.glob("*.parquet"):
        (target / table.name).write_bytes(table.read_bytes())
    with (
        TableWriter(target / "cases.parquet", CASES) as cases,
        TableWriter(target / "requests.parquet", REQUESTS) as texts,
    ):
        for copy in range(copies):
            _copy(imported / "cases.parquet", cases, lambda row, copy=copy: _renamed(row, copy))
            if not copy:
                _copy(imported / "requests.parquet", texts, lambda row: row)
    return folder


def _copy(source: Path, writer: TableWriter, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    for batch in pq.ParquetFile(source).iter_batches(batch_size=256):
        writer.write_rows(change(row) for row in batch.to_pylist())


def _renamed(row: dict[str, Any], copy: int) -> dict[str, Any]:
    suffix = f"-copy-{copy}" if copy else ""
    return {**row, "name": row["name"] + suffix, "case_id": row["case_id"] + suffix}


def _record_seconds(project: Path) -> float:
    """Return how long recording the render cases takes once the workers have loaded the checkpoint."""
    what = recording.Recording(project, SLUG, (record.TABLES["render"],))
    jobs = recording.default_jobs(count_cases(project, (CORPUS,), ("render",)))
    path = reference_table(project, SLUG, "render")
    with recording.workers(what, jobs) as pool:
        for ready in [pool.submit(_hold) for _ in range(jobs)]:
            ready.result()
        begin = time.perf_counter()
        with TableWriter(path, REFERENCE) as table:
            for _, batch in recording.in_order(
                pool, "render", stream_cases(project, (CORPUS,), ("render",)), ahead=2 * jobs + 1
            ):
                table.write(batch)
        seconds = time.perf_counter() - begin
        path.with_name("provenance.json").write_text(
            json.dumps(pool.submit(recording.provenance, "render").result()), "utf-8"
        )
    return seconds


def _hold() -> None:
    recording.provenance("render")
    time.sleep(3)  # long enough for every worker to take one


def _prompt_digest(project: Path) -> str:
    digest = hashlib.sha256()
    for batch in pq.ParquetFile(reference_table(project, SLUG, "render")).iter_batches(columns=["prompt_ids"]):
        for ids in batch.column(0).to_pylist():
            digest.update(json.dumps(ids).encode())
    return digest.hexdigest()


def _json_lines(path: Path) -> bytes:
    rows = duckdb.execute("select * from read_parquet(?)", [str(path)])
    names = [column[0] for column in rows.description]
    lines = []
    for row in rows.fetchall():
        value = {name: item for name, item in zip(names, row, strict=True) if item is not None}
        lines.append(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=bytes.hex) + "\n")
    return "".join(lines).encode()


def _child(what: str, project: Path) -> dict[str, Any]:
    """Run one measurement in a process of its own, so that none sees the heap another one left."""
    command = [sys.executable, "-m", "bellwether.bench", what, str(project)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


def _measure_plain(project: Path) -> dict[str, Any]:
    tokenizer, cases = _tokenizer(project), _requests(project)
    digest = hashlib.sha256()
    begin = time.perf_counter()
    answers = []
    for messages, tools in cases:
        try:
            tokenizer.apply_chat_template(messages, tools=tools, tokenize=False, add_generation_prompt=True)
            answers.append(
                tokenizer.apply_chat_template(
                    messages, tools=tools, tokenize=True, add_generation_prompt=True, return_dict=False
                )
            )
        except Exception:  # a refusal is an answer
            answers.append(None)
    seconds = time.perf_counter() - begin
    for ids in answers:
        digest.update(json.dumps(ids).encode())
    return {"seconds": seconds, "cases": len(cases), "digest": digest.hexdigest()}


def _measure_encode(project: Path) -> dict[str, Any]:
    tokenizer = _tokenizer(project)
    texts = [
        tokenizer.apply_chat_template(messages, tools=tools, tokenize=False, add_generation_prompt=True)
        for messages, tools in _requests(project)
    ]
    begin = time.perf_counter()
    tokenizer.backend_tokenizer.encode_batch(texts, add_special_tokens=False)
    return {"seconds": time.perf_counter() - begin}


def _measure_record(project: Path) -> dict[str, Any]:
    record.main(project, SLUG, tables=("render",))
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return {"peaks": [resource.getrusage(one).ru_maxrss / 1000 for one in who]}


def _tokenizer(project: Path) -> Any:
    from transformers import AutoTokenizer

    from bellwether import oracles  # noqa: F401 - quiets transformers

    return AutoTokenizer.from_pretrained(inputs_folder(project, SLUG), local_files_only=True)


def _requests(project: Path) -> list[tuple[list, list | None]]:
    requests = []
    for batch in stream_cases(project, (CORPUS,), ("render",)):
        for case in batch:
            request = json.loads(case["request"])
            requests.append((request["messages"], request.get("tools")))
    return requests


if __name__ == "__main__":
    if len(sys.argv) == 1:
        main()
    else:
        measures = {"plain": _measure_plain, "encode": _measure_encode, "record": _measure_record}
        print(json.dumps(measures[sys.argv[1]](Path(sys.argv[2]))))
