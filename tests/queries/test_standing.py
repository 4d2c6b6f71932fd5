"""`standing`: every line of its decision table on rows made by hand, and every combination of what can meet."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bellwether.reports.database import connect
from witnessed import (
    Row,
    ask,
    checkout,
    claim,
    columns,
    failure,
    heard,
    holds,
    no_claim,
    refusal,
    write_answers,
    write_claims,
)

PYTHON, RUST = "vllm-2.0", "vllm-rust-2.0"
CASES = {kind: f"{kind}/s/a" for kind in ("render", "parse", "tokenize", "detokenize")}
each_kind = pytest.mark.parametrize("kind", CASES)


def standing(root: Path, claims: list[Row], answers: list[Row], **options) -> list[Row]:
    return ask(checkout(root / "made", claims, answers, **options), "standing")


def one(root: Path, claims: list[Row], answers: list[Row], **options) -> Row:
    [row] = standing(root, claims, answers, **options)
    return row


def told(row: Row) -> tuple:
    return columns([row], "state", "what", "field", "witnesses", "fingerprint")[0]


# ── the table, line by line ──────────────────────────────────────────────────────────────────────────────────────────


@each_kind
def test_not_applicable_whatever_a_front_end_says(kind: str, tmp_path: Path):
    """s1: the case cannot exist for the checkpoint."""
    row = one(tmp_path, [no_claim(CASES[kind], "not_applicable", None)], [heard(CASES[kind], PYTHON)])
    assert told(row) == ("not_applicable", None, None, None, None)


@pytest.mark.parametrize(
    ("kind", "what", "field"),
    [
        ("render", "prompt-ids", None),
        ("parse", "message", "content"),
        ("tokenize", "ids", None),
        ("detokenize", "text", None),
    ],
)
@pytest.mark.parametrize(("release", "engine"), [(PYTHON, "vllm"), (RUST, "vllm-rust")])
def test_disputed_when_a_front_end_gives_another_result(
    release: str, engine: str, kind: str, what: str, field: str | None, tmp_path: Path
):
    """s2: the fingerprint names the front end, what differs first, and the checkpoint group."""
    row = one(tmp_path, [claim(CASES[kind], "a")], [heard(CASES[kind], release, "b")])
    assert told(row) == ("disputed", what, field, engine, f"{engine}:{what}:alpha")
    assert row["mode"] == "one-shot"


@each_kind
def test_disputed_when_one_side_refuses(kind: str, tmp_path: Path):
    """s2: a result against a refusal."""
    row = one(tmp_path, [claim(CASES[kind], "a")], [refusal(CASES[kind], PYTHON)])
    assert told(row) == ("disputed", "rejected", None, "vllm", "vllm:rejected:alpha")


def test_disputed_when_only_the_reference_refuses(tmp_path: Path):
    """s2: the template raises, the engine makes a prompt."""
    row = one(tmp_path, [no_claim(CASES["render"], "rejected", "error")], [heard(CASES["render"], RUST)])
    assert told(row) == ("disputed", "rejected", None, "vllm-rust", "vllm-rust:rejected:alpha")


@each_kind
@pytest.mark.parametrize(
    ("releases", "witnesses"), [([PYTHON], "vllm"), ([RUST], "vllm-rust"), ([PYTHON, RUST], "vllm vllm-rust")]
)
def test_settled_when_a_front_end_gives_the_same(kind: str, releases: list[str], witnesses: str, tmp_path: Path):
    """s3: one that agrees is enough when none differs."""
    row = one(tmp_path, [claim(CASES[kind])], [heard(CASES[kind], release) for release in releases])
    assert told(row) == ("settled", None, None, witnesses, None)


def test_settled_when_both_refuse_whatever_their_words(tmp_path: Path):
    """s3: two refusals are equal."""
    claims = [no_claim(CASES["render"], "rejected", "error", reason="TemplateError: roles")]
    assert told(one(tmp_path, claims, [refusal(CASES["render"], PYTHON, reason="400")]))[0] == "settled"


@each_kind
def test_provisional_without_an_answer(kind: str, tmp_path: Path):
    """s4: not asked."""
    assert told(one(tmp_path, [claim(CASES[kind])], [])) == ("provisional", None, None, None, None)


@each_kind
def test_failed_measurement_is_no_evidence(kind: str, tmp_path: Path):
    """s4: neither alone, nor with digests that would differ or agree; nor does it weaken what the other says."""
    failed = failure(CASES[kind], PYTHON)
    assert told(one(tmp_path / "1", [claim(CASES[kind])], [failed]))[0] == "provisional"
    for said in ("a", "b"):
        answers = [failed | holds(kind, said)]
        assert told(one(tmp_path / f"2{said}", [claim(CASES[kind])], answers))[0] == "provisional"
    answers = [failed, heard(CASES[kind], RUST)]
    assert told(one(tmp_path / "3", [claim(CASES[kind])], answers)) == ("settled", None, None, "vllm-rust", None)


@each_kind
def test_no_truth_when_the_reference_claims_nothing(kind: str, tmp_path: Path):
    """s5: an engine alone makes no truth."""
    row = one(tmp_path, [no_claim(CASES[kind])], [heard(CASES[kind], PYTHON), heard(CASES[kind], RUST)])
    assert told(row) == ("no_truth", None, None, None, None)


@each_kind
def test_no_truth_when_there_is_no_reference(kind: str, tmp_path: Path):
    """s5: a case without a reference row has a row all the same, in each checkpoint of the scope."""
    rows = standing(tmp_path, [], [heard(CASES[kind], PYTHON)], slugs=("beta", "alpha"))
    assert columns(rows, "checkpoint", "case_id", "encoder", "state") == [
        ("beta", CASES[kind], None, "no_truth"),
        ("alpha", CASES[kind], None, "no_truth"),
    ]


# ── what counts as evidence of what ──────────────────────────────────────────────────────────────────────────────────


@each_kind
def test_an_answer_that_holds_nothing_to_compare_is_no_evidence(kind: str, tmp_path: Path):
    """Not observed is never equal."""
    answers = [heard(CASES[kind], PYTHON, None)]
    if kind == "tokenize":
        answers = [answers[0] | {"output_sha256": None}]
    assert told(one(tmp_path, [claim(CASES[kind])], answers))[0] == "provisional"


@pytest.mark.parametrize("said", ["a", "b"])
def test_prompts_as_texts_prove_no_ids(said: str, tmp_path: Path):
    """Equal texts may be encoded in two ways, and two texts have one encoding."""
    answers = [heard(CASES["render"], PYTHON, said, prompt_sha256=None)]
    assert told(one(tmp_path, [claim(CASES["render"])], answers))[0] == "provisional"


def test_equal_texts_without_pieces_prove_nothing_and_other_texts_do(tmp_path: Path):
    """Pieces of other texts cannot be equal."""
    case_id = CASES["detokenize"]
    rows = [heard(case_id, PYTHON, said, pieces_sha256=None) for said in ("a", "b")]
    assert told(one(tmp_path / "1", [claim(case_id)], rows[:1]))[0] == "provisional"
    assert told(one(tmp_path / "2", [claim(case_id)], rows[1:])) == (
        *("disputed", "text", None, "vllm", "vllm:text:alpha"),
    )


def test_other_pieces_of_one_text_are_a_dispute_of_their_own(tmp_path: Path):
    """A character that is held back by one of them."""
    answers = [heard(CASES["detokenize"], PYTHON, pieces_sha256=b"p" * 32)]
    assert told(one(tmp_path, [claim(CASES["detokenize"])], answers))[1] == "pieces"


@pytest.mark.parametrize("kind", ["parse", "detokenize"])
def test_an_answer_about_other_ids_is_none_to_this_one(kind: str, tmp_path: Path):
    """The output the engine was given has to be the one the reference speaks of."""
    answers = [heard(CASES[kind], PYTHON, "b", given="other"), heard(CASES[kind], RUST, given="other")]
    assert told(one(tmp_path, [claim(CASES[kind])], answers))[0] == "provisional"


def test_only_pinned_releases_of_vllm_decide(tmp_path: Path):
    """An older release and another engine differ: the case is as the newest vLLM says."""
    engines = ("vllm-2.0", "vllm-10.0", "vllm-rust-2.0", "sglang-1.0")
    answers = [heard(CASES["render"], release, "b") for release in ("vllm-2.0", "sglang-1.0")]
    assert told(one(tmp_path / "1", [claim(CASES["render"])], answers, engines=engines))[0] == "provisional"
    answers.append(heard(CASES["render"], "vllm-10.0", "a"))
    assert told(one(tmp_path / "2", [claim(CASES["render"])], answers, engines=engines))[0] == "settled"


def test_a_front_end_that_differs_outweighs_one_that_agrees(tmp_path: Path):
    """The witnesses named are those that differ; of two differences the first in order gives the fingerprint."""
    case_id = CASES["render"]
    answers = [heard(case_id, PYTHON), heard(case_id, RUST, "b")]
    assert told(one(tmp_path / "1", [claim(case_id)], answers)) == (
        *("disputed", "prompt-ids", None, "vllm-rust", "vllm-rust:prompt-ids:alpha"),
    )
    answers = [heard(case_id, PYTHON, "b"), refusal(case_id, RUST)]
    assert told(one(tmp_path / "2", [claim(case_id)], answers)) == (
        *("disputed", "rejected", None, "vllm vllm-rust", "vllm-rust:rejected:alpha"),
    )
    answers = [heard(case_id, PYTHON, "b"), heard(case_id, RUST, "c")]
    assert told(one(tmp_path / "3", [claim(case_id)], answers))[3:] == ("vllm vllm-rust", "vllm:prompt-ids:alpha")


# ── messages ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_arguments_spelt_in_another_way_are_equal_and_marked(tmp_path: Path):
    """`respelled`: one value, other bytes. A spelling of what differs anyway is not marked."""
    case_id = CASES["parse"]
    row = one(tmp_path / "1", [claim(case_id)], [heard(case_id, PYTHON, spelt=" ")])
    assert (row["state"], row["respelled"]) == ("settled", True)
    row = one(tmp_path / "2", [claim(case_id)], [heard(case_id, PYTHON)])
    assert (row["state"], row["respelled"]) == ("settled", False)
    row = one(tmp_path / "3", [claim(case_id)], [heard(case_id, PYTHON, "b", spelt=" ")])
    assert (row["state"], row["respelled"]) == ("disputed", False)


@pytest.mark.parametrize(
    ("reference", "engine", "field"),
    [
        ({"spaced": ""}, {"spaced": " "}, "whitespace"),
        ({"content": "a b"}, {"content": "a c"}, "content"),
        ({"content": None}, {"content": "a"}, "content"),
        ({"content": "", "reasoning_content": "r"}, {"content": None, "reasoning_content": "s"}, "reasoning_content"),
        (
            {"content": "a", "reasoning_content": "r"},
            {"content": " a\n", "reasoning_content": "s"},
            "reasoning_content",
        ),
        ({"content": "a", "reasoning_content": "r"}, {"content": "b", "reasoning_content": "s"}, "content"),
        ({"content": "a"}, {"content": "a"}, "tool_calls"),
        ({"content": "a"}, {"content": "a\n"}, "tool_calls"),
    ],
)
def test_field_is_the_first_that_differs_in_more_than_white_space(
    reference: dict, engine: dict, field: str, tmp_path: Path
):
    """Content, reasoning, calls; white space is named when nothing else differs."""
    said = "a" if field == "whitespace" else "b"
    row = one(tmp_path, [claim(CASES["parse"], **reference)], [heard(CASES["parse"], PYTHON, said, **engine)])
    assert told(row)[:3] == ("disputed", "message", field)


def test_another_text_of_the_output_comes_before_its_message(tmp_path: Path):
    """output-text: what the engine makes of the ids, where it says so."""
    texts = [{"output_text_sha256": letter * 32} for letter in (b"x", b"y")]
    claims = [claim(CASES["parse"], **texts[0])]
    row = one(tmp_path, claims, [heard(CASES["parse"], PYTHON, "b", **texts[1])])
    assert told(row) == ("disputed", "output-text", None, "vllm", "vllm:output-text:alpha")


# ── chunk plans ──────────────────────────────────────────────────────────────────────────────────────────────────────


def plan(name: str, said: str = "b", **more) -> Row:
    return heard(CASES["parse"], PYTHON, said, mode=name, **more)


def test_a_message_that_depends_on_chunks_is_a_dispute(tmp_path: Path):
    """One-shot agrees, a plan does not; the plan is named, the first by name of several."""
    answers = [heard(CASES["parse"], PYTHON), plan("size-3"), plan("random-1")]
    row = one(tmp_path, [claim(CASES["parse"])], answers)
    assert told(row) == ("disputed", "message", "content", "vllm", "vllm:message:alpha")
    assert row["mode"] == "random-1"


def test_a_text_that_depends_on_chunks_is_called_so(tmp_path: Path):
    """chunk-text: the incremental text differs, where it was looked at."""
    texts = [{"output_text_sha256": letter * 32} for letter in (b"x", b"y")]
    answers = [heard(CASES["parse"], PYTHON, **texts[0]), plan("size-3", **texts[1])]
    assert told(one(tmp_path, [claim(CASES["parse"], **texts[0])], answers))[1] == "chunk-text"


def test_a_plan_the_server_refuses_is_a_dispute(tmp_path: Path):
    """A refusal under a plan is evidence as any."""
    answers = [heard(CASES["parse"], PYTHON), refusal(CASES["parse"], PYTHON, mode="size-3")]
    row = one(tmp_path, [claim(CASES["parse"])], answers)
    assert (row["state"], row["what"], row["mode"]) == ("disputed", "rejected", "size-3")


def test_a_plan_that_spells_arguments_in_another_way_is_none(tmp_path: Path):
    """Streaming keeps bytes that one-shot writes anew: the value is one, and one-shot's spelling is the one marked."""
    answers = [heard(CASES["parse"], PYTHON, spelt=" "), plan("size-3", "a")]
    row = one(tmp_path / "1", [claim(CASES["parse"])], answers)
    assert (row["state"], row["respelled"]) == ("settled", True)
    answers = [heard(CASES["parse"], PYTHON), plan("size-3", "a", spelt=" ")]
    row = one(tmp_path / "2", [claim(CASES["parse"])], answers)
    assert (row["state"], row["respelled"]) == ("settled", False)


