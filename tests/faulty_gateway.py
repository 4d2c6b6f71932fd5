"""A gateway that is right, and wrong in one way on request: what a verification then finds is that fault.

It renders with the checkpoint's own code, asks an engine on vLLM's gRPC wire, and reads the Hermes format as Qwen3
writes it. It has the chat route, the routes for tokens and texts, and what `gateways/smg.py` asks of a control plane.

A fault takes the place of a stage:

| stage | takes | gives |
|---|---|---|
| body | the body of a chat | the body that is rendered |
| refusal | the error of a template | None to refuse, or a prompt |
| prompt | the prompt's text | the same |
| encoded | a tokenizer and the ids of any text | ids |
| ids | a tokenizer and the ids of a prompt | ids |
| asked | ids of the prompt | the prompts the engine is asked, in turn; the first is answered by |
| decode | a tokenizer and ids | their text |
| decoded | a function that decodes, and the engine's chunks | the text that each chunk adds |
| read | parts of the message by chunk | the same |
| sent | the same, when they are streamed | the same |
| reason, usage | how the engine says it ended; the counts | what the client is told |
| streamed_reason | the reason, when it is streamed | the same |
| events | the events of a stream | the same |
| served | name of a model | the one it is listed by |
| reply | the request, its body, and a function that answers | the answer |

Plain chats of one word, by which adapters find out whom they speak to, are `spared`: answered without the fault.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import grpc
from aiohttp import web
from smg_grpc_proto.generated import vllm_engine_pb2, vllm_engine_pb2_grpc
from tokenizers import Tokenizer

from bellwether.oracles.checkpoint import Checkpoint
from bellwether.oracles.prompts import TemplateError, arguments_of
from listening import Handler, listening

PROBES = (".", "Hi")
ENGINE_SECONDS = 10
"""How long an engine that ends meanwhile is waited for."""
NOT_RENDERED = ("model", "rid", "stream", "stream_options", "max_tokens")
UNFINISHED = "\ufffd"
"""How a character of which bytes are missing is decoded."""

Body = dict[str, Any]
Event = dict[str, Any] | str
"""A chat chunk, or other data."""
Respond = Callable[[], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a message: text of a field; of a call the name, or a piece of its arguments."""

    field: str
    """content, reasoning_content, name or arguments."""
    text: str
    call: int | None = None


Parts = list[list[Part]]
"""By chunk of the engine."""


# ── a correct reader ─────────────────────────────────────────────────────────────────────────────────────────────────

HEAD = re.compile(r'\{"name": ("(?:[^"\\]|\\.)*"), "arguments": ')


@dataclass(slots=True)
class Reader:
    """Reads `<think>` … `</think>`, content, and `<tool_call>` with JSON in it, as it comes.

    JSON strings hold no line feed, so a line feed before the closing tag tells that from a tag inside a string.
    """

    state: str = "start"
    held: str = ""
    """What may still become a tag."""
    call: int = -1

    def take(self, text: str, *, last: bool = False) -> list[Part]:
        """Return what `text` adds. With `last` nothing is held back."""
        self.held += text
        parts: list[Part] = []
        more = True
        while more:
            found, more = getattr(self, f"_{self.state}")(last)
            parts += found
        return [part for part in parts if part.text or part.field == "name"]

    def _start(self, last: bool) -> tuple[list[Part], bool]:
        return self._opened({"<think>\n": "reasoning", "<tool_call>\n": "head"}, "content", last)

    def _reasoning(self, last: bool) -> tuple[list[Part], bool]:
        text, ended = self._until("\n</think>\n\n", last)
        self.state = "answer" if ended else self.state
        return [Part("reasoning_content", text)], ended

    def _answer(self, last: bool) -> tuple[list[Part], bool]:
        return self._opened({"<tool_call>\n": "head"}, "content", last)

    def _content(self, last: bool) -> tuple[list[Part], bool]:
        text, ended = self._until("\n<tool_call>\n", last)
        self.state = "head" if ended else self.state
        return [Part("content", text)], ended

    def _head(self, last: bool) -> tuple[list[Part], bool]:
        if not (head := HEAD.match(self.held)):
            return [], False
        self.held = self.held[head.end() :]
        self.call += 1
        self.state = "arguments"
        return [Part("name", json.loads(head[1]), self.call)], True

    def _arguments(self, last: bool) -> tuple[list[Part], bool]:
        text, ended = self._until("}\n</tool_call>", last)
        self.state = "content" if ended else self.state
        return [Part("arguments", text, self.call)], ended

    def _opened(self, tags: Mapping[str, str], otherwise: str, last: bool) -> tuple[list[Part], bool]:
        """Go where a tag at the place leads to, once it is known whether there is one."""
        for tag, state in tags.items():
            if self.held.startswith(tag):
                self.held, self.state = self.held[len(tag) :], state
                return [], True
        if not last and any(tag.startswith(self.held) for tag in tags):
            return [], False
        self.state = otherwise
        return [], True

    def _until(self, tag: str, last: bool) -> tuple[str, bool]:
        """Return what comes before `tag`, and whether that was found; a beginning of it at the end is held back."""
        before, found, after = self.held.partition(tag)
        if found:
            self.held = after
            return before, True
        kept = 0 if last else max(size for size in range(len(tag)) if self.held.endswith(tag[:size]))
        text, self.held = self.held[: len(self.held) - kept], self.held[len(self.held) - kept :]
        return text, False


