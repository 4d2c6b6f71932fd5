"""A chat completion is read strictly: what is none is no answer, and a stream's order is looked at."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from bellwether.gateways import chat
from bellwether.gateways.answer import Answer, Failed, Refused

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def chunk(finish_reason: str | None = None, usage: tuple[int, int] | None = None, **delta: Any) -> dict[str, Any]:
    value = {"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}
    return value | ({} if usage is None else {"usage": {"prompt_tokens": usage[0], "completion_tokens": usage[1]}})


def sse(*values: dict[str, Any] | str) -> bytes:
    lines = (value if isinstance(value, str) else json.dumps(value) for value in values)
    return "".join(f"data: {line}\n\n" for line in lines).encode()


def part(index: int, name: str | None = None, arguments: str | None = None) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"index": index, "function": {key: value for key, value in function.items() if value is not None}}


END = chunk("stop")


# ── streams ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_deltas_are_joined_per_field_and_per_call() -> None:
    """Parts of two calls may come in turns; the index says whose they are."""
    answer = chat.joined(
        sse(
            chunk(role="assistant", content=""),
            chunk(reasoning_content="Let me "),
            chunk(reasoning_content="see."),
            chunk(content="Now."),
            chunk(tool_calls=[part(1, "b", "")]),
            chunk(tool_calls=[part(0, "a", '{"x"')]),
            chunk(tool_calls=[part(1, None, "{}"), part(0, None, ":1}")]),
            chunk("tool_calls"),
            {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 5}},
            "[DONE]",
        ),
        {"x-smg-parser": "legacy"},
    )
    assert answer == Answer(
        content="Now.",
        reasoning_content="Let me see.",
        tool_calls=[{"name": "a", "arguments": '{"x":1}'}, {"name": "b", "arguments": "{}"}],
        finish_reason="tool_calls",
        usage=(3, 5),
        parser="legacy",
        in_pieces=True,
    )


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        ((chunk(content="a"), END, "[DONE]"), None),
        ((chunk(content="a"), "[DONE]"), "no-terminal"),
        ((chunk(content="a"), END, END, "[DONE]"), "two-terminals"),
        ((END, chunk(content="a"), "[DONE]"), "after-terminal"),
        ((END, chunk(tool_calls=[part(0, "a", "{}")]), "[DONE]"), "after-terminal"),
        ((chunk(content="a"), END), "no-done"),
        ((chunk(content="a"), END, "[DONE]", chunk()), "after-done"),
        ((END, {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}, "[DONE]"), None),
    ],
)
def test_each_rule_of_framing(values: tuple[Any, ...], rule: str | None) -> None:
    """One terminal event, nothing said after it but usage, and `[DONE]` last."""
    assert chat.joined(sse(*values), {}).framing == rule


def test_text_in_one_event_came_in_no_pieces() -> None:
    """An event that says the role alone, or an empty text, is none."""
    whole = chat.joined(sse(chunk(role="assistant", content=""), chunk(content="ab"), END, "[DONE]"), {})
    assert whole.in_pieces is False
    assert chat.joined(sse(chunk(content="a"), chunk(reasoning_content="b"), END, "[DONE]"), {}).in_pieces is True


@pytest.mark.parametrize("late", ["content", "reasoning_content"])
@pytest.mark.parametrize(("length", "in_pieces"), [(15, True), (16, False)])
def test_each_long_text_has_to_come_in_pieces(late: str, length: int, in_pieces: bool) -> None:
    """Reasoning id by id does not make up for an answer that comes at once, nor the other way round."""
    other = {"content": "reasoning_content", "reasoning_content": "content"}[late]
    pieces = [chunk(**{other: "word "}) for _ in range(9)]
    said = sse(*pieces, chunk(**{late: "x" * length}), END, "[DONE]")
    assert chat.joined(said, {}).in_pieces is in_pieces


@pytest.mark.parametrize(
    "body",
    [
        sse("{"),
        sse("[]"),
        sse('{"choices":[{"index":0}]}'),
        sse('{"choices":[{"index":0,"delta":{"content":5}}]}'),
        sse('{"choices":[{"index":0,"delta":{"tool_calls":[{"function":{}}]}}]}'),
        sse(chunk(content="a"))[:-1],
        b"<html>\n\n",
        sse({"choices": [], "usage": {"prompt_tokens": "3", "completion_tokens": 1}}),
    ],
)
def test_what_is_no_chat_chunk_is_no_measurement(body: bytes) -> None:
    """Cut inside an event, no JSON, another shape: nothing is concluded from the rest."""
    with pytest.raises(Failed) as failure:
        chat.joined(body, {})
    assert failure.value.code == "malformed-event"


def test_an_error_in_a_stream_is_no_measurement() -> None:
    """SMG says so when a worker's stream breaks, after a 200."""
    body = sse(chunk(content="a"), {"error": {"message": "worker gone", "type": "stream_error"}})
    with pytest.raises(Failed, match="worker gone") as failure:
        chat.joined(body, {})
    assert failure.value.code == "stream-error"


def test_events_as_the_standard_has_them() -> None:
    """Comments, other fields, several lines of data, and both line ends."""
    assert list(chat.events(b": hi\n\nevent: x\ndata: a\ndata:b\n\ndata: c\r\n\r\n")) == [b"a\nb", b"c"]


# ── whole answers ────────────────────────────────────────────────────────────────────────────────────────────────────


def completion(**message: Any) -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", **message}, "finish_reason": "stop"}]}


def test_a_message_of_another_spelling() -> None:
    """`reasoning` is what some servers call it; null calls are none."""
    answer = chat.message_of(completion(content=None, reasoning="hm", tool_calls=None), {})
    assert (answer.content, answer.reasoning_content, answer.tool_calls, answer.usage) == (None, "hm", [], None)


