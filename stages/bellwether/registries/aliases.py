"""`queries/aliases.toml`: names of one thing that systems spell in different ways, each with a reason, strictly read.

An entry that says nothing is an error like one that is wrong: what nobody needs, nobody looks at again when a release
gives its name another meaning.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bellwether.errors import ParamsError
from bellwether.registries.values import KINDS, normal

Names = Mapping[tuple[str, str], frozenset[str]]
"""(kind, system) → the names it has."""


@dataclass(frozen=True, slots=True)
class Alias:
    """One name, and a key it stands for."""

    kind: str
    system: str
    name: str
    key: str
    """In the form of `values.normal`."""
    reason: str


def path(root: Path) -> Path:
    """Return where the aliases lie."""
    return root / "queries" / "aliases.toml"


def read(root: Path, names: Names) -> tuple[Alias, ...]:
    """Return the aliases, in the order of the file; a name with several keys has one for each.

    Raises:
        ParamsError: the file is missing, is not TOML, or has an entry of another shape; a name is not among `names`; a
            key is not in normal form, is the one the name has anyway, or is that of no other name.
    """
    where = path(root)
    try:
        top = tomllib.loads(where.read_text("utf-8"))
    except FileNotFoundError:
        raise ParamsError(f"{where} does not exist", next_step="Run inside a checkout, or pass --root.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ParamsError(f"{where} is not TOML: {error}", next_step="Mend the file.") from None
    found: list[Alias] = []
    for kind, systems in top.items():
        if kind not in KINDS or not isinstance(systems, dict):
            raise ParamsError(f"{where}: {kind!r} is no kind", next_step=f"Kinds are {', '.join(KINDS)}.")
        for system, entries in systems.items():
            if (kind, system) not in names or not isinstance(entries, dict):
                known = ", ".join(sorted(there for one, there in names if one == kind))
                raise ParamsError(f"{where}: [{kind}.{system}] has no registry", next_step=f"There are {known}.")
            for name, entry in entries.items():
                found += _entry(f"{where}: [{kind}.{system}] {name}", kind, system, name, entry)
    _require_sense(found, names, where)
    return tuple(found)


def keys(names: Names, aliases: Iterable[Alias]) -> dict[tuple[str, str, str], tuple[str, ...]]:
    """Return (kind, system, name) → its keys: those of its aliases, else its normal form."""
    told: dict[tuple[str, str, str], tuple[str, ...]] = {}
    for alias in aliases:
        at = (alias.kind, alias.system, alias.name)
        told[at] = (*told.get(at, ()), alias.key)
    return {
        (kind, system, name): told.get((kind, system, name), (normal(name),))
        for (kind, system), there in names.items()
        for name in there
    }


def _entry(where: str, kind: str, system: str, name: str, entry: Any) -> list[Alias]:
    if not isinstance(entry, dict) or set(entry) != {"key", "reason"}:
        raise ParamsError(f"{where} is of another shape", next_step="Its keys are key and reason.")
    listed = entry["key"] if isinstance(entry["key"], list) else [entry["key"]]
    if not listed or not all(isinstance(key, str) and key and key == normal(key) for key in listed):
        raise ParamsError(f"{where}: {entry['key']!r} is no key", next_step="Write lower-case letters and digits.")
    if len(set(listed)) != len(listed):
        raise ParamsError(f"{where} lists a key twice", next_step="Remove the repeat.")
    if not isinstance(entry["reason"], str) or not entry["reason"].strip():
        raise ParamsError(f"{where} has no reason", next_step="Say what shows that the two are one.")
    return [Alias(kind, system, name, key, entry["reason"]) for key in listed]


def _require_sense(aliases: list[Alias], names: Names, where: Path) -> None:
    had = keys(names, aliases)
    for alias in aliases:
        about = f"{where}: [{alias.kind}.{alias.system}] {alias.name}"
        if alias.name not in names[alias.kind, alias.system]:
            raise ParamsError(
                f"{about} matches nothing", next_step="The system registers no such name (any more): remove the entry."
            )
        if alias.key == normal(alias.name):
            raise ParamsError(f"{about}: {alias.key} is its key anyway", next_step="Remove the entry.")
        others = (at for at, its in had.items() if alias.key in its and at[0] == alias.kind)
        if all(at == (alias.kind, alias.system, alias.name) for at in others):
            raise ParamsError(f"{about}: no other name has the key {alias.key}", next_step="Correct the key.")
