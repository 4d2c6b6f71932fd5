"""Questions to one checkpoint in one engine, and the rule for what goes wrong: it costs the one question."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol, Self

from bellwether.witnesses.outcome import Failed, Lost, NotLoaded, Outcome

AHEAD = 8
"""Questions put before their answers are there: an engine in a process never waits for this side."""
GIVE_UP = 10
"""Questions in a row that got no answer, after which the rest is not asked."""


class Respondent(Protocol):
    """An engine that has loaded one checkpoint."""

    facts: dict[str, Any]
    """How it was called, for the provenance."""
    ends: bool
    """Whether the last answer was its last."""

    def ask(self, number: int, question: Mapping[str, Any]) -> None:
        """Put a question at the end of the queue."""

    def answer(self, number: int) -> Outcome:
        """Return what comes of question `number`, the oldest without an answer. Raises Lost."""

    def last_words(self) -> str:
        """Return the last line it printed."""

    def close(self) -> None:
        """End it."""


class Respondents(Protocol):
    """An engine, ready to load checkpoints."""

    passing: Mapping[str, str]
    """What its messages may name that belongs to this run, and a word for each."""

    def open(self, settings: Mapping[str, Any]) -> Respondent:
        """Return a respondent. Raises NotLoaded; and WitnessError when the engine as a whole is gone."""

    def require_open(self) -> None:
        """Raise WitnessError when the engine as a whole is gone: what was lost with it is no evidence of anything."""

    def close(self) -> None:
        """End it and all respondents. Another thread may be in the middle of a question."""


class Conversation:
    """Questions to one checkpoint, through as many respondents as it takes. A context manager."""

    def __init__(self, engine: Respondents, settings: Mapping[str, Any], say: Callable[[str], None]) -> None:
        """Load the checkpoint. `say` is told why a respondent was lost, in words that may be of this run only.

        Raises:
            NotLoaded, WitnessError: as `Respondents.open`.
        """
        self._engine = engine
        self._settings = settings
        self._say = say
        self._child: Respondent | None = engine.open(settings)
        self.facts = self._child.facts

    def outcomes(self, questions: Iterable[Mapping[str, Any]]) -> Iterator[Outcome]:
        """Yield what comes of each question, in order.

        A question that finds its respondent dead, or talking rubbish, is asked once more: the one before may have done
        it. After GIVE_UP lost questions in a row, or when the checkpoint cannot be loaded again, the rest fails
        unasked.

        Raises:
            WitnessError: the engine as a whole is gone.
        """
        numbered = enumerate(questions)
        waiting: deque[tuple[int, Mapping[str, Any]]] = deque()
        again, lost = -1, 0
        given_up: Failed | None = None
        while True:
            for number, question in itertools.islice(numbered, AHEAD - len(waiting)):
                waiting.append((number, question))
                if self._child is not None:
                    self._child.ask(number, question)
            if not waiting:
                return
            number = waiting[0][0]
            if self._child is None:
                waiting.popleft()
                yield given_up or Failed("given-up", "")
                continue
            try:
                outcome = self._child.answer(number)
                lost, moves_on = 0, not self._child.ends
            except Lost as loss:
                words = self._child.last_words()
                self._say(f"{self._settings['slug']}: {loss}" + (f"; last words: {words}" if words else ""))
                moves_on = False
                if again != number and loss.code != "timeout":
                    again, outcome = number, None
                else:
                    outcome, lost = Failed(loss.code, str(loss)), lost + 1
            if outcome is not None:
                waiting.popleft()
            if not moves_on:
                given_up = self._replace(waiting, lost)
            if outcome is not None:
                yield outcome

    def _replace(self, waiting: Iterable[tuple[int, Mapping[str, Any]]], lost: int) -> Failed | None:
        """Put a new respondent in the place of the one that is lost, and hand it the waiting questions."""
        self.close()
        if lost >= GIVE_UP:
            return Failed("given-up", f"{lost} questions before it, one after the other, got no answer")
        try:
            self._child = self._engine.open(self._settings)
        except NotLoaded as failure:
            return Failed("not-loaded", f"after an earlier question: {failure}")
        for number, question in waiting:
            self._child.ask(number, question)
        return None

    def close(self) -> None:
        """End the respondent there is."""
        if self._child is not None:
            self._child.close()
            self._child = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
