"""Packed vocabularies, tiktoken ranks, and the tokenizer.json made of them."""

from __future__ import annotations

import json
import struct
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.pre_tokenizers import ByteLevel, Split

from bellwether.materials import bpe

PACKED = b"SPLNTRV1" + struct.pack("<I", 3) + b"\x00\x01a" + b"\x01\x01b" + b"\xac\x02\x02ab"
"""Rank 0 'a', rank 1 'b', rank 300 (varint AC 02) 'ab'."""
TIKTOKEN = b"YQ== 0\nYg== 1\nYWI= 300\n"

WHOLE = r"[\s\S]+"
"""A pattern that cuts nothing: the whole text is one piece."""


def ranks_of(*tokens: bytes) -> dict[bytes, int]:
    return {token: rank for rank, token in enumerate(tokens)}


def tokenizer(ranks: dict[bytes, int], pattern: str = WHOLE, **options) -> Tokenizer:
    options = {"normalizer": None, "ignore_merges": True, "added_tokens": ()} | options
    return Tokenizer.from_str(json.dumps(bpe.tokenizer_json(ranks, pattern=pattern, **options)))


def by_lowest_joined_rank(piece: bytes, ranks: dict[bytes, int]) -> list[int]:
    """Reference BPE, as tiktoken defines it: take a token whole, else join the neighbours of the lowest joined rank."""
    if piece in ranks:
        return [ranks[piece]]
    parts = [bytes([byte]) for byte in piece]
    while True:
        joined = [ranks.get(left + right, len(ranks)) for left, right in pairwise(parts)]
        if not joined or min(joined) == len(ranks):
            return [ranks[part] for part in parts]
        place = joined.index(min(joined))
        parts[place : place + 2] = [parts[place] + parts[place + 1]]


# Packed vocabularies


def test_a_packed_vocabulary_becomes_a_tiktoken_file():
    """Varints are little-endian groups of seven bits; order and ranks are those of the pack."""
    assert bpe.unpack_ranks(PACKED, 3) == TIKTOKEN


def test_a_packed_vocabulary_is_found_inside_other_data():
    """It stands somewhere in an extension module, beside others of another length."""
    other = b"SPLNTRV1" + struct.pack("<I", 1) + b"\x05\x01z"
    binary = b"\x7fELF" + bytes(50) + other + b"SPLNTRV1" + PACKED + b"trailing"
    assert bpe.unpack_ranks(binary, 3) == TIKTOKEN
    assert bpe.unpack_ranks(binary, 1) == b"eg== 5\n"


@pytest.mark.parametrize("length", range(12, len(PACKED)))
def test_a_truncated_packed_vocabulary_is_refused(length: int):
    """Wherever the cut is: between tokens, inside a varint, or inside the bytes of any token, the last one too."""
    done = sum(length >= end for end in (15, 18))
    with pytest.raises(ValueError, match=f"the packed vocabulary ends after {done} of 3 entries"):
        bpe.unpack_ranks(PACKED[:length], 3)


@pytest.mark.parametrize("binary", [b"", PACKED[:11], b"SPLNTRV2" + PACKED[8:], b"nothing of the kind"])
def test_a_binary_without_that_vocabulary_is_refused(binary: bytes):
    """No magic, or no whole header."""
    with pytest.raises(ValueError, match="no packed vocabulary of 3 entries"):
        bpe.unpack_ranks(binary, 3)


def test_the_count_tells_vocabularies_apart():
    """The module holds many; asking for a count that none has is an error."""
    with pytest.raises(ValueError, match="no packed vocabulary of 151,329 entries"):
        bpe.unpack_ranks(PACKED, 151_329)


ROWS = st.tuples(st.integers(0, 2**40), st.binary(min_size=1, max_size=300))


@settings(deadline=None)
@given(st.lists(ROWS, unique_by=lambda row: row[1]))
def test_any_vocabulary_survives_packing_and_unpacking(rows: list[tuple[int, bytes]]):
    """Ranks need not be dense, tokens may be longer than 127 bytes."""

    def varint(value: int) -> bytes:
        return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)

    packed = b"SPLNTRV1" + struct.pack("<I", len(rows))
    packed += b"".join(varint(rank) + varint(len(token)) + token for rank, token in rows)
    assert bpe.read_ranks(bpe.unpack_ranks(packed, len(rows))) == {token: rank for rank, token in rows}


