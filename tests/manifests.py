"""Manifests made for tests of what reads them."""

from __future__ import annotations

import json
from pathlib import Path


def bare_manifest(root: Path, slug: str, *, render: tuple[str, ...] = ("hf-template",)) -> None:
    """Write a manifest that pins nothing: enough for whoever asks which source decides."""
    folder = root / "fixtures" / slug
    folder.mkdir(parents=True, exist_ok=True)
    head = f'model = "o/m"\nrevision = "{"0" * 40}"\ntier = 3\nlicense = "MIT"\n'
    authority = f'[authority]\nrender = {json.dumps(render)}\nparse = ["roundtrip"]\n'
    (folder / "manifest.toml").write_text(f"{head}{authority}[inputs]\n", "utf-8")
