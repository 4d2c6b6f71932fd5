"""What patterns of response templates find: expectations by hand, from the `regex` library's documented behaviour."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bellwether.errors import CorpusError, OracleError
from bellwether.oracles import response_patterns as oracle
from bellwether.oracles.response_patterns import Pattern, Probe, Template, answer, patterns, read_probes

KEYS = r'"(?:\\.|[^"\\])*"|(?<=[{,])(\s*)(\w+)(\s*):'
SPEC = {
    "start_anchor": ["<a>", "<b>\n"],
    "fields": {
        "reasoning_content": {"open": "<think>", "close": "</think>"},
        "tool_calls": {
            "open_pattern": r"\s*<call=(?P<name>[^>\n]+)>",
            "close_pattern": r"</call>\s*",
            "repeats": True,
            "content": "xml-inline",
            "content_args": {
                "tag_pattern": r"<(?P<key>\w+)>(?P<value>.*?)</>",
                "value_parser": {"name": "json", "args": {"string_delims": [["«", "»"]], "unquoted_keys": True}},
            },
            "transform": {"name": "{name}", "arguments": "{content}"},
        },
        "content": {"close": ["<end>", "<end><more>"]},
    },
}


def found(**more) -> dict[str, Pattern]:
    return {one.id: one for one in patterns(Template("t", ("m",), SPEC | more), KEYS)}


def ask(id: str, call: str, text: str, **more) -> list[dict]:
    return answer(found(**more)[id], call, Probe("p", text, "n"), 5)[1]


def spans(matches: list[dict]) -> list[tuple]:
    return [(match["start"], match["end"]) for match in matches]


def test_the_patterns_of_a_template():
    """Anchor, both sides of each field, and what its content parsers compile, in the template's order."""
    assert {id: (one.role, one.calls, one.literals) for id, one in found().items()} == {
        "t/start_anchor": ("start_anchor", ("finditer",), ("<a>", "<b>\n")),
        "t/reasoning_content/open": ("open", ("search", "search-partial"), ("<think>",)),
        "t/reasoning_content/close": ("close", ("search", "search-partial"), ("</think>",)),
        "t/tool_calls/open_pattern": ("open_pattern", ("search", "search-partial"), None),
        "t/tool_calls/close_pattern": ("close_pattern", ("search", "search-partial"), None),
        "t/tool_calls/content_args.tag_pattern": ("content_args.tag_pattern", ("finditer",), None),
        "t/tool_calls/content_args.value_parser.string_delims[0]": (
            *("content_args.value_parser.string_delims[0]", ("sub",), None),
        ),
        "t/tool_calls/content_args.value_parser.unquoted_keys": (
            *("content_args.value_parser.unquoted_keys", ("sub",), None),
        ),
        "t/content/close": ("close", ("search", "search-partial"), ("<end>", "<end><more>")),
    }


def test_patterns_are_compiled_as_transformers_does():
    """Delimiters let a dot match newlines; the pattern for bare keys has no flags. Longer literals come first."""
    assert found()["t/content/close"].compiled.pattern == "<end><more>|<end>"
    assert found()["t/content/close"].flags == ["DOTALL", "UNICODE", "VERSION0"]
    assert found()["t/tool_calls/content_args.value_parser.unquoted_keys"].flags == ["UNICODE", "VERSION0"]


@pytest.mark.parametrize(
    "broken",
    [
        {"start_anchor": None},
        {"fields": {}},
        {"fields": {"content": {"close_pattern": "("}}},
        {"fields": {"content": {"content": "xml-inline"}}},
        {"version": 2},
        {"fields": {"content": {"content": "json", "content_args": {"string_delims": [["«"]]}}}},
    ],
)
def test_a_template_transformers_refuses_is_an_error(broken):
    """No anchor, no fields, a pattern that does not compile, no tag pattern, another version, half a delimiter."""
    with pytest.raises(OracleError, match="refuses the response template of t"):
        found(**broken)


def test_offsets_count_characters_and_bytes():
    """é has two bytes, € three, an emoji four."""
    (match,) = ask("t/reasoning_content/open", "search", "é€😀<think>")
    assert {name: match[name] for name in ("start", "end", "start_byte", "end_byte")} == {
        "start": 3,
        "end": 10,
        "start_byte": 9,
        "end_byte": 16,
    }