@pytest.mark.parametrize(
    "value", [[], {}, {"choices": []}, {"choices": [{}]}, completion(content=[]), completion(tool_calls=[{}])]
)
def test_what_is_no_chat_completion_is_no_measurement(value: Any) -> None:
    """A 200 alone says nothing."""
    with pytest.raises(Failed) as failure:
        chat.message_of(value, {})
    assert failure.value.code == "malformed-answer"


# ── what is sent ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_recorded_body_keeps_every_byte() -> None:
    """Key order, spelling of numbers and spaces are data."""
    body = '{ "b": 1e-07, "a":[1.0 , 100000000000000000000],"s":"\\u00e9"}'
    assert (
        chat.body_of(body, {"model": "m"})
        == b'{"model":"m","b": 1e-07, "a":[1.0 , 100000000000000000000],"s":"\\u00e9"}'
    )
    assert chat.body_of("{}", {"model": "m"}) == b'{"model":"m"}'


def test_a_key_of_both_is_ours() -> None:
    """Twice the same key is refused by some servers; the other members keep their text."""
    body = '{"stream": false, "n" :1e-07 , "messages":[{"stream":2}]}'
    assert chat.body_of(body, {"stream": True}) == b'{"stream":true,"n":1e-07,"messages":[{"stream":2}]}'


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@given(
    st.dictionaries(st.text(), json_values, max_size=4),
    st.dictionaries(st.sampled_from(["model", "stream", "a"]), st.booleans()),
)
def test_any_body_keeps_its_other_members(body: dict[str, Any], extra: dict[str, Any]) -> None:
    """The result is the object both give, ours first."""
    sent = json.loads(chat.body_of(json.dumps(body, indent=1), extra))
    assert list(sent.items()) == list((extra | {key: body[key] for key in body if key not in extra}).items())


# ── HTTP ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def ask(handler: Handler, *, seconds: float = 5, streamed: bool = False) -> Answer:
    async def talk() -> Answer:
        app = web.Application()
        app.router.add_post(chat.ROUTE, handler)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0)
        await runner.setup()
        await (site := web.TCPSite(runner, "127.0.0.1", 0)).start()
        port = site._server.sockets[0].getsockname()[1]
        try:
            async with chat.session() as client:
                way = chat.stream if streamed else chat.complete
                return await way(client, f"http://127.0.0.1:{port}", b"{}", seconds=seconds)
        finally:
            await runner.cleanup()

    return asyncio.run(talk())


def says(status: int, body: Any, **headers: str) -> Handler:
    async def handler(request: web.Request) -> web.Response:
        await request.read()
        text = body if isinstance(body, str) else json.dumps(body)
        return web.Response(status=status, text=text, headers=headers)

    return handler


ERROR = {"error": {"type": "invalid_request_error", "code": "process_messages_failed", "message": "no such role"}}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("status", "body", "code"),
    [(400, ERROR, "process_messages_failed"), (422, ERROR, "process_messages_failed"), (422, "no field x", "http-422")],
)
def test_a_refusal_says_why(streamed: bool, status: int, body: Any, code: str) -> None:
    """A 400 needs its error object; what a 422 means is in the status."""
    with pytest.raises(Refused) as refusal:
        ask(says(status, body), streamed=streamed)
    assert (refusal.value.code, refusal.value.status) == (code, status)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (400, "bad", "http-400"),
        (400, {"error": "bad"}, "http-400"),
        (404, ERROR, "http-404"),
        (429, ERROR, "http-429"),
        (500, ERROR, "http-500"),
        (503, "", "http-503"),
    ],
)
def test_any_other_status_is_no_measurement(streamed: bool, status: int, body: Any, code: str) -> None:
    """It says nothing about the request."""
    with pytest.raises(Failed) as failure:
        ask(says(status, body), streamed=streamed)
    assert (failure.value.code, failure.value.status) == (code, status)


def test_a_redirect_is_not_followed() -> None:
    """Whoever answers there was not asked."""
    with pytest.raises(Failed) as failure:
        ask(says(307, "", location="/v1/models"))
    assert failure.value.code == "redirect"


def test_a_200_without_json_is_no_measurement() -> None:
    """A proxy's page."""
    with pytest.raises(Failed) as failure:
        ask(says(200, "<html>"))
    assert failure.value.code == "malformed-answer"


def test_a_server_that_hangs_is_given_up() -> None:
    """In time, whatever it has said."""

    async def hang(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(sse(chunk(content="a")))
        await asyncio.sleep(60)
        return response

    with pytest.raises(Failed) as failure:
        ask(hang, seconds=0.2, streamed=True)
    assert failure.value.code == "timeout"


def test_a_server_that_closes_early_is_no_measurement() -> None:
    """Half an answer is none."""

    async def close(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-length": "1000"})
        await response.prepare(request)
        await response.write(sse(chunk(content="a"), END, "[DONE]"))
        request.transport.close()
        return response

    with pytest.raises(Failed) as failure:
        ask(close, streamed=True)
    assert failure.value.code == "closed-early"


def test_a_server_that_is_not_there_is_told_apart() -> None:
    """From one that answers."""

    async def talk() -> None:
        async with chat.session() as client:
            await chat.complete(client, "http://127.0.0.1:9", b"{}")

    with pytest.raises(Failed) as failure:
        asyncio.run(talk())
    assert failure.value.code == "unreachable"


def test_an_endless_answer_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory does not depend on the server."""
    monkeypatch.setattr(chat, "ANSWER_BYTES", 1000)
    with pytest.raises(Failed) as failure:
        ask(says(200, "x" * 2000))
    assert failure.value.code == "too-long"
