"""Tables of observations as people record them: the real gateway, a real checkpoint, and one that cannot be loaded."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from tokenizers import Tokenizer

from bellwether import import_corpus, observe, record
from bellwether.cli import cli
from bellwether.errors import GatewayError, PinMismatch, TableError
from bellwether.freshness import Count, up_to_date
from bellwether.gateways.answer import Served
from bellwether.gateways.smg import Smg
from bellwether.gateways.targets import PINNED, pinned_target
from bellwether.layout import corpus_folder, inputs_folder, observation_table, reference_table
from bellwether.materials.pins import sha256_of
from bellwether.observe import Run
from bellwether.observing import parts
from bellwether.observing.table import OBSERVATION
from bellwether.params import read_params
from processes import alive, children, wait_for
from support import ROOT, miniature

pytestmark = pytest.mark.xdist_group("observe")  # one recording for all tests of this file

NAME, SLUG, BROKEN = "smg-1.13.0", "qwen3-8b", "broken"
PROMPT, SENTENCE = "render/common/text-user-only", "tokenize/common/plain-sentence"
MARKERS = "detokenize/common/special-token-markers"
SHORT, CALLS = "parse/common/content-thinking-off", "parse/common/calls-parallel-two"
STREAMS = {SHORT: 2 + 3 + 5 + 30, CALLS: 2 + 6 + 30}
"""Case → chunk plans of six ids and of 44: `whole` and `per_token`, sizes, splits of what is short, and random ones."""
FULL = (PROMPT, SHORT, CALLS, SENTENCE, MARKERS)
"""Cases, in the order of their kinds; within one, in that of the corpus."""
ROWS = len(FULL) + sum(STREAMS.values())


@dataclass(frozen=True)
class Recorded:
    """A checkout with its tables."""

    root: Path
    counts: list[Count]
    said: str

    def files(self) -> dict[str, bytes]:
        return files(self.root)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Five cases of a checkpoint, and of another that has the same references and no tokenizer."""
    root = miniature(tmp_path_factory.mktemp("observe"), [SLUG])
    for path in (root / "corpus" / "handmade").glob("*.jsonl"):
        lines = path.read_text("utf-8").splitlines(keepends=True)
        path.write_text("".join(line for line in lines if _id(path.stem, line) in FULL), "utf-8")
    import_corpus.main(root, "handmade")
    record.main(root, SLUG, jobs=1)
    _add_broken(root)
    params = root / "params.yaml"
    params.write_text(params.read_text("utf-8").replace(f"[{SLUG}]", f"[{BROKEN}, {SLUG}]"), "utf-8")
    said: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(observe, "say", said.append)
        counts = observe.main(root, NAME)
    return Recorded(root, counts, "\n".join(said))


def _id(kind: str, line: str) -> str:
    case = json.loads(line)
    return f"{kind}/{case['set']}/{case['name']}"


def _add_broken(root: Path) -> None:
    """Add a checkpoint without a file: the gateway is shown a folder made for the run."""
    shutil.copytree(root / "fixtures" / SLUG, root / "fixtures" / BROKEN, ignore=shutil.ignore_patterns("inputs"))
    inputs_folder(root, BROKEN).mkdir()
    head, _, _ = (root / "fixtures" / SLUG / "manifest.toml").read_text("utf-8").partition("[engines.vllm]")
    manifest = root / "fixtures" / BROKEN / "manifest.toml"
    manifest.write_text(head.replace("Qwen/Qwen3-8B", "Qwen/Broken") + "[inputs]\n", "utf-8")


@pytest.fixture
def root(recorded: Recorded, tmp_path: Path) -> Path:
    """A copy of it to work in."""
    return shutil.copytree(recorded.root, tmp_path / "root")


def folder(root: Path) -> Path:
    return observation_table(root, NAME, SLUG).parent


def files(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder(root).iterdir()}


def rows(root: Path, slug: str = SLUG) -> list[dict[str, Any]]:
    table = pq.read_table(observation_table(root, NAME, slug))
    assert table.schema.equals(OBSERVATION)
    return table.to_pylist()


def provenance(root: Path, slug: str = SLUG) -> dict[str, Any]:
    return json.loads(observation_table(root, NAME, slug).with_suffix(".json").read_text("utf-8"))


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), "utf-8")


def command(*words: str) -> Result:
    result = CliRunner().invoke(cli, ["observe", *words])
    assert "Traceback" not in result.output
    return result


