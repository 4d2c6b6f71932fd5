"""Command `verify`: does a gateway send the tokens, and read the answers, that it should?

What `observe` records of the pinned targets is recorded here for a person, outside the checkout, and judged at once. An
interrupted run goes on where it was; one that ended, or was stopped by a failure, starts anew, because a gateway may
have changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from filelock import FileLock, Timeout

from bellwether.cache import cache_folder
from bellwether.corpora.store import sql_path
from bellwether.errors import EngineError, GatewayError, ParamsError
from bellwether.gateways.targets import Target
from bellwether.layout import inputs_folder
from bellwether.materials.pins import sha256_of
from bellwether.observe import Run, Task, observe, task
from bellwether.observing.parts import Parts, discard, so_far
from bellwether.observing.replays import ALL, Selection
from bellwether.params import Scope, read_params
from bellwether.progress import say
from bellwether.reports.database import WITNESSES, Database, connect
from bellwether.reports.verdicts import outputs
from bellwether.reports.verdicts.summary import Summary
from bellwether.whole import whole_file


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be verified, and where the answers go."""

    slugs: tuple[str, ...] = ()
    """Checkpoints; none for the scope."""
    model: str | None = None
    """Name under which the server serves the one checkpoint."""
    selection: Selection = ALL
    scope: Scope | None = None
    """How much of the imported corpora; None for what params.yaml says."""
    store: Path | None = None
    """Folder for the tables; None for one in the user's cache."""
    fail_fast: bool = False
    fresh: bool = False
    """Whether what an interrupted run left is thrown away."""
    asked: tuple[str, ...] = ()
    """The words by which a person named the gateway and the scope, for the commands a report shows."""
    json: Path | None = None
    junit: Path | None = None
    sarif: Path | None = None


class _Enough(Exception):
    """Raised when a replay failed and no other is wanted."""


def main(root: Path, target: Target, wanted: Wanted) -> Summary:
    """Replay what is wanted through the target, judge it, and write the files asked for.

    With `fail_fast` it stops soon after the first part of a table in which something fails. A gateway that ends leaves
    a verdict on what was replayed, if anything was.

    Raises:
        GatewayError: the gateway cannot be started or reached, or ended before anything was replayed.
        EngineError: the scripted engine cannot serve, or what it captured is lost before anything was replayed.
        ParamsError: also when no checkpoint is laid out, a file cannot be written, or another run uses the store.
        MaterialError, TableError: as `observe.main`.
    """
    root = root.resolve()
    params = read_params(root)
    if wanted.scope is not None:
        params = replace(params, observe=wanted.scope)
    folder = wanted.store or _store(root, target, wanted, params.observe)
    laid_out = (slug for slug in params.checkpoints if inputs_folder(root, slug).is_dir())
    slugs = tuple(dict.fromkeys(wanted.slugs or laid_out))
    if not slugs:
        raise ParamsError("no checkpoint of params.yaml is laid out", next_step="Run `make repro`, or `dvc pull`.")
    for path in filter(None, (wanted.json, wanted.junit, wanted.sarif)):
        _make_way(path)
    with _alone(folder):
        return _verify(root, Run(root, params, target, wanted.selection), wanted, folder, slugs)


def _verify(root: Path, run: Run, wanted: Wanted, folder: Path, slugs: tuple[str, ...]) -> Summary:
    done: list[Path] = []

    judge = _Judge(root)

    def part_done(path: Path) -> None:
        done.append(path)
        if wanted.fail_fast and judge.finds(path):
            raise _Enough

    run = replace(run, part_done=part_done)
    say(f"{run.target.name}: starting, {len(slugs)} checkpoint{'s' * (len(slugs) > 1)}")
    tasks = [_task(run, slug, folder / f"{slug}.parquet", wanted.model) for slug in slugs]
    for one in tasks:
        _begin(one, fresh=wanted.fresh)
    stopped = None
    try:
        observe(run, tasks, force=True)
    except _Enough:
        stopped = "stopped after the first failure"
        for one in tasks:
            _end(one)
    except (GatewayError, EngineError) as error:
        if not done:
            raise
        stopped = str(error)
    if stopped:
        say(stopped)
    tables = [path for one in tasks for path in so_far(one.path)]
    selection = wanted.selection
    partial = stopped is not None or bool(selection.modes or selection.plans)
    database = connect(root, observations=tables, partial=partial)
    _tell_what_is_missing(database, slugs)
    return outputs.write(
        database,
        root,
        json=wanted.json,
        junit=wanted.junit,
        sarif=wanted.sarif,
        stopped=stopped is not None,
        asked=wanted.asked,
    )


