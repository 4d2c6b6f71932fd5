"""Encode a text segment by segment, where that is proved to give the ids of the whole, and each segment once.

Before anything else the library cuts a text at added tokens: first at those it looks for in the text as it is, then,
after normalising each piece, at those it looks for in normalised text. It handles every piece alone from there on; only
Metaspace's `first` asks whether a piece stands at the start of the text. So a text may be cut beforehand at each added
token that the library is certain to find wherever it is spelled. Which these are is read from the live tokenizer's
state. The rules hold for the version of tokenizers that params.yaml pins.
"""

from __future__ import annotations

import re
import string
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby
from sys import getsizeof
from typing import Any

from tokenizers import Tokenizer
from tokenizers.models import Model

from bellwether.oracles.aside import encode_aside
from bellwether.oracles.beginnings import shared_ends
from bellwether.oracles.tokenizer_state import components, join_state, split_state

CACHE_BYTES = 64 << 20
"""What a cache of segments may take. The segments of 60 long conversations take a third of it."""

MODELS = {"BPE", "Unigram", "WordPiece", "WordLevel"}
COMPONENTS: Mapping[str, tuple[str, set[str]]] = {
    "normalizer": (
        "normalizers",
        {"NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Strip", "StripAccents", "Replace", "Prepend", "Precompiled"}
        | {"BertNormalizer", "Nmt", "ByteLevel"},
    ),
    "pre_tokenizer": (
        "pretokenizers",
        {"ByteLevel", "Split", "Digits", "Metaspace", "Punctuation", "Whitespace", "WhitespaceSplit"}
        | {"BertPreTokenizer", "CharDelimiterSplit", "UnicodeScripts", "FixedLength"},
    ),
    "post_processor": (
        "processors",
        {"ByteLevel", "TemplateProcessing", "RobertaProcessing", "BertProcessing"},
    ),
}
"""Component → key under which a Sequence of it keeps its parts, and the types known to handle every piece alone."""

NO_WORD = set(string.punctuation) - {"_"}
"""Characters that no regular expression dialect counts as part of a word."""


@dataclass(frozen=True, slots=True)
class Proof:
    """Where texts may be cut under one tokenizer."""

    cuts: Mapping[str, int] = field(default_factory=dict)
    """Added token → its id. Empty: texts are encoded whole."""
    kept: Mapping[str, str] = field(default_factory=dict)
    """Added token at which no text is cut → the rule that forbids it."""
    why: str = ""
    """Why texts are encoded whole; empty where they are cut."""
    first: bool = False
    """Whether the piece at the start of a text is handled unlike the others."""

    @property
    def way(self) -> str:
        """How texts are encoded: `segments`, or `whole` and why."""
        return "segments" if self.cuts else f"whole: {self.why}"


def prove(tokenizer: Tokenizer) -> Proof:
    """Return at which added tokens a text may be cut so that the ids of its pieces, joined, are those of the whole."""
    try:
        state = components(tokenizer)
    except Exception:  # the library raises a bare Exception
        return Proof(why="a component is written in Python")
    if tokenizer.encode_special_tokens:  # no state tells which tokens were special once, and for this still are
        return Proof(why="special tokens are encoded like any text")
    tokens = state["added_tokens"]
    if why := _unknown(state, tokenizer.model) or _ambiguous(tokens, tokenizer):
        return Proof(why=why)
    rules = _Rules(state, tokens)
    forbidden = {token["content"]: rules.forbid(token) for token in tokens}
    kept = {content: rule for content, rule in forbidden.items() if rule}
    cuts = {token["content"]: token["id"] for token in tokens if token["content"] not in kept}
    why = "" if cuts else "no added token to cut at"
    return Proof(cuts, kept, why, first=any(_firsts(state["pre_tokenizer"])))


def _unknown(state: Mapping[str, Any], model: Model) -> str | None:
    """Return what makes pieces depend on each other, or might."""
    for name in ("truncation", "padding"):
        if state[name]:
            return f"{name} is set"
    if type(model).__name__ not in MODELS:
        return f"unknown model {type(model).__name__}"
    if getattr(model, "dropout", None):
        return "dropout makes ids random"
    for name, (parts, known) in COMPONENTS.items():
        if unknown := sorted(set(_types(state[name], parts)) - known):
            return f"unknown {name} {unknown[0]}"
    return None