def no_gateway(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Have a gateway that serves nothing in the place of the real one; return the checkouts it was started for."""
    started: list[Path] = []

    class Nothing:
        plans, concurrency, checkpoints, version = None, 1, 1, "1.13.0"
        facts: dict[str, Any] = {}  # noqa: RUF012

        async def __aenter__(self) -> Nothing:
            return self

        async def __aexit__(self, *exc: object) -> None:
            pass

        @asynccontextmanager
        async def open(self, served: object):
            raise AssertionError("nothing is served")
            yield

    def start(root: Path) -> Nothing:
        started.append(root)
        return Nothing()

    monkeypatch.setattr(observe, "pinned_target", lambda name: replace(pinned_target(name), start=start))
    return started


# ── what is recorded ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_replay_has_its_row(recorded: Recorded) -> None:
    """Kind after kind in case order: a prompt, a text and ids once, an output once at once and once per chunk plan."""
    found = rows(recorded.root)
    assert Counter(row["case_id"] for row in found if row["mode"] == "stream") == STREAMS
    assert [row["case_id"] for row in found if row["mode"] == "full"] == list(FULL)
    assert [row["case_id"] for row in found] == sorted((row["case_id"] for row in found), key=FULL.index)
    assert {(row["target"], row["target_version"], row["checkpoint"]) for row in found} == {(NAME, "1.13.0", SLUG)}
    assert Counter((row["outcome"], row["http_status"]) for row in found) == {("result", 200): ROWS}


def test_rows_hold_what_the_gateway_does(recorded: Recorded) -> None:
    """Ids as the tokenizers library has them, the texts and messages of the cases."""
    by_case = {row["case_id"]: row for row in rows(recorded.root) if row["mode"] == "full"}
    encode = Tokenizer.from_file(str(inputs_folder(recorded.root, SLUG) / "tokenizer.json")).encode
    prompt = "<|im_start|>user\nWhich planet has the shortest day?<|im_end|>\n<|im_start|>assistant\n"
    assert by_case[PROMPT]["prompt_ids"] == encode(prompt).ids
    assert by_case[SENTENCE]["output_ids"] == encode("The quick courier left 3 parcels at the side door.").ids
    assert by_case[MARKERS]["output_text"].startswith("<think>\nplan\n</think>\n\n<tool_call>\n")
    assert (by_case[SHORT]["content"], by_case[SHORT]["finish_reason"]) == ("An apple floats in water.", "stop")
    assert by_case[SHORT]["parser_used"] == "legacy"
    calls = [(call["name"], json.loads(call["arguments"])) for call in by_case[CALLS]["tool_calls"]]
    assert calls == [("stock_count", {"article": "desk"}), ("stock_count", {"article": "stool"})]


def test_provenance_says_what_was_observed_and_how(recorded: Recorded) -> None:
    """Release, revision, how the gateway was called, what was asked, what came of it; and no word of this machine."""
    told = provenance(recorded.root)
    assert (told["target"], told["target_version"], told["checkpoint"]) == (NAME, "1.13.0", SLUG)
    assert (told["model"], told["revision"]) == ("Qwen/Qwen3-8B", "b968826d9c46dd6066d109eabc6255188de91218")
    assert (told["facts"]["parser"], told["facts"]["clock"]) == ("legacy", "2026-01-15T12:00:00")
    assert told["kinds"] == ["render", "parse", "tokenize", "detokenize"]
    assert told["not_asked"] == {"out of share": 0, "reads the clock": 0}
    assert told["outcomes"] == {
        **{"render": {"result": 1}, "parse": {"result": 2 + sum(STREAMS.values())}},
        **{"tokenize": {"result": 1}, "detokenize": {"result": 1}},
    }
    assert told["table_sha256"] == sha256_of(observation_table(recorded.root, NAME, SLUG).read_bytes())
    assert recorded.counts[1] == Count(SLUG, Counter(result=ROWS), recorded=True)
    assert str(recorded.root) not in json.dumps([told, provenance(recorded.root, BROKEN)])


def test_a_checkpoint_that_cannot_be_loaded_says_so_case_by_case(recorded: Recorded) -> None:
    """In the gateway's words, once an output: by no chunk plan. The run goes on with the next checkpoint."""
    found = rows(recorded.root, BROKEN)
    assert [row["case_id"] for row in found] == [row["case_id"] for row in rows(recorded.root) if row["mode"] == "full"]
    assert {(row["outcome"], row["reason_code"], row["mode"]) for row in found} == {
        ("measurement_failed", "not-loaded", "full")
    }
    [reason] = {row["reason"] for row in found}
    assert "Directory '<model>' does not contain a valid tokenizer file" in reason
    assert recorded.counts[0] == Count(BROKEN, Counter(measurement_failed=len(FULL)), recorded=True)
    assert f"{NAME} {BROKEN}: not-loaded: " in recorded.said


# ── what is up to date ───────────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_up_to_date_is_left_alone(recorded: Recorded, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In another folder too. No gateway is started for it, and the command says so."""
    started = no_gateway(monkeypatch)
    result = command(NAME, "--root", str(root))
    assert result.exit_code == 0
    assert f"{NAME} {SLUG}: result {ROWS} (up to date)" in result.stdout
    assert f"{NAME} {BROKEN}: measurement_failed {len(FULL)} (up to date)" in result.stdout
    assert started == []
    assert files(root) == recorded.files()


def stale(root: Path) -> set[str]:
    """Return the checkpoints whose tables would be recorded again."""
    run = Run(root, read_params(root), pinned_target(NAME))
    tasks = {slug: observe.task(run, slug, observation_table(root, NAME, slug)) for slug in (SLUG, BROKEN)}
    return {slug for slug, task in tasks.items() if up_to_date(task.path, task.key) is None}


def add_parameter(line: str) -> Callable[[Path], None]:
    return lambda root: edit(root / "params.yaml", "oracle:", f"{line}\noracle:")


def shorten(path: Path) -> None:
    """Write a table without its last row."""
    table = pq.read_table(path)
    pq.write_table(table.slice(0, table.num_rows - 1), path)


MOVES = {
    "a pin": (lambda root: edit(root / "fixtures" / SLUG / "manifest.toml", '"vocab.json" = "c', '"vocab.json" = "d')),
    "the name of a parser": (
        lambda root: edit(
            root / "fixtures" / SLUG / "manifest.toml", "[inputs]", '[engines.smg]\ntool_parser = "qwen"\n\n[inputs]'
        )
    ),
    "its name": (lambda root: edit(root / "fixtures" / SLUG / "manifest.toml", "Qwen/Qwen3-8B", "Qwen/Qwen3-8B-FP8")),
    "a reference": lambda root: shorten(reference_table(root, SLUG, "parse")),
    "the table": lambda root: shorten(observation_table(root, NAME, SLUG)),
    "the provenance": lambda root: observation_table(root, NAME, SLUG).with_suffix(".json").write_text("{"),
}
"""What belongs to one checkpoint."""
SHARED = {
    "cases": lambda root: shorten(corpus_folder(root, "handmade") / "cases.parquet"),
    "the share": add_parameter("observe: {plans: drawn, share: 0.5}"),
    "the plans": add_parameter("observe: {plans: all, share: 1}"),
    "the clock": lambda root: edit(root / "params.yaml", "2026-01-15", "2026-01-16"),
}
"""What has a part in all tables."""


@pytest.mark.parametrize("what", [*MOVES, *SHARED])
def test_only_what_moved_is_recorded_again(root: Path, what: str) -> None:
    assert stale(root) == set()
    (MOVES | SHARED)[what](root)
    assert stale(root) == ({SLUG} if what in MOVES else {SLUG, BROKEN})


@pytest.mark.parametrize(
    ("path", "moved"),
    [
        ("bellwether/observing/rows.py", True),
        ("bellwether/gateways/smg.py", True),
        ("bellwether/scripted_engine/wires.py", True),
        ("environments/smg-1.13.0/requirements.txt", True),
        ("environments/clock/requirements.txt", True),
        ("bellwether/gateways/llama_cpp.py", False),
        ("bellwether/verify.py", False),
        ("environments/smg-1.9.0/requirements.txt", False),
    ],
)
def test_code_that_moved_makes_tables_stale(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, moved: bool
) -> None:
    """That of the observer, of this gateway's adapter, of the engine behind it, and pins of its environment."""
    ignored = shutil.ignore_patterns("__pycache__", "fixtures")
    stages = shutil.copytree(ROOT / "stages", tmp_path / "stages", ignore=ignored)
    monkeypatch.setattr(observe, "__file__", str(stages / "bellwether" / "observe.py"))
    monkeypatch.setattr(observe, "ENVIRONMENTS", stages / "environments")
    assert stale(root) == set()
    with (stages / path).open("a") as file:
        file.write("# moved\n")
    assert stale(root) == ({SLUG, BROKEN} if moved else set())


def test_what_has_no_part_in_a_table_moves_nothing(root: Path) -> None:
    """What engines are asked, pins of how files are obtained, and tables of others."""
    add_parameter("witness: {plans: all, share: 0.5}")(root)
    edit(root / "fixtures" / SLUG / "manifest.toml", 'tool_parser = "hermes"', 'tool_parser = "qwen"')  # of vLLM
    (root / "fixtures" / SLUG / "materials.parquet").write_bytes(b"")
    assert stale(root) == set()


# ── the same bytes ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_two_recordings_are_equal_to_the_byte(recorded: Recorded, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In another folder, by other ports, in parts of another size, several at a time: tables and provenance alike."""
    small_parts(monkeypatch, 7)
    monkeypatch.setattr(Smg, "concurrency", 3)
    before = {name: (folder(root) / name).stat().st_mtime_ns for name in recorded.files()}
    result = command(NAME, "--force", "--root", str(root))
    assert result.exit_code == 0, result.output
    assert "up to date" not in result.stdout
    assert all((folder(root) / name).stat().st_mtime_ns != moment for name, moment in before.items())
    assert files(root) == recorded.files()


def small_parts(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(observe, "PART_ROWS", size)
    monkeypatch.setattr(parts, "PART_ROWS", size)


class Enough(Exception):
    """Raised by a test in the middle of a run."""


def test_an_interrupted_run_goes_on_where_it_was(
    recorded: Recorded, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is kept is not asked again, the other checkpoint is not touched, and the bytes are those of one run."""
    small_parts(monkeypatch, 16)
    observation_table(root, NAME, SLUG).unlink()
    gateways: list[Smg] = []

    def start(root: Path) -> Smg:
        gateways.append(PINNED[NAME].start(root))
        return gateways[-1]

    def stop(path: Path) -> None:
        if path.stem == "000002":
            raise Enough

    run = Run(root, read_params(root), replace(PINNED[NAME], start=start), part_done=stop)
    tasks = [observe.task(run, slug, observation_table(root, NAME, slug)) for slug in (SLUG, BROKEN)]
    with pytest.raises(Enough):
        observe.observe(run, tasks)
    assert not alive(gateways[0].pid)
    kept = sorted(path.name for path in parts.so_far(tasks[0].path))
    assert kept == ["000000.parquet", "000001.parquet", "000002.parquet"]
    written: list[str] = []
    again = replace(run, part_done=lambda path: written.append(path.stem))
    counts = observe.observe(again, tasks)
    assert [(count.slug, count.recorded) for count in counts] == [(SLUG, True), (BROKEN, False)]
    assert written == ["000003", "000004", "000005"]
    assert files(root) == recorded.files()


HOST = """
import signal
import sys
import time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job inherits that it is ignored
from bellwether import observe
from bellwether.cli import cli
from bellwether.observing import parts
from bellwether.observing.parts import Parts
observe.PART_ROWS = parts.PART_ROWS = 1
add = Parts.add
def slowly(self, rows):
    time.sleep(0.05)
    return add(self, rows)
Parts.add = slowly
cli(["observe", {name!r}, {slug!r}, "--root", {root!r}])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a gateway with a program that is killed")
@pytest.mark.parametrize("send", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_ended_leaves_no_process(
    recorded: Recorded, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, send: signal.Signals
) -> None:
    """Ctrl-C and SIGTERM are a sentence and no verdict, and leave no temporary file. What was recorded stays, and the
    next run goes on."""
    observation_table(root, NAME, SLUG).unlink()
    host = tmp_path / "host.py"
    host.write_text(HOST.format(name=NAME, slug=SLUG, root=str(root)))
    temporary = tmp_path / "t"
    temporary.mkdir()
    paths = {**os.environ, "PYTHONPATH": str(ROOT / "stages"), "TMPDIR": str(temporary)}
    started: list[int] = []
    with subprocess.Popen([sys.executable, str(host)], stderr=subprocess.PIPE, text=True, env=paths) as running:
        first = folder(root) / f"{SLUG}.parts" / "000000.parquet"
        wait_for(lambda: first.exists() or running.poll() is not None)
        started += descendants(running.pid)
        running.send_signal(send)
        said = running.stderr.read()
    wait_for(lambda: not any(map(alive, started)))
    assert started, said
    if send != signal.SIGKILL:
        assert running.returncode == 2
        assert list(temporary.iterdir()) == []
        assert "error: interrupted\nnext:  Nothing half-written is left; run the same command again.\n" in said
        assert "Traceback" not in said
    left = {path.name for path in folder(root).iterdir()}
    assert {f"{BROKEN}.parquet", f"{BROKEN}.json"} <= left
    assert f"{SLUG}.parquet" not in left
    if send == signal.SIGINT:
        small_parts(monkeypatch, 1)
        kept = len(parts.so_far(observation_table(root, NAME, SLUG)))
        assert 0 < kept < ROWS
        observe.main(root, NAME)
        assert files(root) == recorded.files()


def descendants(pid: int) -> list[int]:
    return [found for child in children(pid) for found in (child, *descendants(child))]


# ── the scope ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Pair:
    """A gateway in this process that serves two checkpoints at a time, and none before both are open."""

    plans, concurrency, checkpoints, version = frozenset[str](), 1, 2, "1.13.0"
    facts: dict[str, Any] = {}  # noqa: RUF012
    kinds = frozenset({"tokenize"})

    def __init__(self, *, ends: str | None = None) -> None:
        self.ends = ends
        self.closed: list[str] = []

    async def __aenter__(self) -> Pair:
        self._both = asyncio.Barrier(2)
        return self

    async def __aexit__(self, *exc: object) -> None:
        pass

    @asynccontextmanager
    async def open(self, served: Served) -> AsyncIterator[Pair]:
        await asyncio.wait_for(self._both.wait(), 10)
        try:
            if served.slug == self.ends:
                raise GatewayError("it ended")
            yield self
        finally:
            self.closed.append(served.slug)

    async def tokenize(self, text: str) -> list[int]:
        if self.ends is not None:
            await asyncio.sleep(60)  # until it is cancelled
        return [1, 2, 3]


def test_two_checkpoints_are_served_at_a_time_where_a_gateway_can(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has its own table, and counts are in the order asked for."""
    monkeypatch.setattr(observe, "pinned_target", lambda name: replace(pinned_target(name), start=lambda root: Pair()))
    counts = observe.main(root, NAME, [SLUG, BROKEN], force=True)
    assert [count.slug for count in counts] == [SLUG, BROKEN]
    for slug in (SLUG, BROKEN):
        assert [row["output_ids"] for row in rows(root, slug)] == [[1, 2, 3]]
        assert {row["checkpoint"] for row in rows(root, slug)} == {slug}


def test_a_gateway_that_ends_under_one_checkpoint_ends_the_other(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason comes through as it is, and what was open is closed before it does."""
    pair = Pair(ends=BROKEN)
    monkeypatch.setattr(observe, "pinned_target", lambda name: replace(pinned_target(name), start=lambda root: pair))
    with pytest.raises(GatewayError, match="it ended"):
        observe.main(root, NAME, [SLUG, BROKEN], force=True)
    assert sorted(pair.closed) == [BROKEN, SLUG]


def test_tables_of_checkpoints_that_left_the_scope_are_removed(
    recorded: Recorded, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the scope is recorded, not when one checkpoint is."""
    no_gateway(monkeypatch)
    edit(root / "params.yaml", f"[{BROKEN}, {SLUG}]", f"[{SLUG}]")
    for slug in (BROKEN, SLUG):  # an interrupted run of what is up to date, or gone
        (folder(root) / f"{slug}.parts").mkdir()
    observe.main(root, NAME, [SLUG])
    assert {path.name for path in folder(root).iterdir()} == {*recorded.files(), f"{BROKEN}.parts"}
    observe.main(root, NAME)
    assert sorted(files(root)) == [f"{SLUG}.json", f"{SLUG}.parquet"]


def test_an_unknown_target_is_a_sentence(root: Path) -> None:
    """With the names there are; no traceback, and nothing is touched."""
    result = command("smg-0", "--root", str(root))
    assert result.exit_code == 2
    assert "error: there is no pinned target 'smg-0'\n" in result.output
    assert all(name in result.output for name in PINNED)


def test_changed_inputs_and_missing_references_stop_the_recording(
    recorded: Recorded, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of other bytes than the pinned ones would be nobody's. What is recorded stays."""
    started = no_gateway(monkeypatch)
    shutil.move(reference_table(root, BROKEN, "parse"), root / "parse.parquet")
    with pytest.raises(TableError, match=r"broken/parse/reference\.parquet does not exist"):
        observe.main(root, NAME)
    assert started == []
    config = inputs_folder(root, SLUG) / "config.json"
    config.write_bytes(config.read_bytes() + b"\n")
    with pytest.raises(PinMismatch, match=r"config\.json: expected sha256"):
        observe.main(root, NAME, [SLUG], force=True)
    assert files(root) == recorded.files()
