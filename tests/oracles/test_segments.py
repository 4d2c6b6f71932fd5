"""Segments: wherever the proof allows to cut, the ids of the pieces are those of the whole text."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import re
from collections import Counter
from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from bellwether.oracles import segments
from bellwether.oracles.aside import encode_aside
from bellwether.oracles.segments import Proof, SegmentEncoder, overlaps, prove
from bellwether.params import read_params
from support import ROOT, load_checkpoint, snapshot

ALPHABET = "abAB <>|_-.é ▁\u0301ﬁⅣ1中\n"
FLAGS = ("lstrip", "rstrip", "single_word", "normalized", "special")


def whole(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False).ids


def by_segments(tokenizer: Tokenizer, texts: list[str], proof: Proof | None = None) -> list[list[int]]:
    return [ids.tolist() for ids in SegmentEncoder(tokenizer, proof or prove(tokenizer)).encode(texts)]


# ── random tokenizers ────────────────────────────────────────────────────────────────────────────────────────────────

WORDS = [
    "a",
    "b",
    "A",
    "B",
    "ab",
    "ba",
    "aa",
    "abab",
    " ",
    " a",
    "▁",
    "▁a",
    "▁ab",
    "Ġ",
    "Ġa",
    "<",
    ">",
    "|",
    "é",
    "中",
    "1",
]


def _bpe() -> models.Model:
    letters = sorted({*ALPHABET, *pre_tokenizers.ByteLevel.alphabet()})
    merges = [
        ("a", "b"),
        ("b", "a"),
        ("ab", "a"),
        ("▁", "a"),
        ("Ġ", "a"),
        ("<", "a"),
        ("a", ">"),
        (" ", "a"),
        ("|", "|"),
    ]
    vocabulary = dict.fromkeys([*letters, *("".join(pair) for pair in merges), "[UNK]"])
    return models.BPE(
        {token: place for place, token in enumerate(vocabulary)}, merges, unk_token="[UNK]", fuse_unk=True
    )


def _model(kind: str) -> models.Model:
    match kind:
        case "BPE":
            return _bpe()
        case "Unigram":
            return models.Unigram([("[UNK]", 0.0), *((word, -1.0 - len(word) % 3) for word in WORDS)], 0, False)
        case "WordPiece":
            pieces = ["[UNK]", *WORDS, *(f"##{word}" for word in WORDS)]
            return models.WordPiece({word: place for place, word in enumerate(pieces)}, unk_token="[UNK]")
        case _:
            return models.WordLevel({word: place for place, word in enumerate(["[UNK]", *WORDS])}, unk_token="[UNK]")


NORMALIZERS = (
    *(normalizers.NFC, normalizers.NFKD, normalizers.NFKC, normalizers.Lowercase, normalizers.StripAccents),
    *(normalizers.Strip, normalizers.BertNormalizer, normalizers.Nmt, normalizers.ByteLevel),
    lambda: normalizers.Prepend("▁"),
    lambda: normalizers.Replace(" ", "▁"),
    lambda: normalizers.Replace(Regex("[<a]+"), "b"),
    lambda: normalizers.Replace("-", ""),
)
PRE_TOKENIZERS = (
    *(pre_tokenizers.Whitespace, pre_tokenizers.WhitespaceSplit, pre_tokenizers.BertPreTokenizer),
    *(pre_tokenizers.Punctuation, pre_tokenizers.Digits, pre_tokenizers.UnicodeScripts),
    lambda: pre_tokenizers.ByteLevel(add_prefix_space=True),
    lambda: pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    lambda: pre_tokenizers.Metaspace(prepend_scheme="first"),
    lambda: pre_tokenizers.Metaspace(prepend_scheme="first", split=False),
    lambda: pre_tokenizers.Metaspace(prepend_scheme="always"),
    lambda: pre_tokenizers.Metaspace(prepend_scheme="never", split=False),
    lambda: pre_tokenizers.Split(Regex("a(?!b)|^b|b$"), "isolated"),
    lambda: pre_tokenizers.Split(" ", "merged_with_next"),
    lambda: pre_tokenizers.CharDelimiterSplit("-"),
    lambda: pre_tokenizers.FixedLength(3),
)
POST_PROCESSORS = (
    lambda: processors.ByteLevel(trim_offsets=True),
    lambda: processors.TemplateProcessing(single="a $A b", special_tokens=[("a", 0), ("b", 1)]),
    lambda: processors.RobertaProcessing(("b", 1), ("a", 0), trim_offsets=True, add_prefix_space=True),
)
# Contents that share edges, hide each other, are alike once normalised, begin or end with words or spaces.
CONTENTS = (
    *("<|a|>", "<|b|>", "<|ab|>", "<|A|>", "<s>", "</s>", "<<", ">>", "<|", "|>", "a", "ab", "AB", "b|>", "|"),
    *(" <a>", "<a> ", " ", "\n", "\n\n", "<é>", "<e\u0301>", "ﬁ", "fi", "--", "-", "a-b", "_a_", "<_>", "[UNK]", "▁"),
    *("<tool>", "<tool|>", "<to", "ol>", "aba", "<中>", "中"),
)
FREE = ("<|a|>", "<|b|>", "<s>", "</s>", "<_>", "<tool>", "<中>", "[UNK]")
"""Contents none of which overlaps another: a tokenizer with only these is likely to have something to cut at."""


@st.composite
def tokenizers(draw: st.DrawFn) -> Tokenizer:
    """Draw a live tokenizer: built by calls, as classes build them, tokens added twice with other flags included."""
    tokenizer = Tokenizer(_model(draw(st.sampled_from(sorted(segments.MODELS)))))
    tokenizer.decoder = decoders.Fuse()
    before = draw(st.booleans())
    if before:
        _add_components(draw, tokenizer)
    pool = st.sampled_from(draw(st.sampled_from([FREE, FREE, CONTENTS])))
    odd = draw(st.sampled_from([(), (), *((flag,) for flag in FLAGS[:3]), FLAGS[:3]]))
    for content in draw(st.lists(pool, min_size=1, max_size=6)):
        flags = {flag: draw(st.booleans()) for flag in (*odd, "special")}
        token = AddedToken(content, **{"normalized": draw(st.sampled_from([False, False, True])), **flags})
        (tokenizer.add_special_tokens if draw(st.booleans()) else tokenizer.add_tokens)([token])
    if not before:
        _add_components(draw, tokenizer)
    tokenizer.encode_special_tokens = draw(st.sampled_from([False, False, False, True]))
    return tokenizer


def _add_components(draw: st.DrawFn, tokenizer: Tokenizer) -> None:
    chosen = draw(st.lists(st.sampled_from(NORMALIZERS), max_size=2))
    if chosen or draw(st.booleans()):
        tokenizer.normalizer = normalizers.Sequence([build() for build in chosen])
    if chosen := draw(st.lists(st.sampled_from(PRE_TOKENIZERS), max_size=2)):
        parts = [build() for build in chosen]
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(parts) if len(parts) > 1 else parts[0]
    if (build := draw(st.sampled_from([None, *POST_PROCESSORS]))) is not None:
        tokenizer.post_processor = build()


def adversarial(draw: random.Random, contents: list[str], length: int) -> str:
    """Return a text of contents, their beginnings and ends, and letters that normalise, join or separate."""
    parts = []
    for _ in range(length):
        content = contents[draw.randrange(len(contents))] if contents else ""
        cut = draw.randrange(len(content) + 1)
        parts.append(
            [content, content, content[:cut], content[cut:], content.swapcase(), *ALPHABET][draw.randrange(12)]
        )
        if draw.random() < 0.5:
            parts.append(ALPHABET[draw.randrange(len(ALPHABET))])
    return "".join(parts)


def _texts(tokenizer: Tokenizer, seed: int, count: int) -> list[str]:
    draw = random.Random(seed)
    contents = [token["content"] for token in json.loads(tokenizer.to_str())["added_tokens"]]
    texts = ["", *contents]
    for _ in range(count):  # many begin as the one before does, up to any place of it
        shared = draw.randrange(2 * len(texts[-1]) + 1)
        begin = texts[-1][:shared] if shared <= len(texts[-1]) else ""
        texts.append(begin + adversarial(draw, contents, draw.randrange(1, 14)))
    return texts


EXAMPLES = int(os.environ.get("BELLWETHER_EXAMPLES", "1500"))
"""How many random tokenizers. Where it is set, as in BELLWETHER_EXAMPLES=40000, all real tokenizers are tried too."""


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(tokenizers(), st.integers(0, 2**32))
def test_segments_give_the_ids_of_the_whole_under_any_tokenizer_that_is_proved(tokenizer, seed):
    """Flags, normalizers, pre-tokenizers, the four models, tokens added twice, contents that overlap: no difference."""
    proof = prove(tokenizer)
    if not proof.cuts:
        return
    texts = _texts(tokenizer, seed, 25)
    assert by_segments(tokenizer, texts, proof) == [whole(tokenizer, text) for text in texts]


def test_many_random_tokenizers_are_proved():
    """Of 400 drawn ones at least a third can be cut, with every model, a normalizer, stripping tokens, Metaspace."""
    seen: Counter[str] = Counter()

    @settings(max_examples=400, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(tokenizers())
    def count(tokenizer):
        proof = prove(tokenizer)
        state = json.loads(tokenizer.to_str())
        seen["drawn"] += 1
        if proof.cuts:
            flags = {flag for token in state["added_tokens"] for flag in FLAGS if token[flag]}
            seen.update(["proved", state["model"]["type"], *flags])
            seen["first"] += proof.first
            seen["normalizer"] += state["normalizer"] is not None
            seen["kept"] += bool(proof.kept)

    count()
    assert seen["proved"] * 3 >= seen["drawn"] >= 400
    assert [what for what in (*segments.MODELS, *FLAGS, "first", "normalizer", "kept") if seen[what] < 8] == []


# ── real tokenizers ──────────────────────────────────────────────────────────────────────────────────────────────────


KINDS = (
    *("qwen3-8b", "deepseek-v3-0324", "kimi-k2-instruct"),  # NFC; tokens looked for in normalised text; no file
    *("mistral-7b-instruct-v0.3", "gemma-3-it", "olmo-3-7b-instruct"),  # Metaspace; 6415 tokens; tokens that overlap
)
CHECKPOINTS = read_params(ROOT).checkpoints if "BELLWETHER_EXAMPLES" in os.environ else KINDS


@pytest.mark.parametrize("slug", CHECKPOINTS)
def test_segments_give_the_ids_of_the_whole_under_real_tokenizers(slug):
    """Texts of each checkpoint's own added tokens, their beginnings and ends, and letters between them."""
    file = snapshot(slug) / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(file)) if file.is_file() else load_checkpoint(slug).encoders[0].tokenizer
    proof = prove(tokenizer)
    assert proof.way == "segments"
    texts = _texts(tokenizer, 1, 400)
    theirs = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    assert by_segments(tokenizer, texts, proof) == [encoding.ids for encoding in theirs]


