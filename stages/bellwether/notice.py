"""NOTICE: whose data the imported corpora hold, under which licence, and what was changed.

What is listed comes from the tables of origins, so a corpus out of scope is not named and none in scope is forgotten;
the words about a dataset come from its pins. The same tables give the same bytes.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bellwether.corpora.sources import Source, read_derived, sources_of
from bellwether.errors import Finding, TableError
from bellwether.layout import corpus_folder, pins_folder
from bellwether.params import read_params
from bellwether.tables import CASES, ORIGINS
from bellwether.tables import check as check_table
from bellwether.whole import write_whole

WIDTH = 100
INTRODUCTION = """\
Bellwether
Hand-written cases (corpus/handmade) are part of this project and under its licence, see LICENSE.

The tables below corpus/imported hold data of others; each folder carries the text of its licences.
Nothing here says that its authors endorse this project."""


def main(root: Path) -> None:
    """Write NOTICE.

    Raises:
        TableError: a corpus of the scope is not imported, or was imported from other pins than Git holds.
        ParamsError: pins are malformed.
    """
    write_whole(root / "NOTICE", text(root))


def check(root: Path) -> None:
    """Compare NOTICE with what the tables say.

    Raises:
        Finding: it differs or is missing. Otherwise as `main`.
    """
    path, expected = root / "NOTICE", text(root).encode()
    if not path.is_file() or path.read_bytes() != expected:
        raise Finding(f"{path} is not what the imported corpora say", next_step="Run `bellwether notice`.")


def text(root: Path) -> str:
    """Return what NOTICE has to say, corpora in the order of params.yaml. Raises as `main`."""
    entries = [entry for corpus in read_params(root).corpora for entry in _entries(root, corpus)]
    return "\n\n\n".join([_wrap(INTRODUCTION), *entries]) + "\n"


def _entries(root: Path, corpus: str) -> Iterator[str]:
    """Yield the entry of a corpus, unless it is this project's own work."""
    pins, folder = pins_folder(root, corpus), corpus_folder(root, corpus)
    sources = sources_of(pins)
    rows = _table(folder / "origins.parquet", ORIGINS)
    _same_pins(corpus, {source.source for source in sources}, {row["source"] for row in rows})
    if not sources:
        return
    cases = Counter(row["kind"] for row in _table(folder / "cases.parquet", CASES, ["kind"]))
    held = " and ".join(f"{count:,} {kind}" for kind, count in sorted(cases.items(), reverse=True))
    lines = [f"corpus/imported/{corpus}: {held} cases"]
    if (pins / "derived.toml").is_file():
        derived = read_derived(pins)
        lines += [derived.title, f"Licence: {derived.license}", f"Changes: {derived.changes}"]
    for source in sources:
        files = sum(row["source"] == source.source for row in rows)
        lines += ["", *_about(source, files)] if len(sources) > 1 else _about(source, files)
    yield "\n".join(_wrap(line) for line in lines)


def _about(source: Source, files: int) -> list[str]:
    return [
        source.title,
        f"By: {source.attribution}",
        f"Source: {source.source}, {files} {'file' if files == 1 else 'files'}; {source.homepage}",
        f"Licence: {source.license}, in LICENSE.{source.corpus}",
        f"Changes: {source.changes}",
    ]


def _same_pins(corpus: str, pinned: set[str], stored: set[str]) -> None:
    """Check that the tables were made from what Git pins; `handmade` and `derived` are no sources to name."""
    stored = {source for source in stored if source.startswith(("pypi:", "github:", "hf:"))}
    if stored != pinned:
        raise TableError(
            f"corpus {corpus} was imported from {', '.join(sorted(stored)) or 'nothing'}, "
            f"and Git pins {', '.join(sorted(pinned)) or 'nothing'}",
            next_step=f"Run `dvc repro import@{corpus}`.",
        )


def _table(path: Path, schema: pa.Schema, columns: list[str] | None = None) -> list[dict]:
    check_table(path, schema)
    return pq.read_table(path, columns=columns).to_pylist()


def _wrap(paragraphs: str) -> str:
    """Return `paragraphs` with lines of at most WIDTH; lines that go on stand further right."""
    return "\n".join(
        textwrap.fill(line, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        for line in paragraphs.split("\n")
    )
