"""Mistral's tekken.json → tokenizer.json."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence

from bellwether.materials import bpe
from bellwether.materials.sentencepiece import begins_with


def tokenizer_json(tekken: bytes, special_tokens: Sequence[str]) -> dict:
    """Return the tokenizer.json object of a tekken vocabulary.

    Special tokens come first, ids 0, 1, …: the names given, then `<SPECIAL_n>` for the reserved ones. Tokens follow by
    rank until the vocabulary has its default size; the file holds more. A piece that is a token is taken whole.

    Raises:
        ValueError: the file is no tekken vocabulary, or its ranks have gaps.
    """
    value = json.loads(tekken)
    config = value["config"]
    reserved, size = config["default_num_special_tokens"], config["default_vocab_size"]
    names = [*special_tokens, *(f"<SPECIAL_{place}>" for place in range(len(special_tokens), reserved))]
    tokens = value["vocab"][: size - reserved]
    if [token["rank"] for token in tokens] != list(range(size - reserved)):
        raise ValueError("the ranks of the tekken vocabulary are not 0, 1, 2, …")
    ranks = {base64.b64decode(token["token_bytes"]): token["rank"] for token in tokens}
    if "<s>" not in names or len(ranks) != len(tokens):
        raise ValueError("the tekken vocabulary holds a token twice, or no <s> is among the special tokens")
    whole = bpe.tokenizer_json(
        ranks,
        pattern=config["pattern"],
        normalizer=None,
        ignore_merges=True,
        added_tokens=[(place, name, True) for place, name in enumerate(names)],
    )
    shifted = {token: rank + reserved for token, rank in whole["model"]["vocab"].items()}
    whole["model"]["vocab"] = {name: place for place, name in enumerate(names)} | shifted
    whole["post_processor"] = begins_with("<s>", names.index("<s>"))
    return whole
