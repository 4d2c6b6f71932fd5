"""The vocabulary and the chat template inside a GGUF file, as the files a Hub repository would hold."""

from __future__ import annotations

import json
import tempfile
from typing import Any

from bellwether.materials.bpe import added_token

CONTROL = 3
"""GGUF token type of a special token."""


def read_fields(data: bytes, names: tuple[str, ...]) -> dict[str, Any]:
    """Return metadata field → value (text, number, or list) of a GGUF file.

    Raises:
        ValueError: the bytes are no GGUF file or end early, or a field is absent.
    """
    from gguf import GGUFReader  # pulls in numpy; only two transforms need it

    with tempfile.NamedTemporaryFile(suffix=".gguf") as file:  # the reader maps a file into memory
        file.write(data)
        file.flush()
        try:
            reader = GGUFReader(file.name)
        except IndexError:
            raise ValueError("the GGUF file ends early") from None
        missing = [name for name in names if reader.get_field(name) is None]
        if missing:
            raise ValueError(f"no GGUF field {missing[0]!r}")
        return {name: reader.get_field(name).contents() for name in names}


def chat_template(data: bytes) -> str:
    """Return the chat template as it stands in the file; no newline is added."""
    return read_fields(data, ("tokenizer.chat_template",))["tokenizer.chat_template"]


def vocab_json(data: bytes) -> str:
    """Return vocab.json: token → id as compact JSON, without a final newline."""
    tokens = read_fields(data, ("tokenizer.ggml.tokens",))["tokenizer.ggml.tokens"]
    return json.dumps({token: rank for rank, token in enumerate(tokens)}, ensure_ascii=False, separators=(",", ":"))


def merges_txt(data: bytes) -> str:
    """Return merges.txt with its version line."""
    merges = read_fields(data, ("tokenizer.ggml.merges",))["tokenizer.ggml.merges"]
    return "#version: 0.2\n" + "".join(f"{merge}\n" for merge in merges)


def tokenizer_json(data: bytes) -> dict:
    """Return the tokenizer.json object of a GPT-2 style vocabulary (digits one by one, byte level).

    Key order and the spelling of merges as `"a b"` follow the file the SmolLM2 checkpoint ships, whose sha256 the
    result reaches.
    """
    fields = read_fields(data, ("tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.merges"))
    tokens, types = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            added_token(token_id, token, special=True)
            for token_id, (token, kind) in enumerate(zip(tokens, types, strict=True))
            if kind == CONTROL
        ],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Digits", "individual_digits": True},
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            ],
        },
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: rank for rank, token in enumerate(tokens)},
            "merges": fields["tokenizer.ggml.merges"],
        },
    }
