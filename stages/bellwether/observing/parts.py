"""A table in the making, as parts of a fixed number of rows, so that an interrupted run goes on where it was.

There is one row per replay and replays have an order, so the number of rows kept says where to go on. Parts belong to a
key over everything that has a say in the rows; those of another key are thrown away. What comes out does not depend on
how often the work was interrupted.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from itertools import count, takewhile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from bellwether.observing.table import OBSERVATION
from bellwether.tables import BATCH_ROWS, TableWriter
from bellwether.whole import write_whole

PART_ROWS = 256
KEY = "key"


class Parts:
    """The parts of the table `path`."""

    def __init__(self, path: Path, key: str) -> None:
        """Keep the parts of an earlier run under the same key, throw away all others."""
        self.path = path
        self.folder = _folder(path)
        kept = self.folder / KEY
        if not kept.is_file() or kept.read_text("utf-8") != key:
            shutil.rmtree(self.folder, ignore_errors=True)
            write_whole(kept, key)
        self.count = len(_kept(self.folder))

    @property
    def rows(self) -> int:
        """Rows kept."""
        return self.count * PART_ROWS

    def add(self, rows: Iterable[dict[str, Any]]) -> Path:
        """Keep the next PART_ROWS rows; fewer only at the end. Return their file."""
        path = _part(self.folder, self.count)
        with TableWriter(path, OBSERVATION) as writer:
            writer.write_rows(rows)
        self.count += 1
        return path

    def files(self) -> list[Path]:
        """Return the files kept, in order."""
        return [_part(self.folder, number) for number in range(self.count)]

    def finish(self) -> None:
        """Put the parts together as the table, and remove them."""
        with TableWriter(self.path, OBSERVATION) as writer:
            for path in self.files():
                for batch in pq.ParquetFile(path).iter_batches(BATCH_ROWS):
                    writer.write(batch)
        shutil.rmtree(self.folder)


def so_far(path: Path) -> list[Path]:
    """Return the files that hold what there is of the table `path`: itself, or its parts."""
    return [path] if path.is_file() else _kept(_folder(path))


def discard(path: Path) -> None:
    """Throw the parts of the table `path` away."""
    shutil.rmtree(_folder(path), ignore_errors=True)


def _folder(path: Path) -> Path:
    return path.with_name(f"{path.stem}.parts")


def _kept(folder: Path) -> list[Path]:
    """Return the parts from the first to the last before a gap."""
    return list(takewhile(Path.is_file, (_part(folder, number) for number in count())))


def _part(folder: Path, number: int) -> Path:
    return folder / f"{number:06}.parquet"
