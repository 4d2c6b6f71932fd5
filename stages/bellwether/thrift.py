"""What a recording process does without, once it has loaded its checkpoint: neither changes a result."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType


class _NoPandas(MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("a recording process has no use for pandas", name=name)


def settle() -> None:
    """Spare this process, for the rest of its life, what it would pay for again or needlessly.

    pyarrow looks for pandas at its first conversion and imports it, a third of a second, where it is installed. The
    garbage collector walks over everything that loading made, again and again; nothing of that is ever garbage.
    """
    if not any(isinstance(finder, _NoPandas) for finder in sys.meta_path):
        sys.meta_path.insert(0, _NoPandas())
    gc.freeze()
