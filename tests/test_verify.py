"""`bellwether verify` as people call it: a gateway that listens, tables that are kept, what the exit status says."""

from __future__ import annotations

import functools
import gc
import json
import os
import shlex
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aiohttp import web
from click.testing import CliRunner

from bellwether import import_corpus, observe, record, verify
from bellwether.chunk_plans import chunk_plans
from bellwether.cli import cli
from bellwether.errors import GatewayError
from bellwether.gateways.answer import Missing, Prompt, Served
from bellwether.gateways.process import free_ports
from bellwether.gateways.smg import SmgAdapter
from bellwether.gateways.targets import PINNED
from bellwether.layout import corpus_folder, reference_table
from bellwether.observing import localise, parts
from bellwether.observing.replays import Replay, Selection
from bellwether.observing.run import AHEAD
from bellwether.reports.verdicts import outputs
from bellwether.tables import CASES, PER_CORPUS, TableWriter
from bellwether.verify import Wanted
from faulty_gateway import FAULTS, RIGHT, FaultyGateway, Respond, Stages
from support import ROOT, load_checkpoint, miniature

pytestmark = pytest.mark.xdist_group("verify")  # one miniature for all tests of this file

SLUG, TWIN, MINE = "qwen3-8b", "twin", "mine"
PLAIN, TURNS = "render/common/text-user-only", "render/common/text-multi-turn"
WORDS, MARKERS = "tokenize/common/plain-sentence", "detokenize/common/special-token-markers"
SHORT, EMPTY_CALL = "parse/common/content-thinking-off", "parse/reported-bugs/skip-special-strips-marker"
THOUGHT = "parse/common/reasoning-then-content"
IDS = {SHORT: 6, EMPTY_CALL: 18, THOUGHT: 36}
"""Case → ids of its output, as Qwen3's own code writes it."""
ONCE = (PLAIN, TURNS, WORDS, MARKERS)
CASES_ALL = (*ONCE, *IDS)
IMPORTED = (TURNS, THOUGHT)
"""Cases of a corpus that is not hand-made: a share of them is asked, by some plans."""
OTHERS = "others"
DRAWN = 5
"""Chunk plans an output of an imported corpus is streamed by."""

Place = tuple[str, str]
"""A case, and `full` or the chunk plan."""


def by_all_plans(*cases: str) -> set[Place]:
    return {(case, plan) for case in cases for plan in chunk_plans(IDS[case])}


