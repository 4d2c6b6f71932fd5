"""The SMG gateway: one process in front of the scripted engine, one worker of it per checkpoint.

Parsers. SMG chooses them by the name of the model, so a checkpoint is served under its name on the Hub. A manifest's
`[engines.smg]` names a legacy parser where that choice is another than the checkpoint's own format, or none. With
Symphony a worker is given no names: a legacy name would keep the legacy parsers, while without one Symphony's registry
decides. A model it does not know is read by the legacy parsers without a word, so each answer is asked who read it.

What a run could depend on is set: requests are not repeated, a failed one closes no circuit, chats are not stored, and
workers are chosen without an index of prompts that grows. A model folder gets a config.json where it has none: without
it some requests of a fast sequence stall for five seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import json
import re
import secrets
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Self, TypeVar

import orjson

from bellwether.environments import environment
from bellwether.errors import GatewayError
from bellwether.gateways import chat
from bellwether.gateways.answer import Answer, Failed, Missing, Output, Prompt, Refused, Served
from bellwether.gateways.clock import clock as clock_variables
from bellwether.gateways.clock import on_the_day
from bellwether.gateways.process import Process, free_ports, until_ready
from bellwether.gateways.spoken import spoken
from bellwether.progress import say as say_on_stderr
from bellwether.scripted_engine import ScriptedEngine

T = TypeVar("T")

PARSERS = ("legacy", "symphony")
START_SECONDS = 30.0
REACH_SECONDS = 5.0
LOAD_SECONDS = 90.0
"""Loading takes half a second to three; many at once on a busy machine, forty."""
STARTS = 3
"""Times a start is tried when another program takes a port that was free."""
PAUSE = 0.02
ENDING = 0.1
"""Seconds until a process that ended is known to have."""
FLAGS = (
    "--disable-retries",
    "--disable-circuit-breaker",
    *("--policy", "round_robin"),
    *("--history-backend", "none"),
    *("--log-level", "error"),
)
BANNER = re.compile(r"\bversion\s+(\S+)")
ENCODINGS = "vendor/o200k_base.tiktoken"
"""Where a snapshot holds the vocabulary that the gateway's Harmony encoder looks for elsewhere."""
LOST = ("unreachable", "closed-early", "no-answer")
NOT_THERE = ("tokenizer_not_found", "model_not_found")


