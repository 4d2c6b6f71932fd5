"""A running SGLang, by its address. No engine is scripted behind it; its own routes show what they show.

| kind | route | what it says |
|---|---|---|
| render | POST /tokenize with messages | the ids a chat request would have: the code of its chat route writes them |
| tokenize, detokenize | POST /tokenize, POST /detokenize | ids of a text, text of ids |
| parse | POST /separate_reasoning, then POST /parse_function_call | only when asked for, see below |

`add_generation_prompt` is left out of what is sent to /tokenize: that route obeys it, and the chat route knows no such
key. Without it messages are rendered "as for a chat completion".

The two routes that parse read a text. They know no request: not whether its prompt has opened the reasoning, not which
tool it forces; they stream nothing, and say no finish reason, which is inferred by SGLang's rule, `tool_calls` for a
turn that ends with calls. A chat may therefore be read otherwise, and what they say is observed on request only.
`/generate` answers with what a model writes, which nobody can script.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from bellwether.gateways.answer import Answer, Failed, Output, Prompt, Refused, Served
from bellwether.gateways.chat import body_of, members
from bellwether.gateways.routes import Running, Server, ids_of, text_of

TOKENIZE = "/tokenize"
DETOKENIZE = "/detokenize"
REASONING = "/separate_reasoning"
CALLS = "/parse_function_call"
ROUTES = (TOKENIZE, DETOKENIZE, REASONING, CALLS)
INFO = ("/server_info", "/get_server_info")
"""The older name is the second."""
NOT_CHAT = "add_generation_prompt"
PARSER = "text routes"
"""What `Answer.parser` says of a message these routes made."""
PLACE = "\n\n  File "
"""Where SGLang's message on a malformed body begins to tell of its own files."""


class Sglang(Running):
    """A running SGLang."""

    def __init__(self, url: str, *, headers: Mapping[str, str] | None = None, text_parsers: bool = False) -> None:
        """Ask the server at `url`, with `headers` on every request; with `text_parsers` its routes that parse, too."""
        super().__init__(url, headers)
        self._text_parsers = text_parsers
        self._parsers: tuple[str | None, str | None] = (None, None)

    @asynccontextmanager
    async def open(self, served: Served) -> AsyncIterator[Adapter]:
        """Look for the model among those the server has. Raises Failed, as `Running` says."""
        name = await self._name_of(served.model)
        yield Adapter(self._server, name, self.version, self.kinds, self._parsers)

    async def _look(self) -> None:
        """Set what is known of the server before a checkpoint is opened. Raises Failed."""
        await self._server.models()
        for path in INFO:
            if (said := await self._server.get(path)) is not None:
                self.version = text_of(said, "version")
                break
        routes = [path for path in ROUTES if await self._server.has(path)]
        kinds = {"tokenize": TOKENIZE in routes, "detokenize": DETOKENIZE in routes}
        kinds["render"] = TOKENIZE in routes and await self._renders()
        if self._text_parsers and {DETOKENIZE, REASONING, CALLS} <= set(routes):
            self._parsers = await self._named_parsers()
            kinds["parse"] = any(self._parsers)
        self.kinds = frozenset(kind for kind, is_shown in kinds.items() if is_shown)
        if not self.kinds:
            raise Failed("not-observable", "the server has none of the routes of SGLang that show prompts")
        self.facts |= {"routes": routes}
        if "parse" in self.kinds:
            self.facts |= {"parse": f"{REASONING}, {CALLS}: of a text, without its request", "parsers": self._parsers}

    async def _renders(self) -> bool:
        """Return whether /tokenize takes messages; an older one misses the prompt."""
        try:
            said = await self._server.ask(TOKENIZE, b'{"messages":[{"role":"user","content":"."}]}')
        except Refused:
            return False
        return bool(ids_of(said, "tokens"))

    async def _named_parsers(self) -> tuple[str | None, str | None]:
        """Return the parsers of reasoning and of calls the server was started with."""
        said = await self._server.get("/model_info") or {}
        return said.get("reasoning_parser"), said.get("tool_call_parser")


class Adapter:
    """One model of a running SGLang."""

    def __init__(
        self,
        server: Server,
        model: str,
        version: str,
        kinds: frozenset[str],
        parsers: tuple[str | None, str | None],
    ) -> None:
        self.version = version
        self.kinds = kinds
        self._server = server
        self._model = model
        self._parsers = parsers

    async def render(self, request: str) -> Prompt:
        """Return the ids of a request's prompt. See `answer.Adapter`."""
        return Prompt(ids_of(await self._ask(TOKENIZE, body_of(_as_chat(request), {"model": self._model})), "tokens"))

    async def parse(self, request: str, output: Output) -> Answer:
        """Return the message the two routes that parse make of the text of ids.

        Raises:
            Failed: also `not-offered` for a stream.
        """
        if output.chunks is not None:
            raise Failed("not-offered", "the routes that parse a text stream nothing")
        body = json.loads(request)
        tools = body.get("tools") if body.get("tool_choice") != "none" else None
        reasoning_parser, tool_parser = self._parsers
        calling = bool(tools and tool_parser)
        text, reasoning, calls = await self._decoded(output.ids, skip_special=not calling), None, []
        if reasoning_parser:
            said = await self._json(REASONING, {"text": text, "reasoning_parser": reasoning_parser})
            reasoning, text = text_of(said, "reasoning_text") or None, text_of(said, "text")
        if calling:
            said = await self._json(CALLS, {"text": text, "tools": tools, "tool_call_parser": tool_parser})
            text, calls = text_of(said, "normal_text"), _calls(said)
        stopped = calls and output.finish_reason == "stop"
        return Answer(
            text or None, reasoning, calls, "tool_calls" if stopped else output.finish_reason, None, parser=PARSER
        )

    async def tokenize(self, text: str) -> list[int]:
        """Return the ids of a text. See `answer.Adapter`."""
        body = {"model": self._model, "prompt": text, "add_special_tokens": False}
        return ids_of(await self._json(TOKENIZE, body), "tokens")

    async def detokenize(self, ids: list[int]) -> str:
        """Return the text of ids. See `answer.Adapter`."""
        return await self._decoded(ids, skip_special=False)

    async def _decoded(self, ids: list[int], *, skip_special: bool) -> str:
        body = {"model": self._model, "tokens": ids, "skip_special_tokens": skip_special}
        return text_of(await self._json(DETOKENIZE, body), "text")

    async def _json(self, path: str, body: Mapping[str, Any]) -> Any:
        return await self._ask(path, json.dumps(body).encode())

    async def _ask(self, path: str, body: bytes) -> Any:
        try:
            return await self._server.ask(path, body)
        except Refused as refused:
            raise Refused(refused.code, refused.message.partition(PLACE)[0], refused.status) from None


def _as_chat(request: str) -> str:
    """Return a request without the key that the chat route does not know; every other byte stays."""
    if f'"{NOT_CHAT}"' not in request:
        return request
    return "{" + ",".join(f"{json.dumps(key)}:{raw}" for key, raw in members(request) if key != NOT_CHAT) + "}"


def _calls(said: Any) -> list[dict[str, str | None]]:
    try:
        return [{"name": call["name"], "arguments": call["parameters"]} for call in said["calls"]]
    except (LookupError, TypeError):
        raise Failed("malformed-answer", f"a 200 of {CALLS} without calls", 200) from None