def test_searches_go_on_from_the_end_of_a_match():
    """As the parser does, with the place each began at."""
    matches = ask("t/reasoning_content/open", "search", "a<think><think>b")
    assert [(match["pos"], match["start"], match["end"]) for match in matches] == [(0, 1, 8), (8, 8, 15)]


def test_a_match_without_width_ends_the_search():
    """Else it would be found again and again."""
    fields = {"content": {"close_pattern": "(?=x)"}}
    assert spans(ask("t/content/close_pattern", "search", "axx", fields=fields)) == [(1, 1), (1, 1)]


def test_groups_carry_number_name_and_place():
    """A group that took no part has null places, which is not the same as an empty one."""
    (call,) = ask("t/tool_calls/open_pattern", "search", "\n<call=ü>")
    assert call["groups"] == [{"number": 1, "name": "name", "start": 7, "end": 8, "start_byte": 7, "end_byte": 9}]
    quoted, key = ask("t/tool_calls/content_args.value_parser.unquoted_keys", "sub", '{"a":1,b :2}')
    assert [group["start"] for group in quoted["groups"]] == [None, None, None]
    assert [(group["start"], group["end"]) for group in key["groups"]] == [(7, 7), (7, 8), (8, 9)]


def test_white_space_is_unicodes():
    """U+2028, U+0085 and U+3000 are, U+001C and U+200B are not: other engines say otherwise."""
    for char, start in (("\u2028", 0), ("\x85", 0), ("\u3000", 0), ("\x1c", 1), ("\u200b", 1)):
        assert spans(ask("t/tool_calls/open_pattern", "search", f"{char}<call=f>")) == [(start, 9)], hex(ord(char))


def test_a_newline_is_only_a_line_feed():
    """A name may hold U+2028, but no line feed."""
    assert spans(ask("t/tool_calls/open_pattern", "search", "<call=a\u2028b>")) == [(0, 10)]
    assert ask("t/tool_calls/open_pattern", "search", "<call=a\nb>") == []


def test_every_buffer_is_tried_while_the_text_streams():
    """From `<` on the tag is pending, and complete when it is closed; the plain beginning is no finding."""
    text = "ab<think>c"
    buffers, matches = answer(found()["t/reasoning_content/open"], "search-partial", Probe("p", text, "n"), 5)
    assert buffers == list(range(11))
    assert [(match["buffer"], match["partial"], match["start"], match["end"]) for match in matches] == [
        *((length, True, 2, length) for length in range(3, 9)),
        (9, False, 2, 9),
        (10, False, 2, 9),
    ]
    assert all("survives" not in match for match in matches), "transformers trusts literals"


def test_a_whole_match_at_the_edge_is_a_finding():
    """`$` holds in every buffer; only that something could begin there is none."""
    fields = {"content": {"close_pattern": "$"}}
    matches = ask("t/content/close_pattern", "search-partial", "x", fields=fields)
    assert [(match["buffer"], match["partial"], match["start"]) for match in matches] == [(0, False, 0), (1, False, 1)]


def test_white_space_at_the_edge_is_pending():
    """It may belong to the tag that follows, so nothing of it may be passed on."""
    matches = ask("t/tool_calls/open_pattern", "search-partial", "a \n")
    assert [(match["buffer"], match["start"], match["partial"]) for match in matches] == [(2, 1, True), (3, 1, True)]


def test_a_written_pattern_is_asked_whether_it_survives_more_text():
    """`$` matches before a last newline, and would not before one more character."""
    fields = {"content": {"close_pattern": r"x$"}}
    end, before_newline = ask("t/content/close_pattern", "search-partial", "x\n", fields=fields)
    assert (end["buffer"], end.get("survives")) == (1, None), "at the edge it is not asked"
    assert (before_newline["buffer"], before_newline["survives"]) == (2, False)
    (kept,) = ask("t/tool_calls/close_pattern", "search-partial", "</call>x")[-1:]
    assert (kept["buffer"], kept["survives"]) == (8, True)


