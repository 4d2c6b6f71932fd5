"""GGUF files for llama.cpp: a checkpoint's tokenizer and chat template, and weights that say what they are told.

The network is GPT-2's with one layer that does nothing. An id is written in binary, each bit as (1, -1) or (-1, 1), and
that code is its row of the token embedding, which is the output matrix too. So the logits are largest where the code is
nearest to what comes out of the network; and what comes out at a position is, but for a 64th, the row of the position
embedding there. Writing the codes of some ids into the rows from the prompt's last position on makes the model say
them: no other rows matter, nothing is rounded, and the nearest other id is 126 logits away.

llama.cpp maps the file into memory and shares it, so rows written into the file are seen by a server that has it
loaded. One server serves all outputs of a checkpoint.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CONTEXT = 1 << 15
"""Positions."""
BYTES = 4
"""Of an id."""
WIDTH = 16 * BYTES
"""Numbers per row: a whole number of vector registers, without which a step takes four times as long."""
ROW = 4 * WIDTH
"""Bytes of a row of the position embedding."""
LOUD = 64.0
"""How much larger a position's row is than a token's."""
GAIN = 32.0
"""Of the last norm, so that a temperature of some ones changes nothing."""
ALIGNMENT = 32

NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5
"""GGUF's types of tokens."""
_U32, _F32, _BOOL, _STRING, _ARRAY, _I32 = 4, 6, 7, 8, 9, 5
_TENSOR_F32, _TENSOR_F16 = 0, 1

PRE_TOKENIZERS: tuple[tuple[str, str, str], ...] = (
    # sha256 of the pre-tokenizer (first 12 digits), model types, llama.cpp's name of it
    ("0b28ecf38f69", "qwen.*", "qwen2"),
    ("aee59bed5763", "qwen3_5", "qwen35"),
    ("d8d32910cbb7", "deepseek_v.", "deepseek-v3"),
    ("d1420876e3d1", "gpt_oss", "gpt-4o"),
    ("ad406c11646e", "kimi_k.", "kimi-k2"),
    ("f6179f09b88b", "glm4_moe", "glm4"),
    ("f6179f09b88b", "olmo3|granite|phi3", "dbrx"),
    ("5b82ee011fa8", "llama", "llama-bpe"),
    ("c09acaf090b6", "mistral", "tekken"),
    ("88e46f2b7ff3", "cohere", "command-r"),
    ("88e46f2b7ff3", "llama", "smollm"),
)
"""The names llama.cpp's converter gives by what a tokenizer makes of a text. A name stands for more than the cut of a
text (whether merges are ignored, for one), so the model's type has a say. What is not listed is not guessed: a wrong
name would look like a fault of the server."""
QWEN2_PRE = "qwen2"
SPECIAL_LOOKS = re.compile(r"<pad>|<mask>|<2mass>|\[@BOS@\]|<\|.*\|>|<｜.*｜>|<unused.*>", re.DOTALL)
"""Added tokens that llama.cpp's converter takes for control tokens, whatever tokenizer.json says of them."""


class NotConvertible(Exception):
    """Raised when a checkpoint has no tokenizer that can be brought into a GGUF file. Says why."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A tokenizer, as GGUF files have it."""

    pre: str
    tokens: list[str]
    types: list[int]
    merges: list[str]
    special: Mapping[str, int]
    """`bos`, `eos`, `unk`, `pad`, as far as there are such → id."""
    add_bos: bool
    add_eos: bool

    @property
    def control_tokens(self) -> list[str]:
        """Return the texts of the tokens that the server leaves out of what it generates, the longest first."""
        found = [text for text, kind in zip(self.tokens, self.types, strict=True) if kind == CONTROL]
        return sorted(found, key=len, reverse=True)


