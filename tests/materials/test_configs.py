"""What is read of configs, and what transformers derives from them. Expected values are those of its config classes."""

from __future__ import annotations

import json
from hashlib import sha256

import pytest

from bellwether.errors import MaterialError
from bellwether.materials.configs import derived_ids, own_ids
from bellwether.materials.routes import narrow
from bellwether.params import InputFile

DEFAULTS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None}
"""Of LlamaConfig."""


def test_ids_a_config_leaves_out_are_its_class_s():
    """An engine that builds the generation config from the model config stops on them."""
    assert derived_ids({"model_type": "llama"}) == DEFAULTS
    assert own_ids({"model_type": "llama"}) == dict.fromkeys(DEFAULTS)


def test_ids_of_the_text_model_are_found_one_level_down():
    """Qwen3.5-9B has no generation_config.json, and its end of turn stands in text_config."""
    config = {"model_type": "qwen3_5", "text_config": {"model_type": "qwen3_5_text", "eos_token_id": 248044}}
    ids = {"bos_token_id": None, "eos_token_id": 248044, "pad_token_id": None}
    assert derived_ids(config) == own_ids(config) == ids


@pytest.mark.parametrize("kind", [None, "no-such-type", ["llama"], 5])
def test_a_model_type_without_a_class_derives_nothing(kind: object):
    """Whatever stands there: no default of another class is taken."""
    with pytest.raises(MaterialError, match="no config class for model type") as caught:
        derived_ids({"model_type": kind, "eos_token_id": 7})
    assert caught.value.next_step


def test_a_config_its_class_refuses_derives_nothing():
    """One line that says what is wrong."""
    with pytest.raises(MaterialError, match=r"transformers cannot read config\.json: .*hidden_size") as caught:
        derived_ids({"model_type": "llama", "hidden_size": "wide"})
    assert "\n" not in str(caught.value)


def test_a_config_is_narrowed_to_derived_ids_where_they_are_pinned():
    """The whole config states none of the three."""
    pinned = json.dumps({**DEFAULTS, "model_type": "llama", "tokenizer_class": None}, sort_keys=True).encode()
    file = InputFile("config.json", sha256(pinned).hexdigest(), "identical")
    assert narrow(file, b'{"model_type": "llama", "vocab_size": 9}') == pinned
