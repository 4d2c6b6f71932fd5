"""How findings are spelled."""

from __future__ import annotations

import shlex

from hypothesis import given
from hypothesis import strategies as st

from bellwether.reports.verdicts.words import command, counted, cut, listed, played, rule, visible


@given(st.text())
def test_visible_text_is_one_line_without_controls(text: str) -> None:
    """No character is left that a terminal obeys or that breaks a line."""
    shown = visible(text)
    assert len(shown.splitlines()) <= 1
    assert not any(ord(one) < 32 or 127 <= ord(one) < 160 for one in shown)


def test_what_cannot_be_seen_is_spelled() -> None:
    """As in JSON; letters of any script and emoji stay."""
    assert visible("a\n\t\x1b[31m é 中 🪿 \u202e\u2028\xa0") == "a\\n\\t\\u001b[31m é 中 🪿 \\u202e\\u2028\\u00a0"


def test_long_words_are_cut_and_say_so() -> None:
    """What is left out has a number."""
    assert cut("abc", 3) == "abc"
    assert cut("abcdef" * 1000, 4) == "abcd… (5,996 more characters)"


def test_a_finding_is_named_by_its_layer_or_its_verdict() -> None:
    """An engine's defect is in no layer of the gateway."""
    assert rule("regression", "template", "prompt-ids") == "template/prompt-ids"
    assert rule("engine_defect", None, "same") == "engine_defect"


@given(st.text(min_size=1))
def test_a_command_survives_a_shell(case: str) -> None:
    """Whatever a case is called."""
    words = shlex.split(command(["--target", "smg-1.13.0"], "qwen3-8b", case, "size-2"))
    assert words == [
        *("bellwether", "verify", "--target", "smg-1.13.0", "--slug", "qwen3-8b", "--case", case, "--plan", "size-2")
    ]


def test_small_words() -> None:
    """Numbers, plans, names."""
    assert (counted(1, "case"), counted(2345, "case"), counted(2, "entry", "entries")) == (
        *("1 case", "2,345 cases", "2 entries"),
    )
    assert (played("full", None), played("stream", "size-2")) == ("full", "stream size-2")
    assert listed(["a", "b", "c"], 3) == "a, b, c"
    assert listed(["a", "b", "c", "d"], 2) == "a, b and 2 more"
