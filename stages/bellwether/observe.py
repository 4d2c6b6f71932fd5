"""Stage `observe`: what one gateway release does with the cases in scope, one table per checkpoint.

The gateway is started once, in front of a scripted engine, and serves the checkpoints one after the other, or some at a
time where each is a process of its own. A checkpoint whose table was recorded from the same bytes by the same code is
left alone, and one that was interrupted goes on where it was. What goes wrong with a replay is a row that says so; a
gateway that ends stops the run.
"""

from __future__ import annotations

import asyncio
import gc
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq

from bellwether.case import KINDS
from bellwether.corpora.store import sql_path
from bellwether.environments import ENVIRONMENTS
from bellwether.freshness import Count, count_of, remove_others, up_to_date
from bellwether.gateways.answer import Failed, Gateway, Served
from bellwether.gateways.clock import NAME as CLOCK
from bellwether.gateways.targets import Target, pinned_target
from bellwether.layout import corpus_folder, inputs_folder, observation_table, reference_table
from bellwether.materials.pins import sha256_of, sha256_of_file, verify
from bellwether.observing.localise import Localiser
from bellwether.observing.parts import PART_ROWS, Parts, discard
from bellwether.observing.replays import ALL, Replays, Selection
from bellwether.observing.rows import row
from bellwether.observing.run import endings
from bellwether.params import Manifest, Params, read_manifest, read_params
from bellwether.progress import Progress, say
from bellwether.tables import REFERENCE, check
from bellwether.whole import write_whole
from bellwether.witnesses.questions import RECORDED
from bellwether.witnesses.vllm_rust import vocabulary_size

CODE = (
    *("chunk_plans.py", "corpora/store.py", "digests.py", "freshness.py", "observe.py", "tables.py"),
    *("witnesses/outcome.py", "witnesses/questions.py", "witnesses/scope.py"),
)
ROOMS = ("observing", "scripted_engine")
"""Modules and folders of this package that have a part in a table, beside those the target names; when one changes,
tables are recorded again."""


@dataclass(frozen=True, slots=True)
class Task:
    """One checkpoint to observe."""

    manifest: Manifest
    served: Served
    path: Path
    """Of its table."""
    key: str


@dataclass(frozen=True, slots=True)
class Run:
    """What all checkpoints of a run share."""

    root: Path
    params: Params
    target: Target
    selection: Selection = ALL
    part_done: Callable[[Path], None] = lambda path: None
    """Told of each part that is written; what it raises ends the run."""


def main(root: Path, name: str, slugs: Sequence[str] = (), *, force: bool = False) -> list[Count]:
    """Record the tables of the pinned target `name` for `slugs`, else for the scope; return a count per checkpoint.

    Without slugs, tables of checkpoints that left the scope are removed. `force` records what is up to date too.

    Raises:
        GatewayError, MaterialError: the gateway or its environment cannot be had, or it ended. What was recorded stays.
        ParamsError, PinMismatch, InputUnavailable, TableError: what it reads is not what is pinned.
    """
    root = root.resolve()
    params, target = read_params(root), pinned_target(name)
    scope = replace(params.observe, share=min(params.observe.share, target.share))
    params = replace(params, observe=scope)
    if not slugs:
        _remove_others(observation_table(root, name, "any").parent, params.checkpoints)
    run = Run(root, params, target)
    tasks = [task(run, slug, observation_table(root, name, slug)) for slug in slugs or params.checkpoints]
    return observe(run, tasks, force=force)


def observe(run: Run, tasks: Sequence[Task], *, force: bool = False) -> list[Count]:
    """Record what is not up to date of `tasks`; return a count per task. Raises as `main`."""
    counts = {task.path: None if force else up_to_date(task.path, task.key) for task in tasks}
    for path in (path for path, count in counts.items() if count is not None):
        discard(path)  # what an interrupted run left would be stored with the table
    if todo := [task for task in tasks if counts[task.path] is None]:
        done = asyncio.run(_observe_all(run, todo))
        counts |= {task.path: count for task, count in zip(todo, done, strict=True)}
    return list(counts.values())


