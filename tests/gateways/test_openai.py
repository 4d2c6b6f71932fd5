"""Any gateway in front of our engine: SMG 1.13.0 as it is started by hand, and small ones with one habit each."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from bellwether.environments import environment
from bellwether.errors import EngineError
from bellwether.gateways import behind, chat
from bellwether.gateways.answer import Failed, Missing, Output, Refused, Served
from bellwether.gateways.behind import Behind, EngineAt, EngineFiles
from bellwether.gateways.openai import Adapter, OpenAi
from bellwether.gateways.process import free_ports
from listening import listening, program, says
from support import load_checkpoint, snapshot

SLUG, MODEL = "smollm2-135m-instruct", "HuggingFaceTB/SmolLM2-135M-Instruct"
END = 2  # <|im_end|>
HI = '{"messages":[{"role":"user","content":"Hi"}]}'


def served() -> Served:
    return Served(SLUG, MODEL, snapshot(SLUG), eos_ids=(END,), vocabulary_size=49152)


def encoded(text: str) -> list[int]:
    return load_checkpoint(SLUG).tokenizer.encode(text, add_special_tokens=False)


@pytest.fixture(autouse=True)
def little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A capture that does not come is waited for this long."""
    monkeypatch.setattr(behind, "CAPTURE_SECONDS", 0.3)


@dataclass
class Small:
    """A gateway of a few lines, between us and the HTTP face of the engine. The prompt of a chat is, in ids, how many
    messages it has and how long the last one is."""

    upstream: str
    forwards: str = "header"
    """header, rid, or nothing: which id of ours reaches the engine."""
    renders: bool = True
    """Sends ids to /v1/completions; else the messages to /v1/chat/completions."""
    times: int = 1
    """How often it sends each request on."""
    differing: bool = False
    """Whether each time with other ids."""
    strict: bool = False
    """Whether it refuses a body with `rid`."""
    under_way: int = 0
    most: int = 0
    """Requests that were under way at one time."""
    not_ready: int = 0
    """Chats that are answered with a 503 first."""

    def routes(self, models: list[str] | None = None) -> dict:
        listed = {"data": [{"id": name} for name in ([MODEL] if models is None else models)]}
        return {"GET /v1/models": says(listed), "POST /v1/chat/completions": self.chat}

    async def chat(self, request: web.Request) -> web.Response:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            return await self._chat(request)
        finally:
            self.under_way -= 1

    async def _chat(self, request: web.Request) -> web.Response:
        body = await request.json()
        if self.not_ready:
            self.not_ready -= 1
            return web.json_response({"error": {"message": "loading"}}, status=503)
        if not body["messages"]:
            return refusal("no messages", "empty")
        if self.strict and "rid" in body:
            return refusal("unknown key rid", "unknown_key")
        headers = {"X-Request-Id": request.headers["X-Request-Id"] + "-0a1b"} if self.forwards == "header" else {}
        told = {"rid": body["rid"]} if self.forwards == "rid" and "rid" in body else {}
        async with chat.session() as client:
            for time in range(self.times):
                prompt = [len(body["messages"]), len(body["messages"][-1]["content"]) + time * self.differing]
                told |= {"prompt": prompt} if self.renders else {"messages": body["messages"]}
                path = "/v1/completions" if self.renders else "/v1/chat/completions"
                sent = {"model": MODEL, "stream": body["stream"], "skip_special_tokens": True, **told}
                reply = await chat.post(client, self.upstream + path, json.dumps(sent).encode(), headers)
        if not self.renders:
            return web.Response(body=reply.body, content_type=reply.headers["content-type"].partition(";")[0])
        return as_chat(reply.body, body["stream"])


def refusal(message: str, code: str) -> web.Response:
    return web.json_response({"error": {"message": message, "code": code, "type": "bad"}}, status=400)


