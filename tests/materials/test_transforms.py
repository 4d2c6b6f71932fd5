"""Every transform on inputs small enough to write the outcome by hand, and the containers of real checkpoints."""

from __future__ import annotations

import csv
import hashlib
import struct
from pathlib import Path

import pytest
from gguf import GGUFWriter

from bellwether.errors import MaterialError
from bellwether.materials.transforms import TRANSFORMS, apply
from bellwether.params import read_manifest
from support import ROOT, snapshot

PINS = ROOT / "tests" / "expected" / "checkpoints_pins.tsv"

RANKS = b"YQ== 0\nIA== 1\nYSA= 2\n"
"""'a', ' ', 'a '."""
PACKED = b"\x7fELF" + b"SPLNTRV1" + struct.pack("<I", 3) + b"\x00\x01a\x01\x01 \x02\x02a " + b"more"
BYTE_LEVEL = """{
    "type": "ByteLevel",
    "add_prefix_space": false,
    "trim_offsets": false,
    "use_regex": false
  }"""
CONTAINER = f"""{{
  "version": "1.0",
  "truncation": null,
  "padding": null,
  "added_tokens": [
    {{
      "id": 3,
      "content": "<s>",
      "single_word": false,
      "lstrip": false,
      "rstrip": false,
      "normalized": false,
      "special": true
    }}
  ],
  "normalizer": null,
  "pre_tokenizer": {{
    "type": "Sequence",
    "pretokenizers": [
      {{
        "type": "Split",
        "pattern": {{
          "Regex": "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{{L}}\\\\p{{N}}]?\\\\p{{L}}+|\\\\p{{N}}{{1,3}}| ?[^\\\\s\\\\p{{L}}\\\\p{{N}}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
        }},
        "behavior": "Isolated",
        "invert": false
      }},
      {{
        "type": "ByteLevel",
        "add_prefix_space": false,
        "trim_offsets": false,
        "use_regex": false
      }}
    ]
  }},
  "post_processor": {BYTE_LEVEL},
  "decoder": {BYTE_LEVEL},
  "model": {{
    "type": "BPE",
    "dropout": null,
    "unk_token": null,
    "continuing_subword_prefix": "",
    "end_of_word_suffix": "",
    "fuse_unk": false,
    "byte_fallback": false,
    "ignore_merges": false,
    "vocab": {{
      "a": 0,
      "Ġ": 1,
      "aĠ": 2
    }},
    "merges": [
      [
        "a",
        "Ġ"
      ]
    ]
  }}
}}
"""  # noqa: E501
CONTAINER_OPTIONS = {"pattern": "cl100k", "added_tokens": [[3, "<s>", True]]}

GGUF_CONTAINER = """{
  "version": "1.0",
  "truncation": null,
  "padding": null,
  "added_tokens": [
    {
      "id": 0,
      "content": "<é>",
      "single_word": false,
      "lstrip": false,
      "rstrip": false,
      "normalized": false,
      "special": true
    }
  ],
  "normalizer": null,
  "pre_tokenizer": {
    "type": "Sequence",
    "pretokenizers": [
      {
        "type": "Digits",
        "individual_digits": true
      },
      {
        "type": "ByteLevel",
        "add_prefix_space": false,
        "trim_offsets": true,
        "use_regex": true
      }
    ]
  },
  "post_processor": null,
  "decoder": {
    "type": "ByteLevel",
    "add_prefix_space": true,
    "trim_offsets": true,
    "use_regex": true
  },
  "model": {
    "type": "BPE",
    "dropout": null,
    "unk_token": null,
    "continuing_subword_prefix": null,
    "end_of_word_suffix": null,
    "fuse_unk": false,
    "byte_fallback": false,
    "ignore_merges": false,
    "vocab": {
      "<é>": 0,
      "a": 1,
      "b": 2,
      "ab": 3
    },
    "merges": [
      "a b"
    ]
  }
}"""


@pytest.fixture
def gguf_file(tmp_path: Path) -> bytes:
    writer = GGUFWriter(tmp_path / "tiny.gguf", "llama")
    writer.add_token_list(["<é>", "a", "b", "ab"])
    writer.add_token_types([3, 1, 1, 1])
    writer.add_token_merges(["a b"])
    writer.add_chat_template("é\r\n")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return (tmp_path / "tiny.gguf").read_bytes()