def parts_of(texts: Iterable[str]) -> Parts:
    """Return the parts each text adds; what was held back comes with the last one."""
    reader = Reader()
    chunks = [reader.take(text) for text in texts] or [[]]
    chunks[-1] += reader.take("", last=True)
    return chunks


def incremental(decode: Callable[[list[int]], str], chunks: list[list[int]]) -> list[str]:
    """Return the text each chunk of ids adds; a character waits for its last byte."""
    ids: list[int] = []
    texts, given = [], 0
    for number, chunk in enumerate(chunks, start=1):
        ids += chunk
        text = decode(ids)
        whole = text if number == len(chunks) else text.rstrip(UNFINISHED)
        texts.append(whole[given:])
        given = max(given, len(whole))
    return texts


# ── a gateway ────────────────────────────────────────────────────────────────────────────────────────────────────────


def decoded(tokenizer: Tokenizer, ids: list[int]) -> str:
    return tokenizer.decode(ids, skip_special_tokens=False)


async def answered(request: web.Request, body: Body, respond: Respond) -> web.StreamResponse:
    return await respond()


@dataclass(frozen=True, slots=True)
class Stages:
    """What a gateway does. As it stands, it is right."""

    body: Callable[[Body], Body] = lambda body: body
    streamed_body: Callable[[Body], Body] = lambda body: body
    refusal: Callable[[str], str | None] = lambda error: None
    prompt: Callable[[str], str] = lambda text: text
    encoded: Callable[[Tokenizer, list[int]], list[int]] = lambda tokenizer, ids: ids
    ids: Callable[[Tokenizer, list[int]], list[int]] = lambda tokenizer, ids: ids
    asked: Callable[[list[int]], list[list[int]]] = lambda ids: [ids]
    decode: Callable[[Tokenizer, list[int]], str] = decoded
    decoded: Callable[[Callable[[list[int]], str], list[list[int]]], list[str]] = incremental
    read: Callable[[Parts], Parts] = lambda chunks: chunks
    sent: Callable[[Parts], Parts] = lambda chunks: chunks
    reason: Callable[[str], str] = lambda reason: reason
    streamed_reason: Callable[[str], str] = lambda reason: reason
    usage: Callable[[int, int], tuple[int, int]] = lambda prompt, completion: (prompt, completion)
    events: Callable[[list[Event]], list[Event]] = lambda events: events
    served: Callable[[str], str] = lambda model: model
    reply: Callable[[web.Request, Body, Respond], Awaitable[web.StreamResponse]] = answered


RIGHT = Stages()


@dataclass(slots=True)
class Said:
    """What the engine said to one request."""

    chunks: list[list[int]]
    """Without the id that ends the turn."""
    reason: str
    usage: tuple[int, int]


