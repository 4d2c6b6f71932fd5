"""GGUF files of checkpoints: what they say of a tokenizer, read by the format's own library, and that they speak."""

from __future__ import annotations

import json
import re
import shutil
import struct
from pathlib import Path

import gguf
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bellwether.gateways import gguf_models
from bellwether.gateways.gguf_models import CONTROL, LOUD, NORMAL, USER_DEFINED, WIDTH, NotConvertible, code
from support import ROOT, snapshot

IDS = st.integers(0, 300_000)


def row(token_id: int, loud: float = 1.0) -> tuple[float, ...]:
    return struct.unpack(f"<{WIDTH}f", code(token_id, loud, "f"))


def product(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


@given(wanted=IDS, before=IDS, other=IDS)
def test_the_wanted_id_has_the_largest_logit(wanted: int, before: int, other: int) -> None:
    """Whatever token stands at the position; and rows have the mean and the size that the norm leaves alone."""
    state = tuple(a + b for a, b in zip(row(wanted, LOUD), row(before), strict=True))
    assert sum(state) == 0
    assert other == wanted or product(state, row(wanted)) - product(state, row(other)) >= 3 * LOUD


@given(st.lists(IDS, min_size=1, max_size=3, unique=True))
def test_the_matrix_holds_the_code_of_every_id(ids: list[int]) -> None:
    rows = list(gguf_models._embedding(1 + max(ids))) if max(ids) < 2000 else None
    for token_id in ids:
        written = (
            rows[token_id] if rows else b"".join(code(byte, 1.0, "e")[:32] for byte in token_id.to_bytes(4, "little"))
        )
        assert written == code(token_id, 1.0, "e")


@pytest.fixture(scope="module")
def smollm(tmp_path_factory: pytest.TempPathFactory) -> gguf_models.Model:
    return gguf_models.write(snapshot("smollm2-135m-instruct"), tmp_path_factory.mktemp("model") / "m.gguf", 64)


def test_the_format_s_own_library_reads_the_file(smollm: gguf_models.Model) -> None:
    reader = gguf.GGUFReader(smollm.path)
    tokenizer = json.loads((snapshot("smollm2-135m-instruct") / "tokenizer.json").read_bytes())
    tokens = reader.get_field("tokenizer.ggml.tokens").contents()
    assert {text: token_id for token_id, text in enumerate(tokens)} == tokenizer["model"]["vocab"]
    assert reader.get_field("tokenizer.ggml.merges").contents() == tokenizer["model"]["merges"]
    assert reader.get_field("tokenizer.ggml.pre").contents() == "smollm"
    assert reader.get_field("tokenizer.ggml.eos_token_id").contents() == 2
    template = (snapshot("smollm2-135m-instruct") / "chat_template.jinja").read_text("utf-8")
    assert reader.get_field("tokenizer.chat_template").contents() == template
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    assert tensors["position_embd.weight"].data_offset == smollm.rows_at
    assert list(tensors["token_embd.weight"].shape) == [WIDTH, len(tokens)]
    assert tuple(tensors["token_embd.weight"].data[12345]) == row(12345)


def test_saying_writes_the_rows_from_the_prompt_s_last_position_on(smollm: gguf_models.Model) -> None:
    smollm.say(5, [7, 8])
    [positions] = [one for one in gguf.GGUFReader(smollm.path).tensors if one.name == "position_embd.weight"]
    assert [tuple(positions.data[place]) for place in (4, 5, 6, 7)] == [
        (0.0,) * WIDTH,
        row(7, LOUD),
        row(8, LOUD),
        (0.0,) * WIDTH,
    ]


@pytest.mark.parametrize(("position", "ids"), [(63, [1, 2]), (-1, [1]), (0, [49152]), (0, [-1])])
def test_what_cannot_be_said_is_refused(smollm: gguf_models.Model, position: int, ids: list[int]) -> None:
    with pytest.raises(ValueError):
        smollm.say(position, ids)


@pytest.mark.parametrize("slug", ["qwen3-8b", "deepseek-v3.1", "llama-3.1-8b-instruct", "mistral-nemo-instruct-2407"])
def test_special_tokens_are_those_of_llama_cpp_s_converter(slug: str) -> None:
    """Its library reads them from the same files; where it says nothing of a token, none is added."""
    known, theirs = gguf_models.vocabulary(snapshot(slug)), gguf.SpecialVocab(snapshot(slug), load_merges=True)
    assert known.merges == theirs.merges
    assert known.special == {name: theirs.special_token_ids[name] for name in known.special}
    assert known.add_bos == theirs.add_special_token.get("bos", False)
    assert known.add_eos == theirs.add_special_token.get("eos", False)


def test_added_tokens_are_control_tokens_when_they_are_special_or_look_so() -> None:
    """Qwen3's `<think>` is to be seen in outputs; `<|fim_prefix|>` is not said to be special, and looks so."""
    known = gguf_models.vocabulary(snapshot("qwen3-8b"))
    kinds = dict(zip(known.tokens, known.types, strict=True))
    assert (kinds["<|im_end|>"], kinds["<think>"], kinds["<|fim_prefix|>"]) == (CONTROL, USER_DEFINED, CONTROL)
    assert kinds["hello"] == NORMAL
    assert "<think>" not in known.control_tokens


def test_a_tokenizer_in_parts_is_put_together() -> None:
    """QwQ has Qwen2's vocabulary and no tokenizer.json."""
    whole, parts = (gguf_models.vocabulary(snapshot(slug)) for slug in ("qwen2.5-7b-instruct", "qwq-32b"))
    assert parts.tokens[: len(whole.tokens)] == whole.tokens
    assert (parts.merges, parts.pre) == (whole.merges, "qwen2")


def test_a_template_per_name_is_found() -> None:
    """Command R has one for tools beside its default."""
    assert {"default", "tool_use"} <= gguf_models.templates(snapshot("command-r")).keys()


def test_every_checkpoint_of_bytes_has_a_listed_pre_tokenizer() -> None:
    """Those of SentencePiece have none; a new checkpoint shows up here."""
    listed = re.findall(r"^  - (\S+)$", (ROOT / "params.yaml").read_text("utf-8").partition("\ncorpora:")[0], re.M)
    other = set()
    for slug in listed:
        try:
            gguf_models._pre(gguf_models._tokenizer(snapshot(slug)), snapshot(slug))
        except NotConvertible:
            other.add(slug)
    assert other == {"gemma-3-it", "gemma-4-e4b-it", "mistral-7b-instruct-v0.3"}


def changed(folder: Path, slug: str, **change: object) -> Path:
    """Return a copy of a snapshot's small files, with members of its tokenizer.json replaced."""
    folder.mkdir()
    for name in ("config.json", "tokenizer_config.json"):
        shutil.copy(snapshot(slug) / name, folder)
    tokenizer = json.loads((snapshot(slug) / "tokenizer.json").read_bytes()) | change
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return folder


def test_an_unlisted_pre_tokenizer_is_not_guessed(tmp_path: Path) -> None:
    folder = changed(tmp_path / "model", "smollm2-135m-instruct", pre_tokenizer={"type": "Whitespace"})
    with pytest.raises(NotConvertible, match="is not listed"):
        gguf_models.vocabulary(folder)


def test_a_checkpoint_without_a_template_is_not_given_another_s(tmp_path: Path) -> None:
    """The server would take ChatML."""
    folder = changed(tmp_path / "model", "smollm2-135m-instruct")
    with pytest.raises(NotConvertible, match="no chat template"):
        gguf_models.write(folder, tmp_path / "m.gguf")


def test_a_checkpoint_without_a_tokenizer_is_not_convertible(tmp_path: Path) -> None:
    with pytest.raises(NotConvertible, match=r"no tokenizer\.json"):
        gguf_models.vocabulary(tmp_path)
