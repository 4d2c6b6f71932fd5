"""`verdict`: every line of its decision table on rows made by hand, every combination of what can meet, and where a
difference is placed."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bellwether.layout import observation_table
from bellwether.reports.database import connect
from observed import TARGET, broken, list_known, observed, prompts, replay, turned_away, waive, write_replays
from witnessed import Row, ask, claim, columns, digest, heard, no_claim, refusal

PYTHON, RUST, SGLANG = "vllm-2.0", "vllm-rust-2.0", "sglang-1.0"
ENGINES = (PYTHON, RUST, SGLANG)
CASES = {kind: f"{kind}/s/a" for kind in ("render", "parse", "tokenize", "detokenize")}
WHAT = {"render": "prompt-ids", "parse": "message", "tokenize": "ids", "detokenize": "text"}
RENDER, PARSE = CASES["render"], CASES["parse"]
each_kind = pytest.mark.parametrize("kind", CASES)


def made(root: Path, claims: list[Row], answers: list[Row], replays: list[Row], **options) -> Path:
    return observed(root / "made", claims, answers, replays, **{"engines": ENGINES} | options)


def one(root: Path, claims: list[Row], answers: list[Row], replays: list[Row], **options) -> Row:
    [row] = ask(made(root, claims, answers, replays, **options), "verdict")
    return row


def told(row: Row) -> tuple:
    return columns([row], "verdict", "reason", "gate")[0]


def placed(row: Row) -> tuple:
    return columns([row], "what", "field", "first_layer", "localisation")[0]


# ── the table, line by line ──────────────────────────────────────────────────────────────────────────────────────────


@each_kind
@pytest.mark.parametrize(("outcome", "reason"), [("measurement_failed", "timeout"), ("missing", "no_capture")])
@pytest.mark.parametrize("standing", ["settled", "disputed", "no_truth", "not_applicable"])
def test_what_was_not_measured_has_no_verdict_and_no_excuse(
    standing: str, outcome: str, reason: str, kind: str, tmp_path: Path
):
    """Lines 2 and 3 come first, and a known difference excuses neither; digests beside them count for nothing."""
    case_id = CASES[kind]
    claims = {
        **{"settled": [claim(case_id)], "disputed": [claim(case_id)]},
        **{"no_truth": [no_claim(case_id)], "not_applicable": [no_claim(case_id, "not_applicable", None)]},
    }[standing]
    answers = [heard(case_id, PYTHON, "b" if standing == "disputed" else "a")]
    root = made(tmp_path, claims, answers, [broken(case_id, outcome) | replay(case_id) | {"outcome": outcome}])
    list_known(root, (f"alpha/{kind}/a", "regression", None))
    write_replays(root, TARGET, "alpha", [replay(case_id) | {"outcome": outcome, "reason_code": "timeout"}])
    [row] = ask(root, "verdict")
    assert told(row) == (outcome, reason, "no_verdict")
    assert (row["what"], row["first_layer"], row["known"]) == (None, None, None)
    assert row["fingerprint"] == f"smg-1.13.0:{outcome}:timeout:alpha"


@each_kind
@pytest.mark.parametrize("said", ["a", "refused"])
def test_not_applicable_whatever_the_gateway_does(said: str, kind: str, tmp_path: Path):
    """Line 4: the case cannot exist for the checkpoint."""
    answered = replay(CASES[kind]) if said == "a" else turned_away(CASES[kind])
    row = one(tmp_path, [no_claim(CASES[kind], "not_applicable", None)], [], [answered])
    assert told(row) == ("not_applicable", None, "none")
    assert row["standing"] == "not_applicable"


@each_kind
@pytest.mark.parametrize("release", [PYTHON, RUST])
@pytest.mark.parametrize(("said", "side"), [("a", "hf"), ("b", "vllm"), ("c", "neither"), (None, "unknown")])
def test_disputed_with_the_side_the_gateway_is_on(said: str | None, side: str, release: str, kind: str, tmp_path: Path):
    """Line 5: counted apart. What differs from the reference is told all the same; it is no defect in a layer."""
    answered = replay(CASES[kind], said)
    if kind == "tokenize" and said is None:
        answered["output_sha256"] = None
    row = one(tmp_path, [claim(CASES[kind])], [heard(CASES[kind], release, "b")], [answered])
    assert told(row) == ("disputed", side, "none")
    assert row["what"] == {"hf": "same", "unknown": None}.get(side, WHAT[kind])
    assert (row["first_layer"], row["fingerprint"]) == (None, None)


@each_kind
def test_disputed_by_a_refusal_has_sides_too(kind: str, tmp_path: Path):
    """vLLM refuses: so does the gateway, or it gives what the reference gives, or a third answer."""
    case_id = CASES[kind]
    for said, side in ((turned_away(case_id), "vllm"), (replay(case_id), "hf"), (replay(case_id, "c"), "neither")):
        row = one(tmp_path / side, [claim(case_id)], [refusal(case_id, PYTHON)], [said])
        assert told(row) == ("disputed", side, "none")


def test_disputed_by_a_chunk_plan_is_vllm_s_side_when_a_plan_of_it_says_so(tmp_path: Path):
    """The gateway says at once what vLLM says under a plan."""
    answers = [heard(PARSE, PYTHON), heard(PARSE, PYTHON, "b", mode="size-3")]
    assert told(one(tmp_path, [claim(PARSE)], answers, [replay(PARSE, "b")])) == ("disputed", "vllm", "none")


@pytest.mark.parametrize("answered", [replay(PARSE), replay(PARSE, "b"), turned_away(PARSE)])
def test_what_is_made_of_malformed_output_is_policy(answered: Row, tmp_path: Path):
    """Line 6, before lines 7 and 8: engines differ, and there is no reference."""
    answers = [heard(PARSE, PYTHON), heard(PARSE, SGLANG, "b")]
    row = one(tmp_path, [no_claim(PARSE)], answers, [answered], malformed=[PARSE])
    assert told(row) == ("policy", "none_documented", "pass")


def test_malformed_output_that_cannot_exist_is_not_applicable(tmp_path: Path):
    """Line 4 before line 6."""
    claims = [no_claim(PARSE, "not_applicable", None)]
    assert told(one(tmp_path, claims, [], [replay(PARSE)], malformed=[PARSE]))[0] == "not_applicable"


@each_kind
@pytest.mark.parametrize("releases", [(PYTHON, SGLANG), (PYTHON, RUST)])
def test_engines_split_when_two_of_them_differ_and_there_is_no_truth(kind: str, releases: tuple, tmp_path: Path):
    """Line 7; a refusal against a result is a difference."""
    first, second = releases
    for number, other in enumerate((heard(CASES[kind], second, "b"), refusal(CASES[kind], second))):
        answers = [heard(CASES[kind], first), other]
        row = one(tmp_path / str(number), [no_claim(CASES[kind])], answers, [replay(CASES[kind])])
        assert told(row) == ("engines_split", None, "pass")


@each_kind
def test_engines_do_not_split_by_older_releases_other_outputs_or_failures(kind: str, tmp_path: Path):
    """Pinned evidence of one and the same output counts; under a chunk plan an engine differs from itself alone."""
    case_id = CASES[kind]
    answers = [heard(case_id, PYTHON), heard(case_id, "sglang-0.9", "b")]
    answers.append(heard(case_id, SGLANG, "b", outcome="measurement_failed"))
    if kind in ("parse", "detokenize"):
        answers.append(heard(case_id, RUST, "b", given="other"))
    if kind == "parse":
        answers.append(heard(case_id, SGLANG, "b", mode="size-2"))
    engines = (*ENGINES, "sglang-0.9")
    row = one(tmp_path, [no_claim(case_id)], answers, [replay(case_id)], engines=engines)
    assert told(row) == ("unverified", "no_reference", "none")


@each_kind
@pytest.mark.parametrize("claims", ["unproven", "absent"])
def test_unverified_without_a_truth(claims: str, kind: str, tmp_path: Path):
    """Line 8: the reference proves nothing, or is not there; one engine alone is no truth."""
    rows = [no_claim(CASES[kind])] if claims == "unproven" else []
    row = one(tmp_path, rows, [heard(CASES[kind], PYTHON, "b")], [replay(CASES[kind])])
    assert told(row) == ("unverified", "no_reference", "none")
    assert row["standing"] == "no_truth"


@each_kind
def test_unverified_when_nothing_was_seen_to_compare_by(kind: str, tmp_path: Path):
    """Not observed is never equal: an answer without ids, text or message."""
    answered = replay(CASES[kind], None)
    if kind == "tokenize":
        answered["output_sha256"] = None
    row = one(tmp_path, [claim(CASES[kind])], [heard(CASES[kind], PYTHON)], [answered])
    assert told(row) == ("unverified", "not_observable", "none")
    assert (row["standing"], row["coverage"], row["what"]) == ("settled", None, None)


@pytest.mark.parametrize("kind", ["parse", "detokenize"])
@pytest.mark.parametrize("said", ["a", "b"])
def test_unverified_when_the_engine_gave_another_output(said: str, kind: str, tmp_path: Path):
    """The reference says nothing of these ids: neither equal nor different."""
    row = one(tmp_path, [claim(CASES[kind])], [], [replay(CASES[kind], said, given="other")])
    assert told(row) == ("unverified", "other_output", "none")


def test_a_prompt_seen_as_a_text_alone_is_not_judged(tmp_path: Path):
    """Texts prove no ids, whether they are equal or not."""
    for said in ("a", "b"):
        row = one(tmp_path / said, [claim(RENDER)], [], [replay(RENDER, said, prompt_sha256=None)])
        assert told(row) == ("unverified", "not_observable", "none")


@each_kind
@pytest.mark.parametrize("settled", [True, False])
def test_rejected_when_the_truth_is_a_result(settled: bool, kind: str, tmp_path: Path):
    """Line 9, with the gateway's code and words; a case that is provisional is judged as one that is settled."""
    answers = [heard(CASES[kind], PYTHON)] if settled else []
    row = one(tmp_path, [claim(CASES[kind])], answers, [turned_away(CASES[kind])])
    assert told(row) == ("rejected", "bad_request", "fail")
    assert columns([row], "code", "message", "http_status") == [("bad_request", "in its words", 400)]
    assert (row["standing"], row["what"]) == ("settled" if settled else "provisional", "rejected")
    layer = {"render": "template", "tokenize": "tokens", "detokenize": "detokenize", "parse": "api"}[kind]
    assert row["fingerprint"] == f"smg-1.13.0:{layer}:rejected:bad_request:alpha"


