"""Stage `models`: the list of checkpoints engines name, in fixtures/models.jsonl, with what is known of each.

The first line says what the list was made from; every other line is one checkpoint, or one architecture for which no
engine names any.

| status | rule, the first that holds |
|---|---|
| recorded | params.yaml lists its slug, or the slug of its group |
| no-checkpoint-named | registries name an architecture only |
| not-on-hub, gated, invalid-*-config, needs-vendor-code, pending, … | the Hub said so, see `registries.hub` |
| pending | a manifest pins it; params.yaml does not list it |
| hub-error-* | the Hub was asked and gave no answer; says nothing about the checkpoint |
| unchecked | the Hub was never asked |

| tier | rule, the first that holds |
|---|---|
| 1 | TIER_1 names it, or its owner |
| 2 | it was made at most 12 months before the Hub was asked |
| 3 | it was made earlier |
| null | the Hub did not say when it was made |

What the Hub once said stays until the Hub says something else: neither a run that does not ask it nor a question that
fails changes a line.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from bellwether.errors import Finding, InputUnavailable, TableError
from bellwether.params import read_manifest, read_params
from bellwether.progress import say
from bellwether.registries import hub, sglang, vllm
from bellwether.registries.catalogue import Catalogue, Checkpoint, catalogue
from bellwether.registries.hub import Answer, NoAnswer
from bellwether.registries.pinned import origin, pinned
from bellwether.whole import write_whole

SCHEMA_VERSION = "1"
TIER_1 = frozenset(
    {
        *("deepseek-ai/DeepSeek-V4.1-Flash", "MiniMaxAI/MiniMax-M3", "zai-org/GLM-5.3-Flash", "tencent/Hy4-preview"),
        "Qwen/*",
    }
)
RECORDED, UNNAMED, UNCHECKED, PENDING, HUB_ERROR = (
    *("recorded", "no-checkpoint-named", "unchecked", "pending"),
    "hub-error-",
)
TOLD = 20
"""How many lines a finding names."""
SAY_EVERY = 50


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the list; its fields are the keys, in this order."""

    model: str | None
    """Repository on the Hub; null where registries name an architecture only."""
    revision: str | None
    """Commit of the manifest, else the one an engine asks for, else the Hub's newest when it was asked."""
    tier: int | None
    status: str
    created: str | None
    """Day the repository was made, YYYY-MM-DD; null when the Hub has not said."""
    downloads: int | None
    """Of the 30 days before `checked`."""
    modality: str | None
    """text or multimodal; null when neither an engine nor the Hub says."""
    sources: tuple[str, ...]
    """Who names it, see `registries.catalogue`."""
    architectures: tuple[str, ...]
    slug: str | None
    """Of its manifest."""
    group: str | None
    """Slug of the checkpoint whose recording serves it."""
    checked: str | None
    """Day the Hub answered, YYYY-MM-DD."""
    hub: str | None
    """What the Hub said on that day, one of the statuses of `registries.hub`, or `hub-error-*` when it never answered;
    `status` has it too unless the project's own records say more."""

    @property
    def key(self) -> str:
        return self.model or "/".join(self.architectures)


@dataclass(frozen=True, slots=True)
class Models:
    """The whole list."""

    engines: Mapping[str, Mapping[str, str | None]]
    """Engine → package, version, commit and sha256 of the archive its registries were read from."""
    excluded: Mapping[str, tuple[str, ...]]
    """Rule → models and architectures left out, sorted."""
    lines: tuple[Line, ...]
    """By tier, in it by downloads, then by name; lines without a checkpoint last."""

    @property
    def hub_day(self) -> str | None:
        """The last day on which the Hub answered."""
        return max((line.checked for line in self.lines if line.checked), default=None)


Ask = Callable[[str, str | None], Answer]
"""Model and revision → the Hub's answer; raises NoAnswer."""


