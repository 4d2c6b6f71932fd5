"""Command `manifests`: which checkpoints share one recording, written as `group` lines; and manifests of new ones.

Checkpoints whose oracle inputs are equal, names included, answer every case alike, so one of them is recorded for all:
the primary, whose slug is the group's. The others are members and are never recorded themselves.

| question | rule |
|---|---|
| equal | the same `[inputs]` and `[unreached]`: stand-ins that agree do not make files equal that are known to differ |
| primary | the one in params.yaml; else the most downloaded (unknown last), of equals the first repository name |
| two in params.yaml are equal | refused: which recording stays is for a person to say |
| `[authority]` differs inside a group | refused: one recording holds the sources of one list |

The tool owns the `group` line; every other byte of a manifest stays as its author wrote it. The line is set by editing
text, because a TOML writer would put it below the comment of the next table; reading the result proves the edit.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import tomllib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path

from bellwether import models
from bellwether.errors import Finding, ParamsError
from bellwether.layout import checkpoint_folder
from bellwether.materials.hub import Hub
from bellwether.materials.pinning import pin, read_name, slug_of
from bellwether.params import Manifest, read_manifest, read_params
from bellwether.whole import clear_leftovers, work_name

TABLE = re.compile(r"^[ \t]*\[", re.MULTILINE)
GROUP = re.compile(r"^[ \t]*group[ \t]*=.*(?:\r?\n|\Z)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to."""

    manifests: int
    groups: int
    """Groups of one checkpoint are counted too."""
    changes: tuple[str, ...]
    """One sentence per manifest written."""


def main(root: Path, *, check: bool = False, new: Collection[Manifest] = ()) -> Outcome:
    """Write the `group` line of every manifest, and the manifests `new`; all of them or none.

    Raises:
        ParamsError, TableError: a file is malformed, or the groups are for a person to settle (see above).
        Finding: with `check`, when something would be written. Nothing is.
    """
    manifests = {manifest.slug: manifest for manifest in (*_read(root), *new)}
    groups = grouped(manifests.values(), read_params(root).checkpoints, downloads(root))
    texts, changes = {}, []
    for slug, manifest in manifests.items():
        path, primary = _path(root, slug), groups[slug]
        if manifest in new:
            texts[path] = manifest_text(manifest, primary)
            changes.append(f"{_named(slug)}: new" + (f", a member of {primary}" if primary else ""))
        elif primary != manifest.group:
            texts[path] = with_group(path.read_bytes().decode(), primary, _named(slug))
            changes.append(f"{_named(slug)}: " + _said(manifest.group, primary))
    if check and changes:
        raise Finding("\n  ".join(["groups have moved", *changes]), next_step="Run `bellwether manifests` and commit.")
    if not check:
        for slug in manifests:
            clear_leftovers(_path(root, slug))
        write_all(texts)
    return Outcome(len(manifests), sum(primary is None for primary in groups.values()), tuple(changes))


def add(root: Path, names: Iterable[str], tier: int) -> Outcome:
    """Write the manifests of checkpoints as the Hub has them, `names` being OWNER/NAME@REVISION, and group again.

    Raises:
        ParamsError: a name is malformed or its slug is taken; otherwise as `main`.
        InputUnavailable, MaterialError: the Hub does not give what has to be pinned. Nothing is written.
    """
    wanted: dict[str, tuple[str, str]] = {}
    for name in names:
        model, revision = read_name(name)
        slug = slug_of(model)
        if _path(root, slug).exists() or slug in wanted:
            raise ParamsError(
                f"{name}: {_named(slug)} is taken",
                next_step="A pinned revision is moved by hand, as a reviewed change; another owner's checkpoint of "
                "that name needs a manifest under a slug of its own.",
            )
        wanted[slug] = model, revision
    hub = Hub()
    return main(root, new=[pin(hub, model, revision, tier) for model, revision in wanted.values()])


def grouped(
    manifests: Iterable[Manifest], recorded: Collection[str], downloads: Mapping[str, int]
) -> dict[str, str | None]:
    """Return slug → slug of the group's primary, or None for a primary, in the order of `manifests`.

    Raises:
        ParamsError: two recorded checkpoints are equal, or members of a group name other authorities.
    """
    manifests = list(manifests)
    alike: defaultdict[tuple, list[Manifest]] = defaultdict(list)
    for manifest in manifests:
        alike[_material(manifest)].append(manifest)
    primaries: dict[str, str] = {}
    for group in alike.values():
        first = _primary(group, recorded, downloads)
        _same_authority(first, group)
        primaries |= {manifest.slug: first.slug for manifest in group}
    return {
        manifest.slug: None if primaries[manifest.slug] == manifest.slug else primaries[manifest.slug]
        for manifest in manifests
    }


def downloads(root: Path) -> dict[str, int]:
    """Return repository → downloads, of those whose number fixtures/models.jsonl knows; empty without that file.

    Raises:
        TableError: the file is not what `bellwether models` writes.
    """
    known = models.read(root)
    return {line.model: line.downloads for line in known.lines if line.downloads is not None} if known else {}


