"""The rule for what goes wrong between two questions, with respondents made up for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from bellwether.errors import WitnessError
from bellwether.witnesses.conversation import AHEAD, GIVE_UP, Conversation
from bellwether.witnesses.outcome import Answered, Failed, Lost, NotLoaded, Outcome


class Scripted:
    """Respondents that do to each question what stands in it; each counts in `opened`."""

    passing: Mapping[str, str] = {}

    def __init__(self, loads: int = 1000) -> None:
        self.opened = 0
        self.asked: list[str] = []
        self.longest = 0
        self._loads = loads

    def open(self, settings: Mapping[str, Any]) -> One:
        if self.opened == self._loads:
            raise NotLoaded("no memory")
        self.opened += 1
        return One(self)

    def close(self) -> None:
        raise AssertionError


class One:
    """One of them."""

    def __init__(self, engine: Scripted) -> None:
        self.facts: dict[str, Any] = {}
        self.ends = False
        self._engine = engine
        self._queue: list[tuple[int, str]] = []

    def ask(self, number: int, question: Mapping[str, Any]) -> None:
        self._queue.append((number, question["act"]))
        self._engine.longest = max(self._engine.longest, len(self._queue))

    def answer(self, number: int) -> Outcome:
        found, act = self._queue.pop(0)
        assert found == number
        self._engine.asked.append(act)
        match act:
            case "die" | "timeout" | "rubbish":
                raise Lost(act, f"did {act}")
            case "once" if self._engine.asked.count("once") == 1:
                raise Lost("died", "did die")
            case "last":
                self.ends = True
                return Failed("MemoryError", "")
            case "gone":
                raise WitnessError("gone")
        return Answered(act)

    def last_words(self) -> str:
        return "farewell"

    def close(self) -> None:
        self._queue = []


def converse(engine: Scripted, *acts: str) -> list[Outcome]:
    conversation = Conversation(engine, {"slug": "some"}, lambda words: None)
    return list(conversation.outcomes({"act": act} for act in acts))


def test_questions_are_put_ahead_and_no_further() -> None:
    """A respondent's queue holds AHEAD questions, so that a stream of them stays a stream."""
    engine = Scripted()
    assert converse(engine, *"abcdefghijklmnopqrstuvwxyz") == [Answered(act) for act in "abcdefghijklmnopqrstuvwxyz"]
    assert engine.longest == AHEAD


@pytest.mark.parametrize("act", ["die", "rubbish"])
def test_a_lost_question_is_asked_once_more(act: str) -> None:
    """Of a new respondent; the second loss is its own."""
    engine = Scripted()
    assert converse(engine, "a", act, "b") == [Answered("a"), Failed(act, f"did {act}"), Answered("b")]
    assert engine.asked == ["a", act, act, "b"]
    assert engine.opened == 3


def test_a_question_that_found_its_respondent_dead_is_answered() -> None:
    """The one before may have done it."""
    assert converse(Scripted(), "once", "b") == [Answered("once"), Answered("b")]


def test_a_question_that_takes_too_long_is_asked_once() -> None:
    """It has had its time."""
    engine = Scripted()
    assert converse(engine, "timeout", "b") == [Failed("timeout", "did timeout"), Answered("b")]
    assert engine.asked == ["timeout", "b"]


def test_a_respondent_that_said_its_last_is_replaced_at_no_cost() -> None:
    """Its answer counts, and the next question is not asked of it."""
    engine = Scripted()
    assert converse(engine, "last", "b") == [Failed("MemoryError", ""), Answered("b")]
    assert engine.asked == ["last", "b"]
    assert engine.opened == 2


def test_an_engine_that_loses_question_after_question_is_given_up() -> None:
    """What is left fails unasked: a hang costs half a minute each."""
    engine = Scripted()
    found = converse(engine, *["timeout"] * (GIVE_UP + 5))
    assert [outcome.code for outcome in found] == ["timeout"] * GIVE_UP + ["given-up"] * 5
    assert engine.asked == ["timeout"] * GIVE_UP


def test_an_answer_in_between_begins_the_count_anew() -> None:
    """Single bad questions are no reason to give up, however many there are."""
    acts = ["timeout", "a"] * (2 * GIVE_UP)
    assert converse(Scripted(), *acts)[-1] == Answered("a")


def test_a_checkpoint_that_is_not_loaded_again_fails_the_rest() -> None:
    """Each of the rest says why."""
    found = converse(Scripted(loads=1), "a", "timeout", "b", "c")
    assert [outcome.code for outcome in found[2:]] == ["not-loaded"] * 2
    assert found[3].message == "after an earlier question: no memory"


def test_an_engine_that_is_gone_ends_the_conversation() -> None:
    """There is no row to write about the rest."""
    with pytest.raises(WitnessError):
        converse(Scripted(), "a", "gone", "b")


def test_losses_are_told_with_last_words() -> None:
    """To a person: such words may be of this run only, and stand in no row."""
    told: list[str] = []
    conversation = Conversation(Scripted(), {"slug": "some"}, told.append)
    list(conversation.outcomes([{"act": "timeout"}]))
    assert told == ["some: did timeout; last words: farewell"]
