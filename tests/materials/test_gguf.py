"""What is read out of a GGUF file, on small files written by the format's own library."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gguf import GGUFWriter
from tokenizers import Tokenizer

from bellwether.materials import gguf

TOKENS = ["<end>", "Ġ", "é", "1", "2", "Ġé", "<unused>"]
TYPES = [3, 1, 1, 1, 1, 1, 5]
"""Control, normal, and one unused: only control tokens are added tokens."""
MERGES = ["Ġ é"]
TEMPLATE = "{% for m in messages %}\r\n{{ m }} é{% endfor %}\n"


def gguf_bytes(path: Path, **left_out: bool) -> bytes:
    """A GGUF file with vocabulary, merges and template, or without some of them."""
    writer = GGUFWriter(path, "llama")
    if not left_out.get("tokens"):
        writer.add_token_list(TOKENS)
    if not left_out.get("types"):
        writer.add_token_types(TYPES)
    if not left_out.get("merges"):
        writer.add_token_merges(MERGES)
    if not left_out.get("template"):
        writer.add_chat_template(TEMPLATE)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


@pytest.fixture
def whole(tmp_path: Path) -> bytes:
    return gguf_bytes(tmp_path / "whole.gguf")


def test_the_template_comes_out_as_it_stands(whole: bytes):
    """No newline is added, removed or translated."""
    assert gguf.chat_template(whole) == TEMPLATE


def test_the_vocabulary_is_compact_json_in_id_order(whole: bytes):
    """Non-ASCII raw, no spaces, no final newline."""
    assert gguf.vocab_json(whole) == '{"<end>":0,"Ġ":1,"é":2,"1":3,"2":4,"Ġé":5,"<unused>":6}'


def test_merges_have_a_version_line_and_a_final_newline(whole: bytes):
    """One merge a line, as merges.txt of a repository."""
    assert gguf.merges_txt(whole) == "#version: 0.2\nĠ é\n"


def test_the_container_by_hand(whole: bytes):
    """Keys and their order are those of the SmolLM2 checkpoint's own file; merges are texts, not pairs."""
    assert json.dumps(gguf.tokenizer_json(whole), ensure_ascii=False) == (
        '{"version": "1.0", "truncation": null, "padding": null, "added_tokens": ['
        '{"id": 0, "content": "<end>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, '
        '"special": true}], "normalizer": null, "pre_tokenizer": {"type": "Sequence", "pretokenizers": ['
        '{"type": "Digits", "individual_digits": true}, '
        '{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}]}, '
        '"post_processor": null, '
        '"decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}, '
        '"model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null, '
        '"end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false, '
        '"vocab": {"<end>": 0, "Ġ": 1, "é": 2, "1": 3, "2": 4, "Ġé": 5, "<unused>": 6}, "merges": ["Ġ é"]}}'
    )


def test_the_container_loads_and_encodes(whole: bytes):
    """Digits are cut one by one, and a control token is found in text; an unused one is not."""
    made = Tokenizer.from_str(json.dumps(gguf.tokenizer_json(whole)))
    assert made.encode("12<end>2").ids == [3, 4, 0, 4]
    assert 6 not in made.encode("<unused>").ids


