"""Replays several at a time: order, endings, and what a gateway's end means."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from bellwether.errors import GatewayError
from bellwether.gateways.answer import Answer, Failed, Missing, Output, Prompt, Refused
from bellwether.observing.replays import Replay
from bellwether.observing.rows import Ending
from bellwether.observing.run import AHEAD, ending, endings


class Behind:
    """A gateway and its adapter that answer as they are told."""

    concurrency = 2
    kinds = frozenset({"render", "parse", "tokenize", "detokenize"})

    def __init__(self, **acts: Any) -> None:
        self.acts = acts
        self.under_way = self.most = 0

    async def render(self, request: str) -> Prompt:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await asyncio.sleep(self.acts.get("slow", {}).get(request, 0))
            if request in self.acts.get("dies", ()):
                raise GatewayError("it ended")
            if (act := self.acts.get("fails", {}).get(request)) is not None:
                raise act
            return Prompt([len(request)])
        finally:
            self.under_way -= 1

    async def parse(self, request: str, output: Output) -> Answer:
        return Answer(str(output.chunks), None, [], "stop", None)

    async def tokenize(self, text: str) -> list[int]:
        return [len(text)]

    async def detokenize(self, ids: list[int]) -> str:
        if self.acts.get("mute"):
            raise Failed("http-500", "", 500)
        return str(ids)


def render(request: str) -> Replay:
    return Replay(f"render/common/{request}", "render", "full", None, {"request": request})


def run(behind: Behind, replays: Iterator[Replay], adapter: Any = None) -> list[tuple[str, Ending]]:
    async def collect() -> list[tuple[str, Ending]]:
        found = endings(behind, adapter or behind, replays)
        return [(replay.case_id, value) async for replay, value, _ in found]

    return asyncio.run(collect())


def test_endings_come_in_order_however_slow_the_first() -> None:
    """Rows stand in case order."""
    behind = Behind(slow={"r0": 0.05})
    found = run(behind, (render(f"r{number}") for number in range(9)))
    assert [case_id for case_id, _ in found] == [f"render/common/r{number}" for number in range(9)]
    assert behind.most == behind.concurrency


def test_no_more_replays_are_read_than_are_under_way() -> None:
    """Memory does not depend on their number."""
    read = []

    def replays() -> Iterator[Replay]:
        for number in range(100):
            read.append(number)
            yield render(f"r{number}")

    async def first() -> None:
        found = endings(behind, behind, replays())
        await anext(found)
        await found.aclose()

    behind = Behind()
    asyncio.run(first())
    assert len(read) == AHEAD * behind.concurrency


def test_what_goes_wrong_is_an_ending() -> None:
    """And the rest goes on."""
    reasons = {"r0": Refused("no", "no", 400), "r1": Failed("timeout"), "r2": Missing()}
    found = run(Behind(fails=reasons), (render(f"r{number}") for number in range(4)))
    assert [value for _, value in found] == [*reasons.values(), Prompt([2])]


def test_a_gateway_that_ends_stops_the_run() -> None:
    """What it did not answer is no row."""
    with pytest.raises(GatewayError):
        run(Behind(dies=("r1",)), (render(f"r{number}") for number in range(4)))


def test_a_checkpoint_that_is_not_loaded_fails_every_replay() -> None:
    """For its reason."""
    reason = Failed("not-loaded", "no tokenizer")
    assert run(Behind(), (render(f"r{number}") for number in range(2)), reason) == [
        ("render/common/r0", reason),
        ("render/common/r1", reason),
    ]


def parse(plan: str | None) -> Replay:
    question = {"request": "{}", "ids": [1, 2], "stop_id": 9, "plans": {"per_token": [1, 1]}}
    return Replay("parse/common/a", "parse", "full" if plan is None else "stream", plan, question)


@pytest.mark.parametrize(
    ("replay", "acts", "content", "text"),
    [
        (parse(None), {}, "None", "[1, 2]"),
        (parse("per_token"), {}, "[[1], [2]]", None),
        (parse(None), {"mute": True}, "None", None),
    ],
)
def test_a_whole_output_is_decoded_too(replay: Replay, acts: dict, content: str, text: str | None) -> None:
    """To tell the decoder from the parser; a decoder that says nothing costs no answer."""
    value, found = asyncio.run(ending(Behind(**acts), replay))
    assert (value.content, found) == (content, text)


def test_texts_and_ids() -> None:
    """tokenize and detokenize."""
    one = Replay("tokenize/common/a", "tokenize", "full", None, {"text": "abc"})
    other = Replay("detokenize/common/a", "detokenize", "full", None, {"ids": [4]})
    assert asyncio.run(ending(Behind(), one)) == ([3], None)
    assert asyncio.run(ending(Behind(), other)) == ("[4]", None)