# ── one tokenizer for each rule: without it, other ids ──────────────────────────────────────────────────────────────


def words(*added: AddedToken, normalizer: Any = None, pre_tokenizer: Any = None) -> Tokenizer:
    """Return a tokenizer of whole words, `a`, `b` and `ab`."""
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1, "b": 2, "ab": 3, "▁a": 4}, unk_token="[UNK]"))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.add_tokens(list(added))
    return tokenizer


def token(content: str, **flags: bool) -> AddedToken:
    return AddedToken(content, **{"normalized": False, **flags})


SPAN = normalizers.Replace(Regex("a<"), "b")
RULES = {
    "takes spaces beside it": [
        (words(token("<s>", lstrip=True)), "<s>", "a <s>"),
        (words(token("<s>", rstrip=True)), "<s>", "<s> a"),
    ],
    "is found between words only": [(words(token("aa", single_word=True)), "aa", "aab")],
    "is looked for in normalised text": [(words(token("<s>", normalized=True), normalizer=SPAN), "<s>", "a<s>")],
    "may end the word another token asks for": [
        (words(token("aa", single_word=True), token("1>")), "1>", "aa1>"),
        (words(token("aa", single_word=True), token("<_")), "<_", "<_aa"),
    ],
    "may be spaces another token takes": [
        (words(token("<s>", rstrip=True), token("\n.", normalized=True)), "\n.", "<s>\n."),
        (words(token("<s>", lstrip=True), token(".\n", normalized=True)), ".\n", ".\n<s>"),
    ],
    "overlaps '<a>'": [
        (words(token("<a>"), token("a")), "a", "<a>"),
        (words(token("<a>"), token(">b")), ">b", "<a>b"),
    ],
    "overlaps '<a>b'": [(words(token("<a>"), token("<a>b")), "<a>", "<a>b")],
    "overlaps '>b'": [(words(token("a>", normalized=True), token(">b")), "a>", "a>b")],
}
"""Rule → tokenizer, token, and a text that comes out wrong when it is cut there all the same."""


