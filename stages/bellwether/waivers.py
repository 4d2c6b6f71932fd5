"""Reviewed lists, strictly read: `queries/waivers.toml` and, per target, known differences in `queries/known/`.

A waiver lets one engine differ from the truth on one case, for a range of its versions. A known difference says how a
gateway differs on a case, or on all cases whose id begins so.

```toml
[[waiver]]
engine = "sglang"
versions = ">=0.5.22,<0.6"
model = "Qwen/Qwen3-8B"
case = "qwen3-8b/render/tools-declared-user-asks"
reason = "…"
evidence = "queries/reports/…"
upstream = "https://…"
```
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from bellwether.errors import ParamsError

CASE = re.compile(r"[a-z0-9.-]+/(render|parse|tokenize|detokenize)/[a-z0-9-]+\Z")
ENTRY = re.compile(r"[a-z0-9.-]+/(\*|(render|parse|tokenize|detokenize)/([a-z0-9-]+|[a-z0-9-]*\*))\Z")
"""A case, or what the ids of several begin with and `*`."""


@dataclass(frozen=True, slots=True)
class Waiver:
    """Permission for one engine to differ on one case. It ends by itself."""

    engine: str
    versions: str
    """PEP 440 range of the engine's versions."""
    model: str
    """Repository name on the Hub, `owner/name`."""
    case: str
    """`<checkpoint>/<kind>/<name>`."""
    reason: str
    evidence: str
    """Path or revision where the difference is recorded."""
    upstream: str
    """https link to the engine's issue."""


@dataclass(frozen=True, slots=True)
class KnownDifference:
    """How a gateway is known to differ."""

    target: str
    """The gateway: name of the file."""
    entry: str
    """`<checkpoint>/<kind>/<name>`, or the beginning of ids and `*`."""
    verdict: str
    """`regression` or `rejected`."""
    code: str | None
    """The error code of a rejection; None of a regression."""
    reason: str
    issue: str
    """https link."""


def read_waivers(root: Path) -> list[Waiver]:
    """Return the waivers of the checkout, in the order of the file; none without a file.

    Raises:
        ParamsError: no TOML, a key that is unknown, missing or malformed, or two waivers for one engine, case and
            range.
    """
    path = root / "queries" / "waivers.toml"
    top = _toml(path) if path.is_file() else {}
    _keys(top, str(path), required={}, optional={"waiver"})
    listed = top.get("waiver", [])
    if not isinstance(listed, list) or not all(isinstance(raw, dict) for raw in listed):
        raise ParamsError(f"{path}: waiver is no list of tables", next_step="Write [[waiver]].")
    waivers = []
    for number, raw in enumerate(listed, 1):
        where = f"{path}: waiver {number}"
        _keys(
            raw,
            where,
            required={
                **dict.fromkeys(("engine", "reason", "evidence"), _text),
                **{"versions": _range, "model": _model, "case": _case, "upstream": _https},
            },
        )
        waivers.append(Waiver(**raw))
    _once([(waiver.engine, waiver.case, waiver.versions) for waiver in waivers], str(path))
    return waivers


def read_known(root: Path) -> list[KnownDifference]:
    """Return the known differences of the checkout, by file and in its order; none without files.

    Raises:
        ParamsError: as `read_waivers`; a rejection without its code, a regression with one.
    """
    known = []
    for path in sorted((root / "queries" / "known").glob("*.toml")):
        for entry, raw in _toml(path).items():
            where = f'{path}: ["{entry}"]'
            if not ENTRY.match(entry):
                raise ParamsError(
                    f"{where} is no case",
                    next_step="Write '<checkpoint>/<kind>/<name>', or the beginning of such ids and '*'.",
                )
            if not isinstance(raw, dict):
                raise ParamsError(f"{where} is no table", next_step="Mend the file.")
            rejected = raw.get("verdict") == "rejected"
            required = {"verdict": _verdict, "reason": _text, "issue": _https}
            _keys(raw, where, required=required | ({"code": _text} if rejected else {}))
            known.append(KnownDifference(target=path.stem, entry=entry, code=raw.pop("code", None), **raw))
    return known


Rule = Callable[[str], str | None]
"""Returns what a value has to be, when it is not."""


def _text(value: str) -> str | None:
    return None if value.strip() else "a text"


def _range(value: str) -> str | None:
    try:
        SpecifierSet(value)
    except InvalidSpecifier:
        return "a PEP 440 range, as '>=0.5.22,<0.6'"
    return None if value.strip() else "a range that ends"


def _model(value: str) -> str | None:
    return None if re.fullmatch(r"[\w.-]+/[\w.-]+", value) else "a repository of the Hub, 'owner/name'"


def _case(value: str) -> str | None:
    return None if CASE.match(value) else "'<checkpoint>/<kind>/<name>'"


def _https(value: str) -> str | None:
    return None if re.fullmatch(r"https://\S+", value) else "an https link"


def _verdict(value: str) -> str | None:
    return None if value in ("regression", "rejected") else "'regression' or 'rejected'"


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ParamsError(f"{path} is not TOML: {error}", next_step="Mend the file.") from None


def _keys(raw: dict[str, Any], where: str, *, required: Mapping[str, Rule], optional: set[str] = frozenset()) -> None:
    if unknown := [key for key in raw if key not in required and key not in optional]:
        known = ", ".join((*required, *sorted(optional)))
        raise ParamsError(f"{where}: unknown key {unknown[0]!r}", next_step=f"Known keys: {known}.")
    for key, rule in required.items():
        if key not in raw:
            raise ParamsError(f"{where}: key {key!r} is missing", next_step="Add it.")
        wanted = rule(raw[key]) if isinstance(raw[key], str) else "a text"
        if wanted:
            raise ParamsError(f"{where}: {key} is {raw[key]!r}", next_step=f"It has to be {wanted}.")


def _once(keys: list[tuple[str, ...]], where: str) -> None:
    if twice := [key for place, key in enumerate(keys) if key in keys[:place]]:
        raise ParamsError(f"{where}: {' '.join(twice[0])} is listed twice", next_step="Keep one of them.")
