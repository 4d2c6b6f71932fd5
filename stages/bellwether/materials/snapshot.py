"""Lay a checkpoint's oracle inputs out as a folder shaped like a Hub snapshot, every byte checked against its pin."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from bellwether.errors import InputUnavailable, MaterialError, PinMismatch
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

    The folder appears whole or not at all: it is built beside its place and renamed. Nothing half-built stays. Files
    that no package holds come first: while one of them cannot be had, no package is downloaded in vain.

    Raises:
        PinMismatch, InputUnavailable: see `obtain`. Of the files that no package holds, all that fail are listed.
    """
    sizes, failures = {}, []
    with whole_folder(folder) as work:
        for file in sorted(manifest.files.values(), key=lambda file: file.transform is not None):
            if failures and file.transform is not None:
                break
            try:
                data = obtain(manifest, file, routes, say)
            except MaterialError as error:
                failures.append(error)
                if file.transform is not None:
                    break
                continue
            path = work / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            sizes[file.path] = len(data)
        if failures:
            raise _together(manifest, failures)
    return sizes


def _together(manifest: Manifest, failures: Sequence[MaterialError]) -> MaterialError:
    """Return one error for all files that failed; a mismatch among them decides its kind and the next step."""
    worst = next((error for error in failures if isinstance(error, PinMismatch)), failures[0])
    if len(failures) == 1:
        return worst
    listed = "\n".join(textwrap.indent(str(error), "  ") for error in failures)
    return type(worst)(
        f"{manifest.slug}: {len(failures)} of {len(manifest.files)} files cannot be laid out\n{listed}",
        next_step=worst.next_step,
    )
