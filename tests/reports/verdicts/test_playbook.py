"""A page for every finding."""

from __future__ import annotations

import itertools

import duckdb
import pytest

from bellwether.reports import evidence
from bellwether.reports.verdicts import playbook
from bellwether.reports.verdicts.rules import LAYERS
from verdict_rows import GATES

KINDS = ("render", "parse", "tokenize", "detokenize")

# what departure says of each kind, and texts that are equal, differ, or were not seen
LAYER_OF = """
select distinct kind, what, departure_layer(observed, claim_text, what) as layer
from (
    select
        kind,
        what,
        claim_text,
        {kind: kind, text: text, baseline_text: baseline, bare_ids: bare, baseline_bare_ids: 'one'} as observed,
    from (select unnest(?) as kind)
    cross join (select unnest(?) as what)
    cross join (select unnest(['one', 'two', null]) as claim_text)
    cross join (select unnest(['one', 'two', null]) as text)
    cross join (select unnest(['one', 'two', null]) as baseline)
    cross join (select unnest(['one', 'two', null]) as bare)
)
order by all
"""

DIFFERS = {
    "render": {"rejected", "accepted", "prompt-ids"},
    "tokenize": {"rejected", "accepted", "ids"},
    "detokenize": {"rejected", "accepted", "text", "pieces"},
    "parse": {"rejected", "accepted", "prompt-ids", "framing", "message", "finish-reason", "usage", "buffered"},
}
"""Kind → what can differ in it."""


def pairs() -> set[tuple[str, str]]:
    """Return every layer with every difference that the queries can name together."""
    connection = duckdb.connect()
    connection.execute(evidence.MACROS)
    rows = connection.execute(LAYER_OF, [list(KINDS), sorted(playbook.DIFFERENCES)]).fetchall()
    of_streams = {"prompt-ids", "framing", "buffered"}  # of an answer's stream alone, and so always in its layer
    told = {**DIFFERS, "parse": DIFFERS["parse"] - of_streams}
    found = {(layer, what) for kind, what, layer in rows if what in told[kind]}
    return found | {("streaming", what) for what in DIFFERS["parse"]}  # a stream that alone is wrong


def test_the_differences_are_those_of_the_kinds() -> None:
    """None is forgotten, none is invented."""
    assert set(playbook.DIFFERENCES) == set().union(*DIFFERS.values())


@pytest.mark.parametrize(("layer", "what"), sorted(pairs()))
def test_what_the_queries_name_has_a_page_of_its_own(layer: str, what: str) -> None:
    """Not one put together."""
    assert (layer, what) in playbook.PAGES


def test_every_layer_and_difference_has_a_page() -> None:
    """Also pairs no query gives yet: no report may stop at one."""
    for layer, what in itertools.product(LAYERS, playbook.DIFFERENCES):
        page = playbook.entry(layer, what)
        assert all(part.strip() for part in (page.title, page.means, page.cause, page.try_))


def test_pages_are_sentences() -> None:
    """A title has no full stop, all else has one."""
    pages = [*playbook.PAGES.values(), *playbook.VERDICTS.values(), *playbook.LISTS.values()]
    for page in pages:
        assert page.title[0].isupper() and not page.title.endswith(".")
        assert all(part[0].isupper() and part.endswith(".") for part in (page.means, page.cause, page.try_)), page.title
    assert len({page.title for page in pages}) == len({id(page) for page in pages})


def test_what_has_no_layer_has_the_page_of_its_verdict() -> None:
    """Those that fail, have no verdict, or are excused."""
    shown = {verdict for verdict, gate in GATES.items() if gate in ("fail", "no_verdict")}
    assert set(playbook.VERDICTS) == {*shown, "known_difference"}
    assert playbook.page("engine_defect", None, "same") == playbook.VERDICTS["engine_defect"]
    assert playbook.page("regression", None, "message") == playbook.DIFFERS


def test_a_field_adds_to_the_page() -> None:
    """And to nothing else."""
    plain, special = playbook.entry("parse", "message"), playbook.entry("parse", "message", "reasoning_content")
    assert special.means.startswith(plain.means) and "markers" in special.means
    assert (special.title, special.cause, special.try_) == (plain.title, plain.cause, plain.try_)
    assert playbook.entry("parse", "message", "unheard of") == plain


@pytest.mark.parametrize("rule", "no-terminal two-terminals after-terminal not-json no-done late-role".split())
def test_every_rule_of_framing_is_explained(rule: str) -> None:
    """As adapters name them."""
    assert ("framing", rule) in playbook.FIELDS


def test_unknown_names_are_errors() -> None:
    """A misspelled layer is not explained."""
    with pytest.raises(KeyError):
        playbook.entry("templates", "prompt-ids")
    with pytest.raises(KeyError):
        playbook.entry("template", "promptids")
