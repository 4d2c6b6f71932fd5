"""The value types that travel from an importer to a recorder: `Case`, `Origin`, and what an importer left out.

A case is one request or one engine output with all that reproduces it. JSON inside a case is *text*, because key order,
`1` against `1.0` and escapes are data: whoever needs the value parses it, nobody re-serialises it.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass

KINDS = ("render", "parse", "tokenize", "detokenize")
NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*\Z")


def json_text(value: object) -> str:
    """Return `value` as one line of JSON: compact separators, non-ASCII raw, keys in the order they have.

    Raises:
        ValueError: `value` holds NaN or an infinity, which JSON cannot say.
    """
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def sha256_text(text: str) -> str:
    """Return the sha256 of `text` in UTF-8, as 64 hex digits. Lone surrogates are kept by `surrogatepass`."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a case comes from. One origin serves many cases; it is stored once and referred to by `origin_id`."""

    dataset: str
    """Short name of the dataset, e.g. `bfcl`."""
    source: str
    """`pypi:name==version`, `github:owner/repo@sha`, `hf:datasets/owner/name@sha`, `handmade`, `derived` or
    `generated`."""
    file: str
    """Path of the file inside the source."""
    sha256: str
    """sha256 of that file's bytes; empty for hand-written files, whose bytes Git keeps."""
    license: str
    """SPDX identifier of the data's licence."""

    @property
    def origin_id(self) -> str:
        """Key of the origin in every table: the file inside its source."""
        return f"{self.source}#{self.file}"


@dataclass(frozen=True, slots=True)
class Case:
    """One case. Exactly the fields its kind needs are set, the others are None."""

    kind: str
    """`render`, `parse`, `tokenize` or `detokenize`."""
    set: str
    """Name of the set, `[a-z0-9-]+`; `common` or `<dataset>-<part>`."""
    name: str
    """Name of the case, unique per kind over all sets of all corpora."""
    origin: Origin
    row: str
    """Identifier of the row in the origin's file."""
    written: tuple[str, ...] = ()
    """What the importer invented, as opposed to took over."""
    notes: str = ""
    """For people: the one thing the case probes."""
    request: str | None = None
    """render, parse: OpenAI chat body without `model`, as JSON text in the order of its keys."""
    message: str | None = None
    """parse: the assistant message the output stands for, as JSON text. None when `malformed`."""
    text: str | None = None
    """tokenize, detokenize: the text. parse: the engine's output, only when `malformed`."""
    ids: tuple[int, ...] | None = None
    """detokenize: output ids of one vocabulary, instead of `text`."""
    requires: str | None = None
    """sha256 of the only tokenizer.json for which `ids` mean something; None when the case serves every checkpoint."""
    malformed: bool = False
    """parse: no template writes this output, so what a server makes of it is policy, not truth."""
    parts: tuple[tuple[Origin, str], ...] = ()
    """Origin and row of each case a derived case is put together from."""

    @property
    def case_id(self) -> str:
        """`kind/set/name`, the identity of the case in every table."""
        return f"{self.kind}/{self.set}/{self.name}"


@dataclass(frozen=True, slots=True)
class Repeat:
    """A case an importer dropped because an earlier one says the same, key order included."""

    kind: str
    set: str
    name: str
    repeats: str
    """`case_id` of the case that stays."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A dataset row an importer could make no case of."""

    kind: str
    set: str
    row: str
    reason: str