# Ranks


def test_ranks_are_read_in_file_order():
    """Blank lines are nothing; a carriage return at the end of a line does no harm."""
    assert list(bpe.read_ranks(b"YWI= 2\nYQ== 0\r\n\nYg== 1").items()) == [(b"ab", 2), (b"a", 0), (b"b", 1)]


@pytest.mark.parametrize("line", [b"YQ==", b"YQ== x", b"YQ== 1 2", b"YQ*== 1", b"YQ= 1", b" ", b"YQ==\t1"])
def test_a_line_that_is_no_rank_is_named(line: bytes):
    """The message has the number of the line and what stands there."""
    with pytest.raises(ValueError) as caught:
        bpe.read_ranks(b"YQ== 0\n\n" + line + b"\nYg== 1\n")
    assert str(caught.value) == f"line 3 of the ranks is {line!r}, not 'base64 rank'"


# The alphabet


def test_the_alphabet_is_that_of_the_tokenizers_library():
    """256 characters, the set the library's byte level knows, each decoding to its byte."""
    assert set(bpe.ALPHABET) == set(ByteLevel.alphabet())
    assert len(set(bpe.ALPHABET)) == 256
    assert all(ByteLevelDecoder().decode([bpe.ALPHABET[byte]]) == chr(byte) for byte in range(128))


@pytest.mark.parametrize(
    ("token", "spelled"),
    [
        (b"", ""),
        (b"!~", "!~"),
        (b" a\n", "ĠaĊ"),
        (b"\x00\x20\x7f", "\u0100\u0120\u0121"),
        (b"\x80\xa0\xad", "\u0122\u0142\u0143"),
        (b"\xa1\xac\xae\xff", "\u00a1\u00ac\u00ae\u00ff"),
        ("é".encode(), "Ã©"),
    ],
)
def test_tokens_are_spelled_in_the_byte_level_alphabet(token: bytes, spelled: str):
    """Printable bytes stand for themselves; the other 68 follow from U+0100 on, in ascending order."""
    assert bpe.spell(token) == spelled


# Merges


def test_merges_of_a_small_vocabulary_by_hand():
    """'aba' has two splits into tokens: ('ab', 'a') and, were 'ba' a token, ('a', 'ba'). It is not."""
    assert bpe.all_merges(ranks_of(b"a", b"b", b"ab", b"aba")) == [["a", "b"], ["ab", "a"]]


def test_merges_are_ordered_by_joined_then_left_then_right_rank():
    """File order plays no part; of 'aaa' the split with the lower left rank comes first."""
    ranks = {b"aaa": 9, b"aa": 4, b"a": 7, b"aaaa": 2}
    assert bpe.all_merges(ranks) == [
        *(["aa", "aa"], ["a", "aaa"], ["aaa", "a"]),  # aaaa, rank 2: left ranks 4, 7, 9
        ["a", "a"],  # aa, rank 4
        *(["aa", "a"], ["a", "aa"]),  # aaa, rank 9: left ranks 4, 7
    ]


def test_merges_are_spelled_in_the_byte_level_alphabet():
    """A space is Ġ, and a token no two tokens make has no merge."""
    assert bpe.all_merges(ranks_of(b" ", b"\n", b" \n", b"xy")) == [["Ġ", "Ċ"]]


def test_single_bytes_alone_have_no_merges():
    """Nothing to join."""
    assert bpe.all_merges(ranks_of(b"a", b"b")) == []


# The container


