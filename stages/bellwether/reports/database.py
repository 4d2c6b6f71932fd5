"""All tables of a checkout as DuckDB views, so that a question is one SQL statement.

| view | one row per |
|---|---|
| cases, requests, origins, repeats, left_out | see the tables of a corpus |
| materials | file of a checkpoint, with its proof label |
| reference | case, checkpoint, source and distinct answer |
| authority | checkpoint, kind and source recorded for it; place 0 decides |
| deciding | answer of the deciding source, in the form its kind is judged by: one per case, or one per encoder |
| provenance | recorded table: what it depended on |
| scope | checkpoint in params.yaml, in its order |
| manifests | pinned checkpoint, in scope or not: its files by proof, and what keeps it from being recorded |
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa

from bellwether.corpora.store import sql_path
from bellwether.errors import TableError
from bellwether.layout import RECORDED, corpus_folder, materials_table, reference_table
from bellwether.params import Manifest, Params, read_manifest, read_params
from bellwether.tables import MATERIALS, PER_CORPUS, REFERENCE, check

OF_TEXT = {"tokenize": ("hf-tokenizer",), "detokenize": ("hf-tokenizer",)}
"""Kinds no manifest speaks of: there is one source for them."""

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

    def require_all(self) -> None:
        """Check that no table of the scope is missing; what is counted over a part would look complete.

        Raises:
            TableError: tables are missing. Names the first of them.
        """
        if self.missing:
            raise TableError(
                f"{len(self.missing)} tables of the scope are missing: {', '.join(self.missing[:5])}",
                next_step="Run `make repro`, or `dvc pull`. Tables that `report` does not name in dvc.yaml may not be "
                "recorded before it runs.",
            )


def connect(root: Path) -> Database:
    """Return the views over every table in the scope of params.yaml.

    Raises:
        TableError: a table that is there is torn or of another schema version.
        ParamsError: params.yaml or a manifest is malformed, or one of the scope is missing.
    """
    params = read_params(root)
    connection = duckdb.connect()
    missing: list[str] = []
    for name, schema in PER_CORPUS.items():
        paths = [corpus_folder(root, corpus) / f"{name}.parquet" for corpus in params.corpora]
        _view(connection, root, name, schema, paths, missing)
    materials = [materials_table(root, slug) for slug in params.checkpoints]
    _view(connection, root, "materials", MATERIALS, materials, missing)
    references = [reference_table(root, slug, recorded) for slug in params.checkpoints for recorded in RECORDED]
    _view(connection, root, "reference", REFERENCE, references, missing)
    _provenance(connection, [path.with_name("provenance.json") for path in references])
    _scope(connection, params)
    _authority(connection, root, params)
    connection.execute(DECIDING)
    add_manifests(connection, root, params)
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


def _provenance(connection: duckdb.DuckDBPyConnection, paths: list[Path]) -> None:
    rows = [(path.parents[1].name, path.parent.name, _json(path)) for path in paths if path.is_file()]
    connection.execute("create table provenance (checkpoint text, recorded text, provenance json)")
    if rows:
        connection.executemany("insert into provenance values (?, ?, ?)", rows)


def _json(path: Path) -> str:
    text = path.read_text("utf-8")
    try:
        json.loads(text)
    except ValueError as error:
        raise TableError(f"{path} is no whole JSON file: {error}", next_step="Record it again.") from None
    return text


def _scope(connection: duckdb.DuckDBPyConnection, params: Params) -> None:
    connection.execute("create table scope (checkpoint text, place integer)")
    if params.checkpoints:
        connection.executemany(
            "insert into scope values (?, ?)", [(slug, place) for place, slug in enumerate(params.checkpoints)]
        )


def _authority(connection: duckdb.DuckDBPyConnection, root: Path, params: Params) -> None:
    connection.execute("create table authority (checkpoint text, kind text, source text, place integer)")
    rows = [
        (slug, kind, source, place)
        for slug in params.checkpoints
        for kind, sources in (*read_manifest(root, slug).authority.items(), *OF_TEXT.items())
        for place, source in enumerate(sources)
    ]
    if rows:
        connection.executemany("insert into authority values (?, ?, ?, ?)", rows)


MANIFESTS = """
create table manifests (
    checkpoint text, model text, revision text, tier integer, license text, group_slug text, in_scope boolean,
    status text, files integer, identical integer, derived integer, unproved integer, only_on_hub integer,
    missing text[], unreached text[]
)
"""
"""`group_slug` is the primary's slug, a primary's own; `missing` names the files that only the Hub or a mirror has,
`unreached` the checkpoint's own copies that were not obtained. The four counts of files add up to `files`."""


def add_manifests(connection: duckdb.DuckDBPyConnection, root: Path, params: Params) -> None:
    """Add the table `manifests`, read from the files. Raises ParamsError when one of them is malformed."""
    connection.execute(MANIFESTS)
    slugs = sorted(path.parent.name for path in (root / "fixtures").glob("*/manifest.toml"))
    rows = [_manifest_row(root, read_manifest(root, slug), slug in params.checkpoints) for slug in slugs]
    if rows:
        connection.executemany(f"insert into manifests values ({', '.join('?' * len(rows[0]))})", rows)


def _manifest_row(root: Path, manifest: Manifest, in_scope: bool) -> tuple:
    missing = [name for name, file in manifest.files.items() if file.transform is None]
    proofs = Counter(file.proof for file in manifest.files.values() if file.transform is not None)
    return (
        *(manifest.slug, manifest.model, manifest.revision, manifest.tier, manifest.license),
        *(manifest.group or manifest.slug, in_scope, _status(root, manifest, in_scope, missing)),
        *(len(manifest.files), proofs["identical"], proofs["derived"], proofs["unproved"], len(missing)),
        *(missing, list(manifest.unreached)),
    )


def _status(root: Path, manifest: Manifest, in_scope: bool, missing: list[str]) -> str:
    """Return what is known of a checkpoint's references.

    recorded: it is in scope and its tables are there. member: another checkpoint's recording serves it. unavailable:
    not recorded, and files are missing that only the Hub or a mirror has. pending: not recorded, though it can be.
    """
    if in_scope and all(reference_table(root, manifest.slug, recorded).is_file() for recorded in RECORDED):
        return "recorded"
    if manifest.group:
        return "member"
    return "unavailable" if missing else "pending"