def at_once(*cases: str) -> set[Place]:
    return {(case, "full") for case in cases}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint and a twin of it; two corpora, of which one is imported."""
    root = miniature(tmp_path_factory.mktemp("verify"), [SLUG])
    for path in (root / "corpus" / "handmade").glob("*.jsonl"):
        lines = path.read_text("utf-8").splitlines(keepends=True)
        path.write_text("".join(line for line in lines if _id(path.stem, line) in CASES_ALL), "utf-8")
    import_corpus.main(root, "handmade")
    _split(root)
    params = root / "params.yaml"
    text = params.read_text("utf-8").replace("corpora: [handmade]", f"corpora: [handmade, {OTHERS}]")
    params.write_text(text.replace(f"[{SLUG}]", f"[{SLUG}, {TWIN}]"), "utf-8")
    shutil.copytree(ROOT / "queries", root / "queries", ignore=shutil.ignore_patterns("reports", "known", "*.toml"))
    record.main(root, SLUG, jobs=1)
    _add_twin(root)
    return root


def _id(kind: str, line: str) -> str:
    case = json.loads(line)
    return f"{kind}/{case['set']}/{case['name']}"


def _split(root: Path) -> None:
    """Make a corpus of its own of the IMPORTED cases."""
    handmade, others = corpus_folder(root, "handmade"), corpus_folder(root, OTHERS)
    shutil.copytree(handmade, others)
    rows = pq.read_table(handmade / "cases.parquet").to_pylist()
    for folder, imported in ((handmade, False), (others, True)):
        kept = [row for row in rows if (row["case_id"] in IMPORTED) == imported]
        with TableWriter(folder / "cases.parquet", CASES) as writer:
            writer.write_rows(row | {"corpus": folder.name} for row in kept)
    for name in ("repeats", "left_out"):
        pq.write_table(PER_CORPUS[name].empty_table(), others / f"{name}.parquet")


def _add_twin(root: Path) -> None:
    shutil.copytree(root / "fixtures" / SLUG, root / "fixtures" / TWIN)
    manifest = root / "fixtures" / TWIN / "manifest.toml"
    manifest.write_text(manifest.read_text("utf-8").replace("Qwen/Qwen3-8B", "Qwen/Twin"), "utf-8")
    for recorded in ("render", "parse", "tokens"):
        path = reference_table(root, TWIN, recorded)
        table = pq.read_table(path)
        column = table.schema.get_field_index("checkpoint")
        twins = pa.array([TWIN] * table.num_rows, table.schema.field(column).type)
        pq.write_table(table.set_column(column, table.schema.field(column), twins), path)


@pytest.fixture(scope="module")
def gateway() -> Iterator[FaultyGateway]:
    names = ("Qwen/Qwen3-8B", "Qwen/Twin", MINE)
    with FaultyGateway(dict.fromkeys(names, load_checkpoint(SLUG))).running() as running:
        yield running


@dataclass
class Verified:
    """What came of one call."""

    exit_status: int
    said: str
    document: dict[str, Any] = field(default_factory=dict)

    @property
    def rows(self) -> list[dict[str, Any]]:
        return self.document.get("replays", [])

    @property
    def places(self) -> set[Place]:
        found = [(row["case_id"], row["plan"] or row["mode"]) for row in self.rows]
        assert len(set(found)) == len(found) or len({row["checkpoint"] for row in self.rows}) > 1
        return set(found)


@dataclass
class Runs:
    """Calls of the command on the gateway that listens, or on a pinned one."""

    root: Path
    gateway: FaultyGateway
    folder: Path
    asked: list[dict[str, Any]] = field(default_factory=list)
    """Chats the gateway was asked by the last call, without those by which an adapter finds out whom it speaks to."""

    def verify(
        self,
        *options: str,
        fault: Stages = RIGHT,
        url: str | None = None,
        at: Callable[[int], None] = lambda number: None,
    ) -> Verified:
        """Verify the gateway; `at` is told of each chat it is asked, before it is answered."""
        self.asked.clear()

        async def reply(request: web.Request, body: dict[str, Any], respond: Respond) -> web.StreamResponse:
            self.asked.append(body)
            at(len(self.asked))
            return await respond()

        with self.gateway.wrong(replace(fault, reply=reply)):
            return self.call("--target", "smg", "--url", url or self.gateway.url, *options)

    def call(self, *options: str) -> Verified:
        document = self.folder / "verdict.json"
        document.unlink(missing_ok=True)
        stored = () if "--store" in options else ("--store", str(self.folder / "tables"))
        words = ["verify", *options, "--root", str(self.root), "--json", str(document), *stored]
        result = CliRunner().invoke(cli, words)
        assert isinstance(result.exception, SystemExit | None), result.exception
        assert "Traceback" not in result.output
        said = json.loads(document.read_text("utf-8")) if document.is_file() else {}
        return Verified(result.exit_code, result.output, said)

    def parts(self, slug: str = SLUG) -> int:
        """Return how many parts of a table an interrupted run left."""
        return len(list((self.folder / "tables" / f"{slug}.parts").glob("*.parquet")))


decoder_of = functools.cache(localise.decoder_of)
vocabulary_size = functools.cache(observe.vocabulary_size)


@pytest.fixture
def runs(checkout: Path, gateway: FaultyGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    # half a second for each run, to read the same files
    monkeypatch.setattr(observe, "vocabulary_size", vocabulary_size)
    monkeypatch.setattr(localise, "decoder_of", decoder_of)
    for module in (observe, parts):
        monkeypatch.setattr(module, "PART_ROWS", 4)
    return Runs(checkout, gateway, tmp_path)


@pytest.fixture
def interrupt() -> Iterator[Callable[[int], Callable[[int], None]]]:
    """`interrupt(n)` → Ctrl-C with the n-th chat."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def after(number: int) -> Callable[[int], None]:
        return lambda seen: os.kill(os.getpid(), signal.SIGINT) if seen == number else None

    yield after
    signal.signal(signal.SIGINT, before)


