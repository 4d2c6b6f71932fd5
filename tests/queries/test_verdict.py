"""`verdict`: every line of its decision table on rows made by hand, every combination of what can meet, and where a
difference is placed."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

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


def made(root: Path, claims: list[Row], answers: list[Row], replays: list[Row], **options) -> Path:
    return observed(root / "made", claims, answers, replays, **{"engines": ENGINES} | options)


def one(root: Path, claims: list[Row], answers: list[Row], replays: list[Row], **options) -> Row:
    [row] = ask(made(root, claims, answers, replays, **options), "verdict")
    return row


Scene = tuple[list[Row], list[Row], list[Row]]
"""Claims, answers of engines and replays of one case."""


def played(root: Path, scenes: dict[Any, Scene], malformed: bool = False, **options) -> dict[Any, list[Row]]:
    """Return scene → its verdicts. Each scene is a case of its own in one checkout: to ask once is quicker."""
    moved: Scene = ([], [], [])
    cases = {}
    for number, (name, scene) in enumerate(scenes.items()):
        for rows, all_rows in zip(scene, moved, strict=True):
            for row in rows:
                cases[f"{row['kind']}/s/{number:04}"] = name
                all_rows.append(row | {"case_id": f"{row['kind']}/s/{number:04}"})
    root = made(root, *moved, malformed=list(cases) if malformed else (), **options)
    found: dict[Any, list[Row]] = {name: [] for name in scenes}
    for row in ask(root, "verdict"):
        found[cases[row["case_id"]]].append(row)
    return found


def judged(root: Path, scenes: dict[Any, Scene], **options) -> dict[Any, Row]:
    """Return scene → its only verdict."""
    return {name: row for name, [row] in played(root, scenes, **options).items()}


def told(row: Row) -> tuple:
    return columns([row], "verdict", "reason", "gate")[0]


def placed(row: Row) -> tuple:
    return columns([row], "what", "field", "first_layer", "localisation")[0]


def silent(case_id: str) -> Row:
    """Return a result of which nothing was seen to compare by."""
    row = replay(case_id, None)
    return row | {"output_sha256": None} if row["kind"] == "tokenize" else row


# ── the table, line by line ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("outcome", "reason"), [("measurement_failed", "timeout"), ("missing", "no_capture")])
def test_what_was_not_measured_has_no_verdict_and_no_excuse(outcome: str, reason: str, tmp_path: Path):
    """Lines 2 and 3 come first, and a known difference excuses neither; digests beside them count for nothing."""
    scenes = {}
    for kind, case_id in CASES.items():
        for standing, claims in {
            **{"settled": [claim(case_id)], "disputed": [claim(case_id)]},
            **{"no_truth": [no_claim(case_id)], "not_applicable": [no_claim(case_id, "not_applicable", None)]},
        }.items():
            answers = [heard(case_id, PYTHON, "b" if standing == "disputed" else "a")]
            replays = [replay(case_id) | {"outcome": outcome, "reason_code": "timeout"}]
            scenes[kind, standing] = (claims, answers, replays)
    played(tmp_path, scenes)
    list_known(tmp_path / "made", ("alpha/*", "regression", None))
    rows = ask(tmp_path / "made", "verdict")
    assert len(rows) == 16
    for row in rows:
        assert told(row) == (outcome, reason, "no_verdict")
        assert (row["what"], row["first_layer"], row["known"]) == (None, None, None)
        assert row["fingerprint"] == f"smg-1.13.0:{outcome}:timeout:alpha"


def test_not_applicable_whatever_the_gateway_does(tmp_path: Path):
    """Line 4: the case cannot exist for the checkpoint."""
    scenes = {
        (kind, said): ([no_claim(case_id, "not_applicable", None)], [], [answered])
        for kind, case_id in CASES.items()
        for said, answered in (("a", replay(case_id)), ("refused", turned_away(case_id)))
    }
    for name, row in judged(tmp_path, scenes).items():
        assert told(row) == ("not_applicable", None, "none"), name
        assert row["standing"] == "not_applicable"


@pytest.mark.parametrize("release", [PYTHON, RUST])
def test_disputed_with_the_side_the_gateway_is_on(release: str, tmp_path: Path):
    """Line 5: counted apart, and no verdict. What differs from the reference is told all the same; and in which layer,
    where the gateway says neither what the reference nor what vLLM says: whichever is right, it is not."""
    scenes = {
        (kind, side): ([claim(case_id)], [heard(case_id, release, "b")], [answered])
        for kind, case_id in CASES.items()
        for side, answered in {
            "hf": replay(case_id, "a"),
            "vllm": replay(case_id, "b"),
            "neither": replay(case_id, "c"),
            "unknown": silent(case_id),
        }.items()
    }
    for (kind, side), row in judged(tmp_path, scenes).items():
        assert told(row) == ("disputed", side, "none"), kind
        assert row["what"] == {"hf": "same", "unknown": None}.get(side, WHAT[kind])
        if side != "neither":
            assert (row["first_layer"], row["fingerprint"]) == (None, None)
            continue
        layer = {"render": "tokens", "tokenize": "tokens", "detokenize": "detokenize", "parse": "parse"}[kind]
        assert row["first_layer"] == layer
        assert row["fingerprint"].startswith(f"smg-1.13.0:disputed:{layer}:{WHAT[kind]}:")


def test_disputed_by_a_refusal_has_sides_too(tmp_path: Path):
    """vLLM refuses: so does the gateway, or it gives what the reference gives, or a third answer."""
    scenes = {
        (kind, side): ([claim(case_id)], [refusal(case_id, PYTHON)], [said])
        for kind, case_id in CASES.items()
        for side, said in (
            ("vllm", turned_away(case_id)),
            ("hf", replay(case_id)),
            ("neither", replay(case_id, "c")),
        )
    }
    for (_, side), row in judged(tmp_path, scenes).items():
        assert told(row) == ("disputed", side, "none")


def test_disputed_by_a_chunk_plan_is_vllm_s_side_when_a_plan_of_it_says_so(tmp_path: Path):
    """The gateway says at once what vLLM says under a plan."""
    answers = [heard(PARSE, PYTHON), heard(PARSE, PYTHON, "b", mode="size-3")]
    assert told(one(tmp_path, [claim(PARSE)], answers, [replay(PARSE, "b")])) == ("disputed", "vllm", "none")


def test_another_engine_s_side_is_none(tmp_path: Path):
    """SGLang says what the gateway says; the dispute is vLLM's."""
    answers = [heard(RENDER, PYTHON, "b"), heard(RENDER, SGLANG, "c")]
    assert told(one(tmp_path, [claim(RENDER)], answers, [replay(RENDER, "c")])) == ("disputed", "neither", "none")