def test_a_plan_that_could_not_be_measured_is_no_evidence(tmp_path: Path):
    """The case is settled by what was seen."""
    answers = [heard(CASES["parse"], PYTHON, plans=2, plans_failed=1), plan("size-3", outcome="measurement_failed")]
    assert told(one(tmp_path, [claim(CASES["parse"])], answers))[0] == "settled"


def test_a_plan_alone_settles_nothing(tmp_path: Path):
    """One-shot failed; of the plans only those that differ from it are stored."""
    answers = [failure(CASES["parse"], PYTHON), plan("size-3", "a")]
    assert told(one(tmp_path / "1", [claim(CASES["parse"])], answers))[0] == "provisional"
    answers = [failure(CASES["parse"], PYTHON), plan("size-3", "b")]
    assert told(one(tmp_path / "2", [claim(CASES["parse"])], answers))[0] == "disputed"


# ── two encoders ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_engine_has_to_equal_every_encoder(tmp_path: Path):
    """tokenizer.json and the class give two prompts: the engine cannot equal both, so the case is disputed, in both
    rows; what differs stands in the row it differs from."""
    case_id = CASES["render"]
    claims = [claim(case_id, "a", encoder="tokenizer.json"), claim(case_id, "b", encoder="class")]
    rows = standing(tmp_path, claims, [heard(case_id, PYTHON, "a")])
    assert columns(rows, "encoder", "state", "what", "fingerprint") == [
        ("class", "disputed", "prompt-ids", "vllm:prompt-ids:alpha"),
        ("tokenizer.json", "disputed", None, None),
    ]