BY_HAND = [
    ("copy", [b"\xff\x00\r\n"], {}, b"\xff\x00\r\n"),
    ("crlf-to-lf", [b"a\r\nb\rc\n\r\n\r\r\n"], {}, b"a\nb\rc\n\n\r\n"),
    (
        "splice-template",
        ['{"b": "é", "chat_template": "old", "a": [1]}'.encode(), "{{ ü }}\r\n\n".encode()],
        {},
        '{\n  "b": "é",\n  "chat_template": "{{ ü }}\\r\\n\\n",\n  "a": [\n    1\n  ]\n}\n'.encode(),
    ),
    (
        "splice-template",
        [b'{"b": 1}', b"\nx\r\n\n"],
        {"strip_newlines": True},
        b'{\n  "b": 1,\n  "chat_template": "\\nx\\r"\n}\n',
    ),
    (
        "drop-key",
        ['{"a": 1, "k": {"x": 2}, "b": "é"}'.encode()],
        {"key": "k"},
        '{\n  "a": 1,\n  "b": "é"\n}\n'.encode(),
    ),
    ("literal", [], {"value": '{"b":[],"a":"é"}'}, '{\n  "b": [],\n  "a": "é"\n}\n'.encode()),
    ("narrowed", [], {"value": '{"b": null, "a": "é"}'}, b'{"a": "\\u00e9", "b": null}'),
    ("packed-ranks", [PACKED], {"count": 3}, RANKS),
    ("ranks-to-json", [RANKS], CONTAINER_OPTIONS, CONTAINER.encode()),
    (
        "ranks-to-json",
        [RANKS],
        {**CONTAINER_OPTIONS, "normalizer": "NFC", "ignore_merges": True},
        CONTAINER.replace('"normalizer": null', '"normalizer": {\n    "type": "NFC"\n  }')
        .replace('"ignore_merges": false', '"ignore_merges": true')
        .encode(),
    ),
    ("packed-ranks-to-json", [PACKED], {"count": 3, **CONTAINER_OPTIONS}, CONTAINER.encode()),
    ("packed-ranks-to-json", [PACKED], {"count": 3, **CONTAINER_OPTIONS, "merges": "one"}, CONTAINER.encode()),
    ("packed-ranks-to-merges", [PACKED], {"count": 3}, "#version: 0.2\na Ġ\n".encode()),
    ("crlf-to-lf", [b"#version: 0.2\r\na b\r\n"], {"drop_first_line": True}, b"a b\n"),
    (
        "splice-template",
        [b'{"b": 1, "n": 2}', b"x\n"],
        {"final_newline": False, "values": '{"n": 3, "é": null}'},
        '{\n  "b": 1,\n  "n": 3,\n  "é": null,\n  "chat_template": "x\\n"\n}'.encode(),
    ),
    (
        "splice-template",
        [b'{"added_tokens_decoder": {"8": {"content": "a", "x": 1}, "9": {"content": "b"}, "10": {}}}', b"t"],
        {"below": 10, "tokens": [[8, "é"]]},
        '{\n  "added_tokens_decoder": {\n    "8": {\n      "content": "é",\n      "x": 1\n    },\n    "9": {\n'
        '      "content": "b"\n    }\n  },\n  "chat_template": "t"\n}\n'.encode(),
    ),
    (
        "rename-added-tokens",
        [b'{"added_tokens": [{"id": 1}]}'],
        {"tokens": [[1, "b", True, False]], "final_newline": False},
        b'{\n  "added_tokens": [\n    {\n      "id": 1,\n      "content": "b",\n      "special": true,\n'
        b'      "normalized": false\n    }\n  ]\n}',
    ),
    (
        "filter-added-tokens",
        ['{"a": "é", "added_tokens": [{"id": 8}, {"id": 10}, {"id": 9}], "b": 1}'.encode()],
        {"below": 10},
        '{\n  "a": "é",\n  "added_tokens": [\n    {\n      "id": 8\n    },\n    {\n      "id": 9\n    }\n  ],'
        '\n  "b": 1\n}\n'.encode(),
    ),
    (
        "filter-added-tokens-decoder",
        [b'{"k": "v", "added_tokens_decoder": {"9": "a", "10": "b"}, "b": 1}'],
        {"below": 10, "drop_key": "k"},
        b'{\n  "added_tokens_decoder": {\n    "9": "a"\n  },\n  "b": 1\n}\n',
    ),
    (
        "rename-added-tokens",
        [
            b'{"added_tokens": [{"id": 1, "content": "a", "lstrip": true, "normalized": false, "special": true}, '
            b'{"id": 2, "content": "b"}]}'
        ],
        {"tokens": [[1, "é", False, True]]},
        '{\n  "added_tokens": [\n    {\n      "id": 1,\n      "content": "é",\n      "lstrip": true,\n'
        '      "normalized": true,\n      "special": false\n    },\n    {\n      "id": 2,\n      "content": "b"\n'
        "    }\n  ]\n}\n".encode(),
    ),
]
ELSEWHERE = {"sentencepiece-to-json", "tekken-to-json"}
"""Their containers are written out in test_sentencepiece.py and test_tekken.py."""
OF_GGUF = {
    "gguf-template": "é\r\n",
    "gguf-vocab": '{"<é>":0,"a":1,"b":2,"ab":3}',
    "gguf-merges": "#version: 0.2\na b\n",
    "gguf-to-json": GGUF_CONTAINER,
}