@each_kind
def test_regression_when_the_result_differs(kind: str, tmp_path: Path):
    """Line 10, with the engines that differ too."""
    answers = [heard(CASES[kind], PYTHON), heard(CASES[kind], SGLANG, "c")]
    row = one(tmp_path, [claim(CASES[kind])], answers, [replay(CASES[kind], "b")])
    assert told(row) == ("regression", None, "fail")
    assert (row["what"], row["engines"]) == (WHAT[kind], ["sglang"])


@pytest.mark.parametrize("kind", ["render", "parse"])
def test_regression_when_the_truth_refuses_and_the_gateway_does_not(kind: str, tmp_path: Path):
    """Line 10: there is an answer where there should be none."""
    row = one(tmp_path, [no_claim(CASES[kind], "rejected", "error")], [], [replay(CASES[kind])])
    assert told(row) == ("regression", None, "fail")
    assert row["what"] == "accepted"


@pytest.mark.parametrize("kind", ["render", "parse"])
def test_two_refusals_are_equal_whatever_their_words(kind: str, tmp_path: Path):
    """Line 13: the template raises, the gateway refuses."""
    row = one(tmp_path, [no_claim(CASES[kind], "rejected", "error", reason="r")], [], [turned_away(CASES[kind])])
    assert told(row) == ("match", None, "pass")
    assert row["what"] == "same"


@each_kind
@pytest.mark.parametrize("release", [None, PYTHON, SGLANG])
def test_match_when_the_gateway_gives_the_truth(release: str | None, kind: str, tmp_path: Path):
    """Line 13, settled or provisional."""
    answers = [heard(CASES[kind], release)] if release else []
    row = one(tmp_path, [claim(CASES[kind])], answers, [replay(CASES[kind])])
    assert told(row) == ("match", None, "pass")
    assert placed(row) == ("same", None, None, None)
    assert (row["fingerprint"], row["engines"], row["respelled"]) == (None, [], False)