def test_an_encoder_that_proves_nothing_claims_nothing(tmp_path: Path):
    """The other's answer is settled or disputed by itself."""
    case_id = CASES["parse"]
    claims = [claim(case_id, "a", encoder="tokenizer.json"), no_claim(case_id, encoder="class")]
    for said, state in (("a", "settled"), ("b", "disputed")):
        rows = standing(tmp_path / said, claims, [heard(case_id, PYTHON, said)])
        assert columns(rows, "encoder", "state") == [("class", "no_truth"), ("tokenizer.json", state)]


def test_each_encoder_s_output_has_its_own_answer(tmp_path: Path):
    """The ids differ, so the engine was asked twice."""
    case_id = CASES["parse"]
    claims = [claim(case_id, "a", encoder="tokenizer.json", given="1"), claim(case_id, "a", encoder="class", given="2")]
    answers = [heard(case_id, PYTHON, given="1"), heard(case_id, PYTHON, "b", given="2")]
    rows = standing(tmp_path, claims, answers)
    assert columns(rows, "encoder", "state", "what") == [
        ("class", "disputed", "message"),
        ("tokenizer.json", "disputed", None),
    ]


# ── every combination ────────────────────────────────────────────────────────────────────────────────────────────────

REFERENCES = ("result", "error", "unproven", "not_applicable", "absent")
FRONT_END = ("absent", "failed", "refused", "same", "other")