# ── what is replayed ─────────────────────────────────────────────────────────────────────────────────────────────────

SELECTIONS = {
    "--kind tokenize --kind detokenize": at_once(WORDS, MARKERS),
    "--set reported-*": at_once(EMPTY_CALL) | by_all_plans(EMPTY_CALL),
    "--case plain-* --case render/common/text-user-only": at_once(WORDS, PLAIN),
    "--kind parse --mode full": at_once(*IDS),
    "--case content-thinking-off --mode stream": by_all_plans(SHORT),
    "--case content-* --plan whole --plan size-*": {
        *at_once(SHORT),
        *((SHORT, plan) for plan in ("whole", "size-2", "size-3", "size-5")),
    },
    "--case content-* --mode stream --plan per_token": {(SHORT, "per_token")},
}
"""Options → replays."""


@pytest.mark.parametrize("options", SELECTIONS)
def test_a_selection_is_what_is_replayed(runs: Runs, options: str) -> None:
    """And nothing else: what is answered at once has no plan, so plans choose among streams."""
    verified = runs.verify("--slug", SLUG, *options.split())
    assert verified.places == SELECTIONS[options]
    assert verified.exit_status == 0
    asked = [place for place in verified.places if place[0].startswith(("render/", "parse/"))]
    assert len(runs.asked) == len(asked)


def test_of_imported_cases_a_share_is_replayed_by_some_plans(runs: Runs) -> None:
    """What params.yaml says, else what the command says; hand-made cases always, by every plan."""
    handmade = at_once(*(case for case in CASES_ALL if case not in IMPORTED)) | by_all_plans(SHORT, EMPTY_CALL)
    drawn = runs.verify("--slug", SLUG).places - handmade
    assert drawn > at_once(*IMPORTED) | {(THOUGHT, "whole"), (THOUGHT, "per_token")}
    assert len(drawn) == len(IMPORTED) + DRAWN
    assert runs.verify("--slug", SLUG, "--share", "0").places == handmade
    everything = runs.verify("--slug", SLUG, "--share", "1", "--all-plans").places
    assert everything == handmade | at_once(*IMPORTED) | by_all_plans(THOUGHT)


def test_without_a_checkpoint_all_of_the_scope_are_replayed(runs: Runs) -> None:
    verified = runs.verify("--kind", "tokenize")
    assert {row["checkpoint"] for row in verified.rows} == {SLUG, TWIN}


def test_a_server_may_have_another_name_for_the_checkpoint(runs: Runs) -> None:
    """Every chat asks for it by that name; the verdict is the checkpoint's."""
    verified = runs.verify("--slug", SLUG, "--model", MINE, "--case", PLAIN)
    assert (verified.exit_status, verified.places) == (0, at_once(PLAIN))
    assert {body["model"] for body in runs.asked} == {MINE}
    assert {row["checkpoint"] for row in verified.rows} == {SLUG}


def test_nothing_selected_is_no_verdict(runs: Runs) -> None:
    """Nothing was seen to pass."""
    verified = runs.verify("--slug", SLUG, "--case", "no-such-case")
    assert (verified.exit_status, verified.rows) == (2, [])
    assert "nothing was held against a truth" in verified.said


