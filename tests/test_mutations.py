"""Proof by mutation: a verification of a gateway that is right finds nothing, and each fault is found in its layer.

All of it is the real path: `verify.main`, an adapter, the scripted engine, a gateway that listens, tables and queries.
What has to be found is written down by hand.
"""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bellwether import import_corpus, observe, record, verify
from bellwether.chunk_plans import chunk_plans
from bellwether.cli import cli
from bellwether.gateways import behind, chat
from bellwether.gateways.openai import OpenAi
from bellwether.gateways.process import free_ports
from bellwether.gateways.smg import Smg
from bellwether.gateways.targets import Reach, live_target
from bellwether.observing import localise
from bellwether.observing.replays import Selection
from bellwether.params import read_manifest
from bellwether.reports.database import connect
from bellwether.reports.verdicts.rules import LAYERS
from bellwether.verify import Wanted
from faulty_gateway import FAULTS, PROBES, RIGHT, FaultyGateway
from support import ROOT, load_checkpoint, miniature

pytestmark = pytest.mark.xdist_group("mutations")  # one miniature for all tests of this file

QWEN, LLAMA = "qwen3-8b", "llama-3.1-8b-instruct"
PLANS = ("whole", "per_token", "size-5")
AT_ONCE = frozenset({"full"})
STREAMS = frozenset(PLANS)
EVERYWHERE = AT_ONCE | STREAMS


PLAIN, TURNS = "render/common/text-user-only", "render/common/text-multi-turn"
TOOLS, REFUSED = "render/common/tools-declared-user-asks", "render/templates/content-text-parts-system"
NO_TURN, NO_THOUGHT = "render/common/no-generation-prompt", "render/common/thinking-kwarg-off"
WORDS, SPACES = "tokenize/common/plain-sentence", "tokenize/common/whitespace-spaces-only"
MARKERS, GEESE = "detokenize/common/special-token-markers", "detokenize/common/character-across-ids"
GOOSE = "detokenize/common/single-emoji"
SHORT = "parse/common/content-thinking-off"
"""`An apple floats in water.`, six ids."""
THOUGHT = "parse/common/reasoning-then-content"
"""`The digits of 57 add up to 12, so 3 divides it.`, then `No, 57 is 3 times 19.`"""
SAID_AND_CALLED = "parse/common/call-with-content"
TWO_CALLS = "parse/common/calls-parallel-two"
ACCENTS = "parse/common/call-unicode-arguments"
NUMBER = "parse/reported-bugs/qwenxml-schema-coercion"
"""`{"zip": "02134", "n": 5}`"""
EMPTY_CALL = "parse/reported-bugs/skip-special-strips-marker"
OTHERS = ("tokenize/common/special-token-strings", "detokenize/common/emoji-family")

WHOLE = (PLAIN, TURNS, TOOLS, REFUSED, NO_TURN, NO_THOUGHT, WORDS, SPACES, MARKERS, GEESE, GOOSE, *OTHERS)
"""Cases without an output."""
OUTPUTS = {
    SHORT: 6,
    THOUGHT: 36,
    SAID_AND_CALLED: 29,
    TWO_CALLS: 44,
    ACCENTS: 61,
    NUMBER: 32,
    EMPTY_CALL: 18,
    "parse/common/reasoning-only": 20,
    "parse/disagreements/call-after-white-space": 30,
    "parse/reported-bugs/hermes-close-tag-in-string": 26,
}
"""Case → ids of its output, as Qwen3's own code writes it."""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    """Two checkpoints and their references; one has a BOS. There are no answers of engines: truths are provisional."""
    root = miniature(tmp_path_factory.mktemp("mutations"), [QWEN, LLAMA])
    for path in (root / "corpus" / "handmade").glob("*.jsonl"):
        lines = path.read_text("utf-8").splitlines(keepends=True)
        path.write_text("".join(line for line in lines if _id(path.stem, line) in {*WHOLE, *OUTPUTS}), "utf-8")
    import_corpus.main(root, "handmade")
    shutil.copytree(ROOT / "queries", root / "queries", ignore=shutil.ignore_patterns("reports", "known", "*.toml"))
    for slug in (QWEN, LLAMA):
        record.main(root, slug, jobs=1)
    return root


def _id(kind: str, line: str) -> str:
    case = json.loads(line)
    return f"{kind}/{case['set']}/{case['name']}"


@pytest.fixture(scope="module")
def gateway(checkout: Path) -> Iterator[FaultyGateway]:
    served = {read_manifest(checkout, slug).model: load_checkpoint(slug) for slug in (QWEN, LLAMA)}
    with FaultyGateway(served).running() as running:
        yield running