def reference_rows(case_id: str, state: str) -> list[Row]:
    return {
        "result": [claim(case_id)],
        "error": [no_claim(case_id, "rejected", "error")],
        "unproven": [no_claim(case_id)],
        "not_applicable": [no_claim(case_id, "not_applicable", None)],
        "absent": [],
    }[state]


def front_end_rows(case_id: str, release: str, state: str) -> list[Row]:
    return {
        "absent": [],
        "failed": [failure(case_id, release)],
        "refused": [refusal(case_id, release)],
        "same": [heard(case_id, release, "a")],
        "other": [heard(case_id, release, "b")],
    }[state]


def wanted(reference: str, front_ends: tuple[str, ...]) -> str:
    """The decision table, written down a second time: on words, not on rows."""
    if reference == "not_applicable":
        return "not_applicable"
    if reference in ("unproven", "absent"):
        return "no_truth"
    agrees = {"result": "same", "error": "refused"}[reference]
    evidence = [state for state in front_ends if state not in ("absent", "failed")]
    if any(state != agrees for state in evidence):
        return "disputed"
    return "settled" if evidence else "provisional"


@pytest.mark.parametrize("kind", ["render", "parse"])
def test_every_combination_has_exactly_one_standing(kind: str, tmp_path: Path):
    """Reference × Python × Rust: 125 cases, each with one row, in the state the table gives."""
    claims, answers, expected = [], [], {}
    for number, states in enumerate(product(REFERENCES, FRONT_END, FRONT_END)):
        case_id = f"{kind}/s/{number:03}"
        reference, *front_ends = states
        if reference == "error" and kind == "parse":
            front_ends = ["absent", "absent"]  # without an output there is nothing to ask
        claims += reference_rows(case_id, reference)
        answers += front_end_rows(case_id, PYTHON, front_ends[0]) + front_end_rows(case_id, RUST, front_ends[1])
        expected[case_id] = wanted(reference, tuple(front_ends))
    root = checkout(tmp_path / "made", claims, answers, cases=expected)
    assert dict(columns(ask(root, "standing"), "case_id", "state")) == expected
    assert len(ask(root, "standing")) == len(expected)


