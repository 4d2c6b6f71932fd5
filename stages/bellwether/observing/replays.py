"""What is replayed: the questions engines are asked, one request each, and which of them a person chose.

A render, tokenize or detokenize case is one replay. An output is read once at once (`full`), and once per chunk plan as
a stream.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from bellwether.case import KINDS
from bellwether.gateways.answer import Output
from bellwether.params import Manifest, Params
from bellwether.witnesses.questions import Ask, Questions

FULL, STREAM = "full", "stream"


@dataclass(frozen=True, slots=True)
class Selection:
    """Which replays are wanted; empty for all. Patterns are those of a shell."""

    kinds: tuple[str, ...] = ()
    sets: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    """Patterns for the case id `kind/set/name`, or for its name alone."""
    modes: tuple[str, ...] = ()
    plans: tuple[str, ...] = ()
    """Patterns for chunk plans; what is answered at once is not affected."""

    def of_case(self, case_id: str) -> bool:
        _, of, name = case_id.split("/", 2)
        return _matches(of, self.sets) and (_matches(case_id, self.cases) or _matches(name, self.cases))

    def of_mode(self, mode: str, plan: str | None) -> bool:
        return (not self.modes or mode in self.modes) and (plan is None or _matches(plan, self.plans))


ALL = Selection()


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


@dataclass(frozen=True, slots=True)
class Replay:
    """One request to a gateway."""

    case_id: str
    kind: str
    mode: str
    plan: str | None
    question: dict[str, Any]
    """As `witnesses.questions` puts it."""
    output_sha256: bytes | None = None
    """Of the ids the engine gives."""

    @property
    def output(self) -> Output:
        """parse: what the engine is to say, cut by the plan."""
        ids, chunks = self.question["ids"], None
        if self.plan is not None:
            ends = accumulate(self.question["plans"][self.plan], initial=0)
            chunks = [ids[begin:end] for begin, end in pairwise(ends)]
        return Output(ids, chunks, self.question["stop_id"])


@dataclass(frozen=True, slots=True)
class Replays:
    """All replays of one checkpoint, in the order of the table."""

    root: Path
    params: Params
    manifest: Manifest
    kinds: frozenset[str]
    """What the gateway lets be seen."""
    plans: frozenset[str] | None
    """Chunk plans it can be streamed by; None for all."""
    clock: bool = False
    """Whether the gateway's templates see the clock of params.yaml. If not, what depends on it is set aside."""
    selection: Selection = ALL

    def _questions(self) -> Questions:
        kinds = tuple(kind for kind in KINDS if kind in self.kinds and _matches(kind, self.selection.kinds))
        scoped = replace(self.params, witness=self.params.observe)
        return Questions(self.root, scoped, self.manifest, kinds, self.clock)

    def not_asked(self) -> dict[str, int]:
        """Return reason → number of cases of these kinds that are set aside."""
        return self._questions().not_asked()

    def stream(self) -> Iterator[Replay]:
        """Yield the replays.

        Raises:
            TableError: a table is missing, torn or of another schema version.
        """
        for ask in self._questions().stream():
            if self.selection.of_case(ask.case_id):
                yield from self._of(ask)

    def count(self) -> int:
        """Return how many there are; takes a pass over the questions."""
        return sum(1 for _ in self.stream())

    def _of(self, ask: Ask) -> Iterator[Replay]:
        plans = ask.question.get("plans", {})
        for plan in (None, *plans):
            if plan is not None and self.plans is not None and plan not in self.plans:
                continue
            mode = FULL if plan is None else STREAM
            if self.selection.of_mode(mode, plan):
                yield Replay(ask.case_id, ask.kind, mode, plan, ask.question, ask.output_sha256)
