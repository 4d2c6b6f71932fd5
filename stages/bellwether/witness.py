"""Stage `witness`: what one engine release makes of the cases in scope, one table per checkpoint.

The engine is started once and serves all checkpoints. A checkpoint whose table was recorded from the same bytes by the
same code is left alone, so an interrupted run goes on where it was, and a partly stale one records what moved. What
goes wrong with a case, or with loading a checkpoint, is a row that says so: never evidence, and no reason to stop.
"""

from __future__ import annotations

import json
import threading
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bellwether.environments import ENVIRONMENTS, environment
from bellwether.freshness import Count, count_of, remove_others, up_to_date
from bellwether.layout import corpus_folder, inputs_folder, reference_table, witness_table
from bellwether.materials.pins import sha256_of, sha256_of_file, verify
from bellwether.oracles.prompts import HUB_TEMPLATE
from bellwether.params import Manifest, Params, read_manifest, read_params
from bellwether.progress import Progress, say
from bellwether.tables import REFERENCE, WITNESS, TableWriter, check
from bellwether.whole import write_whole
from bellwether.witnesses import answers, vllm_rust
from bellwether.witnesses.conversation import Conversation, Respondents
from bellwether.witnesses.engines import PARSERS, Engine, engine, options_of
from bellwether.witnesses.outcome import Failed, NotLoaded, Outcome, lasting
from bellwether.witnesses.process import Program, Server
from bellwether.witnesses.questions import RECORDED, Ask, Questions

JOBS = 2
"""Checkpoints at a time: an engine has its own processor time for each."""
CODE = (
    *("chunk_plans.py", "corpora/store.py", "digests.py", "freshness.py", "tables.py", "witness.py"),
    *("witnesses/answers.py", "witnesses/conversation.py", "witnesses/outcome.py", "witnesses/questions.py"),
    "witnesses/scope.py",
)
"""Modules of this package that have a part in a table; when one changes, tables are recorded again. What a pin or the
registry of engines says to a table is taken by value."""
HTTP_CODE = ("witnesses/vllm_rust.py",)
PROCESS_CODE = ("witnesses/process.py",)
INSIDE = ("jail.py", "serve.py")
"""The same, of stages/environments. An engine's own folder there counts whole."""


@dataclass(frozen=True, slots=True)
class _Task:
    """One checkpoint to record."""

    manifest: Manifest
    options: dict[str, str]
    kinds: tuple[str, ...]
    key: str


def main(
    root: Path, name: str, slugs: Sequence[str] = (), jobs: int | None = None, *, force: bool = False
) -> list[Count]:
    """Record the tables of engine release `name` for `slugs`, else for the scope; return a count per checkpoint.

    Without slugs, tables of checkpoints that left the scope are removed. `force` records what is up to date too.

    Raises:
        WitnessError, MaterialError: the engine or its environment cannot be had, or it ended for good. Tables recorded
            until then stay.
        ParamsError, PinMismatch, InputUnavailable, TableError: what it reads is not what is pinned.
    """
    root = root.resolve()  # an engine works in another folder
    params, release = read_params(root), engine(name)
    if not slugs:
        remove_others(witness_table(root, name, "any").parent, params.checkpoints)
    tasks = [_task(root, params, release, slug) for slug in slugs or params.checkpoints]
    paths = {task.manifest.slug: witness_table(root, name, task.manifest.slug) for task in tasks}
    counts = {task.manifest.slug: None if force else up_to_date(paths[task.manifest.slug], task.key) for task in tasks}
    todo = [task for task in tasks if counts[task.manifest.slug] is None]
    if todo:
        counts |= {count.slug: count for count in _record_all(root, params, release, todo, jobs or JOBS)}
    return list(counts.values())