def _types(node: Mapping[str, Any] | None, parts: str) -> Iterator[str]:
    if node is None:
        return
    if node["type"] == "Sequence":
        for part in node[parts]:
            yield from _types(part, parts)
    else:
        yield node["type"]


def _ambiguous(tokens: Sequence[Mapping[str, Any]], tokenizer: Tokenizer) -> str | None:
    """Return what makes it unclear which added token the library finds. For equal forms it varies from load to load."""
    contents = [token["content"] for token in tokens]
    if len(set(contents)) < len(contents):
        return "two added tokens are spelled alike"
    forms = [token["content"] for token in tokens if token["normalized"]]
    if tokenizer.normalizer is not None:
        forms = [tokenizer.normalizer.normalize_str(content) for content in forms]
    if len(set(forms)) < len(forms):
        return "two added tokens are alike once normalised"
    return "an added token is empty" if "" in contents + forms else None


class _Rules:
    """What forbids to cut at an added token, given all of them."""

    def __init__(self, state: Mapping[str, Any], tokens: Sequence[Mapping[str, Any]]) -> None:
        self.normalizes = any(_types(state["normalizer"], "normalizers"))
        self.some_single = any(token["single_word"] for token in tokens)
        self.some_strip = any(token["lstrip"] or token["rstrip"] for token in tokens)
        self.overlaps = overlaps(token["content"] for token in tokens)

    def forbid(self, token: Mapping[str, Any]) -> str | None:
        """Return the rule that forbids to cut at `token`, or None."""
        content = token["content"]
        edges = content[0] + content[-1]
        if token["lstrip"] or token["rstrip"]:
            return "takes spaces beside it"
        if token["single_word"]:
            return "is found between words only"
        if token["normalized"] and self.normalizes:
            return "is looked for in normalised text"
        if self.some_single and not set(edges) <= NO_WORD:
            return "may end the word another token asks for"
        if self.some_strip and any(edge.isspace() for edge in edges):
            return "may be spaces another token takes"
        if content in self.overlaps:
            return f"overlaps {self.overlaps[content]!r}"
        return None


def overlaps(contents: Iterable[str]) -> dict[str, str]:
    """Return content → another content that can share characters of a text with it, for all that have one.

    Where two occurrences overlap the library finds one of them: which one depends on order, flags and length. Being
    part of the other, or ending as the other begins, is all there is.
    """
    contents = list(contents)
    whole, lengths = set(contents), {len(content) for content in contents}
    beginnings: dict[str, list[str]] = {}
    for content in contents:
        for end in range(1, len(content)):
            beginnings.setdefault(content[:end], []).append(content)
    found: dict[str, str] = {}

    def note(one: str, other: str) -> None:
        if one != other:
            found.setdefault(one, other)
            found.setdefault(other, one)

    for content in contents:
        for length in lengths:
            for start in range(len(content) - length + 1):
                if content[start : start + length] in whole:
                    note(content, content[start : start + length])
        for start in range(1, len(content)):
            for other in beginnings.get(content[start:], ()):
                note(content, other)
    return found


def _firsts(node: Any) -> Iterator[dict[str, Any]]:
    """Yield the parts of a pre-tokenizer that handle the start of a text unlike the rest."""
    if node is None:
        return
    if node["type"] == "Sequence":
        for part in node["pretokenizers"]:
            yield from _firsts(part)
    elif node.get("prepend_scheme") == "first":
        yield node


def without_first(tokenizer: Tokenizer) -> Tokenizer:
    """Return a copy that handles a text as if another piece stood before it."""
    state, model = split_state(tokenizer)
    for node in _firsts(state["pre_tokenizer"]):
        node["prepend_scheme"] = "never"
    return join_state(state, model)


Segment = str | tuple[str]
"""A piece of a text; in a tuple when it stands at the start of the text and that makes a difference."""


