"""What systems register, and what the fixtures use, as tables that queries/gaps.sql reads.

| table | one row per |
|---|---|
| registry | kind, system and registered name, with its implementation; `role` is engine or gateway |
| aliases | kind, system, name and key it stands for, with the reason |
| uses | checkpoint in scope, kind, system and name of the part that reads or writes its cases |

Parsers are those a manifest starts an engine with. Of renderers and tokenizers no manifest speaks: their names are the
sources whose answers are recorded, and the system is `source`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import duckdb

from bellwether.errors import ParamsError
from bellwether.params import Manifest, Params, read_manifest
from bellwether.registries import aliases, listed
from bellwether.registries.listed import ENGINE, ROLES, Registries
from bellwether.reports.insert import insert

SOURCE = "source"
"""The system of names that are sources of references."""
PARSERS = {"tool": "tool_parser", "reasoning": "reasoning_parser"}
"""Kind → key in an engine's table of a manifest."""
OF_TEXT = "hf-tokenizer"
"""The one source of tokens."""

TABLES = """
create or replace table registry (
    kind text, system text, version text, role text, place integer, name text, implementation text
);
create or replace table aliases (kind text, system text, name text, key text, reason text);
create or replace table uses (checkpoint text, kind text, system text, name text);
"""


def add_registries(connection: duckdb.DuckDBPyConnection, root: Path, params: Params) -> Registries:
    """Add the tables, and return the list they were made from.

    Raises:
        TableError: there is no stored list of registries, or it cannot be read.
        ParamsError: an alias or a manifest is malformed, or names what no registry has.
    """
    registries = listed.read(root)
    manifests = [read_manifest(root, path.parent.name) for path in sorted((root / "fixtures").glob("*/manifest.toml"))]
    in_scope = [manifest for manifest in manifests if manifest.slug in params.checkpoints]
    names = registered_names(registries, manifests)
    used = [row for manifest in in_scope for row in uses(manifest)]
    _require_known(used, names)
    connection.execute(TABLES)
    systems = list(ROLES)
    insert(
        connection,
        "registry",
        [
            (
                *(one.kind, one.system, registries.systems[one.system]["version"], ROLES[one.system]),
                *(systems.index(one.system), one.name, one.implementation),
            )
            for one in registries.parts
        ],
    )
    insert(
        connection,
        "aliases",
        [(one.kind, one.system, one.name, one.key, one.reason) for one in aliases.read(root, names)],
    )
    insert(connection, "uses", used)
    return registries


def uses(manifest: Manifest) -> list[tuple[str, str, str, str]]:
    """Return (checkpoint, kind, system, name) of every part a manifest names, and of its sources."""
    found = [
        (manifest.slug, kind, system, manifest.engines[system][key])
        for system, role in ROLES.items()
        if role == ENGINE and system in manifest.engines
        for kind, key in PARSERS.items()
        if key in manifest.engines[system]
    ]
    found += [(manifest.slug, "renderer", SOURCE, source) for source in manifest.authority["render"]]
    return [*found, (manifest.slug, "tokenizer", SOURCE, OF_TEXT)]


def registered_names(registries: Registries, manifests: Iterable[Manifest]) -> aliases.Names:
    """Return the names of every registry, and the sources of every manifest, in scope or not: an alias does not turn
    wrong when params.yaml lists fewer checkpoints."""
    found: dict[tuple[str, str], set[str]] = {}
    for one in registries.parts:
        found.setdefault((one.kind, one.system), set()).add(one.name)
    for manifest in manifests:
        for _, kind, system, name in uses(manifest):
            if system == SOURCE:
                found.setdefault((kind, system), set()).add(name)
    return {at: frozenset(names) for at, names in found.items()}


def _require_known(used: Iterable[tuple[str, str, str, str]], names: aliases.Names) -> None:
    for checkpoint, kind, system, name in used:
        if name not in names.get((kind, system), ()):
            raise ParamsError(
                f"fixtures/{checkpoint}/manifest.toml: {system} registers no {kind} parser {name!r}",
                next_step="Correct [engines." + system + "].",
            )