decoder_of = functools.cache(localise.decoder_of)
vocabulary_size = functools.cache(observe.vocabulary_size)


@dataclass(frozen=True, slots=True)
class Wrong:
    """A case of which something is wrong."""

    case_id: str
    layer: str | None
    what: str | None
    field: str | None = None
    where: frozenset[str] = AT_ONCE
    """`full`, and chunk plans; by all others it matches."""
    verdict: str = "regression"
    reason: str | None = None
    localisation: str | None = "exact"


@dataclass
class Verified:
    """What came of a verification."""

    exit_status: int
    document: dict[str, Any]
    said: str = ""

    @property
    def rows(self) -> list[dict[str, Any]]:
        return self.document["replays"]

    @property
    def wrong(self) -> set[Wrong]:
        """What is no match."""
        where: dict[tuple, set[str]] = {}
        for row in self.rows:
            if row["verdict"] != "match":
                names = ("case_id", "first_layer", "what", "field", "verdict", "reason", "localisation")
                where.setdefault(tuple(row[name] for name in names), set()).add(row["plan"] or row["mode"])
        return {
            Wrong(case_id, layer, what, part, frozenset(modes), *others)
            for (case_id, layer, what, part, *others), modes in where.items()
        }


@dataclass
class Runs:
    """Verifications of the gateway, each with tables of its own."""

    checkout: Path
    gateway: FaultyGateway
    folder: Path

    def verify(self, cases: Iterable[str], fault: str | None = None, slug: str = QWEN, **chosen: Any) -> Verified:
        """Verify cases as the command does, by all plans or `plans`."""
        kind = chosen.pop("kind", "smg")
        selection = Selection(cases=tuple(cases), **chosen)
        wanted = Wanted((slug,), selection=selection, store=self.folder / "tables", json=self.folder / "verdict.json")
        reach = Reach(self.gateway.url, {}, engine_port=self._port(kind))
        with self.gateway.wrong(FAULTS[fault] if fault else RIGHT):
            summary = verify.main(self.checkout, live_target(kind, kind, reach), wanted)
        return Verified(summary.exit_status, json.loads(wanted.json.read_text("utf-8")))

    def command(
        self,
        cases: Iterable[str],
        fault: str | None = None,
        *,
        kind: str = "smg",
        url: str = "",
        spared: tuple[str, ...] = PROBES,
    ) -> Verified:
        """Run `bellwether verify` on cases, by PLANS."""
        document = self.folder / "verdict.json"
        options = {"--target": kind, "--url": url or self.gateway.url, "--slug": QWEN, "--root": self.checkout}
        options |= {"--engine-port": self._port(kind), "--store": self.folder / "tables", "--json": document}
        listed = [*options.items(), *(("--case", case) for case in cases), *(("--plan", plan) for plan in PLANS)]
        with self.gateway.wrong(FAULTS[fault] if fault else RIGHT, spared):
            result = CliRunner().invoke(cli, ["verify", *(str(word) for pair in listed for word in pair)])
        assert isinstance(result.exception, SystemExit | None), result.exception
        assert "Traceback" not in result.output
        said = json.loads(document.read_text("utf-8")) if document.is_file() else {}
        return Verified(result.exit_code, said, result.output)

    def _port(self, kind: str) -> int:
        [port] = free_ports(1)
        self.gateway.upstream = f"127.0.0.1:{port}" if kind == "openai" else None
        return port


