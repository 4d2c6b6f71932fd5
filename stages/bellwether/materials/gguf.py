"""The vocabulary and the chat template inside a GGUF file, as the files a Hub repository would hold."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any

from bellwether.materials.bpe import added_token

CONTROL = 3
"""GGUF token type of a special token."""
USER_DEFINED = 4

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""GGUF value type → struct letter."""
_STRING, _ARRAY = 8, 9
_LENGTH = struct.Struct("<Q")


def read_fields(data: bytes, names: tuple[str, ...]) -> dict[str, Any]:
    """Return metadata field → value (text, number, or list) of a GGUF file.

    One pass over the metadata, which ends with the last field asked for. Of the others only the lengths are read, and
    nothing of the weights: the format's own library makes a numpy object of every token, 30 times slower.

    Raises:
        ValueError: the bytes are no GGUF file or end early, or a field is absent.
    """
    found: dict[str, Any] = {}
    try:
        magic, version, _, count = struct.unpack_from("<4sIQQ", data)
        if magic != b"GGUF" or version not in (2, 3):
            raise ValueError(f"no GGUF file of version 2 or 3: it begins with {data[:8]!r}")
        place = struct.calcsize("<4sIQQ")
        for _ in range(count):
            if len(found) == len(names):
                break
            key, place = _text(data, place)
            (kind,) = struct.unpack_from("<I", data, place)
            value, place = _value(data, place + 4, kind, wanted=key in names)
            if key in names:
                found[key] = value
    except struct.error:
        raise ValueError("the GGUF file ends early") from None
    if missing := [name for name in names if name not in found]:
        raise ValueError(f"no GGUF field {missing[0]!r}")
    return found


def _value(data: bytes, place: int, kind: int, *, wanted: bool) -> tuple[Any, int]:
    """Return the value at `place`, None where it is not wanted, and the place behind it."""
    if kind == _STRING:
        return _text(data, place)
    if kind != _ARRAY:
        scalar = struct.Struct(f"<{_letter(kind)}")
        return scalar.unpack_from(data, place)[0], place + scalar.size
    of, count = struct.unpack_from("<IQ", data, place)
    place += 12
    if of == _STRING:
        return _texts(data, place, count, wanted=wanted)
    size = count * struct.calcsize(_letter(of))
    if place + size > len(data):
        raise struct.error
    return (list(struct.unpack_from(f"<{count}{_letter(of)}", data, place)) if wanted else None), place + size


def _letter(kind: int) -> str:
    if kind not in _SCALARS:
        raise ValueError(f"GGUF value type {kind} is unknown, or is an array of arrays")
    return _SCALARS[kind]


def _text(data: bytes, place: int) -> tuple[str, int]:
    [text], place = _texts(data, place, 1, wanted=True)
    return text, place


def _texts(data: bytes, place: int, count: int, *, wanted: bool) -> tuple[list[str] | None, int]:
    """Half a million of these in one file: the loop does nothing but lengths and slices."""
    length_at, texts = _LENGTH.unpack_from, []
    for _ in range(count):
        begin = place + 8
        place = begin + length_at(data, place)[0]
        if wanted:
            texts.append(data[begin:place])
    if place > len(data):  # a slice past the end is short, and says nothing
        raise struct.error
    return ([text.decode() for text in texts] if wanted else None), place


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


def tokenizer_json(data: bytes, skeleton: str = "smollm2") -> dict:
    """Return the tokenizer.json object of the file's vocabulary.

    `skeleton` is a name of SKELETONS: what a GGUF file does not say, which is everything around vocabulary and merges.
    """
    fields = read_fields(data, ("tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.merges"))
    return SKELETONS[skeleton](
        fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"], fields["tokenizer.ggml.merges"]
    )


def smollm2(tokens: list[str], types: list[int], merges: list[str]) -> dict:
    """A GPT-2 style vocabulary, digits one by one.

    Key order and the spelling of merges as `"a b"` follow the file the SmolLM2 checkpoint ships, whose sha256 the
    result reaches.
    """
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added(tokens, types, CONTROL),
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
            "merges": merges,
        },
    }


def command_r(tokens: list[str], types: list[int], merges: list[str]) -> dict:
    """The same parts behind Unicode's NFC."""
    whole = smollm2(tokens, types, merges)
    whole["normalizer"] = {"type": "NFC"}
    whole["model"]["merges"] = [_pair(merge) for merge in merges]
    return whole


def gemma4(tokens: list[str], types: list[int], merges: list[str]) -> dict:
    """Spaces become `▁`, bytes outside the vocabulary become byte tokens, and a prompt begins with `<bos>`."""
    bos = {"SpecialToken": {"id": "<bos>", "type_id": 0}}
    first, second = {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added(tokens, types, CONTROL, USER_DEFINED),
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "pre_tokenizer": {
            "type": "Split",
            "pattern": {"String": " "},
            "behavior": "MergedWithPrevious",
            "invert": False,
        },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [bos, first],
            "pair": [bos, first, {"SpecialToken": {"id": "<bos>", "type_id": 1}}, second],
            "special_tokens": {"<bos>": {"id": "<bos>", "ids": [2], "tokens": ["<bos>"]}},
        },
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
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
            "vocab": {token: rank for rank, token in enumerate(tokens)},
            "merges": [_pair(merge) for merge in merges],
        },
    }


SKELETONS: dict[str, Callable[[list[str], list[int], list[str]], dict]] = {
    "smollm2": smollm2,
    "command-r": command_r,
    "gemma-4": gemma4,
}


def _added(tokens: list[str], types: list[int], *kinds: int) -> list[dict]:
    return [
        added_token(token_id, token, special=True)
        for token_id, (token, kind) in enumerate(zip(tokens, types, strict=True))
        if kind in kinds
    ]


def _pair(merge: str) -> list[str]:
    """Cut a merge at the first space that is not its first character: a half may itself begin with one."""
    cut = merge.index(" ", 1)
    return [merge[:cut], merge[cut + 1 :]]
