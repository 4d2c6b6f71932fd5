"""What the engine says of the checkpoint it serves, and its tokenizer where a folder has one. No weights are read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from bellwether.errors import EngineError
from bellwether.gateways.answer import Served

if TYPE_CHECKING:
    from tokenizers import Tokenizer

WINDOW = 1 << 20
"""Context length told to gateways: no prompt is refused for its length, which is no question of rendering."""


@dataclass(frozen=True)
class Checkpoint:
    """A served checkpoint with what its folder adds."""

    served: Served

    @cached_property
    def config(self) -> dict[str, Any]:
        """config.json; empty when there is none. Raises EngineError when it is no JSON."""
        path = self.served.folder / "config.json"
        if not path.is_file():
            return {}
        try:
            config = json.loads(path.read_bytes())
        except ValueError as error:
            raise EngineError(f"{path}: {error}", next_step="Mend the file, or remove it.") from None
        return config if isinstance(config, dict) else {}

    @cached_property
    def tokenizer(self) -> Tokenizer | None:
        """The tokenizer of tokenizer.json; None when there is none. Loading takes up to a second.

        Raises EngineError when it is no tokenizer.
        """
        from tokenizers import Tokenizer

        path = self.served.folder / "tokenizer.json"
        if not path.is_file():
            return None
        try:
            return Tokenizer.from_file(str(path))
        except Exception as error:  # what the library raises is a bare Exception
            raise EngineError(f"{path}: {error}", next_step="Mend the file, or remove it.") from None

    @cached_property
    def facts(self) -> dict[str, Any]:
        """Fields of GetModelInfo under the names all wires share; a wire takes those it has."""
        folder = str(self.served.folder)
        return {
            "model_path": folder,
            "tokenizer_path": folder,
            "served_model_name": self.served.model,
            "is_generation": True,
            "max_context_length": WINDOW,
            "max_req_input_len": WINDOW,
            "vocab_size": self.served.vocabulary_size,
            "model_type": self._text("model_type"),
            "architectures": [name for name in self.config.get("architectures") or () if isinstance(name, str)],
            "eos_token_ids": list(self.served.eos_ids),
            "bos_token_id": self._id("bos_token_id"),
            "pad_token_id": self._id("pad_token_id"),
        }

    def load(self) -> None:
        """Read all there is. Raises EngineError."""
        _ = self.facts, self.tokenizer

    def _text(self, key: str) -> str:
        value = self.config.get(key)
        return value if isinstance(value, str) else ""

    def _id(self, key: str) -> int:
        value = self.config.get(key)
        return value if type(value) is int and 0 <= value < 1 << 31 else 0