def test_what_is_made_of_malformed_output_is_policy(tmp_path: Path):
    """Line 6, before lines 7 and 8: engines differ, and there is no reference."""
    answers = [heard(PARSE, PYTHON), heard(PARSE, SGLANG, "b")]
    said = (replay(PARSE), replay(PARSE, "b"), turned_away(PARSE))
    scenes = {number: ([no_claim(PARSE)], answers, [answered]) for number, answered in enumerate(said)}
    for row in judged(tmp_path, scenes, malformed=True).values():
        assert told(row) == ("policy", "none_documented", "pass")


def test_malformed_output_that_cannot_exist_is_not_applicable(tmp_path: Path):
    """Line 4 before line 6."""
    claims = [no_claim(PARSE, "not_applicable", None)]
    assert told(one(tmp_path, claims, [], [replay(PARSE)], malformed=[PARSE]))[0] == "not_applicable"


def test_engines_split_when_two_of_them_differ_and_there_is_no_truth(tmp_path: Path):
    """Line 7; a refusal against a result is a difference."""
    scenes = {
        (kind, second, number): ([no_claim(case_id)], [heard(case_id, PYTHON), other], [replay(case_id)])
        for kind, case_id in CASES.items()
        for second in (SGLANG, RUST)
        for number, other in enumerate((heard(case_id, second, "b"), refusal(case_id, second)))
    }
    for name, row in judged(tmp_path, scenes).items():
        assert told(row) == ("engines_split", None, "pass"), name