@each_kind
def test_engine_defect_when_an_engine_differs_where_the_gateway_does_not(kind: str, tmp_path: Path):
    """Line 12: the case is settled by vLLM, and SGLang differs, or refuses."""
    for number, wrong in enumerate((heard(CASES[kind], SGLANG, "b"), refusal(CASES[kind], SGLANG))):
        answers = [heard(CASES[kind], PYTHON), wrong]
        row = one(tmp_path / str(number), [claim(CASES[kind])], answers, [replay(CASES[kind])])
        assert told(row) == ("engine_defect", None, "fail")
        assert (row["engines"], row["waived"]) == (["sglang"], [])
        assert row["fingerprint"] == "smg-1.13.0:engine_defect:sglang:alpha"


def test_an_engine_s_older_release_is_no_defect_and_a_plan_of_it_is(tmp_path: Path):
    """The pinned release counts, under every plan."""
    answers = [heard(PARSE, "sglang-0.9", "b"), heard(PARSE, SGLANG)]
    engines = ("sglang-0.9", SGLANG)
    assert told(one(tmp_path / "1", [claim(PARSE)], answers, [replay(PARSE)], engines=engines))[0] == "match"
    answers.append(heard(PARSE, SGLANG, "b", mode="size-2"))
    assert told(one(tmp_path / "2", [claim(PARSE)], answers, [replay(PARSE)], engines=engines))[0] == "engine_defect"


def test_engine_defect_is_waived_when_each_such_engine_is(tmp_path: Path):
    """Line 12: an active waiver of one of two engines is not enough, nor is one outside its range, of another case or
    of another engine."""
    engines = (PYTHON, SGLANG, "llama.cpp-b2")
    answers = [heard(RENDER, PYTHON), heard(RENDER, SGLANG, "b"), heard(RENDER, "llama.cpp-b2", "c")]
    root = made(tmp_path, [claim(RENDER)], answers, [replay(RENDER)], engines=engines, cases=["render/s/other"])

    def waived(*waivers: tuple[str, str, str]) -> tuple:
        waive(root, *waivers)
        [row] = ask(root, "verdict")
        return columns([row], "verdict", "gate", "waived")[0]

    both = (("llama.cpp", "<3", "render/a"), ("sglang", ">=1", "render/a"))
    assert waived(*both) == ("engine_defect_waived", "pass", ["llama.cpp", "sglang"])
    assert waived(both[1]) == ("engine_defect", "fail", ["sglang"])
    assert waived(both[0], ("sglang", "<1", "render/a")) == ("engine_defect", "fail", ["llama.cpp"])
    assert waived(both[0], ("sglang", ">=1", "render/other")) == ("engine_defect", "fail", ["llama.cpp"])
    text = (root / "queries" / "waivers.toml").read_text("utf-8")
    waive(root, *both)
    (root / "queries" / "waivers.toml").write_text(text.replace("o/m", "o/another"), "utf-8")
    assert ask(root, "verdict")[0]["verdict"] == "engine_defect"


# ── known differences ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def differing(tmp_path: Path) -> Path:
    """A regression, a rejection and a match."""
    claims = [claim(f"render/s/{name}") for name in ("other", "refused", "same")]
    replays = [replay("render/s/other", "b"), turned_away("render/s/refused"), replay("render/s/same")]
    return made(tmp_path, claims, [], replays)


def known(root: Path, *entries: tuple[str, str, str | None], target: str = TARGET) -> list[tuple]:
    list_known(root, *entries, target=target)
    return columns(ask(root, "verdict"), "verdict", "reason", "gate", "known")


OTHER, REFUSED, SAME = (f"alpha/render/{name}" for name in ("other", "refused", "same"))
AS_IT_IS = [
    ("regression", None, "fail", None),
    ("rejected", "bad_request", "fail", None),
    ("match", None, "pass", None),
]


def test_a_known_difference_is_excused_by_the_outcome_it_states(differing: Path):
    """Lines 9 and 10; the layer and the fingerprint stay."""
    entries = ((OTHER, "regression", None), (REFUSED, "rejected", "bad_request"))
    assert known(differing, *entries) == [
        ("known_difference", "regression", "pass", OTHER),
        ("known_difference", "rejected", "pass", REFUSED),
        AS_IT_IS[2],
    ]
    fingerprints = columns(ask(differing, "verdict"), "fingerprint")
    assert fingerprints[1] == ("smg-1.13.0:template:rejected:bad_request:alpha",)


def test_a_known_difference_excuses_no_other_outcome(differing: Path):
    """A rejection listed as a regression, the reverse, another code, another gateway's file."""
    assert known(differing, (OTHER, "rejected", "bad_request"), (REFUSED, "regression", None)) == AS_IT_IS
    assert known(differing, (REFUSED, "rejected", "another_code")) == AS_IT_IS
    (differing / "queries" / "known" / f"{TARGET}.toml").unlink()
    assert known(differing, (OTHER, "regression", None), target="smg-1.9.0") == AS_IT_IS


def test_a_file_named_like_the_gateway_counts_for_each_release(differing: Path):
    """`smg.toml` for `smg-1.13.0`."""
    assert known(differing, (OTHER, "regression", None), target="smg")[0][0] == "known_difference"


@pytest.mark.parametrize("entry", ["alpha/*", "alpha/render/*", "alpha/render/o*"])
def test_a_prefix_excuses_what_begins_so(entry: str, differing: Path):
    """And nothing else; what matches under it is a match, as long as something differs."""
    assert known(differing, (entry, "regression", None)) == [
        ("known_difference", "regression", "pass", entry),
        *AS_IT_IS[1:],
    ]


@pytest.mark.parametrize("entry", ["beta/*", "alpha/parse/*", "alpha/render/r*"])
def test_a_prefix_of_others_excuses_nothing(entry: str, differing: Path):
    """Another checkpoint, kind, or name."""
    assert known(differing, (entry, "regression", None)) == AS_IT_IS