@settings(max_examples=15, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(REFERENCES),
            st.lists(st.tuples(st.sampled_from((PYTHON, RUST)), st.sampled_from(FRONT_END)), max_size=4),
        ),
        max_size=6,
    )
)
def test_any_rows_give_one_standing_per_case(tmp_path_factory: pytest.TempPathFactory, drawn):
    """Repeated rows too: total, one row per case and answer, in the table's order, and the same twice."""
    claims, answers = [], []
    for number, (reference, front_ends) in enumerate(drawn):
        case_id = f"render/s/{number}"
        claims += reference_rows(case_id, reference)
        for release, state in front_ends:
            answers += front_end_rows(case_id, release, state)
    cases = [f"render/s/{number}" for number in range(len(drawn))]
    root = checkout(tmp_path_factory.mktemp("any") / "made", claims, answers, cases=cases)
    rows = ask(root, "standing")
    assert columns(rows, "case_id", "state") == [
        (case_id, wanted(reference, tuple(state for _, state in front_ends)))
        for case_id, (reference, front_ends) in zip(cases, drawn, strict=True)
    ]
    assert ask(root, "standing") == rows


def test_order_of_rows_changes_nothing(tmp_path: Path):
    """The same rows, written the other way round."""
    claims = [claim(f"render/s/{number}") for number in range(3)]
    answers = [
        heard(f"render/s/{n}", release, said) for n in range(3) for release, said in ((PYTHON, "b"), (RUST, "c"))
    ]
    root = checkout(tmp_path / "made", claims, answers)
    rows = ask(root, "standing")
    write_claims(root, "alpha", "render", claims[::-1])
    for release in (PYTHON, RUST):
        write_answers(root, release, "alpha", answers[::-1])
    assert ask(root, "standing") == rows


def test_digests_are_all_that_is_read(tmp_path: Path):
    """Neither query reads a list or the text of a prompt or an output."""
    root = checkout(tmp_path / "made", [claim(CASES["parse"])], [heard(CASES["parse"], PYTHON)])
    connection = connect(root).connection
    for name in ("standing", "disputes"):
        query = (root / "queries" / f"{name}.sql").read_text("utf-8")
        [(_, plan)] = connection.execute(f"explain {query}").fetchall()
        assert "message_value_sha256" in plan.replace("\n", "")
        for column in ("prompt_ids", "output_ids", "piece_ends", "tool_calls"):
            assert not re.search(rf"(?<!')\b{column}\b", plan), column  # in quotes it is the name of a difference
