"""Queries about engines alone: splits, front ends, chunk dependence, the inventory of what they were asked."""

from __future__ import annotations

from pathlib import Path

from witnessed import ask, checkout, claim, columns, failure, heard, no_claim, refusal

ENGINES = ("vllm-2.0", "vllm-rust-2.0", "sglang-1.0", "vllm-1.0")
PYTHON, RUST, SGLANG, OLD = ENGINES


# ── engines_split ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_split_is_of_cases_without_truth(tmp_path: Path):
    """Malformed or refused by the round trip, and not recorded; never of a case with a truth, or none for the model."""
    answers = [
        row for name in "abcde" for row in (heard(f"parse/s/{name}", PYTHON, "x"), heard(f"parse/s/{name}", SGLANG))
    ]
    claims = [no_claim("parse/s/a"), no_claim("parse/s/b"), claim("parse/s/d")]
    claims.append(no_claim("parse/s/e", "not_applicable", None))
    answers += [heard("parse/s/b", PYTHON, "x", mode="size-2")]
    root = checkout(tmp_path / "made", claims, answers, engines=ENGINES, malformed=["parse/s/a"])
    rows = ask(root, "engines_split")
    assert columns(rows, "engine", "other_engine", "what", "field", "cases", "asked", "example") == [
        ("sglang", "vllm", "message", "content", 3, 3, "parse/s/a"),
    ]


def test_split_compares_what_both_have_at_their_pinned_releases(tmp_path: Path):
    """Equal answers, failures, other ids, and older releases split nothing; a refusal against a result does."""
    claims = [no_claim(f"parse/s/{name}") for name in "abcdef"]
    answers = [
        *(heard("parse/s/a", PYTHON), heard("parse/s/a", SGLANG)),
        *(heard("parse/s/b", PYTHON), failure("parse/s/b", SGLANG)),
        *(heard("parse/s/c", PYTHON, "x", given="1"), heard("parse/s/c", SGLANG, given="2")),
        *(heard("parse/s/d", OLD, "x"), heard("parse/s/d", SGLANG)),
        *(heard("parse/s/e", PYTHON), refusal("parse/s/e", SGLANG)),
        *(refusal("parse/s/f", PYTHON), refusal("parse/s/f", SGLANG)),
    ]
    rows = ask(checkout(tmp_path / "made", claims, answers, engines=ENGINES), "engines_split")
    assert columns(rows, "engine", "other_engine", "what", "cases", "asked", "example") == [
        ("sglang", "vllm", "rejected", 1, 3, "parse/s/e"),
    ]


def test_texts_are_compared_where_one_side_has_no_ids(tmp_path: Path):
    """Engines that render text alone: another prompt-text is a difference between engines."""
    claims = [no_claim("render/s/a"), no_claim("render/s/b")]
    answers = [heard("render/s/a", PYTHON), heard("render/s/a", SGLANG, "x", prompt_sha256=None)]
    answers += [heard("render/s/b", PYTHON), heard("render/s/b", SGLANG, prompt_sha256=None)]
    rows = ask(checkout(tmp_path / "made", claims, answers, engines=ENGINES), "engines_split")
    assert columns(rows, "what", "cases", "asked") == [("prompt-text", 1, 2)]


# ── front_ends ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_front_ends_of_one_release_are_compared_whatever_the_reference_says(tmp_path: Path):
    """On whose side the reference is stands beside it; equal ones are counted too."""
    claims = [claim(f"render/s/{name}") for name in "abcd"] + [no_claim("render/s/e")]
    said = {"a": ("a", "x"), "b": ("x", "a"), "c": ("x", "y"), "d": ("a", "a"), "e": ("x", "y"), "f": ("x", "x")}
    answers = [
        row
        for name, (python, rust) in said.items()
        for row in (heard(f"render/s/{name}", PYTHON, python), heard(f"render/s/{name}", RUST, rust))
    ]
    answers += [heard("render/s/g", OLD, "x"), heard("render/s/g", RUST, "y")]
    rows = ask(checkout(tmp_path / "made", claims, answers, engines=ENGINES), "front_ends")
    assert columns(rows, "engine_version", "what", "reference_agrees_with", "cases", "example") == [
        ("2.0", "prompt-ids", "neither", 1, "render/s/c"),
        ("2.0", "prompt-ids", "none", 1, "render/s/e"),
        ("2.0", "prompt-ids", "vllm", 1, "render/s/a"),
        ("2.0", "prompt-ids", "vllm-rust", 1, "render/s/b"),
        ("2.0", "same", "both", 1, "render/s/d"),
        ("2.0", "same", "none", 1, "render/s/f"),
    ]