def main(root: Path, *, ask_hub: bool) -> Models:
    """Write fixtures/models.jsonl and return what it holds; `ask_hub` asks the Hub about every checkpoint first.

    Raises:
        InputUnavailable: a package cannot be had, or the Hub gave no answer at all. Nothing is written.
        RegistryError, MaterialError: a registry is missing, or is not what is pinned or expected.
        TableError: the stored list cannot be read.
    """
    models = current(root, ask_hub=ask_hub)
    write_whole(path(root), render(models))
    return models


def check(root: Path, *, ask_hub: bool) -> Models:
    """Make the list again and compare it with the stored one; writes nothing. Downloads may move without a finding.

    Raises:
        Finding: there is no stored list, or lines differ. Names them. Otherwise as `main`.
    """
    stored = read(root)
    if stored is None:
        raise Finding(f"{path(root)} does not exist", next_step="Run `bellwether models`.")
    models = current(root, ask_hub=ask_hub)
    if wrong := differences(stored, models, moving=ask_hub):
        rest = f"\n  and {len(wrong) - TOLD:,} more" if len(wrong) > TOLD else ""
        raise Finding(
            f"{path(root)} differs from the registries in {len(wrong):,} places\n  " + "\n  ".join(wrong[:TOLD]) + rest,
            next_step="Run `bellwether models` and look at the difference.",
        )
    if not ask_hub and render(models) != path(root).read_text("utf-8"):
        raise Finding(f"{path(root)} is written in another way", next_step="Run `bellwether models`.")
    return models


def path(root: Path) -> Path:
    """Where the list lies."""
    return root / "fixtures" / "models.jsonl"


def current(root: Path, *, ask_hub: bool, ask: Ask = hub.ask) -> Models:
    """Return the list as registries, manifests, the stored list and, when asked, the Hub make it today."""
    params, stored = read_params(root), read(root)
    named, engines = registries(root)
    slugs = sorted(file.parent.name for file in (root / "fixtures").glob("*/manifest.toml"))
    found = catalogue(named, [read_manifest(root, slug) for slug in slugs])
    before = {line.key: line for line in stored.lines} if stored else {}
    unlisted = {rule: names for rule, names in (stored.excluded if stored else {}).items() if rule in HUB_RULES}
    answers = _asked(found, unlisted, ask) if ask_hub else {}
    return assemble(found, engines, frozenset(params.checkpoints), before, unlisted, answers, datetime.now(UTC).date())


HUB_RULES = ("pipeline", "quantised-base")
"""Rules of exclusion that only the Hub can decide; what it said stays as long as it says nothing else."""


def assemble(
    found: Catalogue,
    engines: Mapping[str, Mapping[str, str | None]],
    recorded: frozenset[str],
    before: Mapping[str, Line],
    unlisted: Mapping[str, Sequence[str]],
    answers: Mapping[str, Answer | NoAnswer],
    today: date,
) -> Models:
    """Return the list.

    `recorded` are the slugs in scope, `before` the stored lines by key, `unlisted` what the Hub excluded before, and
    `answers` what it says today, by model; a model that is not in `answers` was not asked for.
    """
    excluded = {rule: set(names) for rule, names in found.excluded.items()} | {rule: set() for rule in HUB_RULES}
    lines = []
    for checkpoint in found.checkpoints:
        answer = answers.get(checkpoint.model or "")
        rule = answer.excluded if isinstance(answer, Answer) else None
        if not isinstance(answer, Answer):  # it was not asked, or did not answer: what it said before holds
            rule = next((rule for rule, names in unlisted.items() if checkpoint.model in names), None)
        if rule and checkpoint.model and checkpoint.slug is None:
            excluded[rule].add(checkpoint.model)
        else:
            lines.append(_line(checkpoint, recorded, before.get(checkpoint.key), answer, today))
    return Models(
        engines=engines,
        excluded={rule: tuple(sorted(names)) for rule, names in sorted(excluded.items())},
        lines=tuple(sorted(lines, key=_place)),
    )


