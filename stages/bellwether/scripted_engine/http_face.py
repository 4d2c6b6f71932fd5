"""The HTTP face of the scripted engine: OpenAI's routes as vLLM serves them, and SGLang's own.

| route | answer |
|---|---|
| GET /health, /health_generate | 200, empty |
| GET /v1/models | the one model |
| GET /version | our own version, as vLLM gives its |
| POST /v1/completions | `prompt`: ids, text, or a list of one; `return_token_ids` adds those of prompt and answer |
| POST /v1/chat/completions | the answer's text as content: the engine's text, which nobody has parsed |
| GET /get_model_info, /get_server_info | as SGLang |
| POST /generate | `input_ids` or `text`; streamed, each event has all text and ids so far, as SGLang's have |
| any other | 404 with OpenAI's error object |

`stream` gives an event per chunk of the script. The request's id is the header `X-Request-Id`, else `request_id` or
`rid` of the body. Text is decoded by tokenizer.json of the served folder; without one it is empty, and counts of
prompts that came as text are 0. The prompt of a chat is not rendered, so it has no ids and counts 0.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import orjson
from aiohttp import web

from bellwether.errors import EngineError
from bellwether.progress import say
from bellwether.scripted_engine.capture import Asked, Record
from bellwether.scripted_engine.checkpoint import Checkpoint
from bellwether.scripted_engine.ports import unbound
from bellwether.scripted_engine.script import LARGEST_ID

if TYPE_CHECKING:
    from bellwether.scripted_engine.engine import ScriptedEngine

LARGEST_BODY = 256 << 20
NOT_SAMPLING = frozenset(
    "model prompt messages input_ids text stream stream_options rid request_id return_token_ids user metadata".split()
)
"""Fields of a body that are no sampling parameters."""
BINDING = frozenset(
    """tools tool_choice parallel_tool_calls response_format structured_outputs guided_json guided_regex guided_choice
    guided_grammar json_schema regex ebnf structural_tag""".split()
)
"""Fields that bind the output."""
DONE = b"data: [DONE]\n\n"


class Wrong(Exception):
    """Raised for a request that is answered with an error object."""

    def __init__(self, status: int, kind: str, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.error = {"message": message, "type": kind, "param": param, "code": code}

    def response(self) -> web.Response:
        return _json({"error": self.error}, self.status)


def _bad(message: str, param: str | None = None) -> Wrong:
    return Wrong(400, "invalid_request_error", message, param)


async def serve(engine: ScriptedEngine, checkpoint: Checkpoint, port: int) -> tuple[web.AppRunner, int]:
    """Serve a checkpoint on 127.0.0.1 in the running loop; return the runner and its port.

    Raises:
        EngineError: the port is in use.
    """
    face = _Face(engine, checkpoint)
    app = web.Application(client_max_size=LARGEST_BODY, middlewares=[_errors])
    app.add_routes(
        [
            web.get("/health", face.health),
            web.get("/health_generate", face.health),
            web.get("/v1/models", face.models),
            web.get("/version", face.version),
            web.post("/v1/completions", face.completions),
            web.post("/v1/chat/completions", face.chat),
            web.get("/get_model_info", face.model_info),
            web.get("/get_server_info", face.server_info),
            web.post("/generate", face.generate),
        ]
    )
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
    except OSError as error:
        await runner.cleanup()
        raise unbound(port, error) from None
    return runner, runner.addresses[0][1]


@web.middleware
async def _errors(request: web.Request, handler: Any) -> web.StreamResponse:
    """Answer what goes wrong with an error object, as OpenAI's servers do."""
    try:
        return await handler(request)
    except Wrong as error:
        return error.response()
    except web.HTTPException as error:
        if error.status in (404, 405):
            return Wrong(404, "not_found_error", f"{request.method} {request.path} is not offered").response()
        return Wrong(error.status, "invalid_request_error", error.reason).response()


@dataclass(slots=True)
class _Asked:
    """A request for an answer, read."""

    record: Record
    stream: bool
    with_ids: bool
    with_usage: bool
    skip_special: bool
    prompt_ids: list[int] | None