@dataclass(frozen=True, slots=True)
class Model:
    """A file that was written."""

    path: Path
    vocabulary: Vocabulary
    rows_at: int
    """Where the position embedding begins."""
    context: int = CONTEXT

    def say(self, position: int, ids: Sequence[int]) -> None:
        """Make the model say `ids` after a prompt whose last token is at `position`, counted from 0.

        Raises:
            ValueError: there are not so many positions, or an id is outside the vocabulary.
        """
        if position < 0 or position + len(ids) > self.context:
            raise ValueError(f"{position + len(ids):,} positions; the model has {self.context:,}")
        if ids and not 0 <= min(ids) <= max(ids) < len(self.vocabulary.tokens):
            raise ValueError(f"an id outside the vocabulary of {len(self.vocabulary.tokens):,}")
        rows = b"".join(code(token_id, LOUD, "f") for token_id in ids)
        with self.path.open("r+b") as file:
            os.pwrite(file.fileno(), rows, self.rows_at + ROW * position)


# ── what a snapshot says ─────────────────────────────────────────────────────────────────────────────────────────────


def vocabulary(folder: Path) -> Vocabulary:
    """Return the tokenizer of a snapshot.

    Raises:
        NotConvertible: it is none of BPE over bytes, or its pre-tokenizer is not listed.
    """
    tokenizer, config = _tokenizer(folder), _json(folder / "tokenizer_config.json")
    model = tokenizer["model"]
    if model.get("type", "BPE") != "BPE" or model.get("byte_fallback"):
        raise NotConvertible("its tokenizer is none of BPE over bytes, and llama.cpp wants scores that it has not")
    added = {token["id"]: token for token in tokenizer["added_tokens"]}
    pieces = {token_id: text for text, token_id in model["vocab"].items()}
    size = 1 + max([*pieces, *added])
    tokens, types = [], []
    for token_id in range(size):
        text, kind = _token(token_id, pieces, added)
        tokens.append(text)
        types.append(kind)
    ids = {text: token_id for token_id, text in enumerate(tokens)}
    special = {
        name: ids[text]
        for name in ("bos", "eos", "unk", "pad")
        if (text := _text_of(config.get(f"{name}_token"))) is not None and text in ids
    }
    first, last = _around(tokenizer.get("post_processor"))
    return Vocabulary(
        pre=_pre(tokenizer, folder),
        tokens=tokens,
        types=types,
        merges=[merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]],
        special=special,
        add_bos=_flag(config.get("add_bos_token"), first is not None and ids.get(first) == special.get("bos")),
        add_eos=_flag(config.get("add_eos_token"), last is not None and ids.get(last) == special.get("eos")),
    )


def templates(folder: Path) -> dict[str, str]:
    """Return name → chat template of a snapshot, as llama.cpp's converter finds them; `default` is the plain one.

    Raises:
        NotConvertible: there is none: the server would take another's without a word.
    """
    value = _json(folder / "tokenizer_config.json").get("chat_template")
    found = {"default": value} if isinstance(value, str) else {one["name"]: one["template"] for one in value or ()}
    for path in sorted((folder / "additional_chat_templates").glob("*.jinja")):
        found[path.stem] = path.read_text("utf-8")
    if (default := folder / "chat_template.jinja").is_file():
        found["default"] = default.read_text("utf-8")
    if "default" not in found:
        raise NotConvertible("it has no chat template")
    return found


def _tokenizer(folder: Path) -> dict[str, Any]:
    """Return the object of tokenizer.json, or what the parts of Qwen2's tokenizer amount to."""
    if (file := folder / "tokenizer.json").is_file():
        return json.loads(file.read_bytes())
    names = ("vocab.json", "merges.txt", "tokenizer_config.json")
    if not all((folder / name).is_file() for name in names):
        raise NotConvertible("it has no tokenizer.json")
    lines = (folder / "merges.txt").read_text("utf-8").split("\n")
    added = _json(folder / "tokenizer_config.json").get("added_tokens_decoder", {})
    return {
        "model": {
            "vocab": _json(folder / "vocab.json"),
            "merges": [line for line in lines if line and not line.startswith("#version")],
        },
        "added_tokens": [{"id": int(token_id), **token} for token_id, token in added.items()],
    }