@dataclass
class FaultyGateway:
    """The gateway, in a thread of its own while `running`."""

    checkpoints: Mapping[str, Checkpoint]
    """By the name clients use."""
    upstream: str | None = None
    """host:port of the engine, where no worker is registered."""
    fault: Stages = RIGHT
    spared: tuple[str, ...] = PROBES
    """Chats that are answered rightly, whatever the fault."""
    url: str = ""
    _workers: dict[str, Body] = field(default_factory=dict)
    _tokenizers: dict[str, str] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _channels: dict[str, grpc.Channel] = field(default_factory=dict)

    @contextmanager
    def running(self) -> Iterator[FaultyGateway]:
        """Listen on a free port until the end."""
        ready, loops = threading.Event(), []

        async def run() -> None:
            ended = asyncio.Event()
            async with listening(self._routes()) as self.url:
                loops.append((asyncio.get_running_loop(), ended))
                ready.set()
                await ended.wait()

        thread = threading.Thread(target=asyncio.run, args=(run(),), daemon=True)
        thread.start()
        assert ready.wait(30), "the gateway does not start"
        try:
            yield self
        finally:
            [(loop, ended)] = loops
            loop.call_soon_threadsafe(ended.set)
            thread.join(30)
            for channel in self._channels.values():
                channel.close()

    @contextmanager
    def wrong(self, fault: Stages, spared: tuple[str, ...] = PROBES) -> Iterator[None]:
        """Have the fault meanwhile."""
        self.fault, self.spared = fault, spared
        try:
            yield
        finally:
            self.fault, self.spared = RIGHT, PROBES

    def _routes(self) -> dict[str, Handler]:
        return {
            "GET /liveness": self._alive,
            "GET /get_loads": self._alive,
            "GET /v1/models": self._models,
            "GET /workers": self._all_workers,
            "POST /workers": self._add_worker,
            "GET /workers/{id}": self._worker,
            "DELETE /workers/{id}": self._remove,
            "GET /v1/tokenizers": self._all_tokenizers,
            "POST /v1/tokenizers": self._add_tokenizer,
            "GET /v1/tokenizers/{id}/status": self._tokenizer,
            "DELETE /v1/tokenizers/{id}": self._remove,
            "POST /v1/tokenize": self._tokenize,
            "POST /v1/detokenize": self._detokenize,
            "POST /v1/chat/completions": self._chat,
        }

    # ── the control plane ────────────────────────────────────────────────────────────────────────────────────────────

    async def _alive(self, request: web.Request) -> web.Response:
        return web.json_response({"version": "smg-0.0.0"})

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": self.fault.served(model)} for model in self.checkpoints]})

    async def _all_workers(self, request: web.Request) -> web.Response:
        return web.json_response({"workers": list(self._workers.values())})

    async def _add_worker(self, request: web.Request) -> web.Response:
        """Take a worker for what it says it serves."""
        body = await request.json()
        name = f"w{next(self._numbers)}"
        stub = self._stub(body["url"].removeprefix("grpc://"))
        info = await asyncio.to_thread(stub.GetModelInfo, vllm_engine_pb2.GetModelInfoRequest())
        self._workers[name] = {
            "worker_id": name,
            "url": body["url"],
            "labels": body["labels"],
            "model_id": self.fault.served(info.served_model_name),
            "is_healthy": True,
        }
        return web.json_response(self._workers[name], status=202)

    async def _worker(self, request: web.Request) -> web.Response:
        return web.json_response(self._workers[request.match_info["id"]])

    async def _remove(self, request: web.Request) -> web.Response:
        self._workers.pop(request.match_info["id"], None)
        self._tokenizers.pop(request.match_info["id"], None)
        return web.json_response({})

    async def _all_tokenizers(self, request: web.Request) -> web.Response:
        return web.json_response({"tokenizers": [{"name": name} for name in self._tokenizers.values()]})

    async def _add_tokenizer(self, request: web.Request) -> web.Response:
        name = f"t{next(self._numbers)}"
        self._tokenizers[name] = (await request.json())["name"]
        return web.json_response({"id": name}, status=202)

    async def _tokenizer(self, request: web.Request) -> web.Response:
        known = self._tokenizers[request.match_info["id"]] in self.checkpoints
        return web.json_response({"status": "completed" if known else "failed"})

    # ── tokens and texts ─────────────────────────────────────────────────────────────────────────────────────────────

    async def _tokenize(self, request: web.Request) -> web.Response:
        body = await request.json()
        return web.json_response({"tokens": self._encode(body["model"], body["prompt"])})

    async def _detokenize(self, request: web.Request) -> web.Response:
        body = await request.json()
        return web.json_response({"text": self.fault.decode(self._of(body["model"]), body["tokens"])})

    def _of(self, model: str) -> Tokenizer:
        return self.checkpoints[model].encoders[0].tokenizer

    def _encode(self, model: str, text: str) -> list[int]:
        tokenizer = self._of(model)
        return self.fault.encoded(tokenizer, tokenizer.encode(text, add_special_tokens=False).ids)

    # ── a chat ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.text())
        if [message.get("content") for message in body["messages"]] in [[probe] for probe in self.spared]:
            return await self._answer(request, body, RIGHT)
        fault = self.fault
        return await fault.reply(request, body, lambda: self._answer(request, body, fault))

    async def _answer(self, request: web.Request, body: Body, fault: Stages) -> web.StreamResponse:
        model, key = body["model"], body.get("rid") or request.headers["X-Request-Id"]
        rendered = {name: value for name, value in body.items() if name not in NOT_RENDERED}
        rendered = fault.body(rendered)
        if body.get("stream"):
            rendered = fault.streamed_body(rendered)
        try:
            prompt = self.checkpoints[model].render(**arguments_of(rendered))
        except TemplateError as error:
            if (prompt := fault.refusal(str(error))) is None:
                return refusal(str(error), "template_error")
        tokenizer = self._of(model)
        ids = fault.ids(tokenizer, self._encode(model, fault.prompt(prompt)))
        answers = [
            await asyncio.to_thread(self._ask, model, f"{key}-{number}", prompt_ids, body["stream"])
            for number, prompt_ids in enumerate(fault.asked(ids))
        ]
        said = answers[0] if answers else Said([], "stop", (len(ids), 0))
        texts = fault.decoded(lambda ids: fault.decode(tokenizer, ids), said.chunks)
        parts = fault.read(parts_of(texts))
        calls = any(part.call is not None for chunk in parts for part in chunk)
        reason = fault.reason("tool_calls" if calls and said.reason == "stop" else said.reason)
        prompt_tokens, completion_tokens = fault.usage(*said.usage)
        usage = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}
        usage["total_tokens"] = prompt_tokens + completion_tokens
        if not body["stream"]:
            return web.json_response({"choices": [whole(parts, reason)], "usage": usage})
        events = fault.events(streamed(fault.sent(parts), fault.streamed_reason(reason), usage))
        return await send(request, events)

    def _stub(self, address: str) -> vllm_engine_pb2_grpc.VllmEngineStub:
        if address not in self._channels:
            self._channels[address] = grpc.insecure_channel(address)
        return vllm_engine_pb2_grpc.VllmEngineStub(self._channels[address])

    def _ask(self, model: str, request_id: str, ids: list[int], stream: bool) -> Said:
        """Return what the engine says to a prompt."""
        urls = [worker["url"].removeprefix("grpc://") for worker in self._workers.values()]
        request = vllm_engine_pb2.GenerateRequest(request_id=request_id, tokenized={"input_ids": ids}, stream=stream)
        *chunks, last = self._stub(urls[-1] if urls else self.upstream).Generate(request, timeout=ENGINE_SECONDS)
        complete = last.complete
        pieces = [list(one.chunk.token_ids) for one in chunks] or [list(complete.output_ids)]
        ends = self.checkpoints[model].stop_ids.parse
        kept = [[token for token in piece if token not in ends] for piece in pieces]
        return Said(kept, complete.finish_reason, (complete.prompt_tokens, complete.completion_tokens))


