"""Python environments for code that cannot run in ours: an engine's, a vendor's.

`stages/environments/<name>/requirements.txt` pins every package as `name==version`. The environment is built once per
machine under the user's cache, in a folder named by the requirement file's sha256, so another pin is another folder.
Its first comment says what it is for and how much it downloads.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

from filelock import FileLock

from bellwether.cache import cache_folder
from bellwether.errors import MaterialError, VersionMismatch
from bellwether.materials.pins import sha256_of
from bellwether.progress import say as say_on_stderr

ENVIRONMENTS = Path(__file__).resolve().parents[1] / "environments"
BUILD_SECONDS = 1800
READY = "ready"
"""A file inside a finished environment. Without it the folder is the rest of a build that did not end."""
REQUIREMENT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([A-Za-z0-9][A-Za-z0-9.+!-]*)\Z")


@dataclass(frozen=True, slots=True)
class Environment:
    """A built environment."""

    name: str
    python: Path
    """Its interpreter."""
    packages: Path
    """Its site-packages."""
    versions: Mapping[str, str]
    """Package → version, all that is installed; names in normal form."""


def environment(name: str, say: Callable[[str], None] = say_on_stderr) -> Environment:
    """Return the environment `name`, building it first where this machine has none. Concurrent callers wait.

    Raises:
        MaterialError: there is no such environment, its requirement file holds something else than pins, or it cannot
            be built. Nothing half-built is ever used.
        VersionMismatch: what is installed is not what the file pins.
    """
    file = requirements_file(name)
    versions = read_requirements(file)
    key = f"{name}-{sha256_of(file.read_bytes())[:16]}-py{sys.version_info.major}.{sys.version_info.minor}"
    folder = cache_folder() / "environments" / key
    library = f"python{sys.version_info.major}.{sys.version_info.minor}"
    built = Environment(name, folder / "bin" / "python", folder / "lib" / library / "site-packages", versions)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.parent / f"{key}.lock"):
        if not (folder / READY).is_file():
            _build(built, folder, file, say)
    require_installed(built)
    return built


def requirements_file(name: str) -> Path:
    """Return where the pins of an environment stand. Raises MaterialError when it has none."""
    file = ENVIRONMENTS / name / "requirements.txt"
    if not file.is_file():
        known = ", ".join(sorted(path.parent.name for path in ENVIRONMENTS.glob("*/requirements.txt")))
        raise MaterialError(f"there is no environment {name!r}", next_step=f"Known: {known}.")
    return file


def read_requirements(file: Path) -> dict[str, str]:
    """Return package → version of a requirement file, names in normal form.

    Raises:
        MaterialError: a line is no comment and no `name==version`, or a package stands there twice.
    """
    versions: dict[str, str] = {}
    for number, line in enumerate(file.read_text("utf-8").split("\n"), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = REQUIREMENT.match(line)
        if match is None:
            raise MaterialError(f"{file}:{number}: {line!r} is no pin", next_step="Write 'name==version'.")
        if normal_name(match[1]) in versions:
            raise MaterialError(f"{file}:{number}: {match[1]} is pinned twice", next_step="Remove the repeat.")
        versions[normal_name(match[1])] = match[2]
    return versions


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
            next_step=f"Delete {built.python.parents[1]} and run again.",
        )


def _build(built: Environment, folder: Path, file: Path, say: Callable[[str], None]) -> None:
    """Build at the final place, for an environment cannot be moved; what goes wrong leaves nothing there."""
    shutil.rmtree(folder, ignore_errors=True)
    purpose = file.read_text("utf-8").partition("\n")[0].lstrip("# ")
    say(f"building the environment {built.name}, {len(built.versions)} packages: {purpose}")
    pip = [sys.executable, "-m", "pip", "--python", str(built.python), "install", "--quiet", "--no-deps"]
    try:
        _run([sys.executable, "-m", "venv", "--without-pip", str(folder)], built.name)
        _run([*pip, "--only-binary", ":all:", "--requirement", str(file)], built.name)
        (folder / READY).touch()
    finally:
        if not (folder / READY).is_file():
            shutil.rmtree(folder, ignore_errors=True)


def _run(command: list[str], name: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=BUILD_SECONDS)
    except subprocess.TimeoutExpired:
        complaint = f"not finished within {BUILD_SECONDS} s"
    else:
        if done.returncode == 0:
            return
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if line.lower().startswith("error")]
        complaint = "; ".join(errors[:4] or lines[-1:] or ["it says nothing"])
    raise MaterialError(
        f"the environment {name} cannot be built: {complaint}",
        next_step="Give pip a registry or a mirror that has these packages (pip's own settings), and run again.",
    )
