"""Bytes against their pins. A recorder needs this much of the material room, and nothing of the routes."""

from __future__ import annotations

import hashlib
from pathlib import Path

from bellwether.errors import InputUnavailable, PinMismatch
from bellwether.params import Manifest


def sha256_of(data: bytes) -> str:
    """Return the sha256 of `data` as 64 hex digits."""
    return hashlib.sha256(data).hexdigest()


def sha256_of_file(path: Path) -> str:
    """Return the sha256 of a file's bytes, which are never in memory all at once."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def verify(manifest: Manifest, folder: Path) -> None:
    """Check every file of a snapshot folder against its pin; a recorder calls this before it reads anything.

    Raises:
        InputUnavailable: a file is missing, or a folder has its name.
        PinMismatch: files differ from the manifest, or the folder holds a file the manifest does not pin.
    """
    wrong = []
    for name, expected in manifest.inputs.items():
        try:
            actual = sha256_of((folder / name).read_bytes())
        except (FileNotFoundError, IsADirectoryError):
            raise InputUnavailable(
                f"{folder / name} is missing", next_step=f"Run `dvc repro fixtures/dvc.yaml:inputs@{manifest.slug}`."
            ) from None
        if actual != expected:
            wrong.append(f"{name}: expected sha256 {expected}, got {actual}")
    present = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    wrong += [f"{name}: not in the manifest" for name in sorted(present - set(manifest.inputs))]
    if wrong:
        raise PinMismatch(
            f"{folder} is not what fixtures/{manifest.slug}/manifest.toml pins\n  " + "\n  ".join(wrong),
            next_step=f"Run `dvc repro fixtures/dvc.yaml:inputs@{manifest.slug}`; nothing was recorded.",
        )
