"""POST /v1/chat/completions, answered at once or as server-sent events: the route that all gateways have.

What comes back is read strictly. A body or an event that is no chat completion is a failed measurement; a stream of
well-formed events in a wrong order is an answer, with the rule it breaks:

| FRAMING | broken when |
|---|---|
| no-terminal | no event says a finish_reason |
| two-terminals | more than one does |
| after-terminal | text or a part of a call comes after it |
| no-done | `[DONE]` does not end the stream |
| after-done | an event comes after `[DONE]` |
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson

from bellwether.gateways.answer import Answer, Failed, Refused

ROUTE = "/v1/chat/completions"
FRAMING = ("no-terminal", "two-terminals", "after-terminal", "no-done", "after-done")
ANSWER_SECONDS = 60.0
ANSWER_BYTES = 64 << 20
MESSAGE_LENGTH = 500
REFUSALS = (400, 422)
"""Statuses by which a server says that the request is at fault; all others say nothing of it."""
PARSER = "x-smg-parser"
DONE = b"[DONE]"
LONG = 16
"""Characters of a text that takes more than one event, where its ids come one by one."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP answer, read to its end."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def session() -> aiohttp.ClientSession:
    """Return a client that knows no proxy of the environment and as many connections as it is asked for."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"content-type": "application/json"},
        trust_env=False,
    )


async def post(
    client: aiohttp.ClientSession,
    url: str,
    body: bytes,
    headers: Mapping[str, str] | None = None,
    *,
    method: str = "POST",
    seconds: float = ANSWER_SECONDS,
) -> Reply:
    """Return what a server answers, whatever its status. Redirects are not followed.

    Raises:
        Failed: `timeout`, `unreachable`, `closed-early`, `redirect` or `too-long`.
    """
    received = bytearray()
    status = None
    try:
        async with client.request(
            method,
            url,
            data=body or None,
            headers=headers,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=seconds),
        ) as response:
            status = response.status
            while chunk := await response.content.readany():
                received += chunk
                if len(received) > ANSWER_BYTES:
                    raise Failed("too-long", f"more than {ANSWER_BYTES:,} bytes", status)
            if 300 <= status < 400:
                raise Failed("redirect", "redirects are not followed", status)
            return Reply(status, response.headers, bytes(received))
    except TimeoutError:
        raise Failed("timeout", f"no whole answer within {seconds:g} s", status) from None
    except aiohttp.ClientConnectorError as error:
        raise Failed("unreachable", type(error).__name__) from None
    except (aiohttp.ClientError, ConnectionError, ValueError) as error:
        raise Failed("closed-early" if received or status else "no-answer", type(error).__name__, status) from None


def json_of(reply: Reply) -> Any:
    """Return the JSON value of a 200.

    Raises:
        Refused: a 400 or 422 whose body says why.
        Failed: `http-<status>` for any other; `malformed-answer` for a 200 that is no JSON.
    """
    if reply.status == 200:
        try:
            return orjson.loads(reply.body)
        except ValueError:
            raise Failed("malformed-answer", "a 200 that is no JSON", 200) from None
    raise _no_success(reply)


def _no_success(reply: Reply) -> Refused | Failed:
    said = reply.body[: 4 * MESSAGE_LENGTH].decode("utf-8", "replace").strip()
    try:
        error = orjson.loads(reply.body)["error"]
    except (ValueError, LookupError, TypeError):
        error = None
    if reply.status in REFUSALS and isinstance(error, dict) and isinstance(error.get("message"), str):
        code = error.get("code") or error.get("type") or f"http-{reply.status}"
        return Refused(str(code), error["message"][:MESSAGE_LENGTH], reply.status)
    if reply.status == 422 and said:  # its meaning is in the status alone
        return Refused("http-422", said[:MESSAGE_LENGTH], 422)
    message = error.get("message") if isinstance(error, dict) else said
    return Failed(f"http-{reply.status}", str(message or "")[:MESSAGE_LENGTH], reply.status)


async def complete(
    client: aiohttp.ClientSession,
    url: str,
    body: bytes,
    headers: Mapping[str, str] | None = None,
    *,
    seconds: float = ANSWER_SECONDS,
) -> Answer:
    """Return the message of a chat answered at once.

    Raises:
        Refused, Failed: see `post` and `json_of`; `malformed-answer` for a 200 that is no chat completion.
    """
    reply = await post(client, url + ROUTE, body, headers, seconds=seconds)
    return message_of(json_of(reply), reply.headers)


def message_of(value: Any, headers: Mapping[str, str]) -> Answer:
    """Return the message of a chat completion.

    Raises:
        Failed: it is none.
    """
    try:
        choice = value["choices"][0]
        message = choice["message"]
        calls = [_call(call) for call in message.get("tool_calls") or []]
        return Answer(
            content=_text(message, "content"),
            reasoning_content=_reasoning(message),
            tool_calls=calls,
            finish_reason=_text(choice, "finish_reason"),
            usage=_usage(value),
            parser=headers.get(PARSER),
        )
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise Failed("malformed-answer", f"no chat completion: {type(error).__name__}: {error}", 200) from None


async def stream(
    client: aiohttp.ClientSession,
    url: str,
    body: bytes,
    headers: Mapping[str, str] | None = None,
    *,
    seconds: float = ANSWER_SECONDS,
) -> Answer:
    """Return the message of a streamed chat: deltas joined per field, and per index of a call.

    Raises:
        Refused, Failed: as `complete`; `malformed-event` for an event that is no chat chunk, `stream-error` for one
            that says an error.
    """
    reply = await post(client, url + ROUTE, body, headers, seconds=seconds)
    if reply.status != 200:
        raise _no_success(reply)
    return joined(reply.body, reply.headers)


def joined(body: bytes, headers: Mapping[str, str]) -> Answer:
    """Return the message of the events of a whole stream.

    Raises:
        Failed: see `stream`.
    """
    state = _Stream()
    try:
        for data in events(body):
            state.take(data)
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise Failed("malformed-event", f"no chat chunk: {type(error).__name__}: {error}", 200) from None
    return state.answer(headers.get(PARSER))


def events(body: bytes) -> Iterator[bytes]:
    """Yield the data of each server-sent event; its lines are joined, comments and other fields left out.

    Raises:
        ValueError: the stream ends inside an event, or holds something else.
    """
    blocks = (body.replace(b"\r\n", b"\n") if b"\r" in body else body).split(b"\n\n")
    if blocks.pop().strip():
        raise ValueError("the stream ends inside an event")
    for block in blocks:
        if block.startswith(b"data: ") and b"\n" not in block:  # nearly all
            yield block[6:]
            continue
        lines = block.splitlines()
        for line in lines:
            if not line.startswith((b"data:", b":", b"event:", b"id:", b"retry:")):
                raise ValueError("a line that is no field of an event")
        data = [line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:")]
        if data:
            yield b"\n".join(data)


@dataclass(slots=True)
class _Stream:
    """What the events so far add up to."""

    content: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: dict[int, dict[str, Any]] = field(default_factory=dict)
    finish_reason: str | None = None
    usage: tuple[int, int] | None = None
    terminals: int = 0
    texts: int = 0
    late: bool = False
    done: bool = False
    after_done: bool = False

    def take(self, data: bytes) -> None:
        if self.done:
            self.after_done = True
        if data == DONE:
            self.done = True
            return
        value = orjson.loads(data)
        if "error" in value:
            error = value["error"]
            message = error.get("message") if isinstance(error, dict) else error
            raise Failed("stream-error", str(message)[:MESSAGE_LENGTH], 200)
        if value.get("usage") is not None:
            self.usage = _usage(value)
        for choice in value["choices"]:
            if choice.get("index", 0) == 0:
                self._choice(choice)

    def _choice(self, choice: dict[str, Any]) -> None:
        delta = choice["delta"]
        content, reasoning, calls = _text(delta, "content"), _reasoning(delta), delta.get("tool_calls")
        if content or reasoning or calls:
            self.late |= self.terminals > 0
            if content:
                self.content.append(content)
            if reasoning:
                self.reasoning.append(reasoning)
            self.texts += bool(content or reasoning)
            for part in calls or ():
                self._part(part)
        if (reason := _text(choice, "finish_reason")) is not None:
            self.terminals += 1
            self.finish_reason = reason

    def _part(self, part: dict[str, Any]) -> None:
        index = part["index"]
        if type(index) is not int:
            raise TypeError("the index of a call is no number")
        call = self.calls.setdefault(index, {"name": None, "arguments": []})
        function = part.get("function") or {}
        if (name := _text(function, "name")) is not None:
            call["name"] = (call["name"] or "") + name
        if arguments := _text(function, "arguments"):
            call["arguments"].append(arguments)

    def answer(self, parser: str | None) -> Answer:
        broken = (self.terminals == 0, self.terminals > 1, self.late, not self.done, self.after_done)
        return Answer(
            content="".join(self.content) or None,
            reasoning_content="".join(self.reasoning) or None,
            tool_calls=[
                {"name": call["name"], "arguments": "".join(call["arguments"])}
                for _, call in sorted(self.calls.items())
            ],
            finish_reason=self.finish_reason,
            usage=self.usage,
            parser=parser,
            framing=next((rule for rule, is_broken in zip(FRAMING, broken, strict=True) if is_broken), None),
            in_pieces=self._in_pieces(),
        )

    def _in_pieces(self) -> bool:
        """Return whether text came in more than one event, and none was all of a long content or reasoning."""
        alone = (pieces[0] for pieces in (self.content, self.reasoning) if len(pieces) == 1)
        return self.texts > 1 and all(len(text) < LONG for text in alone)


def _text(value: dict[str, Any], name: str) -> str | None:
    text = value.get(name)
    if text is not None and type(text) is not str:
        raise TypeError(f"{name} is no text")
    return text


def _reasoning(value: dict[str, Any]) -> str | None:
    """Return the reasoning, which some servers call `reasoning`."""
    text = _text(value, "reasoning_content")
    return _text(value, "reasoning") if text is None else text


def _call(call: dict[str, Any]) -> dict[str, str | None]:
    function = call["function"]
    arguments = _text(function, "arguments")
    return {"name": _text(function, "name"), "arguments": "" if arguments is None else arguments}


def _usage(value: dict[str, Any]) -> tuple[int, int] | None:
    usage = value.get("usage")
    if usage is None:
        return None
    counts = usage["prompt_tokens"], usage["completion_tokens"]
    if not all(type(count) is int and count >= 0 for count in counts):
        raise TypeError("a count of usage is no number")
    return counts


# ── what is sent ─────────────────────────────────────────────────────────────────────────────────────────────────────


def body_of(request: str, extra: Mapping[str, Any]) -> bytes:
    """Return a recorded body with `extra` keys in front; every other byte stays. A key of both is that of `extra`."""
    head = orjson.dumps(extra).decode()[:-1]
    if any(f'"{key}"' in request for key in extra):  # perhaps at the top
        rest = ",".join(f"{json.dumps(key)}:{raw}" for key, raw in members(request) if key not in extra) + "}"
    else:
        rest = request.strip().removeprefix("{").lstrip()
    return (head + ("," if extra and rest != "}" else "") + rest).encode("utf-8", "surrogatepass")


def members(request: str) -> Iterator[tuple[str, str]]:
    """Yield key and text of each member of a JSON object, in order."""
    decoder = json.JSONDecoder()
    space = re.compile(r"[ \t\r\n]*")
    place = space.match(request, space.match(request, 0).end() + 1).end()
    while request[place] != "}":
        key, place = decoder.raw_decode(request, place)
        place = space.match(request, space.match(request, place).end() + 1).end()
        _, end = decoder.raw_decode(request, place)
        yield key, request[place:end]
        place = space.match(request, end).end()
        if request[place] == ",":
            place = space.match(request, place + 1).end()
