"""A running SGLang: what its own routes show. SGLang's HTTP application over a socket, and servers that lack routes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from bellwether.environments import environment
from bellwether.gateways.answer import Failed, Output, Refused, Served
from bellwether.gateways.sglang import CALLS, DETOKENIZE, REASONING, TOKENIZE, Adapter, Sglang
from listening import listening, program, says
from support import ROOT, load_checkpoint, snapshot

MODEL = "Qwen/Qwen3-8B"
END_OF_TURN = 151645  # <|im_end|>
SERVED = Served("qwen3-8b", MODEL, Path("unread"), eos_ids=(END_OF_TURN, 151643), vocabulary_size=151669)
HI = '{"messages":[{"role":"user","content":"Say hi."}]}'
HI_IDS = [151644, 872, 198, 45764, 15588, 13, 151645, 198, 151644, 77091, 198]
"""<|im_start|>user\\nSay hi.<|im_end|>\\n<|im_start|>assistant\\n, as the fixtures of this checkpoint have it."""
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
CALLING = json.dumps({"messages": [{"role": "user", "content": "Hi"}], "tools": TOOLS})
CALL = '<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>'
MODELS = says({"object": "list", "data": [{"id": MODEL, "root": MODEL}]})
MISSING = says({"object": "error", "message": "missing", "type": "Bad Request", "param": None, "code": 400}, 400)
PARSERS = says({"reasoning_parser": "qwen3", "tool_call_parser": "qwen"})


@asynccontextmanager
async def opened(
    url: str, served: Served = SERVED, *, text_parsers: bool = False
) -> AsyncIterator[tuple[Sglang, Adapter]]:
    async with Sglang(url, text_parsers=text_parsers) as gateway, gateway.open(served) as adapter:
        yield gateway, adapter


def with_fake(routes: dict, use: Callable[[Sglang, Adapter], Coroutine], *, text_parsers: bool = False) -> Any:
    """Return what `use` makes of a server of these routes; /v1/models is there unless it is one of them."""

    async def run() -> Any:
        async with (
            listening({"GET /v1/models": MODELS, **routes}) as url,
            opened(url, text_parsers=text_parsers) as (gateway, adapter),
        ):
            return await use(gateway, adapter)

    return asyncio.run(run())


async def failure(asked: Coroutine) -> Failed | Refused:
    with pytest.raises((Failed, Refused)) as caught:
        await asked
    return caught.value


def failed_open(routes: dict) -> Failed:
    async def nothing(gateway: Sglang, adapter: Adapter) -> None:
        raise AssertionError("it was opened")

    with pytest.raises(Failed) as caught:
        with_fake(routes, nothing)
    return caught.value


def answering(seen: list[dict], value: Any, status: int = 200) -> Callable:
    """Return a handler that misses something in an empty object, and else keeps the body and answers `value`."""

    async def handler(request: web.Request) -> web.Response:
        body = await request.json()
        if body == {}:
            return await MISSING(request)
        seen.append(body)
        return web.json_response(value(body) if callable(value) else value, status=status)

    return handler


def to_prompts(value: Any, status: int) -> Callable:
    """Return a handler of /tokenize that answers `value` to a prompt, and misses one in all else."""

    async def handler(request: web.Request) -> web.Response:
        return await (says(value, status) if "prompt" in await request.json() else MISSING)(request)

    return handler


# ── what a server has decides what is observed ───────────────────────────────────────────────────────────────────────


def test_routes_of_both_names_say_the_version() -> None:
    """/get_server_info is what /server_info was called before."""

    async def use(gateway: Sglang, adapter: Adapter) -> tuple:
        return gateway.version, adapter.version

    for path in ("/server_info", "/get_server_info"):
        routes = {f"GET {path}": says({"version": "0.5.23", "api_key": "s"}), f"POST {DETOKENIZE}": MISSING}
        assert with_fake(routes, use) == ("0.5.23", "0.5.23")


def test_an_older_tokenize_shows_no_prompts() -> None:
    """Without messages the route misses its prompt, and says so with a 400."""

    async def older(request: web.Request) -> web.Response:
        return await (answering([], {"tokens": [1]}) if "prompt" in await request.json() else MISSING)(request)

    async def use(gateway: Sglang, adapter: Adapter) -> tuple:
        return gateway.kinds, gateway.plans

    assert with_fake({f"POST {TOKENIZE}": older}, use) == ({"tokenize"}, frozenset())
    newer = answering([], {"tokens": [1]})
    assert with_fake({f"POST {TOKENIZE}": newer}, use) == ({"tokenize", "render"}, frozenset())


def test_messages_are_read_only_when_that_is_asked_for() -> None:
    """The routes read texts and know no request: a chat may be read otherwise."""

    async def use(gateway: Sglang, adapter: Adapter) -> tuple:
        return gateway.kinds, adapter.kinds

    routes = {f"POST {path}": MISSING for path in (DETOKENIZE, REASONING, CALLS)} | {"GET /model_info": PARSERS}
    assert with_fake(routes, use) == ({"detokenize"}, {"detokenize"})
    assert with_fake(routes, use, text_parsers=True) == ({"detokenize", "parse"}, {"detokenize", "parse"})


def test_a_server_started_without_parsers_reads_no_messages() -> None:
    """Which parser reads is the server's choice, not ours."""

    async def use(gateway: Sglang, adapter: Adapter) -> frozenset[str]:
        return gateway.kinds

    routes = {f"POST {path}": MISSING for path in (DETOKENIZE, REASONING, CALLS)}
    none = says({"reasoning_parser": None, "tool_call_parser": None})
    assert with_fake(routes | {"GET /model_info": none}, use, text_parsers=True) == {"detokenize"}