@pytest.mark.parametrize(
    ("rule", "tokenizer", "content", "text"), [(rule, *case) for rule, cases in RULES.items() for case in cases]
)
def test_rule_that_forbids_a_cut_is_needed(rule, tokenizer, content, text):
    """The rule names itself for the token, and cutting there in spite of it gives other ids."""
    assert prove(tokenizer).kept[content] == rule
    cut_anyway = Proof({content: tokenizer.token_to_id(content)})
    assert by_segments(tokenizer, [text], cut_anyway) != [whole(tokenizer, text)]


def test_start_of_the_text_keeps_its_own_rule():
    """Metaspace `first` puts a mark before the text and before no later piece."""
    tokenizer = words(token("<s>"), pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme="first"))
    proof = prove(tokenizer)
    texts = ["a<s>a", "<s>a", "a", "<s><s>", ""]
    assert by_segments(tokenizer, texts, proof) == [[4, 5, 1], [5, 1], [4], [5, 5], []]
    assert by_segments(tokenizer, texts, Proof(proof.cuts))[0] == [4, 5, 4] != whole(tokenizer, texts[0])


def test_mark_before_every_piece_needs_no_rule():
    """Metaspace `always` and a byte-level prefix space are added to each piece by the library, too."""
    for pre_tokenizer in (pre_tokenizers.Metaspace(prepend_scheme="always"), pre_tokenizers.ByteLevel()):
        tokenizer = words(token("<s>"), pre_tokenizer=pre_tokenizer)
        proof = prove(tokenizer)
        assert proof.cuts and not proof.first
        assert by_segments(tokenizer, ["a<s>a"]) == [whole(tokenizer, "a<s>a")]


