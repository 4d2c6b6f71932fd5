"""Digests: two things share one exactly when they are equal, in the sense each digest is for."""

from __future__ import annotations

import hashlib
import json
import struct
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bellwether.digests import (
    ids_sha256,
    message_bare_sha256,
    message_sha256,
    message_value_sha256,
    pieces_sha256,
    text_sha256,
)

token_ids = st.lists(st.integers(0, 2**31 - 1), max_size=20)
texts = st.text(st.characters(), max_size=8)  # lone surrogates too


def by_value(arguments: str) -> bytes:
    """Digest of a message whose one call has `arguments`."""
    return message_value_sha256(None, None, [{"name": "f", "arguments": arguments}])


def same(one: str, other: str) -> bool:
    return by_value(one) == by_value(other)


# ── ids, texts, pieces ───────────────────────────────────────────────────────────────────────────────────────────────


def test_ids_digest_is_of_little_endian_u32():
    """[1, 258] is 01 00 00 00 02 01 00 00; no ids at all are the empty string."""
    assert ids_sha256([1, 258]) == hashlib.sha256(bytes.fromhex("0100000002010000")).digest()
    assert ids_sha256([]).hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@given(token_ids, token_ids)
def test_digests_are_equal_exactly_when_ids_are(one: list[int], other: list[int]):
    """Two lists of ids share a digest only when they are the same list; lists and tuples count alike."""
    assert (ids_sha256(one) == ids_sha256(other)) == (one == other)
    assert ids_sha256(tuple(one)) == ids_sha256(list(one))


@given(token_ids)
def test_ids_digest_follows_its_definition(ids: list[int]):
    """The digest is the sha256 of the packed ids, whatever machine computes it."""
    assert ids_sha256(ids) == hashlib.sha256(struct.pack(f"<{len(ids)}I", *ids)).digest()


def test_text_digest_is_of_utf8():
    """One a of ASCII, one letter of two bytes; a lone surrogate has the three bytes it would have."""
    assert text_sha256("").hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert text_sha256("aé") == hashlib.sha256(bytes.fromhex("61c3a9")).digest()
    assert text_sha256("\ud83d") == hashlib.sha256(bytes.fromhex("eda0bd")).digest()


@given(texts, texts)
def test_text_digests_are_equal_exactly_when_texts_are(one: str, other: str):
    """Nothing is normalised: a letter and its decomposed form are two texts."""
    assert (text_sha256(one) == text_sha256(other)) == (one == other)


def test_pieces_digest_is_of_their_json():
    """The list in JSON, escapes for all beyond ASCII, a blank after the comma."""
    assert pieces_sha256(["a", "", "é"]) == hashlib.sha256(rb'["a", "", "\u00e9"]').digest()


@given(st.lists(texts, max_size=5), st.lists(texts, max_size=5))
def test_pieces_digests_are_equal_exactly_when_pieces_are(one: list[str], other: list[str]):
    """The same text cut elsewhere is other pieces; a piece without text counts."""
    assert (pieces_sha256(one) == pieces_sha256(other)) == (one == other)
    assert pieces_sha256(one) == pieces_sha256(tuple(one))
    assert pieces_sha256([*one, ""]) != pieces_sha256(one)
    assert pieces_sha256([*one, "ab"]) != pieces_sha256([*one, "a", "b"])


# ── messages ─────────────────────────────────────────────────────────────────────────────────────────────────────────

digests_of_messages = pytest.mark.parametrize("digest", [message_sha256, message_value_sha256])
A, B = {"name": "f", "arguments": '{"a": 1}'}, {"name": "f", "arguments": '{"a": 2}'}


def test_message_digest_is_of_canonical_json():
    """Keys sorted, calls as pairs of name and text; null text is empty text."""
    canonical = '{"content": "x", "reasoning_content": "", "tool_calls": [["f", "{\\"a\\": 1}"]]}'
    assert message_sha256("x", None, [A]) == hashlib.sha256(canonical.encode()).digest()


def test_message_value_digest_is_of_canonical_json():
    """Members tell what they are: a number is its digits and exponent, an object is marked as one."""
    calls = '[["f", ["value", {"object": {"a": {"number": "15e-1"}, "b": [true, null, "1"]}}]], ["g", ["text", "{"]]]'
    canonical = f'{{"content": "", "reasoning_content": "y", "tool_calls": {calls}}}'
    given_calls = [{"name": "f", "arguments": '{"b":[true,null,"1"],"a":1.50}'}, {"name": "g", "arguments": "{"}]
    assert message_value_sha256(None, "y", given_calls) == hashlib.sha256(canonical.encode()).digest()