async def _observe_all(run: Run, tasks: list[Task]) -> list[Count]:
    progress = Progress(run.target.name, 0)
    async with run.target.start(run.root) as gateway:
        gc.freeze()  # what is loaded by now stays: nothing to walk over for each collection of what replays leave
        free = asyncio.Semaphore(gateway.checkpoints)

        async def one(task: Task) -> Count:
            async with free:
                return await _observe(run, gateway, task, progress)

        under_way = [asyncio.create_task(one(task)) for task in tasks]
        try:
            counts = await asyncio.gather(*under_way)
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)
    progress.finish()
    return counts


async def _observe(run: Run, gateway: Gateway, task: Task, progress: Progress) -> Count:
    """Record one checkpoint: the table, then its provenance, each whole or not at all."""
    manifest, target = task.manifest, run.target
    verify(manifest, task.served.folder)
    parts = _parts(task, gateway.version)
    if parts.rows:
        say(f"{target.name} {manifest.slug}: going on after {parts.rows:,} replays of an interrupted run")
    head = {"checkpoint": manifest.slug, "target": target.name, "target_version": gateway.version}
    passing = {str(task.served.folder): "<model>"}
    localiser = Localiser(run.root, manifest, task.served)
    served = replace(task.served, vocabulary_size=vocabulary_size(task.served.folder) or 0)
    async with AsyncExitStack() as stack:
        try:
            adapter = await stack.enter_async_context(gateway.open(served))
        except Failed as reason:
            adapter = reason
            say(f"{target.name} {manifest.slug}: {reason.code}: {reason.message}")
        loaded = not isinstance(adapter, Failed)
        kinds = target.kinds & adapter.kinds if loaded else target.kinds
        # Of what is not loaded one row an output says enough; and says it, whatever modes were chosen.
        plans = _both(gateway.plans, target.plans) if loaded else frozenset()
        seen = gateway.facts.get("clock") == run.params.clock.isoformat()
        selection = run.selection if loaded else replace(run.selection, modes=())
        replays = Replays(run.root, run.params, manifest, kinds, plans, seen, selection)
        total = replays.count()
        progress.total += total
        progress.advance(min(parts.rows, total))
        stream = endings(gateway, adapter, _without_first(replays.stream(), parts.rows))
        async for batch in _batches(stream, PART_ROWS):
            rows = [row(replay, ending, text, head, passing) for replay, ending, text in batch]
            run.part_done(parts.add(localiser.add(rows)))
            progress.advance(len(rows))
    outcomes: dict[str, Counter[str]] = {}
    for kind, outcome, number in _outcomes(parts.files()):
        outcomes.setdefault(kind, Counter())[outcome] += number
    parts.finish()
    provenance = {
        **{"target": target.name, "target_version": gateway.version, "checkpoint": manifest.slug},
        **{"model": manifest.model, "revision": manifest.revision, "facts": gateway.facts},
        "scope": {"plans": run.params.observe.plans, "share": run.params.observe.share},
        **{"kinds": [kind for kind in KINDS if kind in kinds], "not_asked": replays.not_asked()},
        "outcomes": {kind: dict(sorted(outcomes[kind].items())) for kind in KINDS if kind in outcomes},
        **{"key": task.key, "table_sha256": sha256_of_file(task.path)},
    }
    write_whole(task.path.with_suffix(".json"), json.dumps(provenance, indent=2, ensure_ascii=False) + "\n")
    return count_of(provenance, recorded=True)


def _parts(task: Task, version: str) -> Parts:
    """Return the parts of an interrupted run, or none where another release was observed then."""
    parts = Parts(task.path, task.key)
    if parts.rows and pq.read_table(parts.files()[0], columns=["target_version"])[0][0].as_py() != version:
        discard(task.path)
        return Parts(task.path, task.key)
    return parts


def _without_first(replays: Iterator[Any], number: int) -> Iterator[Any]:
    return islice(replays, number, None)