def _token(token_id: int, pieces: Mapping[int, str], added: Mapping[int, Mapping[str, Any]]) -> tuple[str, int]:
    if (token := added.get(token_id)) is not None:
        text = token["content"]
        control = token.get("special") or SPECIAL_LOOKS.fullmatch(text)
        return text, CONTROL if control else USER_DEFINED
    if token_id in pieces:
        return pieces[token_id], NORMAL
    return f"[PAD{token_id}]", UNUSED


def _pre(tokenizer: Mapping[str, Any], folder: Path) -> str:
    if "pre_tokenizer" not in tokenizer:
        if (name := _json(folder / "tokenizer_config.json").get("tokenizer_class")) != "Qwen2Tokenizer":
            raise NotConvertible(f"what a {name} without a tokenizer.json does to a text is not listed")
        return QWEN2_PRE
    digest = hashlib.sha256(json.dumps(tokenizer["pre_tokenizer"], sort_keys=True).encode()).hexdigest()
    kind = _json(folder / "config.json").get("model_type", "")
    for prefix, kinds, name in PRE_TOKENIZERS:
        if digest.startswith(prefix) and re.fullmatch(kinds, kind):
            return name
    raise NotConvertible(f"its pre-tokenizer ({digest[:12]}, of a {kind or 'nameless'} model) is not listed")


def _around(processor: Mapping[str, Any] | None) -> tuple[str | None, str | None]:
    """Return the special tokens that a post-processor puts before and behind a text."""
    for one in (processor or {}).get("processors", [processor or {}]):
        if one.get("type") == "TemplateProcessing" and len(single := one["single"]) > 1:
            return single[0].get("SpecialToken", {}).get("id"), single[-1].get("SpecialToken", {}).get("id")
    return None, None


def _flag(said: Any, inferred: bool) -> bool:
    """Return what tokenizer_config.json says, unless tokenizer.json adds the token anyway."""
    return said if isinstance(said, bool) else inferred