@pytest.mark.parametrize(
    ("routes", "code"),
    [
        ({}, "not-observable"),
        ({"GET /v1/models": says({"data": [{"id": "other"}]}), f"POST {DETOKENIZE}": MISSING}, "not-loaded"),
        ({"GET /v1/models": says({"detail": "no"}, 401)}, "http-401"),
        ({"GET /v1/models": says({}, 302)}, "redirect"),
        ({"GET /v1/models": says([])}, "no-models"),
        ({f"POST {TOKENIZE}": says({"detail": "no"}, 500)}, "http-500"),
        ({"GET /server_info": says({"release": 1}), f"POST {DETOKENIZE}": MISSING}, "malformed-answer"),
    ],
)
def test_what_cannot_be_observed_is_not_opened(routes: dict, code: str) -> None:
    """Each with its reason, and none as a pass."""
    assert failed_open(routes).code == code


def test_a_dead_port_is_unreachable() -> None:
    """Unlike a server that hides a layer."""

    async def run() -> None:
        async with listening({}) as url:
            pass
        async with opened(url):
            raise AssertionError("it was opened")

    with pytest.raises(Failed) as caught:
        asyncio.run(run())
    assert caught.value.code == "unreachable"


# ── what is sent and what comes back ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("request_text", "sent"),
    [
        ('{"messages": [], "t": 1e2}', '{"model":"Qwen/Qwen3-8B","messages": [], "t": 1e2}'),
        (
            '{"t": 1e2, "add_generation_prompt" : false, "messages": [{"a": 1.0}]}',
            '{"model":"Qwen/Qwen3-8B","t":1e2,"messages":[{"a": 1.0}]}',
        ),
        (
            '{"messages":[{"role":"user","content":"say \\"add_generation_prompt\\""}]}',
            '{"model":"Qwen/Qwen3-8B","messages":[{"role":"user","content":"say \\"add_generation_prompt\\""}]}',
        ),
    ],
)
def test_a_request_is_sent_as_a_chat_would_be(request_text: str, sent: str) -> None:
    """The key the chat route does not know stays behind; order of keys and spelling of numbers are data."""
    bodies: list[bytes] = []

    async def handler(request: web.Request) -> web.Response:
        bodies.append(await request.read())
        return web.json_response({"tokens": [3]}) if bodies[-1] != b"{}" else await MISSING(request)

    async def use(gateway: Sglang, adapter: Adapter) -> list[int]:
        return (await adapter.render(request_text)).ids

    assert with_fake({f"POST {TOKENIZE}": handler}, use) == [3]
    assert bodies[-1] == sent.encode()