def test_the_narrowest_entry_is_the_one_named(differing: Path):
    """A case under its own entry and under a prefix."""
    entries = (("alpha/*", "regression", None), (OTHER, "regression", None), ("alpha/render/ot*", "regression", None))
    assert known(differing, *entries)[0] == ("known_difference", "regression", "pass", OTHER)


def test_known_but_matches_has_to_go(differing: Path):
    """Line 11: whatever verdict was stated."""
    for verdict, code in (("regression", None), ("rejected", "bad_request")):
        assert known(differing, (SAME, verdict, code))[2] == ("known_but_matches", None, "fail", SAME)
    [row] = [row for row in ask(differing, "verdict") if row["verdict"] == "known_but_matches"]
    assert row["fingerprint"] == f"smg-1.13.0:known_but_matches:{SAME}"


def test_known_but_matches_before_an_engine_s_defect(tmp_path: Path):
    """Line 11 before line 12."""
    answers = [heard(RENDER, PYTHON), heard(RENDER, SGLANG, "b")]
    root = made(tmp_path, [claim(RENDER)], answers, [replay(RENDER)])
    assert known(root, ("alpha/render/a", "regression", None))[0][0] == "known_but_matches"
    assert ask(root, "verdict")[0]["engines"] == ["sglang"]


def test_an_entry_that_excuses_one_replay_is_needed_by_the_others(tmp_path: Path):
    """At once it matches, streamed it does not: the entry stays, and the match is one."""
    root = made(tmp_path, [claim(PARSE)], [], [replay(PARSE), replay(PARSE, "b", "size-2")])
    assert columns(ask(root, "verdict"), "verdict") == [("match",), ("regression",)]
    list_known(root, ("alpha/parse/a", "regression", None))
    assert columns(ask(root, "verdict"), "verdict") == [("match",), ("known_difference",)]


@pytest.mark.parametrize(
    "other", [broken(PARSE, plan="size-2"), broken(PARSE, "missing", plan="size-2"), replay(PARSE, None, "size-2")]
)
def test_an_entry_stays_when_a_replay_of_its_case_was_not_seen(other: Row, tmp_path: Path):
    """What could not be measured may be what differs."""
    root = made(tmp_path, [claim(PARSE)], [], [replay(PARSE), other])
    list_known(root, ("alpha/parse/a", "regression", None))
    assert ask(root, "verdict")[0]["verdict"] == "match"


# ── messages, usage, streams ─────────────────────────────────────────────────────────────────────────────────────────


def test_respelled_arguments_match_and_are_marked(tmp_path: Path):
    """Of one value; a message that differs is not called respelled."""
    row = one(tmp_path / "1", [claim(PARSE)], [], [replay(PARSE, spelt=" ")])
    assert (row["verdict"], row["respelled"]) == ("match", True)
    row = one(tmp_path / "2", [claim(PARSE)], [], [replay(PARSE, "b", spelt=" ")])
    assert (row["verdict"], row["respelled"]) == ("regression", False)


@pytest.mark.parametrize(
    ("reference", "gateway", "field"),
    [
        ({"content": "a b"}, {"content": "a c"}, "content"),
        ({"content": None}, {"content": "a"}, "content"),
        ({"content": "", "reasoning_content": "r"}, {"content": None, "reasoning_content": "s"}, "reasoning_content"),
        ({"content": "a"}, {"content": "a"}, "tool_calls"),
        ({"spaced": ""}, {"spaced": " "}, "whitespace"),
    ],
)
@pytest.mark.parametrize("plan", [None, "size-2"])
def test_the_field_of_a_message_is_named(reference: dict, gateway: dict, field: str, plan: str | None, tmp_path: Path):
    """And stands in the fingerprint, that of a stream in its own layer."""
    said = "a" if field == "whitespace" else "b"
    row = one(tmp_path, [claim(PARSE, **reference)], [], [replay(PARSE, said, plan, **gateway)])
    layer = "streaming" if plan else "parse"
    assert placed(row) == ("message", field, layer, "at_or_before")
    assert row["fingerprint"] == f"smg-1.13.0:{layer}:message:{field}:alpha"


WORDS = {
    "stop": ["stop", "eos", "eos_token", "end_turn", "stop_sequence"],
    "tool_calls": ["tool_calls", "tool_use", "function_call"],
}


@pytest.mark.parametrize("reference", WORDS)
def test_finish_reasons_are_compared_by_class(reference: str, tmp_path: Path):
    """layers.md §8: other words of one class are equal; unknown words are themselves, and none is another one."""
    equal = WORDS[reference]
    wrong = [*(word for group in WORDS.values() if group is not equal for word in group), "length", "max_tokens"]
    wrong += ["error", "abort", "content_filter", "weird", None]
    replays = [replay(f"parse/s/{n}", finish_reason=word) for n, word in enumerate([*equal, *wrong])]
    claims = [claim(row["case_id"], finish_reason=reference) for row in replays]
    rows = {row["case_id"]: row for row in ask(made(tmp_path, claims, [], replays), "verdict")}
    for row in replays[: len(equal)]:
        assert rows[row["case_id"]]["verdict"] == "match", row["finish_reason"]
    for row in replays[len(equal) :]:
        assert placed(rows[row["case_id"]])[:3] == ("finish-reason", None, "parse"), row["finish_reason"]


@pytest.mark.parametrize(
    ("counts", "field"),
    [
        ({"usage_prompt_tokens": 9, "prompt_tokens": 8}, "prompt"),
        ({"usage_completion_tokens": 9, "completion_tokens": 8}, "completion"),
        (
            {"usage_prompt_tokens": 9, "prompt_tokens": 9, "usage_completion_tokens": 0, "completion_tokens": 1},
            "completion",
        ),
        ({"usage_prompt_tokens": 9, "prompt_tokens": 9, "usage_completion_tokens": 1, "completion_tokens": 1}, None),
        ({"usage_prompt_tokens": 9}, None),
        ({"completion_tokens": 9}, None),
    ],
)
def test_usage_is_what_the_engine_counted(counts: dict, field: str | None, tmp_path: Path):
    """Where both were seen: a gateway that says nothing, or an engine that was not looked at, proves nothing wrong."""
    row = one(tmp_path, [claim(PARSE)], [], [replay(PARSE, **counts)])
    if field is None:
        assert row["verdict"] == "match"
    else:
        assert placed(row)[:3] == ("usage", field, "api")
        assert row["fingerprint"] == f"smg-1.13.0:api:usage:{field}:alpha"