def test_engines_do_not_split_by_older_releases_other_outputs_or_failures(tmp_path: Path):
    """Pinned evidence of one and the same output counts; under a chunk plan an engine differs from itself alone."""
    scenes = {}
    for kind, case_id in CASES.items():
        answers = [heard(case_id, PYTHON), heard(case_id, "sglang-0.9", "b")]
        answers.append(heard(case_id, SGLANG, "b", outcome="measurement_failed"))
        if kind in ("parse", "detokenize"):
            answers.append(heard(case_id, RUST, "b", given="other"))
        if kind == "parse":
            answers.append(heard(case_id, SGLANG, "b", mode="size-2"))
        scenes[kind] = ([no_claim(case_id)], answers, [replay(case_id)])
    for row in judged(tmp_path, scenes, engines=(*ENGINES, "sglang-0.9")).values():
        assert told(row) == ("unverified", "no_reference", "none")


def test_unverified_without_a_truth(tmp_path: Path):
    """Line 8: the reference proves nothing, or is not there; one engine alone is no truth."""
    scenes = {
        (kind, number): (claims, [heard(case_id, PYTHON, "b")], [replay(case_id)])
        for kind, case_id in CASES.items()
        for number, claims in enumerate(([no_claim(case_id)], []))
    }
    for row in judged(tmp_path, scenes).values():
        assert told(row) == ("unverified", "no_reference", "none")
        assert row["standing"] == "no_truth"


def test_unverified_when_nothing_was_seen_to_compare_by(tmp_path: Path):
    """Not observed is never equal: an answer without ids, text or message."""
    scenes = {kind: ([claim(case_id)], [heard(case_id, PYTHON)], [silent(case_id)]) for kind, case_id in CASES.items()}
    for row in judged(tmp_path, scenes).values():
        assert told(row) == ("unverified", "not_observable", "none")
        assert (row["standing"], row["coverage"], row["what"]) == ("settled", None, None)


def test_unverified_when_the_engine_gave_another_output(tmp_path: Path):
    """The reference says nothing of these ids: neither equal nor different."""
    scenes = {
        (kind, said): ([claim(CASES[kind])], [], [replay(CASES[kind], said, given="other")])
        for kind in ("parse", "detokenize")
        for said in ("a", "b")
    }
    for row in judged(tmp_path, scenes).values():
        assert told(row) == ("unverified", "other_output", "none")


def test_a_prompt_seen_as_a_text_alone_is_not_judged(tmp_path: Path):
    """Texts prove no ids, whether they are equal or not."""
    scenes = {said: ([claim(RENDER)], [], [replay(RENDER, said, prompt_sha256=None)]) for said in ("a", "b")}
    for row in judged(tmp_path, scenes).values():
        assert told(row) == ("unverified", "not_observable", "none")


def test_rejected_when_the_truth_is_a_result(tmp_path: Path):
    """Line 9, with the gateway's code and words; a case that is provisional is judged as one that is settled."""
    scenes = {
        (kind, standing): ([claim(case_id)], answers, [turned_away(case_id)])
        for kind, case_id in CASES.items()
        for standing, answers in (("settled", [heard(case_id, PYTHON)]), ("provisional", []))
    }
    for (kind, standing), row in judged(tmp_path, scenes).items():
        assert told(row) == ("rejected", "bad_request", "fail")
        assert columns([row], "code", "message", "http_status") == [("bad_request", "in its words", 400)]
        assert (row["standing"], row["what"]) == (standing, "rejected")
        layer = {"render": "template", "tokenize": "tokens", "detokenize": "detokenize", "parse": "api"}[kind]
        assert row["fingerprint"] == f"smg-1.13.0:{layer}:rejected:bad_request:alpha"


def test_regression_when_the_result_differs(tmp_path: Path):
    """Line 10, with the engines that differ too."""
    scenes = {
        kind: ([claim(case_id)], [heard(case_id, PYTHON), heard(case_id, SGLANG, "c")], [replay(case_id, "b")])
        for kind, case_id in CASES.items()
    }
    for kind, row in judged(tmp_path, scenes).items():
        assert told(row) == ("regression", None, "fail")
        assert (row["what"], row["engines"]) == (WHAT[kind], ["sglang"])


def test_regression_when_the_truth_refuses_and_the_gateway_does_not(tmp_path: Path):
    """Line 10: there is an answer where there should be none."""
    scenes = {
        kind: ([no_claim(CASES[kind], "rejected", "error")], [], [replay(CASES[kind])]) for kind in ("render", "parse")
    }
    for row in judged(tmp_path, scenes).values():
        assert told(row) == ("regression", None, "fail")
        assert row["what"] == "accepted"


