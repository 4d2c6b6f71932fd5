"""Python environments for code that cannot run in ours: an engine's, a vendor's.

`stages/environments/<name>/requirements.txt` pins every package as `name==version`. Its first comment says what it is
for and how much it downloads; its first pin is what it is about. Blocks between empty lines are fetched one after the
other, and what is fetched outlasts an interruption, so large packages stand alone. `prune.txt` beside it names what is
left out. The sha256 of what both say, comments aside, names the folder in the user's cache where the environment is
built, once per machine.

An engine's script is `witness.py`. What such an environment imports is compiled by its first start; the others run
confined, cannot write, and are compiled whole.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import time
import venv
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import distributions
from itertools import chain
from pathlib import Path

from filelock import FileLock, Timeout

from bellwether.building import pip, trim, wheels
from bellwether.cache import cache_folder
from bellwether.errors import MaterialError, VersionMismatch
from bellwether.materials.pins import sha256_of
from bellwether.progress import Line
from bellwether.progress import say as say_on_stderr

ENVIRONMENTS = Path(__file__).resolve().parents[1] / "environments"
PRUNE = "prune.txt"
READY = "ready"
"""A file inside a finished environment. Without it the folder is the rest of a build that did not end."""
REQUIREMENT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([A-Za-z0-9][A-Za-z0-9.+!-]*)\Z")
CUDA = re.compile(r"^cuda\b[^=\n]*=\s*(.*?)\s*$", re.MULTILINE)
"""How torch/version.py says which CUDA it is built for."""
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


@dataclass(frozen=True, slots=True)
class Environment:
    """An environment of this checkout, in the user's cache."""

    name: str
    python: Path
    """Its interpreter."""
    packages: Path
    """Its site-packages."""
    versions: Mapping[str, str]
    """Package → version, all that is installed; names in normal form, the package it is about first."""

    @property
    def folder(self) -> Path:
        return self.python.parents[1]

    @property
    def bytecode(self) -> Path:
        """Where an engine's process may keep what it compiles."""
        return self.folder / "bytecode"

    @property
    def ready(self) -> bool:
        """Whether it is built, and the Python it was built from still there."""
        return (self.folder / READY).is_file() and self.python.exists()


def environment(name: str, say: Callable[[str], None] = say_on_stderr) -> Environment:
    """Return the environment `name`, built. Raises as `build`."""
    return build([name], say)[0]


def build(names: Sequence[str], say: Callable[[str], None] = say_on_stderr) -> list[Environment]:
    """Return environments, building first those this machine has not. One build runs at a time; others wait.

    Raises:
        MaterialError: there is no such environment, its files hold something else than they may, it cannot be built, or
            its torch is one for CUDA. Nothing half-built is ever used, and what is downloaded is kept.
        VersionMismatch: what is installed is not what the file pins.
    """
    planned = [plan(name) for name in names]
    if not all(one.ready for one in planned):
        with _only_builder(say):
            missing = [one for one in {one.name: one for one in planned}.values() if not one.ready]
            for number, one in enumerate(missing, 1):
                _build(one, say)
                still = set(chain.from_iterable(later.versions.items() for later in missing[number:]))
                wheels.remove(
                    {name: version for name, version in one.versions.items() if (name, version) not in still},
                    wheels_folder(),
                )
    for one in planned:
        require_installed(one)
    return planned


def plan(name: str) -> Environment:
    """Return where the environment `name` is, or will be.

    Raises:
        MaterialError: there is no such environment, or one of its files holds something else than it may.
    """
    file = requirements_file(name)
    versions = read_requirements(file)
    said = [sorted(versions.items()), [pattern for _, pattern in trim.patterns(file.with_name(PRUNE))]]
    folder = environments_folder() / f"{name}-{sha256_of(json.dumps(said).encode())[:16]}-py{PYTHON}"
    packages = folder / "lib" / f"python{PYTHON}" / "site-packages"
    return Environment(name, folder / "bin" / "python", packages, versions)


def environments_folder() -> Path:
    """Return where environments are built."""
    return cache_folder() / "environments"


def wheels_folder() -> Path:
    """Return where the wheels of unfinished builds are kept."""
    return environments_folder() / f"wheels-py{PYTHON}"


def names() -> list[str]:
    """Return the names of all environments, sorted."""
    return sorted(path.parent.name for path in ENVIRONMENTS.glob("*/requirements.txt"))


def requirements_file(name: str) -> Path:
    """Return where the pins of an environment stand. Raises MaterialError when it has none."""
    if name not in names():
        raise MaterialError(f"there is no environment {name!r}", next_step=f"Known: {', '.join(names())}.")
    return ENVIRONMENTS / name / "requirements.txt"


def read_requirements(file: Path) -> dict[str, str]:
    """Return package → version of a requirement file, names in normal form. Raises as `read_blocks`."""
    return dict(chain.from_iterable(block.items() for block in read_blocks(file)))