def test_a_match_whose_groups_depend_on_the_edge_does_not_survive():
    """The same place, matched by another branch once there is more text: transformers waits for it."""
    field = {"close_pattern": r"(?P<last>x)(?=y\Z)|x", "transform": "{last}"}
    (_, match) = ask("t/content/close_pattern", "search-partial", "xy", fields={"content": field})
    assert (match["buffer"], match["end"], match["survives"]) == (2, 1, False)


def test_long_texts_stream_in_steps():
    """Which buffers were tried is said: what was not tried has no answer."""
    assert oracle.buffer_lengths(400) == list(range(401))
    assert oracle.buffer_lengths(450) == [0, 100, 200, 300, 400, 450]


def test_a_pattern_that_does_not_end_is_no_answer():
    """The engine is stopped, and no row is written: a time-out is no evidence."""
    fields = {"content": {"close_pattern": r"(?:a+)+(?:b|a)+c$"}}
    pattern = found(fields=fields)["t/content/close_pattern"]
    with pytest.raises(OracleError, match=r"t/content/close_pattern: search did not end within 0\.05 s on probe p"):
        answer(pattern, "search", Probe("p", "a" * 5000 + "!", "n"), 0.05)


def test_rows_are_ordered_and_complete():
    """One row per pattern, probe and call; a pattern that finds nothing has a row too."""
    probes = [Probe("one", "<think>", "n"), Probe("two", "", "n")]
    rows = list(oracle.rows(list(found().values()), probes, 5))
    assert [(row["pattern_id"], row["probe"], row["call"]) for row in rows[:6]] == [
        ("t/start_anchor", "one", "finditer"),
        ("t/start_anchor", "two", "finditer"),
        ("t/reasoning_content/open", "one", "search"),
        ("t/reasoning_content/open", "one", "search-partial"),
        ("t/reasoning_content/open", "two", "search"),
        ("t/reasoning_content/open", "two", "search-partial"),
    ]
    assert (rows[1]["buffers"], rows[1]["matches"]) == ([0], [])
    assert len(rows) == (4 * 1 + 5 * 2) * 2


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_byte_offsets_cut_the_text_where_characters_do(text):
    """For every match, the bytes between the byte offsets are the characters between the character offsets."""
    whole = text + "<call=é>" + text
    for match in ask("t/tool_calls/open_pattern", "search", whole):
        for part in (match, *match["groups"]):
            cut = whole.encode()[part["start_byte"] : part["end_byte"]].decode()
            assert cut == whole[part["start"] : part["end"]]


# Probes


def lines(tmp_path, *values) -> object:
    path = tmp_path / "probes.jsonl"
    path.write_text("".join(value if isinstance(value, str) else json.dumps(value) + "\n" for value in values), "utf-8")
    return path


def test_a_probe_is_a_text_or_its_parts(tmp_path):
    """Parts are written with how often they stand there; line separators inside a line are text."""
    path = lines(
        tmp_path,
        '{"name":"a","text":"x\u2028y","notes":"n"}\n',
        {"name": "b", "parts": [["ab", 2], ["c", 1]], "notes": "n"},
    )
    assert read_probes(path) == [Probe("a", "x\u2028y", "n"), Probe("b", "ababc", "n")]


@pytest.mark.parametrize(
    "line",
    [
        "{\n",
        '{"name":"a","text":"x"}\n',
        '{"name":"a","text":"x","parts":[],"notes":"n"}\n',
        '{"name":"","text":"x","notes":"n"}\n',
        '{"name":"a","text":7,"notes":"n"}\n',
        '{"name":"a","parts":[["x"]],"notes":"n"}\n',
        '{"name":"a","text":"\\ud800","notes":"n"}\n',
        '{"name":"ok","text":"x","notes":"n"}\n',
        '{"name":"a","text":"x","notes":"n"}',
    ],
)
def test_a_broken_probe_is_told(tmp_path, line):
    """No JSON, other keys, no name, no text, half a part, half a character, a name twice, a line without its end."""
    with pytest.raises(CorpusError):
        read_probes(lines(tmp_path, {"name": "ok", "text": "x", "notes": "n"}, line))


def test_a_file_without_probes_is_told(tmp_path):
    """An empty table would say that no pattern differs anywhere."""
    with pytest.raises(CorpusError, match="no probes"):
        read_probes(lines(tmp_path))
