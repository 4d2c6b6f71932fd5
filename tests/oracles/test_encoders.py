"""Encoders: when one encode may stand for two, and what streamed pieces are."""

from __future__ import annotations

import json
from array import array
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models
from transformers import Qwen2Tokenizer

from bellwether.errors import OracleError
from bellwether.oracles.encoders import GUARD_EVERY, Encoder, encoding_state, load_encoders, without_unicode_forms
from bellwether.oracles.segments import Proof
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


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"special": true', '"special": false'),
        ('"behavior": "Isolated"', '"behavior": "Removed"'),
        ('"ignore_merges": false', '"ignore_merges": true'),
    ],
)
def test_file_that_is_printed_otherwise_is_another_encoder(checkpoint, tmp_path, old, new):
    """A flag, a component, a word of the vocabulary: one change of the file's text, and two encoders."""
    of_class = checkpoint("qwen3-8b").tokenizer.backend_tokenizer
    text = (snapshot("qwen3-8b") / "tokenizer.json").read_text("utf-8")
    (tmp_path / "tokenizer.json").write_text(text, "utf-8")
    assert [encoder.name for encoder in load_encoders(tmp_path, of_class)] == ["both"]
    assert old in text
    (tmp_path / "tokenizer.json").write_text(text.replace(old, new, 1), "utf-8")
    assert [encoder.name for encoder in load_encoders(tmp_path, of_class)] == ["class", "tokenizer.json"]


def test_file_in_another_layout_is_loaded_and_compared(checkpoint, tmp_path):
    """Spaces, line ends and the order of keys are no difference."""
    of_class = checkpoint("qwen3-8b").tokenizer.backend_tokenizer
    state = json.loads((snapshot("qwen3-8b") / "tokenizer.json").read_text("utf-8"))
    for order, indent in ((list(state), None), (list(reversed(state)), 2)):
        (tmp_path / "tokenizer.json").write_text(json.dumps({key: state[key] for key in order}, indent=indent))
        assert [encoder.name for encoder in load_encoders(tmp_path, of_class)] == ["both"]


def test_pieces_hold_incomplete_characters_back(checkpoint):
    """The published example: the three bytes-tokens of a goose give one piece, with its space, at the last id."""
    assert checkpoint("qwen3-8b").encoders[0].pieces([13048, 11162, 103, 123, 0]) == ["Hi", "", "", " 🪿", "!"]


def test_special_tokens_are_read_and_never_added(checkpoint):
    """Text that spells a special token gives its id; nothing is put before or after."""
    encoder = checkpoint("qwen3-8b").encoders[0]
    assert encoder.encode(["<|im_end|>"]) == [[151645]]
    assert encoder.decode([151645]) == "<|im_end|>"
    assert checkpoint("deepseek-v3-0324").encoders[0].encode([""]) == [[]]


@settings(deadline=None)
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
    copy = without_unicode_forms(Encoder("both", Tokenizer.from_str(json.dumps(state))))
    assert json.loads(copy.tokenizer.to_str())["normalizer"]["normalizers"] == [{"type": "Lowercase"}]


# ── segments and their guard ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("slug", ["qwen3-8b", "gpt-oss-20b"])
def test_real_encoders_encode_by_segments(checkpoint, slug):
    """A segment met before is not encoded again, and the ids stay those of the whole."""
    encoder = Encoder("both", checkpoint(slug).encoders[0].tokenizer)
    assert encoder.proof.why == ""
    mark = next(iter(encoder.proof.cuts))
    texts = [mark.join(BENGALI.split()[:count]) for count in range(4)]
    assert encoder.encode(texts) == [encoder.encode_with_offsets(text)[0] for text in texts]
    assert encoder._segments.encoded < sum(len(text.split(mark)) for text in texts)


def _wrong(why: str = "") -> Encoder:
    """An encoder with a false proof: `<s>` takes the spaces beside it, and so may not be cut at."""
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1, "b": 2}, unk_token="[UNK]"))
    tokenizer.add_tokens([AddedToken("<s>", lstrip=True, normalized=False)])
    encoder = Encoder("class", tokenizer)
    vars(encoder)["proof"] = Proof({} if why else {"<s>": 3}, why=why)
    return encoder