def test_a_command_of_the_report_shows_the_case(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run as it stands, in the checkout, it finds the same difference in that case alone."""
    fault = FAULTS["splits-a-word"]
    monkeypatch.setenv("BELLWETHER_CACHE", str(runs.folder / "cache"))
    monkeypatch.chdir(runs.root)
    first = runs.verify("--slug", SLUG, "--share", "1", "--name", "my gateway", fault=fault)
    shown = [line.strip() for line in first.said.splitlines() if line.strip().startswith("bellwether verify ")]
    assert len(shown) == 2
    for line in shown:
        again = runs.folder / "again.json"
        with runs.gateway.wrong(fault):
            result = CliRunner().invoke(cli, [*shlex.split(line)[1:], "--json", str(again)])
        replays = json.loads(again.read_text("utf-8"))["replays"]
        assert (result.exit_code, [row["verdict"] for row in replays]) == (1, ["regression"])
        assert replays[0]["case_id"] in line
        assert [row["verdict"] for row in first.rows if row["case_id"] == replays[0]["case_id"]] == ["regression"]


# ── runs that stop, and go on ────────────────────────────────────────────────────────────────────────────────────────


def test_the_first_failure_stops_the_run(runs: Runs) -> None:
    """Once its part of the table is there. Exit 1, although most was not replayed; it says that it stopped."""
    verified = runs.verify("--slug", SLUG, "--fail-fast", fault=FAULTS["adds-a-newline"])
    assert verified.exit_status == 1
    assert "stopped after the first failure" in verified.said
    assert verified.document["stopped"] is True
    assert [row["case_id"] for row in verified.rows if row["gate"] == "fail"] == [SHORT, SHORT]
    assert len(verified.rows) == 4


def test_without_a_failure_it_does_not_stop(runs: Runs) -> None:
    verified = runs.verify("--slug", SLUG, "--fail-fast", "--plan", "whole")
    assert (verified.exit_status, verified.document["stopped"]) == (0, False)
    assert verified.places == at_once(*CASES_ALL) | {(case, "whole") for case in IDS}


def test_a_listed_difference_that_shows_later_does_not_stop_it(runs: Runs) -> None:
    """Whether a listed case matches throughout is not known before all of it was replayed."""
    runs.root = shutil.copytree(runs.root, runs.folder / "root")
    known = runs.root / "queries" / "known" / "smg.toml"
    known.parent.mkdir()
    listed = f'["{SLUG}/parse/{SHORT.rpartition("/")[2]}"]\nverdict = "regression"\nreason = "r"\n'
    known.write_text(listed + 'issue = "https://example.org/1"\n', "utf-8")
    options = ("--slug", SLUG, "--case", PLAIN, "--case", SHORT, "--fail-fast")
    verified = runs.verify(*options, fault=last_stream_alone())
    assert (verified.exit_status, verified.document["stopped"]) == (0, False)
    assert Counter(row["verdict"] for row in verified.rows)["known_difference"] == 1


def test_a_listed_difference_is_not_missed_in_a_selection(runs: Runs) -> None:
    """It shows in a stream; who asks for answers at once alone has not seen whether it is still there."""
    runs.root = shutil.copytree(runs.root, runs.folder / "root")
    known = runs.root / "queries" / "known" / "smg.toml"
    known.parent.mkdir()
    listed = f'["{SLUG}/parse/{SHORT.rpartition("/")[2]}"]\nverdict = "regression"\nreason = "r"\n'
    known.write_text(listed + 'issue = "https://example.org/1"\n', "utf-8")
    options = ("--slug", SLUG, "--case", SHORT)
    assert runs.verify(*options, "--mode", "full").exit_status == 0
    assert runs.verify(*options, "--plan", "whole").exit_status == 0
    assert runs.verify(*options).exit_status == 1


def last_stream_alone() -> Stages:
    """Return the fault of a gateway that has it in its 41st answer alone: the last of the random plans."""
    seen = []

    def events(sent: list[Any]) -> list[Any]:
        seen.append(sent)
        return FAULTS["ends-twice"].events(sent) if len(seen) == 40 else sent

    return Stages(events=events)


def test_after_a_failure_the_gateway_is_asked_anew(runs: Runs) -> None:
    """It was mended meanwhile: what the one before did is not held against it."""
    options = ("--slug", SLUG, "--fail-fast", "--case", PLAIN, "--case", SHORT, "--plan", "size-*")
    assert runs.verify(*options, fault=FAULTS["trims-a-newline"]).exit_status == 1
    verified = runs.verify(*options)
    assert (verified.exit_status, {row["verdict"] for row in verified.rows}) == (0, {"match"})
    assert len(runs.asked) == len(verified.rows)


def test_a_run_that_ended_starts_anew(runs: Runs) -> None:
    """The gateway may have changed since."""
    options = ("--slug", SLUG, "--case", PLAIN)
    assert runs.verify(*options).exit_status == 0
    assert runs.verify(*options, fault=FAULTS["trims-a-newline"]).exit_status == 1
    assert runs.verify(*options).exit_status == 0


def test_an_interrupted_run_goes_on_where_it_was(runs: Runs, interrupt: Callable) -> None:
    """Ctrl-C is a sentence and no verdict. What was replayed is not replayed again, and the verdict is of all."""
    whole = runs.verify("--slug", SLUG)
    times = len(runs.asked)
    torn = runs.verify("--slug", SLUG, at=interrupt(40))
    assert (torn.exit_status, torn.document) == (2, {})
    assert "error: interrupted" in torn.said
    kept = runs.parts()
    assert kept > 0
    verified = runs.verify("--slug", SLUG)
    assert len(runs.asked) == times - 4 * kept
    assert verified.document == whole.document
    assert runs.parts() == 0


def test_fresh_starts_over(runs: Runs, interrupt: Callable) -> None:
    """Even if an earlier run of the same was interrupted."""
    runs.verify("--slug", SLUG, at=interrupt(40))
    assert runs.parts() > 0
    verified = runs.verify("--slug", SLUG, "--fresh")
    asked = [row for row in verified.rows if row["kind"] in ("render", "parse")]
    assert (verified.exit_status, len(runs.asked)) == (0, len(asked))


@pytest.mark.parametrize("other", ["address", "question"])
def test_what_answers_another_question_is_not_gone_on_with(runs: Runs, interrupt: Callable, other: str) -> None:
    """Another server of the same name, or another choice of cases, in the same folder of tables."""
    options = ("--slug", SLUG, "--kind", "parse")
    runs.verify(*options, fault=FAULTS["adds-a-newline"], at=interrupt(40))
    assert runs.parts() > 0
    url = runs.gateway.url.replace("127.0.0.1", "localhost") if other == "address" else None
    verified = runs.verify(*options, *(("--share", "0") if other == "question" else ()), url=url)
    assert (verified.exit_status, len(runs.asked)) == (0, len(verified.rows))
    assert {row["verdict"] for row in verified.rows} == {"match"}


def test_what_another_run_left_is_not_in_the_verdict_of_one_that_stops(runs: Runs, interrupt: Callable) -> None:
    """Parts of a checkpoint that this run did not come to."""
    runs.verify("--slug", TWIN, "--kind", "parse", at=interrupt(40))
    assert runs.parts(TWIN) > 0
    fault = FAULTS["adds-a-newline"]
    verified = runs.verify("--slug", SLUG, "--slug", TWIN, "--case", SHORT, "--fail-fast", fault=fault)
    assert (verified.exit_status, {row["checkpoint"] for row in verified.rows}) == (1, {SLUG})


def test_tables_stay_where_they_are_wanted(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the folder given, else in one of the cache for this question to this gateway; never in the checkout."""
    monkeypatch.setenv("BELLWETHER_CACHE", str(runs.folder / "cache"))
    store = runs.folder / "here"
    runs.verify("--slug", SLUG, "--case", PLAIN, "--store", str(store))
    assert sorted(path.name for path in store.iterdir()) == [f"{SLUG}.json", f"{SLUG}.parquet"]
    assert list((runs.folder / "cache").rglob("*.parquet")) == []
    wanted = Wanted((SLUG,), selection=Selection(cases=(PLAIN,)))
    target = replace(PINNED["smg-1.13.0"], start=lambda root: Told())
    assert verify.main(runs.root, target, wanted).exit_status == 2  # no prompt of it is seen
    [folder] = (path for path in (runs.folder / "cache" / "verify").iterdir() if path.is_dir())
    assert folder.name.startswith("smg-1.13.0-")
    assert (folder / f"{SLUG}.parquet").is_file()
    assert not (runs.root / "fixtures" / "observations").exists()


# ── a gateway that ends ──────────────────────────────────────────────────────────────────────────────────────────────


def dies(number: int, monkeypatch: pytest.MonkeyPatch, kill: Callable[[SmgAdapter], None]) -> None:
    """Have the gateway end when it is to read its n-th output."""
    seen, parse = [], SmgAdapter.parse

    async def parse_or_die(self: SmgAdapter, *question: Any) -> Any:
        seen.append(question)
        if len(seen) == number:
            kill(self)
        return await parse(self, *question)

    monkeypatch.setattr(SmgAdapter, "parse", parse_or_die)


def test_a_gateway_that_dies_leaves_a_verdict_on_what_was_replayed(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real one, killed: exit 2, because it was not seen to the end; the reason is told, and rows are judged."""
    dies(30, monkeypatch, lambda adapter: os.kill(adapter._gateway.pid, signal.SIGKILL))
    verified = runs.call("--target", "smg-1.13.0", "--slug", SLUG, "--case", PLAIN, "--case", SHORT)
    assert (verified.exit_status, verified.document["stopped"]) == (2, True)
    assert "the gateway smg 1.13.0 ended" in verified.said
    assert "the run stopped early" in verified.said
    assert {row["verdict"] for row in verified.rows} == {"match"}
    assert 0 < len(verified.rows) == 4 * runs.parts()


def _gone(adapter: SmgAdapter) -> None:
    raise GatewayError("the gateway is gone")


def test_what_failed_before_the_gateway_died_counts(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit 1: a difference was seen."""
    dies(30, monkeypatch, _gone)
    verified = runs.verify("--slug", SLUG, "--case", SHORT, fault=FAULTS["adds-a-newline"])
    assert (verified.exit_status, verified.document["stopped"]) == (1, True)
    assert "the gateway is gone" in verified.said


def test_a_gateway_that_dies_at_once_leaves_no_verdict(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sentence, and no document that would say less."""
    dies(1, monkeypatch, _gone)
    verified = runs.verify("--slug", SLUG, "--case", SHORT)
    assert (verified.exit_status, verified.document) == (2, {})
    assert "error: the gateway is gone" in verified.said


def test_nobody_at_the_address_is_a_sentence(runs: Runs) -> None:
    [dead] = free_ports(1)
    verified = runs.verify("--slug", SLUG, url=f"http://127.0.0.1:{dead}")
    assert verified.exit_status == 2
    assert f"error: no gateway answers at http://127.0.0.1:{dead}" in verified.said
    assert "next:  Start it, or give the URL it listens at." in verified.said


# ── what is asked for wrongly ────────────────────────────────────────────────────────────────────────────────────────

URL = ("--url", "http://127.0.0.1:9")
MISUSES = {
    "half of the files": (("--target", "openai", *URL, "--script", "s"), "--script and --capture go together"),
    "one name for two": (("--target", "smg", *URL, "--model", "m", "--slug", SLUG, "--slug", TWIN), "one --slug"),
    "one name for all": (("--target", "smg", *URL, "--model", "m"), "--model needs one --slug"),
    "a name for a pinned one": (("--target", "smg", "--name", "n"), "--name needs --url"),
    "a model of a pinned one": (("--target", "smg", "--model", "m", "--slug", SLUG), "--model needs --url"),
    "a header to a pinned one": (("--target", "smg", "--header", "a: b"), "--header needs --url"),
    "files of a pinned one": (("--target", "smg", "--script", "s", "--capture", "c"), "--script needs --url"),
    "parsers of a pinned one": (("--target", "smg", "--parser", "symphony"), "--parser needs --url"),
    "a wire of a pinned one": (("--target", "smg", "--wire", "http"), "--wire needs --url"),
    "a port of a pinned one": (("--target", "smg", "--engine-port", "4711"), "--engine-port needs --url"),
    "no header": (("--target", "smg", *URL, "--header", "secret"), "'secret' is no 'Name: value'"),
    "an unknown pinned one": (("--target", "smg-0"), "Known: smg-1.13.0, "),
    "an unknown kind": (("--target", "tgi", *URL), "Known: smg, openai, vllm, sglang."),
    "an unknown checkpoint": (("--target", "smg", *URL, "--slug", "nobody"), "nobody"),
    "no address": (("--target", "smg", "--url", "localhost"), "'localhost' is no address like http://127.0.0.1:30000"),
    "a variable that is not set": (("--target", "smg", *URL, "--header", "a: $NOPE_AT_ALL"), "NOPE_AT_ALL is not set"),
    "files of another kind": (("--target", "smg", *URL, "--script", "s", "--capture", "c"), "--target openai"),
    "a running one that is not": (("--target", "openai"), "say where it listens with --url"),
    "no number": (("--target", "smg", "--share", "nan"), "nan is no number"),
    "a share above one": (("--target", "smg", "--share", "1.5"), "1.5 is not in the range"),
    "nothing at all": ((), "Missing option '--target'"),
}


@pytest.mark.parametrize("misuse", MISUSES)
def test_a_misuse_is_a_sentence_and_no_verdict(runs: Runs, misuse: str) -> None:
    options, sentence = MISUSES[misuse]
    verified = runs.call(*options)
    assert (verified.exit_status, verified.document) == (2, {})
    assert sentence in verified.said


def test_what_was_not_recorded_cannot_be_verified(runs: Runs) -> None:
    """Which table, and what to do; a checkout without any checkpoint too."""
    root = shutil.copytree(runs.root, runs.folder / "root")
    reference_table(root, TWIN, "parse").unlink()
    runs.root = root
    verified = runs.verify("--slug", TWIN)
    assert verified.exit_status == 2
    assert f"{TWIN}/parse/reference.parquet does not exist\nnext:  Run `make repro`, or `dvc pull`." in verified.said
    for slug in (SLUG, TWIN):
        shutil.rmtree(root / "fixtures" / slug / "inputs")
    nothing = runs.verify()
    assert nothing.exit_status == 2
    assert "error: no checkpoint of params.yaml is laid out\nnext:  Run `make repro`, or `dvc pull`." in nothing.said


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_files_are_written_whole(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each can be read, and says as much as the others; of one that cannot be written nothing is left."""
    junit, sarif = runs.folder / "verdict.xml", runs.folder / "verdict.sarif"
    options = ("--slug", SLUG, "--case", PLAIN, "--case", SHORT, "--junit", str(junit), "--sarif", str(sarif))
    verified = runs.verify(*options, fault=FAULTS["trims-a-newline"])
    failed = [row["case_id"] for row in verified.rows if row["gate"] == "fail"]
    assert failed == [PLAIN]
    suites = {suite.get("name"): suite for suite in ElementTree.parse(junit).getroot()}
    replayed = [test for name, suite in suites.items() if name.startswith("smg/") for test in suite.iter("testcase")]
    assert len(replayed) == len(verified.rows)
    assert sum(test.find("failure") is not None for test in replayed) == 1
    [run] = json.loads(sarif.read_text("utf-8"))["runs"]
    assert len(run["results"]) == 1

    def torn(*said: Any) -> Iterator[str]:
        yield "<testsuites>"
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(outputs, "junit_document", torn)
    verified = runs.verify(*options)
    assert verified.exit_status == 2
    assert "No space left on device" in verified.said
    left = {path.name for path in runs.folder.iterdir()}
    assert left == {"tables", "verdict.json"}, "the report of the run before passes for none of this one"


def test_a_report_of_before_is_gone_and_a_path_that_cannot_be_written_is_told_first(runs: Runs) -> None:
    """Before a gateway is asked anything; what a failed run leaves is no older report."""
    report = runs.folder / "old.xml"
    report.write_text("<testsuites/>", "utf-8")
    failed = runs.call("--target", "smg", *URL, "--slug", SLUG, "--junit", str(report))
    assert (failed.exit_status, report.exists()) == (2, False)
    (runs.folder / "file").touch()
    refused = runs.call("--target", "smg", *URL, "--slug", SLUG, "--junit", str(runs.folder / "file" / "x.xml"))
    assert refused.exit_status == 2
    assert "cannot be written" in refused.said


def test_two_runs_do_not_share_a_store(runs: Runs) -> None:
    """The second one says so, and leaves the first alone."""
    with verify._alone(runs.folder / "tables"):
        second = runs.verify("--slug", SLUG, "--case", PLAIN)
    assert second.exit_status == 2
    assert "another run is at work" in second.said
    assert runs.verify("--slug", SLUG, "--case", PLAIN).exit_status == 0


def test_missing_answers_of_engines_are_told(runs: Runs) -> None:
    """A case they dispute looks settled without them."""
    root = runs.root = shutil.copytree(runs.root, runs.folder / "root")
    text = (root / "params.yaml").read_text("utf-8")
    (root / "params.yaml").write_text(f"engines: [vllm-0.33.0]\n{text}", "utf-8")
    verified = runs.verify("--slug", SLUG, "--case", PLAIN)
    assert verified.exit_status == 0
    assert f"fixtures/witnesses/vllm-0.33.0/{SLUG}.parquet" in verified.said


# ── a lot ────────────────────────────────────────────────────────────────────────────────────────────────────────────

MANY = 20_480


class Told:
    """A gateway in this process that has one answer to every text."""

    plans: frozenset[str] | None = None
    concurrency = 8
    checkpoints = 1
    version = "0.0.0"
    facts: dict[str, Any] = {}  # noqa: RUF012
    kinds = frozenset({"render", "parse", "tokenize", "detokenize"})

    async def __aenter__(self) -> Told:
        return self

    async def __aexit__(self, *exc: object) -> None:
        pass

    @asynccontextmanager
    async def open(self, served: Served) -> Any:
        yield self

    async def tokenize(self, text: str) -> list[int]:
        return [1, 2, 3]

    async def render(self, request: str) -> Prompt:
        raise Missing


def test_memory_does_not_grow_with_the_number_of_replays(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty thousand: as many objects live at the end as at the beginning, and the document names every replay."""
    for module in (observe, parts):
        monkeypatch.setattr(module, "PART_ROWS", 256)
    runs.root = shutil.copytree(runs.root, runs.folder / "root")
    path = corpus_folder(runs.root, "handmade") / "cases.parquet"
    like = next(row for row in pq.read_table(path).to_pylist() if row["case_id"] == WORDS)
    with TableWriter(path, CASES) as writer:
        for start in range(0, MANY, 1024):
            writer.write_rows(
                like | {"case_id": f"tokenize/common/a{number}", "name": f"a{number}", "case_index": number}
                for number in range(start, start + 1024)
            )
    objects: list[int] = []
    replays: list[int] = []
    written = Counter()
    add = parts.Parts.add

    def counting(self: parts.Parts, rows: Any) -> Path:
        found = add(self, rows)
        written["parts"] += 1
        if written["parts"] % 16 == 0:
            gc.collect()
            alive = gc.get_objects()
            objects.append(len(alive))
            replays.append(sum(type(one) is Replay for one in alive))
        return found

    monkeypatch.setattr(parts.Parts, "add", counting)
    target = replace(PINNED["smg-1.13.0"], start=lambda root: Told())
    wanted = Wanted(
        (SLUG,),
        selection=Selection(kinds=("tokenize",)),
        store=runs.folder / "tables",
        json=runs.folder / "verdict.json",
    )
    summary = verify.main(runs.root, target, wanted)
    assert (summary.replays, written["parts"]) == (MANY, MANY // 256)
    assert max(replays) <= 256 + AHEAD * Told.concurrency + 2  # one just read, one just written
    assert max(objects) - objects[0] < MANY // 8
    document = json.loads(wanted.json.read_text("utf-8"))
    assert len({row["case_id"] for row in document["replays"]}) == MANY