def test_a_wrong_message_comes_before_finish_reason_and_usage(tmp_path: Path):
    """One label: the first that differs."""
    wrong = {"finish_reason": "length", "usage_prompt_tokens": 1, "prompt_tokens": 2}
    claims = [claim(PARSE, finish_reason="stop")]
    assert placed(one(tmp_path / "1", claims, [], [replay(PARSE, "b", **wrong)]))[0] == "message"
    assert placed(one(tmp_path / "2", claims, [], [replay(PARSE, **wrong)]))[0] == "finish-reason"


def test_a_broken_frame_is_the_stream_s_whatever_the_message(tmp_path: Path):
    """The rule is named; a message that is right does not make it good."""
    for said in ("a", "b"):
        replays = [replay(PARSE, said), replay(PARSE, said, "size-2", framing="no-done")]
        rows = ask(made(tmp_path / said, [claim(PARSE)], [], replays), "verdict")
        assert placed(rows[1])[:3] == ("framing", "no-done", "streaming")
        assert rows[1]["fingerprint"] == "smg-1.13.0:streaming:framing:no-done:alpha"


@pytest.mark.parametrize(
    ("plan", "said", "in_pieces", "is_buffered"),
    [
        ("per_token", "c" * 16, False, True),
        ("per_token", "c" * 15, False, False),
        ("per_token", "c" * 16, True, False),
        ("per_token", "c" * 16, None, False),
        ("size-2", "c" * 16, False, False),
        (None, "c" * 16, False, False),
    ],
)
def test_a_long_text_id_by_id_has_to_come_in_pieces(
    plan: str | None, said: str, in_pieces: bool | None, is_buffered: bool, tmp_path: Path
):
    """buffered: 16 characters or more, streamed id by id, in one event. Calls may come whole."""
    row = one(tmp_path, [claim(PARSE, said)], [], [replay(PARSE, said, plan, in_pieces=in_pieces)])
    assert placed(row)[0] == ("buffered" if is_buffered else "same")
    assert row["first_layer"] == ("streaming" if is_buffered else None)


def test_reasoning_counts_as_text_that_comes_in_pieces(tmp_path: Path):
    """Content and reasoning together."""
    message = {"content": "c" * 8, "reasoning_content": "r" * 8}
    row = one(tmp_path, [claim(PARSE, **message)], [], [replay(PARSE, plan="per_token", in_pieces=False, **message)])
    assert row["what"] == "buffered"


@pytest.mark.parametrize("pieces", [True, False])
def test_a_text_without_pieces_covers_the_text_alone(pieces: bool, tmp_path: Path):
    """detokenize: gateways show the joined text; that is marked. Every other comparison is full."""
    row = one(tmp_path, [claim(CASES["detokenize"])], [], [replay(CASES["detokenize"], "a" if pieces else "b")])
    assert row["coverage"] == "text"
    for kind in ("render", "parse", "tokenize"):
        assert one(tmp_path / kind, [claim(CASES[kind])], [], [replay(CASES[kind])])["coverage"] == "full"
    row = one(tmp_path / "4", [claim(CASES["detokenize"])], [], [turned_away(CASES["detokenize"])])
    assert row["coverage"] == "full"


# ── layers ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("seen", "layer", "localisation"),
    [
        (prompts("b", text="a", bare="b"), "tokens", "exact"),
        (prompts("b", text="a", bare="a"), "tokens", "exact"),
        (prompts("b", text="b", bare="a"), "special_tokens", "exact"),
        (prompts("b", text="b", bare="b"), "template", "exact"),
        (prompts("b", text="b"), "template", "exact"),
        (prompts("b"), "tokens", "at_or_before"),
        (prompts("b", bare="a"), "special_tokens", "exact"),
        (prompts("b", bare="b"), "tokens", "at_or_before"),
    ],
)
def test_a_prompt_s_ids_text_and_special_ids_tell_its_layer(seen: Row, layer: str, localisation: str, tmp_path: Path):
    """Equal texts leave the tokenizer; equal ids without the special ones leave those; a text that was not seen leaves
    open what comes before the tokens."""
    row = one(tmp_path, [claim(RENDER)], [], [replay(RENDER, "b") | seen])
    assert placed(row) == ("prompt-ids", None, layer, localisation)
    assert row["fingerprint"] == f"smg-1.13.0:{layer}:prompt-ids:alpha"


@pytest.mark.parametrize(
    ("kind", "layer", "localisation"),
    [
        ("render", "template", "exact"),
        ("tokenize", "tokens", "exact"),
        ("detokenize", "detokenize", "exact"),
        ("parse", "api", "at_or_before"),
    ],
)
def test_a_refusal_s_layer(kind: str, layer: str, localisation: str, tmp_path: Path):
    """Of a refused output nothing before the answer was seen."""
    row = one(tmp_path, [claim(CASES[kind])], [], [turned_away(CASES[kind])])
    assert placed(row) == ("rejected", None, layer, localisation)


@pytest.mark.parametrize(("kind", "layer"), [("tokenize", "tokens"), ("detokenize", "detokenize")])
def test_ids_and_texts_have_layers_of_their_own(kind: str, layer: str, tmp_path: Path):
    """One kind, one layer."""
    row = one(tmp_path, [claim(CASES[kind])], [], [replay(CASES[kind], "b")])
    assert placed(row) == (WHAT[kind], None, layer, "exact")


TEXTS = {letter: {"output_text_sha256": digest(letter)} for letter in "xy"}


@pytest.mark.parametrize(
    ("decoded", "layer", "localisation"),
    [
        (TEXTS["x"], "parse", "exact"),
        (TEXTS["y"], "detokenize", "exact"),
        ({}, "parse", "at_or_before"),
    ],
)
@pytest.mark.parametrize(
    ("wrong", "what"), [({"said": "b"}, "message"), ({"said": "a", "finish_reason": "length"}, "finish-reason")]
)
def test_a_wrong_message_of_a_wrong_text_is_the_decoder_s(
    wrong: dict, what: str, decoded: Row, layer: str, localisation: str, tmp_path: Path
):
    """The gateway's own decoder, asked for the same ids, says whether the parser had the right text."""
    claims = [claim(PARSE, finish_reason="stop", **TEXTS["x"])]
    row = one(tmp_path, claims, [], [replay(PARSE, **{"finish_reason": "stop"} | wrong | decoded)])
    assert (row["what"], *placed(row)[2:]) == (what, layer, localisation)


