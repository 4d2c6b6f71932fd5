"""The state of a tokenizer as the library writes it, without its vocabulary as Python objects."""

from __future__ import annotations

import json
from typing import Any

from tokenizers import Tokenizer

_MODEL = ',"model":'
_VOCABULARY = ',"vocab":'
_PRETTY_MODEL = '\n  "model": '


def split_state(tokenizer: Tokenizer) -> tuple[dict[str, Any], str]:
    """Return a tokenizer's components as JSON values, and its model as unparsed JSON text.

    A vocabulary and its merges take hundreds of megabytes as Python objects. No JSON string can hold the quotes of the
    key the text is cut at, and the model comes last. Raises what `to_str` raises: a component written in Python has no
    JSON.
    """
    components, _, model = tokenizer.to_str().partition(_MODEL)
    return json.loads(components + "}"), model


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


def model_head(model: str) -> dict[str, Any]:
    """Return what stands before the vocabulary in a model's JSON text: its type and, for BPE, the dropout."""
    head, found, _ = model.partition(_VOCABULARY)
    return json.loads(head + "}") if found else {}
