"""Named, pure functions from package bytes to the bytes of one oracle input. A manifest names one per file.

Each takes the source files' bytes in the order of `sources` and the `options` table of the manifest. What comes out is
compared with the pinned sha256, so a wrong transform cannot pass unseen.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bellwether.errors import MaterialError
from bellwether.materials import bpe, gguf
from bellwether.params import narrowed

Transform = Callable[..., bytes]


def dump(value: object, *, tail: str = "\n") -> bytes:
    """Return JSON as transformers saves it: two spaces of indentation, non-ASCII raw, then `tail`."""
    return (json.dumps(value, indent=2, ensure_ascii=False) + tail).encode()


def _copy(source: bytes) -> bytes:
    return source


def _crlf_to_lf(source: bytes) -> bytes:
    return source.replace(b"\r\n", b"\n")


def _splice_template(config: bytes, template: bytes, *, strip_newlines: bool = False) -> bytes:
    """Set `chat_template` of a tokenizer_config.json. The key keeps its place when present, else it goes last."""
    text = template.decode()
    return dump({**json.loads(config), "chat_template": text.rstrip("\n") if strip_newlines else text})


def _drop_key(config: bytes, *, key: str) -> bytes:
    value = json.loads(config)
    del value[key]
    return dump(value)


def _literal(*, value: str) -> bytes:
    """A small file written out in the manifest because no package holds it."""
    return dump(json.loads(value))


def _narrowed(*, value: str) -> bytes:
    """A config of which only the fields the oracle reads are known, and pinned."""
    return narrowed(json.loads(value))


def _packed_ranks(binary: bytes, *, count: int) -> bytes:
    return bpe.unpack_ranks(binary, count)


def _ranks_to_json(ranks: bytes, *, pattern: str, added_tokens: list, normalizer: str | None = None,
                   ignore_merges: bool = False) -> bytes:  # fmt: skip
    return dump(
        bpe.tokenizer_json(
            bpe.read_ranks(ranks),
            pattern=bpe.PATTERNS[pattern],
            normalizer=normalizer,
            ignore_merges=ignore_merges,
            added_tokens=added_tokens,
        )
    )


def _packed_ranks_to_json(binary: bytes, *, count: int, **options: Any) -> bytes:
    return _ranks_to_json(bpe.unpack_ranks(binary, count), **options)


def _gguf_template(data: bytes) -> bytes:
    return gguf.chat_template(data).encode()


def _gguf_vocab(data: bytes) -> bytes:
    return gguf.vocab_json(data).encode()


def _gguf_merges(data: bytes) -> bytes:
    return gguf.merges_txt(data).encode()


def _gguf_to_json(data: bytes) -> bytes:
    return dump(gguf.tokenizer_json(data), tail="")


TRANSFORMS: Mapping[str, Transform] = {
    "copy": _copy,
    "crlf-to-lf": _crlf_to_lf,
    "splice-template": _splice_template,
    "drop-key": _drop_key,
    "literal": _literal,
    "narrowed": _narrowed,
    "packed-ranks": _packed_ranks,
    "ranks-to-json": _ranks_to_json,
    "packed-ranks-to-json": _packed_ranks_to_json,
    "gguf-template": _gguf_template,
    "gguf-vocab": _gguf_vocab,
    "gguf-merges": _gguf_merges,
    "gguf-to-json": _gguf_to_json,
}


def apply(name: str, sources: Sequence[bytes], options: Mapping[str, Any]) -> bytes:
    """Return what the transform `name` makes of `sources`.

    Raises:
        MaterialError: there is no such transform, an option is unknown, or the sources are not what it expects.
    """
    if name not in TRANSFORMS:
        raise MaterialError(f"unknown transform {name!r}", next_step=f"Known: {', '.join(TRANSFORMS)}.")
    try:
        return TRANSFORMS[name](*sources, **options)
    except (TypeError, ValueError, KeyError, struct.error) as error:
        raise MaterialError(
            f"transform {name!r} does not fit its sources: {type(error).__name__}: {error}",
            next_step="Correct `transform`, `sources` or `options` in the manifest.",
        ) from error