def _both(one: frozenset[str] | None, other: frozenset[str] | None) -> frozenset[str] | None:
    """Return the names in both; None stands for all there are."""
    return other if one is None else one if other is None else one & other


async def _batches(items: AsyncIterator[Any], size: int) -> AsyncIterator[list[Any]]:
    """Yield what an async iterator gives in lists of `size`, the last one shorter."""
    batch = []
    async for item in items:
        batch.append(item)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def _outcomes(files: list[Path]) -> list[tuple[str, str, int]]:
    """Return kind, outcome and rows of the parts of a table."""
    if not files:
        return []
    listed = ", ".join(map(sql_path, files))
    with duckdb.connect() as connection:
        return connection.execute(
            f"select kind, outcome, count(*) from read_parquet([{listed}]) group by kind, outcome"
        ).fetchall()


# ── what is up to date ───────────────────────────────────────────────────────────────────────────────────────────────


def task(run: Run, slug: str, path: Path, model: str | None = None) -> Task:
    """Return what is to do for a checkpoint, its table going to `path`. It is served as `model`, else by its own name.

    Raises:
        ParamsError, TableError: its manifest or a reference table is not what it has to be.
    """
    root, manifest = run.root, read_manifest(run.root, slug)
    folder = inputs_folder(root, slug)
    parsers = manifest.engines.get(run.target.gateway, {})
    served = Served(
        slug,
        model or manifest.model,
        folder,
        tool_parser=parsers.get("tool_parser"),
        reasoning_parser=parsers.get("reasoning_parser"),
        eos_ids=eos_ids(folder),
    )
    tables = [reference_table(root, slug, name) for name in sorted({RECORDED[kind] for kind in run.target.kinds})]
    for table in tables:
        check(table, REFERENCE)
    for corpus in run.params.corpora:
        tables += [corpus_folder(root, corpus) / f"{name}.parquet" for name in ("cases", "requests")]
    package = Path(__file__).parent
    code = [package / name for name in (*CODE, *run.target.code)]
    code += [path for room in ROOMS for path in sorted((package / room).rglob("*.py"))]
    folders = [ENVIRONMENTS / name for name in (run.target.folder, CLOCK)] if run.target.folder else []
    inside = [path for one in folders for path in sorted(one.rglob("*")) if _counts(path)]
    parts = {
        "code": {path.relative_to(package).as_posix(): sha256_of_file(path) for path in code},
        "inside": {path.relative_to(ENVIRONMENTS).as_posix(): sha256_of_file(path) for path in inside},
        "target": [run.target.name, sorted(run.target.kinds), sorted(run.target.plans or ())],
        "scope": [run.params.observe.plans, run.params.observe.share, list(run.params.corpora)],
        "clock": run.params.clock.isoformat(),
        "selection": repr(run.selection),
        "checkpoint": [slug, served.model, dict(manifest.inputs), manifest.authority["parse"][0], parsers],
        "tables": {path.relative_to(root).as_posix(): sha256_of_file(path) for path in tables},
    }
    return Task(manifest, served, path, sha256_of(json.dumps(parts, sort_keys=True, default=dict).encode()))


def eos_ids(folder: Path) -> tuple[int, ...]:
    """Return the ids on which generation ends by a snapshot's generation_config.json, or its config.json."""
    for name in ("generation_config.json", "config.json"):
        path = folder / name
        found = json.loads(path.read_bytes()).get("eos_token_id") if path.is_file() else None
        if found is not None:
            return tuple(found) if isinstance(found, list) else (found,)
    return ()


def _counts(path: Path) -> bool:
    return path.is_file() and "__pycache__" not in path.parts


def _remove_others(folder: Path, slugs: Sequence[str]) -> None:
    """Remove what is recorded of checkpoints that are not in `slugs`, parts too."""
    remove_others(folder, slugs)
    for path in folder.glob("*.parts"):
        if path.stem not in slugs:
            discard(path)
