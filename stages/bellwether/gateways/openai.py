"""Any OpenAI-compatible gateway, in front of our scripted engine.

What it sends the engine is its render, what it makes of the engine's answer is its parse; nothing else of it is known.
Which request of the engine belongs to which of ours is found out when a checkpoint is opened:

| join | found by | requests at a time |
|---|---|---|
| header | the engine's id is the `X-Request-Id` that was sent, perhaps with something appended | 8 |
| rid | the same of `rid` in the body | 8 |
| order | the engine saw one request while one was under way | 1 |

A gateway whose upstream is chat over HTTP sends no ids, so its prompts are not observed; what the engine answers there
is text that no engine has parsed, so what is read is read by the gateway. Without our engine behind it nothing is
scripted and no prompt is seen: nothing is observed, and that is said.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Self

from bellwether.gateways.answer import Answer, Failed, Missing, Output, Prompt, Refused, Served
from bellwether.gateways.behind import Behind, Engine, Seen
from bellwether.gateways.chat import body_of, complete, session, stream
from bellwether.gateways.routes import UNSTATED, Server, server_url
from bellwether.gateways.spoken import spoken
from bellwether.scripted_engine.script import ANY

HEADER = "X-Request-Id"
JOINS = ("header", "rid", "order")
PATIENCE = 60.0
"""Seconds a gateway that is there has to find the engine and to load its tokenizer."""
PAUSE = 0.1
AT_A_TIME = 8
PROBE = '{"messages":[{"role":"user","content":"."}]}'


class OpenAi:
    """A running gateway. It is not started, and what it does after the engine is gone is its own affair."""

    def __init__(
        self, url: str, behind: Behind | None, *, headers: Mapping[str, str] | None = None, patience: float = PATIENCE
    ) -> None:
        """Ask the gateway at `url`, with `headers` on every request, whose upstream is the engine of `behind`."""
        self.plans: frozenset[str] | None = None
        self.concurrency = self.checkpoints = 1
        self.version = UNSTATED
        self.kinds = frozenset({"parse", "render"} if behind and behind.sees_ids else {"parse"} if behind else ())
        self.facts: dict[str, Any] = {"called": "a running gateway", **(behind.facts if behind else {})}
        self._url = server_url(url)
        self._behind = behind
        self._headers = dict(headers or {})
        self._patience = patience
        self.captures = {"read": 0, "joined": 0, "other": 0}
        """Captures of the checkpoints that were opened: all, ours, and those of nobody's asking."""

    async def __aenter__(self) -> Self:
        self._client = session()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._client.close()

    @asynccontextmanager
    async def open(self, served: Served) -> AsyncIterator[Adapter]:
        """Serve a checkpoint behind the gateway, wait until it has it, and find out how requests are joined.

        Raises:
            Failed: `unreachable`; `not-loaded` when the gateway does not come to list the model; `not-observable` when
                no engine is behind it, or another than ours; what else goes wrong with a first chat.
            EngineError: the engine's port is in use, or its files are not there.
        """
        server = Server(self._client, self._url, self._headers)
        if self._behind is None:
            await server.models()
            raise Failed(
                "not-observable",
                "no scripted engine is behind the gateway: its prompts are not seen and its answers not known before. "
                "Point it at an engine of ours, and say at which port or by which files",
            )
        async with self._behind.serve(served) as engine:
            adapter = Adapter(server, await self._listed(server, served.model), served, engine, self.version)
            await adapter.find_join(time.monotonic() + self._patience)
            self.kinds = adapter.kinds
            self.concurrency = 1 if adapter.join == "order" else AT_A_TIME
            self.facts |= {"join": adapter.join, "prompts": "ids" if "render" in self.kinds else "not observable"}
            try:
                yield adapter
            finally:
                for name in self.captures:
                    self.captures[name] += getattr(engine.log, name)

    async def _listed(self, server: Server, model: str) -> str:
        """Return the gateway's name of the model, once it lists it. A gateway that is not there is not waited for."""
        deadline = time.monotonic() + self._patience
        while True:
            try:
                return await server.name_of(model)
            except Failed as failed:
                if failed.code == "unreachable" or time.monotonic() >= deadline:
                    raise
            await asyncio.sleep(PAUSE)


