"""The repeat rule, on its own: no dataset is needed to know which of two equal cases stays."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bellwether.case import Case, LeftOut, Origin, Repeat
from bellwether.corpora.repeats import drop_repeats
from bellwether.errors import CorpusError

ORIGIN = Origin("toy", "handmade", "toy.jsonl", "", "Apache-2.0")
HI = '{"messages":[{"role":"user","content":"hi"}]}'


def render(name: str, request: str = HI, **fields: object) -> Case:
    return replace(Case("render", "toy", name, ORIGIN, row=name, request=request), **fields)


def parse(name: str, message: str, request: str = HI) -> Case:
    return Case("parse", "toy", name, ORIGIN, row=name, request=request, message=message)


def test_first_of_equal_requests_stays():
    """Name, set, row, notes and origin do not make a case another one; every repeat points at the first."""
    other = Origin("other", "handmade", "other.jsonl", "", "MIT")
    items = [render("a"), render("b", set="tea", notes="twin"), render("c", origin=other, row="9", written=("store",))]
    assert list(drop_repeats(items)) == [
        items[0],
        Repeat("render", "tea", "b", repeats="render/toy/a"),
        Repeat("render", "toy", "c", repeats="render/toy/a"),
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param('{"a":1,"b":2}', '{"b":2,"a":1}', id="key-order"),
        pytest.param('{"a":1}', '{"a":1.0}', id="int-and-float"),
        pytest.param('{"a":"é"}', '{"a":"\\u00e9"}', id="escape"),
        pytest.param('"\ud83d\ude00"', '"\U0001f600"', id="lone-surrogates"),
    ],
)
def test_texts_are_compared_not_values(one: str, other: str):
    """JSON of equal value but other text is another request."""
    items = [render("a", one), render("b", other)]
    assert list(drop_repeats(items)) == items


def test_parse_cases_compare_request_and_message():
    """A parse case repeats another only when both texts are equal, and their border counts."""
    items = [
        parse("a", '{"content":"1"}'),
        parse("b", '{"content":"2"}'),
        parse("c", '{"content":"1"}', request="{}"),
        parse("d", '{"content":"1"}'),
        parse("e", "xy", request="z"),
        parse("f", "y", request="zx"),
    ]
    repeat = Repeat("parse", "toy", "d", repeats="parse/toy/a")
    assert list(drop_repeats(items)) == [*items[:3], repeat, *items[4:]]


def test_kinds_are_apart():
    """One name and one request may serve a render and a parse case."""
    items = [render("a"), parse("a", "{}")]
    assert list(drop_repeats(items)) == items


def test_cases_without_request_compare_their_own_fields():
    """Malformed outputs and ids are content too: cases that differ in nothing else both stay."""
    malformed = Case("parse", "toy", "m1", ORIGIN, "1", request=HI, text="<tool_call>", malformed=True)
    ids = Case("detokenize", "toy", "d1", ORIGIN, "1", ids=(1, 2), requires="0" * 64)
    items = [
        malformed,
        replace(malformed, name="m2", text="<tool_call>{"),
        ids,
        replace(ids, name="d2", ids=(1, 3)),
        replace(ids, name="d3", requires="1" * 64),
        replace(ids, name="d4"),
    ]
    repeat = Repeat("detokenize", "toy", "d4", repeats="detokenize/toy/d1")
    assert list(drop_repeats(items)) == [*items[:5], repeat]


def test_rows_left_out_pass():
    """What is no case keeps its place and is never compared."""
    left_out = LeftOut("parse", "toy", "r1", "no call")
    items = [left_out, render("a"), left_out]
    assert list(drop_repeats(items)) == items


@pytest.mark.parametrize("request_text", [HI, "{}"], ids=["dropped", "kept"])
def test_one_name_twice_is_an_error(request_text: str):
    """Names are unique per kind over all sets, whether or not the second case is a repeat."""
    items = [render("a", row="A_1"), render("a", request_text, set="tea", row="a-1")]
    with pytest.raises(CorpusError) as caught:
        list(drop_repeats(items))
    assert str(caught.value) == (
        "two render cases are named 'a'; expected one case per name and kind, "
        "got render/toy/a (toy.jsonl, row A_1) and render/tea/a (toy.jsonl, row a-1)"
    )
    assert caught.value.next_step


def test_items_are_taken_one_by_one():
    """The rule works on a stream: the first case leaves before the second is asked for."""

    def stream():
        yield render("a")
        raise AssertionError("asked for too early")

    assert next(drop_repeats(stream())) == render("a")


def _item(number: int, kind: str, request: str, message: str) -> Case | LeftOut:
    if kind == "left-out":
        return LeftOut("parse", "toy", str(number), "no call")
    return render(f"c{number}", request) if kind == "render" else parse(f"c{number}", message, request)


texts = st.sampled_from(["{}", "[]", "\ud800"])
item_lists = st.lists(st.tuples(st.sampled_from(["render", "parse", "left-out"]), texts, texts)).map(
    lambda rows: [_item(number, *row) for number, row in enumerate(rows)]
)


@given(item_lists)
def test_kept_and_dropped_are_all(items: list[Case | LeftOut]):
    """Each item comes out in its place; a repeat equals the earlier kept case it names; no two kept ones are equal."""
    results = list(drop_repeats(items))
    assert len(results) == len(items)
    kept: dict[str, tuple] = {}
    for item, result in zip(items, results, strict=True):
        if isinstance(item, LeftOut):
            assert result is item
            continue
        content = (item.kind, item.request, item.message)
        if isinstance(result, Repeat):
            assert (result.kind, result.set, result.name) == (item.kind, item.set, item.name)
            assert kept[result.repeats] == content
        else:
            assert result is item
            assert content not in kept.values()
            kept[item.case_id] = content


@given(item_lists)
def test_dropping_again_drops_nothing(items: list[Case | LeftOut]):
    """What stays has no repeats, and repeats already found pass through."""
    results = list(drop_repeats(items))
    kept = [result for result in results if not isinstance(result, Repeat)]
    assert list(drop_repeats(kept)) == kept
    assert list(drop_repeats(results)) == results
