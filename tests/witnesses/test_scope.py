"""Which cases are asked, and by which plans: drawn, and the same everywhere."""

from __future__ import annotations

import hashlib

import duckdb
from hypothesis import given
from hypothesis import strategies as st

from bellwether.chunk_plans import chunk_plans
from bellwether.params import Scope
from bellwether.witnesses.scope import DRAWN, bound, hash_of, is_asked, plans

IDS = st.text(min_size=1, max_size=60).filter(lambda text: text.isprintable())
SHARES = st.floats(0, 1)


@given(IDS, SHARES)
def test_hand_made_cases_are_always_asked(case_id: str, share: float) -> None:
    """They are few, and written to be asked."""
    assert is_asked(case_id, "handmade", Scope(share=share))


@given(IDS)
def test_share_1_asks_all_and_share_0_none(case_id: str) -> None:
    """The ends of the scale are exact."""
    assert is_asked(case_id, "bfcl", Scope(share=1))
    assert not is_asked(case_id, "bfcl", Scope(share=0))


@given(IDS, SHARES, SHARES)
def test_a_larger_share_takes_no_case_away(case_id: str, one: float, other: float) -> None:
    """What was recorded stays comparable when the share grows."""
    less, more = sorted([one, other])
    assert is_asked(case_id, "bfcl", Scope(share=less)) <= is_asked(case_id, "bfcl", Scope(share=more))


def test_a_share_is_a_share() -> None:
    """Of 20,000 names a tenth, within what chance allows."""
    asked = sum(is_asked(f"render/bfcl/case-{number}", "bfcl", Scope(share=0.1)) for number in range(20_000))
    assert 1_850 < asked < 2_150


def test_a_case_is_drawn_by_the_sha256_of_its_id() -> None:
    """By hand: the fraction that its first 16 hexadecimal digits are of the largest such number."""
    case_id = "parse/bfcl-simple/simple-0"
    fraction = int(hashlib.sha256(case_id.encode()).hexdigest()[:16], 16) / 16**16
    assert not is_asked(case_id, "bfcl", Scope(share=fraction * 0.999))
    assert is_asked(case_id, "bfcl", Scope(share=fraction * 1.001))


@given(st.lists(IDS, min_size=1, max_size=20, unique=True), SHARES)
def test_sql_draws_the_same_cases(case_ids: list[str], share: float) -> None:
    """The stream of questions filters in SQL."""
    rows = duckdb.execute(
        "select id from (select unnest(?) as id) where substr(sha256(id), 1, 16) < ?", [case_ids, bound(share)]
    ).fetchall()
    assert {row[0] for row in rows} == {one for one in case_ids if hash_of(one) < bound(share)}


@given(IDS, st.integers(1, 100))
def test_drawn_plans_are_two_and_some_more(case_id: str, length: int) -> None:
    """`whole` and `per_token` always, others by the case; lengths and order are chunk_plans'."""
    every = chunk_plans(length)
    found = plans(case_id, "bfcl", length, Scope(plans="drawn"))
    assert list(found) == [name for name in every if name in found]
    assert found == {name: every[name] for name in found}
    assert {"whole", "per_token"} <= found.keys()
    assert len(found) == 2 + DRAWN
    assert found == plans(case_id, "bfcl", length, Scope(plans="drawn"))


def test_cases_draw_different_plans() -> None:
    """Over many cases every plan has its turn."""
    drawn: set[str] = set()
    for number in range(300):
        drawn |= plans(f"parse/bfcl/case-{number}", "bfcl", 20, Scope()).keys()
    assert drawn == set(chunk_plans(20))


@given(IDS, st.integers(1, 100))
def test_hand_made_cases_and_plans_all_are_streamed_by_every_plan(case_id: str, length: int) -> None:
    """The count of the contract: 30 random ones, and more."""
    assert plans(case_id, "handmade", length, Scope(plans="drawn")) == chunk_plans(length)
    assert plans(case_id, "bfcl", length, Scope(plans="all")) == chunk_plans(length)


def test_an_empty_output_is_not_streamed() -> None:
    """There is nothing to cut."""
    assert plans("parse/common/empty", "handmade", 0, Scope()) == {}