class Smg:
    """The gateway, while its context is open.

    Args:
        version: The release, as in `stages/environments/smg-<version>`; None takes what runs at `url`.
        url: A running gateway to attach to, on this machine; None starts one.
        headers: What a running one wants to see in each request.
        parser: Which parsers read answers: legacy, or symphony.
        wire: How the engine is spoken to: vllm, sglang, tokenspeed.
        clock: What a started one takes for the present, UTC; None leaves it the system's. Harmony prompts show it.
    """

    plans: frozenset[str] | None = None
    concurrency = 8
    checkpoints = 1
    seconds = chat.ANSWER_SECONDS
    """How long an answer may take."""

    def __init__(
        self,
        version: str | None,
        *,
        url: str | None = None,
        headers: Mapping[str, str] | None = None,
        parser: str = "legacy",
        wire: str = "vllm",
        clock: datetime | None = None,
        say: Callable[[str], None] = say_on_stderr,
    ) -> None:
        if parser not in PARSERS:
            raise ValueError(f"no parser {parser!r}; there are {', '.join(PARSERS)}")
        if version is None and url is None:
            raise ValueError("a gateway is started at a release, or reached at a URL")
        self.parser = parser
        self.version = version or ""
        self.clock = clock if url is None else None
        self.facts: dict[str, Any] = {
            "wire": wire,
            "parser": parser,
            "clock": self.clock and self.clock.isoformat(),
        }
        self._expected = version
        self._url = url.rstrip("/") if url else None
        self._headers = dict(headers or {})
        self._wire = wire
        self._say = say
        self._process: Process | None = None
        self._keys = itertools.count(1)

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            self._client = await stack.enter_async_context(chat.session())
            self._engine = await stack.enter_async_context(ScriptedEngine())
            self._encodings = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bellwether-smg-")))
            if self._url is None:
                await self._start(stack)
            else:
                await self._attach()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    @property
    def url(self) -> str:
        """Where it listens."""
        return self._url

    @property
    def engine(self) -> ScriptedEngine:
        """The engine its workers are."""
        return self._engine

    @property
    def pid(self) -> int | None:
        """Of the process; None when it is not ours."""
        return self._process and self._process.pid

    # ── start or attach ──────────────────────────────────────────────────────────────────────────────────────────────

    async def _start(self, stack: contextlib.AsyncExitStack) -> None:
        """Start it on free ports.

        Raises:
            GatewayError: it does not start, or is another release.
            MaterialError, VersionMismatch: its environment cannot be built.
        """
        built = await asyncio.to_thread(environment, f"smg-{self._expected}", self._say)
        variables = {"TIKTOKEN_ENCODINGS_BASE": str(self._encodings)}
        if self.clock is not None:
            variables |= await asyncio.to_thread(clock_variables, self.clock, self._say)
        self.facts["called"] = ["smg", "launch", "--enable-igw", *FLAGS]
        for attempt in itertools.count(1):
            port, metrics = free_ports(2)
            token = f"http://{secrets.token_hex(16)}.invalid"
            process = Process(
                [
                    *(built.python, "-m", "smg", "launch", "--enable-igw", *FLAGS),
                    *("--host", "127.0.0.1", "--port", str(port)),
                    *("--prometheus-host", "127.0.0.1", "--prometheus-port", str(metrics)),
                    *("--cors-allowed-origins", token),
                ],
                variables,
            )
            attempted = contextlib.AsyncExitStack()
            await attempted.enter_async_context(process)
            self._url = f"http://127.0.0.1:{port}"
            try:
                await until_ready(
                    process, lambda process=process, token=token: self._ready(process, token), START_SECONDS
                )
            except BaseException as error:
                await attempted.aclose()
                if isinstance(error, GatewayError) and attempt < STARTS and "ddress already in use" in process.said():
                    continue
                if isinstance(error, GatewayError):
                    raise GatewayError(
                        f"the gateway smg {self._expected} cannot be started: {error}",
                        next_step=f"Run `{built.python} -m smg launch` by hand to see all it says.",
                    ) from None
                raise
            self._process = process
            stack.push_async_exit(attempted.pop_all())
            break
        self._require(BANNER.search(process.said())[1])
        if self.clock is not None and not on_the_day(self.clock, (await self._get("/liveness")).headers):
            raise GatewayError(
                "the gateway's clock could not be set", next_step="See whether it says anything of LD_PRELOAD."
            )

    async def _ready(self, process: Process, token: str) -> bool:
        """Return whether it is this process that answers, and not another program that took the port: only this one
        knows that pages of `token` may ask it."""
        with contextlib.suppress(Failed):
            reply = await self._get("/liveness", {"origin": token})
            allowed = reply.headers.get("access-control-allow-origin")
            return reply.status == 200 and allowed == token and BANNER.search(process.said()) is not None
        return False

    async def _attach(self) -> None:
        """Ask a running one for its release.

        Raises:
            GatewayError: nothing answers there, or another release does.
        """
        try:
            alive = await self._get("/liveness")
            loads = await self._get("/get_loads")
        except Failed as failed:
            raise GatewayError(
                f"no gateway answers at {self._url}: {failed.code}, {failed.message}",
                next_step="Start it, or give the URL it listens at.",
            ) from None
        if alive.status != 200:
            raise GatewayError(f"{self._url}/liveness answers {alive.status}", next_step="Give the URL of a gateway.")
        with contextlib.suppress(Failed, Refused, TypeError, AttributeError):
            self._require(str(chat.json_of(loads).get("version") or "").removeprefix("smg-"))
            return
        self._require("")

    def _require(self, version: str) -> None:
        if self._expected is not None and version != self._expected:
            raise GatewayError(
                f"the gateway at {self._url} "
                + (f"is smg {version}" if version else "does not say which release it is")
                + f", expected {self._expected}",
                next_step="Ask the release that runs, or none in particular.",
            )
        self.version = version or "unknown"

    # ── a checkpoint ─────────────────────────────────────────────────────────────────────────────────────────────────

    @contextlib.asynccontextmanager
    async def open(self, served: Served) -> AsyncIterator[SmgAdapter]:
        """Serve a checkpoint: its tokenizer, then a worker of its own; both are gone afterwards.

        Raises:
            Failed: `not-loaded`, the gateway cannot load it, or Symphony does not know it; `model-taken`, the gateway
                serves that name already; whatever else goes wrong on the way.
            GatewayError: the gateway ended.
        """
        async with contextlib.AsyncExitStack() as stack:
            own, folder = served.folder, stack.enter_context(with_config(served.folder))
            served = dataclasses.replace(served, folder=folder)
            try:
                await self._require_free(served.model)
                await self._load_tokenizer(served, stack)
                await self._register(served, stack)
            except (LookupError, TypeError, AttributeError) as error:
                raise Failed("malformed-answer", f"no answer of a control plane: {error!r}", 200) from None
            except Failed as failed:  # a folder made for this run has a name of this run
                said = failed.message.replace(str(folder), str(own))
                raise Failed(failed.code, said, failed.status) from None
            adapter = SmgAdapter(self, served)
            await adapter.find_reader()
            yield adapter

    async def _require_free(self, model: str) -> None:
        workers = (await self._control("GET", "/workers"))["workers"]
        busy = [worker["url"] for worker in workers if _serves(worker, model) and worker.get("status") != "draining"]
        names = [known["name"] for known in (await self._control("GET", "/v1/tokenizers"))["tokenizers"]]
        if busy or model in names:
            raise Failed(
                "model-taken",
                f"the gateway serves {model} already"
                + (f" with {', '.join(busy)}" if busy else "; only its tokenizer"),
            )

    async def _load_tokenizer(self, served: Served, stack: contextlib.AsyncExitStack) -> None:
        self._lend_encodings(served.folder)
        job = await self._control("POST", "/v1/tokenizers", {"name": served.model, "source": str(served.folder)})
        path = f"/v1/tokenizers/{job['id']}"
        stack.push_async_callback(self._remove, path)

        async def loaded() -> bool:
            state = await self._control("GET", f"{path}/status")
            if state["status"] == "failed":
                raise Failed("not-loaded", str(state.get("message"))[: chat.MESSAGE_LENGTH])
            return state["status"] == "completed"

        await self._until(loaded, "not-loaded", f"no tokenizer within {LOAD_SECONDS:g} s")

    async def _register(self, served: Served, stack: contextlib.AsyncExitStack) -> None:
        worker_url = await self._engine.serve(served, self._wire)
        stack.push_async_callback(self._engine.stop, worker_url)
        names = {"tool_parser": served.tool_parser, "reasoning_parser": served.reasoning_parser}
        labels = {key: name for key, name in names.items() if name and self.parser == "legacy"}
        worker = await self._control("POST", "/workers", {"url": worker_url, "labels": labels})
        path = f"/workers/{worker['worker_id']}"
        stack.push_async_callback(self._remove, path)

        async def ready() -> bool:
            try:
                state = await self._control("GET", path)
            except Failed as failed:
                if failed.code != "http-404":
                    raise
                named = ", ".join(f"{key} {name}" for key, name in labels.items())
                raise Failed(
                    "not-registered", "the gateway gave the worker up" + (f": {named}?" * bool(named))
                ) from None
            job = state.get("job_status") or {}
            if job.get("status") == "failed":
                raise Failed("not-registered", str(job.get("message"))[: chat.MESSAGE_LENGTH])
            if not state.get("is_healthy"):
                return False
            if state.get("model_id") != served.model or not labels.items() <= state.get("labels", {}).items():
                raise Failed("not-registered", f"the gateway took the worker for {state.get('model_id')!r}")
            return True

        await self._until(ready, "not-registered", f"no healthy worker within {LOAD_SECONDS:g} s")

    def _lend_encodings(self, folder: Path) -> None:
        """Show a gateway of ours the vocabulary of a snapshot's encoder. It looks when it loads the tokenizer."""
        found, shown = folder / ENCODINGS, self._encodings / Path(ENCODINGS).name
        if found.is_file() and not shown.exists():
            shown.symlink_to(found.resolve())

    async def _until(self, done: Callable[[], Awaitable[bool]], code: str, message: str) -> None:
        deadline = time.monotonic() + LOAD_SECONDS
        while not await done():
            if time.monotonic() >= deadline:
                raise Failed(code, message)
            await asyncio.sleep(PAUSE)

    async def _remove(self, path: str) -> None:
        """Take back what was registered. A gateway that is gone has forgotten it."""
        with contextlib.suppress(Failed, Refused, GatewayError):
            await self._control("DELETE", path)

    # ── requests ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _get(self, path: str, headers: Mapping[str, str] | None = None) -> chat.Reply:
        headers = {**self._headers, **(headers or {})}
        return await chat.post(self._client, self._url + path, b"", headers, method="GET", seconds=REACH_SECONDS)

    async def _control(self, method: str, path: str, body: Any = None) -> Any:
        """Return the JSON value that a route of the control plane answers with a 2xx.

        Raises:
            Failed, GatewayError.
        """
        data = b"" if body is None else json.dumps(body).encode()
        asked = chat.post(self._client, self._url + path, data, self._headers, method=method, seconds=START_SECONDS)
        reply = await self._watched(asked)
        if reply.status not in (200, 202):
            said = reply.body[: chat.MESSAGE_LENGTH].decode("utf-8", "replace")
            raise Failed(f"http-{reply.status}", f"{method} {path}: {said}", reply.status)
        return chat.json_of(dataclasses.replace(reply, status=200))

    async def ask(self, route: str, body: bytes) -> chat.Reply:
        """Return what a route answers. Raises Failed, GatewayError."""
        return await self._watched(
            chat.post(self._client, self._url + route, body, self._headers, seconds=self.seconds)
        )

    async def converse(self, body: bytes, headers: Mapping[str, str], *, streamed: bool) -> Answer:
        """Return the answer to a chat. Raises Refused, Failed, GatewayError."""
        send = chat.stream if streamed else chat.complete
        return await self._watched(
            send(self._client, self._url, body, {**self._headers, **headers}, seconds=self.seconds)
        )

    async def _watched(self, asked: Awaitable[T]) -> T:
        """Return what comes of a request.

        Raises:
            GatewayError: nothing does, because the gateway's process ended.
        """
        try:
            return await asked
        except Failed as failed:
            if failed.code in LOST and self._process is not None:
                await asyncio.sleep(ENDING)
                if self._process.ended:
                    raise GatewayError(
                        f"the gateway smg {self.version} ended {self._process.ending()}",
                        next_step="Run again; what was observed before is kept.",
                    ) from None
            raise

    def key(self) -> str:
        """Return an id for a request that none before it had, all of one length: refusals tell columns of the body."""
        return f"b{next(self._keys):09}"


