"""Bench part: replays a second through the pinned SMG gateway, beside a bare load generator in the same run.

The bare one sends prepared bytes over as many connections, through the same gateway to the same scripted engine, and
looks for nothing but the end of each answer. Memory is that of this process while the same replays go through again and
again. Run alone: `python -m bellwether.bench_gateway [REPLAYS]`.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from tabulate import tabulate

from bellwether.gateways import chat
from bellwether.gateways.answer import Served
from bellwether.gateways.smg import Smg
from bellwether.gateways.spoken import spoken
from bellwether.gateways.targets import pinned_target
from bellwether.observe import Run, task
from bellwether.observing.replays import FULL, Replay, Replays
from bellwether.observing.rows import row
from bellwether.observing.run import endings
from bellwether.params import Params, Scope, read_manifest, read_params
from bellwether.progress import say

SLUG = "qwen3-8b"
TARGET = "smg-1.13.0"
EACH = 1500
"""Replays of a measurement; there are fewer, and they come again, for a tenth of a second is too short to measure."""
MANY = 100_000
"""Replays over which memory is watched."""
ROUNDS = 5


def compare(root: Path, many: int = MANY) -> list[list[str]]:
    """Return the rows of the bench's table."""
    say("replays through a gateway")
    return asyncio.run(_compare(root, many))


async def _compare(root: Path, many: int) -> list[list[str]]:
    params = replace(read_params(root), observe=Scope("drawn", 0.0))
    target = pinned_target(TARGET)
    served = task(Run(root, params, target), SLUG, root / "unused").served
    rows = []
    begin = time.monotonic()
    async with target.start(root) as gateway, gateway.open(served) as adapter:
        await anext(aiter(endings(gateway, adapter, _replays(root, params, full=True))))
        rows.append(["gateway start to the first replay, s", f"{time.monotonic() - begin:.1f}", "3.0", "", "≤ 3"])
        gc.freeze()  # as observe does
        for full, name in ((True, "answered at once"), (False, "streamed")):
            replays = list(itertools.islice(itertools.cycle(list(_replays(root, params, full))), EACH))
            ours, bare = 0.0, 0.0
            for _ in range(ROUNDS):  # in turns: the machine may have other work
                ours = max(ours, await _ours(gateway, adapter, replays))
                bare = max(bare, await _bare(gateway, served, replays))
            rows.append([f"replays/s, {name}", f"{ours:,.0f}", f"{bare:,.0f}", f"{ours / bare:.2f}", "≥ 0.8"])
        small = _peak()
        again = itertools.cycle(list(itertools.islice(_replays(root, params, full=True), EACH)))
        await _ours(gateway, adapter, itertools.islice(again, many))
        large = _peak()
    rows.append(
        [
            f"peak memory in MB after {many:,} more replays",
            f"{large:,.0f}",
            f"{small:,.0f}",
            f"{large / small:.2f}",
            "flat",
        ]
    )
    return rows


def _replays(root: Path, params: Params, full: bool) -> Iterator[Replay]:
    """Yield the replays of hand-made outputs."""
    every = Replays(root, params, read_manifest(root, SLUG), frozenset({"parse"}), None)
    return (replay for replay in every.stream() if (replay.mode == FULL) is full)


async def _ours(gateway: Smg, adapter: object, replays: object) -> float:
    """Return replays per second of observing: sent, read, and made a row."""
    begin, number = time.monotonic(), 0
    head = {"checkpoint": SLUG, "target": TARGET, "target_version": gateway.version}
    async for replay, ending, text in endings(gateway, adapter, iter(replays)):
        row(replay, ending, text, head, {})
        number += 1
    return number / (time.monotonic() - begin)


async def _bare(gateway: Smg, served: Served, replays: list[Replay]) -> float:
    """Return requests per second of the same requests, prepared, over bare connections."""
    prepared = []
    for number, replay in enumerate(replays):
        key, output = f"bare{number}", replay.output
        options = {"stream": True, "stream_options": {"include_usage": True}} if output.chunks else {"stream": False}
        body = chat.body_of(replay.question["request"], {"model": served.model, "rid": key, **options})
        head = f"POST {chat.ROUTE} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        prepared.append((key, spoken(output), f"{head}content-length: {len(body)}\r\n\r\n".encode() + body))
        if replay.mode == FULL:  # an observer asks the decoder too
            body = chat.body_of("{}", {"model": served.model, "tokens": output.ids, "skip_special_tokens": False})
            head = "POST /v1/detokenize HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            prepared.append((None, [], f"{head}content-length: {len(body)}\r\n\r\n".encode() + body))
    waiting = iter(prepared)
    address = urlsplit(gateway.url)

    async def connection() -> None:
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        for key, chunks, data in waiting:
            if key is not None:
                gateway.engine.expect(key, chunks)
            writer.write(data)
            await _end(reader)
            if key is not None:
                gateway.engine.take_prompts(key)
        writer.close()
        await writer.wait_closed()

    begin = time.monotonic()
    await asyncio.gather(*(connection() for _ in range(gateway.concurrency)))
    return len(replays) / (time.monotonic() - begin)


async def _end(reader: asyncio.StreamReader) -> None:
    """Read an answer to its end."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if b"content-length: " in head:
        await reader.readexactly(int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0]))
        return
    while size := int(await reader.readuntil(b"\r\n"), 16):
        await reader.readexactly(size + 2)
    await reader.readexactly(2)


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    many = int(sys.argv[1]) if len(sys.argv) > 1 else MANY
    print(
        tabulate(
            compare(Path.cwd(), many), headers=["measure", "ours", "floor", "ratio", "wanted"], disable_numparse=True
        )
    )
