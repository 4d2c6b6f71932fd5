"""tekken.json as a tokenizer.json: ids, reserved tokens, and what is refused."""

from __future__ import annotations

import base64
import json

import pytest
from tokenizers import Tokenizer

from bellwether.materials import tekken


def tekken_bytes(*tokens: bytes, size: int = 8, reserved: int = 4, first: int = 0) -> bytes:
    config = {
        "pattern": r"[^\s]+|\s+",
        "num_vocab_tokens": len(tokens),
        "default_vocab_size": size,
        "default_num_special_tokens": reserved,
        "version": "v3",
    }
    vocab = [
        {"rank": first + rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
        for rank, token in enumerate(tokens)
    ]
    return json.dumps({"config": config, "vocab": vocab}).encode()


WHOLE = tekken_bytes(b"a", b" ", "é".encode()[:1], b"aa", b"behind the size")
NAMES = ["<unk>", "<s>", "</s>"]


def test_special_tokens_come_first_and_the_rest_of_them_is_reserved():
    """Four special ids, three of them named; then tokens by rank up to the default size."""
    made = tekken.tokenizer_json(WHOLE, NAMES)
    assert made["model"]["vocab"] == {
        **{"<unk>": 0, "<s>": 1, "</s>": 2, "<SPECIAL_3>": 3},
        **{"a": 4, "Ġ": 5, "Ã": 6, "aa": 7},
    }
    assert [(token["id"], token["content"], token["special"]) for token in made["added_tokens"]] == [
        *((0, "<unk>", True), (1, "<s>", True), (2, "</s>", True), (3, "<SPECIAL_3>", True))
    ]
    assert made["model"]["merges"] == [["a", "a"]]
    assert made["model"]["ignore_merges"] is True


def test_the_container_loads_and_encodes():
    """A text begins with <s>; the file's own pattern cuts it."""
    made = Tokenizer.from_str(json.dumps(tekken.tokenizer_json(WHOLE, NAMES)))
    assert made.encode("aaa a").ids == [1, 7, 4, 5, 4]
    assert made.encode("a</s>", add_special_tokens=False).ids == [4, 2]
    assert made.decode([7, 5, 4]) == "aa a"


@pytest.mark.parametrize(
    ("data", "names"),
    [
        (tekken_bytes(b"a", b"b", b"c", b"d", first=1), NAMES),
        (tekken_bytes(b"a", b"b", b"c"), NAMES),
        (tekken_bytes(b"a", b"b", b"c", b"a"), NAMES),
        (WHOLE, ["<unk>"]),
        (b"{", NAMES),
    ],
)
def test_what_does_not_fit_is_refused(data: bytes, names: list[str]):
    """Ranks with a gap, too few tokens, one twice, no <s>, no JSON."""
    with pytest.raises(ValueError):
        tekken.tokenizer_json(data, names)