def as_chat(body: bytes, stream: bool) -> web.Response:
    """Return the chat that a completion makes, event by event when it is streamed."""
    if not stream:
        [choice] = json.loads(body)["choices"]
        message = {"role": "assistant", "content": choice["text"]}
        return web.json_response({"choices": [{"message": message, "finish_reason": choice["finish_reason"]}]})
    events = []
    for data in chat.events(body):
        if data != b"[DONE]":
            [choice] = json.loads(data)["choices"]
            one = {"index": 0, "delta": {"content": choice["text"]}, "finish_reason": choice["finish_reason"]}
            data = json.dumps({"choices": [one]}).encode()
        events.append(b"data: " + data + b"\n\n")
    return web.Response(body=b"".join(events), content_type="text/event-stream")


def through(use: Callable[[OpenAi, Adapter], Coroutine], patience: float = 5, **habits: Any) -> Any:
    """Return what `use` makes of a small gateway with these habits, and the gateway."""

    async def run() -> Any:
        [port] = free_ports(1)
        small = Small(f"http://127.0.0.1:{port}", **habits)
        async with (
            listening(small.routes()) as url,
            opened(url, EngineAt(port, "http"), patience) as (gateway, adapter),
        ):
            return await use(gateway, adapter), small

    return asyncio.run(run())


@asynccontextmanager
async def opened(
    url: str, engine: Behind | None, patience: float = 5, of: Served | None = None
) -> AsyncIterator[tuple[OpenAi, Adapter]]:
    async with OpenAi(url, engine, patience=patience) as gateway, gateway.open(of or served()) as adapter:
        yield gateway, adapter


async def failure(asked: Coroutine) -> Exception:
    with pytest.raises((Failed, Refused, Missing)) as caught:
        await asked
    return caught.value


async def nothing(gateway: OpenAi, adapter: Adapter) -> None:
    raise AssertionError("it was opened")


# ── which request is which ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("habits", "join", "at_a_time"),
    [
        ({"forwards": "header"}, "header", 8),
        ({"forwards": "rid"}, "rid", 8),
        ({"forwards": "nothing"}, "order", 1),
        ({"forwards": "nothing", "strict": True}, "order", 1),
    ],
)
def test_requests_are_joined_by_what_the_gateway_forwards(habits: dict, join: str, at_a_time: int) -> None:
    """Found out with plain chats. A gateway that refuses a key it does not know is told none."""

    async def use(gateway: OpenAi, adapter: Adapter) -> tuple:
        asked = [json.dumps({"messages": [{"role": "user", "content": "x" * number}]}) for number in range(20)]
        limit = asyncio.Semaphore(gateway.concurrency)

        async def one(request: str) -> list[int]:
            async with limit:
                return (await adapter.render(request)).ids

        return adapter.join, gateway.concurrency, gateway.facts["join"], await asyncio.gather(*map(one, asked))

    found, small = through(use, **habits)
    assert found == (join, at_a_time, join, [[1, number] for number in range(20)])
    assert (small.most == 1) == (at_a_time == 1)


@pytest.mark.parametrize("forwards", ["header", "nothing"])
def test_captures_are_counted(forwards: str) -> None:
    """Those of no request of ours are `other`: here that of the first chat, whose id did not arrive."""

    async def use(gateway: OpenAi, adapter: Adapter) -> OpenAi:
        await adapter.render(HI)
        return gateway

    gateway, _ = through(use, forwards=forwards)
    probes_lost = 0 if forwards == "header" else 2
    assert gateway.captures == {"read": 2 + probes_lost, "joined": 2, "other": probes_lost}


def test_a_gateway_that_asks_twice_is_believed_where_it_asks_the_same() -> None:
    """A request that is sent again has the same id and the same ids."""

    async def use(gateway: OpenAi, adapter: Adapter) -> list[int]:
        return (await adapter.render(HI)).ids

    assert through(use, times=2)[0] == [1, 2]


@pytest.mark.parametrize("habits", [{"differing": True}, {"forwards": "nothing"}])
def test_two_requests_for_one_are_no_measurement(habits: dict) -> None:
    """With unequal ids there is no telling which is the prompt; without an id, which is the request."""
    with pytest.raises(Failed) as caught:
        through(nothing, times=2, **habits)
    assert caught.value.code == "captures-differ"