@pytest.mark.parametrize(
    ("status", "value", "kind", "code"),
    [
        (400, {"object": "error", "message": "no", "type": "BadRequestError", "code": 400}, Refused, "BadRequestError"),
        (400, {"error": {"message": "no", "type": "invalid_request_error"}}, Refused, "invalid_request_error"),
        (400, {"message": "no"}, Failed, "http-400"),
        (500, {"object": "error", "message": "no", "type": "InternalServerError", "code": 500}, Failed, "http-500"),
        (404, {"object": "error", "message": "no", "type": "404", "code": 404}, Failed, "http-404"),
        (200, {"tokens": [[1]]}, Failed, "malformed-answer"),
        (200, {"tokens": "1"}, Failed, "malformed-answer"),
    ],
)
def test_what_is_no_refusal_is_a_failure(status: int, value: Any, kind: type, code: str) -> None:
    """SGLang's error object stands at the top of the body."""

    async def use(gateway: Sglang, adapter: Adapter) -> Exception:
        return await failure(adapter.tokenize("a"))

    found = with_fake({f"POST {TOKENIZE}": to_prompts(value, status)}, use)
    assert (type(found), found.code, found.status) == (kind, code, status)


def test_where_sglang_keeps_its_files_is_no_reason() -> None:
    """Its message on a malformed body ends with paths of its own, which differ from machine to machine."""
    message = '1 validation error:\n  no\n\n  File "/somewhere/http_server.py", line 1'
    value = {"object": "error", "message": message, "type": "Bad Request", "code": 400}

    async def use(gateway: Sglang, adapter: Adapter) -> Exception:
        return await failure(adapter.tokenize("a"))

    found = with_fake({f"POST {TOKENIZE}": to_prompts(value, 400)}, use)
    assert found.message == "1 validation error:\n  no"


def test_special_tokens_are_kept_where_a_chat_keeps_them() -> None:
    """The chat route skips them in texts of requests that call no tools; texts of ids keep them."""
    seen: list[dict] = []
    routes = {
        f"POST {DETOKENIZE}": answering(seen, {"text": "t"}),
        f"POST {REASONING}": answering([], {"reasoning_text": "", "text": "t"}),
        f"POST {CALLS}": answering([], {"normal_text": "t", "calls": []}),
        "GET /model_info": PARSERS,
    }

    async def use(gateway: Sglang, adapter: Adapter) -> None:
        for request in (HI, CALLING, CALLING[:-1] + ', "tool_choice": "none"}'):
            await adapter.parse(request, Output([1], None, END_OF_TURN))
        await adapter.detokenize([1])

    with_fake(routes, use, text_parsers=True)
    assert [body["skip_special_tokens"] for body in seen] == [True, False, True, False]


# ── the real one ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def real() -> Iterator[Callable]:
    """`real(use)` → what `use(gateway, adapter)` makes of SGLang 0.5.23's HTTP application, started once."""
    built = environment("sglang-0.5.23")
    script = Path(__file__).with_name("sglang_server.py")
    command = [built.python, script, ROOT / "stages", snapshot("qwen3-8b"), "qwen3-8b", "PORT", "qwen", "qwen3"]
    with asyncio.Runner() as runner:
        running = program(command, {"PYTHONPYCACHEPREFIX": str(built.bytecode)})
        url = runner.run(running.__aenter__())
        served = Served("qwen3-8b", "qwen3-8b", Path("unread"), eos_ids=SERVED.eos_ids)

        def ask(use: Callable) -> Any:
            async def run() -> Any:
                async with opened(url, served, text_parsers=True) as (gateway, adapter):
                    return await use(gateway, adapter)

            return runner.run(run())

        yield ask
        runner.run(running.__aexit__(None, None, None))


in_sglang = pytest.mark.xdist_group("sglang")