def test_a_wrong_text_under_a_right_message_is_no_difference(tmp_path: Path):
    """The message is judged; decoding alone is what detokenize cases are for. Nor is usage the decoder's."""
    claims = [claim(PARSE, **TEXTS["x"])]
    assert one(tmp_path / "1", claims, [], [replay(PARSE, **TEXTS["y"])])["verdict"] == "match"
    usage = {"usage_prompt_tokens": 1, "prompt_tokens": 2}
    row = one(tmp_path / "2", claims, [], [replay(PARSE, **TEXTS["y"], **usage)])
    assert placed(row)[2:] == ("api", "at_or_before")
    row = one(tmp_path / "3", claims, [], [replay(PARSE, **TEXTS["x"], **usage)])
    assert placed(row)[2:] == ("api", "exact")


def streams(root: Path, at_once: Row | None, stream: Row, **reference) -> tuple:
    """Return layer and localisation of the stream."""
    rows = ask(made(root, [claim(PARSE, **reference)], [], [*filter(None, [at_once]), stream]), "verdict")
    [row] = [row for row in rows if row["mode"] == "stream"]
    return columns([row], "first_layer", "localisation")[0]


PLAN = "size-2"


def test_a_stream_that_is_wrong_alone_is_streaming(tmp_path: Path):
    """At once it is right."""
    assert streams(tmp_path, replay(PARSE), replay(PARSE, "b", PLAN)) == ("streaming", "exact")


def test_a_stream_that_is_wrong_in_the_same_way_is_of_that_layer(tmp_path: Path):
    """The same message: the parser's; of a wrong text the decoder's."""
    reference = TEXTS["x"]
    wrong = replay(PARSE, "b", PLAN)
    assert streams(tmp_path / "1", replay(PARSE, "b", **TEXTS["x"]), wrong, **reference) == ("parse", "exact")
    assert streams(tmp_path / "2", replay(PARSE, "b", **TEXTS["y"]), wrong, **reference) == ("detokenize", "exact")
    assert streams(tmp_path / "3", replay(PARSE, "b"), wrong, **reference) == ("parse", "at_or_before")


@pytest.mark.parametrize(
    "at_once",
    [
        replay(PARSE, "c"),
        turned_away(PARSE),
        replay(PARSE, "a", finish_reason="length"),
        replay(PARSE, "b", finish_reason="length"),
        None,
        broken(PARSE),
        replay(PARSE, "b", given="other"),
    ],
)
def test_a_stream_that_is_wrong_in_another_way_is_streaming(at_once: Row | None, tmp_path: Path):
    """The answer in one piece is wrong too, or unknown: the place is not certain."""
    stream = replay(PARSE, "b", PLAN, finish_reason="stop")
    assert streams(tmp_path, at_once, stream, finish_reason="stop") == ("streaming", "at_or_before")


def test_refusals_finish_reasons_and_usage_of_a_stream_follow_the_same_rule(tmp_path: Path):
    """Refused both times is the api's; refused as a stream alone is the stream's."""
    assert streams(tmp_path / "1", turned_away(PARSE), turned_away(PARSE, plan=PLAN)) == ("api", "at_or_before")
    assert streams(tmp_path / "2", replay(PARSE), turned_away(PARSE, plan=PLAN)) == ("streaming", "exact")
    reference = {"finish_reason": "stop"}
    length, stop = {"finish_reason": "length"}, {"finish_reason": "stop"}
    stream = replay(PARSE, plan=PLAN, **length)
    assert streams(tmp_path / "3", replay(PARSE, **length), stream, **reference) == ("parse", "at_or_before")
    assert streams(tmp_path / "4", replay(PARSE, **stop), stream, **reference) == ("streaming", "exact")
    usage = {"usage_prompt_tokens": 1, "prompt_tokens": 2}
    stream = replay(PARSE, plan=PLAN, **usage)
    assert streams(tmp_path / "5", replay(PARSE, **usage), stream) == ("api", "at_or_before")
    assert streams(tmp_path / "6", replay(PARSE), stream) == ("streaming", "exact")
    other = {"usage_completion_tokens": 1, "completion_tokens": 2}
    assert streams(tmp_path / "7", replay(PARSE, **other), stream) == ("streaming", "at_or_before")


def test_streams_are_held_against_their_own_target_and_output(tmp_path: Path):
    """Another gateway's answer in one piece says nothing."""
    replays = [replay(PARSE, "b", target="smg-1.9.0"), replay(PARSE), replay(PARSE, "b", PLAN)]
    rows = ask(made(tmp_path, [claim(PARSE)], [], replays, targets=(TARGET, "smg-1.9.0")), "verdict")
    assert columns(rows, "target", "mode", "first_layer") == [
        (TARGET, "full", None),
        (TARGET, "stream", "streaming"),
        ("smg-1.9.0", "full", "parse"),
    ]


# ── two encoders ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("said", "verdict", "encoder"), [("a", "match", "tokenizer.json"), ("b", "match", "class")])
def test_equal_to_one_of_two_encoders_is_equal(said: str, verdict: str, encoder: str, tmp_path: Path):
    """Neither is disputed; one row all the same."""
    claims = [claim(RENDER, "a", encoder="tokenizer.json"), claim(RENDER, "b", encoder="class")]
    row = one(tmp_path, claims, [], [replay(RENDER, said)])
    assert columns([row], "verdict", "encoder") == [(verdict, encoder)]
    assert one(tmp_path / "x", claims, [], [replay(RENDER, "c")])["verdict"] == "regression"