def _truncating(tokenizer: Tokenizer) -> None:
    tokenizer.enable_truncation(2)


def _padding(tokenizer: Tokenizer) -> None:
    tokenizer.enable_padding(length=4)


def _encoding_special(tokenizer: Tokenizer) -> None:
    """The token was special once. That is forgotten in the state, but not here."""
    tokenizer.add_special_tokens([token("<t>")])
    tokenizer.add_tokens([token("<t>", special=False)])
    tokenizer.encode_special_tokens = True


@pytest.mark.parametrize(
    ("change", "why", "content", "text"),
    [
        (_truncating, "truncation is set", "<s>", "a<s>a"),
        (_padding, "padding is set", "<s>", "a<s>"),
        (_encoding_special, "special tokens are encoded like any text", "<t>", "<t>"),
    ],
)
def test_tokenizer_whose_pieces_depend_on_each_other_is_not_cut(change, why, content, text):
    """The reason is told, and cutting in spite of it gives other ids."""
    tokenizer = words(token("<s>"))
    change(tokenizer)
    assert (prove(tokenizer).way, prove(tokenizer).cuts) == (f"whole: {why}", {})
    cut_anyway = Proof({content: tokenizer.token_to_id(content)})
    assert by_segments(tokenizer, [text], cut_anyway) != [whole(tokenizer, text)]


