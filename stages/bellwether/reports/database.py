"""All tables of a checkout as DuckDB views, so that a question is one SQL statement.

| view | one row per |
|---|---|
| cases, requests, origins, repeats, left_out | see the tables of a corpus |
| materials | file of a checkpoint, with its proof label |
| reference | case, checkpoint, source and distinct answer |
| authority | checkpoint, kind and source recorded for it; place 0 decides |
| deciding | answer of the deciding source, in the form its kind is judged by: one per case, or one per encoder |
| provenance | recorded table: what it depended on |
| engines | release of an engine in params.yaml; of an engine's releases the newest is the pinned one |
| witness | case, checkpoint, release and distinct answer |
| targets | gateway in params.yaml; of a gateway's releases the newest is the pinned one |
| observation | replay of a case through a gateway |
| reference_before, witness_before, observation_before | the same at another Git revision; else empty |
| against | that revision |
| claims, told, evidence | answer that decides, of any source, of a witness: as digests, see reports/evidence.py |
| observed | replay as digests, in the same columns |
| waivers, known_differences | entry of queries/waivers.toml, of queries/known/*.toml |
| compared, standing, disputes, verdict, defects | row of the stored query of this name |
| registry, aliases, uses | name a system registers; other spelling of one; fixture that exercises one |
| scope | checkpoint in params.yaml, in its order |
| manifests | pinned checkpoint, in scope or not: its files by proof, and what keeps it from being recorded |
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa

from bellwether.corpora.store import sql_path
from bellwether.errors import ParamsError, TableError
from bellwether.layout import (
    RECORDED,
    corpus_folder,
    materials_table,
    observation_table,
    reference_table,
    witness_table,
)
from bellwether.observing.table import OBSERVATION
from bellwether.params import Params, read_params
from bellwether.registries import listed
from bellwether.reports import evidence, gap_tables, pinned
from bellwether.reports.insert import insert
from bellwether.reports.revision import tables_at
from bellwether.tables import MATERIALS, PER_CORPUS, REFERENCE, WITNESS, check

WITNESSES = "fixtures/witnesses/"

OBSERVATIONS = "fixtures/observations/"

STORED = ("compared", "standing", "disputes", "verdict", "defects")
"""Queries that other queries use by name, each after those it uses itself."""
NAMES = re.compile(
    r"\b(show|describe|pragma|query|query_table|information_schema|(duckdb|pg|sqlite)_\w+)\b", re.IGNORECASE
)
"""Words by which SQL reads the catalogue, or a table whose name is no word of it."""
ORDERED = ("verdict",)
"""Those whose rows are read as they come. To put the rows of another in order would show nowhere, and costs a second in
a million."""

# A prompt is judged as the request says it, an output as the answer to the prompt vLLM would have made. Rows of `both`
# stand for either, rows without a normalisation had nothing to normalise. A vendor's code has a front end of its own.
DECIDING = """
create macro is_judged(kind, source, normalisation) as
    coalesce(normalisation, 'both') = 'both'
    or normalisation = if(kind = 'render' and source not like 'vendor-code:%', 'raw', 'vllm');
create view deciding as
select reference.*
from reference
semi join authority on reference.checkpoint = authority.checkpoint and reference.kind = authority.kind
    and reference.source = authority.source and authority.place = 0