@pytest.mark.parametrize(("settled", "other"), [("class", "tokenizer.json"), ("tokenizer.json", "class")])
def test_of_two_encoders_the_settled_one_is_the_truth(settled: str, other: str, tmp_path: Path):
    """Two pieces' answers of one text: vLLM's text proves the one it says; the other's is not enough to be equal to."""
    case_id = CASES["detokenize"]
    claims = [claim(case_id, "a", encoder=settled), claim(case_id, "b", encoder=other) | {"pieces_sha256": None}]
    claims[1]["output_text_sha256"] = None
    answers = [heard(case_id, PYTHON, "a")]
    row = one(tmp_path / "1", claims, answers, [replay(case_id, "a")])
    assert columns([row], "standing", "verdict", "encoder") == [("settled", "match", settled)]
    row = one(tmp_path / "2", claims, answers, [replay(case_id, "b")])
    assert columns([row], "verdict", "encoder") == [("regression", settled)]


@pytest.mark.parametrize("proved", ["class", "tokenizer.json"])
def test_each_output_is_held_against_its_own_encoder(proved: str, tmp_path: Path):
    """Two outputs, one row each; of the one that proves nothing there is no truth."""
    other = {"class": "tokenizer.json", "tokenizer.json": "class"}[proved]
    claims = [claim(PARSE, "a", encoder=proved, given="1")]
    claims.append(no_claim(PARSE, encoder=other) | {"output_sha256": digest("2")})
    replays = [replay(PARSE, "a", given="1"), replay(PARSE, "a", given="2"), replay(PARSE, "a", given="3")]
    rows = {row["given"]: row for row in ask(made(tmp_path, claims, [], replays), "verdict")}
    assert [(*told(rows[digest(n)])[:2], rows[digest(n)]["encoder"]) for n in "123"] == [
        ("match", None, proved),
        ("unverified", "no_reference", other),
        ("unverified", "other_output", None),
    ]


def test_a_truth_of_one_encoder_outweighs_that_the_other_has_none(tmp_path: Path):
    """A prompt of the class, and nothing of the other."""
    claims = [no_claim(RENDER, encoder="tokenizer.json"), claim(RENDER, "a", encoder="class")]
    for said, verdict in (("a", "match"), ("b", "regression")):
        assert one(tmp_path / said, claims, [], [replay(RENDER, said)])["verdict"] == verdict


# ── every combination ────────────────────────────────────────────────────────────────────────────────────────────────

REFERENCES = ("result", "error", "unproven", "not_applicable", "absent")
FRONT_END = ("absent", "failed", "refused", "same", "other")
OTHER_ENGINE = ("absent", "same", "other")
GATEWAY = ("same", "other", "refused", "failed", "missing", "nothing", "other-output")
KNOWN = (None, "regression", "rejected", "rejected-otherwise")


def reference_rows(case_id: str, state: str) -> list[Row]:
    return {
        "result": [claim(case_id)],
        "error": [no_claim(case_id, "rejected", "error")],
        "unproven": [no_claim(case_id)],
        "not_applicable": [no_claim(case_id, "not_applicable", None)],
        "absent": [],
    }[state]


def engine_rows(case_id: str, release: str, state: str) -> list[Row]:
    return {
        "absent": [],
        "failed": [heard(case_id, release, None, outcome="measurement_failed")],
        "refused": [refusal(case_id, release)],
        "same": [heard(case_id, release, "a")],
        "other": [heard(case_id, release, "b")],
    }[state]


def gateway_row(case_id: str, state: str, plan: str | None = None) -> Row:
    return {
        "same": replay(case_id, "a", plan),
        "other": replay(case_id, "c", plan),
        "refused": turned_away(case_id, plan=plan),
        "failed": broken(case_id, plan=plan),
        "missing": broken(case_id, "missing", plan=plan),
        "nothing": replay(case_id, None, plan),
        "other-output": replay(case_id, "a", plan, given="other"),
    }[state] | {"mode": "full" if plan is None else "stream"}


def wanted(
    reference: str, front_end: str, engine: str, malformed: bool, gateway: str, listed: str | None, waived: bool
) -> str:
    """The decision table, written down a second time: on words, not on rows."""
    if gateway in ("failed", "missing"):
        return {"failed": "measurement_failed", "missing": "missing"}[gateway]
    if reference == "not_applicable":
        return "not_applicable"
    truth = {"result": "same", "error": "refused"}.get(reference)
    evidence = [state for state in (front_end, engine) if state not in ("absent", "failed")]
    if truth and front_end in evidence and front_end != truth:
        return "disputed"
    if malformed:
        return "policy"
    if truth is None:
        return "engines_split" if len(set(evidence)) > 1 else "unverified"
    if truth == "same" and gateway in ("nothing", "other-output"):
        return "unverified"
    if truth == "same" and gateway == "refused":
        return "known_difference" if listed == "rejected" else "rejected"
    if gateway != truth:
        return "known_difference" if listed == "regression" else "regression"
    if listed:
        return "known_but_matches"
    if engine in evidence and engine != truth:
        return "engine_defect_waived" if waived else "engine_defect"
    return "match"


@pytest.mark.parametrize("kind", ["render", "parse"])
def test_every_combination_has_exactly_one_verdict(kind: str, tmp_path: Path):
    """Reference × vLLM × another engine × malformed × gateway × known × waived: one row each, as the table gives."""
    is_parse = kind == "parse"
    states = product(
        *(REFERENCES, FRONT_END, OTHER_ENGINE, (False, True) if is_parse else (False,)),
        *(GATEWAY if is_parse else GATEWAY[:-1], KNOWN, (False, True)),
    )
    claims, answers, replays, entries, waivers, malformed, expected = [], [], [], [], [], [], {}
    for number, (reference, front_end, engine, bad, gateway, listed, waived) in enumerate(states):
        if reference == "error" and is_parse:
            front_end = engine = "absent"  # without an output there is nothing to ask
        name = f"c{number}"
        case_id = f"{kind}/s/{name}"
        claims += reference_rows(case_id, reference)
        answers += engine_rows(case_id, PYTHON, front_end) + engine_rows(case_id, SGLANG, engine)
        replays.append(gateway_row(case_id, gateway))
        if bad:
            malformed.append(case_id)
        if listed:
            code = {"regression": None, "rejected": "bad_request"}.get(listed, "another")
            entries.append((f"alpha/{kind}/{name}", listed.partition("-")[0], code))
        if waived:
            waivers.append(("sglang", ">=1", f"{kind}/{name}"))
        expected[case_id] = wanted(reference, front_end, engine, bad, gateway, listed, waived)
    root = made(tmp_path, claims, answers, replays, malformed=malformed)
    list_known(root, *entries)
    waive(root, *waivers)
    rows = ask(root, "verdict")
    assert len(rows) == len(expected)
    assert dict(columns(rows, "case_id", "verdict")) == expected
    assert set(expected.values()) >= set(GATES) - (set() if is_parse else {"policy"})
    for row in rows:
        assert row["gate"] == GATES[row["verdict"]]
        assert (row["first_layer"] is None) == (row["verdict"] not in ("rejected", "regression", "known_difference"))
        assert (row["fingerprint"] is None) == (
            row["gate"] in ("pass", "none") and row["verdict"] != "known_difference"
        )


