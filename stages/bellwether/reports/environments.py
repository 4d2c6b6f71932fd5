"""The environments of this checkout as a table: which are built on this machine, and what they take."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from tabulate import tabulate

from bellwether.environments import READY, Environment, environments_folder, names, plan

HEADINGS = ("environment", "state", "size", "python", "about")


def table() -> str:
    """Return the table as text, with the folder, and what lies in it that no environment of this checkout uses.

    Raises:
        MaterialError: a requirement file holds something else than pins.
    """
    planned = [plan(name) for name in names()]
    rows = [
        (one.name, state(one), megabytes([one.folder]) if one.folder.is_dir() else "", python(one), about(one))
        for one in planned
    ]
    used = [one.folder for one in planned]
    folder = environments_folder()
    others = sorted(path for path in folder.glob("*") if path.is_dir() and path not in used)
    downloads = [path for path in others if path.name.startswith("wheels-")]
    former = [path for path in others if path not in downloads]
    lines = [
        tabulate(rows, HEADINGS, tablefmt="plain", disable_numparse=True, colalign=("left", "left", "right")),
        "",
        f"together {megabytes(used)}, what they share counted once, in {folder}",
    ]
    if downloads:
        lines.append(f"downloads of unfinished builds {megabytes(downloads)}, kept until those are built")
    if former:
        lines.append(f"of other pins or checkouts {megabytes(former)}, to be deleted if none needs them:")
        lines += [f"  {path.name}" for path in former]
    return "\n".join(lines)


def state(one: Environment) -> str:
    """Return whether an environment is built."""
    if one.ready:
        return "built"
    return "unusable" if (one.folder / READY).is_file() else "unfinished" if one.folder.is_dir() else "not built"


def python(one: Environment) -> str:
    """Return the version of an environment's Python, as the environment says it; nothing of it runs."""
    try:
        lines = (one.folder / "pyvenv.cfg").read_text("utf-8").splitlines()
    except FileNotFoundError:
        return ""
    return dict(line.partition(" = ")[::2] for line in lines).get("version", "")


def about(one: Environment) -> str:
    """Return the package an environment is about, and the torch in it."""
    first = next(iter(one.versions))
    shown = [first, *(name for name in one.versions if name == "torch" != first)]
    return ", ".join(f"{name} {one.versions[name]}" for name in shown)


def megabytes(folders: Iterable[Path]) -> str:
    """Return what folders take on the disk, each file once however many links it has."""
    seen: dict[tuple[int, int], int] = {}
    for folder in folders:
        for where, _, files in os.walk(folder):
            for file in files:
                try:
                    found = Path(where, file).lstat()
                except OSError:  # another process builds
                    continue
                seen[found.st_dev, found.st_ino] = found.st_blocks * 512
    return f"{sum(seen.values()) / 1e6:,.0f} MB"
