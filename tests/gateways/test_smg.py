"""The SMG gateway: the real one on a real checkpoint, and servers in its place for what it cannot be made to do."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from bellwether.errors import GatewayError
from bellwether.gateways import smg
from bellwether.gateways.answer import Failed, Missing, Output, Refused, Served
from bellwether.gateways.process import free_ports
from bellwether.gateways.smg import Smg, SmgAdapter, with_config
from listening import listening, says
from processes import alive, wait_for
from smg_server import COMPLETION, PROMPT, SAID, SmgServer
from support import ROOT, load_checkpoint, snapshot

real = pytest.mark.xdist_group("smg")

HI = '{"messages":[{"role":"user","content":"Say hi."}]}'
HI_IDS = [151644, 872, 198, 45764, 15588, 13, 151645, 198, 151644, 77091, 198]
"""<|im_start|>user\\nSay hi.<|im_end|>\\n<|im_start|>assistant\\n, as the fixtures of this checkpoint have it."""
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"x": {}}}}}
CALLING = json.dumps({"messages": [{"role": "user", "content": "Hi"}], "tools": [TOOL]})
CALL = 'I look.\n<tool_call>\n{"name": "f", "arguments": {"x":  1}}\n</tool_call>'
END_OF_TURN = 151645


# ── servers in its place ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def served(tmp_path: Path) -> Served:
    (tmp_path / "config.json").write_text('{"model_type": "qwen3"}')
    return Served("some", "Some/Model", tmp_path, eos_ids=(2,), vocabulary_size=10)


@asynccontextmanager
async def attached(server: SmgServer, served: Served, **settings: Any) -> Any:
    async with listening(server.routes()) as url, Smg(None, url=url, **settings) as gateway:
        gateway.seconds = 2.0
        async with gateway.open(served) as adapter:
            yield adapter


def with_server(server: SmgServer, served: Served, use: Callable[[SmgAdapter], Coroutine], **settings: Any) -> Any:
    """Return what `use` makes of a checkpoint behind a server."""

    async def run() -> Any:
        async with attached(server, served, **settings) as adapter:
            return await use(adapter)

    return asyncio.run(run())


def failed_open(server: SmgServer, served: Served, **settings: Any) -> Failed:
    async def use(adapter: SmgAdapter) -> None:
        raise AssertionError("it was opened")

    with pytest.raises(Failed) as caught:
        with_server(server, served, use, **settings)
    return caught.value


def failure(served: Served, chat: Callable, *, streamed: bool = False) -> Failed:
    """Return how a parse goes wrong when the gateway's chat, after the checkpoint was opened, is `chat`."""
    server = SmgServer()

    async def use(adapter: SmgAdapter) -> None:
        server.chat = chat
        await adapter.parse(HI, Output([5], [[5]] if streamed else None, 2))

    with pytest.raises(Failed) as caught:
        with_server(server, served, use)
    return caught.value


def test_a_prompt_is_the_one_its_engine_was_sent(served: Served) -> None:
    """Joined by the id of the request; one token is asked for, where the request sets no limit."""
    server = SmgServer()

    async def use(adapter: SmgAdapter) -> list:
        return [await adapter.render(HI), await adapter.render('{"max_tokens":7,"messages":[]}')]

    prompts = with_server(server, served, use)
    assert [prompt.ids for prompt in prompts] == [PROMPT, PROMPT]
    limited, given = server.seen[-2:]
    assert (limited["max_tokens"], given["max_tokens"]) == (1, 7)
    assert limited["model"] == "Some/Model"
    assert limited["rid"] != given["rid"]


def test_an_answer_has_its_message_and_its_prompt(served: Served) -> None:
    """And who read it."""
    answer = with_server(SmgServer(), served, lambda adapter: adapter.parse(HI, Output([5], None, 2)))
    assert (answer.content, answer.usage, answer.parser, answer.prompt_ids) == (SAID, (3, 1), "legacy", PROMPT)


async def hangs(server: SmgServer, request: web.Request, body: dict) -> web.StreamResponse:
    while request.transport is not None:  # the client's patience ends it
        await asyncio.sleep(0.05)
    return web.Response()


async def closes_early(server: SmgServer, request: web.Request, body: dict) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-length": "1000"})
    await response.prepare(request)
    await response.write(b'{"choices"')
    request.transport.close()
    return response