@pytest.fixture
def runs(checkout: Path, gateway: FaultyGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    # half a second for each run, to read the same files
    monkeypatch.setattr(observe, "vocabulary_size", vocabulary_size)
    monkeypatch.setattr(localise, "decoder_of", decoder_of)
    return Runs(checkout, gateway, tmp_path)


# ── without a fault ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["smg", "openai"])
def test_a_gateway_that_is_right_matches_by_every_chunk_plan(runs: Runs, kind: str) -> None:
    """Nothing is wrong, nothing respelled, and nothing left out: one replay at once, and one per plan."""
    seen = [case for case in (*WHOLE, *OUTPUTS) if kind == "smg" or case.startswith(("render/", "parse/"))]
    verified = runs.verify(seen, kind=kind)
    assert verified.wrong == set()
    assert (verified.exit_status, verified.document["counts"]["respelled"]) == (0, 0)
    streamed = [(case, plan) for case, size in OUTPUTS.items() for plan in chunk_plans(size)]
    replayed = [(row["case_id"], row["plan"] or "full") for row in verified.rows]
    assert sorted(replayed) == sorted([*((case, "full") for case in seen), *streamed])


# ── each fault in its layer ──────────────────────────────────────────────────────────────────────────────────────────

MUTATIONS = {
    "drops-the-bos": [Wrong(PLAIN, "special_tokens", "prompt-ids")],
    "doubles-the-bos": [Wrong(PLAIN, "special_tokens", "prompt-ids")],
    "adds-an-end": [Wrong(PLAIN, "special_tokens", "prompt-ids")],
    "drops-a-special-token": [Wrong(TURNS, "template", "prompt-ids")],
    "splits-a-word": [
        Wrong(PLAIN, "tokens", "prompt-ids"),
        Wrong(WORDS, "tokens", "ids"),
    ],
    "swaps-tool-keys": [Wrong(TOOLS, "template", "prompt-ids")],
    "drops-the-tools": [Wrong(TOOLS, "template", "prompt-ids")],
    "drops-the-generation-prompt": [Wrong(PLAIN, "template", "prompt-ids")],
    "turns-thinking-off": [Wrong(PLAIN, "template", "prompt-ids")],
    "trims-a-newline": [Wrong(PLAIN, "template", "prompt-ids")],
    "accepts-what-the-template-refuses": [Wrong(REFUSED, "template", "accepted")],
    "eats-a-character": [
        Wrong(GEESE, "detokenize", "text"),
        Wrong(THOUGHT, "detokenize", "message", "content", EVERYWHERE),
    ],
    "skips-markers": [
        Wrong(MARKERS, "detokenize", "text"),
        Wrong(EMPTY_CALL, "detokenize", "message", "content", EVERYWHERE),
    ],
    "loses-the-second-call": [Wrong(TWO_CALLS, "parse", "message", "tool_calls", EVERYWHERE)],
    "leaks-a-marker": [Wrong(SAID_AND_CALLED, "parse", "message", "content", EVERYWHERE)],
    "gives-reasoning-as-content": [Wrong(THOUGHT, "parse", "message", "content", EVERYWHERE)],
    "adds-a-newline": [Wrong(SHORT, "parse", "message", "whitespace", EVERYWHERE)],
    "spells-numbers-as-text": [Wrong(NUMBER, "parse", "message", "tool_calls", EVERYWHERE)],
    "says-stop-for-calls": [Wrong(EMPTY_CALL, "parse", "finish-reason", None, EVERYWHERE)],
    "thinks-otherwise-when-streamed": [Wrong(THOUGHT, "streaming", "prompt-ids", None, STREAMS)],
    "merges-deltas": [
        Wrong(SHORT, "streaming", "buffered", None, frozenset({"per_token"})),
        Wrong(THOUGHT, "streaming", "buffered", None, frozenset({"per_token"})),
    ],
    "swaps-two-deltas": [Wrong(SHORT, "streaming", "message", "content", frozenset({"per_token", "size-5"}))],
    "loses-a-call-of-two-in-a-chunk": [Wrong(TWO_CALLS, "streaming", "message", "tool_calls", frozenset({"whole"}))],
    "numbers-all-calls-alike": [Wrong(TWO_CALLS, "streaming", "message", "tool_calls", STREAMS)],
    "loses-the-last-chunk": [Wrong(SHORT, "streaming", "message", "content", frozenset({"whole", "size-5"}))],
    "splits-characters": [Wrong(ACCENTS, "streaming", "message", "tool_calls", frozenset({"per_token", "size-5"}))],
    "streams-stop-for-calls": [Wrong(EMPTY_CALL, "streaming", "finish-reason", None, STREAMS)],
    "cuts-streams-off": [Wrong(SHORT, "streaming", "framing", "no-terminal", STREAMS)],
    "leaves-done-out": [Wrong(SHORT, "streaming", "framing", "no-done", STREAMS)],
    "goes-on-after-done": [Wrong(SHORT, "streaming", "framing", "after-done", STREAMS)],
    "ends-twice": [Wrong(SHORT, "streaming", "framing", "two-terminals", STREAMS)],
    "writes-after-the-end": [Wrong(SHORT, "streaming", "framing", "after-terminal", STREAMS)],
    "counts-prompt-tokens-wrong": [Wrong(SHORT, "api", "usage", "prompt", EVERYWHERE)],
    "counts-completion-tokens-wrong": [Wrong(SHORT, "api", "usage", "completion", EVERYWHERE)],
    "refuses-tools": [
        Wrong(TOOLS, "template", "rejected", None, AT_ONCE, "rejected", "no_tools"),
        Wrong(SAID_AND_CALLED, "api", "rejected", None, EVERYWHERE, "rejected", "no_tools", "at_or_before"),
    ],
}
"""Fault → what it does to which cases."""

SPARED = {
    "splits-a-word": [SPACES],
    "swaps-tool-keys": [PLAIN],
    "drops-the-tools": [PLAIN],
    "drops-the-generation-prompt": [NO_TURN],
    "turns-thinking-off": [NO_THOUGHT],
    "thinks-otherwise-when-streamed": [SHORT],
    "accepts-what-the-template-refuses": [PLAIN],
    "eats-a-character": [GOOSE, SHORT],
    "skips-markers": [GOOSE, SHORT],
    "loses-the-second-call": [SAID_AND_CALLED],
    "leaks-a-marker": [SHORT],
    "gives-reasoning-as-content": [SHORT],
    "says-stop-for-calls": [SHORT],
    "loses-a-call-of-two-in-a-chunk": [SAID_AND_CALLED],
    "splits-characters": [EMPTY_CALL],
    "streams-stop-for-calls": [SHORT],
    "refuses-tools": [PLAIN],
}
"""Fault → cases it does nothing to, which are asked as well."""

WITH_BOS = ("drops-the-bos", "doubles-the-bos")


@pytest.mark.parametrize("fault", MUTATIONS)
def test_a_fault_is_found_in_its_layer(runs: Runs, fault: str) -> None:
    """And nowhere else: what it does nothing to matches. It is one finding per kind, with a page of the playbook."""
    wrong = MUTATIONS[fault]
    asked = [*(one.case_id for one in wrong), *SPARED.get(fault, ())]
    verified = runs.verify(asked, fault, LLAMA if fault in WITH_BOS else QWEN, plans=PLANS)
    assert verified.wrong == set(wrong)
    assert verified.exit_status == 1
    assert {row["case_id"] for row in verified.rows} == set(asked)
    findings = {(one["layer"], one["what"], one["field"], one["verdict"]) for one in verified.document["findings"]}
    assert findings == {(one.layer, one.what, one.field, one.verdict) for one in wrong}
    assert all(one["playbook"]["means"] and one["examples"] for one in verified.document["findings"])


def test_what_was_not_seen_is_not_said_to_be_right(runs: Runs) -> None:
    """By a chat alone no text of ids is seen: what is wrong with a message may be wrong before it is read."""
    verified = runs.verify([TWO_CALLS], "loses-the-second-call", kind="openai", plans=PLANS)
    assert verified.wrong == {
        Wrong(TWO_CALLS, "parse", "message", "tool_calls", EVERYWHERE, localisation="at_or_before")
    }


TOLERATED = {
    "spells-numbers-with-a-fraction": (NUMBER, 4),
    "says-tool-use": (EMPTY_CALL, 0),
    "asks-the-engine-twice": (SHORT, 0),
}
"""What is no fault: a number of the same value, another word of the same class, a request that is sent again. With a
case, and how many of its replays are respelled."""


@pytest.mark.parametrize("fault", TOLERATED)
def test_what_means_the_same_passes(runs: Runs, fault: str) -> None:
    """A number in another spelling is told."""
    case, respelled = TOLERATED[fault]
    verified = runs.verify([case], fault, plans=PLANS)
    assert verified.wrong == set()
    assert (verified.exit_status, verified.document["counts"]["respelled"]) == (0, respelled)
    assert {row["plan"] or row["mode"] for row in verified.rows} == EVERYWHERE


# ── no measurement is no verdict ─────────────────────────────────────────────────────────────────────────────────────

BROKEN = {
    "hangs": {"timeout": EVERYWHERE},
    "closes-early": {"closed-early": EVERYWHERE},
    "closes-at-once": {"no-answer": EVERYWHERE},
    "fails": {"http-500": EVERYWHERE},
    "redirects": {"redirect": EVERYWHERE},
    "says-garbage": {"malformed-answer": AT_ONCE, "malformed-event": STREAMS},
    "streams-garbage": {"malformed-event": STREAMS},
    "streams-an-error": {"stream-error": STREAMS},
    "asks-the-engine-twice-in-two-ways": {"captures-differ": EVERYWHERE},
    "asks-no-engine": {"no_capture": EVERYWHERE},
    "serves-another-model": {"not-registered": AT_ONCE},  # not opened: one row an output
}
"""Fault → reason → answers without a verdict for it."""


def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait less for an answer, for a model to be listed, and for a capture."""
    monkeypatch.setattr(Smg, "seconds", 1.0)
    for route in (chat.complete, chat.stream):
        monkeypatch.setattr(route, "__kwdefaults__", {"seconds": 1.0})
    monkeypatch.setattr(OpenAi.__init__, "__kwdefaults__", {"headers": None, "patience": 0.5})
    monkeypatch.setattr(behind, "CAPTURE_SECONDS", 0.2)


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_gateway_gets_no_verdict(runs: Runs, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """Exit status 2 and the reason, and no traceback; a render and a parse alike."""
    impatient(monkeypatch)
    verified = runs.command([PLAIN, SHORT], fault)
    expected = set()
    for reason, where in BROKEN[fault].items():
        verdict = "missing" if reason == "no_capture" else "measurement_failed"
        expected.add(Wrong(SHORT, None, None, None, where, verdict, reason, None))
        if where >= AT_ONCE:
            expected.add(Wrong(PLAIN, None, None, None, AT_ONCE, verdict, reason, None))
    assert verified.wrong == expected
    assert verified.exit_status == 2
    assert all(reason.replace("_", "-") in verified.said.replace("_", "-") for reason in BROKEN[fault])


@pytest.mark.parametrize("kind", ["smg", "openai"])
@pytest.mark.parametrize(("fault", "reason"), [("hangs", "timeout"), ("fails", "http-500"), ("redirects", "redirect")])
def test_a_gateway_that_is_broken_from_the_first_chat_gets_no_verdict(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, fault: str, reason: str, kind: str
) -> None:
    """Nothing can be opened: each output that was asked for has no verdict, for that reason."""
    impatient(monkeypatch)
    verified = runs.command([SHORT], fault, kind=kind, spared=())
    assert verified.wrong == {Wrong(SHORT, None, None, None, AT_ONCE, "measurement_failed", reason, None)}
    assert verified.exit_status == 2
    assert reason in verified.said


@pytest.mark.parametrize(
    ("fault", "reason", "where"),
    [("serves-another-model", "not-loaded", AT_ONCE), ("asks-no-engine", "no_capture", EVERYWHERE)],
)
def test_any_gateway_that_is_broken_gets_no_verdict(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, fault: str, reason: str, where: frozenset[str]
) -> None:
    """The same by the adapter of any gateway; it waits for a model to be listed, and for captures."""
    impatient(monkeypatch)
    verified = runs.command([SHORT], fault, kind="openai")
    verdict = "missing" if reason == "no_capture" else "measurement_failed"
    assert verified.wrong == {Wrong(SHORT, None, None, None, where, verdict, reason, None)}
    assert verified.exit_status == 2


def test_a_checkpoint_that_is_not_loaded_is_told_whatever_is_selected(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Streams alone are asked for and none can be made: a row says so, or another checkpoint's would pass for all."""
    impatient(monkeypatch)
    verified = runs.verify([SHORT], "serves-another-model", modes=("stream",))
    assert verified.wrong == {Wrong(SHORT, None, None, None, AT_ONCE, "measurement_failed", "not-registered", None)}
    assert verified.exit_status == 2


@pytest.mark.parametrize("kind", ["smg", "openai"])
def test_a_gateway_that_is_not_there_gets_no_verdict(runs: Runs, kind: str) -> None:
    [dead] = free_ports(1)
    verified = runs.command([SHORT], kind=kind, url=f"http://127.0.0.1:{dead}")
    assert verified.exit_status == 2
    assert "unreachable" in verified.said


# ── the proof is whole ───────────────────────────────────────────────────────────────────────────────────────────────


def test_every_fault_is_proved() -> None:
    assert sorted(FAULTS) == sorted([*MUTATIONS, *TOLERATED, *BROKEN])
    assert SPARED.keys() <= MUTATIONS.keys()


def test_every_layer_a_verdict_can_name_is_proved(checkout: Path) -> None:
    """Those of the queries; the rest of the causal order is not a gateway's."""
    connection = connect(checkout).connection
    named = {name for name in LAYERS if connection.execute("select layer_rank(?)", [name]).fetchone()[0]}
    assert {one.layer for wrong in MUTATIONS.values() for one in wrong} == named
    assert named == {"template", "special_tokens", "tokens", "detokenize", "parse", "streaming", "api"}


def test_every_difference_and_every_rule_of_framing_is_proved() -> None:
    """`pieces` are seen of witnesses alone."""
    wrong = [one for mutation in MUTATIONS.values() for one in mutation]
    whats = {"rejected", "accepted", "prompt-ids", "ids", "text", "framing", "message", "finish-reason", "usage"}
    assert {one.what for one in wrong} == {*whats, "buffered"}
    assert {one.field for one in wrong if one.what == "framing"} == set(chat.FRAMING)
    assert {one.field for one in wrong if one.what == "usage"} == {"prompt", "completion"}
