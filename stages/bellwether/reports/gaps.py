"""The gap matrix: which parsers, renderers and tokenizers systems register, which a gateway lacks, which are exercised.

The rows are queries/gaps.sql; this module shows them.
"""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb

from bellwether.errors import ParamsError
from bellwether.params import read_params
from bellwether.registries.listed import ENGINE, GATEWAY, ROLES, Registries
from bellwether.registries.values import KINDS
from bellwether.reports.database import connect
from bellwether.reports.gap_tables import add_registries
from bellwether.reports.render import markdown, write

FORMATS = ("markdown", "json", "csv")
SCHEMA_VERSION = "1"
STATUSES = ("gateway_missing", "engines_differ", "no_fixtures", "gateway_only", "covered")
"""What queries/gaps.sql may say, in the order in which people look at it."""
TITLES = {"vllm": "vLLM", "sglang": "SGLang", "smg": "SMG", "smg-symphony": "SMG Symphony"}
READ = {
    "vllm": "dict literals of the source archive, by syntax tree",
    "sglang": "dict literals, names and modules of the wheel, by syntax tree",
    "smg": "Rust text of the source archive, by expressions; parsers as a running gateway accepts them",
    "smg-symphony": "Rust text of the source archive, by expressions; parsers as the gateway's command line lists them",
}
"""System → how its registry was read."""

Row = Mapping[str, Any]


def text(root: Path, form: str) -> tuple[str, tuple[str, ...]]:
    """Return the matrix as `markdown`, `json` or `csv`, and the tables of references that are missing: their cases are
    not counted.

    Raises:
        ParamsError: the query does not run, an alias or a manifest names what no registry has. Otherwise as `connect`.
        TableError: there is no stored list of registries, or it cannot be read.
    """
    database = connect(root)
    registries = add_registries(database.connection, root, read_params(root))
    missing = tuple(path for path in database.missing if path.endswith("/reference.parquet"))
    try:
        result = database.connection.execute((root / "queries" / "gaps.sql").read_text("utf-8"))
        if form == "csv":
            stream = io.StringIO()
            write(result, "csv", stream)
            return stream.getvalue(), missing
        names = [column[0] for column in result.description]
        rows = [dict(zip(names, row, strict=True)) for row in result.fetchall()]
    except duckdb.Error as error:
        raise ParamsError(f"queries/gaps.sql does not run: {error}", next_step="Mend the query.") from None
    except FileNotFoundError:
        raise ParamsError("there is no queries/gaps.sql", next_step="Run inside a checkout, or pass --root.") from None
    if form == "json":
        return json.dumps(as_json(rows, registries), indent=2, ensure_ascii=False) + "\n", missing
    return as_markdown(rows, registries), missing


def as_markdown(rows: Sequence[Row], registries: Registries) -> str:
    """Return counts by kind, then a table per kind; what a gateway lacks stands first."""
    versions = ", ".join(
        f"{TITLES[system]} {registries.systems[system]['version']}" for system in ("vllm", "sglang", "smg")
    )
    by = Counter((row["kind"], row["status"]) for row in rows)
    registered = Counter((one.kind, one.system) for one in registries.parts)
    counts = markdown(
        ["kind", *TITLES.values(), "keys", *STATUSES],
        [
            [
                *(kind, *(registered[kind, system] for system in ROLES)),
                *(sum(by[kind, status] for status in STATUSES), *(by[kind, status] for status in STATUSES)),
            ]
            for kind in KINDS
        ],
    )
    blocks = [f"Registered by {versions}: names by system, and keys by status", counts]
    for kind in KINDS:
        mine = sorted(
            (row for row in rows if row["kind"] == kind), key=lambda row: (STATUSES.index(row["status"]), row["key"])
        )
        table = markdown(
            [kind, "status", *TITLES.values(), "fixtures", "cases"],
            [
                [
                    *(row["label"], row["status"], *(_names(row[column(system)]) for system in ROLES)),
                    *(", ".join(row["fixtures"]), row["cases"]),
                ]
                for row in mine
            ],
        )
        blocks += [f"## {kind}", table]
    return "\n\n".join(blocks) + "\n"


def as_json(rows: Sequence[Row], registries: Registries) -> dict[str, Any]:
    """Return the matrix as a value: `sources` by system, rows and counts by kind, and lists of keys by kind.

    `engine_only` and `smg_only` are what only one of the two sides registers, `engines_differ` what only one engine
    does; all three whatever the row's status. `shared_impl` are names one implementation is registered by.
    """
    return {
        "schema_version": SCHEMA_VERSION,
        "sources": {
            system: {
                **registries.systems[system],
                "role": role,
                "notes": [READ[system]],
                "left_out": registries.left_out.get(system, {}),
                "model_patterns": {
                    kind: [{"pattern": pattern, "parser": name} for pattern, name in pairs]
                    for kind, pairs in registries.patterns.get(system, {}).items()
                },
            }
            for system, role in ROLES.items()
        },
        "kinds": {kind: _kind(kind, rows, registries) for kind in KINDS},
        "engine_only": _keys(rows, lambda row: _count(row, ENGINE) > 0 and _count(row, GATEWAY) == 0),
        "smg_only": _keys(rows, lambda row: _count(row, ENGINE) == 0 and _count(row, GATEWAY) > 0),
        "engines_differ": _keys(rows, lambda row: _count(row, ENGINE) == 1),
        "shared_impl": list(_shared(registries)),
    }


def column(system: str) -> str:
    """Return the query's column of a system."""
    return system.replace("-", "_")


def _kind(kind: str, rows: Sequence[Row], registries: Registries) -> dict[str, Any]:
    mine = [row for row in rows if row["kind"] == kind]
    registered = Counter(one.system for one in registries.parts if one.kind == kind)
    status = Counter(row["status"] for row in mine)
    return {
        "counts": {
            "names": {system: registered[system] for system in ROLES},
            "keys": len(mine),
            "status": {one: status[one] for one in STATUSES},
        },
        "rows": [
            {
                "key": row["key"],
                "label": row["label"],
                "status": row["status"],
                "cells": {
                    system: [{"name": cell["name"], "impl": cell["implementation"]} for cell in row[column(system)]]
                    for system in ROLES
                },
                "fixtures": row["fixtures"],
                "cases": row["cases"],
            }
            for row in mine
        ],
    }


def _keys(rows: Sequence[Row], fits: Callable[[Row], bool]) -> dict[str, list[str]]:
    return {kind: [row["key"] for row in rows if row["kind"] == kind and fits(row)] for kind in KINDS}


def _count(row: Row, role: str) -> int:
    """Return how many systems of a role register a row's key."""
    return sum(bool(row[column(system)]) for system, its in ROLES.items() if its == role)


def _shared(registries: Registries) -> Iterator[dict[str, Any]]:
    names: dict[tuple[str, str, str], list[str]] = {}
    for one in registries.parts:
        names.setdefault((one.kind, one.system, one.implementation), []).append(one.name)
    for (kind, system, implementation), there in names.items():
        if len(there) > 1:
            yield {"kind": kind, "system": system, "impl": implementation, "names": there}


def _names(cells: Sequence[Mapping[str, str]]) -> str:
    return ", ".join(cell["name"] for cell in cells)