RIGHT, WRONG = "a<s>a", "b<s>a <s>"


@pytest.mark.parametrize("texts", [[WRONG, RIGHT], [RIGHT, RIGHT, WRONG]])
def test_first_and_last_text_of_a_call_are_compared_with_the_whole(texts):
    """A difference stops recording: whose text it is, which id, and where in the text."""
    encoder = _wrong()
    encoder.encode([RIGHT, RIGHT])
    names = [f"slug render/x/{number}" for number in range(len(texts))]
    place = texts.index(WRONG)
    with pytest.raises(OracleError, match=rf"slug render/x/{place}: encoder class .* id 2 \(character 4: 'a <s>'\)"):
        encoder.encode(texts, names)
    with pytest.raises(OracleError, match=rf"text {place + 1} of {len(texts)}: "):
        encoder.encode(texts)


def test_texts_the_caller_names_are_compared_with_the_whole():
    """In the place of the first and the last; also the only one of a call."""
    encoder = _wrong()
    encoder.encode([RIGHT])
    encoder.encode_packed([WRONG, RIGHT, WRONG], ends=[1])
    with pytest.raises(OracleError, match="text 2 of 3"):
        encoder.encode_packed([RIGHT, WRONG, RIGHT], ends=[1])
    with pytest.raises(OracleError, match="text 1 of 1"):
        encoder.encode_packed([WRONG], ends=[0])


def test_every_fiftieth_text_is_compared_with_the_whole():
    """Single texts come one by one: the first is compared, and then every fiftieth."""
    with pytest.raises(OracleError, match="text 1 of 1"):
        _wrong().encode([WRONG])
    encoder = _wrong()
    encoder.encode([RIGHT])
    for _ in range(GUARD_EVERY - 1):
        encoder.encode([WRONG])
    with pytest.raises(OracleError):
        encoder.encode([WRONG])


def test_every_fiftieth_text_is_compared_inside_a_call_too():
    """The count goes on from call to call."""
    encoder = _wrong()
    encoder.encode([RIGHT] * 30)
    encoder.encode([RIGHT] * 10 + [WRONG] + [RIGHT] * 5)
    encoder = _wrong()
    encoder.encode([RIGHT] * 30)
    with pytest.raises(OracleError, match="text 21 of 40"):
        encoder.encode([RIGHT] * 20 + [WRONG] + [RIGHT] * 19)


def test_text_whose_ids_only_end_too_early_is_found():
    """The place is then the end of the text or the first id that is missing."""
    encoder = _wrong()
    vars(encoder)["_segments"] = SimpleNamespace(encode=lambda texts: [array("I", [1]) for _ in texts])
    with pytest.raises(OracleError, match=r"from id 1 \(character 1: '<s>a'\)"):
        encoder.encode([RIGHT])


def test_unproved_tokenizer_is_encoded_whole():
    """Then there is nothing to compare."""
    encoder = _wrong(why="some rule")
    assert encoder._segments is None
    assert encoder.encode([WRONG, WRONG]) == [encoder.encode_with_offsets(WRONG)[0]] * 2


def test_packed_ids_are_the_same_ids(checkpoint):
    """u32, in the order of the texts."""
    encoder = checkpoint("qwen3-8b").encoders[0]
    texts = ["Hi 🪿!", "", "<|im_end|>"]
    packed = encoder.encode_packed(texts)
    assert [ids.tolist() for ids in packed] == encoder.encode(texts) == [[13048, 11162, 103, 123, 0], [], [151645]]
    assert {(ids.typecode, ids.itemsize) for ids in packed} == {("I", 4)}


@pytest.mark.parametrize("texts", [[], [""]])
def test_nothing_to_encode(checkpoint, texts):
    """No text gives no ids, and an empty text no id."""
    assert checkpoint("qwen3-8b").encoders[0].encode(texts) == [[] for _ in texts]