def test_a_failure_of_a_front_end_is_no_difference(tmp_path: Path):
    """There is no row of it."""
    answers = [heard("render/s/a", PYTHON), failure("render/s/a", RUST)]
    assert ask(checkout(tmp_path / "made", [claim("render/s/a")], answers, engines=ENGINES), "front_ends") == []


# ── chunk_dependence ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_chunk_dependence_is_of_an_engine_with_itself(tmp_path: Path):
    """Of any engine and release, whatever the reference says; plans and cases are counted, failures are not."""
    answers = [
        heard("parse/s/a", SGLANG, "x"),
        heard("parse/s/a", SGLANG, "y", mode="size-2"),
        heard("parse/s/a", SGLANG, "y", mode="random-1"),
        heard("parse/s/b", SGLANG, "x"),
        heard("parse/s/b", SGLANG, "y", mode="size-2"),
        heard("parse/s/c", SGLANG),
        refusal("parse/s/c", SGLANG, mode="size-2"),
        heard("parse/s/d", SGLANG),
        heard("parse/s/d", SGLANG, spelt=" ", mode="size-2"),
        heard("parse/s/e", SGLANG),
        failure("parse/s/e", SGLANG, mode="size-2"),
        failure("parse/s/f", SGLANG),
        heard("parse/s/f", SGLANG, "y", mode="size-2"),
        heard("parse/s/a", OLD),
        heard("parse/s/a", OLD, spaced=" ", mode="whole"),
    ]
    root = checkout(tmp_path / "made", [claim("parse/s/a")], answers, engines=ENGINES)
    names = ("engine", "engine_version", "what", "field", "plans", "cases", "example", "example_plan")
    assert columns(ask(root, "chunk_dependence"), *names) == [
        ("sglang", "1.0", "rejected", None, 1, 1, "parse/s/c", "size-2"),
        ("sglang", "1.0", "message", "content", 2, 2, "parse/s/a", "random-1"),
        ("sglang", "1.0", "respelled", None, 1, 1, "parse/s/d", "size-2"),
        ("vllm", "1.0", "message", "whitespace", 1, 1, "parse/s/a", "whole"),
    ]


# ── witnesses ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_inventory_of_witnesses_says_what_was_asked_and_what_not(tmp_path: Path):
    """Not asked, failed and without reference are neither equal nor different; a plan that differs is a difference."""
    claims = [claim(f"parse/s/{name}") for name in "abcde"] + [no_claim("parse/s/f")]
    counts = {"plans": 5, "plans_equal": 4, "plans_failed": 1}
    answers = [
        heard("parse/s/a", PYTHON, **counts),
        heard("parse/s/b", PYTHON, "x", **counts),
        refusal("parse/s/c", PYTHON),
        failure("parse/s/d", PYTHON),
        heard("parse/s/f", PYTHON),
        heard("parse/s/g", PYTHON),
        heard("parse/s/g", PYTHON, "x", mode="size-2"),
    ]
    claims.append(claim("parse/s/g"))
    root = checkout(tmp_path / "made", claims, answers, engines=ENGINES[:2], cases=["render/s/a"])
    rows = ask(root, "witnesses")
    assert [tuple(row.values())[:6] for row in rows] == [
        ("vllm", "2.0", True, "alpha", "parse", 7),
        ("vllm", "2.0", True, "alpha", "render", 1),
        ("vllm-rust", "2.0", True, "alpha", "parse", 7),
        ("vllm-rust", "2.0", True, "alpha", "render", 1),
    ]
    counted = dict(list(rows[0].items())[6:])
    assert counted == {
        **{"asked": 6, "not_asked": 1, "result": 4, "refused": 1, "measurement_failed": 1},
        **{"equal": 1, "different": 3, "plans": 10, "plans_equal": 8, "plans_failed": 2},
    }
    assert set(list(rows[1].values())[6:]) == {0, 1} and rows[1]["not_asked"] == 1


def test_a_case_of_two_outputs_is_counted_once(tmp_path: Path):
    """Of two encoders: one of them could not be measured, so the case was not."""
    claims = [claim("parse/s/a", encoder=name, given=name) for name in ("class", "tokenizer.json")]
    answers = [heard("parse/s/a", PYTHON, given="class", plans=3), failure("parse/s/a", PYTHON, given="tokenizer.json")]
    [row, _] = ask(checkout(tmp_path / "made", claims, answers), "witnesses")
    names = ("asked", "result", "measurement_failed", "equal", "different", "plans")
    assert columns([row], *names) == [(1, 0, 1, 0, 0, 3)]
