"""Named, pure functions from package bytes to the bytes of one oracle input. A manifest names one per file.

Each takes the source files' bytes in the order of `sources` and the `options` table of the manifest. What comes out is
compared with the pinned sha256, so a wrong transform cannot pass unseen.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson

from bellwether.errors import MaterialError
from bellwether.materials import bpe, gguf, sentencepiece, tekken
from bellwether.params import narrowed

Transform = Callable[..., bytes]


def dump(value: object, *, tail: str = "\n") -> bytes:
    """Return JSON as transformers saves it: two spaces of indentation, non-ASCII raw, then `tail`."""
    try:
        text = orjson.dumps(value, option=orjson.OPT_INDENT_2)  # a vocabulary takes a tenth of the time
    except orjson.JSONEncodeError:  # integers beyond 64 bits, such as the usual model_max_length
        text = json.dumps(value, indent=2, ensure_ascii=False).encode()
    return text + tail.encode()


def _copy(source: bytes) -> bytes:
    return source


def _crlf_to_lf(source: bytes, *, drop_first_line: bool = False) -> bytes:
    """merges.txt of some checkpoints lacks the version line."""
    text = source.replace(b"\r\n", b"\n")
    return text.partition(b"\n")[2] if drop_first_line else text


def _splice_template(config: bytes, template: bytes, *, strip_newlines: bool = False, final_newline: bool = True,
                     values: str = "{}", below: int | None = None, tokens: Sequence = ()) -> bytes:  # fmt: skip
    """Set `chat_template`, and the keys of `values`, of a tokenizer_config.json; a new key goes last.

    Of its table of added tokens, ids from `below` on are left out, and `tokens`, `[id, content]` each, are renamed.
    """
    text = template.decode()
    spliced = {**json.loads(config), **json.loads(values)}
    if below is not None:
        spliced["added_tokens_decoder"] = _below(spliced["added_tokens_decoder"], below)
    for token_id, content in tokens:
        spliced["added_tokens_decoder"][str(token_id)]["content"] = content
    spliced["chat_template"] = text.rstrip("\n") if strip_newlines else text
    return dump(spliced, tail="\n" if final_newline else "")


def _below(table: Mapping[str, Any], limit: int) -> dict[str, Any]:
    return {token_id: token for token_id, token in table.items() if int(token_id) < limit}


def _drop_key(config: bytes, *, key: str) -> bytes:
    value = json.loads(config)
    del value[key]
    return dump(value)


def _filter_added_tokens(tokenizer: bytes, *, below: int) -> bytes:
    """Keep the added tokens of a tokenizer.json with ids below `below`: an older checkpoint of the family has fewer."""
    value = json.loads(tokenizer)
    value["added_tokens"] = [token for token in value["added_tokens"] if token["id"] < below]
    return dump(value)


def _filter_added_tokens_decoder(config: bytes, *, below: int, drop_key: str) -> bytes:
    """The same for a tokenizer_config.json, and one key less: the chat template of another checkpoint."""
    value = json.loads(config)
    del value[drop_key]
    value["added_tokens_decoder"] = _below(value["added_tokens_decoder"], below)
    return dump(value)


def _rename_added_tokens(tokenizer: bytes, *, tokens: list, final_newline: bool = True) -> bytes:
    """Give added tokens of a tokenizer.json, by id, another text: `[id, content, special, normalized]` each."""
    value = json.loads(tokenizer)
    by_id = {token["id"]: token for token in value["added_tokens"]}
    for token_id, content, special, normalized in tokens:
        by_id[token_id].update(content=content, special=special, normalized=normalized)
    return dump(value, tail="\n" if final_newline else "")


def _literal(*, value: str) -> bytes:
    """A small file written out in the manifest because no package holds it."""
    return dump(json.loads(value))


def _narrowed(*, value: str) -> bytes:
    """A config of which only the fields the oracle reads are known, and pinned."""
    return narrowed(json.loads(value))


def _packed_ranks(binary: bytes, *, count: int) -> bytes:
    return bpe.unpack_ranks(binary, count)


def _packed_ranks_to_merges(binary: bytes, *, count: int) -> bytes:
    return bpe.merges_txt(bpe.one_merge_each(bpe.read_ranks(bpe.unpack_ranks(binary, count)))).encode()


def _ranks_to_json(ranks: bytes, *, pattern: str, added_tokens: list, normalizer: str | None = None,
                   ignore_merges: bool = False, merges: str = "all") -> bytes:  # fmt: skip
    return dump(
        bpe.tokenizer_json(
            bpe.read_ranks(ranks),
            pattern=bpe.PATTERNS[pattern],
            normalizer=normalizer,
            ignore_merges=ignore_merges,
            added_tokens=added_tokens,
            merges=merges,
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


def _gguf_to_json(data: bytes, *, skeleton: str = "smollm2", final_newline: bool = False) -> bytes:
    return dump(gguf.tokenizer_json(data, skeleton), tail="\n" if final_newline else "")


def _sentencepiece_to_json(model: bytes) -> bytes:
    return dump(sentencepiece.tokenizer_json(model), tail="")


def _tekken_to_json(vocabulary: bytes, *, special_tokens: list) -> bytes:
    return dump(tekken.tokenizer_json(vocabulary, special_tokens))


TRANSFORMS: Mapping[str, Transform] = {
    "copy": _copy,
    "crlf-to-lf": _crlf_to_lf,
    "splice-template": _splice_template,
    "drop-key": _drop_key,
    "filter-added-tokens": _filter_added_tokens,
    "filter-added-tokens-decoder": _filter_added_tokens_decoder,
    "rename-added-tokens": _rename_added_tokens,
    "literal": _literal,
    "narrowed": _narrowed,
    "packed-ranks": _packed_ranks,
    "packed-ranks-to-merges": _packed_ranks_to_merges,
    "ranks-to-json": _ranks_to_json,
    "packed-ranks-to-json": _packed_ranks_to_json,
    "gguf-template": _gguf_template,
    "gguf-vocab": _gguf_vocab,
    "gguf-merges": _gguf_merges,
    "gguf-to-json": _gguf_to_json,
    "sentencepiece-to-json": _sentencepiece_to_json,
    "tekken-to-json": _tekken_to_json,
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