@digests_of_messages
def test_what_makes_messages_equal(digest):
    """Empty and missing text are the same; order of calls, names, and which text is the reasoning are not."""
    assert digest(None, "", []) == digest("", None, [])
    assert digest("x", None, [A, B]) != digest("x", None, [B, A])
    assert digest("x", None, [A]) != digest("x", None, [A, A])
    assert digest("x", None, [A]) != digest("x", None, [{**A, "name": "g"}])
    assert digest("x", "y", []) != digest("y", "x", [])
    assert digest("x ", None, []) != digest("x", None, [])
    digest("\ud83d", "\ud83d", [{"name": "\ud83d", "arguments": "\ud83d"}])  # half a character is no error


def test_bytes_of_arguments_count_for_one_digest_only():
    """A blank more is another message by bytes, and the same one by value."""
    compact = {"name": "f", "arguments": '{"a":1}'}
    assert message_sha256("x", None, [A]) != message_sha256("x", None, [compact])
    assert message_value_sha256("x", None, [A]) == message_value_sha256("x", None, [compact])


# ── arguments as values ──────────────────────────────────────────────────────────────────────────────────────────────

numbers = st.builds(lambda digits, exponent: Decimal(f"{digits}e{exponent}"), st.integers(), st.integers(-30, 30))
values = st.recursive(
    st.one_of(st.none(), st.booleans(), texts, numbers),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=8,
)
"""JSON values; a number is a decimal, so exact."""


def exact(value: Any) -> Any:
    """Return `value` in a form that Python compares as JSON means it: a flag is no number."""
    match value:
        case dict():
            return ("object", {key: exact(member) for key, member in value.items()})
        case list():
            return ("list", [exact(member) for member in value])
    return (type(value).__name__, value)


def spelt(value: Any, draw) -> str:
    """Return one of the JSON texts of `value`: order of keys, white space, escapes and numbers are drawn."""

    def blank() -> str:
        return draw(st.sampled_from(["", " ", "\n\t", "\r"]))

    def body() -> str:
        match value:
            case Decimal():
                return draw(st.sampled_from(spellings(value)))
            case dict():
                members = draw(st.permutations(list(value.items())))
                pairs = [f"{spelt(key, draw)}:{spelt(member, draw)}" for key, member in members]
                return "{" + (",".join(pairs) or blank()) + "}"
            case list():
                return "[" + (",".join(spelt(member, draw) for member in value) or blank()) + "]"
            case str():
                escaped = "".join(f"\\u{unit:04x}" for unit in utf16(value))
                return draw(st.sampled_from([f'"{escaped}"', json.dumps(value), json.dumps(value, ensure_ascii=False)]))
        return json.dumps(value)

    return blank() + body() + blank()


def utf16(text: str) -> list[int]:
    data = text.encode("utf-16-le", "surrogatepass")
    return list(struct.unpack(f"<{len(data) // 2}H", data))


def spellings(number: Decimal) -> list[str]:
    sign, digits, exponent = number.as_tuple()
    first, *rest = map(str, digits)
    whole, tail = "-" * sign + first, "".join(rest)
    short = f"{whole}.{tail}0e{exponent + len(tail)}"
    longer = f"{whole}{tail}00e{exponent - 2}" if number else "-0.00"  # JSON has no number that begins with two zeros
    return [f"{whole}{tail}e{exponent}", f"{whole}{tail}.000E{exponent:+d}", longer, short]


@given(st.data(), values)
def test_spelling_does_not_count(data, value):
    """One value written in two ways, keys in any order, has one digest."""
    one, other = (spelt(value, data.draw) for _ in range(2))
    assert same(one, other)


@given(st.data(), values, values)
def test_values_that_differ_have_digests_that_do(data, one, other):
    """Digests are equal exactly when the values are, whatever their spelling."""
    assert same(spelt(one, data.draw), spelt(other, data.draw)) == (exact(one) == exact(other))