def refusal(message: str, code: str) -> web.Response:
    return web.json_response({"error": {"message": message, "code": code, "type": "invalid_request_error"}}, status=400)


def whole(parts: Parts, reason: str) -> Body:
    """Return the choice of an answer at once."""
    texts: dict[str, str] = {}
    calls: dict[int, dict[str, str]] = {}
    for part in itertools.chain.from_iterable(parts):
        into = texts if part.call is None else calls.setdefault(part.call, {"name": "", "arguments": ""})
        into[part.field] = into.get(part.field, "") + part.text
    message: Body = {"role": "assistant", "content": None, **texts}
    if calls:
        message["tool_calls"] = [
            {"id": f"c{index}", "type": "function", "function": call} for index, call in calls.items()
        ]
    return {"index": 0, "message": message, "finish_reason": reason}


def streamed(parts: Parts, reason: str, usage: Body) -> list[Event]:
    """Return the events of a stream: the role, a delta per part, how it ended, the counts, and `[DONE]`."""
    deltas = [_delta(part) for part in itertools.chain.from_iterable(parts)]
    events: list[Event] = [chunk(delta) for delta in ({"role": "assistant", "content": ""}, *deltas)]
    return [*events, chunk({}, reason), {"choices": [], "usage": usage}, "[DONE]"]


