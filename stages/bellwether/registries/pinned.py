"""Registry files out of the pinned packages, with what was read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bellwether.errors import InputUnavailable, ParamsError
from bellwether.materials.routes import RouteFailed, package_route
from bellwether.params import Package, read_packages
from bellwether.progress import say
from bellwether.registries.sources import read_files, read_sources
from bellwether.registries.values import Files


@dataclass(frozen=True, slots=True)
class Pinned:
    """What one package registers by, as text."""

    package: Package
    files: Files


def pinned(root: Path, names: Iterable[str]) -> dict[str, Pinned]:
    """Return name → the registry files of its package; names are the tables of fixtures/registries.toml.

    Raises:
        ParamsError: there is no such table.
        InputUnavailable, PinMismatch, MaterialError: a package cannot be had, or is not what is pinned.
    """
    packages, sources = read_packages(root), read_sources(root)
    route = package_route(packages, say)
    found = {}
    for name in names:
        if name not in sources or sources[name].package not in packages:
            raise ParamsError(
                f"the package of {name} is not pinned",
                next_step="Add it to fixtures/registries.toml and fixtures/packages.toml.",
            )
        package = packages[sources[name].package]
        try:
            found[name] = Pinned(package, read_files(sources[name], route.archive(package.name)))
        except RouteFailed as error:
            raise InputUnavailable(f"registries of {name}: {error}", next_step="Make the package reachable.") from None
    return found


def origin(package: Package, commit: str | None) -> dict[str, str | None]:
    """Return what stands in a stored list for the package it was read from."""
    return {
        "package": f"{package.registry}:{package.name}",
        "version": package.version,
        "commit": commit,
        "sha256": package.sha256,
    }