def test_the_container_of_a_small_vocabulary_by_hand():
    """Keys and their order are those of a tokenizer.json; all of it is written out here."""
    value = bpe.tokenizer_json(
        ranks_of(b"a", b" ", b"a "),
        pattern="x",
        normalizer="NFC",
        ignore_merges=False,
        added_tokens=[[3, "<s>", True], (5, "<t>", False)],
    )
    assert json.dumps(value, ensure_ascii=False) == (
        '{"version": "1.0", "truncation": null, "padding": null, "added_tokens": ['
        '{"id": 3, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, '
        '"special": true}, '
        '{"id": 5, "content": "<t>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, '
        '"special": false}], '
        '"normalizer": {"type": "NFC"}, '
        '"pre_tokenizer": {"type": "Sequence", "pretokenizers": ['
        '{"type": "Split", "pattern": {"Regex": "x"}, "behavior": "Isolated", "invert": false}, '
        '{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false}]}, '
        '"post_processor": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, '
        '"use_regex": false}, '
        '"decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false}, '
        '"model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": "", '
        '"end_of_word_suffix": "", "fuse_unk": false, "byte_fallback": false, "ignore_merges": false, '
        '"vocab": {"a": 0, "Ġ": 1, "aĠ": 2}, "merges": [["a", "Ġ"]]}}'
    )


def test_ignore_merges_takes_a_piece_that_is_a_token_whole():
    """'abc' is a token no merge reaches; tiktoken takes it whole, a BPE by merges alone cannot."""
    ranks = ranks_of(b"a", b"b", b"c", b"abc")
    assert tokenizer(ranks, ignore_merges=True).encode("abc").ids == [3]
    assert tokenizer(ranks, ignore_merges=False).encode("abc").ids == [0, 1, 2]


def test_added_tokens_and_normalizer_reach_the_library():
    """An added token is found before BPE; NFC joins the accent; ids come back as text."""
    ranks = {bytes([byte]): byte for byte in range(256)} | {"é".encode(): 256}
    made = tokenizer(ranks, normalizer="NFC", added_tokens=[(257, "<s>", True)])
    assert made.encode("e\u0301<s>e").ids == [256, 257, ord("e")]
    assert made.decode([256, 257, ord("e")], skip_special_tokens=False) == "é<s>e"


BYTES = [bytes([byte]) for byte in range(256)]
TOKENS = st.one_of(
    st.text("ab", min_size=2, max_size=6),
    st.text("abc ", min_size=2, max_size=4),
    st.text("aé中", min_size=1, max_size=2),
).map(str.encode)
VOCABULARIES = st.lists(TOKENS.filter(lambda token: len(token) > 1), unique=True, max_size=25).flatmap(
    lambda tokens: st.one_of(st.just(BYTES + tokens), st.permutations(BYTES + tokens))
)
"""Every byte is a token; the longer ones come after the bytes, or anywhere."""
TEXTS = st.lists(st.one_of(st.text("ab", max_size=20), st.text("abc é中🙂\n")), min_size=1, max_size=8)


@settings(deadline=None, max_examples=150)
@given(VOCABULARIES, TEXTS)
@example([*BYTES, b"ab", b"ba", b"aba"], ["ababa", "babab"])
@example([*BYTES, b"aaa", b"aa"], ["a" * length for length in range(1, 12)])
def test_the_library_gives_what_the_lowest_joined_rank_gives(tokens: list[bytes], texts: list[str]):
    """A BPE that knows merges only, given all of them in rank order, chooses as tiktoken does."""
    ranks = ranks_of(*tokens)
    made = tokenizer(ranks)
    for text in texts:
        assert made.encode(text).ids == (by_lowest_joined_rank(text.encode(), ranks) if text else [])


# Patterns