GATES = {
    **dict.fromkeys(("measurement_failed", "missing"), "no_verdict"),
    **dict.fromkeys(("not_applicable", "disputed", "unverified"), "none"),
    **dict.fromkeys(("rejected", "regression", "known_but_matches", "engine_defect"), "fail"),
    **dict.fromkeys(("policy", "engines_split", "known_difference", "engine_defect_waived", "match"), "pass"),
}

drawn_cases = st.lists(
    st.tuples(
        st.sampled_from(REFERENCES),
        st.sampled_from(("both", "two", "class")),
        st.lists(st.tuples(st.sampled_from(ENGINES), st.sampled_from(FRONT_END)), max_size=4),
        st.dictionaries(
            st.sampled_from((None, "whole", "per_token", "size-2")), st.sampled_from(GATEWAY), min_size=1, max_size=4
        ),
        st.booleans(),
        st.sampled_from((None, "alpha/*", "exact")),
    ),
    max_size=5,
)


@settings(max_examples=20, deadline=None)
@given(drawn_cases)
def test_any_rows_give_one_verdict_per_replay(tmp_path_factory: pytest.TempPathFactory, drawn):
    """Repeated answers of engines, two encoders, several plans and overlapping entries: one row per replay, none lost,
    in order, and the same twice; a stream is judged like the rest."""
    claims, answers, replays, malformed, entries = [], [], [], [], {}
    for number, (reference, encoders, engines, gateway, bad, listed) in enumerate(drawn):
        case_id = f"parse/s/{number}"
        for row in reference_rows(case_id, reference):
            claims += {
                "both": [row],
                "class": [row | {"encoder": "class"}],
                "two": [row | {"encoder": "class"}, row | {"encoder": "tokenizer.json"}],
            }[encoders]
        for release, state in engines:
            answers += engine_rows(case_id, release, state)
        replays += [gateway_row(case_id, state, plan) for plan, state in gateway.items()]
        malformed += [case_id] * bad
        if listed:
            entries[f"alpha/parse/{number}" if listed == "exact" else listed] = ("regression", None)
    root = made(tmp_path_factory.mktemp("any"), claims, answers, replays, malformed=malformed)
    list_known(root, *((entry, *more) for entry, more in entries.items()))
    rows = ask(root, "verdict")
    key = ("case_id", "given", "mode", "plan")
    sent = sorted((row["case_id"], row["output_sha256"], row["mode"], row["plan"] or "") for row in replays)
    assert columns(({**row, "plan": row["plan"] or ""} for row in rows), *key) == sent
    assert {row["verdict"] for row in rows} <= set(GATES)
    assert ask(root, "verdict") == rows


# ── where the rows come from ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_run_of_its_own_is_judged_in_place_of_what_is_stored(tmp_path: Path):
    """`bellwether verify`: its tables alone, its target, which params.yaml need not list."""
    root = made(tmp_path, [claim(RENDER)], [], [replay(RENDER)])
    run = tmp_path / "run"
    run.mkdir()
    write_replays(run, "mine", "alpha", [replay(RENDER, "b", target="mine")])
    path = observation_table(run, "mine", "alpha")
    database = connect(root, observations=[path])
    query = "select target, verdict, fingerprint from verdict"
    assert database.connection.execute(query).fetchall() == [
        ("mine", "regression", "mine:tokens:prompt-ids:alpha"),
    ]
    assert database.connection.execute("from targets").fetchall() == [("mine", "mine", "1.13.0", 1, True)]
    assert database.missing == ()


def test_rows_of_a_checkpoint_out_of_scope_are_kept(tmp_path: Path):
    """Nothing that was observed is dropped: of another checkpoint nothing is known."""
    root = made(tmp_path, [claim(RENDER)], [], [replay(RENDER)])
    write_replays(root, "mine", "beta", [replay(RENDER, "b", target="mine", checkpoint="beta")])
    path = observation_table(root, "mine", "beta")
    result = connect(root, observations=[path]).connection.execute("select checkpoint, verdict, reason from verdict")
    assert result.fetchall() == [("beta", "unverified", "no_reference")]


def test_kept_rows_are_those_of_the_query(tmp_path: Path):
    """`keep`: made once, and asked as before; what is added later is not seen."""
    root = made(tmp_path, [claim(RENDER)], [], [replay(RENDER)])
    database = connect(root)
    before = database.connection.execute("from verdict").fetchall()
    database.keep("verdict")
    write_replays(root, TARGET, "alpha", [])
    assert database.connection.execute("from verdict").fetchall() == before
    assert ask(root, "verdict") == []


def test_rows_come_in_the_order_of_params(tmp_path: Path):
    """Targets by name, checkpoints as listed, cases by id, one answer before streams."""
    slugs = ("beta", "alpha")
    replays = [
        *(replay("render/s/b", checkpoint=slug) for slug in slugs),
        *(replay("parse/s/a", plan=plan, checkpoint="beta") for plan in ("whole", None, "per_token")),
    ]
    rows = ask(made(tmp_path, [], [], replays, slugs=slugs), "verdict")
    assert columns(rows, "checkpoint", "case_id", "mode", "plan") == [
        ("beta", "parse/s/a", "full", None),
        ("beta", "parse/s/a", "stream", "per_token"),
        ("beta", "parse/s/a", "stream", "whole"),
        ("beta", "render/s/b", "full", None),
        ("alpha", "render/s/b", "full", None),
    ]
