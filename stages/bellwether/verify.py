"""Command `verify`: does a gateway send the tokens, and read the answers, that it should?

What `observe` records of the pinned targets is recorded here for a person, outside the checkout, and judged at once. An
interrupted run goes on where it was; one that ended starts anew, because a gateway may have changed.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

from bellwether.cache import cache_folder
from bellwether.errors import GatewayError
from bellwether.gateways.targets import Target
from bellwether.layout import inputs_folder
from bellwether.observe import Run, observe, task
from bellwether.observing.parts import discard, so_far
from bellwether.observing.replays import ALL, Selection
from bellwether.params import Scope, read_params
from bellwether.progress import say
from bellwether.reports.database import connect
from bellwether.reports.verdicts import outputs
from bellwether.reports.verdicts.summary import Summary


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

    With `fail_fast` it stops after the first part of a table in which something fails. A gateway that ends, or that
    cannot be started, leaves a verdict on what was replayed, if anything was.

    Raises:
        GatewayError: the gateway cannot be started or reached, or ended before anything was replayed.
        ParamsError, MaterialError, TableError: as `observe.main`.
    """
    root = root.resolve()
    params = read_params(root)
    if wanted.scope is not None:
        params = replace(params, observe=wanted.scope)
    folder = wanted.store or _store(root, target, wanted, params.observe)
    slugs = wanted.slugs or tuple(slug for slug in params.checkpoints if inputs_folder(root, slug).is_dir())
    done: list[Path] = []

    def part_done(path: Path) -> None:
        done.append(path)
        if wanted.fail_fast and _fails(root, path):
            raise _Enough

    run = Run(root, params, target, wanted.selection, part_done)
    tasks = [task(run, slug, folder / f"{slug}.parquet", wanted.model) for slug in slugs]
    for one in tasks:
        one.path.unlink(missing_ok=True)
        if wanted.fresh:
            discard(one.path)
    stopped = None
    try:
        observe(run, tasks, force=True)
    except _Enough:
        stopped = "stopped after the first failure"
    except GatewayError as error:
        if not done:
            raise
        stopped = str(error)
    if stopped:
        say(stopped)
    tables = [path for one in tasks for path in so_far(one.path)]
    database = connect(root, observations=tables)
    return outputs.write(
        database,
        root,
        json=wanted.json,
        junit=wanted.junit,
        sarif=wanted.sarif,
        stopped=stopped is not None,
        asked=wanted.asked,
    )


def _fails(root: Path, part: Path) -> bool:
    query = (root / "queries" / "verdict.sql").read_text("utf-8")
    connection = connect(root, observations=[part]).connection
    return bool(connection.execute(f"select 1 from ({query}) where gate = 'fail' limit 1").fetchall())


def _store(root: Path, target: Target, wanted: Wanted, scope: Scope) -> Path:
    """Return the folder of runs that ask the same of the same target."""
    asked = repr((str(root), target.name, wanted.model, wanted.selection, scope))
    return cache_folder() / "verify" / f"{target.name}-{hashlib.sha256(asked.encode()).hexdigest()[:16]}"
