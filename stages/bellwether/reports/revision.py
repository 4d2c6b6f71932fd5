"""Tables of another Git revision, through DVC: from its cache, or from a remote when they are not there any more."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from bellwether.cache import cache_folder
from bellwether.errors import ParamsError, TableError
from bellwether.whole import whole_file

if TYPE_CHECKING:
    from dvc.api import DVCFileSystem


def tables_at(root: Path, revision: str, paths: Iterable[str]) -> dict[str, Path]:
    """Return path → local copy of the tables among `paths` (relative to `root`) that `revision` has.

    Copies are kept in the user's cache by commit, which never changes: a second call fetches nothing.

    Raises:
        ParamsError: `root` is no repository of Git and DVC, or there is no such revision.
        TableError: the revision has a table whose bytes neither the cache nor a remote holds.
    """
    files, commit = _open(root, revision)
    folder = cache_folder() / "revisions" / commit
    found = {}
    for path in paths:
        copy = folder / path
        if not copy.is_file():
            if not files.exists(path):
                continue
            copy.parent.mkdir(parents=True, exist_ok=True)
            _fetch(files, path, copy, revision)
        found[path] = copy
    return found


def _open(root: Path, revision: str) -> tuple[DVCFileSystem, str]:
    from dvc.api import DVCFileSystem  # takes half a second, and only this question needs it
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    try:
        with Repo(str(root)) as now:  # an old revision may name no remote
            remote = now.config["core"].get("remote")
        files = DVCFileSystem(str(root), rev=revision, remote=remote)
        return files, files.repo.get_rev()  # asked first here, and found or not
    except DvcException as error:
        raise ParamsError(
            f"{root} cannot be read at {revision!r}: {error}",
            next_step="Name a commit, branch or tag of this checkout, which has to be a clone.",
        ) from None


def _fetch(files: DVCFileSystem, path: str, copy: Path, revision: str) -> None:
    from dvc.exceptions import DvcException

    try:
        with whole_file(copy) as partial:
            files.get_file(path, str(partial))
    except (DvcException, OSError) as error:
        raise TableError(
            f"{path} cannot be had as it was at {revision}: {error}",
            next_step="Run `dvc fetch` for that revision, or name another one.",
        ) from None
