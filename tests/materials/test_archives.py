"""Reading one member of an archive: what comes out, what is refused, and that nothing is ever unpacked."""

from __future__ import annotations

import errno
import io
import os
import tarfile
import zipfile
from pathlib import Path

import pytest

from bellwether.errors import MaterialError
from bellwether.materials import archives
from bellwether.materials.archives import read_member, read_member_once

MEMBERS = {"package/a.txt": b"alpha\r\n" * 40, "package/sub/b.bin": bytes(range(256)), "package/empty": b""}


def zip_bytes(members: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name, data in members.items():
            zipped.writestr(name, data)
    return file.getvalue()


def tgz_bytes(members: dict[str, bytes | tarfile.TarInfo]) -> bytes:
    """A gzipped tar; a TarInfo stands for a member without content."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as tar:
        for name, data in members.items():
            info = data if isinstance(data, tarfile.TarInfo) else tarfile.TarInfo(name)
            if isinstance(data, bytes):
                info.size = len(data)
            tar.addfile(info, io.BytesIO(data) if isinstance(data, bytes) else None)
    return file.getvalue()


ARCHIVES = {"one.whl": zip_bytes, "one.zip": zip_bytes, "one.tgz": tgz_bytes, "one.tar.gz": tgz_bytes}


@pytest.mark.parametrize("name", ARCHIVES)
@pytest.mark.parametrize("member", MEMBERS)
def test_a_member_comes_out_byte_for_byte(tmp_path: Path, name: str, member: str):
    """No newline is translated, and an empty file is no missing one."""
    (tmp_path / name).write_bytes(ARCHIVES[name](MEMBERS))
    assert read_member(tmp_path / name, member) == MEMBERS[member]


@pytest.mark.parametrize("name", ARCHIVES)
@pytest.mark.parametrize("member", ["package/c.txt", "package", "package/", "a.txt", ""])
def test_a_missing_member_is_named(tmp_path: Path, name: str, member: str):
    """The message has archive and member; the manifest is what has to change."""
    (tmp_path / name).write_bytes(ARCHIVES[name](MEMBERS))
    with pytest.raises(MaterialError) as caught:
        read_member(tmp_path / name, member)
    assert str(caught.value) == f"{name} has no member {member!r}"
    assert "`sources`" in caught.value.next_step


@pytest.mark.parametrize("name", ARCHIVES)
def test_a_truncated_archive_gives_the_whole_member_or_an_error(tmp_path: Path, name: str):
    """Cut at every length. A tar is read from the front, so a cut behind the member need not be seen; bytes that are
    short or wrong never come out."""
    whole = ARCHIVES[name](MEMBERS)
    path = tmp_path / name
    refused = 0
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        try:
            assert read_member(path, "package/sub/b.bin") == MEMBERS["package/sub/b.bin"]
        except MaterialError as error:
            refused += 1
            assert str(error).startswith((f"{name} is truncated or no archive", f"{name} has no member"))
            assert error.next_step
    assert refused > len(whole) / 2


def test_half_an_archive_is_called_truncated(tmp_path: Path):
    """Both formats; the next step is to delete the download."""
    for name, make in ARCHIVES.items():
        whole = make(MEMBERS)
        (tmp_path / name).write_bytes(whole[: len(whole) // 2])
        with pytest.raises(MaterialError, match=f"{name} is truncated or no archive") as caught:
            read_member(tmp_path / name, "package/sub/b.bin")
        assert "bellwether cache" in caught.value.next_step


@pytest.mark.parametrize("name", ARCHIVES)
@pytest.mark.parametrize("data", [b"", b"PK", b"<html>502 Bad Gateway</html>", b"\x1f\x8b\x08", bytes(2000)])
def test_what_is_no_archive_is_refused(tmp_path: Path, name: str, data: bytes):
    """An empty file, an error page saved under the archive's name, and zeros."""
    (tmp_path / name).write_bytes(data)
    with pytest.raises(MaterialError):
        read_member(tmp_path / name, "package/a.txt")


@pytest.mark.parametrize("name", ["one.whl", "one.tgz"])
def test_any_single_wrong_bit_gives_bytes_or_a_sentence(tmp_path: Path, name: str):
    """Whatever the standard library makes of a damaged archive, a reader sees no traceback."""
    whole = ARCHIVES[name]({"a": b"alpha" * 9, "b": b"beta"})
    path = tmp_path / name
    for place in range(len(whole)):
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << bit
            path.write_bytes(damaged)
            try:
                assert isinstance(read_member(path, "a"), bytes)
            except MaterialError as error:
                assert error.next_step


def test_a_damaged_zip_member_is_refused(tmp_path: Path):
    """A zip has a checksum per member."""
    whole = bytearray(zip_bytes({"a": b"x" * 100 + b"y" * 100}))
    whole[35] ^= 0xFF  # inside the compressed data
    (tmp_path / "one.whl").write_bytes(whole)
    with pytest.raises(MaterialError, match="truncated or no archive"):
        read_member(tmp_path / "one.whl", "a")


@pytest.mark.parametrize("name", ARCHIVES)
def test_a_member_over_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str):
    """The size the archive states is compared before anything is decompressed; the limit itself is allowed."""
    (tmp_path / name).write_bytes(ARCHIVES[name]({"ten": b"x" * 10, "bomb": bytes(11)}))
    monkeypatch.setattr(archives, "MEMBER_LIMIT", 10)
    assert read_member(tmp_path / name, "ten") == b"x" * 10
    with pytest.raises(MaterialError) as caught:
        read_member(tmp_path / name, "bomb")
    assert str(caught.value) == f"'bomb' of {name} says it has 11 bytes, more than 10"
    assert caught.value.next_step


