"""`disputes` and what their examples show."""

from __future__ import annotations

from pathlib import Path

from witnessed import Row, ask, checkout, claim, columns, failure, heard, no_claim, refusal

ENGINES = ("vllm-0.9.0", "vllm-0.10.0", "vllm-0.32.0", "vllm-rust-0.32.0", "sglang-1.0")
PINNED, OLD, OLDEST = "vllm-0.32.0", "vllm-0.10.0", "vllm-0.9.0"


def disputes(root: Path, claims: list[Row], answers: list[Row], **options) -> list[Row]:
    return ask(checkout(root / "made", claims, answers, **{"engines": ENGINES} | options), "disputes")


def test_one_row_per_fingerprint_kind_field_and_way_of_asking(tmp_path: Path):
    """Cases are counted, the first by id is the example; another engine, and a claim of nothing, make no dispute."""
    claims = [claim(f"{kind}/s/{name}") for kind in ("render", "parse") for name in "abcd"]
    claims += [claim("render/s/b", slug="beta"), no_claim("render/s/e")]
    answers = [
        heard("render/s/b", PINNED, "x"),
        heard("render/s/c", PINNED, "x"),
        heard("render/s/a", "vllm-rust-0.32.0", "x"),
        refusal("render/s/d", PINNED),
        heard("render/s/d", "sglang-1.0", "x"),
        heard("render/s/e", PINNED, "x"),
        heard("render/s/b", PINNED, "x", slug="beta"),
        heard("parse/s/a", PINNED, "x"),
        heard("parse/s/b", PINNED, spaced=" "),
        heard("parse/s/c", PINNED),
        heard("parse/s/c", PINNED, "x", mode="size-2"),
        heard("parse/s/c", PINNED, "x", mode="size-3"),
        heard("parse/s/d", PINNED, spelt=" "),
    ]
    rows = disputes(tmp_path, claims, answers, slugs=("beta", "alpha"))
    assert columns(rows, "fingerprint", "kind", "field", "chunked", "cases", "example", "mode") == [
        ("vllm:prompt-ids:beta", "render", None, False, 1, "render/s/b", "one-shot"),
        ("vllm:message:alpha", "parse", "content", False, 1, "parse/s/a", "one-shot"),
        ("vllm:message:alpha", "parse", "whitespace", False, 1, "parse/s/b", "one-shot"),
        ("vllm:message:alpha", "parse", "content", True, 1, "parse/s/c", "size-2"),
        ("vllm:rejected:alpha", "render", None, False, 1, "render/s/d", "one-shot"),
        ("vllm:prompt-ids:alpha", "render", None, False, 2, "render/s/b", "one-shot"),
        ("vllm-rust:prompt-ids:alpha", "render", None, False, 1, "render/s/a", "one-shot"),
    ]
    assert {row["status"] for row in rows} == {"open"}


def test_open_disputes_are_the_cases_standing_calls_disputed(tmp_path: Path):
    """Two queries over the same rows never tell two stories."""
    claims = [claim(f"render/s/{name}") for name in "abcd"]
    answers = [heard(f"render/s/{name}", PINNED, said) for name, said in zip("abcd", "axxa", strict=True)]
    answers += [heard("render/s/d", OLD, "x"), heard("render/s/a", OLD, "a")]
    root = checkout(tmp_path / "made", claims, answers, engines=ENGINES)
    disputed = [row["case_id"] for row in ask(root, "standing") if row["state"] == "disputed"]
    assert disputed == ["render/s/b", "render/s/c"]
    assert sum(row["cases"] for row in ask(root, "disputes") if row["status"] == "open") == 2


def test_age_counts_releases_and_versions_are_in_order(tmp_path: Path):
    """0.9 came before 0.10: seen since the oldest, three releases old."""
    answers = [heard("render/s/a", release, "x") for release in (PINNED, OLD, OLDEST)]
    [row] = disputes(tmp_path / "1", [claim("render/s/a")], answers)
    assert columns([row], "first_version", "last_version", "age", "status") == [("0.9.0", "0.32.0", 3, "open")]
    [row] = disputes(tmp_path / "2", [claim("render/s/a")], [*answers[:2], heard("render/s/a", OLDEST)])
    assert columns([row], "first_version", "last_version", "age", "status") == [("0.10.0", "0.32.0", 2, "open")]


def test_a_dispute_the_pinned_release_has_no_more_is_gone(tmp_path: Path):
    """All its cases were asked again; cases are those it was last seen with."""
    claims = [claim("render/s/a"), claim("render/s/b")]
    answers = [heard("render/s/a", release, "x") for release in (OLDEST, OLD)] + [heard("render/s/b", OLDEST, "x")]
    answers += [heard("render/s/a", PINNED), heard("render/s/b", PINNED)]
    [row] = disputes(tmp_path, claims, answers)
    assert columns([row], "first_version", "last_version", "age", "status", "cases") == [
        ("0.9.0", "0.10.0", 2, "gone", 1)
    ]


