"""The wheels an environment is installed from, fetched so that an interrupted build goes on where it was.

They lie in one folder for all environments until those that pin them are built: what two pin is fetched once.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from bellwether.building import pip

PART = "part-"
"""How the folder of a block begins that is not whole yet."""
TAKEN = re.compile(r"(?:Downloading|Using cached|Processing) (\S+\.whl)(?: \(([^)]+)\))?\Z")
"""What pip says of a wheel it takes."""

Pins = Mapping[str, str]
"""Package → version."""


def fetch(blocks: Sequence[Pins], folder: Path, name: str, show: Callable[[str], None]) -> None:
    """Put a wheel of every pin into `folder`, where it has none yet. A block is fetched whole, then the next.

    Raises:
        MaterialError: pip cannot get one; the blocks before it are kept.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for rest in folder.glob(f"{PART}*"):
        shutil.rmtree(rest, ignore_errors=True)
    missing = [absent(block, folder) for block in blocks]
    count, done, so_far = sum(map(len, missing)), 0, 0
    for block in filter(None, missing):
        with tempfile.TemporaryDirectory(prefix=PART, dir=folder) as part:
            whole, passing = Path(part, "whole"), Path(part, "passing")
            passing.mkdir()

            def tell(said: Sequence[str], size: int, before: int = so_far, done: int = done) -> None:
                taken = _taken(said) or ["packages"]
                number = f"{min(done + len(taken), count)} of {count}"
                show(f"downloading {number}, {(before + size) / 1e6:,.0f} MB so far: {taken[-1]}")

            pip.run(
                [
                    *("download", "--no-deps", "--only-binary", ":all:", "--progress-bar", "off"),
                    *("--dest", str(whole), *(f"{package}=={version}" for package, version in block.items())),
                ],
                name,
                passing,
                tell,
                {"TMPDIR": str(passing)},
            )
            for wheel in sorted(whole.iterdir()):
                so_far += wheel.stat().st_size
                wheel.replace(folder / wheel.name)
        done += len(block)


def absent(pins: Pins, folder: Path) -> dict[str, str]:
    """Return the pins that have no wheel in a folder."""
    there = _wheels(folder)
    return {package: version for package, version in pins.items() if _key(package, version) not in there}


def found(pins: Pins, folder: Path) -> list[Path]:
    """Return the wheels of `pins` in a folder."""
    there = _wheels(folder)
    return [there[_key(*pin)] for pin in pins.items() if _key(*pin) in there]


def remove(pins: Pins, folder: Path) -> None:
    """Remove the wheels of `pins`, and the folder when nothing else is in it."""
    for wheel in found(pins, folder):
        wheel.unlink()
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def unpacked(wheels: Iterable[Path]) -> int:
    """Return how many bytes the files inside some wheels hold."""
    total = 0
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            total += sum(member.file_size for member in archive.infolist())
    return total


def _wheels(folder: Path) -> dict[tuple[str, Version], Path]:
    there = {}
    for wheel in folder.glob("*.whl"):
        try:
            package, version, *_ = parse_wheel_filename(wheel.name)
        except (InvalidWheelFilename, InvalidVersion):
            continue
        there[package, version] = wheel
    return there


def _key(package: str, version: str) -> tuple[str, Version]:
    return canonicalize_name(package), Version(version)


def _taken(said: Sequence[str]) -> list[str]:
    """Return the wheels pip says it takes, with their sizes where it tells them."""
    matches = filter(None, (TAKEN.search(line.strip()) for line in said))
    named = ((match[1].rpartition("/")[2], match[2]) for match in matches)
    return [f"{wheel} ({size})" if size else wheel for wheel, size in named]
