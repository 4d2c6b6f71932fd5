"""What many tests need: the project's own params, real packages, and real checkpoints laid out once per machine.

Material comes through the project's own routes, so the first run downloads it; later runs read the cache.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from filelock import FileLock

from bellwether.materials.pins import verify
from bellwether.materials.routes import PackageRoute, cache_folder, default_routes
from bellwether.materials.snapshot import lay_out
from bellwether.params import Params, read_manifest, read_packages, read_params

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout under test."""
    return ROOT


@pytest.fixture(scope="session")
def params() -> Params:
    """params.yaml of the checkout."""
    return read_params(ROOT)


@pytest.fixture(scope="session")
def bfcl_wheel() -> Path:
    """The pinned bfcl-eval wheel, a real download."""
    with FileLock(_locks() / "packages.lock"):
        return PackageRoute(read_packages(ROOT), print).archive("bfcl-eval")


@functools.cache
def snapshot(slug: str) -> Path:
    """Return the folder of a real checkpoint's verified inputs."""
    manifest = read_manifest(ROOT, slug)
    key = hashlib.sha256(json.dumps(dict(manifest.inputs), sort_keys=True).encode()).hexdigest()[:16]
    folder = cache_folder() / "test-snapshots" / f"{slug}-{key}"
    with FileLock(_locks() / "packages.lock"):
        if not folder.is_dir():
            folder.parent.mkdir(parents=True, exist_ok=True)
            lay_out(manifest, default_routes(read_packages(ROOT), print), folder, print)
    verify(manifest, folder)
    return folder


@functools.cache
def load_checkpoint(slug: str):
    """Return a real checkpoint, loaded once per test process."""
    from bellwether.oracles import checkpoint

    return checkpoint.load(read_manifest(ROOT, slug), read_params(ROOT), snapshot(slug))


@pytest.fixture
def checkpoint() -> Callable:
    """`checkpoint(slug)` → the real checkpoint."""
    return load_checkpoint


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty download cache for one test."""
    monkeypatch.setenv("BELLWETHER_CACHE", str(tmp_path / "cache"))
    yield tmp_path / "cache"


def _locks() -> Path:
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    return folder
