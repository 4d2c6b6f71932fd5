"""A running vLLM: which routes show what. Its Rust executable, its Python server, and servers that are neither."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from bellwether.environments import ENVIRONMENTS, environment
from bellwether.errors import WitnessError
from bellwether.gateways.answer import Failed, Output, Refused, Served
from bellwether.gateways.vllm import DERENDER, DETOKENIZE, RENDER, TOKENIZE, Adapter, Vllm
from bellwether.witnesses.vllm_rust import obtain, read_executable
from listening import listening, program, says
from support import ROOT, load_checkpoint, snapshot

MODEL = "Qwen/Qwen3-8B"
END_OF_TURN = 151645  # <|im_end|>
SERVED = Served("qwen3-8b", MODEL, Path("unread"), eos_ids=(END_OF_TURN, 151643), vocabulary_size=151669)
HI = '{"messages":[{"role":"user","content":"Say hi."}]}'
HI_IDS = [151644, 872, 198, 45764, 15588, 13, 151645, 198, 151644, 77091, 198]
"""<|im_start|>user\\nSay hi.<|im_end|>\\n<|im_start|>assistant\\n, as the fixtures of this checkpoint have it."""
FUNCTION = {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {"x": {"type": "string"}}}}
CALLING = json.dumps(
    {"messages": [{"role": "user", "content": "Hi"}], "tools": [{"type": "function", "function": FUNCTION}]}
)
MODELS = {"object": "list", "data": [{"id": MODEL, "root": MODEL}]}
MISSING = says({"error": {"message": "1 validation error: missing", "type": "Bad Request", "code": 400}}, 400)
NOT_FOUND = says({"detail": "Not Found"}, 404)
STATE = {"output_token_ids": []}


@asynccontextmanager
async def opened(url: str, served: Served = SERVED) -> AsyncIterator[tuple[Vllm, Adapter]]:
    async with Vllm(url) as gateway, gateway.open(served) as adapter:
        yield gateway, adapter


def with_fake(routes: dict, use: Callable[[Vllm, Adapter], Coroutine], served: Served = SERVED) -> Any:
    """Return what `use` makes of a server of these routes; /v1/models is there unless it is one of them."""

    async def run() -> Any:
        given = {"GET /v1/models": says(MODELS), **routes}
        async with listening(given) as url, opened(url, served) as (gateway, adapter):
            return await use(gateway, adapter)

    return asyncio.run(run())


async def failure(asked: Coroutine) -> Failed | Refused:
    with pytest.raises((Failed, Refused)) as caught:
        await asked
    return caught.value


def failed_open(routes: dict, served: Served = SERVED) -> Failed:
    async def nothing(gateway: Vllm, adapter: Adapter) -> None:
        raise AssertionError("it was opened")

    with pytest.raises(Failed) as caught:
        with_fake(routes, nothing, served)
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


# ── what a server has decides what is observed ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("routes", "kinds"),
    [
        ({RENDER}, {"render"}),
        ({TOKENIZE}, {"render", "tokenize"}),
        ({DETOKENIZE}, {"detokenize"}),
        ({RENDER, DERENDER}, {"render", "parse"}),
        ({DERENDER, DETOKENIZE}, {"detokenize"}),
        ({RENDER, DERENDER, TOKENIZE, DETOKENIZE}, {"render", "parse", "tokenize", "detokenize"}),
    ],
)
def test_routes_decide_what_is_observed(routes: set[str], kinds: set[str]) -> None:
    """A message is read as the answer to a prompt: derendering without any route for prompts observes nothing."""

    async def use(gateway: Vllm, adapter: Adapter) -> tuple:
        return gateway.kinds, adapter.kinds, gateway.version, gateway.facts["routes"]

    said = {"token_ids": [1], "tokens": [1], "chunk": {"choices": []}, "stream_state": STATE}
    found = with_fake({f"POST {path}": answering([], said) for path in routes}, use)
    assert found == (kinds, kinds, "unstated", sorted(routes))


@pytest.mark.parametrize("status", [404, 405, 501])
def test_a_route_that_is_not_offered_is_not_there(status: int) -> None:
    """vLLM answers 404 to a route it has not, and 501 to one its model has not."""

    async def use(gateway: Vllm, adapter: Adapter) -> frozenset[str]:
        return adapter.kinds

    absent = says({"error": {"message": "no", "type": "NotFoundError", "code": status}}, status)
    assert with_fake({f"POST {RENDER}": MISSING, f"POST {TOKENIZE}": absent}, use) == {"render"}


def test_a_server_without_any_of_the_routes_is_not_observable() -> None:
    """Nothing observed is no pass."""
    failed = failed_open({})
    assert (failed.code, "routes of vLLM" in failed.message) == ("not-observable", True)


@pytest.mark.parametrize(("status", "code"), [(401, "http-401"), (500, "http-500"), (307, "redirect")])
def test_a_probe_without_a_clear_answer_opens_nothing(status: int, code: str) -> None:
    """No access, an error and a redirect say neither that a route is there nor that it is not."""

    async def handler(request: web.Request) -> web.Response:
        return web.Response(status=status, headers={"location": TOKENIZE})

    assert failed_open({f"POST {RENDER}": handler}).code == code


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


def test_another_model_is_not_loaded() -> None:
    """The server says which it has."""
    failed = failed_open({"GET /v1/models": says({"data": [{"id": "other"}]}), f"POST {RENDER}": MISSING})
    assert (failed.code, failed.message) == ("not-loaded", f"the server serves other, not {MODEL}")


def test_a_model_served_under_another_name_is_found_by_its_root() -> None:
    """`--served-model-name` gives it the name; `root` says what it is."""
    seen: list[dict] = []

    async def use(gateway: Vllm, adapter: Adapter) -> list[int]:
        return (await adapter.render(HI)).ids

    models = says({"data": [{"id": "first", "root": "x"}, {"id": "mine", "root": MODEL}]})
    assert with_fake({"GET /v1/models": models, f"POST {RENDER}": answering(seen, {"token_ids": [7]})}, use) == [7]
    assert seen[-1]["model"] == "mine"


@pytest.mark.parametrize("models", [{}, {"data": [{"name": "x"}]}, [], {"data": None}])
def test_a_server_that_lists_no_models_is_not_asked(models: Any) -> None:
    """§15 of the capture rules: /v1/models is asked first."""
    assert failed_open({"GET /v1/models": says(models), f"POST {RENDER}": MISSING}).code == "no-models"


def test_the_version_is_what_the_server_says() -> None:
    async def use(gateway: Vllm, adapter: Adapter) -> tuple:
        return gateway.version, adapter.version

    routes = {"GET /version": says({"version": "0.33.0"}), f"POST {RENDER}": MISSING}
    assert with_fake(routes, use) == ("0.33.0", "0.33.0")


# ── prompts ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_request_is_sent_as_it_was_written() -> None:
    """The order of keys and the spelling of numbers are data."""
    bodies: list[bytes] = []

    async def handler(request: web.Request) -> web.Response:
        bodies.append(await request.read())
        return web.json_response({"token_ids": [1]}) if len(bodies) > 1 else await MISSING(request)

    async def use(gateway: Vllm, adapter: Adapter) -> None:
        await adapter.render('{"temperature": 1e2, "messages": [], "a": 1}')

    with_fake({f"POST {RENDER}": handler}, use)
    assert bodies[-1] == b'{"model":"Qwen/Qwen3-8B","temperature": 1e2, "messages": [], "a": 1}'


@pytest.mark.parametrize(
    ("extra", "lost"),
    [
        ({"reasoning_effort": "low"}, "reasoning_effort"),
        ({"documents": [{}]}, "documents"),
        ({"tool_choice": "none"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
        ({"tool_choice": "auto", "temperature": 0, "chat_template_kwargs": {}}, None),
    ],
)
def test_tokenize_is_not_asked_for_what_it_does_not_read(extra: dict, lost: str | None) -> None:
    """A key that would be dropped without a word is a failed measurement, not a prompt."""
    request = json.dumps({"messages": [], **extra})

    async def use(gateway: Vllm, adapter: Adapter) -> Any:
        return await failure(adapter.render(request)) if lost else (await adapter.render(request)).ids

    found = with_fake({f"POST {TOKENIZE}": answering([], {"tokens": [4]})}, use)
    assert found == [4] if lost is None else (found.code, lost in found.message) == ("not-sent", True)


@pytest.mark.parametrize(
    ("status", "value", "kind", "code"),
    [
        (400, {"error": {"message": "no", "type": "BadRequestError", "code": 400}}, Refused, "400"),
        (400, {"object": "error", "message": "no", "type": "BadRequestError", "code": 400}, Refused, "BadRequestError"),
        (400, {"detail": "no"}, Failed, "http-400"),
        (404, {"error": {"message": "no", "type": "NotFoundError", "code": 404}}, Failed, "http-404"),
        (500, {"error": {"message": "no", "type": "InternalServerError", "code": 500}}, Failed, "http-500"),
        (200, {"ids": [1]}, Failed, "malformed-answer"),
        (200, {"token_ids": [1.5]}, Failed, "malformed-answer"),
        (200, {"token_ids": [True]}, Failed, "malformed-answer"),
        (200, [], Failed, "malformed-answer"),
    ],
)
def test_what_is_no_refusal_is_a_failure(status: int, value: Any, kind: type, code: str) -> None:
    """Evidence is a value, or a 400 or 422 with an error object."""

    async def use(gateway: Vllm, adapter: Adapter) -> Exception:
        return await failure(adapter.render(HI))

    found = with_fake({f"POST {RENDER}": answering([], value, status)}, use)
    assert (type(found), found.code, found.status) == (kind, code, status)


# ── messages ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def derenders(seen: list[dict], *, streams: bool = True) -> dict:
    """Return routes of a server whose prompts are [5, 6] and whose text is one letter per id."""

    def derender(body: dict) -> dict:
        part = body["generate_chunk"] if streams and body["stream"] else body["generate_response"]
        [choice] = part["choices"]
        text = "".join(chr(97 + token) for token in choice["token_ids"] if token != END_OF_TURN)
        if not body["stream"]:
            message = {"role": "assistant", "content": text, "reasoning": None}
            usage = {"prompt_tokens": 0, "completion_tokens": 9, "total_tokens": 9}
            return {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage}
        delta = {"index": 0, "delta": {"content": text}, "finish_reason": choice["finish_reason"]}
        told = [*((body["stream_state"] or STATE)["output_token_ids"]), *choice["token_ids"]]
        return {"chunk": {"choices": [delta]}, "stream_state": {"output_token_ids": told}}

    whole = answering(seen, derender)

    async def older(request: web.Request) -> web.Response:
        body = await request.json()
        if "generate_response" not in body:
            message = "1 validation error: loc body.generate_response, Field required"
            return web.json_response({"error": {"message": message, "type": "Bad Request", "code": 400}}, status=400)
        return await whole(request)

    return {f"POST {RENDER}": answering([], {"token_ids": [5, 6]}), f"POST {DERENDER}": whole if streams else older}


@pytest.mark.parametrize(
    ("output", "sent"),
    [
        (Output([0, 1, 2], [[0, 1], [2]], END_OF_TURN), [[0, 1], [2, END_OF_TURN]]),
        (Output([0, 1, 2], [[0], [1], [2]], END_OF_TURN), [[0], [1], [2], [END_OF_TURN]]),
        (Output([0, 1, 2], [[0, 1, 2]], None, "length"), [[0, 1, 2]]),
        (Output([], [], END_OF_TURN), [[END_OF_TURN]]),
    ],
)
def test_chunks_carry_the_state_and_the_last_one_the_end(output: Output, sent: list[list[int]]) -> None:
    """The id that ends the turn comes with the last chunk; where every id comes alone, it does too."""
    seen: list[dict] = []

    async def use(gateway: Vllm, adapter: Adapter) -> Any:
        seen.clear()
        return await adapter.parse(HI, output)

    answer = with_fake(derenders(seen), use)
    chunks = [body["generate_chunk"]["choices"][0] for body in seen]
    assert [chunk["token_ids"] for chunk in chunks] == sent
    assert [chunk["finish_reason"] for chunk in chunks] == [None] * (len(sent) - 1) + [output.finish_reason]
    assert [body["stream_state"] for body in seen][1:] == [
        {"output_token_ids": [token for step in sent[:number] for token in step]} for number in range(1, len(sent))
    ]
    assert all(body["prompt_token_ids"] == [5, 6] and body["chat_request"]["model"] == MODEL for body in seen)
    assert answer.content == ("abc" if output.ids else None)
    assert (answer.framing, answer.prompt_ids, answer.usage) == (None, [5, 6], None)


def test_the_parser_of_a_whole_output_is_told_the_prompt() -> None:
    """vLLM reads it inside the generated answer, and for the text beside it. Its counts echo what it was told."""
    seen: list[dict] = []

    async def use(gateway: Vllm, adapter: Adapter) -> Any:
        seen.clear()
        return await adapter.parse(HI, Output([0, 1], None, END_OF_TURN))

    answer = with_fake(derenders(seen), use)
    [body] = seen
    assert body["generate_response"]["prompt_token_ids"] == body["prompt_token_ids"] == [5, 6]
    assert body["generate_response"]["choices"] == [
        {"index": 0, "token_ids": [0, 1, END_OF_TURN], "finish_reason": "stop", "stop_reason": END_OF_TURN}
    ]
    assert (answer.content, answer.finish_reason, answer.usage) == ("ab", "stop", None)


def test_an_older_server_streams_nothing() -> None:
    """One that knows whole outputs alone misses the whole in a chunk."""

    async def use(gateway: Vllm, adapter: Adapter) -> tuple:
        whole = await adapter.parse(HI, Output([0], None, END_OF_TURN))
        return gateway.plans, gateway.facts["streams"], whole.content

    assert with_fake(derenders([], streams=False), use) == (frozenset(), False, "a")
    streams = with_fake(derenders([]), use)
    assert streams == (None, True, "a")


def test_an_output_without_any_id_is_not_sent() -> None:
    """vLLM refuses it, which would say nothing of the checkpoint."""

    async def use(gateway: Vllm, adapter: Adapter) -> Failed | Refused:
        return await failure(adapter.parse(HI, Output([], None, None)))

    bare = Served("qwen3-8b", MODEL, Path("unread"))
    found = with_fake(derenders([]), use, bare)
    assert (type(found), found.code) == (Failed, "not-sent")


def test_stop_strings_are_refused_by_the_route_and_not_by_vllm() -> None:
    """Chats with them are streamed; derendering cannot, and its 400 is no word about the request."""
    message = "stop strings are not supported by streaming derender because text already sent cannot be cut."
    routes = derenders([])

    async def refusing(request: web.Request) -> web.Response:
        if "stop" not in (await request.json()).get("chat_request", {}):
            return await routes[f"POST {DERENDER}"](request)
        return web.json_response({"error": {"message": message, "type": "BadRequestError", "code": 400}}, status=400)

    async def use(gateway: Vllm, adapter: Adapter) -> Failed | Refused:
        return await failure(adapter.parse('{"messages":[],"stop":["a"]}', Output([0], [[0]], END_OF_TURN)))

    found = with_fake(routes | {f"POST {DERENDER}": refusing}, use)
    assert (type(found), found.code, found.status) == (Failed, "not-offered", 400)


# ── the real ones ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_rust_front_end_renders_and_nothing_else(checkpoint: Callable) -> None:
    """It answers 404 to derender, tokenize and detokenize, and has no /version."""
    try:
        executable = obtain(ROOT, read_executable(ENVIRONMENTS / "vllm-rust-0.33.0" / "executable.toml"), print)
    except WitnessError as error:
        pytest.skip(str(error))
    overrides = json.dumps({"vocab_size": SERVED.vocabulary_size})
    command = [executable, "render", snapshot("qwen3-8b"), "--host", "127.0.0.1", "--port", "PORT"]
    command += ["--served-model-name", MODEL, "--hf-overrides", overrides, "--tool-call-parser", "hermes"]

    async def run() -> tuple:
        async with program(command) as url, opened(url) as (gateway, adapter):
            bad = await failure(adapter.render('{"messages":"none"}'))
            return gateway.kinds, gateway.version, gateway.plans, (await adapter.render(HI)).ids, bad

    *found, bad = asyncio.run(run())
    assert found == [{"render"}, "unstated", frozenset(), HI_IDS]
    assert (type(bad), bad.status) == (Refused, 400)


pytest_python = pytest.mark.xdist_group("vllm")


@pytest.fixture(scope="module")
def python_server() -> Iterator[Callable]:
    """`python_server(use)` → what `use(gateway, adapter)` makes of vLLM 0.33.0's render server, started once."""
    built = environment("vllm-0.33.0")
    script = Path(__file__).with_name("vllm_server.py")
    command = [built.python, script, ROOT / "stages", snapshot("qwen3-8b"), "PORT", "hermes", "qwen3"]
    with asyncio.Runner() as runner:
        running = program(command, {"PYTHONPYCACHEPREFIX": str(built.bytecode)})
        url = runner.run(running.__aenter__())
        served = Served("qwen3-8b", "model", Path("unread"), eos_ids=SERVED.eos_ids)

        def ask(use: Callable) -> Any:
            async def run() -> Any:
                async with opened(url, served) as (gateway, adapter):
                    return await use(gateway, adapter)

            return runner.run(run())

        yield ask
        runner.run(running.__aexit__(None, None, None))


