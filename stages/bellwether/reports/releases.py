"""Releases of engines and gateways in the order they came out, and which of each is the pinned one: the newest
listed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from bellwether.errors import ParamsError

TARGET = re.compile(r"(?P<gateway>.+?)-(?P<version>[a-z]?\d[^-]*)(-(?P<parser>.+))?\Z")


@dataclass(frozen=True, slots=True)
class Release:
    """A release of an engine."""

    name: str
    """`<engine>-<version>`, as params.yaml lists it."""
    engine: str
    version: str
    order: int
    """From 1, among the listed releases of the engine."""
    pinned: bool


def releases(names: Iterable[str]) -> list[Release]:
    """Return the releases `names` lists, engine by engine, the oldest first.

    Raises:
        ParamsError: a name does not end in `-<version>`.
    """
    split = sorted((_split(name) for name in names), key=lambda one: (one[0], version_key(one[1])))
    found = []
    for engine, group in groupby(split, key=lambda one: one[0]):
        versions = [version for _, version in group]
        found += [
            Release(f"{engine}-{version}", engine, version, order, order == len(versions))
            for order, version in enumerate(versions, 1)
        ]
    return sorted(found, key=attrgetter("engine", "order"))


@dataclass(frozen=True, slots=True)
class Target:
    """A release of a gateway, under one of its parsers where it has two."""

    name: str
    """`<gateway>-<version>`, and `-<parser>`."""
    gateway: str
    """Without the version: `smg`, `smg-symphony`."""
    version: str
    order: int
    """From 1, among the releases of the gateway."""
    pinned: bool


def targets(names: Mapping[str, str | None]) -> list[Target]:
    """Return the targets of `names`, gateway by gateway, the oldest release first.

    `names` maps a name to the release the gateway said it is; None leaves that to the name.

    Raises:
        ParamsError: nobody said a release, and the name holds none.
    """
    split = sorted(
        ((*_target(name, version), name) for name, version in names.items()),
        key=lambda one: (one[0], version_key(one[1]), one[2]),
    )
    found = []
    for _, group in groupby(split, key=lambda one: one[0]):
        listed = list(group)
        found += [
            Target(name, gateway, version, order, order == len(listed))
            for order, (gateway, version, name) in enumerate(listed, 1)
        ]
    return found


def version_key(version: str) -> tuple:
    """Return a key that sorts versions: as PEP 440 does, and before them the others, numbers in them by value."""
    try:
        return (1, Version(version))
    except InvalidVersion:
        return (0, [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in re.split(r"(\d+)", version)])


def covers(versions: str, version: str) -> bool:
    """Return whether `version`, which holds a digit, lies in the PEP 440 range `versions`, pre-releases too. Of what is
    no PEP 440 version, such as the build `b10775`, the first number counts."""
    try:
        number = Version(version)
    except InvalidVersion:
        number = Version(re.search(r"\d+(\.\d+)*", version)[0])
    return SpecifierSet(versions).contains(number, prereleases=True)


def _target(name: str, said: str | None) -> tuple[str, str]:
    parts = TARGET.match(name)
    if parts is None and said is None:
        raise ParamsError(
            f"params.yaml: targets: {name!r} is no release", next_step="Write '<gateway>-<version>', as 'smg-1.13.0'."
        )
    if parts is None:
        return name, said
    gateway = "-".join(filter(None, (parts["gateway"], parts["parser"])))
    return gateway, said or parts["version"]


def _split(name: str) -> tuple[str, str]:
    engine, _, version = name.rpartition("-")
    if not engine or not re.search(r"\d", version):
        raise ParamsError(
            f"params.yaml: engines: {name!r} is no release", next_step="Write '<engine>-<version>', as 'vllm-0.33.0'."
        )
    return engine, version