@pytest.mark.parametrize(
    "texts",
    [
        pytest.param(["12345678901234567890123", "1.2345678901234568e+22"], id="more digits than a double has"),
        pytest.param(["9007199254740993", "9007199254740992"], id="neighbours beyond 53 bits"),
        pytest.param(["0.1", "0.1000000000000000055511151231257827"], id="a decimal and its double"),
        pytest.param(["1", '"1"', "true", '{"number": "1e0"}', "[1]"], id="one in five types"),
        pytest.param(["0", "false", "null", '""', "[]", "{}"], id="nothing in six types"),
        pytest.param(['{"a": null}', "{}"], id="null and absent"),
        pytest.param(["[1, 2]", "[2, 1]"], id="order of a list"),
        pytest.param(['"é"', '"e\\u0301"'], id="composed and not"),
        pytest.param(['{"object": {}}', '{"object": {"object": {}}}'], id="words of the canonical form"),
        pytest.param(['["value", 1]', '["text", 1]'], id="marks of the canonical form"),
        pytest.param(["1e999999999", "1e999999998", "-1e999999999"], id="beyond a double"),
        pytest.param(["1e-999999999", "0"], id="below a double"),
    ],
)
def test_distinct_values(texts: list[str]):
    """A double would take some of these for each other; a value is compared exactly and with its type."""
    assert len({by_value(text) for text in texts}) == len(texts)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"a": 100.0}', '{"a": 1e2}'),
        ("0", "-0.0e5"),
        ("1e999999999", "10E999999998"),
        ('{"a": 1, "a": 2}', '{"a": 2}'),
        ('{"a": {"b": 1}, "a": {"c": 1}}', '{"a": {"c": 1}}'),
        ('"\\ud83d\\ude00"', '"😀"'),
        ("5" + "0" * 5000, "5e5000"),  # Python's int() refuses beyond 4300 digits
    ],
)
def test_equal_values(one: str, other: str):
    """The last of a repeated key counts, the sign of zero does not."""
    assert same(one, other)


@pytest.mark.parametrize("text", ["", "{", '{"a": 1', "{'a': 1}", "NaN", "[-Infinity]", "01", '{"a": 1}}', "\ufeff{}"])
def test_arguments_that_are_no_json_are_the_text_they_are(text: str):
    """A blank more makes them another text; NaN is no JSON, though Python reads it."""
    assert not same(text, f" {text}")
    assert not same(text, json.dumps(text))


def test_exponent_too_large_to_hold_counts_as_text():
    """Of twenty digits: nothing breaks, and only the same bytes are the same."""
    assert same("1e99999999999999999999", "1e99999999999999999999")
    assert not same("1e99999999999999999999", "1E99999999999999999999")


@pytest.mark.parametrize(("opens", "closes"), [("[", "]"), ('{"a":', "}")])
def test_nesting_is_compared_up_to_a_limit(opens: str, closes: str):
    """100 levels are values, 101 are text, and 100,000 break nothing; the depth of the caller has no part in it."""

    def nested(levels: int, blank: str) -> str:
        return opens * levels + f"{blank}1" + closes * levels

    assert same(nested(100, ""), nested(100, " "))
    for levels in (101, 450, 500, 1000, 100_000):
        assert not same(nested(levels, ""), nested(levels, " "))


def test_digest_does_not_depend_on_the_call_stack():
    """Deep inside other calls the same arguments have the same digest."""
    text = "[" * 100 + "1" + "]" * 100

    def below(calls: int) -> bytes:
        return below(calls - 1) if calls else by_value(text)

    assert below(300) == by_value(text)


def test_bare_digest_leaves_out_white_space_of_texts():
    """Line ends, blanks and a no-break space of the two texts; those of arguments count, unless they are between
    values. Another letter, and a text that moved to the other field, are another message."""
    calls = [{"name": "f", "arguments": '{"a": "x y"}'}]
    bare = message_bare_sha256("It is 21.", "Think.", calls)
    assert bare == message_bare_sha256("\nIt is\u00a021. ", "\n\nThink.\n", [calls[0] | {"arguments": '{"a":"x y"}'}])
    assert bare != message_bare_sha256("It is 21.", "Think.", [calls[0] | {"arguments": '{"a": "xy"}'}])
    assert bare != message_bare_sha256("It is 22.", "Think.", calls)
    assert bare != message_bare_sha256("It is 21.Think.", None, calls)
    assert message_bare_sha256(" \n", None, []) == message_bare_sha256(None, "", []) == message_value_sha256("", "", [])