def test_two_refusals_are_equal_whatever_their_words(tmp_path: Path):
    """Line 13: the template raises, the gateway refuses."""
    scenes = {
        kind: ([no_claim(CASES[kind], "rejected", "error", reason="r")], [], [turned_away(CASES[kind])])
        for kind in ("render", "parse")
    }
    for row in judged(tmp_path, scenes).values():
        assert told(row) == ("match", None, "pass")
        assert row["what"] == "same"


def test_match_when_the_gateway_gives_the_truth(tmp_path: Path):
    """Line 13, settled or provisional."""
    scenes = {
        (kind, release): ([claim(case_id)], [heard(case_id, release)] if release else [], [replay(case_id)])
        for kind, case_id in CASES.items()
        for release in (None, PYTHON, SGLANG)
    }
    for row in judged(tmp_path, scenes).values():
        assert told(row) == ("match", None, "pass")
        assert placed(row) == ("same", None, None, None)
        assert (row["fingerprint"], row["engines"], row["respelled"]) == (None, [], False)


def test_engine_defect_when_an_engine_differs_where_the_gateway_does_not(tmp_path: Path):
    """Line 12: the case is settled by vLLM, and SGLang differs, or refuses."""
    scenes = {
        (kind, number): ([claim(case_id)], [heard(case_id, PYTHON), wrong], [replay(case_id)])
        for kind, case_id in CASES.items()
        for number, wrong in enumerate((heard(case_id, SGLANG, "b"), refusal(case_id, SGLANG)))
    }
    for row in judged(tmp_path, scenes).values():
        assert told(row) == ("engine_defect", None, "fail")
        assert (row["engines"], row["waived"]) == (["sglang"], [])
        assert row["fingerprint"] == "smg-1.13.0:engine_defect:sglang:alpha"


def test_an_engine_s_older_release_is_no_defect_and_a_plan_of_it_is(tmp_path: Path):
    """The pinned release counts, under every plan."""
    answers = [heard(PARSE, "sglang-0.9", "b"), heard(PARSE, SGLANG)]
    scenes = {
        "match": ([claim(PARSE)], answers, [replay(PARSE)]),
        "engine_defect": ([claim(PARSE)], [*answers, heard(PARSE, SGLANG, "b", mode="size-2")], [replay(PARSE)]),
    }
    for verdict, row in judged(tmp_path, scenes, engines=("sglang-0.9", SGLANG)).items():
        assert row["verdict"] == verdict


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


FIELDS = [
    ({"content": "a b"}, {"content": "a c"}, "content"),
    ({"content": None}, {"content": "a"}, "content"),
    ({"content": "", "reasoning_content": "r"}, {"content": None, "reasoning_content": "s"}, "reasoning_content"),
    ({"content": "a"}, {"content": "a"}, "tool_calls"),
    ({"spaced": ""}, {"spaced": " "}, "whitespace"),
]


def test_the_field_of_a_message_is_named(tmp_path: Path):
    """And stands in the fingerprint, that of a stream in its own layer."""
    scenes = {}
    for number, (reference, gateway, field) in enumerate(FIELDS):
        for plan, layer in ((None, "parse"), ("size-2", "streaming")):
            answered = replay(PARSE, "a" if field == "whitespace" else "b", plan, **gateway)
            scenes[number, field, layer] = ([claim(PARSE, **reference)], [], [answered])
    for (_, field, layer), row in judged(tmp_path, scenes).items():
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


USAGE = [
    ({"usage_prompt_tokens": 9, "prompt_tokens": 8}, "prompt"),
    ({"usage_completion_tokens": 9, "completion_tokens": 8}, "completion"),
    (
        {"usage_prompt_tokens": 9, "prompt_tokens": 9, "usage_completion_tokens": 0, "completion_tokens": 1},
        "completion",
    ),
    ({"usage_prompt_tokens": 9, "prompt_tokens": 9, "usage_completion_tokens": 1, "completion_tokens": 1}, None),
    ({"usage_prompt_tokens": 9}, None),
    ({"completion_tokens": 9}, None),
]


