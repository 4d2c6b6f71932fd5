"""Encoders: when one encode may stand for two, and what streamed pieces are."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers import Qwen2Tokenizer

from bellwether.oracles.encoders import encoding_state, load_encoders, without_unicode_forms
from support import load_checkpoint, snapshot

BENGALI = "শিক্ষার্থীরা বৃষ্টিতে ভিজছে।"


@pytest.fixture(scope="module")
def qwen35_with_another_class():
    """Qwen3.5's files under Qwen2's tokenizer class, whose pre-tokenizer cuts at combining marks."""
    folder = snapshot("qwen3.5-9b")
    state = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    merges = [tuple(pair) for pair in state["model"]["merges"]]
    tokenizer = Qwen2Tokenizer(vocab=state["model"]["vocab"], merges=merges)
    return load_encoders(folder, tokenizer.backend_tokenizer)


@pytest.mark.parametrize("slug", ["qwen3-8b", "deepseek-v3-0324", "gpt-oss-20b", "glm-4.6"])
def test_class_that_equals_its_file_needs_one_encode(checkpoint, slug):
    """transformers' class and tokenizer.json prove equal by their states, so rows say `both`."""
    assert [encoder.name for encoder in checkpoint(slug).encoders] == ["both"]


def test_class_that_differs_from_its_file_is_recorded_beside_it(qwen35_with_another_class):
    """Under Qwen2's class, Bengali text of Qwen3.5 gets other ids than from tokenizer.json; English does not."""
    of_class, of_file = qwen35_with_another_class
    assert (of_class.name, of_file.name) == ("class", "tokenizer.json")
    assert of_class.encode([BENGALI]) != of_file.encode([BENGALI])
    assert of_class.encode(["Good morning."]) == of_file.encode(["Good morning."])


def test_folder_without_tokenizer_json_has_the_class_only(tmp_path, checkpoint):
    """Then there is nothing to compare the class with."""
    tokenizer = checkpoint("smollm2-135m-instruct").tokenizer.backend_tokenizer
    assert [encoder.name for encoder in load_encoders(tmp_path, tokenizer)] == ["class"]


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state.update(normalizer=None),
        lambda state: state["model"].update(ignore_merges=True),
        lambda state: state["added_tokens"][0].update(special=False),
        lambda state: state["added_tokens"][0].update(lstrip=True),
        lambda state: state["pre_tokenizer"]["pretokenizers"][0].update(behavior="Removed"),
        lambda state: state["model"]["merges"].pop(),
    ],
)
def test_state_shows_whatever_can_change_ids(change):
    """Normalizer, merges, flags of added tokens, splitting: each makes two states unequal."""
    text = load_checkpoint("qwen3-8b").encoders[0].tokenizer.to_str()
    state = json.loads(text)
    change(state)
    assert encoding_state(Tokenizer.from_str(json.dumps(state))) != encoding_state(Tokenizer.from_str(text))


def test_state_hides_what_cannot_change_ids():
    """Offsets, the post-processor and the arguments of a byte-level decoder have no part in ids or text."""
    text = load_checkpoint("qwen3-8b").encoders[0].tokenizer.to_str()
    state = json.loads(text)
    byte_level = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    state["decoder"] = state["post_processor"] = byte_level
    state["pre_tokenizer"]["pretokenizers"][1]["trim_offsets"] = True
    changed = Tokenizer.from_str(json.dumps(state))
    assert encoding_state(changed) == encoding_state(Tokenizer.from_str(text))
    ids = changed.encode(BENGALI, add_special_tokens=False).ids
    assert ids == Tokenizer.from_str(text).encode(BENGALI, add_special_tokens=False).ids


def test_pieces_hold_incomplete_characters_back(checkpoint):
    """The published example: the three bytes-tokens of a goose give one piece, with its space, at the last id."""
    assert checkpoint("qwen3-8b").encoders[0].pieces([13048, 11162, 103, 123, 0]) == ["Hi", "", "", " 🪿", "!"]


def test_special_tokens_are_read_and_never_added(checkpoint):
    """Text that spells a special token gives its id; nothing is put before or after."""
    encoder = checkpoint("qwen3-8b").encoders[0]
    assert encoder.encode(["<|im_end|>"]) == [[151645]]
    assert encoder.decode([151645]) == "<|im_end|>"
    assert checkpoint("deepseek-v3-0324").encoders[0].encode([""]) == [[]]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=30), max_size=5))
def test_batch_encoding_equals_encoding_one_by_one(texts):
    """The fast batch call gives what the plain call gives, ids by ids."""
    encoder = load_checkpoint("gpt-oss-20b").encoders[0]
    assert encoder.encode(texts) == [encoder.encode_with_offsets(text)[0] for text in texts]


def test_copy_without_unicode_forms_keeps_the_rest(checkpoint):
    """Qwen3 has NFC only, so the copy has no normalizer; a tokenizer without such forms has no copy."""
    qwen = checkpoint("qwen3-8b").encoders[0]
    plain = without_unicode_forms(qwen)
    assert json.loads(plain.tokenizer.to_str())["normalizer"] is None
    assert plain.decode(plain.encode(["e\u0301"])[0]) == "e\u0301"
    assert qwen.decode(qwen.encode(["e\u0301"])[0]) == "é"
    assert without_unicode_forms(checkpoint("gpt-oss-20b").encoders[0]) is None


def test_copy_without_unicode_forms_of_a_sequence():
    """Inside a sequence only the Unicode forms go."""
    state = json.loads(load_checkpoint("qwen3-8b").encoders[0].tokenizer.to_str())
    state["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Lowercase"}]}
    from bellwether.oracles.encoders import Encoder

    copy = without_unicode_forms(Encoder("both", Tokenizer.from_str(json.dumps(state))))
    assert json.loads(copy.tokenizer.to_str())["normalizer"]["normalizers"] == [{"type": "Lowercase"}]