class SegmentEncoder:
    """Ids of texts under a tokenizer with a proof. Segments met before are not encoded again, within bounded memory."""

    def __init__(self, tokenizer: Tokenizer, proof: Proof, limit: int = CACHE_BYTES) -> None:
        """`proof` must be the one of `tokenizer`, and have cuts. `limit` is in bytes, for all segments kept."""
        self._tokenizer = tokenizer
        self._later = without_first(tokenizer) if proof.first else tokenizer
        self._first = proof.first
        self._cuts = {"": b""} | {content: array("I", [number]).tobytes() for content, number in proof.cuts.items()}
        self._split = re.compile(f"({_any_of(proof.cuts)})").split
        self._last = ""
        """The text before."""
        self._last_segments: list[Segment] = []
        self._last_ends: list[int] = []
        """Where its cuts end, in characters."""
        self._cache: OrderedDict[Segment, bytes] = OrderedDict()
        self._limit = limit
        self.size = 0
        """Bytes the kept segments and their ids take."""
        self.encoded = 0
        """Segments that went through the tokenizer so far."""

    def encode(self, texts: Sequence[str]) -> list[array[int]]:
        """Return the ids of each text, in order."""
        split = [self._segments(text) for text in texts]
        ids: dict[Segment, bytes] = {}
        new: list[Segment] = []
        for segment in dict.fromkeys(chain.from_iterable(split)):
            known = self._cuts.get(segment)
            if known is None and (known := self._cache.get(segment)) is not None:
                self._cache.move_to_end(segment)
            if known is None:
                new.append(segment)
            else:
                ids[segment] = known
        for segment, packed in self._encode(new):
            ids[segment] = packed
            self._keep(segment, packed)
        return [array("I", b"".join([ids[segment] for segment in segments])) for segments in split]

    def _segments(self, text: str) -> list[Segment]:
        """Return the segments of `text`: pieces and cuts in turn, a piece first and last, empty where cuts meet.

        A text mostly begins as the one before it. Up to the last cut they share both are split alike, since no token
        that would reach beyond that cut can share characters with it.
        """
        shared = shared_ends(text, self._last, self._last_ends)
        segments = self._last_segments[: 2 * shared]
        segments += self._split(text[self._last_ends[shared - 1] :] if shared else text)
        if not shared and (len(segments) == 1 or (self._first and segments[0])):
            segments[0] = (segments[0],)
        ends = self._last_ends[:shared]
        end = ends[-1] if ends else 0
        for place in range(2 * shared, len(segments) - 1, 2):
            piece, cut = segments[place : place + 2]
            end += len(piece if isinstance(piece, str) else piece[0]) + len(cut)
            ends.append(end)
        self._last, self._last_segments, self._last_ends = text, segments, ends
        return segments

    def _encode(self, segments: list[Segment]) -> Iterator[tuple[Segment, bytes]]:
        self.encoded += len(segments)
        starts = [segment for segment in segments if isinstance(segment, tuple)]
        others = [segment for segment in segments if isinstance(segment, str)]
        if starts:
            yield from zip(starts, encode_aside(self._tokenizer, [text for (text,) in starts]), strict=True)
        if others:
            yield from zip(others, encode_aside(self._later, others), strict=True)

    def _keep(self, segment: Segment, packed: bytes) -> None:
        self._cache[segment] = packed
        self.size += _bytes(segment, packed)
        while self.size > self._limit:
            self.size -= _bytes(*self._cache.popitem(last=False))


def _bytes(segment: Segment, packed: bytes) -> int:
    text = segment if isinstance(segment, str) else segment[0]
    return getsizeof(text) + getsizeof(packed) + 200  # an entry of an ordered dictionary, roughly


def _any_of(contents: Iterable[str]) -> str:
    """Return a pattern for any of `contents`, none of which begins another; thousands that begin alike stay cheap."""
    alternatives = []
    for _, alike in groupby(sorted(contents), key=lambda content: content[:1]):
        group = list(alike)
        if len(group) == 1:
            alternatives.append(re.escape(group[0]))
            continue
        pairs = enumerate(zip(group[0], group[-1], strict=False))  # the outermost of a sorted group share the least
        shared = next(place for place, (one, other) in pairs if one != other)
        rest = [content[shared:] for content in group]
        alternatives.append(f"{re.escape(group[0][:shared])}(?:{_any_of(rest)})")
    return "|".join(alternatives)
