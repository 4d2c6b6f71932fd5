"""A running vLLM, by its address: an engine that serves a model, or a render server that needs no GPU.

No engine is scripted behind it. Its own routes show what it makes of a request and of ids, and which of them it has is
asked when a checkpoint is opened:

| kind | route | where it is missing |
|---|---|---|
| render | POST /v1/chat/completions/render | POST /tokenize with messages: the same template, fewer keys |
| tokenize, detokenize | POST /tokenize, POST /detokenize | not observed |
| parse | POST /v1/chat/completions/derender | not observed |

Derendering gives the message of ids the caller names, whole or chunk by chunk; a chunk comes with the state that the
last one left. Its counts of tokens are those it is told, so they are no observation.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import orjson

from bellwether.gateways.answer import Answer, Failed, Output, Prompt, Refused, Served
from bellwether.gateways.chat import body_of, joined, message_of
from bellwether.gateways.routes import UNSTATED, Running, Server, ids_of, text_of
from bellwether.gateways.spoken import spoken

RENDER = "/v1/chat/completions/render"
DERENDER = "/v1/chat/completions/derender"
TOKENIZE = "/tokenize"
DETOKENIZE = "/detokenize"
ROUTES = (RENDER, DERENDER, TOKENIZE, DETOKENIZE)
NOT_TOKENIZED = ("reasoning_effort", "documents", "response_format")
"""Keys of a request that may shape its prompt, and that POST /tokenize does not read."""
NO_STOP = "stop strings are not supported by streaming derender"
PROMPTS = 256
"""Prompts kept for outputs of the same request."""


class Vllm(Running):
    """A running vLLM."""

    def __init__(self, url: str, *, headers: Mapping[str, str] | None = None) -> None:
        """Ask the server at `url`, with `headers` on every request."""
        super().__init__(url, headers)
        self._routes: frozenset[str] = frozenset()

    @asynccontextmanager
    async def open(self, served: Served) -> AsyncIterator[Adapter]:
        """Look for the model among those the server has. Raises Failed, as `Running` says."""
        name = await self._name_of(served.model)
        yield Adapter(self._server, name, served.eos_ids, self.version, self._routes)

    async def _look(self) -> None:
        """Set what is known of the server before a checkpoint is opened. Raises Failed."""
        models = await self._server.models()
        said = await self._server.get("/version")
        self.version = text_of(said, "version") if said is not None else UNSTATED
        self._routes = frozenset([path for path in ROUTES if await self._server.has(path)])
        self.kinds = kinds_of(self._routes)
        if not self.kinds:
            raise Failed("not-observable", "the server has none of the routes of vLLM that show prompts or messages")
        if "parse" in self.kinds and models:
            adapter = Adapter(self._server, models[0]["id"], (), self.version, self._routes)
            self.plans = None if await adapter.streams() else frozenset()
        self.facts |= {"routes": sorted(self._routes), "streams": self.plans is None}


def kinds_of(routes: frozenset[str]) -> frozenset[str]:
    """Return the kinds of cases that routes show. A message is not read without its prompt."""
    prompts = bool(routes & {RENDER, TOKENIZE})
    shown = {
        "render": prompts,
        "tokenize": TOKENIZE in routes,
        "detokenize": DETOKENIZE in routes,
        "parse": prompts and DERENDER in routes,
    }
    return frozenset(kind for kind, is_shown in shown.items() if is_shown)


class Adapter:
    """One model of a running vLLM."""

    def __init__(
        self, server: Server, model: str, eos_ids: tuple[int, ...], version: str, routes: frozenset[str]
    ) -> None:
        self.version = version
        self.kinds = kinds_of(routes)
        self._server = server
        self._model = model
        self._eos_ids = eos_ids
        self._route = RENDER if RENDER in routes else TOKENIZE
        self._prompts: dict[str, list[int]] = {}

    async def render(self, request: str) -> Prompt:
        """Return the ids of a request's prompt. See `answer.Adapter`.

        Raises:
            Failed: also `not-sent`, where the route that is left does not read a key of the request.
        """
        if self._route == TOKENIZE:
            _require_tokenized(request)
        value = await self._server.ask(self._route, self._body(request))
        return Prompt(ids_of(value, "token_ids" if self._route == RENDER else "tokens"))

    async def parse(self, request: str, output: Output) -> Answer:
        """Return the message made of ids, as the answer to a request. See `answer.Adapter`.

        The parser is told the prompt, for it may have opened the reasoning.
        """
        prompt_ids = await self._prompt_ids(request)
        if output.chunks is None:
            answer = await self._whole(request, output, prompt_ids)
        else:
            answer = await self._streamed(request, output, prompt_ids)
        return replace(answer, usage=None, prompt_ids=prompt_ids)

    async def tokenize(self, text: str) -> list[int]:
        """Return the ids of a text. See `answer.Adapter`."""
        body = {"model": self._model, "prompt": text, "add_special_tokens": False}
        return ids_of(await self._server.ask(TOKENIZE, _encoded(body)), "tokens")

    async def detokenize(self, ids: list[int]) -> str:
        """Return the text of ids. See `answer.Adapter`."""
        body = _encoded({"model": self._model, "tokens": ids})
        return text_of(await self._server.ask(DETOKENIZE, body), "prompt")

    async def streams(self) -> bool:
        """Return whether the server derenders chunk by chunk, found out with one. An older one misses the whole."""
        request = '{"messages":[{"role":"user","content":"."}]}'
        try:
            prompt_ids = await self._prompt_ids(request)
            await self._streamed(request, Output([prompt_ids[-1]], [[prompt_ids[-1]]]), prompt_ids)
        except Refused as refused:
            return "generate_response" not in refused.message
        except Failed as failed:
            if failed.code != "malformed-answer":
                raise
            return False
        return True

    async def _prompt_ids(self, request: str) -> list[int]:
        if (kept := self._prompts.get(request)) is not None:
            return kept
        ids = (await self.render(request)).ids
        if len(self._prompts) >= PROMPTS:
            del self._prompts[next(iter(self._prompts))]
        self._prompts[request] = ids
        return ids

    async def _whole(self, request: str, output: Output, prompt_ids: list[int]) -> Answer:
        choice = _choice(self._ended(output), output.finish_reason, output.stop_id)
        said = {"request_id": "bellwether", "choices": [choice], "prompt_token_ids": prompt_ids}
        value = await self._derender(request, {"stream": False, "generate_response": said}, prompt_ids)
        return message_of(value, {})

    async def _streamed(self, request: str, output: Output, prompt_ids: list[int]) -> Answer:
        """Return the message of all chunks, joined as those of a stream of server-sent events."""
        state, events = None, bytearray()
        steps = [step for step in spoken(output) if step] or [self._ended(output)]
        for number, step in enumerate(steps, 1):
            last = number == len(steps)
            choice = _choice(step, output.finish_reason if last else None, output.stop_id if last else None)
            said = {"request_id": "bellwether", "choices": [choice]}
            body = {"stream": True, "generate_chunk": said, "stream_state": state}
            try:
                value = await self._derender(request, body, prompt_ids)
            except Refused as refused:
                if refused.message.startswith(NO_STOP):  # says nothing of the request: the chat route streams it
                    raise Failed("not-offered", refused.message, refused.status) from None
                raise
            match value:
                case {"chunk": dict(chunk), "stream_state": dict(state)}:
                    events += b"data: " + orjson.dumps(chunk) + b"\n\n"
                case _:
                    raise Failed("malformed-answer", "a 200 without a chunk and a state", 200)
        return joined(bytes(events) + b"data: [DONE]\n\n", {})

    def _ended(self, output: Output) -> list[int]:
        """Return the ids and the one that ended the turn. vLLM takes no empty output; an engine gives none either."""
        last = [] if output.stop_id is None else [output.stop_id]
        ended = [*output.ids, *last] or list(self._eos_ids[:1])
        if not ended:
            raise Failed("not-sent", f"POST {DERENDER} takes no output without ids")
        return ended

    async def _derender(self, request: str, body: Mapping[str, Any], prompt_ids: list[int]) -> Any:
        head = _encoded({"model": self._model, **body, "prompt_token_ids": prompt_ids})[:-1]
        return await self._server.ask(DERENDER, head + b',"chat_request":' + self._body(request) + b"}")

    def _body(self, request: str) -> bytes:
        return body_of(request, {"model": self._model})


def _encoded(value: Any) -> bytes:
    """Return JSON; a lone surrogate, which UTF-8 cannot hold, stays escaped."""
    return json.dumps(value, separators=(",", ":")).encode()


def _choice(ids: list[int], finish_reason: str | None, stop_id: int | None) -> dict[str, Any]:
    return {"index": 0, "token_ids": ids, "finish_reason": finish_reason, "stop_reason": stop_id}


def _require_tokenized(request: str) -> None:
    """Raise Failed where POST /tokenize would leave out what the chat route reads."""
    value = json.loads(request)
    lost = [key for key in NOT_TOKENIZED if value.get(key) is not None]
    if value.get("tool_choice") not in (None, "auto"):
        lost.append("tool_choice")
    if lost:
        raise Failed("not-sent", f"POST {TOKENIZE} does not read {', '.join(lost)}")