def test_usage_is_what_the_engine_counted(tmp_path: Path):
    """Where both were seen: a gateway that says nothing, or an engine that was not looked at, proves nothing wrong."""
    scenes = {n: ([claim(PARSE)], [], [replay(PARSE, **counts)]) for n, (counts, _) in enumerate(USAGE)}
    for number, row in judged(tmp_path, scenes).items():
        _, field = USAGE[number]
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


BUFFERED = [
    ("per_token", "c" * 16, False, True),
    ("per_token", "c" * 15, False, False),
    ("per_token", "c" * 16, True, False),
    ("per_token", "c" * 16, None, False),
    ("size-2", "c" * 16, False, False),
    (None, "c" * 16, False, False),
]


def test_a_long_text_id_by_id_has_to_come_in_pieces(tmp_path: Path):
    """buffered: 16 characters or more, streamed id by id, in one event. Calls may come whole."""
    scenes = {
        (plan, said, in_pieces, buffered): ([claim(PARSE, said)], [], [replay(PARSE, said, plan, in_pieces=in_pieces)])
        for plan, said, in_pieces, buffered in BUFFERED
    }
    for (*_, is_buffered), row in judged(tmp_path, scenes).items():
        assert placed(row)[0] == ("buffered" if is_buffered else "same")
        assert row["first_layer"] == ("streaming" if is_buffered else None)


def test_reasoning_counts_as_text_that_comes_in_pieces(tmp_path: Path):
    """Content and reasoning together."""
    message = {"content": "c" * 8, "reasoning_content": "r" * 8}
    row = one(tmp_path, [claim(PARSE, **message)], [], [replay(PARSE, plan="per_token", in_pieces=False, **message)])
    assert row["what"] == "buffered"


def test_a_text_without_pieces_covers_the_text_alone(tmp_path: Path):
    """detokenize: gateways show the joined text; a message may come without usage, or without sight of the engine's
    counts. Both are marked: what was not counted is not equal. Every other comparison is full."""
    scenes = {(kind, "a"): ([claim(case_id)], [], [replay(case_id)]) for kind, case_id in CASES.items()}
    counts = dict.fromkeys(("usage_prompt_tokens", "prompt_tokens", "usage_completion_tokens", "completion_tokens"), 3)
    scenes["parse", "counted"] = ([claim(PARSE)], [], [replay(PARSE, **counts)])
    for name in counts:
        scenes["parse", name] = ([claim(PARSE)], [], [replay(PARSE, **counts | {name: None})])
    case_id = CASES["detokenize"]
    scenes["detokenize", "b"] = ([claim(case_id)], [], [replay(case_id, "b")])
    scenes["detokenize", "refused"] = ([claim(case_id)], [], [turned_away(case_id)])
    for (kind, said), row in judged(tmp_path, scenes).items():
        less = {("detokenize", "a"): "text", ("detokenize", "b"): "text", ("parse", "a"): "message"}
        less |= {("parse", name): "message" for name in counts}
        assert row["coverage"] == less.get((kind, said), "full")


def test_a_stream_s_prompt_is_held_against_that_of_the_same_request_at_once(tmp_path: Path):
    """A client that streams asks the same; what was not seen is nothing to hold it against."""
    one, other = {"prompt_sha256": digest("p")}, {"prompt_sha256": digest("q")}
    scenes = {
        "same": [replay(PARSE, **one), replay(PARSE, plan="whole", **one)],
        "another": [replay(PARSE, **one), replay(PARSE, plan="whole", **other)],
        "unseen": [replay(PARSE), replay(PARSE, plan="whole", **other)],
        "refused": [replay(PARSE, **one), turned_away(PARSE, plan="whole")],
    }
    for name, replays in scenes.items():
        root = made(tmp_path / name, [claim(PARSE)], [], replays)
        whole, stream = sorted(ask(root, "verdict"), key=lambda row: row["mode"])
        assert whole["verdict"] == "match", name
        wrong = {
            "another": ("regression", "prompt-ids", "streaming", "exact"),
            "refused": ("rejected", "rejected", "streaming", "exact"),
        }
        found = (stream["verdict"], stream["what"], stream["first_layer"], stream["localisation"])
        assert found == wrong.get(name, ("match", "same", None, None)), name