def test_a_request_that_does_not_reach_the_engine_is_missing() -> None:
    """Answered 200, and not by our engine."""

    async def use(gateway: OpenAi, adapter: Adapter) -> list:
        gateway_answers = await adapter.render(HI)
        small_gateway.times = 0
        return [gateway_answers, await failure(adapter.render(HI))]

    async def run() -> list:
        nonlocal small_gateway
        [port] = free_ports(1)
        small_gateway = Cached(f"http://127.0.0.1:{port}")
        async with listening(small_gateway.routes()) as url, opened(url, EngineAt(port, "http")) as (gateway, adapter):
            return await use(gateway, adapter)

    small_gateway: Small
    prompt, missing = asyncio.run(run())
    assert (prompt.ids, type(missing)) == ([1, 2], Missing)


@dataclass
class Cached(Small):
    """Answers by itself once `times` is 0."""

    async def _chat(self, request: web.Request) -> web.Response:
        if self.times:
            return await super()._chat(request)
        message = {"role": "assistant", "content": "as before"}
        return web.json_response({"choices": [{"message": message, "finish_reason": "stop"}]})


# ── what is observed ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("size", [None, 1, 2])
def test_the_engine_says_what_is_read(size: int | None) -> None:
    """Whole, or chunk by chunk, each an event of its own."""
    ids = encoded("One two three.")

    async def use(gateway: OpenAi, adapter: Adapter) -> Any:
        chunks = None if size is None else [ids[at : at + size] for at in range(0, len(ids), size)]
        return await adapter.parse(HI, Output(ids, chunks, END))

    answer, _ = through(use)
    assert (answer.content, answer.finish_reason, answer.prompt_ids) == ("One two three.", "stop", [1, 2])
    assert answer.in_pieces is (None if size is None else True)


def test_a_finish_reason_is_passed_on() -> None:
    """The engine's word, which is not always `stop`."""

    async def use(gateway: OpenAi, adapter: Adapter) -> Any:
        return await adapter.parse(HI, Output(encoded("One"), None, None, "length"))

    assert through(use)[0].finish_reason == "length"


def test_a_gateway_whose_upstream_is_chat_shows_no_prompts() -> None:
    """Messages reach the engine, and no ids: nothing of the prompt is observed, and that is said."""

    async def use(gateway: OpenAi, adapter: Adapter) -> tuple:
        answer = await adapter.parse(HI, Output(encoded("One"), None, END))
        return gateway.kinds, adapter.kinds, gateway.facts["prompts"], answer, await failure(adapter.render(HI))

    (*kinds, answer, failed), _ = through(use, renders=False)
    assert kinds == [{"parse"}, {"parse"}, "not observable"]
    assert (answer.content, answer.prompt_ids) == ("One", None)
    assert (type(failed), failed.code) == (Failed, "no-ids")


def test_no_route_of_openai_s_shows_ids_or_texts() -> None:
    async def use(gateway: OpenAi, adapter: Adapter) -> list:
        return [await failure(adapter.tokenize("a")), await failure(adapter.detokenize([1])), adapter.kinds]

    (tokens, text, kinds), _ = through(use)
    assert (tokens.code, text.code, kinds) == ("not-observable", "not-observable", {"render", "parse"})


def test_a_refusal_is_evidence_and_leaves_nothing_behind() -> None:
    """A refused request has no capture, and its script is gone: the next one is answered by its own."""

    async def use(gateway: OpenAi, adapter: Adapter) -> tuple:
        refused = await failure(adapter.parse('{"messages":[]}', Output(encoded("One"), None, END)))
        return refused, await adapter.parse(HI, Output(encoded("Two"), None, END))

    for forwards in ("header", "nothing"):
        (refused, answer), _ = through(use, forwards=forwards)
        assert (type(refused), refused.code, refused.status) == (Refused, "empty", 400)
        assert answer.content == "Two"


