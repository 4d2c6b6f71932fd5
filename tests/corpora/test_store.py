"""The corpus store: what is written, and in which order it comes back."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bellwether.case import KINDS, Case, LeftOut, Origin, Repeat
from bellwether.corpora.store import count_cases, sql_text, stream_cases, write_corpus
from bellwether.errors import CorpusError, TableError

TOY = Origin("toy", "pypi:toy==1", "toy.json", "ab" * 32, "MIT")
HAND = Origin("handmade", "handmade", "corpus/handmade/render.jsonl", "", "Apache-2.0")
HI = '{"messages":[{"role":"user","content":"hi"}]}'


def render(name: str, request: str = HI, set_name: str = "common", origin: Origin = TOY) -> Case:
    return Case("render", set_name, name, origin, row=f"row-{name}", request=request)


def tokenize(name: str, text: str) -> Case:
    return Case("tokenize", "common", name, TOY, row=name, text=text)


def store(root: Path, corpus: str, items: Iterable[Case | Repeat | LeftOut]) -> dict[str, int]:
    return write_corpus(items, corpus, root / "corpus" / "imported" / corpus)


def rows(root: Path, corpus: str, table: str) -> list[dict]:
    return pq.read_table(root / "corpus" / "imported" / corpus / f"{table}.parquet").to_pylist()


# ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_five_tables_hold_what_the_importer_gave(tmp_path: Path):
    """Cases, dropped repeats and rows left out go each into its table, with every field of theirs."""
    items = [
        Case("parse", "toy-a", "one", TOY, "7", ("reasoning",), "A note.", HI, '{"content":"x"}'),
        Repeat("parse", "toy-a", "two", repeats="parse/toy-a/one"),
        LeftOut("parse", "toy-b", "9", "no call"),
        Case("detokenize", "toy-a", "ids", TOY, "8", ids=(1, 2), requires="cd" * 32),
        Case("parse", "toy-a", "bad", TOY, "10", request=HI, text="<tool_call>", malformed=True),
    ]
    counts = {"cases": 3, "requests": 1, "origins": 1, "repeats": 1, "left_out": 1}
    assert store(tmp_path, "toy", items) == counts
    digest = hashlib.sha256(HI.encode()).digest()
    one = {
        "case_id": "parse/toy-a/one",
        "corpus": "toy",
        "kind": "parse",
        "set": "toy-a",
        "name": "one",
        "case_index": 0,
        "request_sha256": digest,
        "message": '{"content":"x"}',
        "text": None,
        "ids": None,
        "requires": None,
        "malformed": False,
        "notes": "A note.",
        "origin_id": "pypi:toy==1#toy.json",
        "origin_row": "7",
        "written": ["reasoning"],
        "parts": [],
    }
    nothing = {"message": None, "notes": "", "written": []}
    ids = {"case_id": "detokenize/toy-a/ids", "kind": "detokenize", "name": "ids", "case_index": 1, "origin_row": "8"}
    ids |= {"request_sha256": None, "ids": [1, 2], "requires": bytes.fromhex("cd" * 32)}
    bad = {"case_id": "parse/toy-a/bad", "name": "bad", "case_index": 2, "origin_row": "10"}
    bad |= {"text": "<tool_call>", "malformed": True}
    assert rows(tmp_path, "toy", "cases") == [one, one | nothing | ids, one | nothing | bad]
    assert rows(tmp_path, "toy", "requests") == [{"request_sha256": digest, "request": HI}]
    assert rows(tmp_path, "toy", "origins") == [
        {
            "origin_id": "pypi:toy==1#toy.json",
            "dataset": "toy",
            "source": "pypi:toy==1",
            "file": "toy.json",
            "sha256": "ab" * 32,
            "license": "MIT",
        }
    ]
    dropped = {"corpus": "toy", "kind": "parse", "set": "toy-a", "name": "two", "repeats": "parse/toy-a/one"}
    assert rows(tmp_path, "toy", "repeats") == [dropped]
    left_out = {"corpus": "toy", "kind": "parse", "set": "toy-b", "row": "9", "reason": "no call"}
    assert rows(tmp_path, "toy", "left_out") == [left_out]


def test_derived_case_names_the_rows_it_is_made_of(tmp_path: Path):
    """Its own origin and those of its parts stand in the table of origins, each once."""
    derived = Origin("toys", "derived", "corpus/toys/derived.toml", "", "MIT AND Apache-2.0")
    case = Case("parse", "toys", "one", derived, "0", request=HI, message="{}", parts=((TOY, "7"), (HAND, "a")))
    store(tmp_path, "toys", [case, replace(case, name="two", parts=((TOY, "8"),))])
    assert [row["parts"] for row in rows(tmp_path, "toys", "cases")] == [
        [{"origin_id": TOY.origin_id, "row": "7"}, {"origin_id": HAND.origin_id, "row": "a"}],
        [{"origin_id": TOY.origin_id, "row": "8"}],
    ]
    assert [row["dataset"] for row in rows(tmp_path, "toys", "origins")] == ["toys", "toy", "handmade"]


def test_one_request_is_stored_once(tmp_path: Path):
    """Equal text is one row, wherever in the stream it comes again; other key order is another request."""
    swapped = '{"messages":[{"content":"hi","role":"user"}]}'
    items = [render("a"), render("b", swapped)] + [render(f"c{number}") for number in range(200)]
    assert store(tmp_path, "toy", items)["requests"] == 2
    assert [row["request"] for row in rows(tmp_path, "toy", "requests")] == [HI, swapped]
    assert {row["request_sha256"] for row in rows(tmp_path, "toy", "cases")[2:]} == {
        hashlib.sha256(HI.encode()).digest()
    }


def test_origins_are_stored_once_in_order_of_appearance(tmp_path: Path):
    """However many cases share a file, it has one row."""
    items = [render("a", origin=HAND), render("b"), render("c", origin=HAND), render("d")]
    assert store(tmp_path, "toy", items)["origins"] == 2
    assert [row["origin_id"] for row in rows(tmp_path, "toy", "origins")] == [
        "handmade#corpus/handmade/render.jsonl",
        "pypi:toy==1#toy.json",
    ]


def test_importer_that_fails_leaves_no_table(tmp_path: Path):
    """None of the five tables appears unless the stream ended well."""

    def items():
        yield from (render(f"c{number}") for number in range(100))
        raise CorpusError("line 101")

    with pytest.raises(CorpusError, match="line 101"):
        store(tmp_path, "toy", items())
    assert list((tmp_path / "corpus" / "imported" / "toy").iterdir()) == []


def test_same_items_give_the_same_bytes(tmp_path: Path):
    """Every table depends on its rows alone."""
    for name in ("one", "other"):
        write_corpus((render(f"c{number}") for number in range(150)), "toy", tmp_path / name)
    for table in ("cases", "requests", "origins", "repeats", "left_out"):
        one, other = ((tmp_path / name / f"{table}.parquet").read_bytes() for name in ("one", "other"))
        assert one == other, table


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('{"b":1,"a":{"d":1.0,"c":1}}', id="key order and 1.0"),
        pytest.param('{"a":"\u2028\u2029\u0085"}', id="separators that splitlines would cut"),
        pytest.param('{"a":"👩‍👩‍👧 \U0001f600"}', id="emoji"),
        pytest.param('{"a":"\\ud83d\\ude00 \\/ \\u00e9"}', id="escapes as written"),
        pytest.param('{"a":"\\u0000 \x7f e\u0301"}', id="control characters, no normal form"),
    ],
)
def test_text_comes_back_unchanged(tmp_path: Path, text: str):
    """Requests, messages and texts are text: nothing parses, orders or normalises them."""
    case = Case("parse", "common", "a", TOY, "1", request=text, message=text)
    store(tmp_path, "toy", [case, tokenize("b", text)])
    [batch] = stream_cases(tmp_path, ["toy"], KINDS)
    assert [(row["request"], row["message"], row["text"]) for row in batch] == [(text, text, None), (None, None, text)]


def test_case_has_exactly_what_a_recorder_reads(tmp_path: Path):
    """A detokenize case of ids has no request; ids and digest come back as list and bytes."""
    store(tmp_path, "toy", [Case("detokenize", "common", "a", TOY, "1", ids=(3, 0), requires="cd" * 32)])
    assert list(stream_cases(tmp_path, ["toy"], ["detokenize"])) == [
        [
            {
                "case_id": "detokenize/common/a",
                "kind": "detokenize",
                "request": None,
                "message": None,
                "text": None,
                "ids": [3, 0],
                "requires": bytes.fromhex("cd" * 32),
                "malformed": False,
            }
        ]
    ]


def test_cases_stream_in_corpus_order_then_importer_order(tmp_path: Path):
    """The order of `corpora` counts, not the alphabet; inside a corpus neither set nor name does."""
    store(tmp_path, "zebra", [render("m", "1", "z"), render("a", "2", "y"), render("z", "3", "a")])
    store(tmp_path, "apple", [render("q", "4"), render("b", "5")])
    [batch] = stream_cases(tmp_path, ["zebra", "apple"], ["render"])
    assert [row["case_id"] for row in batch] == [
        "render/z/m",
        "render/y/a",
        "render/a/z",
        "render/common/q",
        "render/common/b",
    ]
    [batch] = stream_cases(tmp_path, ["apple", "zebra"], ["render"])
    assert [row["request"] for row in batch] == ["4", "5", "1", "2", "3"]


def test_cases_come_in_batches_of_64(tmp_path: Path):
    """Batches run over the border of two corpora; only the last one is short."""
    store(tmp_path, "one", [render(f"a{number}", str(number)) for number in range(100)])
    store(tmp_path, "two", [render(f"b{number}", str(number)) for number in range(50)])
    batches = list(stream_cases(tmp_path, ["one", "two"], ["render"]))
    assert [len(batch) for batch in batches] == [64, 64, 22]
    names = [f"render/common/a{number}" for number in range(100)]
    names += [f"render/common/b{number}" for number in range(50)]
    assert [row["case_id"] for batch in batches for row in batch] == names
    assert [row["request"] for row in batches[1]][34:40] == ["98", "99", "0", "1", "2", "3"]


def test_only_kinds_asked_for_are_streamed_and_counted(tmp_path: Path):
    """A recorder of tokens sees no render case, and the count says what the stream gives."""
    detokenize = Case("detokenize", "common", "d", TOY, "1", text="x")
    store(tmp_path, "toy", [render("a"), tokenize("b", "x"), render("c"), detokenize])
    [batch] = stream_cases(tmp_path, ["toy"], ["tokenize", "detokenize"])
    assert [row["case_id"] for row in batch] == ["tokenize/common/b", "detokenize/common/d"]
    assert count_cases(tmp_path, ["toy"], ["tokenize", "detokenize"]) == 2
    assert count_cases(tmp_path, ["toy"], ["render"]) == 2
    assert list(stream_cases(tmp_path, ["toy"], ["parse"])) == []
    assert count_cases(tmp_path, ["toy"], ["parse"]) == 0


texts = st.dictionaries(st.text(max_size=5), st.one_of(st.text(max_size=5), st.integers(), st.floats(allow_nan=False)))


@settings(max_examples=15, deadline=None)
@given(st.lists(texts, min_size=1, max_size=70), st.lists(texts, min_size=1, max_size=10))
def test_what_is_stored_streams_back(one: list[dict], other: list[dict]):
    """Any two corpora come back case by case with their request, and hold each request once."""
    requests = [[json.dumps(value, ensure_ascii=False) for value in values] for values in (one, other)]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for corpus, values in zip(("z", "a"), requests, strict=True):
            cases = [render(f"{corpus}{number}", value) for number, value in enumerate(values)]
            assert store(root, corpus, cases)["requests"] == len(set(values))
        streamed = [row["request"] for batch in stream_cases(root, ["z", "a"], ["render"]) for row in batch]
        assert streamed == requests[0] + requests[1]
        assert count_cases(root, ["z", "a"], ["render"]) == len(streamed)


# ── what is refused ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_one_name_in_two_corpora_is_an_error(tmp_path: Path):
    """A name is unique per kind over all corpora and sets; the error names both cases and both corpora."""
    store(tmp_path, "one", [render("greeting"), render("other")])
    store(tmp_path, "two", [render("greeting", set_name="tea")])
    with pytest.raises(CorpusError) as caught:
        count_cases(tmp_path, ["one", "two"], ["render"])
    assert "render/common/greeting of one and render/tea/greeting of two" in str(caught.value)
    assert caught.value.next_step
    assert count_cases(tmp_path, ["one"], ["render"]) == 2


def test_one_name_for_two_kinds_is_none(tmp_path: Path):
    """`render/common/a` and `tokenize/common/a` are two cases."""
    store(tmp_path, "one", [render("a"), tokenize("a", "x")])
    assert count_cases(tmp_path, ["one"], KINDS) == 2


@pytest.mark.parametrize("table", ["cases", "requests"])
@pytest.mark.parametrize("size", [None, 100], ids=["missing", "truncated"])
def test_table_that_cannot_be_read_is_named(tmp_path: Path, table: str, size: int | None):
    """Nothing is streamed or counted over a corpus that is not whole."""
    store(tmp_path, "toy", [render("a")])
    path = tmp_path / "corpus" / "imported" / "toy" / f"{table}.parquet"
    data = path.read_bytes()
    path.unlink()
    if size is not None:
        path.write_bytes(data[:size])
    for ask in (lambda: count_cases(tmp_path, ["toy"], ["render"]), lambda: [*stream_cases(tmp_path, ["toy"], KINDS)]):
        with pytest.raises(TableError, match=rf"imported/toy/{table}\.parquet"):
            ask()


def test_damage_inside_a_table_is_told_as_such(tmp_path: Path):
    """A file whose frame is whole and whose data is not ends in a table error, not in a traceback."""
    store(tmp_path, "toy", [render(f"c{number}", str(number)) for number in range(100)])
    path = tmp_path / "corpus" / "imported" / "toy" / "cases.parquet"
    data = bytearray(path.read_bytes())
    data[4:400] = b"\xff" * 396
    path.write_bytes(data)
    with pytest.raises(TableError, match="the tables of toy cannot be read") as caught:
        list(stream_cases(tmp_path, ["toy"], ["render"]))
    assert caught.value.next_step


def test_quote_in_a_path_is_no_end_of_the_text(tmp_path: Path):
    """A checkout may lie in any folder."""
    assert sql_text("it's") == "'it''s'"
    root = tmp_path / "it's here"
    store(root, "toy", [render("a")])
    assert count_cases(root, ["toy"], ["render"]) == 1


def test_root_whose_name_is_a_pattern_reads_its_own_tables(tmp_path: Path):
    """Brackets and stars in a path are characters, not a pattern that another project's folder would match."""
    from bellwether.case import Case, Origin
    from bellwether.corpora.store import count_cases, stream_cases, write_corpus
    from bellwether.layout import corpus_folder

    origin = Origin("mine", "handmade", "a.jsonl", "", "Apache-2.0")
    for name, count in (("p[b]*", 1), ("pbDECOY", 2)):
        cases = [Case("tokenize", "common", f"case-{n}", origin, str(n), text="x") for n in range(count)]
        write_corpus(cases, "mine", corpus_folder(tmp_path / name, "mine"))
    root = tmp_path / "p[b]*"
    assert count_cases(root, ["mine"], ["tokenize"]) == 1
    assert len([case for batch in stream_cases(root, ["mine"], ["tokenize"]) for case in batch]) == 1