@in_sglang
def test_sglang_shows_prompts_ids_and_texts(real: Callable) -> None:
    text = "<|im_start|>Hi 🪿\n"

    async def use(gateway: Sglang, adapter: Adapter) -> tuple:
        ids = await adapter.tokenize(text)
        shown = (gateway.version, gateway.kinds, gateway.plans)
        return *shown, (await adapter.render(HI)).ids, ids, await adapter.detokenize(ids), await adapter.detokenize([])

    version, kinds, plans, prompt, ids, back, empty = real(use)
    assert (version, kinds, plans) == ("0.5.23", {"render", "tokenize", "detokenize", "parse"}, frozenset())
    assert prompt == HI_IDS
    assert ids == load_checkpoint("qwen3-8b").tokenizer.encode(text, add_special_tokens=False)
    assert (back, empty) == (text, "")


@in_sglang
def test_sglang_ignores_a_generation_prompt_that_is_not_wanted(real: Callable) -> None:
    """As its chat route does, which writes one after every turn of a user."""

    async def use(gateway: Sglang, adapter: Adapter) -> list[int]:
        return (await adapter.render(HI[:-1] + ',"add_generation_prompt":false}')).ids

    assert real(use) == HI_IDS


@in_sglang
def test_sglang_writes_a_null_into_every_tool(real: Callable) -> None:
    """0.5.23 adds `defer_loading`: the known difference of this release, seen through the same code as in a chat."""

    async def use(gateway: Sglang, adapter: Adapter) -> list[int]:
        return (await adapter.render(CALLING)).ids

    assert '"defer_loading": null' in load_checkpoint("qwen3-8b").tokenizer.decode(real(use))


@in_sglang
def test_sglang_s_server_reads_large_integers_as_floats(real: Callable) -> None:
    """Its application reads bodies with orjson, which has no integer beyond 64 bits: a schema's 10^20 becomes 1e+20."""
    body = json.loads(CALLING)
    body["tools"][0]["function"]["parameters"] = {"const": 10**20}

    async def use(gateway: Sglang, adapter: Adapter) -> list[int]:
        return (await adapter.render(json.dumps(body))).ids

    assert '{"const": 1e+20}' in load_checkpoint("qwen3-8b").tokenizer.decode(real(use))


@in_sglang
def test_sglang_s_refusals_are_evidence(real: Callable) -> None:
    """Arguments of a call in the history that are no JSON, and a role it does not know."""
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "nothing"}}
    history = {"messages": [{"role": "assistant", "content": None, "tool_calls": [call]}]}
    unknown = {"messages": [{"role": "nobody", "content": "Hi"}]}

    async def use(gateway: Sglang, adapter: Adapter) -> list:
        return [await failure(adapter.render(json.dumps(request))) for request in (history, unknown)]

    arguments, role = real(use)
    assert (type(arguments), arguments.code, arguments.status) == (Refused, "BadRequestError", 400)
    assert "must be valid JSON" in arguments.message
    assert (type(role), role.code, "File" in role.message) == (Refused, "Bad Request", False)


@in_sglang
def test_sglang_reads_reasoning_and_a_call_of_a_text(real: Callable) -> None:
    """The finish reason is inferred; who read it is said."""

    async def use(gateway: Sglang, adapter: Adapter) -> tuple:
        ids = await adapter.tokenize(f"<think>\nok\n</think>\n\n{CALL}")
        stream = await failure(adapter.parse(CALLING, Output(ids, [ids], END_OF_TURN)))
        plain = await adapter.parse(HI, Output(await adapter.tokenize("Hi!"), None, END_OF_TURN))
        return await adapter.parse(CALLING, Output(ids, None, END_OF_TURN)), plain, stream

    called, plain, stream = real(use)
    assert (called.content, called.reasoning_content) == (None, "\nok\n")
    assert called.tool_calls == [{"name": "f", "arguments": '{"x": 1}'}]
    assert (called.finish_reason, called.parser, called.usage) == ("tool_calls", "text routes", None)
    assert (plain.content, plain.reasoning_content, plain.tool_calls, plain.finish_reason) == ("Hi!", None, [], "stop")
    assert (type(stream), stream.code) == (Failed, "not-offered")
