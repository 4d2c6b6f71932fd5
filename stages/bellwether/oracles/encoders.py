"""Text ↔ ids. A checkpoint has up to two encoders, and they differ for some: both are recorded.

`tokenizer.json` itself is one; the tokenizer class transformers builds from the same folder is the other, and it may
bring its own normalizer or pre-tokenizer. Where their states prove equal ids, one encode serves both and rows say
`both`.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

UNICODE_FORMS = {"NFC", "NFD", "NFKC", "NFKD"}


@dataclass(frozen=True, slots=True, eq=False)
class Encoder:
    """One way from text to ids and back. Special tokens are read where the text spells them, and never added."""

    name: str
    """`both`, `tokenizer.json` or `class`."""
    tokenizer: Tokenizer

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text, in order. Leaving offsets out saves a quarter of the time."""
        encodings = self.tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return ids and, per id, its start and end in characters of `text`."""
        encoding = self.tokenizer.encode(text, add_special_tokens=False)
        return encoding.ids, encoding.offsets

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of `ids`, special tokens kept."""
        return self.tokenizer.decode(list(ids), skip_special_tokens=False)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return what an incremental decoder emits after each id, `""` while a character is incomplete.

        One piece per id. The stream starts empty: it is not primed with the prompt.
        """
        stream = DecodeStream(skip_special_tokens=False)
        return [stream.step(self.tokenizer, token_id) or "" for token_id in ids]


def load_encoders(folder: Path, of_class: Tokenizer) -> tuple[Encoder, ...]:
    """Return the encoders of a snapshot: one named `both` when their states prove equal ids, else class and file.

    `of_class` is the tokenizer inside transformers' class. Without a tokenizer.json there is only the class.
    """
    file = folder / "tokenizer.json"
    if not file.is_file():
        return (Encoder("class", of_class),)
    of_file = Tokenizer.from_file(str(file))
    if of_class.to_str() == of_file.to_str() or encoding_state(of_class) == encoding_state(of_file):
        return (Encoder("both", of_class),)
    return (Encoder("class", of_class), Encoder("tokenizer.json", of_file))


def encoding_state(tokenizer: Tokenizer) -> tuple[Any, str]:
    """Return what of a tokenizer's state can change ids or decoded text: its components, and the model's JSON text.

    Left out: `trim_offsets`, which moves offsets only; the post-processor, which adds special tokens nobody asks for;
    and the arguments of a ByteLevel decoder, which it ignores.
    """
    state, model = _split(tokenizer)
    state.pop("post_processor")
    if (state["decoder"] or {}).get("type") == "ByteLevel":
        state["decoder"] = "ByteLevel"
    state["pre_tokenizer"] = _without_offsets(state["pre_tokenizer"])
    return state, model


MODEL_KEY = ',"model":'


def _split(tokenizer: Tokenizer) -> tuple[dict[str, Any], str]:
    """Return a tokenizer's components as JSON values, and its model as unparsed JSON text.

    A vocabulary and its merges take hundreds of megabytes as Python objects. No JSON string can hold the quotes of the
    key the text is cut at, and the model comes last.
    """
    components, _, model = tokenizer.to_str().partition(MODEL_KEY)
    return json.loads(components + "}"), model


def _without_offsets(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _without_offsets(value) for key, value in node.items() if key != "trim_offsets"}
    return [_without_offsets(item) for item in node] if isinstance(node, list) else node


@functools.cache
def without_unicode_forms(encoder: Encoder) -> Encoder | None:
    """Return a copy whose normalizer lacks NFC, NFD, NFKC and NFKD, or None when it has none of them.

    Prompts are normalised before the model sees them; what a model writes is not.
    """
    state, model = _split(encoder.tokenizer)
    normalizer = state["normalizer"]
    if normalizer is None:
        return None
    parts = normalizer["normalizers"] if normalizer["type"] == "Sequence" else [normalizer]
    kept = [part for part in parts if part["type"] not in UNICODE_FORMS]
    if len(kept) == len(parts):
        return None
    state["normalizer"] = {"type": "Sequence", "normalizers": kept} if kept else None
    return Encoder(encoder.name, Tokenizer.from_str(json.dumps(state)[:-1] + MODEL_KEY + model))