def with_group(text: str, group: str | None, where: str) -> str:
    """Return a manifest's text with its `group` line set to `group`, or without one; all other bytes stay.

    Raises:
        ParamsError: the text is written so that the line cannot be placed.
    """
    table = TABLE.search(text)
    head, rest = (text[: table.start()], text[table.start() :]) if table else (text, "")
    end = "\r\n" if "\r\n" in text else "\n"
    line = "" if group is None else f'group = "{group}"{end}'
    if GROUP.search(head):
        edited = GROUP.sub(lambda _: line, head, count=1) + rest
    else:
        lines = head.splitlines(keepends=True)
        keys = [
            place for place, content in enumerate(lines) if content.strip() and not content.lstrip().startswith("#")
        ]
        place = keys[-1] + 1 if keys else 0
        if place and not lines[place - 1].endswith("\n"):
            lines[place - 1] += end
        edited = "".join([*lines[:place], line, *lines[place:]]) + rest
    expected = {key: value for key, value in tomllib.loads(text).items() if key != "group"}
    try:
        as_meant = tomllib.loads(edited) == expected | ({} if group is None else {"group": group})
    except tomllib.TOMLDecodeError:
        as_meant = False
    if not as_meant:
        raise ParamsError(
            f"{where}: the group line cannot be placed",
            next_step=f"Write `{line.strip() or 'no group line'}` by hand, on a line of its own above the first table.",
        )
    return edited


def manifest_text(manifest: Manifest, group: str | None) -> str:
    """Return the text of a new manifest, whose files only the Hub has."""
    head = {"model": manifest.model, "revision": manifest.revision, "tier": manifest.tier, "license": manifest.license}
    lines = [f"{key} = {_toml(value)}" for key, value in head.items()]
    if group:
        lines.append(f"group = {_toml(group)}")
    lines += ["", "# Whose answer is recorded, the one that decides first.", "[authority]"]
    lines += [f"{kind} = {_toml(list(sources))}" for kind, sources in manifest.authority.items()]
    lines += [
        "",
        "# What the oracle reads, by sha256: of the bytes, or of the narrowed value where only some fields of a config "
        "are read.",
        "[inputs]",
    ]
    lines += [f"{_toml(name)} = {_toml(sha256)}" for name, sha256 in manifest.inputs.items()]
    return "\n".join(lines) + "\n"


def write_all(texts: Mapping[Path, str]) -> None:
    """Write every file, or none: when one cannot be written or put in place, those already in place are put back.

    A process killed between two renames leaves whole files, some of them new; running again completes the set.
    """
    created = [path.parent for path in texts if not path.parent.exists()]
    replaced: list[Path] = []
    try:
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            work_name(path, "partial").write_bytes(text.encode())
            if path.exists():
                shutil.copyfile(path, work_name(path, "old"))
        for path in texts:
            replaced.append(path)
            work_name(path, "partial").replace(path)
    except BaseException:
        for path in replaced:
            if (old := work_name(path, "old")).exists():
                old.replace(path)
            else:
                path.unlink(missing_ok=True)
        raise
    finally:
        for path in texts:
            for kind in ("partial", "old"):
                with contextlib.suppress(OSError):  # what went wrong is told already
                    work_name(path, kind).unlink(missing_ok=True)
        for folder in created:
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()


def _read(root: Path) -> list[Manifest]:
    folders = sorted(path.parent.name for path in (root / "fixtures").glob("*/manifest.toml"))
    return [read_manifest(root, slug) for slug in folders]


def _material(manifest: Manifest) -> tuple:
    """What has to be equal. Nothing pinned is equal to nothing."""
    if not manifest.inputs:
        return (manifest.slug,)
    return tuple(sorted(manifest.inputs.items())), tuple(sorted(manifest.unreached.items()))


def _primary(group: list[Manifest], recorded: Collection[str], downloads: Mapping[str, int]) -> Manifest:
    in_scope = [manifest for manifest in group if manifest.slug in recorded]
    if len(in_scope) > 1:
        slugs = " and ".join(sorted(manifest.slug for manifest in in_scope))
        raise ParamsError(
            f"{slugs} have equal oracle inputs, and both are recorded",
            next_step="Decide which recording stays, and take the other slug out of params.yaml and dvc.yaml.",
        )
    return min(
        in_scope or group,
        key=lambda manifest: (-downloads.get(manifest.model, -inf), manifest.model, manifest.slug),
    )


def _same_authority(primary: Manifest, group: list[Manifest]) -> None:
    for manifest in group:
        if dict(manifest.authority) != dict(primary.authority):
            raise ParamsError(
                f"{_named(manifest.slug)} has the oracle inputs of {_named(primary.slug)}, and another [authority]",
                next_step="One recording serves both: give them the same [authority], or pin the file that sets them "
                "apart.",
            )


def _said(before: str | None, after: str | None) -> str:
    if after is None:
        return f"no longer a member of {before}"
    return f"a member of {after}" + (f", no longer of {before}" if before else "")


def _path(root: Path, slug: str) -> Path:
    return checkpoint_folder(root, slug) / "manifest.toml"


def _named(slug: str) -> str:
    return f"fixtures/{slug}/manifest.toml"


def _toml(value: str | int | list[str]) -> str:
    """JSON's spelling of names, numbers and lists of names is TOML's as well."""
    return json.dumps(value, ensure_ascii=False)