# ── layers ───────────────────────────────────────────────────────────────────────────────────────────────────────────


PROMPTS = [
    (prompts("b", text="a", bare="b"), "tokens", "exact"),
    (prompts("b", text="a", bare="a"), "tokens", "exact"),
    (prompts("b", text="b", bare="a"), "special_tokens", "exact"),
    (prompts("b", text="b", bare="b"), "template", "exact"),
    (prompts("b", text="b"), "template", "exact"),
    (prompts("b"), "tokens", "at_or_before"),
    (prompts("b", bare="a"), "special_tokens", "exact"),
    (prompts("b", bare="b"), "tokens", "at_or_before"),
]


def test_a_prompt_s_ids_text_and_special_ids_tell_its_layer(tmp_path: Path):
    """Equal texts leave the tokenizer; equal ids without the special ones leave those; a text that was not seen leaves
    open what comes before the tokens."""
    scenes = {n: ([claim(RENDER)], [], [replay(RENDER, "b") | seen]) for n, (seen, *_) in enumerate(PROMPTS)}
    for number, row in judged(tmp_path, scenes).items():
        _, layer, localisation = PROMPTS[number]
        assert placed(row) == ("prompt-ids", None, layer, localisation), number
        assert row["fingerprint"] == f"smg-1.13.0:{layer}:prompt-ids:alpha"


def test_a_refusal_s_layer(tmp_path: Path):
    """Of a refused output nothing before the answer was seen."""
    scenes = {kind: ([claim(case_id)], [], [turned_away(case_id)]) for kind, case_id in CASES.items()}
    assert {kind: placed(row) for kind, row in judged(tmp_path, scenes).items()} == {
        "render": ("rejected", None, "template", "exact"),
        "tokenize": ("rejected", None, "tokens", "exact"),
        "detokenize": ("rejected", None, "detokenize", "exact"),
        "parse": ("rejected", None, "api", "at_or_before"),
    }


def test_ids_and_texts_have_layers_of_their_own(tmp_path: Path):
    """One kind, one layer."""
    layers = {"tokenize": "tokens", "detokenize": "detokenize"}
    scenes = {kind: ([claim(CASES[kind])], [], [replay(CASES[kind], "b")]) for kind in layers}
    for kind, row in judged(tmp_path, scenes).items():
        assert placed(row) == (WHAT[kind], None, layers[kind], "exact")


TEXTS = {letter: {"output_text_sha256": digest(letter)} for letter in "xy"}


def test_a_wrong_message_of_a_wrong_text_is_the_decoder_s(tmp_path: Path):
    """The gateway's own decoder, asked for the same ids, says whether the parser had the right text."""
    claims = [claim(PARSE, finish_reason="stop", **TEXTS["x"])]
    scenes = {
        (what, layer, localisation): (claims, [], [replay(PARSE, **{"finish_reason": "stop"} | wrong | decoded)])
        for what, wrong in (("message", {"said": "b"}), ("finish-reason", {"said": "a", "finish_reason": "length"}))
        for decoded, layer, localisation in (
            (TEXTS["x"], "parse", "exact"),
            (TEXTS["y"], "detokenize", "exact"),
            ({}, "parse", "at_or_before"),
        )
    }
    for name, row in judged(tmp_path, scenes).items():
        assert (row["what"], *placed(row)[2:]) == name


def test_a_wrong_text_under_a_right_message_is_no_difference(tmp_path: Path):
    """The message is judged; decoding alone is what detokenize cases are for. Nor is usage the decoder's."""
    claims = [claim(PARSE, **TEXTS["x"])]
    assert one(tmp_path / "1", claims, [], [replay(PARSE, **TEXTS["y"])])["verdict"] == "match"
    usage = {"usage_prompt_tokens": 1, "prompt_tokens": 2}
    row = one(tmp_path / "2", claims, [], [replay(PARSE, **TEXTS["y"], **usage)])
    assert placed(row)[2:] == ("api", "at_or_before")
    row = one(tmp_path / "3", claims, [], [replay(PARSE, **TEXTS["x"], **usage)])
    assert placed(row)[2:] == ("api", "exact")


PLAN = "size-2"


