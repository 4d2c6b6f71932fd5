"""What the oracle reads of a checkpoint's config files: the narrowed values whose sha256s are pinned.

| file | narrowed to |
|---|---|
| generation_config.json | the three token ids |
| config.json | model type and tokenizer class |
| config.json where there is no generation_config.json | these two, and the three ids as transformers derives them |
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from bellwether.errors import MaterialError

TOKEN_IDS = ("bos_token_id", "eos_token_id", "pad_token_id")
IDENTITY = ("model_type", "tokenizer_class")


def read_config(name: str, data: bytes) -> dict[str, Any]:
    """Return a config file as a value.

    Raises:
        MaterialError: the bytes are no JSON object.
    """
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise MaterialError(f"{name} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise MaterialError(f"{name} is no JSON object")
    return value


def own_ids(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the three token ids that a config states itself.

    Multimodal checkpoints keep the text model's ids one level down, where transformers reads those that the outer level
    leaves out or sets to null.
    """
    inner = config.get("text_config") if isinstance(config.get("text_config"), dict) else {}
    return {key: inner.get(key) if config.get(key) is None else config[key] for key in TOKEN_IDS}


def pick(config: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    """Return the named fields; an absent one is null."""
    return {key: config.get(key) for key in keys}


def derived_ids(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the three token ids a checkpoint without generation_config.json generates with: what transformers'
    `GenerationConfig.from_model_config` takes from the config class of its model type, defaults of the class included.

    Raises:
        MaterialError: transformers has no class for the model type, or the class refuses the config.
    """
    from transformers import GenerationConfig
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    kind = config.get("model_type")
    try:
        config_class = CONFIG_MAPPING[kind]
    except (KeyError, TypeError):
        raise MaterialError(
            f"transformers has no config class for model type {kind!r}, so the token ids cannot be derived",
            next_step="Write the manifest by hand once they are known, or wait for a transformers that has the class.",
        ) from None
    try:
        generation = GenerationConfig.from_model_config(config_class.from_dict(dict(config)))
    except Exception as error:  # a vendor's file: its class may find anything wrong with it
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise MaterialError(f"transformers cannot read config.json: {reason}") from error
    return {key: getattr(generation, key) for key in TOKEN_IDS}