def registries(root: Path) -> tuple[dict[str, list], dict[str, dict[str, str | None]]]:
    """Return source → the architectures it names, and engine → what it was read from.

    Raises:
        InputUnavailable, PinMismatch, MaterialError: a package cannot be had, or is not what is pinned.
        RegistryError: a registry is written in another way.
    """
    readers = {"vllm": vllm, "sglang": sglang}  # a gateway names no checkpoints
    found = pinned(root, readers)
    files = {engine: one.files for engine, one in found.items()}
    engines = {engine: origin(one.package, readers[engine].commit(one.files)) for engine, one in found.items()}
    return {
        "vllm-tests": vllm.examples(files["vllm"]),
        "vllm-docs": vllm.documented(files["vllm"]),
        "vllm-registry": vllm.architectures(files["vllm"]),
        "sglang": sglang.architectures(files["sglang"]),
    }, engines


def tier(model: str, created: str | None, checked: str | None) -> int | None:
    """Return the tier of a checkpoint made on day `created`, where the Hub was asked on day `checked`."""
    if model in TIER_1 or f"{model.partition('/')[0]}/*" in TIER_1:
        return 1
    if created is None or checked is None:
        return None
    day = date.fromisoformat(checked)
    year_before = day.replace(year=day.year - 1, day=min(day.day, 28) if day.month == 2 else day.day)
    return 2 if date.fromisoformat(created) >= year_before else 3


def differences(stored: Models, models: Models, *, moving: bool) -> list[str]:
    """Return what differs between two lists, one sentence each. `moving` ignores what changes from day to day."""
    found = [
        f"{engine}: {stored.engines.get(engine)} is stored, {models.engines.get(engine)} is pinned"
        for engine in sorted({*stored.engines, *models.engines})
        if stored.engines.get(engine) != models.engines.get(engine)
    ]
    for rule in sorted({*stored.excluded, *models.excluded}):
        names = set(stored.excluded.get(rule, ())) ^ set(models.excluded.get(rule, ()))
        found += [f"{name}: excluded as {rule} in one of the two" for name in sorted(names)]
    old, new = ({line.key: line for line in side.lines} for side in (stored, models))
    found += [f"{key}: is no longer named" for key in sorted(old.keys() - new.keys())]
    found += [f"{key}: is not in the list" for key in sorted(new.keys() - old.keys())]
    for key in sorted(old.keys() & new.keys()):
        before, after = asdict(old[key]), asdict(new[key])
        for name in before:
            if before[name] != after[name] and not (moving and name in ("downloads", "checked")):
                found.append(f"{key}: {name} is {before[name]!r} in the list, and should be {after[name]!r}")
    return found


def counts(models: Models) -> str:
    """Return lines per status and tier as a table in text."""
    from tabulate import tabulate

    by = Counter((line.status, line.tier) for line in models.lines)
    tiers: tuple[int | None, ...] = (1, 2, 3, None)
    rows = [
        [status, *(by[status, one] for one in tiers), sum(by[status, one] for one in tiers)]
        for status in sorted({status for status, _ in by})
    ]
    total = ["all", *(sum(by[status, one] for status, *_ in rows) for one in tiers), len(models.lines)]
    return tabulate([*rows, total], headers=["status", "tier 1", "tier 2", "tier 3", "no tier", "all"])


def render(models: Models) -> str:
    """Return the list as JSON Lines: the header, then one line per checkpoint."""
    header = {
        "schema_version": SCHEMA_VERSION,
        "engines": models.engines,
        "hub_day": models.hub_day,
        "excluded": models.excluded,
    }
    return "".join(_json(value) + "\n" for value in (header, *(asdict(line) for line in models.lines)))


def read(root: Path) -> Models | None:
    """Return the stored list, or None when there is none.

    Raises:
        TableError: a line is not JSON, has other keys, or stands there twice. Names the line.
    """
    try:
        lines = path(root).read_text("utf-8").splitlines()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise _broken(root, 1, str(error)) from None
    values = []
    for number, text in enumerate(lines, 1):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise _broken(root, number, str(error)) from None
        keys = {"schema_version", "engines", "hub_day", "excluded"} if number == 1 else set(Line.__slots__)
        if not isinstance(value, dict) or set(value) != keys:
            raise _broken(root, number, "it has other keys")
        values.append(value)
    if not values or values[0]["schema_version"] != SCHEMA_VERSION:
        raise _broken(root, 1, f"it is not of schema version {SCHEMA_VERSION}")
    header, *rows = values
    found = [
        Line(**{**row, "sources": tuple(row["sources"]), "architectures": tuple(row["architectures"])}) for row in rows
    ]
    if len({line.key for line in found}) != len(found):
        raise _broken(root, 1, "a checkpoint has two lines")
    excluded = {rule: tuple(names) for rule, names in header["excluded"].items()}
    return Models(header["engines"], excluded, tuple(found))


