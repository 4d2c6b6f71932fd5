"""SentencePiece models, small ones written here byte by byte, and the one whose tokenizer.json is published."""

from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from bellwether.materials import sentencepiece
from bellwether.materials.sentencepiece import BYTE, CONTROL, NORMAL, UNKNOWN, Piece, read_pieces


def varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def model_bytes(*pieces: Piece, trainer: bytes = b"\x08\x01") -> bytes:
    """A model as the format's schema says: field 1 per piece, then the trainer's and the normaliser's settings."""
    out = b""
    for piece in pieces:
        text = piece.text.encode()
        body = b"\x0a" + varint(len(text)) + text + b"\x15" + struct.pack("<f", piece.score)
        if piece.kind != NORMAL:  # the schema's default
            body += b"\x18" + varint(piece.kind)
        out += b"\x0a" + varint(len(body)) + body
    return out + b"\x12" + varint(len(trainer)) + trainer + b"\x1a\x02\x28\x00"


PIECES = (
    Piece("<unk>", 0.0, UNKNOWN),
    Piece("<s>", 0.0, CONTROL),
    Piece("</s>", 0.0, CONTROL),
    Piece("<0x0A>", 0.0, BYTE),
    Piece("▁ab", -1.0, NORMAL),
    Piece("ab", -0.0, NORMAL),
    Piece("▁a", -2.0, NORMAL),
    Piece("▁", -3.0, NORMAL),
    Piece("a", -4.0, NORMAL),
    Piece("b", -5.0, NORMAL),
)
MODEL = model_bytes(*PIECES)


def test_pieces_come_out_in_id_order():
    """Text, score and type; a type that is left out is a normal piece."""
    assert read_pieces(MODEL) == list(PIECES)


@given(
    st.lists(
        st.tuples(st.text(max_size=200), st.floats(width=32, allow_nan=False), st.sampled_from([1, 2, 3, 4, 5, 6])),
        min_size=1,
        max_size=8,
    )
)
def test_any_pieces_come_back(rows: list[tuple[str, float, int]]):
    """Lengths above 127 need two bytes; scores are single floats."""
    pieces = [Piece(*row) for row in rows]
    assert read_pieces(model_bytes(*pieces, trainer=bytes(300))) == pieces


def test_merges_are_ordered_by_score_then_by_the_ids_of_the_halves():
    """Best whole first; `▁ab` can be made in two ways, of which `▁` + `ab` has the higher id on the left."""
    assert sentencepiece.merges(list(PIECES)) == [("a", "b"), ("▁a", "b"), ("▁", "ab"), ("▁", "a")]


def test_byte_pieces_are_no_merges():
    """`<0x0A>` is a name, even where its letters are pieces."""
    pieces = [Piece("<0x0A>", 0.0, BYTE), Piece("<", 0.0, NORMAL), Piece("0x0A>", 0.0, NORMAL)]
    assert sentencepiece.merges(pieces) == []


def test_the_container_by_hand():
    """Keys and their order are those of the file that Mistral-7B-Instruct-v0.3 ships."""
    made = sentencepiece.tokenizer_json(MODEL)
    assert list(made) == [
        *("version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor"),
        *("decoder", "model"),
    ]
    assert [(token["id"], token["content"]) for token in made["added_tokens"]] == [
        (0, "<unk>"),
        (1, "<s>"),
        (2, "</s>"),
    ]
    assert made["post_processor"]["special_tokens"] == {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}
    assert made["model"]["vocab"] == {piece.text: place for place, piece in enumerate(PIECES)}
    assert made["model"]["merges"] == ["a b", "▁a b", "▁ ab", "▁ a"]


def test_the_container_loads_and_encodes():
    """A space is put before the text, a byte outside the vocabulary becomes its byte piece."""
    made = Tokenizer.from_str(json.dumps(sentencepiece.tokenizer_json(MODEL)))
    assert made.encode("ab a\n").ids == [1, 4, 6, 3]
    assert made.decode([4, 6, 3]) == "ab a\n"


@pytest.mark.parametrize("length", range(1, len(MODEL)))
def test_a_cut_model_is_a_value_error_or_a_shorter_vocabulary(length: int):
    """Cut between two fields, a message is whole; anywhere else it is refused."""
    try:
        pieces = read_pieces(MODEL[:length])
    except ValueError:
        return
    assert pieces == list(PIECES)[: len(pieces)]


@pytest.mark.parametrize("data", [b"", b"\x12\x00", b"<html>502</html>", b"\x0b", b"\x0a\x00", bytes(9)])
def test_what_is_no_model_is_refused(data: bytes):
    """Empty, no piece, an error page, an unknown wire type, an empty piece, zeros."""
    with pytest.raises((ValueError, KeyError, struct.error)):  # `transforms.apply` makes one sentence of them
        read_pieces(data)