def test_a_gateway_may_list_a_model_before_it_serves_it() -> None:
    """A 503 is waited for; the last one is told when it does not end."""

    async def use(gateway: OpenAi, adapter: Adapter) -> str:
        return adapter.join

    assert through(use, not_ready=2)[0] == "header"
    with pytest.raises(Failed) as caught:
        through(nothing, not_ready=10_000, patience=0.3)
    assert caught.value.code == "http-503"


# ── what cannot be observed ──────────────────────────────────────────────────────────────────────────────────────────


def test_without_an_engine_behind_it_nothing_is_observed() -> None:
    """An address alone shows the shape of an API; a gateway is not passed for that."""

    async def run() -> Failed:
        async with listening(Small("http://unused").routes()) as url, OpenAi(url, None) as gateway:
            assert gateway.kinds == frozenset()
            return await failure(gateway.open(served()).__aenter__())

    failed = asyncio.run(run())
    assert (failed.code, "no scripted engine is behind the gateway" in failed.message) == ("not-observable", True)


def test_a_gateway_with_another_upstream_is_not_observed() -> None:
    """It answers chats, and our engine sees none of them."""

    async def run() -> Failed:
        [port] = free_ports(1)
        cached = Cached("http://unused", times=0)
        async with listening(cached.routes()) as url, OpenAi(url, EngineAt(port), patience=1) as gateway:
            return await failure(gateway.open(served()).__aenter__())

    failed = asyncio.run(run())
    assert (failed.code, "its upstream is another" in failed.message) == ("not-observable", True)


@pytest.mark.parametrize("engine", [None, "http"])
def test_a_dead_port_is_unreachable(engine: str | None) -> None:
    """At once, with an engine or without: what is not there is not waited for."""

    async def run() -> Failed:
        dead, port = free_ports(2)
        at = engine and EngineAt(port, engine)
        async with OpenAi(f"http://127.0.0.1:{dead}", at, patience=600) as gateway:
            return await failure(gateway.open(served()).__aenter__())

    assert asyncio.run(run()).code == "unreachable"


def test_a_gateway_that_does_not_come_to_list_the_model_is_told_so() -> None:
    """After some patience: it may not have found the engine yet."""

    async def run() -> Failed:
        [port] = free_ports(1)
        routes = Small(f"http://127.0.0.1:{port}").routes(["other"])
        async with listening(routes) as url, OpenAi(url, EngineAt(port, "http"), patience=0.3) as gateway:
            return await failure(gateway.open(served()).__aenter__())

    failed = asyncio.run(run())
    assert (failed.code, failed.message) == ("not-loaded", f"the server serves other, not {MODEL}")


@pytest.mark.parametrize(("status", "code"), [(302, "redirect"), (401, "http-401"), (200, "malformed-answer")])
def test_a_chat_that_is_no_answer_opens_nothing(status: int, code: str) -> None:
    async def run() -> Failed:
        [port] = free_ports(1)
        routes = Small("http://unused").routes() | {"POST /v1/chat/completions": says({"detail": "no"}, status)}
        async with listening(routes) as url, OpenAi(url, EngineAt(port, "http"), patience=1) as gateway:
            return await failure(gateway.open(served()).__aenter__())

    assert asyncio.run(run()).code == code


def test_a_port_in_use_is_no_failure_of_the_gateway() -> None:
    """The engine's port is the person's choice, so the command ends."""

    async def run() -> None:
        async with listening({}) as taken, listening(Small("http://unused").routes()) as url:
            port = int(taken.rpartition(":")[2])
            async with opened(url, EngineAt(port, "http")):
                raise AssertionError("it was opened")

    with pytest.raises(EngineError):
        asyncio.run(run())


