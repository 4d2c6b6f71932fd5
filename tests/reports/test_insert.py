"""Rows of Python in tables of DuckDB."""

from __future__ import annotations

import duckdb

from bellwether.reports.insert import insert


def test_rows_come_out_as_they_went_in() -> None:
    """Nothing, numbers, lists with and without members, text of any script; in the order they were given."""
    connection = duckdb.connect()
    connection.execute("create table toy (name text, place int, sure boolean, listed text[], empty text, said json)")
    rows = [
        ("ä", 2, None, ["a", None], None, '{"a":1}'),
        ("", None, True, [], None, "[]"),
        (None, -1, False, None, None, None),
    ]
    insert(connection, "toy", rows)
    insert(connection, "toy", rows[:1])
    assert connection.execute("from toy").fetchall() == [*rows, rows[0]]


def test_a_column_of_nothing_but_empty_lists_stays_one_of_texts() -> None:
    """Its type is the table's, which no value shows."""
    connection = duckdb.connect()
    connection.execute("create table toy (listed text[])")
    insert(connection, "toy", [([],), ([],)])
    insert(connection, "toy", [(["a"],)])
    assert connection.execute("from toy").fetchall() == [([],), ([],), (["a"],)]


def test_no_rows_are_no_rows() -> None:
    connection = duckdb.connect()
    connection.execute("create table toy (name text)")
    insert(connection, "toy", [])
    assert connection.execute("from toy").fetchall() == []
