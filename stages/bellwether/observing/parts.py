"""A table in the making, as parts of a fixed number of rows, so that an interrupted run goes on where it was.

There is one row per replay and replays have an order, so the number of rows kept says where to go on. Parts belong to a
key over everything that has a say in the rows; those of another key are thrown away. What comes out does not depend on
how often the work was interrupted.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
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
        self.folder = path.with_name(f"{path.stem}.parts")
        kept = self.folder / KEY
        if not kept.is_file() or kept.read_text("utf-8") != key:
            shutil.rmtree(self.folder, ignore_errors=True)
            write_whole(kept, key)
        self.count = self._whole()

    def _whole(self) -> int:
        """Return how many parts there are without a gap."""
        count = 0
        while self._part(count).is_file():
            count += 1
        return count

    def _part(self, number: int) -> Path:
        return self.folder / f"{number:06}.parquet"

    @property
    def rows(self) -> int:
        """Rows kept."""
        return self.count * PART_ROWS

    def add(self, rows: Iterable[dict[str, Any]]) -> Path:
        """Keep the next PART_ROWS rows; fewer only at the end. Return their file."""
        path = self._part(self.count)
        with TableWriter(path, OBSERVATION) as writer:
            writer.write_rows(rows)
        self.count += 1
        return path

    def files(self) -> list[Path]:
        """Return the files kept, in order."""
        return [self._part(number) for number in range(self.count)]

    def finish(self) -> None:
        """Put the parts together as the table, and remove them."""
        with TableWriter(self.path, OBSERVATION) as writer:
            for path in self.files():
                for batch in pq.ParquetFile(path).iter_batches(BATCH_ROWS):
                    writer.write(batch)
        shutil.rmtree(self.folder)