# ── an engine elsewhere ──────────────────────────────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def engine_elsewhere(folder: Path, wire: str, own: str = "") -> AsyncIterator[tuple[str, EngineFiles]]:
    """Run `bellwether engine`, a process of its own; give its address and its files."""
    files = EngineFiles(folder / "script.jsonl", folder / "capture.jsonl")
    files.script.write_text(own)
    files.capture.touch()
    [port] = free_ports(1)
    command = [sys.executable, "-m", "bellwether", "engine", "--model", MODEL, "--folder", snapshot(SLUG)]
    command += ["--wire", wire, "--port", str(port), "--script", files.script, "--capture", files.capture]
    process = await asyncio.create_subprocess_exec(*map(str, command), stdout=asyncio.subprocess.PIPE)
    try:
        await process.stdout.readline()  # its address, printed when it answers
        yield f"127.0.0.1:{port}", files
    finally:
        process.terminate()
        await process.communicate()


@pytest.mark.parametrize("forwards", ["header", "nothing"])
def test_an_engine_elsewhere_is_known_by_its_files(tmp_path: Path, forwards: str) -> None:
    """Scripts come and go while requests are under way, also one for all in the place of another. What stood there
    stands there in the end; what was captured before is not ours."""
    own = "".join(json.dumps({"key": key, "chunks": [[1]]}) + "\n" for key in ("somebody", "*"))

    async def run() -> tuple:
        async with engine_elsewhere(tmp_path, "http", own) as (address, files):
            files.capture.write_text('{"request_id": "old", "input_ids": [9]}\n')
            small = Small(f"http://{address}", forwards=forwards)
            async with listening(small.routes()) as url, opened(url, files) as (gateway, adapter):
                texts = [f"Number {number}" for number in range(5)]
                limit = asyncio.Semaphore(gateway.concurrency)

                async def one(text: str) -> Any:
                    async with limit:
                        return await adapter.parse(HI, Output(encoded(text), [encoded(text)], END))

                answers = await asyncio.gather(*map(one, texts))
                prompt = await adapter.render(HI)
                kinds = adapter.kinds
            return [answer.content for answer in answers] == texts, prompt.ids, kinds, gateway.captures, files

    right, prompt, kinds, captures, files = asyncio.run(run())
    assert (right, prompt, kinds) == (True, [1, 2], {"render", "parse"})
    lost = 0 if forwards == "header" else 2
    assert captures == {"read": 7 + lost, "joined": 7, "other": lost}
    assert files.script.read_text() == own


@pytest.mark.parametrize(
    ("line", "right"),
    [
        ('{"request_id": "a", "input_ids": [1]}', True),
        ('{"request_id": "a", "input_ids": null, "model": "m"}', True),
        ('{"request_id": "a"}', False),
        ('{"request_id": 1, "input_ids": [1]}', False),
        ('{"request_id": "a", "input_ids": [1.5]}', False),
        ("[]", False),
        ("nothing", False),
    ],
)
def test_a_line_that_is_no_capture_ends_the_run(tmp_path: Path, line: str, right: bool) -> None:
    """A capture that cannot be read could be the one of a request that would then pass for missing."""
    files = EngineFiles(tmp_path / "script", tmp_path / "capture")
    files.script.touch()
    files.capture.touch()

    async def run() -> int:
        async with files.serve(served()) as engine:
            with files.capture.open("a") as capture:
                capture.write(line + '\n{"request_id": "b", "inp')  # the second is not whole yet
            taken = await engine.take("a", wait=False)
            return len(taken), engine.log.read

    if right:
        assert asyncio.run(run()) == (1, 1)
    else:
        with pytest.raises(EngineError, match="is no capture"):
            asyncio.run(run())


def test_captures_that_were_cut_off_end_the_run(tmp_path: Path) -> None:
    """Lines are lost then, and requests would pass for missing."""
    files = EngineFiles(tmp_path / "script", tmp_path / "capture")
    files.script.touch()
    files.capture.write_text('{"request_id": "a", "input_ids": [1]}\n')

    async def run() -> None:
        async with files.serve(served()) as engine:
            files.capture.write_text("")
            await engine.take("a", wait=False)

    with pytest.raises(EngineError, match="shorter"):
        asyncio.run(run())


