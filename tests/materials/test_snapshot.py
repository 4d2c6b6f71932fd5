"""Laying a checkpoint out: which route's bytes are taken, and that a folder appears whole or not at all."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from bellwether.errors import InputUnavailable, PinMismatch
from bellwether.materials.pins import verify
from bellwether.materials.routes import MirrorRoute, PackageRoute
from bellwether.materials.snapshot import lay_out, obtain
from bellwether.params import InputFile, Manifest, read_manifest, read_params
from support import ROOT, snapshot

ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
"""sha256 of b"abc"."""
EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
LITERAL = "ca3d163bab055381827226140568f3bef7eaac187cebd76878e0b63e9e442356"
"""sha256 of b"{}\\n", which the transform `literal` makes of '{}'."""


def manifest_of(*files: InputFile) -> Manifest:
    return Manifest(
        slug="tiny",
        model="owner/tiny",
        revision="0" * 40,
        tier=1,
        license="MIT",
        inputs={file.path: file.sha256 for file in files},
        files={file.path: file for file in files},
        authority={"render": ("hf-template",), "parse": ("roundtrip",)},
        unreached={},
    )


def file_of(path: str, sha256: str, transform: str = "copy", **options: str) -> InputFile:
    return InputFile(path, sha256, "identical", transform, options=options)


@pytest.fixture
def mirror(tmp_path: Path) -> Callable[..., MirrorRoute]:
    """`mirror(name, sha256=bytes, …)` → a mirror folder with such files, whatever their bytes hash to."""

    def make(name: str, **files: bytes) -> MirrorRoute:
        folder = tmp_path / name
        folder.mkdir()
        for sha256, data in files.items():
            (folder / sha256).write_bytes(data)
        route = MirrorRoute(folder)
        route.name = name
        return route

    return make


PACKAGES = PackageRoute({}, print)


def test_expected_values_are_what_they_say():
    """Three sha256s used below."""
    assert [hashlib.sha256(data).hexdigest() for data in (b"abc", b"", b"{}\n")] == [ABC, EMPTY, LITERAL]


# obtain


def test_the_first_route_with_the_pinned_bytes_wins(mirror):
    """Routes behind it are not asked: the second one here has other bytes, and nobody hears of it."""
    said: list[str] = []
    routes = [mirror("first", **{ABC: b"abc"}), mirror("second", **{ABC: b"wrong"})]
    file = file_of("a.txt", ABC)
    assert obtain(manifest_of(file), file, routes, said.append) == b"abc"
    assert said == []


def test_a_route_without_bytes_is_passed_over_in_silence(mirror):
    """Having nothing is no mismatch."""
    said: list[str] = []
    routes = [mirror("first"), mirror("second", **{ABC: b"abc"})]
    file = file_of("a.txt", ABC)
    assert obtain(manifest_of(file), file, routes, said.append) == b"abc"
    assert said == []


def test_wrong_bytes_are_told_and_the_next_route_is_tried(mirror):
    """The line names file, route, expected and actual sha256."""
    said: list[str] = []
    routes = [mirror("first", **{ABC: b""}), mirror("second", **{ABC: b"abc"})]
    file = file_of("sub/a.txt", ABC)
    assert obtain(manifest_of(file), file, routes, said.append) == b"abc"
    assert said == [f"tiny/sub/a.txt by first: expected sha256 {ABC}, got {EMPTY}; trying the next route"]


def test_wrong_bytes_everywhere_are_a_mismatch(mirror):
    """Mismatches come first, then the routes that had nothing; the pin may have to change."""
    routes = [mirror("first"), mirror("second", **{ABC: b""}), mirror("third", **{ABC: b"{}\n"})]
    file = file_of("a.txt", ABC)
    with pytest.raises(PinMismatch) as caught:
        obtain(manifest_of(file), file, routes, print)
    assert str(caught.value).splitlines() == [
        "tiny/a.txt: no route gives the pinned bytes",
        f"  second: expected sha256 {ABC}, got {EMPTY}",
        f"  third: expected sha256 {ABC}, got {LITERAL}",
        f"  first: no file {ABC} in {routes[0].folder} (FileNotFoundError)",
    ]
    assert "fixtures/tiny/manifest.toml" in caught.value.next_step


def test_no_bytes_anywhere_lists_why_each_route_failed(mirror):
    """The next step is to make a route work."""
    empty = mirror("first")
    file = InputFile("a.txt", ABC, "identical", "cpy")
    with pytest.raises(InputUnavailable) as caught:
        obtain(manifest_of(file), file, [empty, PACKAGES], print)
    assert str(caught.value).splitlines() == [
        "tiny/a.txt cannot be obtained",
        f"  first: no file {ABC} in {empty.folder} (FileNotFoundError)",
        "  package: unknown transform 'cpy'",
    ]
    assert "BELLWETHER_MIRROR" in caught.value.next_step


# lay_out


def test_files_appear_under_their_paths_and_sizes_are_returned(mirror, tmp_path: Path):
    """Sub-folders are made; files may come by different routes."""
    manifest = manifest_of(
        file_of("a.txt", ABC), file_of("sub/deep/b", EMPTY), file_of("c", LITERAL, "literal", value="{}")
    )
    folder = tmp_path / "not" / "yet" / "inputs"
    routes = [mirror("first", **{ABC: b"abc", EMPTY: b""}), PACKAGES]
    assert lay_out(manifest, routes, folder, print) == {"a.txt": 3, "sub/deep/b": 0, "c": 3}
    assert (folder / "a.txt").read_bytes() == b"abc"
    assert (folder / "sub" / "deep" / "b").read_bytes() == b""
    assert (folder / "c").read_bytes() == b"{}\n"
    verify(manifest, folder)
    assert [path.name for path in folder.parent.iterdir()] == ["inputs"]


def test_an_earlier_folder_is_replaced_whole(mirror, tmp_path: Path):
    """A file that is no longer pinned does not stay behind."""
    folder = tmp_path / "inputs"
    (folder / "old").mkdir(parents=True)
    (folder / "old" / "file").write_bytes(b"old")
    (folder / "a.txt").write_bytes(b"old")
    lay_out(manifest_of(file_of("a.txt", ABC)), [mirror("first", **{ABC: b"abc"})], folder, print)
    assert [path.name for path in folder.iterdir()] == ["a.txt"]
    assert (folder / "a.txt").read_bytes() == b"abc"


@pytest.mark.parametrize("second", [None, b"wrong"])
def test_nothing_appears_when_the_second_file_fails(mirror, tmp_path: Path, second: bytes | None):
    """Missing or mismatched: neither the folder nor a half-built one is left."""
    manifest = manifest_of(file_of("a.txt", ABC), file_of("b.txt", EMPTY))
    route = mirror("first", **{ABC: b"abc"} | ({} if second is None else {EMPTY: second}))
    with pytest.raises(InputUnavailable if second is None else PinMismatch, match=r"tiny/b\.txt"):
        lay_out(manifest, [route], tmp_path / "inputs", print)
    assert [path.name for path in tmp_path.iterdir()] == ["first"]


def test_an_earlier_folder_stays_as_it_was_when_a_file_fails(mirror, tmp_path: Path):
    """It is only removed when its successor is complete."""
    folder = tmp_path / "inputs"
    folder.mkdir()
    (folder / "old").write_bytes(b"old")
    with pytest.raises(InputUnavailable):
        lay_out(
            manifest_of(file_of("a.txt", ABC), file_of("b.txt", EMPTY)), [mirror("m", **{ABC: b"abc"})], folder, print
        )
    assert [path.name for path in folder.iterdir()] == ["old"]
    assert not (tmp_path / "inputs.999999999.partial").exists()


def test_what_a_killed_run_left_behind_does_not_get_in(mirror, tmp_path: Path):
    """The half-built folder is emptied first."""
    leftover = tmp_path / "inputs.999999999.partial" / "sub"
    leftover.mkdir(parents=True)
    (leftover / "stray").write_bytes(b"stray")
    manifest = manifest_of(file_of("a.txt", ABC))
    lay_out(manifest, [mirror("first", **{ABC: b"abc"})], tmp_path / "inputs", print)
    verify(manifest, tmp_path / "inputs")
    assert not (tmp_path / "inputs.999999999.partial").exists()


def test_a_checkpoint_without_files_is_an_empty_folder(tmp_path: Path):
    """A manifest may pin nothing yet."""
    assert lay_out(manifest_of(), [], tmp_path / "inputs", print) == {}
    assert list((tmp_path / "inputs").iterdir()) == []


# Real checkpoints


@pytest.mark.parametrize("slug", read_params(ROOT).checkpoints)
def test_a_real_checkpoint_is_laid_out_and_every_file_has_its_pin(slug: str):
    """Real packages, real transforms, compared with the manifest by a second reading."""
    folder = snapshot(slug)
    manifest = read_manifest(ROOT, slug)
    found = {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }
    assert found == dict(manifest.inputs)
