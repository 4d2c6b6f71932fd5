"""Query results as text: every format, every kind of value, and the markers of a README."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bellwether.errors import ParamsError
from bellwether.reports.render import between_markers, markdown, write, write_parquet

VALUES = """
    select 'é, "q"' as text, 7 as number, 'ab'::blob as digest, [1, 2] as ids, true as flag, null as nothing,
        [{'name': 'f', 'mark': 'z'::blob}] as calls, 2.5::double as share
"""


def rendered(query: str, form: str) -> tuple[str, int]:
    stream = io.StringIO()
    count = write(duckdb.connect().execute(query), form, stream)
    return stream.getvalue(), count


def test_csv_quotes_texts_and_nests_json():
    """A text with comma and quotes is quoted, digests are hex also inside structs, null is empty."""
    assert rendered(VALUES, "csv") == (
        "text,number,digest,ids,flag,nothing,calls,share\n"
        '"é, ""q""",7,6162,"[1, 2]",True,,"[{""name"": ""f"", ""mark"": ""7a""}]",2.5\n',
        1,
    )


def test_json_is_an_array_of_objects():
    """Values keep their types, keys their order; text outside ASCII is raw; digests are hex."""
    assert rendered(VALUES, "json") == (
        '[\n{"text": "é, \\"q\\"", "number": 7, "digest": "6162", "ids": [1, 2], "flag": true, "nothing": null,'
        ' "calls": [{"name": "f", "mark": "7a"}], "share": 2.5}\n]\n',
        1,
    )


def test_table_is_aligned_and_keeps_texts_that_look_like_numbers():
    """`007` stays as it is; a null cell is empty."""
    text, count = rendered(
        "select '007' as code, null as nothing union all select 'longer', 'x'::blob order by 1", "table"
    )
    assert text == "code    nothing\n------  ---------\n007\nlonger  78\n"
    assert count == 2


@pytest.mark.parametrize(
    ("form", "expected"),
    [("csv", "a,b\n"), ("json", "[\n]\n"), ("table", "a    b\n---  ---\n")],
)
def test_no_rows_are_said_as_such(form: str, expected: str):
    """The columns are named, the array is empty."""
    assert rendered("select 1 as a, 2 as b where false", form) == (expected, 0)


def test_json_has_no_word_json_does_not_know():
    """NaN and infinities are texts, also inside lists; a date and a decimal are texts of their own form."""
    query = "select 'nan'::double as a, ['-inf'::double] as b, date '2026-01-15' as c, 1.50::decimal(4, 2) as d"
    text, _ = rendered(query, "json")

    def unknown(word: str) -> None:
        raise AssertionError(word)

    value = json.loads(text, parse_constant=unknown)
    assert value == [{"a": "nan", "b": ["-inf"], "c": "2026-01-15", "d": "1.50"}]


def test_json_refuses_two_columns_of_one_name():
    """An object cannot hold both, and dropping one silently would lose data. csv can."""
    with pytest.raises(ParamsError, match="two columns are named 'a'") as caught:
        rendered("select 1 as a, 2 as a", "json")
    assert "as" in caught.value.next_step
    assert rendered("select 1 as a, 2 as a", "csv") == ("a,a\n1,2\n", 1)


@pytest.mark.parametrize("rows", [999, 1000, 1001, 2500])
def test_rows_fetched_in_parts_all_come(rows: int):
    """Results are fetched by the thousand; no row is lost or doubled at the border, and the JSON is whole."""
    query = f"select i from range({rows}) t(i) order by i"
    text, count = rendered(query, "json")
    assert count == rows
    assert [row["i"] for row in json.loads(text)] == list(range(rows))
    text, count = rendered(query, "csv")
    assert count == rows
    assert text == "i\n" + "".join(f"{number}\n" for number in range(rows))


def test_parquet_keeps_types_and_rows(tmp_path: Path):
    """Digests stay bytes and lists stay lists; a result of no rows is a table too."""
    path = tmp_path / "t.parquet"
    connection = duckdb.connect()
    assert write_parquet(connection.sql("select 'ab'::blob as digest, [i] as ids from range(2500) t(i)"), path) == 2500
    table = pq.read_table(path)
    assert table.num_rows == 2500
    assert table.slice(2499).to_pylist() == [{"digest": b"ab", "ids": [2499]}]
    assert write_parquet(connection.sql("select 1 as a where false"), path) == 0
    assert pq.read_table(path).column_names == ["a"]