class Adapter:
    """One checkpoint behind the gateway."""

    def __init__(self, server: Server, model: str, served: Served, engine: Engine, version: str) -> None:
        self.version = version
        self.kinds: frozenset[str] = frozenset()
        self.join = ""
        """One of JOINS."""
        self._server = server
        self._model = model
        self._served = served
        self._engine = engine
        self._keys = itertools.count(1)
        self._run = secrets.token_hex(8)

    async def find_join(self, deadline: float) -> None:
        """Send chats until one is found again at the engine.

        Raises:
            Failed: `not-observable`: chats are answered, and none reaches the engine; else why they are not.
        """
        seen = None
        for join in JOINS:
            self.join = join
            try:
                seen = await self._first(deadline)
                break
            except Missing:
                continue
            except Refused as refused:  # of a key it does not know, or of any chat
                if join != "rid":
                    raise Failed(refused.code, f"a plain chat is refused: {refused.message}", refused.status) from None
        if seen is None:
            raise Failed(
                "not-observable",
                "the gateway answers chats, and the scripted engine sees none of them: its upstream is another",
            )
        self.kinds = frozenset({"parse"} if seen.prompt_ids is None else {"parse", "render"})

    async def _first(self, deadline: float) -> Answer:
        """Return the answer to a plain chat, once there is one: a gateway may list a model before it can serve it."""
        while True:
            try:
                return await self._chat(PROBE, self._end())
            except Failed as failed:
                if failed.status is None or failed.status < 500 or time.monotonic() >= deadline:
                    raise
            await asyncio.sleep(PAUSE)

    async def render(self, request: str) -> Prompt:
        """Return the ids the engine was sent. See `answer.Adapter`.

        Raises:
            Failed: also `no-ids`, when the prompt came as something else.
        """
        limited = json.loads(request).keys() & {"max_tokens", "max_completion_tokens"}
        answer = await self._chat(request, self._end(), {} if limited else {"max_tokens": 1})
        if answer.prompt_ids is None:
            raise Failed("no-ids", "the engine was sent no ids", 200)
        return Prompt(answer.prompt_ids)

    async def parse(self, request: str, output: Output) -> Answer:
        """Return the message the gateway makes of what the engine says. See `answer.Adapter`."""
        return await self._chat(request, output)

    async def tokenize(self, text: str) -> list[int]:
        """Raise Failed: no route of OpenAI's shows it."""
        raise Failed("not-observable", "no route of OpenAI's gives the ids of a text")

    async def detokenize(self, ids: list[int]) -> str:
        """Raise Failed: no route of OpenAI's shows it."""
        raise Failed("not-observable", "no route of OpenAI's gives the text of ids")

    def _end(self) -> Output:
        """Return an output that ends at once."""
        return Output([], stop_id=next(iter(self._served.eos_ids), None))

    async def _chat(self, request: str, output: Output, extra: Mapping[str, Any] | None = None) -> Answer:
        """Return the answer to a chat whose engine says `output`, and the prompt the engine was sent.

        Raises:
            Refused, Missing.
            Failed: see `gateways.chat`; `captures-differ`, `other-model`.
            EngineError: captures cannot be read.
        """
        name = f"bellwether{self._run}{next(self._keys):010}"  # of one length: refusals tell columns of the body
        key = ANY if self.join == "order" else name
        streamed = output.chunks is not None
        options = {"stream": True, "stream_options": {"include_usage": True}} if streamed else {"stream": False}
        told = {"rid": name} if self.join == "rid" else {}
        body = body_of(request, {"model": self._model, **told, **options, **(extra or {})})
        headers = {**self._server.headers, HEADER: name}
        self._engine.expect(key, spoken(output), output.finish_reason, output.stop_id)
        answered = False
        try:
            answer = await (stream if streamed else complete)(self._server.client, self._server.url, body, headers)
            answered = True
        finally:
            captures = await self._engine.take(key, wait=answered)
        return replace(answer, prompt_ids=self._one(captures).input_ids)

    def _one(self, captures: list[Seen]) -> Seen:
        """Return the one capture of a request; where it is told by its id, the gateway may have sent it again."""
        if not captures:
            raise Missing
        first = captures[0]
        if self.join == "order" and len(captures) > 1:
            raise Failed("captures-differ", f"{len(captures)} requests reached the engine while one was under way", 200)
        if any(seen.input_ids != first.input_ids for seen in captures):
            raise Failed("captures-differ", f"{len(captures)} requests reached the engine, and not with equal ids", 200)
        if first.model not in (None, self._served.model):
            raise Failed("other-model", f"the engine was asked for {first.model}", 200)
        return first