def streams(root: Path, scenes: dict[Any, tuple[Row | None, Row, Row]]) -> dict[Any, tuple]:
    """Return scene → layer and localisation of its stream. A scene is the row at once, the stream, and what the
    reference holds besides."""
    rows = {
        name: ([claim(PARSE, **reference)], [], [*([at_once] if at_once else []), stream])
        for name, (at_once, stream, reference) in scenes.items()
    }
    return {
        name: columns(found, "first_layer", "localisation")[-1]  # a stream stands behind what was asked at once
        for name, found in played(root, rows).items()
    }


def test_a_stream_that_is_wrong_alone_is_streaming(tmp_path: Path):
    """At once it is right."""
    found = streams(tmp_path, {"alone": (replay(PARSE), replay(PARSE, "b", PLAN), {})})
    assert found == {"alone": ("streaming", "exact")}


def test_a_stream_that_is_wrong_in_the_same_way_is_of_that_layer(tmp_path: Path):
    """The same message: the parser's; of a wrong text the decoder's."""
    wrong, x, y = replay(PARSE, "b", PLAN), TEXTS["x"], TEXTS["y"]
    scenes = {
        ("parse", "exact"): (replay(PARSE, "b", **x), wrong, x),
        ("detokenize", "exact"): (replay(PARSE, "b", **y), wrong, x),
        ("parse", "at_or_before"): (replay(PARSE, "b"), wrong, x),
    }
    assert streams(tmp_path, scenes) == {name: name for name in scenes}


def test_a_stream_that_is_wrong_in_another_way_is_streaming(tmp_path: Path):
    """The answer in one piece is wrong too, or unknown: the place is not certain."""
    at_once = [
        *(replay(PARSE, "c", finish_reason="stop"), turned_away(PARSE), replay(PARSE, "a", finish_reason="length")),
        *(replay(PARSE, "b", finish_reason="length"), None, broken(PARSE)),
    ]
    stream = replay(PARSE, "b", PLAN, finish_reason="stop")
    scenes = {number: (row, stream, {"finish_reason": "stop"}) for number, row in enumerate(at_once)}
    assert set(streams(tmp_path / "1", scenes).values()) == {("streaming", "at_or_before")}
    replays = [replay(PARSE, "b", given="other"), stream]
    rows = ask(made(tmp_path / "2", [claim(PARSE)], [], replays), "verdict")
    assert [row["first_layer"] for row in rows if row["mode"] == "stream"] == ["streaming"]


def test_refusals_finish_reasons_and_usage_of_a_stream_follow_the_same_rule(tmp_path: Path):
    """Refused both times is the api's; refused as a stream alone is the stream's."""
    reference = {"finish_reason": "stop"}
    length, stop = {"finish_reason": "length"}, {"finish_reason": "stop"}
    usage = {"usage_prompt_tokens": 1, "prompt_tokens": 2}
    other = {"usage_completion_tokens": 1, "completion_tokens": 2}
    refused, cut, counted = turned_away(PARSE, plan=PLAN), replay(PARSE, plan=PLAN, **length), replay(PARSE, plan=PLAN)
    counted |= usage
    scenes = {
        1: (turned_away(PARSE), refused, {}),
        2: (replay(PARSE), refused, {}),
        3: (replay(PARSE, **length), cut, reference),
        4: (replay(PARSE, **stop), cut, reference),
        5: (replay(PARSE, **usage), counted, {}),
        6: (replay(PARSE), counted, {}),
        7: (replay(PARSE, **other), counted, {}),
    }
    assert streams(tmp_path, scenes) == {
        1: ("api", "at_or_before"),
        2: ("streaming", "exact"),
        3: ("parse", "at_or_before"),
        4: ("streaming", "exact"),
        5: ("api", "at_or_before"),
        6: ("streaming", "exact"),
        7: ("streaming", "at_or_before"),
    }


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
        differs = row["verdict"] in ("rejected", "regression", "known_difference")
        apart = (row["verdict"], row["reason"]) == ("disputed", "neither") and row["what"] not in (None, "same")
        assert (row["first_layer"] is not None) == (differs or apart)
        assert (row["fingerprint"] is not None) == (row["gate"] in ("fail", "no_verdict") or differs or apart)


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


@settings(max_examples=4, deadline=None)
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
