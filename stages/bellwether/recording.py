"""How cases are recorded: streamed through worker processes into tables, in order, whole or not at all.

Each worker loads the checkpoint once, for all tables, and answers batches. Rendering holds Python's lock, so workers
are processes. Batches come back in the order in which they went out, which makes a table independent of the number of
workers.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import multiprocessing
import multiprocessing.util
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from bellwether.corpora.store import count_cases, stream_cases
from bellwether.errors import OracleError, ParamsError
from bellwether.layout import inputs_folder, reference_table
from bellwether.neighbours import with_neighbours
from bellwether.params import read_manifest, read_params
from bellwether.progress import Progress
from bellwether.tables import BATCH_ROWS, REFERENCE, TableWriter, record_batch
from bellwether.thrift import settle
from bellwether.whole import write_whole

Rows = list[dict[str, Any]]
Answer = Callable[[Any, Rows], Rows]
"""`(checkpoint, cases) → reference rows`, in case order."""


@dataclass(frozen=True, slots=True)
class Table:
    """One table to record."""

    name: str
    """Folder of the table and its provenance, one of layout.RECORDED."""
    kinds: tuple[str, ...]
    oracle: str
    """Module whose `answer` gives the rows. A name, so that only workers import it, and transformers with it."""

    @property
    def needs_prompts(self) -> bool:
        """Whether other sources of prompts than the checkpoint's own template have a part in it."""
        return not {"render", "parse"}.isdisjoint(self.kinds)


@dataclass(frozen=True, slots=True)
class Recording:
    """Tables to record of one checkpoint, by workers that load it once."""

    root: Path
    slug: str
    tables: tuple[Table, ...]


def record(recording: Recording, jobs: int | None = None) -> dict[str, int]:
    """Record `reference.parquet` of every table, and `provenance.json` beside it. Return table → number of rows.

    Tables are written one after the other, each whole or not at all.

    Raises:
        OracleError: the checkpoint cannot be an oracle, a template does not end, or a worker died.
        PinMismatch, InputUnavailable, VersionMismatch, TableError, CorpusError: what it reads is not what is pinned.
        ParamsError: the checkpoint is a member of a group; its references are the primary's.
    """
    params = read_params(recording.root)
    if group := read_manifest(recording.root, recording.slug).group:
        raise ParamsError(
            f"{recording.slug} is a member of {group}, whose recording serves both",
            next_step=f"Record {group}; or list {recording.slug} in its place in params.yaml, then run "
            "`bellwether manifests`.",
        )
    totals = {table: count_cases(recording.root, params.corpora, table.kinds) for table in recording.tables}
    jobs = jobs or default_jobs(max(totals.values()))
    rows = {}
    try:
        with workers(recording, jobs) as pool:
            for table, total in totals.items():
                batches = with_neighbours(stream_cases(recording.root, params.corpora, table.kinds))
                path = reference_table(recording.root, recording.slug, table.name)
                progress = Progress(f"{recording.slug} {'+'.join(table.kinds)}", total)
                with TableWriter(path, REFERENCE) as writer:
                    for cases, batch in in_order(pool, table.name, batches, ahead=2 * jobs + 1):
                        writer.write(batch)
                        progress.advance(cases)
                    text = json.dumps(pool.submit(provenance, table.name).result(), indent=2, ensure_ascii=False)
                    write_whole(path.with_name("provenance.json"), text + "\n")
                progress.finish()
                rows[table.name] = writer.rows
    except BrokenProcessPool:
        raise OracleError(
            "a recording process died: out of memory, or stuck in a template where Python cannot stop it",
            next_step="Look at the system log and at the template, and run again; that table was not written.",
        ) from None
    return rows


def default_jobs(cases: int) -> int:
    """Return one worker per core, but no more than there are batches."""
    return max(1, min(os.cpu_count() or 1, -(-cases // BATCH_ROWS)))


@contextlib.contextmanager
def _interrupts_later() -> Iterator[None]:
    """Hold Ctrl-C back until the body is done, and keep it from a process that the body starts.

    Such a process inherits the blocked signal: an interrupt is its parent's to handle. The handler is held back as
    well, because another thread of this process may receive the signal and Python would still raise it here.
    """
    held: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, frame: held.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, handler)
    if held:
        raise KeyboardInterrupt


class _Pool(ProcessPoolExecutor):
    """Process pool that leaves nothing running when its body fails, and whose processes never see Ctrl-C."""

    def submit(self, *args: Any, **kwargs: Any) -> Future[Any]:
        with _interrupts_later():  # submitting may start a process
            return super().submit(*args, **kwargs)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is not None:
            for process in list((self._processes or {}).values()):
                process.kill()
        self.shutdown(wait=True, cancel_futures=True)


def workers(recording: Recording, jobs: int) -> _Pool:
    """Return a pool whose processes load the recording's checkpoint as they start."""
    # spawn, not fork: pyarrow and tokenizers keep threads, which do not survive a fork
    return _Pool(jobs, multiprocessing.get_context("spawn"), _start, (recording,))


def in_order(pool: Executor, table: str, batches: Iterable[Rows], ahead: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield number of cases and answer of each batch of `table` in order, keeping at most `ahead` batches in flight."""
    flying: deque[tuple[int, Future[pa.RecordBatch]]] = deque()
    for batch in batches:
        flying.append((len(batch), pool.submit(_answer, table, batch)))
        if len(flying) >= ahead:
            cases, answer = flying.popleft()
            yield cases, answer.result()
    for cases, answer in flying:
        yield cases, answer.result()


# ── inside a worker ──────────────────────────────────────────────────────────────────────────────────────────────────

_worker: dict[str, tuple[Any, Answer]] = {}
"""Table → the checkpoint as its oracle needs it, and the oracle."""
_failure: Exception | None = None


def _start(recording: Recording) -> None:
    """Load the checkpoint. A failure is kept for the first batch, which can report it; an initializer cannot."""
    global _failure
    threading.Thread(target=_die_with_parent, daemon=True).start()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one worker per core already
    from bellwether.oracles import checkpoint, limits

    limits.limit_memory()
    try:
        params = read_params(recording.root)
        manifest = read_manifest(recording.root, recording.slug)
        alone = checkpoint.load(manifest, params, inputs_folder(recording.root, recording.slug))
        with_prompts = alone
        if any(table.needs_prompts for table in recording.tables):
            from bellwether.oracles.sources import with_sources

            sources = contextlib.ExitStack()
            with_prompts = sources.enter_context(with_sources(alone, recording.root))
            multiprocessing.util.Finalize(None, sources.close, exitpriority=0)
        for table in recording.tables:
            answer = importlib.import_module(table.oracle).answer
            _worker[table.name] = with_prompts if table.needs_prompts else alone, answer
        settle()
    except Exception as error:
        _failure = error


def _die_with_parent() -> None:
    multiprocessing.parent_process().join()
    os._exit(1)


def _loaded(table: str) -> tuple[Any, Answer]:
    if _failure is not None:
        raise _failure
    return _worker[table]


def _answer(table: str, cases: Rows) -> pa.RecordBatch:
    checkpoint, answer = _loaded(table)
    return record_batch(answer(checkpoint, cases), REFERENCE)


def provenance(table: str) -> dict[str, Any]:
    """Return the provenance of the checkpoint this worker has loaded for `table`. Raises what loading raised."""
    return _loaded(table)[0].provenance
