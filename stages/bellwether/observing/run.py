"""Replays, several at a time, through one checkpoint of a gateway; their endings in order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator
from typing import Any

from bellwether.gateways.answer import Adapter, Failed, Gateway, Missing, Refused
from bellwether.observing.replays import FULL, Replay
from bellwether.observing.rows import Ending

AHEAD = 4
"""Replays that may wait for an earlier, slower one, times those under way."""


async def endings(
    gateway: Gateway, adapter: Adapter | Failed, replays: Iterator[Replay]
) -> AsyncIterator[tuple[Replay, Ending, str | None]]:
    """Yield each replay with what came of it and, of a whole output, the text the gateway's decoder makes of it.

    Without an adapter all fail for its reason. Memory holds the replays under way.

    Raises:
        GatewayError: the gateway ended. What was under way has no ending.
    """
    if isinstance(adapter, Failed):
        for replay in replays:
            yield replay, adapter, None
        return
    under_way = asyncio.Semaphore(gateway.concurrency)

    async def one(replay: Replay) -> tuple[Ending, str | None]:
        async with under_way:
            return await ending(adapter, replay)

    waiting: deque[tuple[Replay, asyncio.Task[Any]]] = deque()
    try:
        for replay in replays:
            waiting.append((replay, asyncio.create_task(one(replay))))
            if len(waiting) >= AHEAD * gateway.concurrency:
                yield await _first(waiting)
        while waiting:
            yield await _first(waiting)
    finally:
        for _, task in waiting:
            task.cancel()
        await asyncio.gather(*(task for _, task in waiting), return_exceptions=True)


async def _first(waiting: deque[tuple[Replay, asyncio.Task[Any]]]) -> tuple[Replay, Ending, str | None]:
    replay, task = waiting[0]
    value, text = await task
    waiting.popleft()
    return replay, value, text


async def ending(adapter: Adapter, replay: Replay) -> tuple[Ending, str | None]:
    """Return what comes of one replay."""
    question = replay.question
    try:
        match replay.kind:
            case "render":
                return await adapter.render(question["request"]), None
            case "tokenize":
                return await adapter.tokenize(question["text"]), None
            case "detokenize":
                return await adapter.detokenize(question["ids"]), None
        return await adapter.parse(question["request"], replay.output), await _text(adapter, replay)
    except (Refused, Missing, Failed) as reason:
        return reason, None


async def _text(adapter: Adapter, replay: Replay) -> str | None:
    """Return what the gateway's decoder makes of an output; None where it says nothing."""
    if replay.mode != FULL or "detokenize" not in adapter.kinds:
        return None
    try:
        return await adapter.detokenize(replay.question["ids"])
    except (Refused, Missing, Failed):
        return None
