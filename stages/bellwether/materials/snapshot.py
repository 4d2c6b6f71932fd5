"""Lay a checkpoint's oracle inputs out as a folder shaped like a Hub snapshot, every byte checked against its pin."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from bellwether.errors import InputUnavailable, PinMismatch
from bellwether.materials.pins import sha256_of
from bellwether.materials.routes import Route, RouteFailed
from bellwether.params import InputFile, Manifest
from bellwether.whole import whole_folder


def obtain(manifest: Manifest, file: InputFile, routes: Iterable[Route], say: Callable[[str], None]) -> bytes:
    """Return the bytes of one oracle input from the first route whose bytes have the pinned sha256.

    Raises:
        PinMismatch: routes gave bytes, none of them the pinned ones. Names file, expected, actual and route of each.
        InputUnavailable: no route gave bytes at all. Lists why each failed.
    """
    failures, mismatches = [], []
    for route in routes:
        try:
            data = route.fetch(manifest, file)
        except (RouteFailed, PinMismatch) as error:
            failures.append(f"{route.name}: {error}")
            continue
        if (actual := sha256_of(data)) == file.sha256:
            return data
        mismatches.append(f"{route.name}: expected sha256 {file.sha256}, got {actual}")
        say(f"{manifest.slug}/{file.path} by {mismatches[-1]}; trying the next route")
    where = f"{manifest.slug}/{file.path}"
    if mismatches:
        raise PinMismatch(
            f"{where}: no route gives the pinned bytes\n  " + "\n  ".join(mismatches + failures),
            next_step=f"If the new bytes are right, change the pin in fixtures/{manifest.slug}/manifest.toml.",
        )
    raise InputUnavailable(
        f"{where} cannot be obtained\n  " + "\n  ".join(failures),
        next_step="Make one route work, or point BELLWETHER_MIRROR at a folder that holds the file by its sha256.",
    )


def lay_out(manifest: Manifest, routes: Sequence[Route], folder: Path, say: Callable[[str], None]) -> dict[str, int]:
    """Write all oracle inputs of `manifest` into `folder` and return file → size in bytes.

    The folder appears whole or not at all: it is built beside its place and renamed. Nothing half-built stays.

    Raises:
        PinMismatch, InputUnavailable: see `obtain`.
    """
    sizes = {}
    with whole_folder(folder) as work:
        for file in manifest.files.values():
            data = obtain(manifest, file, routes, say)
            path = work / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            sizes[file.path] = len(data)
    return sizes
