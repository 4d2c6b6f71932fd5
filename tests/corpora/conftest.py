"""Fixtures for importers: pinned files by a folder of one's own, and real files where they can be had."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bellwether.cache import cache_folder
from bellwether.corpora.sources import Fetch, PinnedFile, Source, fetcher, read_source
from bellwether.layout import pins_folder
from support import ROOT


@pytest.fixture
def given(tmp_path: Path) -> Callable[..., tuple[Source, Fetch]]:
    """`given({path: text})` → a source of such files, and the way to them."""

    def build(files: dict[str, str | bytes], source: str = "github:owner/repo@" + "0" * 40) -> tuple[Source, Fetch]:
        folder = tmp_path / "given"
        pins = {}
        for path, content in files.items():
            data = content if isinstance(content, bytes) else content.encode()
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data)
            pins[path] = PinnedFile(hashlib.sha256(data).hexdigest(), len(data))
        made = Source(folder, "Toy", source, "https://example.org", "MIT", "LICENSE", "Nobody", "Nothing.", pins)
        return made, lambda _, path: folder / path

    return build


@pytest.fixture
def real() -> Callable[[str], tuple[Source, Fetch]]:
    """`real(corpus)` → its pins and the way to its files; the test is skipped where nobody put them on the machine."""

    def build(corpus: str) -> tuple[Source, Fetch]:
        source = read_source(pins_folder(ROOT, corpus))
        folders = [cache_folder() / "files", Path(os.environ.get("BELLWETHER_MIRROR", "nowhere"))]
        lacking = [
            path for path, pin in source.files.items() if not any((folder / pin.sha256).is_file() for folder in folders)
        ]
        if lacking:
            pytest.skip(f"{lacking[0]} of {source.source} is neither cached nor in the folder BELLWETHER_MIRROR")
        return source, fetcher(print)

    return build
