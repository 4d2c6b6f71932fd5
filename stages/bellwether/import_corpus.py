"""Stage `import`: one corpus from its pinned source, or from the hand-written lines, into tables.

A corpus NAME is a folder `corpus/NAME` in Git, with its pins or its lines, and a module `corpora/NAME.py` whose
`corpus(folder, fetch)` yields the cases. Nothing else lists the corpora there are; `corpora` in params.yaml lists those
in scope.
"""

from __future__ import annotations

import filecmp
import re
import tempfile
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from bellwether.corpora.sources import (
    Derived,
    Fetch,
    Items,
    fetcher,
    licence_text,
    pin_files,
    read_derived,
    read_source,
    sources_of,
)
from bellwether.corpora.store import write_corpus
from bellwether.errors import CorpusError, Finding, ParamsError
from bellwether.layout import corpus_folder, pins_folder
from bellwether.progress import say
from bellwether.whole import whole_folder

Importer = Callable[[Path, Fetch], Items]
"""Folder of the corpus in Git and the way to pinned files → the cases, and what became of the other rows."""

MODULE = re.compile(r"[a-z0-9_]+")


def main(root: Path, corpus: str) -> dict[str, int]:
    """Import `corpus` and return table name → rows. Its folder is replaced as a whole, or stays as it was.

    Beside the tables stands the text of each licence the data is under, `LICENSE.<corpus>`.

    Raises:
        ParamsError: there is no corpus of that name, or its pins are malformed.
        InputUnavailable, PinMismatch: its source cannot be had, or is not what is pinned.
        CorpusError: a row breaks a rule of the format.
    """
    importer = importer_of(root, corpus)
    with whole_folder(corpus_folder(root, corpus)) as folder:
        return _write(root, corpus, importer, folder)


def check(root: Path, corpus: str) -> None:
    """Import `corpus` again and compare with the stored files.

    Raises:
        Finding: a file differs, is missing or is one too many. Otherwise as `main`.
    """
    importer = importer_of(root, corpus)
    stored = corpus_folder(root, corpus)
    with tempfile.TemporaryDirectory() as work:
        _write(root, corpus, importer, Path(work))
        names = sorted({path.name for folder in (stored, Path(work)) for path in folder.glob("*")})
        wrong = [name for name in names if not _same(stored / name, Path(work) / name)]
    if wrong:
        raise Finding(
            f"{stored}: a new import gives other files ({', '.join(wrong)})",
            next_step=f"Run `dvc repro import@{corpus}` and look at the difference.",
        )


def pin(root: Path, corpus: str) -> int:
    """Write the sha256 of the files of a dataset of the Hub into its `source.toml`, and return how many there are.

    Raises:
        ParamsError: there is no such corpus, or it is no dataset of the Hub.
        InputUnavailable: the Hub does not give a file.
    """
    importer_of(root, corpus)
    files = getattr(import_module(f"bellwether.corpora.{corpus}"), "FILES", None)
    if files is None:
        raise ParamsError(f"corpus {corpus} is no dataset of the Hub", next_step="Write its pins by hand.")
    pin_files(read_source(pins_folder(root, corpus)), files)
    return len(files)


def corpora(root: Path) -> list[str]:
    """Return the names of all corpora there are, in scope or not, sorted."""
    names = (path.name for path in (root / "corpus").glob("*") if path.is_dir() and MODULE.fullmatch(path.name))
    return sorted(name for name in names if find_spec(f"bellwether.corpora.{name}"))


def derived(root: Path) -> dict[str, Derived]:
    """Return name → what it is built from, of each derived corpus, sorted. Raises ParamsError as `read_derived`."""
    folders = [pins_folder(root, name) for name in corpora(root)]
    return {folder.name: read_derived(folder) for folder in folders if (folder / "derived.toml").is_file()}


def importer_of(root: Path, corpus: str) -> Importer:
    """Return the importer of `corpus`.

    Raises:
        ParamsError: there is no corpus of that name.
    """
    if corpus not in (known := corpora(root)):
        raise ParamsError(f"there is no corpus {corpus!r}", next_step=f"Known corpora: {', '.join(known)}.")
    return import_module(f"bellwether.corpora.{corpus}").corpus


def _same(one: Path, other: Path) -> bool:
    return one.is_file() and other.is_file() and filecmp.cmp(one, other, shallow=False)


def _write(root: Path, corpus: str, importer: Importer, folder: Path) -> dict[str, int]:
    fetch, pins = fetcher(say), pins_folder(root, corpus)
    counts = write_corpus(importer(pins, fetch), corpus, folder)
    if not counts["cases"]:
        raise CorpusError(f"corpus {corpus} has no case", next_step="Check its source.")
    for source in sources_of(pins):
        (folder / f"LICENSE.{source.corpus}").write_bytes(licence_text(source, fetch))
    return counts
