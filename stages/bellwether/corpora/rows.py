"""Rows of a dataset's file, read by the `datasets` library, which is imported only when an importer needs it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bellwether.errors import CorpusError

READERS = {".json": "json", ".jsonl": "json", ".parquet": "parquet"}


def rows(path: Path, name: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of the file at `path`, which is called `name` in its dataset, in the order of the file.

    Reading goes by the library's own readers, from the checked file alone: no script of a dataset is run, and nothing
    is asked of the Hub.

    Raises:
        CorpusError: the file has no reader, or the reader refuses it.
    """
    reader = READERS.get(Path(name).suffix)
    if reader is None:
        raise CorpusError(f"{name}: expected one of {', '.join(READERS)}", next_step="Correct [files] of its source.")
    from datasets import load_dataset
    from datasets.exceptions import DatasetsError

    try:
        yield from load_dataset(reader, data_files=str(path), split="train", streaming=True)
    except (DatasetsError, ValueError, OSError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise CorpusError(
            f"{name}: expected rows of {reader}, got {reason}", next_step="Look at the file; its sha256 is as pinned."
        ) from error
