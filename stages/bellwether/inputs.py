"""Stage `inputs`: a checkpoint's oracle inputs as a snapshot folder, and the table of what is proved of each file."""

from __future__ import annotations

from pathlib import Path

from bellwether.layout import inputs_folder, materials_table
from bellwether.materials.routes import default_routes
from bellwether.materials.snapshot import lay_out
from bellwether.params import Manifest, read_manifest, read_packages
from bellwether.progress import say
from bellwether.tables import MATERIALS, TableWriter


def main(root: Path, slug: str) -> int:
    """Lay out the inputs of one checkpoint and return the number of files.

    Raises:
        ParamsError: the manifest or fixtures/packages.toml is malformed.
        PinMismatch, InputUnavailable: a file cannot be had with its pinned sha256.
    """
    manifest = read_manifest(root, slug)
    sizes = lay_out(manifest, default_routes(read_packages(root), say), inputs_folder(root, slug), say)
    with TableWriter(materials_table(root, slug), MATERIALS) as table:
        table.write_rows(rows(manifest, sizes))
    return len(sizes)


def rows(manifest: Manifest, sizes: dict[str, int]) -> list[dict]:
    """Return one row per file of the checkpoint, laid out or known and not obtained, ordered by file."""
    base = {
        "checkpoint": manifest.slug,
        "model": manifest.model,
        "revision": manifest.revision,
        "license": manifest.license,
    }
    laid_out = [
        base
        | {"file": name, "sha256": file.sha256, "bytes": sizes[name], "proof": file.proof, "note": file.note or None}
        for name, file in manifest.files.items()
    ]
    unreached = [
        base | {"file": name, "sha256": sha256, "proof": "unreached"} for name, sha256 in manifest.unreached.items()
    ]
    return sorted(laid_out + unreached, key=lambda row: (row["file"], row["proof"]))