@pytest.mark.parametrize(
    ("name", "text", "pieces"),
    [
        ("cl100k", "Don't 12345!", ["Don", "'t", " ", "123", "45", "!"]),
        ("qwen35", "Don't 12345!", ["Don", "'t", " ", "1", "2", "3", "4", "5", "!"]),
        ("kimi", "Don't 12345!", ["Don't", " ", "123", "45", "!"]),
        ("cl100k", "中文abc", ["中文abc"]),
        ("qwen35", "中文abc", ["中文abc"]),
        ("kimi", "中文abc", ["中文", "abc"]),
        ("cl100k", "e\u0301x", ["e", "\u0301x"]),
        ("qwen35", "e\u0301x", ["e\u0301x"]),
        ("kimi", "e\u0301x", ["e\u0301x"]),
        ("cl100k", "camelCase", ["camelCase"]),
        ("qwen35", "camelCase", ["camelCase"]),
        ("kimi", "camelCase", ["camel", "Case"]),
        ("cl100k", "a  b\n\n c \n", ["a", " ", " b", "\n\n", " c", " \n"]),
        ("qwen35", "a  b\n\n c \n", ["a", " ", " b", "\n\n", " c", " \n"]),
        ("kimi", "a  b\n\n c \n", ["a", " ", " b", "\n\n", " c", " \n"]),
        ("cl100k", "x={};\n\ny", ["x", "={};\n\n", "y"]),
        ("kimi", "x={};\n\ny", ["x", "={};\n\n", "y"]),
    ],
)
def test_patterns_cut_text_as_their_families_do(name: str, text: str, pieces: list[str]):
    """Digits by threes or one by one, suffixes after an apostrophe, Han apart, marks with their letter, capitals."""
    split = Split(Regex(bpe.PATTERNS[name]), behavior="isolated")
    assert [piece for piece, _ in split.pre_tokenize_str(text)] == pieces


@pytest.mark.parametrize("name", bpe.PATTERNS)
@settings(deadline=None, max_examples=100)
@given(text=st.text())
def test_patterns_lose_no_text(name: str, text: str):
    """The pieces put together are the text."""
    split = Split(Regex(bpe.PATTERNS[name]), behavior="isolated")
    assert "".join(piece for piece, _ in split.pre_tokenize_str(text)) == text


# One merge for each token


def test_one_merge_for_each_token_by_hand():
    """`abc` was learnt from `ab` and `c`: among pairs the lowest rank comes first, whatever else would fit."""
    ranks = {b"a": 0, b"b": 1, b"c": 2, b"ab": 3, b"bc": 4, b"abc": 5}
    assert bpe.one_merge_each(ranks) == [["a", "b"], ["b", "c"], ["ab", "c"]]
    assert bpe.all_merges(ranks) == [["a", "b"], ["b", "c"], ["a", "bc"], ["ab", "c"]]


def test_of_equal_pairs_the_leftmost_is_merged_first():
    """`aaa` is `aa` and `a`."""
    assert bpe.one_merge_each({b"a": 0, b"aa": 1, b"aaa": 2}) == [["a", "a"], ["aa", "a"]]


def test_only_lower_ranks_make_a_token():
    """`abc` stands before `ab`, so it is made of three parts: no single merge makes it."""
    assert bpe.one_merge_each({b"a": 0, b"b": 1, b"c": 2, b"abc": 3, b"ab": 4}) == [["a", "b"]]


def test_merges_txt_begins_with_its_version():
    """One merge a line, in order."""
    assert bpe.merges_txt([["a", "b"], ["ab", "Ġ"]]) == "#version: 0.2\na b\nab Ġ\n"


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=30), st.lists(st.text("abc", max_size=12)))
def test_where_every_token_was_learnt_from_two_one_merge_each_is_enough(pairs: list[tuple[int, int]], texts: list[str]):
    """A vocabulary grown by joining two tokens at a time encodes the same with one merge for each token as with all."""
    tokens = [b"a", b"b", b"c"]
    for left, right in pairs:
        token = tokens[left % len(tokens)] + tokens[right % len(tokens)]
        ranks = {known: rank for rank, known in enumerate(tokens)}
        if token not in ranks and len(token) < 9 and len(bpe._merged_below(token, ranks, len(tokens))) == 2:
            tokens.append(token)
    ranks = {token: rank for rank, token in enumerate(tokens)}
    parts = {"pattern": "[abc]+", "normalizer": None, "ignore_merges": False, "added_tokens": []}
    one, every = (
        Tokenizer.from_str(json.dumps(bpe.tokenizer_json(ranks, merges=merges, **parts))) for merges in ("one", "all")
    )
    assert len(bpe.one_merge_each(ranks)) == len(tokens) - 3
    for text in texts:
        assert one.encode(text).ids == every.encode(text).ids