def test_dropout_is_not_cut():
    """With dropout, one text has many ids."""
    model = models.BPE({"a": 0, "b": 1, "ab": 2}, [("a", "b")], dropout=0.5)
    tokenizer = Tokenizer(model)
    tokenizer.add_tokens([token("<s>")])
    assert prove(tokenizer).why == "dropout makes ids random"
    assert len({tuple(whole(tokenizer, "ab" * 20)) for _ in range(20)}) > 1
    model.dropout = None
    tokenizer.model = model
    assert prove(tokenizer).cuts


def test_tokens_alike_once_normalised_are_not_cut():
    """Which of the two the library finds then changes from load to load of one state."""
    alike = [token("<X>", normalized=True), token("<x>", normalized=True)]
    tokenizer = words(token("<s>"), *alike, normalizer=normalizers.Lowercase())
    assert prove(tokenizer).why == "two added tokens are alike once normalised"
    state = tokenizer.to_str()
    assert len({tuple(whole(Tokenizer.from_str(state), "<x>")) for _ in range(100)}) == 2


def test_token_that_normalises_to_nothing_is_not_cut():
    """Nothing is found everywhere: between all letters of a word."""
    nothing = normalizers.Replace("-", "")
    tokenizer = words(token("<s>"), token("-", normalized=True), normalizer=nothing)
    assert prove(tokenizer).why == "an added token is empty"
    assert whole(tokenizer, "ab") == [1, 2] != whole(words(normalizer=nothing), "ab")


def test_tokenizer_without_added_tokens_is_encoded_whole():
    """There is nowhere to cut."""
    assert prove(words()) == Proof(why="no added token to cut at")


def test_component_written_in_python_is_not_cut():
    """Nobody knows what it looks at."""

    class Cutter:
        def pre_tokenize(self, text):
            pass

    tokenizer = words(token("<s>"), pre_tokenizer=pre_tokenizers.PreTokenizer.custom(Cutter()))
    assert prove(tokenizer) == Proof(why="a component is written in Python")


class Model:
    """A model of a later release."""


PLAIN = {"truncation": None, "padding": None, "normalizer": None, "pre_tokenizer": None, "post_processor": None}