def _text_of(token: Any) -> str | None:
    """Return a special token's text: it stands there as such, or with how it is matched beside it."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


def _json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_bytes()) if path.is_file() else {}


# ── the file ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def write(folder: Path, path: Path, context: int = CONTEXT) -> Model:
    """Write the model of a snapshot; as yet it says nothing new.

    Raises:
        NotConvertible: see `vocabulary` and `templates`.
    """
    known = vocabulary(folder)
    fields = _fields(known, templates(folder), context)
    tensors = _tensors(len(known.tokens), context)
    head, offsets, size = _header(fields, tensors)
    with path.open("wb") as file:
        file.write(head)
        file.truncate(len(head) + size)  # what is not written is zero, and takes no room
        for name, _shape, _kind, rows in tensors:
            if rows is not None:
                file.seek(len(head) + offsets[name])
                file.writelines(rows)
    return Model(path, known, len(head) + offsets["position_embd.weight"], context)


def code(token_id: int, loud: float, letter: str) -> bytes:
    """Return the row of an id: per bit one number and its opposite, in the format of a letter of `struct`."""
    bits = [1.0 if token_id >> place & 1 else -1.0 for place in range(8 * BYTES)]
    numbers = [loud * sign * bit for bit in bits for sign in (1.0, -1.0)]
    return struct.pack(f"<{WIDTH}{letter}", *numbers)


def _embedding(size: int) -> Iterable[bytes]:
    """Yield the rows of all ids; each is that of its bytes, one after the other."""
    part = WIDTH // BYTES * 2
    of_byte = [code(byte, 1.0, "e")[:part] for byte in range(256)]
    for token_id in range(size):
        yield b"".join([of_byte[byte] for byte in token_id.to_bytes(BYTES, "little")])


def _tensors(size: int, context: int) -> list[tuple[str, tuple[int, ...], int, Iterable[bytes] | None]]:
    """Return name, shape (fastest first), type and bytes of each tensor; None stands for zeros."""

    def all_of(value: float) -> list[bytes]:
        return [array("f", [value]).tobytes() * WIDTH]

    layer = {
        "attn_norm.weight": (WIDTH,),
        "attn_norm.bias": (WIDTH,),
        "attn_qkv.weight": (WIDTH, 3 * WIDTH),
        "attn_qkv.bias": (3 * WIDTH,),
        "attn_output.weight": (WIDTH, WIDTH),
        "attn_output.bias": (WIDTH,),
        "ffn_norm.weight": (WIDTH,),
        "ffn_norm.bias": (WIDTH,),
        "ffn_up.weight": (WIDTH, WIDTH),
        "ffn_up.bias": (WIDTH,),
        "ffn_down.weight": (WIDTH, WIDTH),
        "ffn_down.bias": (WIDTH,),
    }
    return [
        ("token_embd.weight", (WIDTH, size), _TENSOR_F16, _embedding(size)),
        ("position_embd.weight", (WIDTH, context), _TENSOR_F32, None),
        ("output_norm.weight", (WIDTH,), _TENSOR_F32, all_of(GAIN)),
        ("output_norm.bias", (WIDTH,), _TENSOR_F32, None),
        *((f"blk.0.{name}", shape, _TENSOR_F32, None) for name, shape in layer.items()),
    ]


def _fields(known: Vocabulary, named: Mapping[str, str], context: int) -> list[tuple[str, int, Any]]:
    """Return name, type and value of each field of the metadata."""
    others = sorted(name for name in named if name != "default")
    found: list[tuple[str, int, Any]] = [
        ("general.architecture", _STRING, "gpt2"),
        ("gpt2.context_length", _U32, context),
        ("gpt2.embedding_length", _U32, WIDTH),
        ("gpt2.block_count", _U32, 1),
        ("gpt2.feed_forward_length", _U32, WIDTH),
        ("gpt2.attention.head_count", _U32, 1),
        ("gpt2.attention.layer_norm_epsilon", _F32, 1e-5),
        ("tokenizer.ggml.model", _STRING, "gpt2"),
        ("tokenizer.ggml.pre", _STRING, known.pre),
        ("tokenizer.ggml.tokens", _ARRAY, (_STRING, known.tokens)),
        ("tokenizer.ggml.token_type", _ARRAY, (_I32, known.types)),
        ("tokenizer.ggml.merges", _ARRAY, (_STRING, known.merges)),
        ("tokenizer.ggml.add_bos_token", _BOOL, known.add_bos),
        ("tokenizer.ggml.add_eos_token", _BOOL, known.add_eos),
        ("tokenizer.chat_template", _STRING, named["default"]),
        *((f"tokenizer.chat_template.{name}", _STRING, named[name]) for name in others),
    ]
    if others:
        found.append(("tokenizer.chat_templates", _ARRAY, (_STRING, others)))
    keys = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
    found += [(f"tokenizer.ggml.{keys[name]}_token_id", _U32, token_id) for name, token_id in known.special.items()]
    return found


def _header(fields: list[tuple[str, int, Any]], tensors: list[tuple]) -> tuple[bytes, dict[str, int], int]:
    """Return the bytes before the tensors, where each tensor begins behind them, and how long they are together."""
    parts = [struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(fields))]
    for name, kind, value in fields:
        parts += [_string(name), struct.pack("<I", kind), _value(kind, value)]
    offsets, place = {}, 0
    for name, shape, kind, _ in tensors:
        offsets[name] = place
        parts += [_string(name), struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, place)]
        size = 2 if kind == _TENSOR_F16 else 4
        for length in shape:
            size *= length
        place += -(-size // ALIGNMENT) * ALIGNMENT
    head = b"".join(parts)
    return head + b"\0" * (-len(head) % ALIGNMENT), offsets, place


def _value(kind: int, value: Any) -> bytes:
    if kind == _STRING:
        return _string(value)
    if kind == _ARRAY:
        of, values = value
        body = b"".join(map(_string, values)) if of == _STRING else struct.pack(f"<{len(values)}i", *values)
        return struct.pack("<IQ", of, len(values)) + body
    return struct.pack({_U32: "<I", _F32: "<f", _BOOL: "<?"}[kind], value)


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data
