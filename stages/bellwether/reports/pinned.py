"""Small tables of what files in Git say: the scope, its engines and authorities, manifests, and the reviewed lists."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb

from bellwether.layout import RECORDED, reference_table
from bellwether.params import Manifest, Params, read_manifest
from bellwether.reports.insert import insert
from bellwether.reports.releases import covers, releases, targets
from bellwether.waivers import read_known, read_waivers

OF_TEXT = {"tokenize": ("hf-tokenizer",), "detokenize": ("hf-tokenizer",)}
"""Kinds no manifest speaks of: there is one source for them."""

MANIFESTS = """
    checkpoint text, model text, revision text, tier integer, license text, group_slug text, in_scope boolean,
    status text, files integer, identical integer, derived integer, unproved integer, only_on_hub integer,
    missing text[], unreached text[]
"""
"""`group_slug` is the primary's slug, a primary's own; `missing` names the files that only the Hub or a mirror has,
`unreached` the checkpoint's own copies that were not obtained. The four counts of files add up to `files`."""

WAIVERS = """
    engine text, versions text, model text, checkpoint text, kind text, name text, reason text, evidence text,
    upstream text, covers boolean
"""
"""A waiver's case is its checkpoint, kind and name. `covers`: the engine's pinned release is inside the range; null
when none is in scope."""


def add_scope(connection: duckdb.DuckDBPyConnection, params: Params) -> None:
    """Add the table `scope`, in the order of params.yaml."""
    _add(connection, "scope", "checkpoint text, place integer", [(s, n) for n, s in enumerate(params.checkpoints)])


def add_engines(connection: duckdb.DuckDBPyConnection, params: Params) -> None:
    """Add the table `engines`. Raises ParamsError when a name is no release."""
    columns = "name text, engine text, engine_version text, release_order integer, pinned boolean"
    rows = [(one.name, one.engine, one.version, one.order, one.pinned) for one in releases(params.engines)]
    _add(connection, "engines", columns, rows)


def add_targets(connection: duckdb.DuckDBPyConnection, names: Mapping[str, str | None]) -> None:
    """Add the table `targets`. Raises as `releases.targets`."""
    columns = "target text, gateway text, version text, release_order integer, pinned boolean"
    rows = [(one.name, one.gateway, one.version, one.order, one.pinned) for one in targets(names)]
    _add(connection, "targets", columns, rows)


def add_authority(connection: duckdb.DuckDBPyConnection, root: Path, params: Params) -> None:
    """Add the table `authority`, read from the manifests of the scope. Raises as `read_manifest`."""
    rows = [
        (slug, kind, source, place)
        for slug in params.checkpoints
        for kind, sources in (*read_manifest(root, slug).authority.items(), *OF_TEXT.items())
        for place, source in enumerate(sources)
    ]
    _add(connection, "authority", "checkpoint text, kind text, source text, place integer", rows)


def add_manifests(connection: duckdb.DuckDBPyConnection, root: Path, params: Params) -> None:
    """Add the table `manifests`, read from the files. Raises ParamsError when one of them is malformed."""
    slugs = sorted(path.parent.name for path in (root / "fixtures").glob("*/manifest.toml"))
    rows = [_manifest_row(root, read_manifest(root, slug), slug in params.checkpoints) for slug in slugs]
    _add(connection, "manifests", MANIFESTS, rows)


def add_waivers(connection: duckdb.DuckDBPyConnection, root: Path, params: Params) -> None:
    """Add the tables `waivers` and `known_differences`. Raises ParamsError when a list is malformed."""
    versions = {one.engine: one.version for one in releases(params.engines) if one.pinned}
    rows = [
        (
            *(waiver.engine, waiver.versions, waiver.model, *waiver.case.split("/")),
            *(waiver.reason, waiver.evidence, waiver.upstream),
            covers(waiver.versions, versions[waiver.engine]) if waiver.engine in versions else None,
        )
        for waiver in read_waivers(root)
    ]
    _add(connection, "waivers", WAIVERS, rows)
    rows = [(one.target, one.entry, one.verdict, one.code, one.reason, one.issue) for one in read_known(root)]
    columns = "target text, entry text, verdict text, code text, reason text, issue text"
    _add(connection, "known_differences", columns, rows)


def _add(connection: duckdb.DuckDBPyConnection, name: str, columns: str, rows: Sequence[tuple]) -> None:
    connection.execute(f"create table {name} ({columns})")
    insert(connection, name, rows)


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