def _make_way(path: Path) -> None:
    """Remove what an earlier run wrote there: a report of before must not pass for this run's."""
    try:
        path.unlink(missing_ok=True)
        with whole_file(path) as partial:  # so that it is known now, and not after the last replay
            partial.touch()
        path.unlink()
    except OSError as error:
        raise ParamsError(f"{path} cannot be written: {error.strerror}", next_step="Name another file.") from None


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep other runs out of a store."""
    locks = cache_folder() / "verify"
    locks.mkdir(parents=True, exist_ok=True)
    lock = FileLock(locks / f"{sha256_of(str(folder.resolve()).encode())[:16]}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise ParamsError(
            f"another run is at work in {folder}", next_step="Wait for it, or give this one a --store of its own."
        ) from None
    try:
        yield
    finally:
        lock.release()


def _tell_what_is_missing(database: Database, slugs: tuple[str, ...]) -> None:
    """Say when engines' answers are not there: a case that is disputed looks settled without them."""
    missing = [path for path in database.missing if path.startswith(WITNESSES) and Path(path).stem in slugs]
    if missing:
        say(
            f"note: {len(missing)} tables of engines' answers are missing, e.g. {missing[0]}: what vLLM says otherwise"
            " than the reference is not known of these, and not told as disputed"
        )


def _task(run: Run, slug: str, path: Path, model: str | None) -> Task:
    """Return what is to do for a checkpoint; its key tells servers apart that one name may stand for."""
    one = task(run, slug, path, model)
    return replace(one, key=sha256_of(repr((one.key, run.target.reached)).encode()))


def _begin(one: Task, *, fresh: bool) -> None:
    """Remove a table of before, and parts that answer another question: a run that stops early is judged by all
    there are."""
    for path in (one.path, one.path.with_suffix(".json")):
        path.unlink(missing_ok=True)
    if fresh:
        discard(one.path)
    elif so_far(one.path):
        Parts(one.path, one.key)


def _end(one: Task) -> None:
    """Make what there is the table."""
    if not one.path.is_file() and so_far(one.path):
        Parts(one.path, one.key).finish()


@dataclass(slots=True)
class _Judge:
    """Judges parts of tables as they come. That takes a second whatever their number, and so is done for a quarter
    more at a time."""

    root: Path
    _new: list[Path] = field(default_factory=list)
    _judged: int = 0
    _database: Database | None = None

    def finds(self, part: Path) -> bool:
        """Return whether something is seen to fail. That a listed case matches throughout shows at the end alone."""
        self._new.append(part)
        if len(self._new) * 4 < self._judged:
            return False
        if self._database is None:
            self._database = connect(self.root, observations=self._new)
            for name in ("compared", "standing"):
                self._database.keep(name)
        connection = self._database.connection
        files = ", ".join(map(sql_path, self._new))
        connection.execute(f"create or replace view observation as select * from read_parquet([{files}])")
        self._judged, self._new = self._judged + len(self._new), []
        fails = "select 1 from verdict where gate = 'fail' and verdict <> 'known_but_matches' limit 1"
        return bool(connection.execute(fails).fetchall())


def _store(root: Path, target: Target, wanted: Wanted, scope: Scope) -> Path:
    """Return the folder of runs that ask the same of the same target."""
    asked = repr((str(root), target.name, target.reached, wanted.model, wanted.selection, scope))
    return cache_folder() / "verify" / f"{target.name}-{hashlib.sha256(asked.encode()).hexdigest()[:16]}"