def test_a_dispute_that_was_not_asked_about_again_is_unmeasured(tmp_path: Path):
    """One of its cases has no evidence at the pinned release: not seen is not gone."""
    claims = [claim("render/s/a"), claim("render/s/b")]
    answers = [heard("render/s/a", OLD, "x"), heard("render/s/b", OLD, "x"), heard("render/s/a", PINNED)]
    assert columns(disputes(tmp_path / "1", claims, answers), "status", "cases") == [("unmeasured", 2)]
    answers.append(failure("render/s/b", PINNED))
    assert columns(disputes(tmp_path / "2", claims, answers), "status", "cases") == [("unmeasured", 2)]


def test_a_case_of_two_encoders_counts_once(tmp_path: Path):
    """Both prompts differ from the engine's."""
    claims = [claim("render/s/a", said, encoder=name) for said, name in (("a", "class"), ("b", "tokenizer.json"))]
    [row] = disputes(tmp_path, claims, [heard("render/s/a", PINNED, "x")])
    assert (row["cases"], row["encoder"]) == (1, "class")


# ── examples ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def example(root: Path, claim_row: Row, answer: Row) -> tuple:
    made = checkout(root / "made", [claim_row], [answer], engines=ENGINES)
    [row] = ask(made, "dispute_examples")
    return columns([row], "place", "reference_says", "engine_says")[0]


def test_texts_are_cut_around_the_first_difference(tmp_path: Path):
    """40 characters either way, by characters, not bytes; place counts from 0."""
    own, other = "é" * 100 + "A" + "x" * 100, "é" * 100 + "B" + "x" * 10
    found = example(tmp_path, claim("render/s/a", prompt_text=own), heard("render/s/a", PINNED, "x", prompt_text=other))
    assert found == (100, "é" * 40 + "A" + "x" * 40, "é" * 40 + "B" + "x" * 10)


def test_ids_stand_for_prompts_of_one_text_or_none(tmp_path: Path):
    """8 ids either way; where one side begins with the other, place is the shorter length."""
    same = {"prompt_text": "t"}
    found = example(
        tmp_path / "1",
        claim("render/s/a", prompt_ids=list(range(30)), **same),
        heard("render/s/a", PINNED, "x", prompt_ids=[*range(20), 99, *range(21, 30)], **same),
    )
    around = "12 13 14 15 16 17 18 19 {} 21 22 23 24 25 26 27 28"
    assert found == (20, around.format(20), around.format(99))
    found = example(
        tmp_path / "2",
        claim("render/s/a", prompt_ids=[1, 2, 3], **same),
        heard("render/s/a", PINNED, "x", prompt_ids=[1, 2]),
    )
    assert found == (2, "1 2 3", "1 2")


def test_messages_show_the_field_that_differs(tmp_path: Path):
    """Content, reasoning, calls as JSON; absent text is empty."""
    found = example(
        tmp_path / "1",
        claim("parse/s/a", content="Hi", reasoning_content="one two"),
        heard("parse/s/a", PINNED, "x", content="Hi", reasoning_content="one"),
    )
    assert found == (3, "one two", "one")
    found = example(tmp_path / "2", claim("parse/s/a", content=None), heard("parse/s/a", PINNED, "x", content="Hi"))
    assert found == (0, "", "Hi")
    calls = [{"name": "f", "arguments": "{}"}]
    found = example(
        tmp_path / "3",
        claim("parse/s/a", content=None, tool_calls=calls),
        heard("parse/s/a", PINNED, "x", content=None),
    )
    assert found == (1, '[{"name":"f","arguments":"{}"}]', "[]")


def test_white_space_is_shown_where_it_differs(tmp_path: Path):
    """In the reasoning when the contents are equal."""
    texts = {"content": "a"}
    found = example(
        tmp_path,
        claim("parse/s/a", reasoning_content="r", **texts),
        heard("parse/s/a", PINNED, spaced=" ", reasoning_content="r\n", **texts),
    )
    assert found == (1, "r", "r\n")


def test_a_refusal_shows_its_words(tmp_path: Path):
    """Cut at 80 characters; the other side has a result, and there is no place."""
    found = example(tmp_path, claim("render/s/a"), refusal("render/s/a", PINNED, reason="e" * 100))
    assert found == (None, "result", "refused: " + "e" * 80)
    words = {"reason": "TemplateError: roles"}
    found = example(
        tmp_path / "2",
        no_claim("render/s/a", "rejected", "error", **words),
        heard("render/s/a", PINNED),
    )
    assert found == (None, "rejected: TemplateError: roles", "result")


def test_every_dispute_has_its_example(tmp_path: Path):
    """One row each, in the same order, whatever differs."""
    claims = [claim(f"{kind}/s/a") for kind in ("render", "parse", "tokenize", "detokenize")] + [claim("parse/s/b")]
    answers = [heard(row["case_id"], PINNED, "x") for row in claims[:4]]
    answers += [heard("parse/s/b", PINNED), heard("parse/s/b", PINNED, "x", mode="size-2")]
    root = checkout(tmp_path / "made", claims, answers, engines=ENGINES)
    names = ("fingerprint", "kind", "field", "chunked", "example", "mode")
    assert columns(ask(root, "dispute_examples"), *names) == columns(ask(root, "disputes"), *names)
    assert len(ask(root, "disputes")) == 5