class _Face:
    """The routes of one checkpoint."""

    def __init__(self, engine: ScriptedEngine, checkpoint: Checkpoint) -> None:
        self.engine = engine
        self.checkpoint = checkpoint
        self.model = checkpoint.served.model

    async def health(self, request: web.Request) -> web.Response:
        return web.Response()

    async def models(self, request: web.Request) -> web.Response:
        facts = self.checkpoint.facts
        model = {
            "id": self.model,
            "object": "model",
            "created": 0,
            "owned_by": "bellwether",
            "root": facts["model_path"],
            "max_model_len": facts["max_context_length"],
        }
        return _json({"object": "list", "data": [model]})

    async def version(self, request: web.Request) -> web.Response:
        return _json({"version": version("bellwether-fixtures")})

    async def model_info(self, request: web.Request) -> web.Response:
        return _json(self.checkpoint.facts)

    async def server_info(self, request: web.Request) -> web.Response:
        facts = self.checkpoint.facts
        named = {name: facts[name] for name in ("model_path", "tokenizer_path", "served_model_name")}
        return _json({**named, "version": version("bellwether-fixtures"), "dp_size": 1, "tp_size": 1})

    async def completions(self, request: web.Request) -> web.StreamResponse:
        body, raw = await _body(request)
        ids, text = _prompt(body.get("prompt"))
        asked = self._begin(request, body, raw, ids, text)
        head = {"id": f"cmpl-{asked.record.request_id}", "object": "text_completion", "created": 0, "model": self.model}

        def choice(text: str, ids: list[int], finish: str | None) -> dict[str, Any]:
            one = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}
            if finish is not None:
                one["stop_reason"] = asked.record.script.matched
            if asked.with_ids:
                one["token_ids"] = ids
            return one

        prompt = {"prompt_token_ids": asked.prompt_ids} if asked.with_ids else {}
        if asked.stream:

            async def events() -> AsyncIterator[bytes]:
                for number, (piece, ids, finish) in enumerate(self._pieces(asked)):
                    one = choice(piece, ids, finish) | (prompt if number == 0 else {})
                    yield _event({**head, "choices": [one]})
                if asked.with_usage:
                    yield _event({**head, "choices": [], "usage": _usage(asked)})

            return await self._stream(request, asked, events())
        one = choice(self._text(asked), asked.record.script.ids, asked.record.script.finish_reason) | prompt
        return self._whole(asked, {**head, "choices": [one], "usage": _usage(asked)})

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body, raw = await _body(request)
        if not isinstance(body.get("messages"), list):
            raise _bad("messages is no list", "messages")
        asked = self._begin(request, body, raw, None, None)
        head = {"id": asked.record.request_id, "created": 0, "model": self.model}
        script = asked.record.script
        if asked.stream:
            head["object"] = "chat.completion.chunk"

            def event(delta: dict[str, Any], finish: str | None = None) -> bytes:
                return _event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

            async def events() -> AsyncIterator[bytes]:
                yield event({"role": "assistant", "content": ""})
                for piece, _, finish in self._pieces(asked):
                    yield event({"content": piece} if piece else {}, finish)
                if asked.with_usage:
                    yield _event({**head, "choices": [], "usage": _usage(asked)})

            return await self._stream(request, asked, events())
        message = {"role": "assistant", "content": self._text(asked)}
        choice = {"index": 0, "message": message, "finish_reason": script.finish_reason, "stop_reason": script.matched}
        return self._whole(asked, {**head, "object": "chat.completion", "choices": [choice], "usage": _usage(asked)})

    async def generate(self, request: web.Request) -> web.StreamResponse:
        body, raw = await _body(request)
        if (body.get("input_ids") is None) == (body.get("text") is None):
            raise _bad("one of input_ids and text is needed")
        ids, text = _prompt(body["text"] if body.get("input_ids") is None else body["input_ids"])
        sampling = {} if body.get("sampling_params") is None else body["sampling_params"]
        if not isinstance(sampling, dict):
            raise _bad("sampling_params is no object", "sampling_params")
        rest = {name: value for name, value in body.items() if name != "sampling_params"}
        asked = self._begin(request, {**rest, **sampling}, raw, ids, text)
        record = asked.record

        def answer(text: str, ids: list[int], finish: str | None) -> dict[str, Any]:
            reason = None if finish is None else {"type": finish, "matched": record.script.matched}
            counts = {"prompt_tokens": record.prompt_tokens, "completion_tokens": len(ids), "cached_tokens": 0}
            meta = {"id": record.request_id, "finish_reason": reason, **counts}
            return {"text": text, "output_ids": ids, "meta_info": meta}

        if asked.stream:

            async def events() -> AsyncIterator[bytes]:
                said, given = "", []
                for piece, ids, finish in self._pieces(asked):
                    said, given = said + piece, given + ids
                    yield _event(answer(said, given, finish))

            return await self._stream(request, asked, events())
        return self._whole(asked, answer(self._text(asked), record.script.ids, record.script.finish_reason))

    # ── one request ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _begin(
        self, request: web.Request, body: dict[str, Any], raw: bytes, ids: list[int] | None, text: str | None
    ) -> _Asked:
        """Capture a request and find its script. Raises Wrong."""
        model = body.get("model", self.model)
        if model != self.model:
            raise Wrong(404, "not_found_error", f"the model {model!r} is not served here", "model", "model_not_found")
        own = request.headers.get("X-Request-Id") or body.get("request_id") or body.get("rid") or uuid.uuid4().hex
        if not isinstance(own, str):
            raise _bad("the id of a request is text")
        stream, options = body.get("stream") or False, body.get("stream_options") or {}
        if not isinstance(stream, bool) or not isinstance(options, dict):
            raise _bad("stream is true or false, stream_options an object", "stream")
        stop = body.get("stop")
        stops = [stop] if isinstance(stop, str) else stop or []
        if not isinstance(stops, list) or not all(isinstance(one, str) for one in stops):
            raise _bad("stop is a text or a list of texts", "stop")
        tokenizer, prompt_ids = self.checkpoint.tokenizer, ids
        if text is not None and tokenizer is not None:
            prompt_ids = tokenizer.encode(text).ids

        def read() -> Asked:
            said = orjson.loads(raw)
            said |= said.pop("sampling_params", None) or {}
            free = {name: value for name, value in said.items() if name not in NOT_SAMPLING | BINDING | {"stop"}}
            kept = ("user", "metadata", "stream_options", "return_token_ids")
            return {
                "stream": stream,
                "input_ids": ids,
                "text": text,
                "sampling": free,
                "stop": stops,
                "constraint": {name: said[name] for name in said if name in BINDING} or None,
                "other": {name: said[name] for name in kept if name in said},
                "body": raw.decode(),
            }

        try:
            record = self.engine.begin(
                own,
                checkpoint=self.checkpoint,
                wire="http",
                route=request.path,
                read=read,
                prompt=lambda: ids,
                size=len(raw),
                prompt_tokens=len(prompt_ids or ()),
            )
        except EngineError as error:
            raise Wrong(500, "server_error", str(error)) from None
        return _Asked(
            record,
            stream,
            with_ids=body.get("return_token_ids") is True,
            with_usage=options.get("include_usage") is True,
            skip_special=body.get("skip_special_tokens") is not False,
            prompt_ids=prompt_ids,
        )

    def _whole(self, asked: _Asked, answer: dict[str, Any]) -> web.Response:
        with self.engine.under_way(asked.record) as end:
            try:
                end()
            except OSError as error:  # an answer whose capture is lost must not pass for one
                say(f"error: {error}")
                raise Wrong(500, "server_error", str(error)) from None
        return _json(answer, headers=_id(asked))

    async def _stream(self, request: web.Request, asked: _Asked, events: AsyncIterator[bytes]) -> web.StreamResponse:
        headers = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache", **_id(asked)}
        response = web.StreamResponse(headers=headers)
        with self.engine.under_way(asked.record) as end:
            await response.prepare(request)
            async for event in events:
                await response.write(event)
            try:
                end()
            except OSError as error:  # as above; the head is sent
                say(f"error: {error}")
                if request.transport:
                    request.transport.abort()
                return response
            await response.write(DONE)
        return response

    def _text(self, asked: _Asked) -> str:
        tokenizer = self.checkpoint.tokenizer
        return tokenizer.decode(asked.record.script.ids, skip_special_tokens=asked.skip_special) if tokenizer else ""

    def _pieces(self, asked: _Asked) -> Iterator[tuple[str, list[int], str | None]]:
        """Give text, ids and finish reason of each event: one per chunk, the reason with the last.

        Half a character waits for its other half; what never gets one comes with the last event.
        """
        from tokenizers.decoders import DecodeStream

        script, tokenizer = asked.record.script, self.checkpoint.tokenizer
        decode = DecodeStream(skip_special_tokens=asked.skip_special)
        said = ""
        chunks = script.chunks or ((),)
        for number, chunk in enumerate(chunks, start=1):
            text = "".join(decode.step(tokenizer, token) or "" for token in chunk) if tokenizer else ""
            said += text
            last = number == len(chunks)
            if last and (whole := self._text(asked)).startswith(said):
                text += whole[len(said) :]
            yield text, list(chunk), script.finish_reason if last else None


def _prompt(value: Any) -> tuple[list[int] | None, str | None]:
    """Return a prompt as ids or as text. Raises Wrong."""
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str | list):
        value = value[0]
    if isinstance(value, str):
        return None, value
    if isinstance(value, list) and all(type(one) is int and 0 <= one <= LARGEST_ID for one in value):
        return value, None
    raise _bad("a prompt is one text or one list of token ids", "prompt")


async def _body(request: web.Request) -> tuple[dict[str, Any], bytes]:
    raw = await request.read()
    try:
        body = orjson.loads(raw)
    except ValueError as error:
        raise _bad(f"the body is no JSON: {error}") from None
    if not isinstance(body, dict):
        raise _bad("the body is no object")
    return body, raw


def _id(asked: _Asked) -> dict[str, str]:
    own = asked.record.request_id
    return {"X-Request-Id": own} if own.isascii() and own.isprintable() else {}


def _usage(asked: _Asked) -> dict[str, int]:
    prompt, completion = asked.record.prompt_tokens, sum(map(len, asked.record.script.chunks))
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(value) + b"\n\n"


def _json(value: dict[str, Any], status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(body=orjson.dumps(value), status=status, content_type="application/json", headers=headers)
