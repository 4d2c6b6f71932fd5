"""llama.cpp's own HTTP server: the whole of a serving stack in one process, so there is no scripted engine behind it.

What it says is scripted in its weights (`gguf_models`): one process per checkpoint, one file that holds its tokenizer,
its template and the rows that make it say an output. Between two outputs only those rows are written. The server's own
template engine, tokenizer, sampler, grammar, decoder, parser and streamer run, as they do with real weights.

So an output is asked for, not put in. Where a request has tools, the server's grammar may not let the model say what it
was to say; each answer therefore comes with the ids it was made of, and is believed only when they are the output's.
A stream does not show them: it is believed after the same output was said as a whole, when it says as many.

Its parser may not read an output at all, and then the chat route answers 500, or an error as the last event, where a
client waits for a message. That is the server's own word on the output, and evidence when the server shows that it had
made the output's text before: `output-not-read`. Every other 500 is a failed measurement.

Prompts: the route that renders gives the text, from which the server takes a BOS that its tokenizer will add; tokenized
with special tokens added, that is what its chat route feeds the model, two BOS or one.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import re
import tempfile
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Self

import aiohttp
import orjson

from bellwether.environments import ENVIRONMENTS, Environment, environment
from bellwether.errors import GatewayError
from bellwether.gateways import chat, gguf_models
from bellwether.gateways.answer import Answer, Failed, Output, Prompt, Refused, Served
from bellwether.gateways.clock import clock as clock_variables
from bellwether.gateways.process import Process, until_ready
from bellwether.progress import say as say_on_stderr

PACKAGE = "xllamacpp"
START_SECONDS = 60.0
"""Until a model is loaded: half a second on an idle machine."""
HOST = "http://llama.cpp"
"""Which is not looked up: the connection is a Unix socket's."""
COUNT = "/v1/chat/completions/input_tokens"
SOCKET_LENGTH = 100
"""Longest path of a Unix socket, with something to spare."""
LOST = ("unreachable", "closed-early", "no-answer")
UNREAD = "The model produced output that does not match"
"""How a message begins by which the server says that its parser does not read an output."""
SHOWN = {"LLAMA_SERVER_SLOTS_DEBUG": "1"}
"""Makes /slots show the text that was generated last."""
FOLLOWED = 256
"""Outputs that are remembered as said."""
PROBE = (
    "Hello, world! It's 2026; I'll say: café, don't WE'RE.\n\n\tdef f(x): return x*2 + 12345   \r\n  ------=== ```` "
    '{"name": "get_weather", "arguments": {"days": [1, 2, 3.50]}} 我想在apple工作1314151天 нещо 🚀'
)
"""A text that tells apart the pre-tokenizers there are. It is in NFC and has no combining marks, where llama.cpp is
known to differ."""