def _record_all(root: Path, params: Params, release: Engine, tasks: list[_Task], jobs: int) -> list[Count]:
    respondents = start(root, release)
    progress = _SharedProgress(release.name)
    try:
        with ThreadPoolExecutor(jobs) as pool:
            running = [pool.submit(_record, root, params, release, respondents, task, progress) for task in tasks]
            try:
                counts = [done.result() for done in as_completed(running)]
            except BaseException:
                respondents.close()  # whoever waits for an answer learns of it
                pool.shutdown(cancel_futures=True)
                raise
    finally:
        respondents.close()
    progress.finish()
    return counts


def start(root: Path, release: Engine) -> Respondents:
    """Return the engine, ready to load checkpoints.

    Raises:
        WitnessError, MaterialError, VersionMismatch: it cannot be started, or its environment cannot be had.
    """
    if release.over_http:
        pin = vllm_rust.read_executable(ENVIRONMENTS / release.folder / "executable.toml")
        return vllm_rust.Fronts(vllm_rust.obtain(root, pin, say))
    built = environment(release.folder)
    say(f"{release.name}: importing the engine")
    script = ENVIRONMENTS / release.folder / "witness.py"
    return Server(Program(release.name, script, built.python, release.variables, bytecode=built.bytecode))


def converse(
    root: Path, params: Params, release: Engine, respondents: Respondents, slug: str, options: Mapping[str, str]
) -> Conversation:
    """Have the engine load a checkpoint, `options` as `options_of` returns them.

    Raises:
        NotLoaded: it cannot.
        WitnessError: the engine as a whole is gone.
    """
    settings = {
        **{"model": str(inputs_folder(root, slug)), "slug": slug, "clock": params.clock.isoformat()},
        **{parser: options.get(parser) for parser in PARSERS},
        "options": {option: value for option, value in options.items() if option not in PARSERS},
    }
    return Conversation(respondents, settings, lambda words: say(f"{release.name} {words}"))


def _record(
    root: Path, params: Params, release: Engine, respondents: Respondents, task: _Task, progress: _SharedProgress
) -> Count:
    """Record one checkpoint: the table, then its provenance, each whole or not at all."""
    slug = task.manifest.slug
    folder = inputs_folder(root, slug)
    verify(task.manifest, folder)
    path = witness_table(root, release.name, slug)
    passing = {str(folder): "<model>", **respondents.passing}
    head = {"checkpoint": slug, "engine": release.engine, "engine_version": release.version}
    conversation: Conversation | None = None
    not_loaded: str | None = None
    try:
        conversation = converse(root, params, release, respondents, slug, task.options)
    except NotLoaded as failure:
        not_loaded = lasting(str(failure), passing)
        say(f"{release.name} {slug}: not loaded: {failure}")
    facts = conversation.facts if conversation else None
    questions = Questions(root, params, task.manifest, task.kinds, clock=bool(facts and facts.get("clock")))
    asked: Counter[str] = Counter()
    outcomes: Counter[tuple[str, str]] = Counter()

    def rows() -> Iterator[answers.Row]:
        asks = (_by(release.plans, ask) for ask in questions.stream())
        for ask, outcome in _answered(conversation, not_loaded, asks):
            asked[ask.kind] += 1
            for row in answers.rows(ask, outcome, head, passing):
                outcomes[row["kind"], row["outcome"]] += 1
                yield row
            progress.advance(1)
        respondents.require_open()

    with conversation or nullcontext(), TableWriter(path, WITNESS) as writer:
        progress.add(questions.count())
        writer.write_rows(rows())
    provenance = {
        **{"engine": release.engine, "engine_version": release.version, "checkpoint": slug},
        **{"model": task.manifest.model, "revision": task.manifest.revision, "options": task.options},
        "scope": {"plans": params.witness.plans, "share": params.witness.share}
        | ({"only": sorted(release.plans)} if release.plans else {}),
        "kinds": list(task.kinds),
        **{"asked": dict(asked), "not_asked": questions.not_asked()},
        "outcomes": {
            kind: {name: count for (of, name), count in sorted(outcomes.items()) if of == kind} for kind in asked
        },
        **{"facts": facts, "not_loaded": not_loaded},
        **{"key": task.key, "table_sha256": sha256_of_file(path)},
    }
    write_whole(path.with_suffix(".json"), json.dumps(provenance, indent=2, ensure_ascii=False) + "\n")
    return count_of(provenance, recorded=True)