@pytest_python
def test_vllm_shows_all_kinds_and_streams(python_server: Callable) -> None:
    async def use(gateway: Vllm, adapter: Adapter) -> tuple:
        return gateway.version, gateway.kinds, gateway.plans, (await adapter.render(HI)).ids

    kinds = {"render", "parse", "tokenize", "detokenize"}
    assert python_server(use) == ("0.33.0", kinds, None, HI_IDS)


@pytest_python
def test_vllm_s_ids_and_texts_are_those_of_the_tokenizer(python_server: Callable) -> None:
    """No special token is added to a text, and none is taken from one; a piece of a character is the sign of one."""
    text = "<|im_start|>Hi 🪿\n"
    tokenizer = load_checkpoint("qwen3-8b").tokenizer

    async def use(gateway: Vllm, adapter: Adapter) -> tuple:
        ids = await adapter.tokenize(text)
        return ids, await adapter.detokenize(ids), await adapter.detokenize(ids[:3]), await adapter.detokenize([])

    ids, whole, begun, empty = python_server(use)
    assert ids == tokenizer.encode(text, add_special_tokens=False)
    assert (whole, begun, empty) == (text, tokenizer.decode(ids[:3]), "")


@pytest_python
@pytest.mark.parametrize("size", [None, 1, 3, 100])
def test_vllm_reads_a_call_the_same_however_it_is_streamed(python_server: Callable, size: int | None) -> None:
    """Reasoning comes before a call, and a turn that ends with calls says so. Arguments are written anew or their bytes
    are kept: one value either way."""
    text = '<think>\nok\n</think>\n\n<tool_call>\n{"name": "f", "arguments": {"x": 1e2}}\n</tool_call>'

    async def use(gateway: Vllm, adapter: Adapter) -> Any:
        ids = await adapter.tokenize(text)
        chunks = None if size is None else [ids[at : at + size] for at in range(0, len(ids), size)]
        return await adapter.parse(CALLING, Output(ids, chunks, END_OF_TURN))

    answer = python_server(use)
    assert answer.reasoning_content == "\nok\n"
    assert [call["name"] for call in answer.tool_calls] == ["f"]
    assert json.loads(answer.tool_calls[0]["arguments"]) == {"x": 100.0}
    assert (answer.finish_reason, answer.framing, answer.usage) == ("tool_calls", None, None)