async def closes_at_once(server: SmgServer, request: web.Request, body: dict) -> web.StreamResponse:
    request.transport.close()
    return web.Response()


async def broken(server: SmgServer, request: web.Request, body: dict) -> web.StreamResponse:
    return web.Response(status=500)


def answers(status: int, body: bytes, **headers: str) -> Callable:
    async def chat(server: SmgServer, request: web.Request, asked: dict) -> web.Response:
        await server.ask(asked, PROMPT)
        return web.Response(status=status, body=body, headers={"x-smg-parser": "legacy", **headers})

    return chat


@pytest.mark.parametrize(
    ("chat", "code"),
    [
        (hangs, "timeout"),
        (closes_early, "closed-early"),
        (closes_at_once, "no-answer"),
        (answers(500, b'{"error":{"code":"worker_stream_failed","message":"no","type":"server_error"}}'), "http-500"),
        (answers(503, b'{"error":{"code":"tokenizer_load_failed","message":"no"}}'), "http-503"),
        (answers(404, b'{"error":{"code":"model_not_found","message":"no"}}'), "http-404"),
        (answers(307, b"", location="/elsewhere"), "redirect"),
        (answers(200, b"<html>"), "malformed-answer"),
        (answers(200, b'{"choices":[]}'), "malformed-answer"),
    ],
)
def test_what_is_no_answer_is_no_measurement(served: Served, chat: Callable, code: str) -> None:
    """Whatever was captured: the gateway's answer is what was asked for."""
    assert failure(served, chat).code == code


@pytest.mark.parametrize(
    ("events", "code"),
    [
        (b"data: {\n\n", "malformed-event"),
        (b'data: {"choices":[{"delta":{"content":"F', "malformed-event"),
        (b"<html>\n\n", "malformed-event"),
        (b'data: {"error":{"message":"no","type":"stream_error"}}\n\n', "stream-error"),
    ],
)
def test_a_malformed_stream_is_no_measurement(served: Served, events: bytes, code: str) -> None:
    """A stream of well-formed events in a wrong order is one, and looked at elsewhere."""
    assert failure(served, answers(200, events), streamed=True).code == code


def test_an_answer_without_a_capture_is_missing(served: Served) -> None:
    """The engine saw nothing of it: the gateway made it up, or lost the id."""
    server = SmgServer()

    async def silent(server: SmgServer, request: web.Request, body: dict) -> web.Response:
        return web.json_response(COMPLETION, headers={"x-smg-parser": "legacy"})

    async def lost(server: SmgServer, request: web.Request, body: dict) -> web.Response:
        await server.ask(body | {"rid": "another"}, PROMPT)
        return web.json_response(COMPLETION, headers={"x-smg-parser": "legacy"})

    async def use(adapter: SmgAdapter) -> None:
        for server.chat in (silent, lost):
            with pytest.raises(Missing):
                await adapter.render(HI)

    with_server(server, served, use)


def test_a_request_that_comes_twice_is_one_when_both_are_equal(served: Served) -> None:
    """A gateway may try again."""
    server = SmgServer()

    async def use(adapter: SmgAdapter) -> list[int]:
        server.chat = twice(PROMPT, PROMPT)
        return (await adapter.render(HI)).ids

    assert with_server(server, served, use) == PROMPT


def test_a_request_that_comes_twice_and_differs_is_no_measurement(served: Served) -> None:
    """Which of the prompts is the one is not known."""
    assert failure(served, twice(PROMPT, [*PROMPT, 4])).code == "captures-differ"


def twice(*prompts: list[int]) -> Callable:
    async def chat(server: SmgServer, request: web.Request, body: dict) -> web.Response:
        await server.ask(body, *prompts)
        return web.json_response(COMPLETION, headers={"x-smg-parser": "legacy"})

    return chat


def test_another_model_s_engine_is_no_measurement(served: Served, tmp_path: Path) -> None:
    """The prompt may even be right: it is another checkpoint's."""
    server = SmgServer()

    async def elsewhere(server: SmgServer, request: web.Request, body: dict) -> web.Response:
        await server.ask(body, PROMPT, model="Other/Model")
        return web.json_response(COMPLETION, headers={"x-smg-parser": "legacy"})

    async def run() -> None:
        async with (
            listening(server.routes()) as url,
            Smg(None, url=url) as gateway,
            gateway.open(replace(served, model="Other/Model")),
            gateway.open(served) as adapter,
        ):
            server.chat = elsewhere
            await adapter.render(HI)

    with pytest.raises(Failed) as caught:
        asyncio.run(run())
    assert caught.value.code == "other-model"


