"""An engine without a model: it streams recorded ids, and keeps what it was asked.

A gateway pointed at it does all of its own work: the prompt it makes is captured, the answer it reads is scripted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from typing import Any, Protocol, Self

from bellwether.errors import EngineError
from bellwether.gateways.answer import Served
from bellwether.scripted_engine.capture import (
    CLOSED,
    COMPLETE,
    KEEP,
    KEEP_BYTES,
    REFUSED,
    RUNNING,
    Asked,
    Capture,
    Record,
    Store,
)
from bellwether.scripted_engine.checkpoint import Checkpoint
from bellwether.scripted_engine.script import ANY, Script, ScriptFile, keys_of, script

SETTLE_SECONDS = 5


class Sink(Protocol):
    """Where captures are written as they end."""

    def write(self, capture: Capture) -> None: ...

    def close(self) -> None: ...


class ScriptedEngine:
    """Servers on 127.0.0.1 in the running loop while the `async with` block runs; one per checkpoint and wire.

    Requests find their script by id (`script.keys_of`): one given by `expect`, else a line of the script file, else the
    script of `*`. A request without any is answered with one id that ends the turn.

    `dropped` counts captures that had to go before they were taken: at most `keep` wait, of at most `keep_bytes` of
    requests. `requests`, `closed_early`, `aborts` and `refused` count since the start.

    Args:
        script_file: Scripts that may change meanwhile.
        sinks: Get each capture when its request ends; closed with the engine.
    """

    def __init__(
        self,
        *,
        script_file: ScriptFile | None = None,
        sinks: Iterable[Sink] = (),
        keep: int = KEEP,
        keep_bytes: int = KEEP_BYTES,
    ) -> None:
        self.requests = self.closed_early = self.aborts = self.refused = 0
        self._file = script_file
        self._sinks = tuple(sinks)
        self._scripts: dict[str, Script] = {}
        self._waiting = Store(keep, keep_bytes)
        self._running: dict[str, dict[Record, None]] = {}
        self._servers: dict[str, Callable[[], Any]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        async with AsyncExitStack() as stack:  # each is closed, also when one fails
            for sink in self._sinks:
                stack.callback(sink.close)
            stack.push_async_callback(self._settle)
            for stop in self._servers.values():
                stack.push_async_callback(stop)
            self._servers = {}

    @property
    def dropped(self) -> int:
        return self._waiting.dropped

    async def serve(self, served: Served, wire: str = "vllm", port: int = 0) -> str:
        """Serve a checkpoint at an address of its own; return its URL. Port 0 is any free one.

        Args:
            wire: vllm, sglang, tokenspeed (`grpc://…`) or http (`http://…`).

        Raises:
            EngineError: the port is in use; config.json or tokenizer.json in the folder is no such file.
            ValueError: there is no such wire.
        """
        from bellwether.scripted_engine import http_face, wires

        checkpoint = Checkpoint(served)
        if wire == "http":
            await asyncio.to_thread(checkpoint.load)
            runner, bound = await http_face.serve(self, checkpoint, port)
            url, stop = f"http://127.0.0.1:{bound}", runner.cleanup
        elif wire in wires.WIRES:
            server = wires.server(self, wires.WIRES[wire], checkpoint)
            url, stop = f"grpc://127.0.0.1:{await server.start(port)}", server.stop
        else:
            raise ValueError(f"no wire {wire!r}; there are {', '.join([*wires.WIRES, 'http'])}")
        self._servers[url] = stop
        return url

    async def stop(self, url: str) -> None:
        """End one server; requests under way are cut off. Raises KeyError when there is none at `url`."""
        await self._servers.pop(url)()

    def expect(
        self, key: str, chunks: Iterable[list[int]], finish_reason: str = "stop", matched: int | str | None = None
    ) -> None:
        """Script the answer to the request whose id is `key` or `key-…`, until `take`; `*` is for all others.

        Args:
            chunks: Token ids in the pieces they are streamed by.
            matched: The token id, or the string, that ended the answer.

        Raises:
            ValueError: an id is out of range, or chunks are no lists.
        """
        self._scripts[key] = script(chunks, finish_reason, matched)

    def take(self, key: str) -> list[Capture]:
        """Return the captures of `key`, in the order they came, and forget them with the script.

        Raises:
            EngineError: there are none, and captures were dropped: whether one was of `key` is not known.
        """
        return [record.capture() for record in self._take(key)]

    def take_prompts(self, key: str) -> list[tuple[str, list[int] | None]]:
        """Return model and prompt ids of what `take` returns, instead of it."""
        return [(record.model, record.prompt()) for record in self._take(key)]

    def _take(self, key: str) -> list[Record]:
        known = self._scripts.pop(key, None) is not None
        found = self._waiting.take(key)
        if not found and not known and self.dropped:
            raise EngineError(
                f"no capture of {key!r} is left: {self.dropped:,} were dropped, because more than"
                f" {self._waiting.keep:,} waited to be taken, or {self._waiting.keep_bytes >> 20:,} MB of them",
                next_step="Take captures sooner, or have fewer requests under way.",
            )
        return found

    # ── for the servers ───────────────────────────────────────────────────────────────────────────────────────────────

    def begin(
        self,
        request_id: str,
        *,
        checkpoint: Checkpoint,
        wire: str,
        route: str,
        read: Callable[[], Asked],
        prompt: Callable[[], list[int] | None],
        size: int,
        prompt_tokens: int,
        model: str | None = None,
    ) -> Record:
        """Find the script of a request and keep its capture.

        Raises:
            EngineError: the script file is malformed by now; the request is captured, and not to be answered.
        """
        self.requests += 1
        record = Record(
            request_id=request_id,
            model=checkpoint.served.model if model is None else model,
            wire=wire,
            route=route,
            read=read,
            prompt=prompt,
            size=size,
            script=None,
            answered_by=None,
            prompt_tokens=prompt_tokens,
        )
        try:
            record.answered_by, record.script = self._find(request_id, checkpoint.served)
        except EngineError:
            record.ended = REFUSED
            self.refused += 1
            self._keep(record)
            self._write(record)
            raise
        self._keep(record)
        return record

    def start(self, record: Record) -> Callable[[bool], None]:
        """Note that an answer is on its way. What is returned is called once it is over: with True, when all of it is
        about to be handed over, else with False. The capture is written at that moment.
        """
        running = self._running.setdefault(record.request_id, {})
        running[record] = None

        def end(complete: bool) -> None:
            record.ended = COMPLETE if complete else CLOSED
            self.closed_early += not complete
            del running[record]
            if not running:
                self._running.pop(record.request_id, None)
            self._write(record)

        return end

    @contextmanager
    def under_way(self, record: Record) -> Iterator[Callable[[], None]]:
        """While an answer is sent. What is given is called when all of it is about to be handed over."""
        end = self.start(record)
        try:
            yield lambda: end(True)
        finally:
            if record.ended == RUNNING:
                end(False)

    def abort(self, request_id: str) -> bool:
        """Note that a request was aborted; return whether it is known."""
        self.aborts += 1
        found = [*self._running.get(request_id, ()), *self._waiting.named(request_id)]
        for record in found:
            record.aborted = True
        return bool(found)

    async def _settle(self) -> None:
        """Return when no answer is under way: a stopped HTTP server cancels them, and does not wait."""
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_SECONDS):
                while self._running:
                    await asyncio.sleep(0.001)

    def _find(self, request_id: str, served: Served) -> tuple[str | None, Script]:
        for key in keys_of(request_id):
            if key in self._scripts:
                return key, self._scripts[key]
        if self._file and (hit := self._file.find(request_id)):
            return hit
        if found := self._scripts.get(ANY) or (self._file and self._file.any()):
            return ANY, found
        ending = served.eos_ids[:1]
        return None, Script((ending,) if ending else (), matched=ending[0] if ending else None)

    def _keep(self, record: Record) -> None:
        own = record.answered_by in self._scripts and record.answered_by != ANY
        names = (
            {record.answered_by: None, record.request_id: None} if own else dict.fromkeys(keys_of(record.request_id))
        )
        for lost in self._waiting.add(record, names):
            key = lost.answered_by
            if key not in (None, ANY) and self._scripts.get(key) is lost.script:
                del self._scripts[key]  # else memory grows by scripts never taken
                self._waiting.drop(key)  # some captures of a key would pass for all of them

    def _write(self, record: Record) -> None:
        if self._sinks:
            capture = record.capture()
            for sink in self._sinks:
                sink.write(capture)