def chunk(delta: Body, reason: str | None = None) -> Body:
    """Return a chat chunk."""
    return {
        "object": "chat.completion.chunk",
        "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
    }


def _delta(part: Part) -> Body:
    if part.call is None:
        return {part.field: part.text}
    named = {"id": f"c{part.call}", "type": "function"} if part.field == "name" else {}
    return {"tool_calls": [{"index": part.call, **named, "function": {part.field: part.text}}]}


async def send(request: web.Request, events: Iterable[Event]) -> web.StreamResponse:
    """Send events one by one."""
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    for event in events:
        data = event if isinstance(event, str) else json.dumps(event)
        await response.write(f"data: {data}\n\n".encode())
    await response.write_eof()
    return response


# ── what goes wrong with a prompt ────────────────────────────────────────────────────────────────────────────────────


def without_first(tokenizer: Tokenizer, ids: list[int]) -> list[int]:
    return ids[1:]


def first_twice(tokenizer: Tokenizer, ids: list[int]) -> list[int]:
    return ids[:1] + ids


def end_added(tokenizer: Tokenizer, ids: list[int]) -> list[int]:
    """End a prompt as ChatML ends a turn."""
    return [*ids, tokenizer.token_to_id("<|im_end|>")]


def without_a_special(tokenizer: Tokenizer, ids: list[int]) -> list[int]:
    """Leave the second special token out: on ChatML, the one that ends the first turn."""
    special = {number for number, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    _, place, *_ = (place for place, token in enumerate(ids) if token in special)
    return ids[:place] + ids[place + 1 :]


def a_word_split(tokenizer: Tokenizer, ids: list[int]) -> list[int]:
    """Spell the first word of two letters or more with two tokens instead of one."""
    for place, token in enumerate(ids):
        text = decoded(tokenizer, [token])
        if len(text) > 1 and text.isascii() and text.isalpha():
            pieces = (tokenizer.encode(piece, add_special_tokens=False).ids for piece in (text[:1], text[1:]))
            return [*ids[:place], *itertools.chain.from_iterable(pieces), *ids[place + 1 :]]
    return ids


def tool_keys_swapped(body: Body) -> Body:
    tools = [dict(reversed(tool.items())) for tool in body.get("tools") or ()]
    return body | ({"tools": tools} if tools else {})


def without(name: str) -> Callable[[Body], Body]:
    return lambda body: {key: value for key, value in body.items() if key != name}


def setting(**values: Any) -> Callable[[Body], Body]:
    return lambda body: body | values


# ── what goes wrong with an answer ───────────────────────────────────────────────────────────────────────────────────


def without_markers(tokenizer: Tokenizer, ids: list[int]) -> str:
    """Decode as if every added token were a special one."""
    added = tokenizer.get_added_tokens_decoder()
    return decoded(tokenizer, [token for token in ids if token not in added])


def alone(decode: Callable[[list[int]], str], chunks: list[list[int]]) -> list[str]:
    """Decode every chunk by itself: a character whose bytes come in two is none in either."""
    return [decode(chunk) for chunk in chunks]


def keeping(keep: Callable[[Part], bool]) -> Callable[[Parts], Parts]:
    """Lose the other parts."""
    return lambda chunks: [[part for part in chunk if keep(part)] for chunk in chunks]


def marker_leaked(chunks: Parts) -> Parts:
    """Say the tag that opens a call as content too."""
    return [
        [
            said
            for part in chunk
            for said in ([Part("content", "<tool_call>"), part] if part.field == "name" else [part])
        ]
        for chunk in chunks
    ]


def reasoning_as_content(chunks: Parts) -> Parts:
    return [
        [replace(part, field="content") if part.field == "reasoning_content" else part for part in chunk]
        for chunk in chunks
    ]


def content_ended_with(end: str) -> Callable[[Parts], Parts]:
    return lambda chunks: [*chunks[:-1], [*chunks[-1], Part("content", end)]]


def in_one_part(field: str, change: Callable[[str], str] = lambda text: text) -> Callable[[Parts], Parts]:
    """Give all text of a field at once, changed, where its last piece was; of each call its own."""

    def join(chunks: Parts) -> Parts:
        last = {part.call: (at, part) for at, chunk in enumerate(chunks) for part in chunk if part.field == field}
        texts: dict[int | None, str] = {}
        for part in itertools.chain.from_iterable(chunks):
            if part.field == field:
                texts[part.call] = texts.get(part.call, "") + part.text
        kept = keeping(lambda part: part.field != field)(chunks)
        for call, (at, part) in last.items():
            kept[at].append(replace(part, text=change(texts[call])))
        return kept

    return join


NUMBER = re.compile(r"(?<=: )\d+(?=[,}])")


def numbers(spelt: str) -> Callable[[Parts], Parts]:
    """Spell integers in arguments in another way."""
    return in_one_part("arguments", lambda text: NUMBER.sub(spelt, text))


def two_swapped(chunks: Parts) -> Parts:
    """Send the first two pieces of content in the wrong order."""
    places = [(at, of) for at, chunk in enumerate(chunks) for of, part in enumerate(chunk) if part.field == "content"]
    if len(places) < 2:
        return chunks
    (at, of), (at_next, of_next) = places[:2]
    swapped = [list(chunk) for chunk in chunks]
    swapped[at][of], swapped[at_next][of_next] = chunks[at_next][of_next], chunks[at][of]
    return swapped


def first_call_of_two_lost(chunks: Parts) -> Parts:
    """Keep one call per chunk: of two that begin in one, the last."""
    lost = set()
    for chunk in chunks:
        *earlier, _ = [part.call for part in chunk if part.field == "name"] or [None]
        lost |= set(earlier)
    left = sorted({part.call for chunk in chunks for part in chunk if part.call is not None} - lost)
    return [
        [part if part.call is None else replace(part, call=left.index(part.call)) for part in chunk]
        for chunk in keeping(lambda part: part.call not in lost)(chunks)
    ]


def all_one_call(chunks: Parts) -> Parts:
    """Give every call the index of the first."""
    return [[part if part.call is None else replace(part, call=0) for part in chunk] for chunk in chunks]


def last_chunk_lost(chunks: Parts) -> Parts:
    """Forget what comes together with the end."""
    return [*chunks[:-1], []]


# ── what goes wrong with a stream ────────────────────────────────────────────────────────────────────────────────────


def is_terminal(event: Event) -> bool:
    return isinstance(event, dict) and any(choice["finish_reason"] for choice in event["choices"])


def cut_off(events: list[Event]) -> list[Event]:
    return list(itertools.takewhile(lambda event: not is_terminal(event), events))


def terminal_twice(events: list[Event]) -> list[Event]:
    return [one for event in events for one in ([event, event] if is_terminal(event) else [event])]


def text_after_terminal(events: list[Event]) -> list[Event]:
    late = chunk({"content": " "})
    return [one for event in events for one in ([event, late] if is_terminal(event) else [event])]


def malformed(events: list[Event]) -> list[Event]:
    return [events[0], '{"choices": [', *events[1:]]


def error_in_stream(events: list[Event]) -> list[Event]:
    return [*events[:2], {"error": {"message": "the engine is tired", "type": "internal"}}]


# ── what goes wrong with a request ───────────────────────────────────────────────────────────────────────────────────


async def hangs(request: web.Request, body: Body, respond: Respond) -> web.StreamResponse:
    """Say nothing until the client has gone."""
    while request.transport is not None:
        await asyncio.sleep(0.02)
    return web.Response()


async def closes(request: web.Request, body: Body, respond: Respond) -> web.StreamResponse:
    """Say that more is to come, and go away."""
    response = web.StreamResponse(headers={"content-length": "1000"})
    await response.prepare(request)
    await response.write(b"data: ")
    request.transport.close()
    return response


async def closes_at_once(request: web.Request, body: Body, respond: Respond) -> web.StreamResponse:
    request.transport.close()
    return web.Response()


async def fails(request: web.Request, body: Body, respond: Respond) -> web.StreamResponse:
    return web.json_response({"error": {"message": "out of cheese", "type": "server_error"}}, status=500)


async def redirects(request: web.Request, body: Body, respond: Respond) -> web.StreamResponse:
    return web.Response(status=307, headers={"location": "/v1/chat/completions?again"})


async def says_garbage(request: web.Request, body: Body, respond: Respond) -> web.StreamResponse:
    return web.Response(text="<html>It works!</html>", content_type="text/html")


async def refuses_tools(request: web.Request, body: Body, respond: Respond) -> web.StreamResponse:
    return refusal("tools are not offered", "no_tools") if body.get("tools") else await respond()


# ── the faults ───────────────────────────────────────────────────────────────────────────────────────────────────────

FAULTS = {
    # prompts
    "drops-the-bos": Stages(ids=without_first),
    "doubles-the-bos": Stages(ids=first_twice),
    "adds-an-end": Stages(ids=end_added),
    "drops-a-special-token": Stages(ids=without_a_special),
    "splits-a-word": Stages(encoded=a_word_split),
    "swaps-tool-keys": Stages(body=tool_keys_swapped),
    "drops-the-tools": Stages(body=without("tools")),
    "drops-the-generation-prompt": Stages(body=setting(add_generation_prompt=False)),
    "turns-thinking-off": Stages(body=setting(chat_template_kwargs={"enable_thinking": False})),
    "trims-a-newline": Stages(prompt=lambda text: text.removesuffix("\n")),
    "accepts-what-the-template-refuses": Stages(refusal=lambda error: "<|im_start|>assistant\n"),
    # answers
    "eats-a-character": Stages(decode=lambda tokenizer, ids: decoded(tokenizer, ids).replace(",", "")),
    "skips-markers": Stages(decode=without_markers),
    "loses-the-second-call": Stages(read=keeping(lambda part: part.call != 1)),
    "leaks-a-marker": Stages(read=marker_leaked),
    "gives-reasoning-as-content": Stages(read=reasoning_as_content),
    "adds-a-newline": Stages(read=content_ended_with("\n")),
    "spells-numbers-as-text": Stages(read=numbers(r'"\g<0>"')),
    "spells-numbers-with-a-fraction": Stages(read=numbers(r"\g<0>.0")),
    "says-stop-for-calls": Stages(reason=lambda reason: "stop" if reason == "tool_calls" else reason),
    "says-tool-use": Stages(reason=lambda reason: "tool_use" if reason == "tool_calls" else reason),
    # streams
    "thinks-otherwise-when-streamed": Stages(streamed_body=setting(chat_template_kwargs={"enable_thinking": False})),
    "merges-deltas": Stages(sent=in_one_part("content")),
    "swaps-two-deltas": Stages(sent=two_swapped),
    "loses-a-call-of-two-in-a-chunk": Stages(sent=first_call_of_two_lost),
    "numbers-all-calls-alike": Stages(sent=all_one_call),
    "loses-the-last-chunk": Stages(sent=last_chunk_lost),
    "splits-characters": Stages(decoded=alone),
    "streams-stop-for-calls": Stages(streamed_reason=lambda reason: "stop"),
    "cuts-streams-off": Stages(events=cut_off),
    "leaves-done-out": Stages(events=lambda events: events[:-1]),
    "goes-on-after-done": Stages(events=lambda events: [*events, chunk({})]),
    "ends-twice": Stages(events=terminal_twice),
    "writes-after-the-end": Stages(events=text_after_terminal),
    # the interface
    "counts-prompt-tokens-wrong": Stages(usage=lambda prompt, completion: (prompt + 1, completion)),
    "counts-completion-tokens-wrong": Stages(usage=lambda prompt, completion: (prompt, completion - 1)),
    "refuses-tools": Stages(reply=refuses_tools),
    # what makes a measurement impossible, or only seems to
    "hangs": Stages(reply=hangs),
    "closes-early": Stages(reply=closes),
    "closes-at-once": Stages(reply=closes_at_once),
    "fails": Stages(reply=fails),
    "redirects": Stages(reply=redirects),
    "says-garbage": Stages(reply=says_garbage),
    "streams-garbage": Stages(events=malformed),
    "streams-an-error": Stages(events=error_in_stream),
    "asks-the-engine-twice": Stages(asked=lambda ids: [ids, ids]),
    "asks-the-engine-twice-in-two-ways": Stages(asked=lambda ids: [ids, ids[:-1]]),
    "asks-no-engine": Stages(asked=lambda ids: []),
    "serves-another-model": Stages(served=lambda model: f"{model}-FP8"),
}