class SmgAdapter:
    """One checkpoint behind the gateway."""

    def __init__(self, gateway: Smg, served: Served) -> None:
        self.version = gateway.version
        self.kinds = frozenset(
            {"parse"} if gateway.parser == "symphony" else {"render", "parse", "tokenize", "detokenize"}
        )
        self._gateway = gateway
        self._served = served
        self._headers: dict[str, str] = {}
        self._reader: str | None = None

    async def find_reader(self) -> None:
        """Find out whether there is a choice of parsers for this model, and whether it takes ours.

        Where there is, a wrong name is refused and each answer says who read it. Old releases, and the Harmony path of
        all, have parsers of their own only and say nothing.

        Raises:
            Failed: `not-loaded`, it refuses a plain chat, or Symphony does not read this model.
        """
        wanted, probe = self._gateway.parser, json.dumps({"messages": [{"role": "user", "content": "Hi"}]})
        try:
            await self._chat(probe, [list(self._served.eos_ids[:1])], {chat.PARSER: "?"})
        except Refused as refused:
            if refused.code != "invalid_parser_header":
                raise Failed("not-loaded", f"a plain chat is refused: {refused.message}", refused.status) from None
            self._headers, self._reader = {chat.PARSER: wanted}, wanted
        if wanted == "legacy":
            return
        if self._reader is None:
            raise Failed("not-loaded", f"smg {self.version} reads this model by parsers of one kind only")
        try:
            await self.render(probe)
        except Failed as failed:
            if failed.code == "wrong-parser":
                raise Failed("not-loaded", f"Symphony of smg {self.version} does not know this model") from None
            raise

    async def render(self, request: str) -> Prompt:
        """As `Adapter.render`: the ids the engine was sent."""
        body = json.loads(request)
        limits = {} if body.keys() & {"max_tokens", "max_completion_tokens"} else {"max_tokens": 1}
        answer = await self._chat(request, [list(self._served.eos_ids[:1])], self._headers, limits)
        return Prompt(answer.prompt_ids)

    async def parse(self, request: str, output: Output) -> Answer:
        """As `Adapter.parse`."""
        return await self._chat(
            request,
            spoken(output),
            self._headers,
            streamed=output.chunks is not None,
            finish_reason=output.finish_reason,
            matched=output.stop_id,
        )

    async def tokenize(self, text: str) -> list[int]:
        """As `Adapter.tokenize`."""
        value = await self._ask("/v1/tokenize", {"prompt": text})
        ids = value.get("tokens") if isinstance(value, dict) else None
        if not isinstance(ids, list) or not all(type(token) is int for token in ids):
            raise Failed("malformed-answer", "a 200 without tokens", 200)
        return ids

    async def detokenize(self, ids: list[int]) -> str:
        """As `Adapter.detokenize`."""
        value = await self._ask("/v1/detokenize", {"tokens": ids, "skip_special_tokens": False})
        text = value.get("text") if isinstance(value, dict) else None
        if not isinstance(text, str):
            raise Failed("malformed-answer", "a 200 without text", 200)
        return text

    async def _ask(self, route: str, body: Mapping[str, Any]) -> Any:
        reply = await self._gateway.ask(route, orjson.dumps({"model": self._served.model, **body}))
        try:
            return chat.json_of(reply)
        except Refused as refused:
            if refused.code in NOT_THERE:  # which is no word about the text
                raise Failed(refused.code, refused.message, refused.status) from None
            raise

    async def _chat(
        self,
        request: str,
        chunks: list[list[int]],
        headers: Mapping[str, str],
        extra: Mapping[str, Any] | None = None,
        *,
        streamed: bool = False,
        finish_reason: str = "stop",
        matched: int | None = None,
    ) -> Answer:
        """Return the answer to a chat whose engine says `chunks`, and the prompt the engine was sent.

        Raises:
            Refused, Missing.
            Failed: see `gateways.chat`; `captures-differ`, `other-model` and `wrong-parser`.
            GatewayError: the gateway ended.
        """
        gateway, key = self._gateway, self._gateway.key()
        options = {"stream": True, "stream_options": {"include_usage": True}} if streamed else {"stream": False}
        body = chat.body_of(request, {"model": self._served.model, "rid": key, **options, **(extra or {})})
        gateway.engine.expect(key, chunks, finish_reason, matched)
        try:
            answer = await gateway.converse(body, headers, streamed=streamed)
        finally:
            captures = gateway.engine.take_prompts(key)
        if not captures:
            raise Missing
        models, prompts = zip(*captures, strict=True)
        if any(model != self._served.model for model in models):
            raise Failed("other-model", f"the engine of {models[0]} was asked")
        if any(prompt != prompts[0] for prompt in prompts):
            raise Failed("captures-differ", f"{len(captures)} requests reached the engine, and not with equal ids")
        if answer.parser != self._reader:
            raise Failed("wrong-parser", f"read by {answer.parser or 'nobody it names'}, not by {self._reader}")
        answer.prompt_ids = prompts[0]
        return answer


@contextlib.contextmanager
def with_config(folder: Path) -> Iterator[Path]:
    """Give a folder whose config.json names a model type: this one, or a temporary one that shows the same files."""
    if _config(folder).get("model_type"):
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="bellwether-model-") as name:
        shown = Path(name)
        for path in folder.iterdir():
            if path.name != "config.json":
                (shown / path.name).symlink_to(path.resolve())
        (shown / "config.json").write_text(json.dumps({**_config(folder), "model_type": "unknown"}))
        yield shown


def _config(folder: Path) -> dict[str, Any]:
    try:
        value = json.loads((folder / "config.json").read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _serves(worker: Mapping[str, Any], model: str) -> bool:
    return model in (worker.get("model_id"), *(one.get("id") for one in worker.get("models") or ()))
