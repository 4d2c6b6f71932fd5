"""A server with SMG's control plane as 1.13.0 answers it, and a chat that does what a test says.

Its chats go to the worker that was registered with it, so a prompt is captured where a real one's would be.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from listening import Handler, says
from scripted_engine.workers import connected

PROMPT = [1, 2, 3]
"""What it makes of every request."""
SAID = "Fine."
INVALID_PARSER = {
    "error": {"type": "invalid_request_error", "code": "invalid_parser_header", "message": "no", "param": None}
}
NOT_FOUND = {"error": "Worker not found", "code": "WORKER_NOT_FOUND"}
MESSAGE = {"role": "assistant", "content": SAID, "reasoning_content": None}
COMPLETION = {
    "choices": [{"index": 0, "message": MESSAGE, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 1},
}

Chat = Callable[["SmgServer", web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]


class SmgServer:
    """Its state, and what a test wants it to do: replace an attribute."""

    def __init__(self) -> None:
        self.chat: Chat = well
        self.tokenizer: dict[str, Any] = {"status": "completed"}
        self.worker: dict[str, Any] | None = {"is_healthy": True, "status": "ready"}
        self.loads: Any = {"version": "smg-1.13.0", "loads": []}
        self.liveness: Handler = says("OK")
        self.tokenize: Handler = says({"tokens": [1, 2], "count": 2})
        self.detokenize: Handler = says({"text": "ab"})
        self.workers: dict[str, dict[str, Any]] = {}
        self.tokenizers: dict[str, dict[str, Any]] = {}
        self.log: list[str] = []
        self.seen: list[dict[str, Any]] = []

    def routes(self) -> dict[str, Handler]:
        return {
            "GET /liveness": self._by("liveness"),
            "GET /get_loads": self._shows(lambda: self.loads),
            "GET /workers": self._shows(lambda: {"workers": list(self.workers.values())}),
            "POST /workers": self.add_worker,
            "GET /workers/{id}": self.show_worker,
            "DELETE /workers/{id}": self.remove,
            "GET /v1/tokenizers": self._shows(lambda: {"tokenizers": list(self.tokenizers.values())}),
            "POST /v1/tokenizers": self.add_tokenizer,
            "GET /v1/tokenizers/{id}/status": self._shows(lambda: self.tokenizer),
            "DELETE /v1/tokenizers/{id}": self.remove,
            "POST /v1/chat/completions": self.complete,
            "POST /v1/tokenize": self._by("tokenize"),
            "POST /v1/detokenize": self._by("detokenize"),
        }

    def _by(self, name: str) -> Handler:
        async def handler(request: web.Request) -> web.StreamResponse:
            return await getattr(self, name)(request)

        return handler

    def _shows(self, value: Callable[[], Any]) -> Handler:
        async def handler(request: web.Request) -> web.StreamResponse:
            return web.json_response(value())

        return handler

    async def add_tokenizer(self, request: web.Request) -> web.Response:
        body = await request.json()
        found = {"id": f"t{len(self.log)}", "name": body["name"]}
        self.tokenizers[found["id"]] = found
        self.log.append(f"tokenizer {body['name']}")
        return web.json_response({"id": found["id"], "status": "pending"}, status=202)

    async def add_worker(self, request: web.Request) -> web.Response:
        body = await request.json()
        name = f"w{len(self.log)}"
        models = [found["name"] for found in self.tokenizers.values()]
        self.workers[name] = {"id": name, "url": body["url"], "labels": body["labels"], "model_id": models[-1]}
        self.log.append(f"worker {body['labels']}")
        return web.json_response({"status": "accepted", "worker_id": name}, status=202)

    async def show_worker(self, request: web.Request) -> web.Response:
        if self.worker is None:
            return web.json_response(NOT_FOUND, status=404)
        return web.json_response(self.workers[request.match_info["id"]] | self.worker)

    async def remove(self, request: web.Request) -> web.Response:
        kind = request.path.split("/")[-2]
        (self.workers if kind == "workers" else self.tokenizers).pop(request.match_info["id"])
        self.log.append(f"no {kind}")
        return web.json_response({"status": "accepted"}, status=202)

    async def complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if request.headers.get("x-smg-parser") == "?":
            return web.json_response(INVALID_PARSER, status=400)
        self.seen.append(body)
        return await self.chat(self, request, body)

    async def ask(self, body: dict[str, Any], *prompts: list[int], model: str | None = None) -> None:
        """Send prompts to the engine of a model, as they would be for `body`."""
        model = model or body["model"]
        *_, url = (worker["url"] for worker in self.workers.values() if worker["model_id"] == model)
        async with connected(url, "vllm") as worker:
            for prompt in prompts:
                await worker.generate(body["rid"], prompt, stream=bool(body.get("stream")))


async def well(server: SmgServer, request: web.Request, body: dict[str, Any]) -> web.Response:
    """A chat as it ought to be."""
    await server.ask(body, PROMPT)
    return web.json_response(COMPLETION, headers={"x-smg-parser": request.headers.get("x-smg-parser", "legacy")})