where is_judged(reference.kind, reference.source, reference.normalisation)
"""


@dataclass(frozen=True, slots=True)
class Database:
    """A connection with the views, and the files of the scope that are not there."""

    connection: duckdb.DuckDBPyConnection
    missing: tuple[str, ...]
    """Paths relative to the root. Their rows are absent from every view: not recorded is not the same as empty."""

    def keep(self, name: str) -> None:
        """Run the stored query `name` now and keep its rows: what asks for it from here on takes them. Those of a query
        that others use, such as `verdict`, would be made again each time.

        Raises:
            ParamsError: the query does not run.
        """
        try:
            self.connection.execute(f"create table kept_{name} as from {name}")
            self.connection.execute(f"create or replace view {name} as from kept_{name}")
        except duckdb.Error as error:
            raise ParamsError(f"queries/{name}.sql does not run: {error}", next_step="Mend the query.") from None

    def require_all(self, *, witnesses: bool = True) -> None:
        """Check that no table of the scope is missing; what is counted over a part would look complete. Who counts
        references alone does without the tables of `witnesses`, engines and gateways.

        Raises:
            TableError: tables are missing. Names the first of them.
        """
        missing = [path for path in self.missing if witnesses or not path.startswith((WITNESSES, OBSERVATIONS))]
        if missing:
            raise TableError(
                f"{len(missing)} tables of the scope are missing: {', '.join(missing[:5])}",
                next_step="Run `make repro`, or `dvc pull`. Tables that `report` does not name in dvc.yaml may not be "
                "recorded before it runs.",
            )


def connect(
    root: Path,
    against: str | None = None,
    observations: Sequence[Path] | None = None,
    *,
    partial: bool = False,
    asked: str | None = None,
) -> Database:
    """Return the views over every table in the scope of params.yaml; and over the answers in it at the Git revision
    `against`. With `observations` those are the tables of what gateways did, instead of those in scope; `partial` says
    that of a case they may hold some replays only, so that a listed difference may show in another. `asked` is the SQL
    that is asked, where that is known: views of stored queries that it does not name are left out, for DuckDB reads
    through each of them, and those below it, for a fifth of a second.

    Raises:
        TableError: a table that is there is torn or of another schema version.
        ParamsError: params.yaml or a manifest is malformed, or one of the scope is missing; a list of waivers or
            known differences is malformed; there is no such revision; or a stored query others use does not run.
    """
    params = read_params(root)
    connection = duckdb.connect()
    connection.execute(f"create macro is_partial() as {partial}")
    missing: list[str] = []
    for name, schema in PER_CORPUS.items():
        paths = [corpus_folder(root, corpus) / f"{name}.parquet" for corpus in params.corpora]
        _view(connection, root, name, schema, paths, missing)
    materials = [materials_table(root, slug) for slug in params.checkpoints]
    _view(connection, root, "materials", MATERIALS, materials, missing)
    references = [reference_table(root, slug, recorded) for slug in params.checkpoints for recorded in RECORDED]
    _view(connection, root, "reference", REFERENCE, references, missing)
    witnesses = [witness_table(root, name, slug) for name in params.engines for slug in params.checkpoints]
    _view(connection, root, "witness", WITNESS, witnesses, missing)
    observed = [observation_table(root, name, slug) for name in params.targets for slug in params.checkpoints]
    _provenance(
        connection,
        [(path.parents[1].name, path.parent.name, path.with_name("provenance.json")) for path in references]
        + [(path.stem, path.parent.name, path.with_suffix(".json")) for path in (*witnesses, *observed)],
    )
    _observation(connection, root, params, observed, observations, missing)
    _before(connection, root, against, references, witnesses, observed)
    pinned.add_scope(connection, params)
    pinned.add_engines(connection, params)
    pinned.add_authority(connection, root, params)
    pinned.add_manifests(connection, root, params)
    pinned.add_waivers(connection, root, params)
    if listed.path(root).is_file():
        gap_tables.add_registries(connection, root, params)
    else:  # Git keeps the list; without it `bellwether gaps` says so, and other questions have answers
        connection.execute(gap_tables.TABLES)
    connection.execute(DECIDING)
    connection.execute(evidence.MACROS)
    connection.execute(evidence.SHOWN)
    connection.execute(evidence.VIEWS)
    for name in STORED if asked is None else _named(root, asked):
        _stored(connection, root, name)
    return Database(connection, tuple(missing))


def _view(
    connection: duckdb.DuckDBPyConnection,
    root: Path,
    name: str,
    schema: pa.Schema,
    paths: list[Path],
    missing: list[str],
) -> None:
    present = [path for path in paths if path.is_file()]
    missing += [path.relative_to(root).as_posix() for path in paths if path not in present]
    for path in present:
        check(path, schema)
    if present:
        files = ", ".join(sql_path(path) for path in present)
        connection.execute(f"create view {name} as select * from read_parquet([{files}])")
    else:
        connection.register(f"empty_{name}", schema.empty_table())
        connection.execute(f"create view {name} as select * from empty_{name}")


def _observation(
    connection: duckdb.DuckDBPyConnection,
    root: Path,
    params: Params,
    stored: list[Path],
    own: Sequence[Path] | None,
    missing: list[str],
) -> None:
    """Add what gateways did, and the gateways: those in scope, or those that `own` tables are of."""
    if own is None:
        _view(connection, root, "observation", OBSERVATION, stored, missing)
        pinned.add_targets(connection, dict.fromkeys(params.targets))
        return
    for path in own:
        check(path, OBSERVATION)
    _view(connection, root, "observation", OBSERVATION, list(own), missing)
    said = connection.execute("select target, max(target_version) from observation group by target").fetchall()
    pinned.add_targets(connection, dict(said))


def _before(
    connection: duckdb.DuckDBPyConnection,
    root: Path,
    against: str | None,
    references: list[Path],
    witnesses: list[Path],
    observed: list[Path],
) -> None:
    """Add the answers of another revision; a table it does not have has no rows."""
    connection.execute("create table against (revision text)")
    if against is not None:
        connection.execute("insert into against values (?)", [against])
    for name, schema, paths in (
        ("reference_before", REFERENCE, references),
        ("witness_before", WITNESS, witnesses),
        ("observation_before", OBSERVATION, observed),
    ):
        wanted = [path.relative_to(root).as_posix() for path in paths]
        copies = {} if against is None else tables_at(root, against, wanted)
        for path, copy in copies.items():
            try:
                check(copy, schema)
            except TableError as error:
                raise TableError(
                    f"{path} at {against}: {error}", next_step="Name a revision recorded in the form of this one."
                ) from None
        _view(connection, root, name, schema, list(copies.values()), [])


def _named(root: Path, asked: str) -> list[str]:
    """Return the stored queries whose names are words of this SQL, or of a query it names in turn; all of them where it
    asks for names, or makes one up."""
    if NAMES.search(asked):
        return list(STORED)
    found: list[str] = []
    texts = [asked]
    for name in reversed(STORED):
        if any(re.search(rf"\b{name}\b", text, re.IGNORECASE) for text in texts):
            found.insert(0, name)
            texts.append(re.sub(r"--.*", "", _query(root, name) or ""))
    return found


def _query(root: Path, name: str) -> str | None:
    """Return the stored query `name`, where the checkout has it."""
    path = root / "queries" / f"{name}.sql"
    return path.read_text("utf-8") if path.is_file() else None


def _stored(connection: duckdb.DuckDBPyConnection, root: Path, name: str) -> None:
    """Add the stored query `name` as a view, where the checkout has it."""
    query = _query(root, name)
    if query is None:
        return
    if name not in ORDERED:
        query = query.partition("\norder by ")[0]
    try:
        connection.execute(f"create view {name} as {query}")
    except duckdb.Error as error:
        raise ParamsError(f"queries/{name}.sql does not run: {error}", next_step="Mend the query.") from None


def _provenance(connection: duckdb.DuckDBPyConnection, files: list[tuple[str, str, Path]]) -> None:
    rows = [(checkpoint, recorded, _json(path)) for checkpoint, recorded, path in files if path.is_file()]
    connection.execute("create table provenance (checkpoint text, recorded text, provenance json)")
    insert(connection, "provenance", rows)


def _json(path: Path) -> str:
    text = path.read_text("utf-8")
    try:
        json.loads(text)
    except ValueError as error:
        raise TableError(f"{path} is no whole JSON file: {error}", next_step="Record it again.") from None
    return text
