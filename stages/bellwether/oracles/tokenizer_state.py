"""The state of a tokenizer as the library writes it, without its vocabulary as Python objects."""

from __future__ import annotations

import json
from typing import Any

from tokenizers import Tokenizer

_MODEL = ',"model":'
_PRETTY_MODEL = '\n  "model": '


def split_state(tokenizer: Tokenizer) -> tuple[dict[str, Any], str]:
    """Return a tokenizer's components as JSON values, and its model as unparsed JSON text.

    A vocabulary and its merges take hundreds of megabytes as Python objects. No JSON string can hold the quotes of the
    key the text is cut at, and the model comes last. Raises what `to_str` raises: a component written in Python has no
    JSON.
    """
    components, _, model = tokenizer.to_str().partition(_MODEL)
    return json.loads(components + "}"), model


def components(tokenizer: Tokenizer) -> dict[str, Any]:
    """Return a tokenizer's components as its JSON spells them, without the model, which takes a second to print.

    Truncation and padding are None, or dictionaries of the library's own.

    Raises:
        Exception: a component is written in Python and has no JSON. The library's own class.
    """
    parts = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
    found = {name: getattr(tokenizer, name) for name in parts}
    flags = ("content", "single_word", "lstrip", "rstrip", "normalized", "special")
    tokens = sorted(tokenizer.get_added_tokens_decoder().items())
    return {
        "truncation": tokenizer.truncation,
        "padding": tokenizer.padding,
        "added_tokens": [{"id": number} | {flag: getattr(token, flag) for flag in flags} for number, token in tokens],
        **{name: part if part is None else json.loads(part.__getstate__()) for name, part in found.items()},
    }


def split_printed(text: str) -> tuple[dict[str, Any], str]:
    """Return the same two parts of a state the library printed with indents, as most tokenizer.json files are.

    No JSON string can hold the line end before the key the text is cut at.

    Raises:
        ValueError: it is printed in another way.
    """
    components, _, model = text.rstrip().partition(_PRETTY_MODEL)
    return json.loads(components.removesuffix(",") + "}"), model


def join_state(components: dict[str, Any], model: str) -> Tokenizer:
    """Return the tokenizer of such a state."""
    return Tokenizer.from_str(json.dumps(components)[:-1] + _MODEL + model)