@pytest.mark.parametrize("headers", [{}, {"x-smg-parser": "symphony"}])
def test_an_answer_another_parser_read_is_no_measurement(served: Served, headers: dict) -> None:
    """Nor is one whose reader is not named, where readers are named."""

    async def chat(server: SmgServer, request: web.Request, body: dict) -> web.Response:
        await server.ask(body, PROMPT)
        return web.json_response(COMPLETION, headers=headers)

    assert failure(served, chat).code == "wrong-parser"


def test_a_refusal_is_evidence(served: Served) -> None:
    """A 400 with the error object."""
    refusal = b'{"error":{"type":"invalid_request_error","code":"empty_array","message":"no messages"}}'
    server = SmgServer()

    async def use(adapter: SmgAdapter) -> None:
        server.chat = answers(400, refusal)
        await adapter.render(HI)

    with pytest.raises(Refused) as caught:
        with_server(server, served, use)
    assert (caught.value.code, caught.value.status) == ("empty_array", 400)


@pytest.mark.parametrize("value", [{}, [], {"tokens": ["a"], "text": 1}, {"tokens": [True]}])
def test_ids_and_text_are_looked_for_where_they_belong(served: Served, value: Any) -> None:
    """A 200 with something else is none."""
    server = SmgServer()
    server.tokenize = server.detokenize = says(value)

    async def use(adapter: SmgAdapter) -> list[str]:
        codes = []
        for asked in (adapter.tokenize("a"), adapter.detokenize([1])):
            with pytest.raises(Failed) as caught:
                await asked
            codes.append(caught.value.code)
        return codes

    assert with_server(server, served, use) == ["malformed-answer"] * 2


def test_a_tokenizer_that_went_away_refuses_no_text(served: Served) -> None:
    """SMG answers a 400 with an error object, which elsewhere is a refusal."""
    server = SmgServer()
    server.tokenize = says({"error": {"message": "not found", "type": "tokenizer_not_found"}}, 400)
    with pytest.raises(Failed) as caught:
        with_server(server, served, lambda adapter: adapter.tokenize("a"))
    assert caught.value.code == "tokenizer_not_found"


# ── registration ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_was_registered_is_taken_back(served: Served) -> None:
    """Also when something goes wrong; another's gateway is as it was."""
    server = SmgServer()
    for error in (None, RuntimeError("of ours")):

        async def use(adapter: SmgAdapter, error: Exception | None = error) -> None:
            assert server.workers and server.tokenizers
            if error:
                raise error

        try:
            with_server(server, served, use)
        except RuntimeError:
            assert error
        assert not server.workers
        assert not server.tokenizers
    assert server.log == ["tokenizer Some/Model", "worker {}", "no workers", "no tokenizers"] * 2


def test_parsers_are_named_where_they_are_given(served: Served) -> None:
    """Elsewhere the gateway chooses by the name of the model. Symphony chooses always."""
    named = replace(served, tool_parser="qwen", reasoning_parser="qwen3")

    async def use(adapter: SmgAdapter) -> None:
        pass

    for given, parser, labels in (
        (served, "legacy", {}),
        (named, "legacy", {"tool_parser": "qwen", "reasoning_parser": "qwen3"}),
        (named, "symphony", {}),
    ):
        server = SmgServer()
        with_server(server, given, use, parser=parser)
        assert f"worker {labels}" in server.log


def test_a_name_that_is_served_already_is_left_alone(served: Served) -> None:
    """Requests would go to somebody else's engine too."""
    server = SmgServer()
    server.workers["w"] = {"id": "w", "url": "grpc://127.0.0.1:9", "model_id": "Some/Model", "status": "ready"}
    failed = failed_open(server, served)
    assert (failed.code, "grpc://127.0.0.1:9" in failed.message) == ("model-taken", True)
    server.workers["w"]["status"] = "draining"  # one that takes no requests any more
    with_server(server, served, lambda adapter: adapter.render(HI))
    server.tokenizers["t"] = {"id": "t", "name": "Some/Model"}  # of a folder that is not known
    assert failed_open(server, served).code == "model-taken"