def test_files_that_are_not_there_are_no_engine(tmp_path: Path) -> None:
    async def run() -> None:
        async with EngineFiles(tmp_path / "script", tmp_path / "capture").serve(served()):
            raise AssertionError("it was opened")

    with pytest.raises(EngineError, match="No such file"):
        asyncio.run(run())


@pytest.mark.parametrize(
    ("request_id", "mine"), [("b1", True), ("b1-0192", True), ("b10", False), ("b", False), ("ab1", False)]
)
def test_an_id_is_joined_without_what_the_gateway_appended(request_id: str, mine: bool) -> None:
    """The id that was sent, or it and a dash and more; a mere beginning is another request's."""
    assert behind.Seen(request_id, [1], None).of("b1") is mine


# ── the real one ─────────────────────────────────────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def smg() -> AsyncIterator[str]:
    """SMG 1.13.0 as somebody starts it, without a worker yet; it dies with its port given to nobody."""
    built = environment("smg-1.13.0")
    [metrics] = free_ports(1)
    command = [built.python, "-m", "smg", "launch", "--enable-igw", "--host", "127.0.0.1", "--port", "PORT"]
    command += ["--prometheus-host", "127.0.0.1", "--prometheus-port", str(metrics), "--log-level", "error"]
    async with program(command, ready="/liveness") as url:
        yield url


async def register(url: str, engine: str) -> None:
    """Make an engine a worker of SMG."""
    async with chat.session() as client:
        reply = await chat.post(client, url + "/workers", json.dumps({"url": f"grpc://{engine}"}).encode())
    assert reply.status == 202, reply.body


@pytest.mark.parametrize("wire", ["vllm", "sglang", "tokenspeed"])
def test_smg_is_any_gateway_in_front_of_an_engine_of_ours(wire: str) -> None:
    """On each of its wires: it forwards X-Request-Id with an id of its own appended, and renders by itself."""
    text = "One two 🪿"
    ids = encoded(text)

    async def run() -> tuple:
        [port] = free_ports(1)
        async with smg() as url, OpenAi(url, EngineAt(port, wire)) as gateway:
            opening = asyncio.create_task(enter(gateway))
            await asyncio.sleep(0.2)  # the engine listens by now; if not, SMG asks it again
            await register(url, f"127.0.0.1:{port}")
            context, adapter = await opening
            whole = await adapter.parse(HI, Output(ids, None, END))
            streamed = await adapter.parse(HI, Output(ids, [[token] for token in ids], END))
            prompt, refused = await adapter.render(HI), await failure(adapter.render('{"messages":[]}'))
            await context.__aexit__(None, None, None)
            return adapter.join, prompt.ids, whole, streamed, refused, gateway.captures["other"]

    join, prompt, whole, streamed, refused, other = asyncio.run(run())
    reference = load_checkpoint(SLUG).tokenizer.apply_chat_template(
        json.loads(HI)["messages"], add_generation_prompt=True, tokenize=False
    )
    assert (join, prompt, other) == ("header", encoded(reference), 0)
    assert (whole.content, whole.finish_reason, whole.parser) == (text, "stop", "legacy")
    assert (streamed.content, streamed.framing, streamed.in_pieces) == (text, None, True)
    assert whole.prompt_ids == streamed.prompt_ids == prompt
    assert (type(refused), refused.status) == (Refused, 400)


async def enter(gateway: OpenAi) -> tuple[Any, Adapter]:
    context = gateway.open(served())
    return context, await context.__aenter__()


def test_smg_in_front_of_an_engine_elsewhere(tmp_path: Path) -> None:
    """`bellwether engine` behind it, known by its files."""
    ids = encoded("One two")

    async def run() -> tuple:
        async with engine_elsewhere(tmp_path, "vllm") as (address, files), smg() as url:
            await register(url, address)
            async with opened(url, files, 60) as (_, adapter):
                answer = await adapter.parse(HI, Output(ids, [ids[:1], ids[1:]], END))
                return adapter.join, answer, await adapter.render(HI)

    join, answer, prompt = asyncio.run(run())
    assert (join, answer.content, answer.prompt_ids) == ("header", "One two", prompt.ids)