@pytest_python
@pytest.mark.parametrize("chunks", [None, []])
def test_vllm_reads_an_empty_turn(python_server: Callable, chunks: list | None) -> None:
    """The id that ends the turn stands alone."""

    async def use(gateway: Vllm, adapter: Adapter) -> Any:
        return await adapter.parse(HI, Output([], chunks, END_OF_TURN))

    answer = python_server(use)
    assert (answer.content, answer.reasoning_content, answer.tool_calls) == (None, None, [])
    assert answer.finish_reason == "stop"


@pytest_python
def test_vllm_s_refusals_are_evidence(python_server: Callable) -> None:
    """`tools: []` is refused by vLLM, also where an output is read as the answer."""
    request = '{"messages":[{"role":"user","content":"Hi"}],"tools":[]}'

    async def use(gateway: Vllm, adapter: Adapter) -> list:
        output = Output([13048], None, END_OF_TURN)
        return [await failure(adapter.render(request)), await failure(adapter.parse(request, output))]

    for refused in python_server(use):
        assert isinstance(refused, Refused)
        assert (refused.status, "must not be an empty array" in refused.message) == (400, True)


@pytest_python
def test_vllm_streams_no_stop_strings_without_an_engine(python_server: Callable) -> None:
    """A 400 of the route that derenders chunks, and no word about the request: the whole output is read."""
    request = '{"messages":[{"role":"user","content":"Hi"}],"stop":["zzz"]}'

    async def use(gateway: Vllm, adapter: Adapter) -> tuple:
        whole = await adapter.parse(request, Output([13048], None, END_OF_TURN))
        return whole.reasoning_content, await failure(adapter.parse(request, Output([13048], [[13048]], END_OF_TURN)))

    reasoning, failed = python_server(use)
    assert (reasoning, type(failed), failed.code) == ("Hi", Failed, "not-offered")
