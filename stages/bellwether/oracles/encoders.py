"""Text ↔ ids. A checkpoint has up to two encoders, and they differ for some: both are recorded.

`tokenizer.json` itself is one; the tokenizer class transformers builds from the same folder is the other, and it may
bring its own normalizer or pre-tokenizer. Where their states prove equal ids, one encode serves both and rows say
`both`.
"""

from __future__ import annotations

import functools
from array import array
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from bellwether.errors import OracleError
from bellwether.oracles.aside import encode_aside
from bellwether.oracles.segments import Proof, SegmentEncoder, prove
from bellwether.oracles.tokenizer_state import join_state, split_printed, split_state

UNICODE_FORMS = {"NFC", "NFD", "NFKC", "NFKD"}
GUARD_EVERY = 50
"""Of texts encoded by segments, every so many-th is also encoded whole, beside those the caller names; where he names
none, the first and last of a call."""


@dataclass(frozen=True, eq=False)
class Encoder:
    """One way from text to ids and back. Special tokens are read where the text spells them, and never added."""

    name: str
    """`both`, `tokenizer.json` or `class`."""
    tokenizer: Tokenizer

    def encode(self, texts: Sequence[str], names: Sequence[str] = ()) -> list[list[int]]:
        """Return the ids of each text, in order. Otherwise as `encode_packed`."""
        return [ids.tolist() for ids in self.encode_packed(texts, names)]

    def encode_packed(
        self, texts: Sequence[str], names: Sequence[str] = (), ends: Collection[int] | None = None
    ) -> list[array[int]]:
        """Return the ids of each text, in order, as u32 arrays: ten thousand ids travel as one block of bytes.

        Where it is proved exact each text is encoded by segments, and those met before are not encoded again; some
        texts are encoded whole as well, to compare: every fiftieth, and those at the places `ends`, by default the
        first and last of several. `names` say whose texts they are, for the message of an error.

        Raises:
            OracleError: segments gave other ids than the whole text.
        """
        if self._segments is None:
            return [array("I", packed) for packed in encode_aside(self.tokenizer, texts)]
        ids = self._segments.encode(texts)
        self._compare_some(texts, ids, names, ends)
        return ids

    @functools.cached_property
    def proof(self) -> Proof:
        """Where texts may be cut."""
        return prove(self.tokenizer)

    @functools.cached_property
    def _segments(self) -> SegmentEncoder | None:
        return SegmentEncoder(self.tokenizer, self.proof) if self.proof.cuts else None

    @functools.cached_property
    def _seen(self) -> Iterator[int]:
        return count()

    def _compare_some(
        self, texts: Sequence[str], ids: Sequence[array[int]], names: Sequence[str], ends: Collection[int] | None
    ) -> None:
        if ends is None:
            ends = (0, len(texts) - 1) if len(texts) > 1 else ()  # single texts come one by one, and often
        places = [place for place in range(len(texts)) if next(self._seen) % GUARD_EVERY == 0 or place in ends]
        whole = encode_aside(self.tokenizer, [texts[place] for place in places]) if places else []
        for place, packed in zip(places, whole, strict=True):
            if ids[place].tobytes() != packed:
                name = names[place] if names else f"text {place + 1} of {len(texts)}"
                raise _differs(self, name, texts[place], ids[place])

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


def _differs(encoder: Encoder, name: str, text: str, ids: Sequence[int]) -> OracleError:
    whole, offsets = encoder.encode_with_offsets(text)
    first = next((place for place, pair in enumerate(zip(ids, whole, strict=False)) if pair[0] != pair[1]), None)
    if first is None:
        first = min(len(ids), len(whole))
    character = offsets[first][0] if first < len(offsets) else len(text)
    return OracleError(
        f"{name}: encoder {encoder.name} gives other ids by segments than for the whole text, from id {first} "
        f"(character {character}: {text[character : character + 40]!r})",
        next_step="A rule in oracles/segments.py does not hold for this tokenizer; nothing was written.",
    )


def load_encoders(folder: Path, of_class: Tokenizer) -> tuple[Encoder, ...]:
    """Return the encoders of a snapshot: one named `both` when their states prove equal ids, else class and file.

    `of_class` is the tokenizer inside transformers' class. Without a tokenizer.json there is only the class.
    """
    file = folder / "tokenizer.json"
    if not file.is_file():
        return (Encoder("class", of_class),)
    if _printed_alike(of_class.to_str(pretty=True), file.read_text("utf-8")):  # spares loading the file
        return (Encoder("both", of_class),)
    of_file = Tokenizer.from_file(str(file))
    if encoding_state(of_class) == encoding_state(of_file):
        return (Encoder("both", of_class),)
    return (Encoder("class", of_class), Encoder("tokenizer.json", of_file))


def encoding_state(tokenizer: Tokenizer) -> tuple[Any, str]:
    """Return what of a tokenizer's state can change ids or decoded text: its components, and the model's JSON text.

    Left out: `trim_offsets`, which moves offsets only; the post-processor, which adds special tokens nobody asks for;
    and the arguments of a ByteLevel decoder, which it ignores.
    """
    return _encoding_part(*split_state(tokenizer))


def _printed_alike(state: str, file: str) -> bool:
    """Return whether a printed state and a tokenizer.json are the same in all that `encoding_state` keeps."""
    try:
        return _encoding_part(*split_printed(state)) == _encoding_part(*split_printed(file))
    except (ValueError, KeyError):  # the file is printed in another way, or leaves something out
        return False


def _encoding_part(state: dict[str, Any], model: str) -> tuple[Any, str]:
    state.pop("post_processor")
    if (state["decoder"] or {}).get("type") == "ByteLevel":
        state["decoder"] = "ByteLevel"
    state["pre_tokenizer"] = _without_offsets(state["pre_tokenizer"])
    return state, model


def _without_offsets(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _without_offsets(value) for key, value in node.items() if key != "trim_offsets"}
    return [_without_offsets(item) for item in node] if isinstance(node, list) else node


@functools.cache
def without_unicode_forms(encoder: Encoder) -> Encoder | None:
    """Return a copy whose normalizer lacks NFC, NFD, NFKC and NFKD, or None when it has none of them.

    Prompts are normalised before the model sees them; what a model writes is not.
    """
    state, model = split_state(encoder.tokenizer)
    normalizer = state["normalizer"]
    if normalizer is None:
        return None
    parts = normalizer["normalizers"] if normalizer["type"] == "Sequence" else [normalizer]
    kept = [part for part in parts if part["type"] not in UNICODE_FORMS]
    if len(kept) == len(parts):
        return None
    state["normalizer"] = {"type": "Sequence", "normalizers": kept} if kept else None
    return Encoder(encoder.name, join_state(state, model))