def test_a_link_does_not_lead_around_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A link has size 0 and would be followed: only plain files of a tar are read."""
    links = {}
    for name, kind in (("soft", tarfile.SYMTYPE), ("hard", tarfile.LNKTYPE), ("out", tarfile.SYMTYPE)):
        links[name] = tarfile.TarInfo(name)
        links[name].type = kind
        links[name].linkname = "../../outside" if name == "out" else "bomb"
    folder = tarfile.TarInfo("folder")
    folder.type = tarfile.DIRTYPE
    (tmp_path / "one.tgz").write_bytes(tgz_bytes({"bomb": bytes(11), **links, "folder": folder}))
    monkeypatch.setattr(archives, "MEMBER_LIMIT", 10)
    for name in (*links, "folder"):
        with pytest.raises(MaterialError, match=f"one.tgz has no member '{name}'"):
            read_member(tmp_path / "one.tgz", name)


@pytest.mark.parametrize("name", ARCHIVES)
@pytest.mark.parametrize("member", ["../escaped", "a/../../escaped", "/escaped"])
def test_a_member_that_names_a_path_outside_is_only_read(tmp_path: Path, name: str, member: str):
    """Nothing is unpacked: the bytes are returned, and no file appears anywhere around the archive."""
    folder = tmp_path / "deep" / "deeper"
    folder.mkdir(parents=True)
    (folder / name).write_bytes(ARCHIVES[name]({member: b"bytes"}))
    before = sorted(tmp_path.rglob("*"))
    assert read_member(folder / name, member) == b"bytes"
    assert sorted(tmp_path.rglob("*")) == before
    assert not Path("/escaped").exists()


def test_an_encrypted_member_is_refused(tmp_path: Path):
    """The flag bit of the member says it is encrypted; no password is known."""
    whole = bytearray(zip_bytes({"a": b"secret"}))
    central = whole.index(b"PK\x01\x02")
    for flags in (6, central + 8):  # of the local header and of the central directory
        whole[flags] |= 1
    (tmp_path / "one.whl").write_bytes(whole)
    with pytest.raises(MaterialError, match="encrypted"):
        read_member(tmp_path / "one.whl", "a")


def test_an_archive_that_is_not_there_is_an_error_with_a_next_step(tmp_path: Path):
    """The cache may be emptied by hand while a run goes on."""
    for name in ("gone.whl", "gone.tgz"):
        with pytest.raises(MaterialError) as caught:
            read_member(tmp_path / name, "a")
        assert name in str(caught.value)
        assert caught.value.next_step


# Members that are kept


def kept_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("member", MEMBERS)
def test_a_member_of_a_tar_is_kept_and_read_without_the_archive(tmp_path: Path, member: str):
    """The second time nothing is decompressed: the archive may even be gone."""
    (tmp_path / "one.tgz").write_bytes(tgz_bytes(MEMBERS))
    kept = tmp_path / "kept"
    assert read_member_once(tmp_path / "one.tgz", member, kept) == MEMBERS[member]
    (tmp_path / "one.tgz").unlink()
    assert read_member_once(tmp_path / "one.tgz", member, kept) == MEMBERS[member]
    assert len(kept_files(kept)) == 1


def test_a_member_of_a_zip_is_not_kept(tmp_path: Path):
    """A zip has a directory, so any member is at hand."""
    (tmp_path / "one.whl").write_bytes(zip_bytes(MEMBERS))
    assert read_member_once(tmp_path / "one.whl", "package/a.txt", tmp_path / "kept") == MEMBERS["package/a.txt"]
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize("damage", [b"", b"other bytes"])
def test_a_kept_member_that_changed_is_dropped_and_read_again(tmp_path: Path, damage: bytes):
    """Its name has the sha256 of its bytes."""
    (tmp_path / "one.tgz").write_bytes(tgz_bytes(MEMBERS))
    kept = tmp_path / "kept"
    read_member_once(tmp_path / "one.tgz", "package/a.txt", kept)
    (path,) = kept_files(kept)
    path.write_bytes(damage)
    assert read_member_once(tmp_path / "one.tgz", "package/a.txt", kept) == MEMBERS["package/a.txt"]
    assert kept_files(kept) == [path]


@pytest.mark.parametrize("member", ["../escaped", "/escaped", "a/../../escaped", "x" * 99 + "/" + "y" * 99])
def test_a_kept_member_never_gets_a_path_of_the_archive_s_choosing(tmp_path: Path, member: str):
    """Its name is made of hashes."""
    (tmp_path / "one.tgz").write_bytes(tgz_bytes({member: b"bytes"}))
    assert read_member_once(tmp_path / "one.tgz", member, tmp_path / "deep" / "kept") == b"bytes"
    (path,) = kept_files(tmp_path / "deep")
    assert path.parent == tmp_path / "deep" / "kept"
    assert not (tmp_path / "escaped").exists() and not Path("/escaped").exists()


def test_nothing_is_kept_of_a_member_that_cannot_be_read(tmp_path: Path):
    """Missing, or cut in the middle of its bytes."""
    whole = tgz_bytes({"noise": bytes(range(256)) * 4000, "last": b"x"})
    (tmp_path / "one.tgz").write_bytes(whole[: len(whole) // 2])
    for member in ("noise", "last", "gone"):
        with pytest.raises(MaterialError):
            read_member_once(tmp_path / "one.tgz", member, tmp_path / "kept")
    assert kept_files(tmp_path) == [tmp_path / "one.tgz"]


def test_what_stands_behind_a_member_is_not_decompressed(tmp_path: Path):
    """An archive cut right behind the member still gives it: reading stops there."""
    whole = tgz_bytes({"first": b"x" * 100, "noise": os.urandom(1 << 20)})
    (tmp_path / "one.tgz").write_bytes(whole[: len(whole) // 2])
    assert read_member(tmp_path / "one.tgz", "first") == b"x" * 100


def test_a_full_disk_is_not_blamed_on_the_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The archive would be deleted and loaded again for nothing."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "one.tgz").write_bytes(tgz_bytes(MEMBERS))
    monkeypatch.setattr(archives.shutil, "copyfileobj", full)
    with pytest.raises(OSError, match="No space left"):
        read_member_once(tmp_path / "one.tgz", "package/a.txt", tmp_path / "kept")
    assert kept_files(tmp_path) == [tmp_path / "one.tgz"]