def test_a_tokenizer_it_cannot_load_is_told_with_its_reason(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that never gets ready has a deadline."""
    server = SmgServer()
    server.tokenizer = {"status": "failed", "message": "no valid tokenizer file"}
    failed = failed_open(server, served)
    assert (failed.code, failed.message) == ("not-loaded", "no valid tokenizer file")
    monkeypatch.setattr(smg, "LOAD_SECONDS", 0.1)
    server.tokenizer = {"status": "processing"}
    failed = failed_open(server, served)
    assert (failed.code, failed.message) == ("not-loaded", "no tokenizer within 0.1 s")
    assert not server.tokenizers


def test_a_worker_it_does_not_take_is_told(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given up, failed, never healthy, taken for another's."""
    monkeypatch.setattr(smg, "LOAD_SECONDS", 0.1)
    named = replace(served, tool_parser="qwne")
    for state, message in (
        (None, "the gateway gave the worker up: tool_parser qwne?"),
        ({"job_status": {"status": "failed", "message": "no health"}}, "no health"),
        ({"is_healthy": False}, "no healthy worker within 0.1 s"),
        ({"is_healthy": True, "model_id": "Other"}, "the gateway took the worker for 'Other'"),
    ):
        server = SmgServer()
        server.worker = state
        failed = failed_open(server, named)
        assert (failed.code, failed.message) == ("not-registered", message)


@pytest.mark.parametrize("attribute", ["loads", "tokenizer", "workers", "tokenizers"])
def test_a_control_plane_that_talks_rubbish_is_told(served: Served, attribute: str) -> None:
    """Not by a traceback. The release is no more than unknown."""
    server = SmgServer()
    routes = server.routes()
    rubbish = {"workers": "GET /workers", "tokenizers": "GET /v1/tokenizers"}
    if attribute in rubbish:
        routes[rubbish[attribute]] = says([1])
        server.routes = lambda: routes
    else:
        setattr(server, attribute, [1])
    if attribute == "loads":
        assert with_server(server, served, version) == "unknown"
    else:
        assert failed_open(server, served).code == "malformed-answer"


async def version(adapter: SmgAdapter) -> str:
    return adapter.version


def test_symphony_that_leaves_a_model_to_the_legacy_parsers_is_told(served: Served) -> None:
    """It does so without a word, and each of its answers would be another's."""

    async def legacy(server: SmgServer, request: web.Request, body: dict) -> web.Response:
        await server.ask(body, PROMPT)
        return web.json_response(COMPLETION, headers={"x-smg-parser": "legacy"})

    server = SmgServer()
    server.chat = legacy
    failed = failed_open(server, served, parser="symphony")
    assert (failed.code, failed.message) == ("not-loaded", "Symphony of smg 1.13.0 does not know this model")


def test_symphony_where_there_is_no_choice_is_told(served: Served) -> None:
    """A release without it takes any name of a parser, and names none."""

    async def old(request: web.Request) -> web.Response:
        body = await request.json()
        await server.ask(body, PROMPT)
        return web.json_response(COMPLETION)

    server = SmgServer()
    routes = server.routes() | {"POST /v1/chat/completions": old}
    server.routes = lambda: routes
    failed = failed_open(server, served, parser="symphony")
    assert (failed.code, failed.message) == ("not-loaded", "smg 1.13.0 reads this model by parsers of one kind only")
    assert with_server(server, served, lambda adapter: adapter.parse(HI, Output([5], None, 2))).parser is None


def test_what_symphony_shows_is_how_answers_are_read(served: Served) -> None:
    """Prompts and tokens are the same gateway's."""

    async def kinds(adapter: SmgAdapter) -> frozenset[str]:
        return adapter.kinds

    assert with_server(SmgServer(), served, kinds, parser="symphony") == {"parse"}
    assert with_server(SmgServer(), served, kinds) == {"render", "parse", "tokenize", "detokenize"}


def test_a_gateway_s_own_headers_are_sent(served: Served) -> None:
    """A key, say; on every route."""
    server = SmgServer()
    keys = []

    def watched(handler: Callable) -> Callable:
        async def handle(request: web.Request) -> web.StreamResponse:
            keys.append(request.headers.get("authorization"))
            return await handler(request)

        return handle

    routes = {route: watched(handler) for route, handler in server.routes().items()}
    server.routes = lambda: routes

    async def use(adapter: SmgAdapter) -> None:
        await adapter.render(HI)
        await adapter.tokenize("a")

    with_server(server, served, use, headers={"authorization": "Bearer k"})
    assert set(keys) == {"Bearer k"}


# ── attached ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def enter(gateway: Smg) -> None:
    async def run() -> None:
        async with gateway:
            pass

    asyncio.run(run())


def test_a_gateway_that_is_not_there_is_told() -> None:
    """With what can be done about it."""
    [port] = free_ports(1)
    with pytest.raises(GatewayError, match=f"no gateway answers at http://127.0.0.1:{port}: unreachable") as caught:
        enter(Smg(None, url=f"http://127.0.0.1:{port}/"))
    assert caught.value.next_step


@pytest.mark.parametrize(
    ("liveness", "message"),
    [(hangs, "timeout"), (broken, "answers 500"), (closes_at_once, "no-answer")],
)
def test_a_server_that_is_no_gateway_is_told(liveness: Callable, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is asked of it."""
    monkeypatch.setattr(smg, "REACH_SECONDS", 0.5)
    server = SmgServer()

    async def asked(request: web.Request) -> web.StreamResponse:
        return await liveness(server, request, {})

    server.liveness = asked

    async def run() -> None:
        async with listening(server.routes()) as url, Smg(None, url=url):
            pass

    with pytest.raises(GatewayError, match=message):
        asyncio.run(run())


@pytest.mark.parametrize(
    ("loads", "message"),
    [({"version": "smg-1.12.0"}, "is smg 1.12.0, expected 1.13.0"), ({"workers": []}, "does not say which release")],
)
def test_another_release_than_the_one_asked_for_is_told(loads: dict, message: str) -> None:
    """1.9.0 says nothing of it; without an expectation that is no hindrance."""
    server = SmgServer()
    server.loads = loads

    async def run(version: str | None) -> str:
        async with listening(server.routes()) as url, Smg(version, url=url) as gateway:
            return gateway.version

    with pytest.raises(GatewayError, match=message):
        asyncio.run(run("1.13.0"))
    assert asyncio.run(run(None)) == loads.get("version", "unknown").removeprefix("smg-")


# ── a folder without a config ────────────────────────────────────────────────────────────────────────────────────────


def test_a_folder_whose_config_names_a_model_type_is_shown_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "qwen3"}')
    with with_config(tmp_path) as shown:
        assert shown == tmp_path


@pytest.mark.parametrize("config", [None, "{}", "[]", "{", '{"a": 1}'])
def test_another_gets_one_and_keeps_its_files(tmp_path: Path, config: str | None) -> None:
    """Without one some of many requests stall. The folder itself is not touched, and what shows it is gone."""
    (tmp_path / "tokenizer.json").write_text("{}")
    if config is not None:
        (tmp_path / "config.json").write_text(config)
    before = sorted(tmp_path.iterdir())
    with with_config(tmp_path) as shown:
        assert json.loads((shown / "config.json").read_text())["model_type"]
        assert (shown / "tokenizer.json").read_text() == "{}"
        assert json.loads((shown / "config.json").read_text()).get("a") == (1 if config == '{"a": 1}' else None)
    assert not shown.exists()
    assert sorted(tmp_path.iterdir()) == before


# ── the real one ─────────────────────────────────────────────────────────────────────────────────────────────────────


def qwen3(**more: Any) -> Served:
    known = {"eos_ids": (END_OF_TURN, 151643), "vocabulary_size": 151669}
    return Served("qwen3-8b", "Qwen/Qwen3-8B", snapshot("qwen3-8b"), **known, **more)


class Running:
    """A gateway that is started once for several tests."""

    def __init__(self, runner: asyncio.Runner, gateway: Smg) -> None:
        self.runner = runner
        self.gateway = gateway

    def use(self, served: Served, asked: Callable[[SmgAdapter], Coroutine]) -> Any:
        async def run() -> Any:
            async with self.gateway.open(served) as adapter:
                return await asked(adapter)

        return self.runner.run(run())


def running(gateway: Smg) -> Iterator[Running]:
    with asyncio.Runner() as runner:
        runner.run(gateway.__aenter__())
        pid = gateway.pid
        try:
            yield Running(runner, gateway)
        finally:
            runner.run(gateway.__aexit__(None, None, None))
    assert not alive(pid)


@pytest.fixture(scope="module")
def legacy() -> Iterator[Running]:
    yield from running(Smg("1.13.0", clock=datetime(2026, 1, 15, 12)))


@pytest.fixture(scope="module")
def symphony() -> Iterator[Running]:
    yield from running(Smg("1.13.0", parser="symphony", wire="sglang"))


def ids_of(text: str) -> list[int]:
    return load_checkpoint("qwen3-8b").tokenizer.encode(text, add_special_tokens=False)


@real
def test_the_real_one_sends_the_prompt_of_the_template(legacy: Running) -> None:
    """The fixtures' own."""
    assert legacy.gateway.version == "1.13.0"
    assert legacy.use(qwen3(), lambda adapter: adapter.render(HI)).ids == HI_IDS


@real
def test_the_real_one_refuses(legacy: Running) -> None:
    """An error object with a code of its own."""
    with pytest.raises(Refused) as caught:
        legacy.use(qwen3(), lambda adapter: adapter.render('{"messages": []}'))
    assert (caught.value.code, caught.value.status) == ("empty_array", 400)


@real
@pytest.mark.parametrize("size", [None, 1, 3, 1000])
def test_the_real_one_s_legacy_parsers_write_arguments_anew(legacy: Running, size: int | None) -> None:
    """Compactly, at every size of chunks. Text before the call is content; a turn that calls says so, and is counted
    with the id that ends it."""
    ids = ids_of(f"<think>\n\n</think>\n\n{CALL}")
    chunks = size and [ids[start : start + size] for start in range(0, len(ids), size)]
    answer = legacy.use(qwen3(), lambda adapter: adapter.parse(CALLING, Output(ids, chunks, END_OF_TURN)))
    assert answer.parser == "legacy"
    assert answer.tool_calls == [{"name": "f", "arguments": '{"x":1}'}]
    assert answer.finish_reason == "tool_calls"
    assert answer.usage == (len(answer.prompt_ids), len(ids) + 1)
    assert answer.framing is None
    assert answer.in_pieces is (size in (1, 3) if size else None)


@real
@pytest.mark.parametrize("size", [None, 1, 1000])
def test_the_real_one_s_symphony_keeps_the_bytes_of_arguments(symphony: Running, size: int | None) -> None:
    """On another wire, too."""
    ids = ids_of(f"<think>\n\n</think>\n\n{CALL}")
    chunks = size and [ids[start : start + size] for start in range(0, len(ids), size)]
    answer = symphony.use(qwen3(), lambda adapter: adapter.parse(CALLING, Output(ids, chunks, END_OF_TURN)))
    assert answer.parser == "symphony"
    assert answer.tool_calls == [{"name": "f", "arguments": '{"x":  1}'}]


@real
def test_symphony_s_registry_does_not_know_every_model(symphony: Running) -> None:
    """It goes by the last part of the name."""
    with pytest.raises(Failed) as caught:
        symphony.use(replace(qwen3(), model="Qwen/Qwen3-8B-of-nobody"), version)
    assert (caught.value.code, caught.value.message) == (
        "not-loaded",
        "Symphony of smg 1.13.0 does not know this model",
    )


@real
def test_the_real_one_s_ids_and_texts_are_the_tokenizer_s(legacy: Running) -> None:
    """No special token is added to a text, and none is taken from one."""
    text = "<|im_start|>Hi 🪿\n"

    async def both(adapter: SmgAdapter) -> tuple:
        return await adapter.tokenize(text), await adapter.detokenize(ids_of(text)), await adapter.detokenize([])

    assert legacy.use(qwen3(), both) == (ids_of(text), text, "")


@real
def test_a_checkpoint_can_be_opened_again_at_once(legacy: Running) -> None:
    """The worker before it drains for seconds, and gets none of the requests."""

    async def many(adapter: SmgAdapter) -> list:
        return await asyncio.gather(*(adapter.render(HI) for _ in range(50)))

    for _ in range(2):
        assert [prompt.ids for prompt in legacy.use(qwen3(), many)] == [HI_IDS] * 50


@real
def test_a_folder_the_real_one_cannot_load_is_told_by_its_own_words(legacy: Running, tmp_path: Path) -> None:
    """After it tried three times."""
    with pytest.raises(Failed) as caught:
        legacy.use(Served("none", "Nobody/None", tmp_path, eos_ids=(1,), vocabulary_size=2), version)
    assert caught.value.code == "not-loaded"
    assert "does not contain a valid tokenizer file" in caught.value.message


@real
def test_a_parser_the_real_one_does_not_know_is_told(legacy: Running) -> None:
    """Rather than waited for."""
    with pytest.raises(Failed) as caught:
        legacy.use(qwen3(tool_parser="of-nobody"), version)
    assert (caught.value.code, "of-nobody" in caught.value.message) == ("not-registered", True)


@real
@pytest.mark.skipif(sys.platform != "linux", reason="the clock is set on Linux only")
def test_a_harmony_prompt_shows_the_day_the_gateway_believes_in(legacy: Running) -> None:
    """Its encoder asks the clock and nothing else. Its answers name no parser."""
    served = Served("gpt-oss-20b", "openai/gpt-oss-20b", snapshot("gpt-oss-20b"), eos_ids=(200002,))

    async def asked(adapter: SmgAdapter) -> tuple:
        prompt = await adapter.render(HI)
        return await adapter.detokenize(prompt.ids), (await adapter.parse(HI, Output([13225], None, 200002))).parser

    text, parser = legacy.use(replace(served, vocabulary_size=201088), asked)
    assert "Current date: 2026-01-15\n" in text
    assert parser is None


@real
def test_the_release_before_has_one_kind_of_parsers() -> None:
    """And names none. It takes the header of a choice it does not have."""

    async def run() -> tuple:
        async with Smg("1.9.0", wire="tokenspeed") as gateway, gateway.open(qwen3()) as adapter:
            answer = await adapter.parse(CALLING, Output(ids_of(CALL), None, END_OF_TURN))
            return gateway.version, (await adapter.render(HI)).ids, answer.parser

    assert asyncio.run(run()) == ("1.9.0", HI_IDS, None)


# ── its start and its end ────────────────────────────────────────────────────────────────────────────────────────────


@real
def test_ports_in_use_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program takes one between the look and the start. That it answers for the gateway is not believed."""
    server = SmgServer()

    async def run(times: int) -> tuple:
        async with listening(server.routes()) as url:
            taken = int(url.rpartition(":")[2])
            drawn = iter([[taken, *free_ports(1)], [*free_ports(1), taken], [taken, *free_ports(1)]][:times])
            monkeypatch.setattr(smg, "free_ports", lambda count: next(drawn, None) or free_ports(count))
            async with Smg("1.13.0") as gateway:
                return gateway.version, gateway.url != url

    assert asyncio.run(run(2)) == ("1.13.0", True)
    with pytest.raises(GatewayError, match=r"cannot be started: .*Address already in use"):
        asyncio.run(run(3))


@real
def test_a_gateway_that_ends_meanwhile_ends_the_observation() -> None:
    """What it was asked is no measurement, and neither is all that would follow."""

    async def run() -> None:
        async with Smg("1.13.0") as gateway, gateway.open(qwen3()) as adapter:
            os.kill(gateway.pid, signal.SIGKILL)
            await adapter.render(HI)

    with pytest.raises(GatewayError, match=r"the gateway smg 1\.13\.0 ended"):
        asyncio.run(run())


ALONE = """
import asyncio, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job inherits that it is ignored
from bellwether.gateways.smg import Smg

async def main():
    async with Smg("1.13.0") as gateway:
        print(gateway.pid, flush=True)
        await asyncio.sleep(3600)

asyncio.run(main())
"""


@real
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends it with a program that is killed")
@pytest.mark.parametrize("send", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_gateway_outlives_who_started_it(send: signal.Signals) -> None:
    """Interrupted, ended, killed."""
    command = [sys.executable, "-c", ALONE]
    paths = {**os.environ, "PYTHONPATH": str(ROOT / "stages")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=paths, text=True) as parent:
        pid = int(parent.stdout.readline())
        assert alive(pid)
        parent.send_signal(send)
    wait_for(lambda: not alive(pid))


def test_a_gateway_is_started_or_reached() -> None:
    """One of both has to be said, and parsers are of two kinds."""
    with pytest.raises(ValueError, match="started at a release"):
        Smg(None)
    with pytest.raises(ValueError, match="no parser 'both'"):
        Smg("1.13.0", parser="both")
