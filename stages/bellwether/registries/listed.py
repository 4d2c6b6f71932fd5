"""The registries of all systems in one list, `fixtures/registries/registries.jsonl`: asking them needs no package.

The first line says what the list was read from; every other line is one registered name. Beside it lies what a running
gateway said of its own parsers, see `registries.gateway`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bellwether.errors import TableError
from bellwether.registries.values import KINDS, Entry

SCHEMA_VERSION = "1"
ENGINE, GATEWAY = "engine", "gateway"
ROLES = {"vllm": ENGINE, "sglang": ENGINE, "smg": GATEWAY, "smg-symphony": GATEWAY}
"""System → its role, in the order in which systems are shown. SMG parses in two ways, with names of their own each."""


@dataclass(frozen=True, slots=True)
class Part:
    """One registered name; its fields are the keys of a line, in this order."""

    kind: str
    """One of KINDS."""
    system: str
    """One of ROLES."""
    name: str
    """What a user writes to choose it."""
    implementation: str
    """`module:class`, as the package has them."""


@dataclass(frozen=True, slots=True)
class Registries:
    """The whole list."""

    systems: Mapping[str, Mapping[str, str | None]]
    """System → package, version, commit and sha256 of the archive it was read from; those of ROLES, in its order."""
    patterns: Mapping[str, Mapping[str, tuple[tuple[str, str], ...]]]
    """Gateway → kind → (pattern of a model's name, parser it chooses), in the gateway's order."""
    left_out: Mapping[str, Mapping[str, tuple[str, ...]]]
    """System → kind → names it takes for a parser of the kind that give nothing of the kind."""
    parts: tuple[Part, ...]
    """By system, by kind, and then in the system's own order."""


def part(system: str, entry: Entry) -> Part:
    """Return what a system's reader found as a line of the list."""
    return Part(entry.kind, system, entry.name, f"{entry.module}:{entry.cls}")


def ordered(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Return `parts` by system and kind; their order in a registry is kept."""
    systems = list(ROLES)
    return tuple(sorted(parts, key=lambda one: (systems.index(one.system), KINDS.index(one.kind))))


def path(root: Path) -> Path:
    """Return where the list lies."""
    return root / "fixtures" / "registries" / "registries.jsonl"


def render(registries: Registries) -> str:
    """Return the list as JSON Lines: the header, then one line per name."""
    header = {
        "schema_version": SCHEMA_VERSION,
        "systems": registries.systems,
        "patterns": registries.patterns,
        "left_out": registries.left_out,
    }
    return "".join(_json(value) + "\n" for value in (header, *(asdict(one) for one in registries.parts)))


def read(root: Path) -> Registries:
    """Return the stored list.

    Raises:
        TableError: there is none, a line is not JSON or of another shape, a name stands there twice, or a system has
            none. Names the line.
    """
    try:
        lines = path(root).read_text("utf-8").splitlines()
    except FileNotFoundError:
        raise TableError(f"{path(root)} does not exist", next_step="Run `bellwether gaps --refresh`.") from None
    except UnicodeDecodeError as error:
        raise _broken(root, 1, str(error)) from None
    values = [_line(root, number, text) for number, text in enumerate(lines, 1)]
    if not values or values[0]["schema_version"] != SCHEMA_VERSION:
        raise _broken(root, 1, f"it is not of schema version {SCHEMA_VERSION}")
    header, *rows = values
    if list(header["systems"]) != list(ROLES):
        raise _broken(root, 1, f"its systems are not {', '.join(ROLES)}")
    parts = [Part(**row) for row in rows]
    if odd := [number for number, one in enumerate(parts, 2) if one.kind not in KINDS or one.system not in ROLES]:
        raise _broken(root, odd[0], "its kind or system is unknown")
    if len({(one.kind, one.system, one.name) for one in parts}) != len(parts):
        raise _broken(root, 1, "a name has two lines")
    if absent := sorted({*ROLES} - {one.system for one in parts}):
        raise _broken(root, 1, f"nothing of {absent[0]} stands in it")
    return Registries(
        systems=header["systems"],
        patterns={
            system: {kind: tuple((pattern, name) for pattern, name in pairs) for kind, pairs in kinds.items()}
            for system, kinds in header["patterns"].items()
        },
        left_out={
            system: {kind: tuple(names) for kind, names in kinds.items()}
            for system, kinds in header["left_out"].items()
        },
        parts=tuple(parts),
    )


def _line(root: Path, number: int, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _broken(root, number, str(error)) from None
    keys = {"schema_version", "systems", "patterns", "left_out"} if number == 1 else set(Part.__slots__)
    if not isinstance(value, dict) or set(value) != keys:
        raise _broken(root, number, "it has other keys")
    if number > 1 and not all(isinstance(item, str) and item for item in value.values()):
        raise _broken(root, number, "a value is no text")
    return value


def _broken(root: Path, number: int, why: str) -> TableError:
    return TableError(f"{path(root)}:{number}: {why}", next_step="Run `bellwether gaps --refresh`.")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