def _asked(found: Catalogue, unlisted: Mapping[str, Sequence[str]], ask: Ask) -> dict[str, Answer | NoAnswer]:
    """Ask about every checkpoint; one that cannot be asked for because the Hub went away has NoAnswer too.

    Raises:
        InputUnavailable: not one question was answered.
    """
    wanted = {
        checkpoint.model: checkpoint.revision or checkpoint.asked
        for checkpoint in found.checkpoints
        if checkpoint.model
    }
    answers: dict[str, Answer | NoAnswer] = {}
    for number, (model, revision) in enumerate(wanted.items(), 1):
        try:
            answers[model] = ask(model, revision)
        except NoAnswer as error:
            answers[model] = error
            if error.lost:
                say(f"the Hub is not asked about the other {len(wanted) - number:,} checkpoints: {error}")
                answers = dict.fromkeys(wanted, error) | answers
                break
        if number % SAY_EVERY == 0 or number == len(wanted):
            say(f"asked the Hub about {number:,} of {len(wanted):,} checkpoints")
    if not any(isinstance(answer, Answer) for answer in answers.values()):
        reason = next((str(answer) for answer in answers.values()), "there is nothing to ask for")
        raise InputUnavailable(
            f"the Hub answered no question ({reason})",
            next_step="Make the Hub reachable (HF_ENDPOINT), or leave --hub away; nothing was written.",
        )
    return answers


def _line(
    checkpoint: Checkpoint,
    recorded: frozenset[str],
    before: Line | None,
    answer: Answer | NoAnswer | None,
    today: date,
) -> Line:
    line = Line(
        model=checkpoint.model,
        revision=checkpoint.revision,
        tier=None,
        status=UNNAMED,
        created=before.created if before else None,
        downloads=before.downloads if before else None,
        modality=checkpoint.modality,
        sources=checkpoint.sources,
        architectures=checkpoint.architectures,
        slug=checkpoint.slug,
        group=checkpoint.group,
        checked=before.checked if before else None,
        hub=before.hub if before else None,
    )
    if checkpoint.model is None:
        return line
    if isinstance(answer, Answer):
        line = replace(
            line,
            revision=checkpoint.revision or answer.revision,
            created=answer.created,
            downloads=answer.downloads,
            modality=checkpoint.modality or answer.modality,
            checked=today.isoformat(),
            hub=answer.status,
        )
    elif before:  # what was known stays, whether or not the Hub was asked
        line = replace(
            line,
            revision=checkpoint.revision or (before.revision if before.checked else None),
            modality=checkpoint.modality or (before.modality if before.checked else None),
        )
    if isinstance(answer, NoAnswer) and line.checked is None:
        line = replace(line, hub=f"{HUB_ERROR}{answer.reason}")
    return replace(
        line, tier=tier(checkpoint.model, line.created, line.checked), status=_status(checkpoint, recorded, line.hub)
    )


def _status(checkpoint: Checkpoint, recorded: frozenset[str], said: str | None) -> str:
    if checkpoint.slug in recorded or checkpoint.group in recorded:
        return RECORDED
    if said and not said.startswith(HUB_ERROR):
        return said
    if checkpoint.slug:
        return PENDING
    return said or UNCHECKED


def _place(line: Line) -> tuple[Any, ...]:
    unknown = line.downloads is None
    return line.model is None, line.tier or 4, unknown, -(line.downloads or 0), line.key


def _broken(root: Path, number: int, reason: str) -> TableError:
    return TableError(
        f"{path(root)}, line {number}: {reason}", next_step="Restore the file from Git, then run `bellwether models`."
    )


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