def _by(plans: frozenset[str] | None, ask: Ask) -> Ask:
    """Return the question with no other chunk plans than these."""
    if plans is None or "plans" not in ask.question:
        return ask
    kept = {name: lengths for name, lengths in ask.question["plans"].items() if name in plans}
    return replace(ask, question=ask.question | {"plans": kept})


def _answered(
    conversation: Conversation | None, not_loaded: str | None, asks: Iterator[Ask]
) -> Iterator[tuple[Ask, Outcome]]:
    """Yield each question with what came of it, in order."""
    if conversation is None:
        yield from ((ask, Failed("not-loaded", not_loaded or "")) for ask in asks)
        return
    waiting: deque[Ask] = deque()

    def questions() -> Iterable[dict[str, Any]]:
        for ask in asks:
            waiting.append(ask)
            yield ask.question

    for outcome in conversation.outcomes(questions()):
        yield waiting.popleft(), outcome


class _SharedProgress:
    """Progress of several threads. What there is to do becomes known checkpoint by checkpoint."""

    def __init__(self, label: str) -> None:
        self._progress = Progress(label, 0)
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        with self._lock:
            self._progress.total += count

    def advance(self, count: int) -> None:
        with self._lock:
            self._progress.advance(count)

    def finish(self) -> None:
        self._progress.finish()


# ── what is up to date ───────────────────────────────────────────────────────────────────────────────────────────────


def _task(root: Path, params: Params, release: Engine, slug: str) -> _Task:
    manifest = read_manifest(root, slug)
    where = f"fixtures/{slug}/manifest.toml: [engines.{release.engine}]"
    options = options_of(release, manifest.engines.get(release.engine, {}), where)
    parses = not options.keys().isdisjoint(PARSERS)
    by_code = release.renders_templates and manifest.authority["render"][0] != HUB_TEMPLATE
    without = {kind for kind, out in (("parse", not parses), ("render", by_code)) if out}
    kinds = tuple(kind for kind in release.kinds if kind not in without)
    for table in sorted({RECORDED[kind] for kind in kinds}):
        check(reference_table(root, slug, table), REFERENCE)
    return _Task(manifest, options, kinds, _key(root, params, release, manifest, options, kinds))


def _key(
    root: Path, params: Params, release: Engine, manifest: Manifest, options: dict[str, str], kinds: tuple[str, ...]
) -> str:
    """Return the sha256 over all that has a part in a table: code, scope, pins, and the tables it is asked from."""
    package = Path(__file__).parent
    way, shared = (HTTP_CODE, ()) if release.over_http else (PROCESS_CODE, INSIDE)
    inside = [ENVIRONMENTS / name for name in (*shared, *release.shared)]
    inside += [path for path in sorted((ENVIRONMENTS / release.folder).rglob("*")) if _counts(path)]
    tables = [reference_table(root, manifest.slug, name) for name in sorted({RECORDED[kind] for kind in kinds})]
    for corpus in params.corpora:
        tables += [corpus_folder(root, corpus) / f"{name}.parquet" for name in ("cases", "requests")]
    parts = {
        "code": {name: sha256_of_file(package / name) for name in (*CODE, *way)},
        "inside": {path.relative_to(ENVIRONMENTS).as_posix(): sha256_of_file(path) for path in inside},
        "release": [release.name, dict(release.variables), sorted(release.plans or ())],
        "scope": [params.witness.plans, params.witness.share, params.clock.isoformat(), list(params.corpora)],
        "checkpoint": [manifest.slug, dict(manifest.inputs), manifest.authority["parse"][0], options, kinds],
        "tables": {path.relative_to(root).as_posix(): sha256_of_file(path) for path in tables},
    }
    return sha256_of(json.dumps(parts, sort_keys=True).encode())


def _counts(path: Path) -> bool:
    return path.is_file() and "__pycache__" not in path.parts
