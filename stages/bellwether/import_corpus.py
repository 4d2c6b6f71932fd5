"""Stage `import`: one corpus from its pinned source, or from the hand-written lines, into tables."""

from __future__ import annotations

import filecmp
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from bellwether.case import Case, LeftOut, Repeat
from bellwether.corpora import bfcl, handmade
from bellwether.corpora.repeats import drop_repeats
from bellwether.corpora.store import write_corpus
from bellwether.errors import CorpusError, Finding, InputUnavailable, ParamsError
from bellwether.layout import corpus_folder, handmade_folder
from bellwether.materials.routes import RouteFailed, package_route
from bellwether.params import read_packages
from bellwether.progress import say
from bellwether.tables import PER_CORPUS
from bellwether.whole import whole_folder

Items = Iterator[Case | Repeat | LeftOut]
Archive = Callable[[str], Path]
"""Name of a package in fixtures/packages.toml → path of its verified archive."""
Importer = Callable[[Path, Archive], Items]
"""Project's root and the way to an archive → the cases, and what became of the other rows."""


def _handmade(root: Path, archive: Archive) -> Items:
    return handmade.cases(handmade_folder(root))


def _bfcl(root: Path, archive: Archive) -> Items:
    return drop_repeats(bfcl.cases(archive("bfcl-eval")))


CORPORA: Mapping[str, Importer] = {"handmade": _handmade, "bfcl": _bfcl}
"""Corpus name → importer."""


def main(root: Path, corpus: str) -> dict[str, int]:
    """Import `corpus` and return table name → rows. Its folder is replaced as a whole, or stays as it was.

    Raises:
        ParamsError: there is no importer of that name.
        InputUnavailable, PinMismatch: its source cannot be had, or is not what is pinned.
        CorpusError: a row breaks a rule of the format.
    """
    importer = _importer(corpus)
    with whole_folder(corpus_folder(root, corpus)) as folder:
        return _write(root, corpus, importer, folder)


def check(root: Path, corpus: str) -> None:
    """Import `corpus` again and compare with the stored tables.

    Raises:
        Finding: a table differs or is missing. Otherwise as `main`.
    """
    importer = _importer(corpus)
    stored = corpus_folder(root, corpus)
    with tempfile.TemporaryDirectory() as work:
        _write(root, corpus, importer, Path(work))
        wrong = [
            name
            for name in PER_CORPUS
            if not (stored / f"{name}.parquet").is_file()
            or not filecmp.cmp(stored / f"{name}.parquet", Path(work) / f"{name}.parquet", shallow=False)
        ]
    if wrong:
        raise Finding(
            f"{stored}: a new import gives other tables ({', '.join(wrong)})",
            next_step=f"Run `dvc repro import@{corpus}` and look at the difference.",
        )


def _importer(corpus: str) -> Importer:
    if corpus not in CORPORA:
        raise ParamsError(f"there is no importer {corpus!r}", next_step=f"Known corpora: {', '.join(CORPORA)}.")
    return CORPORA[corpus]


def _write(root: Path, corpus: str, importer: Importer, folder: Path) -> dict[str, int]:
    packages = package_route(read_packages(root), say)

    def archive(name: str) -> Path:
        try:
            return packages.archive(name)
        except RouteFailed as error:
            raise InputUnavailable(f"corpus {corpus}: {error}", next_step="Make the package reachable.") from None

    counts = write_corpus(importer(root, archive), corpus, folder)
    if not counts["cases"]:
        raise CorpusError(f"corpus {corpus} has no case", next_step="Check its source.")
    return counts