class LlamaCpp:
    """The server, while its context is open: a process per checkpoint that is open.

    Args:
        version: The release, as in `stages/environments/xllamacpp-<version>`.
        clock: What it takes for the present, UTC; None leaves it the system's. It gives every template the date.
    """

    plans: frozenset[str] | None = frozenset({"per_token"})
    """It streams as it says: one id after the other."""
    concurrency = 4
    checkpoints = max(1, min(os.cpu_count() or 1, 4))
    """Each is a process that works in one thread."""

    def __init__(
        self, version: str, *, clock: datetime | None = None, say: Callable[[str], None] = say_on_stderr
    ) -> None:
        self.version = version
        self.facts: dict[str, Any] = {
            "prefill_assistant": False,
            "context": gguf_models.CONTEXT,
            "clock": clock and clock.isoformat(),
        }
        self._clock = clock
        self._say = say

    async def __aenter__(self) -> Self:
        self._environment: Environment = await asyncio.to_thread(environment, f"{PACKAGE}-{self.version}", self._say)
        self._variables = dict(SHOWN)
        if self._clock is not None:
            self._variables |= await asyncio.to_thread(clock_variables, self._clock, self._say)
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Its processes belong to the checkpoints that are open."""

    @contextlib.asynccontextmanager
    async def open(self, served: Served) -> AsyncIterator[LlamaCppAdapter]:
        """Serve a checkpoint.

        Raises:
            Failed: `not-loaded`: no GGUF file can be made of it, the server cannot load it, or tokenizes a plain text
                in another way than the checkpoint, so that the file must be wrong.
            GatewayError: the server cannot be started at all, or is another release.
        """
        async with contextlib.AsyncExitStack() as stack:
            work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bellwether-")))
            try:
                model = await asyncio.to_thread(gguf_models.write, served.folder, work / "model.gguf")
            except gguf_models.NotConvertible as reason:
                raise Failed("not-loaded", str(reason)) from None
            address = work / "llama.sock"
            if len(str(address)) > SOCKET_LENGTH:
                raise GatewayError(f"{address} is too long for a socket", next_step="Set TMPDIR to a shorter path.")
            connector = aiohttp.UnixConnector(path=str(address), limit=0, force_close=True)  # it closes after a stream
            client = await stack.enter_async_context(aiohttp.ClientSession(connector=connector, trust_env=False))
            script = ENVIRONMENTS / f"{PACKAGE}-{self.version}" / "serve.py"
            process = Process(
                [self._environment.python, "-I", "-B", script, model.path, address, str(model.context)],
                self._variables,
            )
            await stack.enter_async_context(process)
            adapter = LlamaCppAdapter(self.version, model, client, process)
            await self._wait(adapter, process)
            wanted = await asyncio.to_thread(_ids, served.folder, PROBE)
            if await adapter.tokenize(PROBE) != wanted:
                raise Failed("not-loaded", f"as a {model.vocabulary.pre} tokenizer it is another one")
            yield adapter

    async def _wait(self, adapter: LlamaCppAdapter, process: Process) -> None:
        try:
            await until_ready(process, adapter.healthy, START_SECONDS)
        except GatewayError as error:
            if process.ended and _started(process.said()):
                raise Failed("not-loaded", _complaint(process.said())) from None
            raise GatewayError(
                f"llama.cpp's server cannot be started: {error}",
                next_step=f"Run {self._environment.python} with its serve.py by hand to see all it says.",
            ) from None
        said = _started(process.said())
        if said.get("version") != self.version:
            raise GatewayError(f"the server is {said.get('version')}, not {self.version}")
        if self._clock is not None and said.get("date") != f"{self._clock:%Y-%m-%d}":
            raise GatewayError(
                "the server's clock could not be set", next_step="See whether it says anything of LD_PRELOAD."
            )


class LlamaCppAdapter:
    """One checkpoint behind the server."""

    kinds = frozenset({"render", "parse", "tokenize", "detokenize"})

    def __init__(self, version: str, model: gguf_models.Model, client: aiohttp.ClientSession, process: Process) -> None:
        self.version = version
        self.pid = process.pid
        self.model = model
        self._client = client
        self._process = process
        self._speaking = asyncio.Lock()
        self._followed: OrderedDict[bytes, str | None] = OrderedDict()
        """Outputs that were said as a whole → their text; None where the parser did not read it."""
        self._control = re.compile("|".join(map(re.escape, model.vocabulary.control_tokens)) or r"(?!)")

    async def healthy(self) -> bool:
        """Return whether the model is loaded."""
        with contextlib.suppress(Failed):
            return (await chat.post(self._client, HOST + "/health", b"", method="GET", seconds=5)).status == 200
        return False

    async def render(self, request: str) -> Prompt:
        """As `Adapter.render`."""
        text = _member(await self._ask("/apply-template", chat.body_of(request, {})), "prompt", str)
        return Prompt(await self._tokenize(text, add_special=True), text)

    async def parse(self, request: str, output: Output) -> Answer:
        """As `Adapter.parse`.

        Raises:
            Failed: besides, `script-not-followed`: the server did not let the model say the output, or did not end
                where it ends; `too-long`: our model has not so many positions.
        """
        end = output.stop_id if output.stop_id is not None else self.model.vocabulary.special.get("eos")
        cut_off = output.finish_reason == "length" or end is None
        ids = [*output.ids] if cut_off else [*output.ids, end]
        limit = len(ids) if cut_off else len(ids) + 1
        options = {"verbose": True, "return_tokens": True, "temperature": 0, "max_tokens": limit}
        options |= {key: limit for key in ("max_completion_tokens", "n_predict") if f'"{key}"' in request}
        streamed = output.chunks is not None
        key = hashlib.sha256(orjson.dumps([request, ids])).digest()
        async with self._speaking:
            await self._script(request, ids)
            if not streamed:
                return await self._whole(chat.body_of(request, {**options, "stream": False}), ids, key)
            if key not in self._followed:
                with contextlib.suppress(Refused):  # the stream may be another matter
                    await self._whole(chat.body_of(request, {**options, "stream": False}), ids, key)
            options |= {"stream": True, "stream_options": {"include_usage": True}}
            return await self._stream(chat.body_of(request, options), ids, key)

    async def tokenize(self, text: str) -> list[int]:
        """As `Adapter.tokenize`."""
        return await self._tokenize(text, add_special=False)

    async def detokenize(self, ids: list[int]) -> str:
        """As `Adapter.detokenize`."""
        return _member(await self._ask("/detokenize", orjson.dumps({"tokens": ids})), "content", str)

    async def _tokenize(self, text: str, *, add_special: bool) -> list[int]:
        body = json.dumps({"content": text, "add_special": add_special, "parse_special": True}).encode()
        ids = _member(await self._ask("/tokenize", body), "tokens", list)
        if not all(type(token) is int for token in ids) or (text and not ids):  # a body it does not read gives []
            raise Failed("malformed-answer", "a 200 without tokens", 200)
        return ids

    # ── what the model says ──────────────────────────────────────────────────────────────────────────────────────────

    async def _script(self, request: str, ids: list[int]) -> None:
        """Write what the model says after the prompt of a request."""
        count = _member(await self._ask(COUNT, chat.body_of(request, {})), "input_tokens", int)
        try:
            self.model.say(count - 1, ids)
        except ValueError as error:
            raise Failed("too-long", str(error)) from None

    async def _whole(self, body: bytes, ids: list[int], key: bytes) -> Answer:
        """Return the message of an output that is said as a whole."""
        reply = await self._post(chat.ROUTE, body)
        try:
            value = _value(reply)
        except Failed as failed:
            if failed.message.startswith(UNREAD):
                await self._require_generated(ids)
                self._remember(key, None)
                raise Refused("output-not-read", failed.message, reply.status) from None
            raise
        said = _member(_member(value, "__verbose", dict), "tokens", list)
        if said != ids:
            place = next((place for place, pair in enumerate(zip(said, ids, strict=False)) if pair[0] != pair[1]), None)
            where = f"another id at {place}" if place is not None else f"{len(said)} ids of {len(ids)}"
            raise Failed("script-not-followed", f"{where}: the server did not let the model say it", 200)
        self._remember(key, _member(value["__verbose"], "content", str))
        return chat.message_of(value, reply.headers)

    async def _stream(self, body: bytes, ids: list[int], key: bytes) -> Answer:
        """Return the message of a stream whose output was said as a whole before.

        Raises:
            Failed: `script-not-followed` too where it was not.
        """
        if key not in self._followed:
            raise Failed("script-not-followed", "as a whole it could not be said", 200)
        reply = await self._post(chat.ROUTE, body)
        try:
            if reply.status != 200:
                _value(reply)
            answer = chat.joined(reply.body, reply.headers)
        except Failed as failed:
            if failed.message.startswith(UNREAD):
                await self._require_generated(ids)
                raise Refused("output-not-read", failed.message, reply.status) from None
            raise
        texts = [event["__verbose"].get("content") for event in _events(reply.body) if "__verbose" in event]
        if texts not in ([], [""], [self._followed[key]]) or (answer.usage and answer.usage[1] != len(ids)):
            raise Failed("script-not-followed", "the stream is of another output", 200)
        return answer

    def _remember(self, key: bytes, text: str | None) -> None:
        self._followed[key] = text
        if len(self._followed) > FOLLOWED:
            self._followed.popitem(last=False)

    async def _require_generated(self, ids: list[int]) -> None:
        """Raise Failed when the text the server generated last is not that of `ids`; control tokens may be left out."""
        slots = _value(await self._post("/slots", b"", method="GET"))
        generated = _member(slots[0] if isinstance(slots, list) and slots else None, "generated", str)
        if self._plain(generated) != self._plain(await self.detokenize(ids)):
            raise Failed("script-not-followed", "another text: the server did not let the model say it", 500)

    def _plain(self, text: str) -> str:
        return self._control.sub("", text)

    # ── requests ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _ask(self, route: str, body: bytes) -> Any:
        return _value(await self._post(route, body))

    async def _post(self, route: str, body: bytes, *, method: str = "POST") -> chat.Reply:
        """Return what a route answers.

        Raises:
            Failed.
            GatewayError: the server has ended.
        """
        try:
            return await chat.post(self._client, HOST + route, body, method=method)
        except Failed as failed:
            if failed.code in LOST:
                await asyncio.sleep(0.1)
                if self._process.ended:
                    raise GatewayError(
                        f"llama.cpp's server {self.version} ended: {_complaint(self._process.said())}",
                        next_step="Run again; what was observed before is kept.",
                    ) from None
            raise


def _value(reply: chat.Reply) -> Any:
    """Return the JSON value of a 200.

    Raises:
        Refused, Failed: see `chat.json_of`. A refusal has the server's word for its kind, and the last line of its
            message, above which it shows the place in the template.
    """
    try:
        return chat.json_of(reply)
    except Refused as refused:
        error = orjson.loads(reply.body)["error"]
        kind = error.get("type") or refused.code
        message = _last_line(error["message"])[: chat.MESSAGE_LENGTH]
        if kind == "exceed_context_size_error":  # which is ours
            raise Failed("too-long", message, refused.status) from None
        raise Refused(str(kind), message, refused.status) from None


def _member(value: Any, name: str, kind: type) -> Any:
    """Return a member of an answer. The server answers 200 to much that it does not read; then it is not there."""
    found = value.get(name) if isinstance(value, Mapping) else None
    if type(found) is not kind:
        raise Failed("malformed-answer", f"a 200 without {name}", 200)
    return found


def _events(body: bytes) -> list[dict[str, Any]]:
    """Return the JSON objects of a stream that `chat.joined` has read."""
    return [orjson.loads(data) for data in chat.events(body) if data != chat.DONE]


def _ids(folder: Path, text: str) -> list[int]:
    """Return the ids the checkpoint's own tokenizer gives a text, no special tokens added."""
    if (file := folder / "tokenizer.json").is_file():
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(file)).encode(text, add_special_tokens=False).ids
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, local_files_only=True).encode(text, add_special_tokens=False)


def _started(said: str) -> dict[str, Any]:
    """Return the first line of `serve.py`; empty when it did not come to that."""
    for line in said.splitlines():
        with contextlib.suppress(ValueError):
            if isinstance(value := json.loads(line), dict):
                return value
    return {}


def _complaint(said: str) -> str:
    """Return what the server printed of an error: what its engine says, else its own last line."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line.removeprefix("Error: ") for line in lines if line.startswith("Error: ")]
    return ([*errors[-1:], *lines[-1:], "it does not say why"][0])[: chat.MESSAGE_LENGTH]


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
