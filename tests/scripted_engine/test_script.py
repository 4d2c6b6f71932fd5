"""Scripts: which request they are for, and the file they stand in."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bellwether.errors import EngineError
from bellwether.scripted_engine.script import Script, ScriptFile, keys_of, script

NAMES = st.text(alphabet="a1-", min_size=1, max_size=12)


@given(NAMES, NAMES)
def test_a_key_is_for_its_own_id_and_for_ids_that_go_on_after_a_dash(key: str, request_id: str) -> None:
    """A gateway appends `-<uuid7>` to the id of its client."""
    assert (key in keys_of(request_id)) == (request_id == key or request_id.startswith(f"{key}-"))


def test_the_longest_key_comes_first() -> None:
    assert list(keys_of("case-1-0192-ab")) == ["case-1-0192-ab", "case-1-0192", "case-1", "case"]


def test_an_id_of_dashes_without_end_has_no_key_but_itself() -> None:
    """A client may send anything; a megabyte of dashes is not cut a million times."""
    assert list(keys_of("-" * 1025)) == ["-" * 1025]


@pytest.mark.parametrize(
    "arguments",
    [
        ([1, 2],),
        ("ab",),
        ([[1], "ab"],),
        ([[-1]],),
        ([[1 << 32]],),
        ([[True]],),
        ([[1.0]],),
        ([[1]], None),
        ([[1]], "stop", -1),
    ],
)
def test_what_is_no_script_is_refused(arguments: tuple) -> None:
    """Ids are 32 bit without sign on every wire."""
    with pytest.raises(ValueError):
        script(*arguments)


def test_words_nobody_knows_and_empty_chunks_are_scripts() -> None:
    """They are faults an engine may have."""
    assert script([[], [7]], "tired", "END") == Script(((), (7,)), "tired", "END")


def write(path: Path, *lines: dict) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_the_first_line_of_several_that_fit_answers(tmp_path: Path) -> None:
    path = tmp_path / "script.jsonl"
    write(path, {"key": "a", "chunks": [[1]]}, {"key": "a-b", "chunks": [[2]]}, {"key": "*", "chunks": [[3]]})
    file = ScriptFile(path)

    assert file.find("a-b-0192") == ("a", Script(((1,),)))
    assert file.find("ab") is None
    assert file.any() == Script(((3,),))


def test_a_line_gives_all_of_a_script(tmp_path: Path) -> None:
    path = tmp_path / "script.jsonl"
    write(
        path,
        {"key": "id", "chunks": [[1, 2], [3]], "finish_reason": "length", "matched_token_id": 3},
        {"key": "text", "chunks": [], "matched_stop_str": "END"},
    )
    file = ScriptFile(path)

    assert file.find("id") == ("id", Script(((1, 2), (3,)), "length", 3))
    assert file.find("text") == ("text", Script((), "stop", "END"))


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    """Also when size and time stamp stay: a file system's clock ticks every few milliseconds."""
    path = tmp_path / "script.jsonl"
    write(path, {"key": "a", "chunks": [[1]]})
    file = ScriptFile(path)
    stamp = path.stat().st_mtime_ns
    write(path, {"key": "a", "chunks": [[2]]})
    os.utime(path, ns=(stamp, stamp))

    assert file.find("a") == ("a", Script(((2,),)))


def test_an_unchanged_file_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "script.jsonl"
    write(path, {"key": "a", "chunks": [[1]]})
    os.utime(path, (1, 1))
    file = ScriptFile(path)
    monkeypatch.setattr("bellwether.scripted_engine.script.read", lambda _: pytest.fail("read again"))

    assert file.find("a") == ("a", Script(((1,),)))


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("{", "unexpected end"),
        ("[]", "no JSON object"),
        ('{"chunks": [[1]]}', "no key"),
        ('{"key": "", "chunks": [[1]]}', "no key"),
        ('{"key": "b"}', "no chunks"),
        ('{"key": "b", "chunks": [1]}', "chunks are no list"),
        ('{"key": "b", "chunks": [[-1]]}', "-1 is no token id"),
        ('{"key": "b", "chunks": [[1]], "finish_reason": null}', "finish_reason is no text"),
        ('{"key": "b", "chunks": [[1]], "matched_token_id": "x"}', "matched_token_id is no token id"),
        ('{"key": "b", "chunks": [[1]], "matched_stop_str": 1}', "matched_stop_str is no text"),
        ('{"key": "b", "chunks": [[1]], "matched_stop_str": "x", "matched_token_id": 1}', "exclude each other"),
        ('{"key": "b", "chunk": [[1]]}', "unknown field 'chunk'"),
        ('{"key": "a", "chunks": [[2]]}', "stands on line 1 already"),
    ],
)
def test_a_malformed_line_is_named(tmp_path: Path, line: str, what: str) -> None:
    path = tmp_path / "script.jsonl"
    path.write_text('{"key": "a", "chunks": [[1]]}\n\n' + line + "\n")

    with pytest.raises(EngineError) as error:
        ScriptFile(path)
    assert str(error.value).startswith(f"{path}:3: ")
    assert what in str(error.value)


def test_a_file_that_became_malformed_answers_nothing_until_it_is_mended(tmp_path: Path) -> None:
    """What stood there before is no answer any more; it is told once, however many ask."""
    path = tmp_path / "script.jsonl"
    write(path, {"key": "a", "chunks": [[1]]})
    told: list[str] = []
    file = ScriptFile(path, complain=told.append)
    path.write_text("{")
    for _ in range(2):
        with pytest.raises(EngineError):
            file.find("a")
    assert len(told) == 1
    assert told[0].startswith(f"{path}:1: ")

    write(path, {"key": "a", "chunks": [[2]]})
    assert file.find("a") == ("a", Script(((2,),)))


def test_a_file_that_went_away_answers_nothing(tmp_path: Path) -> None:
    path = tmp_path / "script.jsonl"
    write(path, {"key": "a", "chunks": [[1]]})
    file = ScriptFile(path)
    path.unlink()

    with pytest.raises(EngineError, match="No such file"):
        file.find("a")
