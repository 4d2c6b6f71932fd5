"""Byte-level BPE: tiktoken ranks → tokenizer.json.

Several checkpoints ship only tiktoken ranks, or their tokenizer.json is on no package registry while its ranks are. The
ranks determine the ids; this module writes them into the container the tokenizers library reads.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Iterable, Sequence

from bellwether.materials.varint import read_varint

CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
QWEN35 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
KIMI = (
    r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
PATTERNS = {"cl100k": CL100K, "qwen35": QWEN35, "kimi": KIMI}
"""Name → the regular expression that cuts text before BPE, as the tokenizers library takes it."""

PACKED_MAGIC = b"SPLNTRV1"


def _byte_alphabet() -> list[str]:
    """Return byte → character: GPT-2's reversible, printable alphabet."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (chr(0x100 + place) for place in range(256))
    return [chr(byte) if byte in printable else next(others) for byte in range(256)]


ALPHABET = _byte_alphabet()


def spell(token: bytes) -> str:
    """Return a token's bytes in the byte-level alphabet."""
    return "".join(map(ALPHABET.__getitem__, token))


def unpack_ranks(binary: bytes, count: int) -> bytes:
    """Return the tiktoken file of the packed vocabulary with `count` entries inside an extension module's data.

    Layout: the magic, `count` as little-endian u32, then per token its rank and its length as varints, and its bytes.
    The module is read as data; loading it would run a stranger's machine code.

    Raises:
        ValueError: there is no such vocabulary, or it ends early.
    """
    start = binary.find(PACKED_MAGIC + struct.pack("<I", count))
    if start < 0:
        raise ValueError(f"no packed vocabulary of {count:,} entries")
    place = start + len(PACKED_MAGIC) + 4
    lines = []
    try:
        for _ in range(count):
            rank, place = read_varint(binary, place)
            length, place = read_varint(binary, place)
            token = binary[place : place + length]
            if len(token) < length:
                raise IndexError  # a slice past the end is short, and says nothing
            lines.append(b"%s %d\n" % (base64.b64encode(token), rank))
            place += length
    except IndexError:
        raise ValueError(f"the packed vocabulary ends after {len(lines):,} of {count:,} entries") from None
    return b"".join(lines)


def read_ranks(tiktoken: bytes) -> dict[bytes, int]:
    """Return token bytes → rank, in file order.

    Raises:
        ValueError: a line is not `base64 rank`.
    """
    ranks = {}
    for number, line in enumerate(tiktoken.split(b"\n"), start=1):
        if not line:
            continue
        try:
            token, rank = line.split(b" ")
            ranks[base64.b64decode(token, validate=True)] = int(rank)
        except (ValueError, binascii.Error):
            raise ValueError(f"line {number} of the ranks is {line[:40]!r}, not 'base64 rank'") from None
    return ranks


def all_merges(ranks: dict[bytes, int]) -> list[list[str]]:
    """Return every split of every token into two tokens, as `[left, right]` in the byte-level alphabet.

    Ordered by the rank of the joined token, then of the left, then of the right half: a BPE that applies the first
    merge it can then reproduces tiktoken's choice of the lowest joined rank.
    """
    spelled = {token: spell(token) for token in ranks}
    merges = []
    for token in sorted((token for token in ranks if len(token) > 1), key=ranks.__getitem__):
        splits = []
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in ranks and right in ranks:
                splits.append((ranks[left], ranks[right], left, right))
        splits.sort()
        merges += [[spelled[left], spelled[right]] for _, _, left, right in splits]
    return merges


def one_merge_each(ranks: dict[bytes, int]) -> list[list[str]]:
    """Return the merge that makes each token of the two tokens it was learnt from, in file order.

    They are the two parts left when the token's own bytes are merged by lower ranks only. Tokens that end in more parts
    have none. That is how a list of merges was first written out for the ranks of OpenAI's vocabularies.
    """
    spelled = {token: spell(token) for token in ranks}
    merges = []
    for token, rank in ranks.items():
        if len(token) > 1 and len(parts := _merged_below(token, ranks, rank)) == 2:
            merges.append([spelled[parts[0]], spelled[parts[1]]])
    return merges


def _merged_below(token: bytes, ranks: dict[bytes, int], limit: int) -> list[bytes]:
    """Merge the bytes of `token` by ranks below `limit`: the lowest rank first, the leftmost pair among equals."""
    parts = [token[place : place + 1] for place in range(len(token))]
    while len(parts) > 2:
        best, at = limit, -1
        for place in range(len(parts) - 1):
            if (rank := ranks.get(parts[place] + parts[place + 1], limit)) < best:
                best, at = rank, place
        if at < 0:
            break
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts


MERGES = {"all": all_merges, "one": one_merge_each}
"""Name → how ranks become a list of merges."""


def merges_txt(merges: Iterable[Sequence[str]]) -> str:
    """Return merges.txt with its version line."""
    return "#version: 0.2\n" + "".join(f"{left} {right}\n" for left, right in merges)


def added_token(token_id: int, content: str, special: bool) -> dict:
    """Return the entry of an added token that is found wherever its text stands, before anything is normalised."""
    return {
        "id": token_id,
        "content": content,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": special,
    }


def tokenizer_json(
    ranks: dict[bytes, int],
    *,
    pattern: str,
    normalizer: str | None,
    ignore_merges: bool,
    added_tokens: Iterable[Sequence],
    merges: str = "all",
) -> dict:
    """Return the tokenizer.json object of a byte-level BPE.

    `added_tokens` are `(id, content, special)` in id order. `ignore_merges` takes a piece that is itself a token whole,
    which is what tiktoken does. `merges` is a name of MERGES.
    """
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [added_token(*token) for token in added_tokens],
        "normalizer": None if normalizer is None else {"type": normalizer},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "post_processor": byte_level,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": ignore_merges,
            "vocab": {spell(token): rank for token, rank in ranks.items()},
            "merges": MERGES[merges](ranks),
        },
    }