@pytest.mark.parametrize(("name", "sources", "options", "expected"), BY_HAND)
def test_a_transform_gives_the_bytes_written_by_hand(name: str, sources: list[bytes], options: dict, expected: bytes):
    """JSON has two spaces of indentation, raw non-ASCII and a final newline; a key keeps its place."""
    assert apply(name, sources, options) == expected


def test_a_gguf_skeleton_is_chosen_by_name(gguf_file: bytes):
    """Command R: NFC, and merges as pairs; the same parts otherwise. The final newline is an option."""
    made = apply("gguf-to-json", [gguf_file], {"skeleton": "command-r", "final_newline": True}).decode()
    expected = GGUF_CONTAINER.replace('"normalizer": null', '"normalizer": {\n    "type": "NFC"\n  }')
    assert made == expected.replace('"a b"', '[\n        "a",\n        "b"\n      ]') + "\n"


@pytest.mark.parametrize(("name", "expected"), OF_GGUF.items())
def test_a_gguf_transform_gives_the_text_written_by_hand(gguf_file: bytes, name: str, expected: str):
    """Neither the template nor the container has a final newline of ours."""
    assert apply(name, [gguf_file], {}) == expected.encode()


def test_every_transform_is_covered_by_hand():
    """A new transform needs a case above."""
    assert {name for name, *_ in BY_HAND} | set(OF_GGUF) | ELSEWHERE == set(TRANSFORMS)


def test_every_manifest_names_a_known_transform():
    """A misspelt one would only be found when the file is laid out."""
    slugs = [path.parent.name for path in (ROOT / "fixtures").glob("*/manifest.toml")]
    used = {file.transform for slug in slugs for file in read_manifest(ROOT, slug).files.values()}
    assert used - {None} == set(TRANSFORMS)