CONNECTION = duckdb.connect()
plain = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=10)


@given(st.lists(st.tuples(plain, st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1))), min_size=1, max_size=5))
def test_any_text_survives_csv_and_json(rows: list[tuple[str, int | None]]):
    """Line breaks, quotes and commas come back from both; an empty text and null differ in JSON."""
    query = "select unnest($texts) as text, unnest($numbers) as number"
    values = {"texts": [text for text, _ in rows], "numbers": [number for _, number in rows]}
    stream = io.StringIO(newline="")
    write(CONNECTION.execute(query, values), "json", stream)
    assert [(row["text"], row["number"]) for row in json.loads(stream.getvalue())] == rows
    stream = io.StringIO(newline="")
    write(CONNECTION.execute(query, values), "csv", stream)
    stream.seek(0)
    expected = [["text", "number"], *([text, "" if number is None else str(number)] for text, number in rows)]
    assert list(csv.reader(stream)) == expected


# ── Markdown ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_markdown_groups_and_right_aligns_numbers():
    """A column is numeric when all its values are; thousands have commas; the last line has no line end."""
    assert markdown(["name", "rows"], [("a", 1234567), ("b", 0)]) == (
        "| name   |      rows |\n|:-------|----------:|\n| a      | 1,234,567 |\n| b      |         0 |"
    )


def test_markdown_column_with_a_text_is_left_aligned():
    """One text or null among numbers makes the column one of texts."""
    assert markdown(["a"], [(1000,), ("x",), (None,)]) == "| a     |\n|:------|\n| 1,000 |\n| x     |\n|       |"


def test_markdown_without_rows_is_a_header():
    """A scope without checkpoints still gives a table."""
    lines = markdown(["a", "b"], []).split("\n")
    assert lines[0] == "| a   | b   |"
    assert len(lines) == 2


# ── markers ──────────────────────────────────────────────────────────────────────────────────────────────────────────

FILE = "# Title\n\n<!-- count -->\nold\nlines\n<!-- /count -->\nAfter.\n"
markdown_text = st.text(st.sampled_from("ab <>!-/\n"), max_size=30)


def test_lines_between_the_markers_are_replaced():
    """Everything else stays, the markers included."""
    assert between_markers(FILE, "count", "new") == "# Title\n\n<!-- count -->\nnew\n<!-- /count -->\nAfter.\n"


def test_nothing_between_the_markers_is_enough():
    """A fresh README has the two lines and nothing between them."""
    text = "<!-- count -->\n<!-- /count -->\n"
    assert between_markers(text, "count", "| a |") == "<!-- count -->\n| a |\n<!-- /count -->\n"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("# Title\n", id="none"),
        pytest.param("<!-- count -->\nold\n", id="no end"),
        pytest.param("old\n<!-- /count -->\n", id="no begin"),
        pytest.param("<!-- /count -->\nold\n<!-- count -->\n", id="end before begin"),
        pytest.param("<!-- bench -->\nold\n<!-- /bench -->\n", id="of another name"),
    ],
)
def test_missing_markers_are_an_error(text: str):
    """A file without a place for the block is never guessed at."""
    with pytest.raises(ParamsError, match="<!-- count --> … <!-- /count -->") as caught:
        between_markers(text, "count", "new")
    assert "marker" in caught.value.next_step


@given(markdown_text, markdown_text, markdown_text, markdown_text)
def test_last_block_wins_and_the_rest_stays(head: str, old: str, tail: str, block: str):
    """Writing twice is writing once, and head and tail are never touched."""
    assume("<!-- n -->" not in head + old + block and "<!-- /n -->" not in head + old + block)
    text = f"{head}<!-- n -->\n{old}\n<!-- /n -->{tail}"
    once = between_markers(text, "n", block)
    assert once == f"{head}<!-- n -->\n{block}\n<!-- /n -->{tail}"
    assert between_markers(once, "n", block) == once
    assert between_markers(between_markers(text, "n", "other"), "n", block) == once