def read_blocks(file: Path) -> list[dict[str, str]]:
    """Return package → version of each block of a requirement file, names in normal form.

    Raises:
        MaterialError: a line is no comment and no `name==version`, a package stands there twice, or none does.
    """
    blocks: list[dict[str, str]] = [{}]
    for number, line in enumerate(file.read_text("utf-8").split("\n"), 1):
        if not line.strip():
            blocks.append({})
            continue
        if line.startswith("#"):
            continue
        match = REQUIREMENT.match(line)
        if match is None:
            raise MaterialError(f"{file}:{number}: {line!r} is no pin", next_step="Write 'name==version'.")
        name = normal_name(match[1])
        if any(name in block for block in blocks):
            raise MaterialError(f"{file}:{number}: {match[1]} is pinned twice", next_step="Remove the repeat.")
        blocks[-1][name] = match[2]
    if not any(blocks):
        raise MaterialError(f"{file} pins nothing", next_step="Write 'name==version', a package a line.")
    return [block for block in blocks if block]


def normal_name(package: str) -> str:
    """Return a package's name as registries compare it."""
    return re.sub(r"[-_.]+", "-", package).lower()


def require_installed(built: Environment) -> None:
    """Check that exactly the pinned packages are installed. Nothing of theirs runs.

    Raises:
        VersionMismatch: a package is missing, too many, or of another version.
    """
    found = {normal_name(one.metadata["Name"]): one.version for one in distributions(path=[str(built.packages)])}
    wrong = sorted(
        f"{name}: expected {built.versions.get(name, 'nothing')}, found {found.get(name, 'nothing')}"
        for name in {*found, *built.versions}
        if found.get(name) != built.versions.get(name)
    )
    if wrong:
        raise VersionMismatch(
            f"the environment {built.name} is not what its requirements.txt pins (" + "; ".join(wrong) + ")",
            next_step=f"Delete {built.folder} and run again.",
        )


def require_cpu(built: Environment) -> None:
    """Check that torch, where it is installed, is a build without CUDA. Nothing of it runs.

    Raises:
        MaterialError: it is one for CUDA, or does not say.
    """
    if "torch" not in built.versions:
        return
    version = built.packages / "torch" / "version.py"
    said = CUDA.search(version.read_text("utf-8")) if version.is_file() else None
    if said is None or said[1] != "None":
        raise MaterialError(
            f"the environment {built.name} got a torch {built.versions['torch']} "
            + (f"for CUDA {said[1]}" if said else "that does not say whether it is one for CUDA"),
            next_step="Pin a build for CPUs (`torch==<version>+cpu`), and give pip a source that has it: PyTorch's "
            "index of CPU builds, or a folder with its wheel, in pip's own settings.",
        )


@contextmanager
def _only_builder(say: Callable[[str], None]) -> Iterator[None]:
    environments_folder().mkdir(parents=True, exist_ok=True)
    lock = FileLock(environments_folder() / "build.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        say("waiting for another build of an environment")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _build(built: Environment, say: Callable[[str], None]) -> None:
    """Build at the final place, for an environment cannot be moved; what goes wrong leaves nothing there."""
    begin, file, folder = time.monotonic(), requirements_file(built.name), built.folder
    purpose = file.read_text("utf-8").partition("\n")[0].lstrip("# ")
    say(f"building the environment {built.name}, {len(built.versions)} packages: {purpose}")
    line = Line(built.name)
    shutil.rmtree(folder, ignore_errors=True)
    try:
        wheels.fetch(read_blocks(file), wheels_folder(), built.name, line.show)
        venv.EnvBuilder(symlinks=True).create(folder)
        _install(built, file, line)
        require_installed(built)
        require_cpu(built)
        trim.prune(built.packages, file.with_name(PRUNE))
        trim.share(built.packages, _others(built))
        (folder / READY).touch()
    finally:
        line.clear()
        if not (folder / READY).is_file():
            shutil.rmtree(folder, ignore_errors=True)
    say(f"{built.name} is built: {pip.size(folder) / 1e6:,.0f} MB, in {time.monotonic() - begin:,.0f} s")


def _install(built: Environment, file: Path, line: Line) -> None:
    total = wheels.unpacked(wheels.found(built.versions, wheels_folder()))
    compiled = not (file.parent / "witness.py").is_file()
    doing = "installing and compiling" if compiled else f"installing {total / 1e6:,.0f} MB"
    pip.run(
        [
            *("--python", str(built.python), "install", "--no-deps", "--only-binary", ":all:", "--progress-bar", "off"),
            *("--no-index", "--find-links", str(wheels_folder()), "--compile" if compiled else "--no-compile"),
            *("--no-warn-script-location", "--requirement", str(file)),
        ],
        built.name,
        built.packages,
        lambda _, size: line.show(f"{doing}, {size / 1e6:,.0f} MB so far"),
    )


def _others(built: Environment) -> list[Path]:
    """Return the site-packages of the other finished environments of this Python."""
    inside = built.packages.relative_to(built.folder)
    found = sorted(environments_folder().glob(f"*-py{PYTHON}/{READY}"))
    return [ready.parent / inside for ready in found if ready.parent != built.folder]