@pytest.mark.parametrize(
    ("name", "sources", "options"),
    [
        ("copy", [], {}),
        ("copy", [b"a", b"b"], {}),
        ("copy", [b"a"], {"key": "b"}),
        ("splice-template", [b"{", b"x"], {}),
        ("splice-template", [b"[1]", b"x"], {}),
        ("splice-template", [b"{}", b"\xff"], {}),
        ("splice-template", [b"{}", b"x"], {"strip": True}),
        ("splice-template", [b"{}", b"x"], {"below": 3}),
        ("splice-template", [b'{"added_tokens_decoder": {}}', b"x"], {"tokens": [[1, "a"]]}),
        ("drop-key", [b'{"a": 1}'], {"key": "b"}),
        ("drop-key", [b'{"a": 1}'], {}),
        ("drop-key", [b"[1]"], {"key": "a"}),
        ("literal", [], {"value": "{'a': 1}"}),
        ("literal", [], {"value": 7}),
        ("literal", [], {}),
        ("narrowed", [], {"value": "{"}),
        ("packed-ranks", [PACKED], {"count": 4}),
        ("packed-ranks", [PACKED[:20]], {"count": 3}),
        ("packed-ranks", [PACKED], {"count": -1}),
        ("packed-ranks", [PACKED], {"count": 2**32}),
        ("packed-ranks", [PACKED], {"count": "3"}),
        ("ranks-to-json", [b"YQ=="], CONTAINER_OPTIONS),
        ("ranks-to-json", [RANKS], {**CONTAINER_OPTIONS, "pattern": "o200k"}),
        ("ranks-to-json", [RANKS], {**CONTAINER_OPTIONS, "added_tokens": [[3, "<s>"]]}),
        ("ranks-to-json", [RANKS], {**CONTAINER_OPTIONS, "added_tokens": 3}),
        ("ranks-to-json", [RANKS], {"pattern": "cl100k"}),
        ("packed-ranks-to-json", [PACKED], CONTAINER_OPTIONS),
        ("gguf-template", [b""], {}),
        ("gguf-vocab", [b"GGUF\x03\x00\x00\x00"], {}),
        ("gguf-merges", [b"GGUF\x03\x00\x00\x00" + b"\x01" + bytes(15)], {}),
        ("gguf-to-json", [b"no model"], {}),
        ("gguf-to-json", [b"no model"], {"skeleton": "gpt-2"}),
        ("packed-ranks-to-json", [PACKED], {"count": 3, **CONTAINER_OPTIONS, "merges": "some"}),
        ("filter-added-tokens", [b"{}"], {"below": 3}),
        ("filter-added-tokens", [b'{"added_tokens": [{}]}'], {"below": 3}),
        ("filter-added-tokens-decoder", [b'{"added_tokens_decoder": {}}'], {"below": 3, "drop_key": "k"}),
        ("filter-added-tokens-decoder", [b'{"k": 1, "added_tokens_decoder": {"a": 1}}'], {"below": 3, "drop_key": "k"}),
        ("rename-added-tokens", [b'{"added_tokens": []}'], {"tokens": [[1, "a", True, True]]}),
        ("rename-added-tokens", [b'{"added_tokens": [{"id": 1}]}'], {"tokens": [[1, "a"]]}),
        ("sentencepiece-to-json", [b"<html>"], {}),
        ("sentencepiece-to-json", [b"\x0a\x00"], {}),
        ("sentencepiece-to-json", [b"\x0a\x03\x0a\x01a"], {}),
        ("tekken-to-json", [b"{}"], {"special_tokens": ["<s>"]}),
        ("tekken-to-json", [b"[]"], {"special_tokens": ["<s>"]}),
    ],
)
def test_a_transform_that_does_not_fit_is_an_error_with_its_name(name: str, sources: list[bytes], options: dict):
    """Wrong number or kind of sources, unknown, missing or misshapen options: never a traceback."""
    with pytest.raises(MaterialError) as caught:
        apply(name, sources, options)
    assert str(caught.value).startswith(f"transform {name!r} does not fit its sources: ")
    assert "manifest" in caught.value.next_step


def test_an_unknown_transform_is_an_error_that_lists_the_known():
    """A misspelt name in a manifest."""
    with pytest.raises(MaterialError, match="unknown transform 'copi'") as caught:
        apply("copi", [b""], {})
    assert "copy, crlf-to-lf, " in caught.value.next_step


@pytest.mark.parametrize("slug", ["glm-4.6", "kimi-k2-instruct", "kimi-k3"])
def test_a_container_of_our_own_differs_from_an_independent_build_in_one_flag(slug: str):
    """A second implementation wrote the same vocabulary, merges and added tokens with ignore_merges off."""
    with PINS.open(newline="", encoding="utf-8") as lines:
        published = {(row["slug"], row["file"]): row["sha256"] for row in csv.DictReader(lines, delimiter="\t")}
    data = (snapshot(slug) / "tokenizer.json").read_bytes()
    assert data.count(b'"ignore_merges": true') == 1
    other = data.replace(b'"ignore_merges": true', b'"ignore_merges": false')
    assert hashlib.sha256(other).hexdigest() == published[slug, "tokenizer.json"]