@pytest.mark.parametrize(
    ("change", "model", "why"),
    [
        ({}, Model, "unknown model Model"),
        ({"normalizer": {"type": "Other"}}, models.BPE, "unknown normalizer Other"),
        (
            {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits"}, {"type": "Other"}]}},
            models.BPE,
            "unknown pre_tokenizer Other",
        ),
        ({"post_processor": {"type": "Other"}}, models.BPE, "unknown post_processor Other"),
        ({"normalizer": {"type": "Sequence", "normalizers": []}}, models.WordLevel, None),
    ],
)
def test_unknown_components_are_not_cut(change, model, why):
    """A later release may bring components that look beyond their piece."""
    assert segments._unknown(PLAIN | change, model()) == why


def test_contents_that_overlap():
    """Part of another, in either direction, or one ends as the other begins; an overlap with itself is harmless."""
    assert set(overlaps(["<a>", "<b>", "</a>"])) == set()
    assert set(overlaps(["aXa"])) == set()
    assert set(overlaps(["<a>", "a", "<b>"])) == {"<a>", "a"}
    assert set(overlaps(["<a>", ">b", "<c>"])) == {"<a>", ">b", "<c>"}
    assert set(overlaps(["\n", "\n\n", "<s>"])) == {"\n", "\n\n"}


# ── the encoder ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def calls(monkeypatch) -> list[list[str]]:
    """Texts of each call of the library."""
    seen: list[list[str]] = []

    def spy(tokenizer, texts):
        seen.append(list(texts))
        return encode_aside(tokenizer, texts)

    monkeypatch.setattr(segments, "encode_aside", spy)
    return seen


def test_only_new_segments_are_encoded_in_one_call_for_all_texts(calls):
    """A conversation that grows costs what is new of it."""
    encoder = SegmentEncoder(*_proved(words(token("<s>"))))
    encoder.encode(["a<s>b<s>", "a<s>b<s>ab<s>a"])
    encoder.encode(["a<s>ab<s>ba"])
    encoder.encode(["a<s>ab<s>ba"])
    assert calls == [["a", "b", "ab"], ["ba"]]
    assert encoder.encoded == 4


@pytest.mark.parametrize("first", [False, True])
def test_text_that_begins_as_the_one_before_is_split_as_if_alone(first):
    """Whatever two texts share, and wherever the difference stands: inside a token, at an end, before all of them."""
    tokenizer, proof = _proved(words(token("<s>"), token("[ab]")))
    proof = dataclasses.replace(proof, first=first)
    texts = ["a<s>b[ab]ab<s>", "a<s>b[ab]ab<s>ba", "a<s>b[ab]ab<s", "a<s>b[a", "a<s>b[ab]", "a<s>", "a<", "a<s>[ab]"]
    texts += ["<s>a[ab]", "<s>", "<s>a", "", "b<s>a[ab]", "b<s>é[ab]<s>", "b<s>é[ab]中<s>b", "ab", "ab<s>"]
    for one, other in product(texts, repeat=2):
        grown = SegmentEncoder(tokenizer, proof)
        grown._segments(one)
        assert grown._segments(other) == SegmentEncoder(tokenizer, proof)._segments(other), (one, other)
        assert grown._segments(one + other) == SegmentEncoder(tokenizer, proof)._segments(one + other), (one, other)


def test_shared_begin_is_not_split_again(monkeypatch):
    """What is split of a prompt that goes on is what comes after the last cut it shares."""
    encoder, split = SegmentEncoder(*_proved(words(token("<s>")))), []
    plain = encoder._split
    monkeypatch.setattr(encoder, "_split", lambda text: split.append(text) or plain(text))
    encoder.encode(["a<s>b<s>ab", "a<s>b<s>ba<s>", "a<s>ab", "b"])
    assert split == ["a<s>b<s>ab", "ba<s>", "ab", "b"]


def test_kept_segments_take_no_more_than_the_limit(calls):
    """Those not used for longest go first; a segment larger than the limit is encoded, and not kept."""
    encoder = SegmentEncoder(*_proved(words(token("<s>"))), limit=1000)
    texts = [f"<s>{letter}" for letter in "abcdefgh"]
    for text in texts:
        encoder.encode([text, "<s>a"])
        assert 0 < encoder.size <= 1000
    encoder.encode([texts[-1], "<s>a"])
    encoder.encode([texts[1]])
    assert [text for [text] in calls] == [*"abcdefgh", "b"]
    assert encoder.encode(["<s>" + "a" * 5000, "<s>a"])[1].tolist() == [5, 1]
    assert encoder.size <= 1000


def test_ids_beyond_16_bits_and_texts_without_a_cut(checkpoint):
    """The published ids of a prompt of Qwen3-8B."""
    encoder = SegmentEncoder(*_proved(checkpoint("qwen3-8b").encoders[0].tokenizer))
    prompt = "<|im_start|>user\nSay hi.<|im_end|>\n<|im_start|>assistant\n"
    ids = [151644, 872, 198, 45764, 15588, 13, 151645, 198, 151644, 77091, 198]
    assert [one.tolist() for one in encoder.encode([prompt, "Say hi.", ""])] == [ids, [45764, 15588, 13], []]


def test_pattern_finds_any_of_many_contents():
    """Thousands that begin alike share their beginning; characters of regular expressions are literal."""
    contents = [f"<|reserved_{number}|>" for number in range(100, 999)] + ["[a]", "(", "<|x|>", "^$"]
    pattern = segments._any_of(contents)
    assert all(re.fullmatch(pattern, content) for content in contents)
    assert re.split(f"({pattern})", "a<|reserved_99|><|reserved_101|>(b") == [
        *("a<|reserved_99|>", "<|reserved_101|>", "", "(", "b"),
    ]


def _proved(tokenizer: Tokenizer) -> tuple[Tokenizer, Proof]:
    return tokenizer, prove(tokenizer)