def test_gemma_s_container_by_hand(tmp_path: Path):
    """User-defined tokens are added tokens too; a merge whose left half begins with a space is cut behind it."""
    writer = GGUFWriter(tmp_path / "gemma.gguf", "gemma4")
    writer.add_token_list(["<pad>", "<eos>", "<bos>", "<unk>", "▁", "a", "<tool>", "<0x0A>", "▁a", " b"])
    writer.add_token_types([3, 3, 3, 3, 1, 1, 4, 6, 1, 1])
    writer.add_token_merges(["▁ a", "  b"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    made = gguf.tokenizer_json((tmp_path / "gemma.gguf").read_bytes(), "gemma-4")
    assert [token["id"] for token in made["added_tokens"]] == [0, 1, 2, 3, 6]
    assert made["model"]["merges"] == [["▁", "a"], [" ", "b"]]
    made["model"]["merges"] = [["▁", "a"]]  # a lone space is no token: it is written ▁
    encode = Tokenizer.from_str(json.dumps(made)).encode
    assert encode(" a<tool>\n").ids == [2, 8, 6, 7]
    assert encode("é", add_special_tokens=False).ids == [3]


def test_every_kind_of_value_before_the_vocabulary_is_passed_over(tmp_path: Path):
    """Numbers of all widths, texts, booleans, and arrays of each: none of them is read, all are skipped exactly."""
    writer = GGUFWriter(tmp_path / "kinds.gguf", "llama")
    for bits in (8, 16, 32, 64):
        getattr(writer, f"add_uint{bits}")(f"u{bits}", 2**bits - 1)
        getattr(writer, f"add_int{bits}")(f"i{bits}", -(2 ** (bits - 1)))
    writer.add_float32("f", 0.5)
    writer.add_float64("d", 0.25)
    writer.add_bool("yes", True)
    writer.add_string("text", "é" * 300)
    writer.add_array("numbers", list(range(500)))
    writer.add_array("floats", [0.5, 1.5])
    writer.add_array("bools", [True, False, True])
    writer.add_array("texts", ["", "é", "x" * 300])
    writer.add_chat_template("last")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    data = (tmp_path / "kinds.gguf").read_bytes()
    assert gguf.chat_template(data) == "last"
    names = ("u8", "i8", "u64", "i64", "f", "d", "yes", "text", "numbers", "floats", "bools", "texts")
    assert gguf.read_fields(data, names) == {
        **{"u8": 255, "i8": -128, "u64": 2**64 - 1, "i64": -(2**63), "f": 0.5, "d": 0.25, "yes": True},
        **{"text": "é" * 300, "numbers": list(range(500)), "floats": [0.5, 1.5], "bools": [True, False, True]},
        "texts": ["", "é", "x" * 300],
    }


def test_an_unknown_kind_of_value_is_a_value_error(whole: bytes):
    """And an array of arrays, which the vocabulary files do not have."""
    place = whole.index(b"tokenizer.chat_template") + len("tokenizer.chat_template")
    for kind in (13, 2**31, 9):
        damaged = whole[:place] + kind.to_bytes(4, "little") + (9).to_bytes(4, "little") + whole[place + 8 :]
        with pytest.raises(ValueError):
            gguf.chat_template(damaged)


def test_a_count_that_is_a_bomb_is_a_value_error(whole: bytes):
    """A list of 2**60 tokens ends with the file, not with the machine's memory."""
    place = whole.index(b"tokenizer.ggml.tokens") + len("tokenizer.ggml.tokens") + 8
    with pytest.raises(ValueError):
        gguf.vocab_json(whole[:place] + (2**60).to_bytes(8, "little") + whole[place + 8 :])


@pytest.mark.parametrize(
    ("left_out", "read", "field"),
    [
        ("template", gguf.chat_template, "tokenizer.chat_template"),
        ("tokens", gguf.vocab_json, "tokenizer.ggml.tokens"),
        ("merges", gguf.merges_txt, "tokenizer.ggml.merges"),
        ("types", gguf.tokenizer_json, "tokenizer.ggml.token_type"),
    ],
)
def test_an_absent_field_is_named(tmp_path: Path, left_out: str, read, field: str):
    """A model file without template or merges exists; reading one is an error that names the field."""
    with pytest.raises(ValueError, match=f"no GGUF field '{field}'"):
        read(gguf_bytes(tmp_path / "part.gguf", **{left_out: True}))


@pytest.mark.parametrize("data", [b"", b"GGUF", b"GGML" + bytes(40), b"<html>502</html>", bytes(64)])
def test_what_is_no_gguf_file_is_a_value_error(data: bytes):
    """An empty file, a magic alone, an older format, an error page, zeros."""
    with pytest.raises(ValueError):
        gguf.chat_template(data)


def test_a_file_cut_before_the_field_is_a_value_error(whole: bytes):
    """Cut at every length that ends before the template begins: the reader's own errors do not come through."""
    for length in range(whole.index(TEMPLATE.encode())):
        with pytest.raises(ValueError):
            gguf.chat_template(whole[:length])
