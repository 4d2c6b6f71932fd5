"""A SentencePiece BPE model → tokenizer.json.

The model file is protocol buffers of a fixed, small schema: pieces with their scores. It is read here as data, so
neither the SentencePiece library nor a protobuf runtime is needed.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from bellwether.materials.bpe import added_token
from bellwether.materials.varint import read_varint

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
"""Types of a piece."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One entry of the vocabulary; its place is its id."""

    text: str
    score: float
    kind: int


def read_pieces(model: bytes) -> list[Piece]:
    """Return the pieces of a SentencePiece model in id order.

    Raises:
        ValueError: the bytes end early, are no such model, or hold no piece.
    """
    pieces = []
    for number, value in _fields(model):
        if number == 1 and isinstance(value, bytes):
            piece = dict(_fields(value))
            pieces.append(Piece(piece[1].decode(), struct.unpack("<f", piece[2])[0], piece.get(3, NORMAL)))
    if not pieces:
        raise ValueError("no piece in the SentencePiece model")
    return pieces


def _fields(message: bytes) -> list[tuple[int, int | bytes]]:
    """Return (field number, value) of a protocol buffer message: numbers, and the bytes of everything else."""
    fields, place = [], 0
    try:
        while place < len(message):
            key, place = read_varint(message, place)
            number, wire = key >> 3, key & 7
            if wire == 0:
                value, place = read_varint(message, place)
            else:
                size = {1: 8, 5: 4}.get(wire)
                if size is None:
                    if wire != 2:
                        raise ValueError(f"no SentencePiece model: wire type {wire}")
                    size, place = read_varint(message, place)
                value = message[place : place + size]
                place += size
            fields.append((number, value))
    except IndexError:
        place = len(message) + 1
    if place > len(message):
        raise ValueError("the SentencePiece model ends early")
    return fields


def merges(pieces: list[Piece]) -> list[tuple[str, str]]:
    """Return every split of every piece into two pieces, best score of the whole first, then by the ids of the halves.

    SentencePiece joins the two neighbours whose joined piece has the best score.
    """
    ids = {piece.text: place for place, piece in enumerate(pieces)}
    found = []
    for piece in pieces:
        if piece.kind == BYTE:
            continue
        for cut in range(1, len(piece.text)):
            left, right = piece.text[:cut], piece.text[cut:]
            if left in ids and right in ids:
                found.append((-piece.score, ids[piece.text], ids[left], ids[right], left, right))
    return [(left, right) for *_, left, right in sorted(found)]


def tokenizer_json(model: bytes) -> dict:
    """Return the tokenizer.json object of a Mistral checkpoint's tokenizer.model.

    Key order, and merges as `"a b"`, follow the file Mistral-7B-Instruct-v0.3 ships, whose sha256 the result reaches.
    """
    pieces = read_pieces(model)
    added = [
        added_token(place, piece.text, special=True)
        for place, piece in enumerate(pieces)
        if piece.kind in (UNKNOWN, CONTROL, USER_DEFINED)
    ]
    bos = next(token for token in added if token["content"] == "<s>")
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False},
        "post_processor": begins_with(bos["content"], bos["id"]),
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": "<unk>",
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": {piece.text: place for place, piece in enumerate(pieces)},
            "merges": [f"{left} {right}" for left, right in merges(pieces)],
        },
    }


def begins_with(content: str, token_id: int) -> dict:
    """Return the post-processor that puts one token before every text."""
    first, second = {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}
    start, restart = ({"SpecialToken": {"id": content, "type_id": number}} for number in (0, 1))
    return {
        "type": "TemplateProcessing",
        "single": [start, first],
        "pair": [start, first, restart, second],
        "special_tokens": {content: {"id": content, "ids": [token_id], "tokens": [content]}},
    }
