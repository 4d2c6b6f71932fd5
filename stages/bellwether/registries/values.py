"""What a registry holds, as values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from bellwether.errors import RegistryError

KINDS = ("tool", "reasoning", "renderer", "tokenizer")
"""The kinds of parts an engine registers by name."""


def normal(name: str) -> str:
    """Return a name without what systems spell in their own ways: lower case, letters and digits only."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


Files = Mapping[str, str]
"""Path inside the package → text, as `sources.read_files` gives them."""


def text_of(files: Files, path: str) -> str:
    """Return the text of one registry file. Raises RegistryError when it is not among them."""
    if path not in files:
        raise RegistryError(f"{path} is not among the registry files", next_step="Add it to fixtures/registries.toml.")
    return files[path]


@dataclass(frozen=True, slots=True)
class Entry:
    """One registered name, and what implements it."""

    kind: str
    """One of KINDS."""
    name: str
    """What the engine's user writes, e.g. after `--tool-call-parser`."""
    module: str
    """Dotted path of the module that holds the implementation."""
    cls: str
    """Name of the implementing class in `module`."""


@dataclass(frozen=True, slots=True)
class Named:
    """One checkpoint an engine names."""

    model: str
    """Repository name on the Hub, `owner/name`."""
    revision: str | None = None
    """Commit, branch or pull request the engine asks for; None for the default branch."""
    draft: bool = False
    """Whether it proposes tokens for the checkpoint named before it, and writes no messages itself."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """One model architecture an engine knows, with the checkpoints it names for it."""

    name: str
    section: str
    """Where the engine lists it: text, multimodal, pooling, draft, backend or unsorted."""
    checkpoints: tuple[Named, ...] = ()
    """In the engine's order; empty where it names none."""
