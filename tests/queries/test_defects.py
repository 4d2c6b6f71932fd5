"""What is made of verdicts: findings and their smallest examples, coverage, counts, what the next release changed."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from bellwether.layout import corpus_folder
from bellwether.reports.database import connect
from bellwether.tables import CASES, REQUESTS, TableWriter
from observed import TARGET, broken, list_known, observed, prompts, replay, turned_away, write_replays
from witnessed import Row, ask, claim, columns, digest, heard, no_claim, write_claims

PYTHON, SGLANG, LLAMA = "vllm-2.0", "sglang-1.0", "llama.cpp-b2"
ENGINES = (PYTHON, SGLANG, LLAMA)
OLD = "smg-1.9.0"


def made(root: Path, claims: list[Row], replays: list[Row], answers: tuple[Row, ...] = (), **options) -> Path:
    return observed(root / "made", claims, answers, replays, **{"engines": ENGINES} | options)


# ── findings ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_finding_counts_its_cases_replays_plans_and_excuses(tmp_path: Path):
    """One row per fingerprint, in the order of the layers; what matches and what was not measured is none."""
    name = "parse/s/{}".format
    claims = [*(claim(name(n)) for n in "abcd"), claim("render/s/r")]
    replays = [
        *(replay(name("a"), "b"), replay(name("a"), "b", "whole"), replay(name("a"), "b", "size-2")),
        *(replay(name("b"), "b"), replay(name("b"), "c", "size-2"), replay(name("b"), "c", "size-3")),
        *(replay(name("c")), replay(name("c"), plan="size-2", framing="no-done"), broken(name("d"))),
        replay("render/s/r", "b") | prompts("b", text="b", bare="b"),
    ]
    answers = (heard(name("a"), PYTHON),)
    root = made(tmp_path, claims, replays, answers)
    list_known(root, ("alpha/parse/b", "regression", None))
    names = ("fingerprint", "layer", "exact", "cases", "settled", "replays", "known", "plans", "example")
    assert columns(ask(root, "defects"), *names) == [
        ("smg-1.13.0:parse:message:content:alpha", "parse", False, 2, 1, 4, 1, 2, name("a")),
        ("smg-1.13.0:streaming:framing:no-done:alpha", "streaming", True, 1, 0, 1, 0, 1, name("c")),
        ("smg-1.13.0:streaming:message:content:alpha", "streaming", False, 1, 0, 2, 2, 2, name("b")),
        ("smg-1.13.0:template:prompt-ids:alpha", "template", True, 1, 0, 1, 0, 0, "render/s/r"),
    ]


def test_a_refusal_s_code_tells_findings_apart(tmp_path: Path):
    """Two codes, two findings."""
    claims = [claim(f"render/s/{n}") for n in "ab"]
    replays = [turned_away("render/s/a", "one"), turned_away("render/s/b", "other")]
    assert columns(ask(made(tmp_path, claims, replays), "defects"), "field", "example") == [
        ("one", "render/s/a"),
        ("other", "render/s/b"),
    ]


def test_a_finding_s_age_is_the_span_of_releases_it_was_seen_with(tmp_path: Path):
    """By the order of releases, not of names; another parser of the gateway is another gateway."""
    targets = ("smg-1.13.0", "smg-1.9.0", "smg-1.10.0", "smg-1.13.0-symphony")
    claims = [claim(f"render/s/{n}") for n in "ab"]
    replays = [
        *(turned_away("render/s/a", "x", target=target) for target in ("smg-1.13.0", "smg-1.9.0")),
        *(turned_away("render/s/b", "y", target=target) for target in ("smg-1.10.0", "smg-1.13.0-symphony")),
    ]
    rows = ask(made(tmp_path, claims, replays, targets=targets), "defects")
    assert columns(rows, "target", "field", "first_version", "last_version", "age") == [
        ("smg-1.9.0", "x", "1.9.0", "1.13.0", 3),
        ("smg-1.10.0", "y", "1.10.0", "1.10.0", 1),
        ("smg-1.13.0", "x", "1.9.0", "1.13.0", 3),
        ("smg-1.13.0-symphony", "y", "1.13.0", "1.13.0", 1),
    ]


def test_engines_that_say_what_the_gateway_says_are_counted(tmp_path: Path):
    """In how many of its cases each; an older release, another output and a message that is right say nothing."""
    a, b = "parse/s/a", "parse/s/b"
    answers = (
        *(heard(a, SGLANG, "x"), heard(b, SGLANG, "x"), heard(a, LLAMA, "x"), heard(b, LLAMA)),
        *(heard(a, "vllm-1.0", "x"), heard(b, PYTHON, "x", given="other")),
    )
    replays = [replay(a, "x"), replay(b, "x"), replay("parse/s/c", finish_reason="length")]
    claims = [claim(a), claim(b), claim("parse/s/c", finish_reason="stop")]
    root = made(tmp_path, claims, replays, (*answers, heard("parse/s/c", SGLANG)), engines=(*ENGINES, "vllm-1.0"))
    assert columns(ask(root, "defects"), "what", "engines_like") == [
        ("finish-reason", None),
        ("message", "llama.cpp 1, sglang 2"),
    ]


# ── examples ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def sizes(root: Path, **texts: str) -> None:
    """Give cases requests of these texts: name → text."""
    rows = []
    for name, text in texts.items():
        rows.append({"case_id": f"render/s/{name}", "corpus": "toy", "kind": "render", "set": "s", "name": name})
        rows[-1]["request_sha256"] = digest(text)
    with TableWriter(corpus_folder(root, "toy") / "cases.parquet", CASES) as table:
        table.write_rows(rows)
    with TableWriter(corpus_folder(root, "toy") / "requests.parquet", REQUESTS) as table:
        table.write_rows({"request_sha256": digest(text), "request": text} for text in texts.values())


def test_the_three_smallest_cases_show_a_finding(tmp_path: Path):
    """By the bytes of the request, then by name; 'é' is two bytes. What matches is no example."""
    names = ("a", "b", "c", "d", "e")
    claims = [claim(f"render/s/{name}") for name in names]
    replays = [replay(f"render/s/{name}", "a" if name == "e" else "b") for name in names]
    root = made(tmp_path, claims, replays)
    sizes(root, a="1234", b="é", c="1", d="12", e="")
    assert columns(ask(root, "verdict_examples"), "number", "case_id", "size") == [
        (1, "render/s/c", 1),
        (2, "render/s/b", 2),
        (3, "render/s/d", 2),
    ]


def test_a_case_is_one_example_and_at_once_goes_before_streams(tmp_path: Path):
    """Of one case the replay in one piece is shown, else the first plan."""
    a, b = "parse/s/a", "parse/s/b"
    replays = [*(replay(a, "x", plan) for plan in ("whole", None, "size-2")), replay(b), replay(b, "x", "whole")]
    replays.append(replay(b, "x", "size-2"))
    rows = ask(made(tmp_path, [claim(a), claim(b)], replays), "verdict_examples")
    assert columns(rows, "number", "case_id", "mode", "plan") == [
        (1, a, "full", None),
        (1, b, "stream", "size-2"),
    ]


def shown(root: Path, case_id: str, reference: Row, gateway: Row) -> Row:
    """Return the example of a replay that differs."""
    [row] = ask(made(root, [claim(case_id, **reference)], [replay(case_id, "b", **gateway)]), "verdict_examples")
    return row


SHOWN = ("part", "place", "truth_length", "gateway_length", "truth_ids", "gateway_ids", "truth_text", "gateway_text")


def test_ids_and_texts_of_a_prompt_are_shown_around_the_first_difference(tmp_path: Path):
    """8 ids and 40 characters either way; the place is that of the ids, 0-based."""
    ids, others = list(range(30)), [*range(20), 99, *range(21, 29)]
    text, other = "x" * 50 + "a" + "y" * 50, "x" * 50 + "b" + "y" * 50
    reference = {"prompt_ids": ids, "prompt_text": text}
    row = shown(tmp_path, "render/s/a", reference, {"prompt_ids": others, "prompt_text": other})
    assert columns([row], *SHOWN) == [
        (
            *("ids", 20, 30, 29),
            *(
                "12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28",
                "12 13 14 15 16 17 18 19 99 21 22 23 24 25 26 27 28",
            ),
            *("x" * 40 + "a" + "y" * 40, "x" * 40 + "b" + "y" * 40),
        )
    ]


def test_where_one_side_begins_with_the_other_the_place_is_the_shorter_length(tmp_path: Path):
    """A prompt that was cut; its text was not made, so none is shown."""
    row = shown(tmp_path, "render/s/a", {"prompt_ids": [1, 2, 3], "prompt_text": "abc"}, {"prompt_ids": [1, 2]})
    assert columns([row], *SHOWN) == [("ids", 2, 3, 2, "1 2 3", "1 2", None, None)]


def test_ids_of_a_text_and_a_text_of_ids(tmp_path: Path):
    """tokenize and detokenize."""
    row = shown(tmp_path / "1", "tokenize/s/a", {"output_ids": [1, 2]}, {"output_ids": [1, 3]})
    assert columns([row], *SHOWN) == [("ids", 1, 2, 2, "1 2", "1 3", None, None)]
    row = shown(tmp_path / "2", "detokenize/s/a", {"output_text": "ab"}, {"output_text": "abc"})
    assert columns([row], *SHOWN) == [("output_text", 2, 2, 3, None, None, "ab", "abc")]


def test_the_field_of_a_message_that_differs_is_shown(tmp_path: Path):
    """As text; calls as JSON. Of a text that was decoded wrongly the text."""
    said = {"content": "the same"}
    row = shown(tmp_path / "1", "parse/s/a", said | {"reasoning_content": "ab"}, said | {"reasoning_content": "b"})
    assert columns([row], *SHOWN) == [("reasoning_content", 0, 2, 1, None, None, "ab", "b")]
    call = {"name": "f", "arguments": "{}"}
    row = shown(tmp_path / "2", "parse/s/a", said | {"tool_calls": [call]}, said | {"tool_calls": []})
    assert (row["part"], row["truth_text"], row["gateway_text"]) == (
        *("tool_calls", '[{"name":"f","arguments":"{}"}]', "[]"),
    )
    reference, gateway = ({"output_text": text, "output_text_sha256": digest(text)} for text in ("é", "?"))
    row = shown(tmp_path / "3", "parse/s/a", reference, gateway)
    assert columns([row], *SHOWN) == [("output_text", 0, 1, 1, None, None, "é", "?")]


def test_what_is_a_word_or_a_number_is_shown_whole(tmp_path: Path):
    """Refusals on either side, finish reasons, usage, framing; a failed measurement says what was seen."""
    p, r = "parse/s/{}".format, "render/s/{}".format
    claims = [
        *(claim(r("refused")), no_claim(r("accepted"), "rejected", "error", reason="roles")),
        *(claim(p("finish"), finish_reason="tool_calls"), claim(p("usage")), claim(p("framing")), claim(r("failed"))),
        claim(p("buffered"), "c" * 16),
    ]
    usage = {"usage_prompt_tokens": 1, "prompt_tokens": 2, "usage_completion_tokens": 3, "completion_tokens": 3}
    replays = [
        *(turned_away(r("refused")), replay(r("accepted")), replay(p("finish"), finish_reason="stop")),
        *(replay(p("usage"), **usage), replay(p("framing"), plan="whole", framing="no-done"), broken(r("failed"))),
        replay(p("buffered"), "c" * 16, "per_token", in_pieces=False),
    ]
    rows = {row["case_id"]: row for row in ask(made(tmp_path, claims, replays), "verdict_examples")}
    assert {name: columns([row], "part", "truth_text", "gateway_text")[0] for name, row in rows.items()} == {
        r("refused"): (None, "result", "refused: in its words"),
        r("accepted"): (None, "rejected: roles", "result"),
        p("finish"): (None, "tool_calls", "stop"),
        p("usage"): (None, "2 + 3", "1 + 3"),
        p("framing"): (None, None, "no-done"),
        p("buffered"): (None, None, "one event"),
        r("failed"): (None, None, "measurement_failed: timeout"),
    }


def test_the_encoder_that_was_compared_with_is_the_truth_shown(tmp_path: Path):
    """Of two encoders the one the verdict names."""
    claims = [
        claim("tokenize/s/a", "a", encoder="tokenizer.json", output_ids=[1]),
        claim("tokenize/s/a", "b", encoder="class", output_ids=[2]),
    ]
    [row] = ask(made(tmp_path, claims, [replay("tokenize/s/a", "c", output_ids=[3])]), "verdict_examples")
    assert columns([row], "truth_ids", "gateway_ids") == [("1", "3")]


# ── counts and coverage ──────────────────────────────────────────────────────────────────────────────────────────────

REASONS = (
    *("judged", "not_sent", "measurement_failed", "missing", "not_applicable", "disputed", "no_reference"),
    *("other_output", "not_observable"),
)


def test_each_case_is_covered_or_not_for_one_reason(tmp_path: Path):
    """A case with one failed replay is not judged, though another was; one with a policy or a split is."""
    name = "parse/s/{}".format
    claims = [
        *(claim(name(n)) for n in ("match", "wrong", "half", "missing", "disputed", "other", "silent", "unsent")),
        *(no_claim(name("unknown")), no_claim(name("split")), no_claim(name("policy"))),
        *(no_claim(name(n), "not_applicable", None) for n in ("never", "never-sent")),
    ]
    answers = (heard(name("disputed"), PYTHON, "b"), heard(name("split"), PYTHON), heard(name("split"), SGLANG, "b"))
    replays = [
        *(replay(name(n)) for n in ("match", "half", "disputed", "unknown", "split", "policy", "never")),
        *(replay(name("wrong"), "b"), replay(name("wrong"), plan="whole"), broken(name("half"), plan="whole")),
        *(broken(name("missing"), "missing"), replay(name("other"), given="other"), replay(name("silent"), None)),
    ]
    [row] = ask(made(tmp_path, claims, replays, answers, malformed=[name("policy")]), "coverage")
    assert columns([row], "target", "checkpoint", "kind", "cases", "sent", "replays") == [
        (TARGET, "alpha", "parse", 13, 11, 13),
    ]
    assert {reason: row[reason] for reason in REASONS} == dict.fromkeys(REASONS, 1) | {"judged": 4, "not_applicable": 2}


@settings(max_examples=5, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abcdefg"), st.sampled_from((None, "whole", "size-2"))), unique=True))
def test_coverage_adds_up_to_the_cases(tmp_path_factory, drawn):
    """Whatever was sent."""
    said = {
        "a": replay,
        "b": lambda case_id, plan=None: replay(case_id, "b", plan),
        "c": lambda case_id, plan=None: broken(case_id, plan=plan) | {"mode": "stream" if plan else "full"},
        "d": lambda case_id, plan=None: broken(case_id, "missing", plan=plan) | {"mode": "stream" if plan else "full"},
    }
    replays = [said.get(name, replay)(f"parse/s/{name}", plan=plan) for name, plan in drawn]
    claims = [claim(f"parse/s/{name}") for name in "abcdef"]
    [row] = ask(made(tmp_path_factory.mktemp("any"), claims, replays, cases=["parse/s/z"]), "coverage")
    assert sum(row[reason] for reason in REASONS) == row["cases"]
    assert (row["sent"], row["replays"]) == (len({name for name, _ in drawn}), len(drawn))


def test_every_gateway_checkpoint_and_kind_has_its_coverage(tmp_path: Path):
    """What was never sent is told, case by case, not left out."""
    root = made(tmp_path, [claim("render/s/a")], [], targets=(TARGET, OLD), slugs=("beta", "alpha"))
    assert columns(ask(root, "coverage"), "target", "checkpoint", "cases", "not_sent") == [
        *((target, slug, 1, 1) for target in (OLD, TARGET) for slug in ("beta", "alpha")),
    ]


def test_verdicts_are_counted(tmp_path: Path):
    """Replays and cases, by verdict, reason and layer."""
    a, b = "parse/s/a", "parse/s/b"
    replays = [replay(a), replay(a, "x", "whole"), replay(a, "x", "size-2"), replay(b, "x", "whole"), turned_away(b)]
    rows = ask(made(tmp_path, [claim(a), claim(b)], replays), "verdicts")
    assert columns(rows, "verdict", "reason", "gate", "first_layer", "replays", "cases") == [
        ("rejected", "bad_request", "fail", "api", 1, 1),
        ("regression", None, "fail", "streaming", 3, 2),
        ("match", None, "pass", None, 1, 1),
    ]


def test_a_stream_is_held_against_the_same_gateway_s_answer_at_once(tmp_path: Path):
    """Disputed or without a truth as well, and where both are wrong; another gateway's, another output's and a failed
    answer are nothing to hold it against. Equal but for the spelling of arguments is told apart."""
    name = "parse/s/{}".format
    claims = [claim(name("settled")), claim(name("disputed")), no_claim(name("unknown")), claim(name("other"))]
    answers = (heard(name("settled"), PYTHON), heard(name("disputed"), PYTHON, "x"))
    replays = [
        *(replay(name("settled")), replay(name("settled"), "b", "whole"), replay(name("settled"), "b", "size-2")),
        *(
            replay(name("settled"), plan="size-3"),
            replay(name("disputed"), "x"),
            replay(name("disputed"), "y", "whole"),
        ),
        *(replay(name("unknown")), turned_away(name("unknown"), plan="whole")),
        *(replay(name("unknown"), spelt=" ", plan="size-2"), broken(name("unknown"), plan="size-3")),
        *(
            replay(name("other"), given="1"),
            replay(name("other"), "b", "whole"),
            replay(name("other"), "c", target=OLD),
        ),
    ]
    rows = ask(made(tmp_path, claims, replays, answers, targets=(TARGET, OLD)), "stream_dependence")
    assert columns(rows, "standing", "what", "field", "plans", "cases", "replays", "example_plan") == [
        ("disputed", "message", "content", 1, 1, 1, "whole"),
        ("no_truth", "rejected", None, 1, 1, 1, "whole"),
        ("no_truth", "respelled", None, 1, 1, 1, "size-2"),
        ("settled", "message", "content", 2, 1, 2, "size-2"),
    ]


# ── the next release ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_the_next_release_changed_is_named(tmp_path: Path):
    """Fixed in the layer it was wrong in, broken in the one it is; moved when both are wrong in different ways. What
    one of them was not asked, or could not be measured, is no conclusion; what stays right has no row."""
    old, new = {"target": OLD}, {"target": TARGET}
    names = ("fixed", "broke", "moved", "moved-answer", "same", "right", "new", "gone", "failed")
    claims = [claim(f"render/s/{name}") for name in names]
    claims += [no_claim("render/s/changed"), no_claim("render/s/steady")]

    def at(name: str, said: str, target: dict, **prompt: str | None) -> Row:
        case_id = f"render/s/{name}"
        return replay(case_id, said, **target) | (prompts(said, **prompt) if prompt else {})

    replays = [
        *(at("fixed", "b", old, text="b", bare="b"), at("fixed", "a", new)),
        *(at("broke", "a", old), at("broke", "b", new, text="a", bare="b")),
        *(at("moved", "b", old, text="b", bare="b"), at("moved", "c", new, text="a", bare="b")),
        *(at("moved-answer", "b", old, text="b", bare="b"), at("moved-answer", "c", new, text="c", bare="c")),
        *(at("same", "b", old, text="b", bare="b"), at("same", "b", new, text="b", bare="b")),
        *(at("right", "a", old), at("right", "a", new), at("new", "b", new), at("gone", "a", old)),
        *(broken("render/s/failed", **old), at("failed", "a", new)),
        *(at("changed", "a", old), at("changed", "b", new), at("steady", "a", old), at("steady", "a", new)),
    ]
    rows = ask(made(tmp_path, claims, replays, targets=(TARGET, OLD)), "target_drift")
    assert columns(rows, "move", "layer", "what", "cases", "example") == [
        ("broke", "tokens", "prompt-ids", 1, "render/s/broke"),
        ("moved", "template", "prompt-ids", 1, "render/s/moved-answer"),
        ("moved", "tokens", "prompt-ids", 1, "render/s/moved"),
        ("fixed", "template", "prompt-ids", 1, "render/s/fixed"),
        ("changed", None, None, 1, "render/s/changed"),
        ("same", "template", "prompt-ids", 1, "render/s/same"),
        ("disappeared", None, None, 1, "render/s/gone"),
        ("appeared", "tokens", "prompt-ids", 1, "render/s/new"),
        ("appeared", None, None, 1, "render/s/failed"),
    ]
    assert set(columns(rows, "gateway", "before", "after")) == {("smg", OLD, TARGET)}


def test_refusals_move_by_their_code_and_streams_by_their_plan(tmp_path: Path):
    """One replay is one plan of one output; refused with another code is another way to be wrong."""
    a, b = "parse/s/a", "parse/s/b"
    replays = [
        *(
            replay(a, "x", "whole", OLD),
            replay(a, "a", "whole"),
            replay(a, "a", "size-2", OLD),
            replay(a, "x", "size-2"),
        ),
        *(turned_away(b, "one", target=OLD), turned_away(b, "other")),
    ]
    rows = ask(made(tmp_path, [claim(a), claim(b)], replays, targets=(OLD, TARGET)), "target_drift")
    assert columns(rows, "move", "layer", "replays") == [
        ("broke", "streaming", 1),
        ("moved", "api", 1),
        ("fixed", "streaming", 1),
    ]


def test_neighbouring_releases_of_one_gateway_are_compared(tmp_path: Path):
    """Three releases, two steps; another parser and another gateway are compared with nothing."""
    targets = ("smg-1.9.0", "smg-1.13.0", "smg-1.10.0", "smg-1.13.0-symphony", "xllamacpp-2026.10.11549")
    replays = [replay("render/s/a", "a" if target == "smg-1.10.0" else "b", target=target) for target in targets]
    rows = ask(made(tmp_path, [claim("render/s/a")], replays, targets=targets), "target_drift")
    assert columns(rows, "before", "after", "move") == [
        ("smg-1.9.0", "smg-1.10.0", "fixed"),
        ("smg-1.10.0", "smg-1.13.0", "broke"),
    ]


def test_a_gateway_s_answers_drift_between_revisions(tmp_path: Path):
    """Under every plan; a replay that failed is no answer."""
    a, b = "parse/s/a", "parse/s/b"
    before = [replay(a), replay(a, "x", "whole"), replay(b)]
    root = made(tmp_path, [claim(a), claim(b)], [replay(a), replay(a, "y", "whole"), broken(b)])
    write_replays(root / "before", TARGET, "alpha", before)
    connection = connect(root).connection
    path = root / "before" / "fixtures" / "observations" / TARGET / "alpha.parquet"
    connection.execute("insert into against values ('r')")
    connection.execute(f"create or replace view observation_before as from read_parquet('{path}')")
    drift = (root / "queries" / "drift.sql").read_text("utf-8")
    query = f"select subject, before, what, field, cases, example from ({drift}) where subject = '{TARGET}'"
    assert sorted(connection.execute(query).fetchall()) == [
        (TARGET, "r", "disappeared", None, 1, b),
        (TARGET, "r", "message", "content", 1, a),
        (TARGET, "r", "same", None, 1, a),
    ]
    assert ask(root, "drift") == []


# ── lists ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def known(root: Path, *entries: tuple[str, str, str | None]) -> list[tuple]:
    list_known(root, *entries)
    return columns(ask(root, "known"), "entry", "cases", "asked", "excused", "state")


def test_what_has_become_of_a_known_difference(tmp_path: Path):
    """stale: no case. needed: it excuses a replay. unseen: not asked, or not measured. matches: asked, and nothing
    differs as it says."""
    claims = [claim(f"render/s/{n}") for n in ("wrong", "right", "failed", "unasked")]
    replays = [replay("render/s/wrong", "b"), replay("render/s/right"), broken("render/s/failed")]
    root = made(tmp_path, claims, replays)
    entries = [(f"alpha/render/{n}", "regression", None) for n in ("wrong", "right", "failed", "unasked", "none")]
    assert known(root, *entries) == [
        ("alpha/render/failed", 1, 1, 0, "unseen"),
        ("alpha/render/none", 0, 0, 0, "stale"),
        ("alpha/render/right", 1, 1, 0, "matches"),
        ("alpha/render/unasked", 1, 0, 0, "unseen"),
        ("alpha/render/wrong", 1, 1, 1, "needed"),
    ]
    assert known(root, ("alpha/render/wrong", "rejected", "code"))[0][-1] == "matches"


def test_a_prefix_matches_when_nothing_under_it_differs(tmp_path: Path):
    """All of it that was asked; one that was not measured leaves it open."""
    claims = [claim(f"render/s/{n}") for n in ("a1", "a2", "b1", "c1", "c2")]
    replays = [replay("render/s/a1"), replay("render/s/a2", "x"), replay("render/s/b1"), replay("render/s/c1")]
    root = made(tmp_path, claims, [*replays, broken("render/s/c2")])
    entries = [(f"alpha/render/{n}*", "regression", None) for n in ("a", "b", "c", "d")]
    assert known(root, *entries) == [
        ("alpha/render/a*", 2, 2, 1, "needed"),
        ("alpha/render/b*", 1, 1, 0, "matches"),
        ("alpha/render/c*", 2, 2, 0, "unseen"),
        ("alpha/render/d*", 0, 0, 0, "stale"),
    ]


def test_a_gateway_s_entry_is_needed_as_long_as_one_release_differs(tmp_path: Path):
    """`smg.toml`: what the newer one mended the older one still needs."""
    replays = [replay("render/s/a"), replay("render/s/a", "b", target=OLD)]
    root = made(tmp_path, [claim("render/s/a")], replays, targets=(OLD, TARGET))
    list_known(root, ("alpha/render/a", "regression", None), target="smg")
    assert columns(ask(root, "known"), "asked", "excused", "state") == [(2, 1, "needed")]
    write_replays(root, OLD, "alpha", [replay("render/s/a", target=OLD)])
    assert columns(ask(root, "known"), "asked", "excused", "state") == [(2, 0, "matches")]
    write_claims(root, "alpha", "render", [])
    assert columns(ask(root, "known"), "state") == [("matches",)]
