"""A tokenizer's state in parts: the library's own JSON is what every part is compared with."""

from __future__ import annotations

import json

import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

from bellwether.oracles.tokenizer_state import components, join_state, split_printed, split_state
from support import snapshot


def small() -> Tokenizer:
    """A tokenizer with one of everything, and a token that holds the text the state is cut at."""
    tokenizer = Tokenizer(models.WordLevel({"a": 0, ',"model":': 1, '\n  "model": ': 2}, unk_token="a"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.enable_truncation(7)
    tokenizer.enable_padding()
    tokenizer.add_special_tokens([AddedToken("<s>", lstrip=True)])
    tokenizer.add_tokens([AddedToken("word", single_word=True, normalized=False)])
    return tokenizer


@pytest.mark.parametrize("slug", ["smollm2-135m-instruct", "mistral-7b-instruct-v0.3"])
def test_components_are_those_of_the_library_s_json(slug: str):
    """Flags, order and spelling, for real tokenizers of two kinds; only the version and the model are left out."""
    tokenizer = Tokenizer.from_file(str(snapshot(slug) / "tokenizer.json"))
    expected = json.loads(tokenizer.to_str())
    del expected["version"], expected["model"]
    assert components(tokenizer) == expected


def test_components_of_a_tokenizer_with_everything_set():
    """Truncation and padding are told in the library's own dictionaries, which spell their values otherwise."""
    expected, found = json.loads(small().to_str()), components(small())
    del expected["version"], expected["model"]
    assert (found.pop("truncation")["max_length"], expected.pop("truncation")["max_length"]) == (7, 7)
    assert (found.pop("padding")["pad_token"], expected.pop("padding")["pad_token"]) == ("[PAD]", "[PAD]")
    assert found == expected


def test_component_written_in_python_has_no_state():
    """Nobody could tell what it does."""

    class Cutter:
        def pre_tokenize(self, text):
            pass

    tokenizer = small()
    tokenizer.pre_tokenizer = pre_tokenizers.PreTokenizer.custom(Cutter())
    with pytest.raises(Exception, match="Custom"):
        components(tokenizer)


def test_split_and_joined_state_is_the_tokenizer_again():
    """The cut is at the key, never inside a token that spells it."""
    state, model = split_state(small())
    assert set(json.loads(small().to_str())) - set(state) == {"model"}
    assert join_state(state, model).to_str() == small().to_str()


def test_printed_state_splits_alike():
    """With indents as without."""
    state, model = split_printed(small().to_str(pretty=True))
    assert state == split_state(small())[0]
    assert json.loads(model.removesuffix("}")) == json.loads(small().to_str())["model"]


def test_state_printed_in_another_way_is_refused():
    """Whoever compares texts then has to load the file."""
    with pytest.raises(ValueError):
        split_printed(json.dumps(json.loads(small().to_str()), indent=4))
