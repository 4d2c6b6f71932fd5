"""Routes of a running server that somebody else started: whether it has them, what it serves, and what it answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import aiohttp
import orjson

from bellwether.gateways.answer import Failed, Refused
from bellwether.gateways.chat import MESSAGE_LENGTH, Reply, json_of, post, session

ABSENT = (404, 405, 501)
"""Statuses by which a server says that it has no such route."""
PRESENT = (200, 400, 422)
PROBE_SECONDS = 10.0
UNSTATED = "unstated"
"""The version of a server that does not say it."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server by its address, as one client sees it."""

    client: aiohttp.ClientSession
    url: str
    """Without a slash at its end."""
    headers: Mapping[str, str]
    """Sent with every request: keys of access, names of tenants."""

    async def ask(self, path: str, body: bytes) -> Any:
        """Return the JSON value of a POST.

        Raises:
            Refused: a 400 or 422 with an error object.
            Failed: see `chat.post` and `chat.json_of`.
        """
        return value_of(await post(self.client, self.url + path, body, self.headers))

    async def get(self, path: str) -> Any | None:
        """Return the JSON value of a GET; None where there is no such route.

        Raises:
            Failed: anything else than a 200; `unreachable` where nothing listens.
        """
        reply = await post(self.client, self.url + path, b"", self.headers, method="GET", seconds=PROBE_SECONDS)
        if reply.status in ABSENT:
            return None
        try:
            return json_of(reply)
        except Refused as refused:
            raise Failed(refused.code, f"GET {path}: {refused.message}", refused.status) from None

    async def has(self, path: str) -> bool:
        """Return whether there is a route for POST, as an empty object tells: a route says what it misses in it.

        Raises:
            Failed: what comes says neither: no access, an error of the server.
        """
        reply = await post(self.client, self.url + path, b"{}", self.headers, seconds=PROBE_SECONDS)
        if reply.status in ABSENT:
            return False
        if reply.status in PRESENT:
            return True
        raise Failed(f"http-{reply.status}", f"POST {path} answers its probe with {reply.status}", reply.status)

    async def name_of(self, model: str) -> str:
        """Return the name by which a server knows a model: its own, or that of the entry whose `root` it is.

        Raises:
            Failed: `not-loaded` where the server serves other models; `no-models` where it does not list them.
        """
        listed = await self.models()
        for entry in listed:
            if entry["id"] == model:
                return model
        for entry in listed:
            if entry.get("root") == model:
                return entry["id"]
        names = ", ".join(entry["id"] for entry in listed) or "no model"
        raise Failed("not-loaded", f"the server serves {names}, not {model}")

    async def models(self) -> list[dict[str, Any]]:
        """Return what GET /v1/models lists, each with its `id`.

        Raises:
            Failed: `no-models` where it lists none; see `get`.
        """
        value = await self.get("/v1/models")
        match value:
            case {"data": [*entries]} if all(isinstance(entry, dict) and "id" in entry for entry in entries):
                return entries
        raise Failed("no-models", "GET /v1/models gives no list of models")


def value_of(reply: Reply) -> Any:
    """Return the JSON value of a 200.

    Raises:
        Refused: a 400 or 422 with an error object, nested under `error` as OpenAI's or at the top as SGLang's.
        Failed: as `chat.json_of`.
    """
    if reply.status == 400:
        try:
            match orjson.loads(reply.body):
                case {"object": "error", "type": str(kind), "message": str(message)}:
                    raise Refused(kind, message[:MESSAGE_LENGTH], 400)
        except ValueError:
            pass
    return json_of(reply)


def ids_of(value: Any, name: str) -> list[int]:
    """Return a list of ids out of an answer.

    Raises:
        Failed: `malformed-answer` where it holds none.
    """
    ids = value.get(name) if isinstance(value, dict) else None
    if not isinstance(ids, list) or any(type(one) is not int for one in ids):
        raise Failed("malformed-answer", f"a 200 without a list of ids under {name!r}", 200)
    return ids


def text_of(value: Any, name: str) -> str:
    """Return a text out of an answer.

    Raises:
        Failed: `malformed-answer` where it holds none.
    """
    text = value.get(name) if isinstance(value, dict) else None
    if not isinstance(text, str):
        raise Failed("malformed-answer", f"a 200 without a text under {name!r}", 200)
    return text


def server_url(url: str) -> str:
    """Return an address without the slash, and without the `/v1`, that people paste with it."""
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


class Running(ABC):
    """A server that somebody else started, asked by its own routes. Nothing is started, and nothing is left behind."""

    def __init__(self, url: str, headers: Mapping[str, str] | None) -> None:
        self.kinds: frozenset[str] = frozenset()
        self.plans: frozenset[str] | None = frozenset()
        self.concurrency = 8
        self.checkpoints = 1
        self.version = UNSTATED
        self.facts: dict[str, Any] = {"called": "a running server"}
        self._url = server_url(url)
        self._headers = dict(headers or {})
        self._failed: Failed | None = None

    async def __aenter__(self) -> Self:
        """Ask which routes there are. A server that does not say is told of when a checkpoint is opened."""
        self._client = session()
        self._server = Server(self._client, self._url, self._headers)
        try:
            await self._look()
        except Failed as failed:
            self._failed = failed
        except BaseException:
            await self._client.close()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._client.close()

    @abstractmethod
    async def _look(self) -> None:
        """Set what is known of the server before a checkpoint is opened. Raises Failed."""

    async def _name_of(self, model: str) -> str:
        """Return the name under which the server has a model.

        Raises:
            Failed: `unreachable`; `not-loaded` when it serves other models; `not-observable` when it has no route that
                shows anything; another when it does not let itself be asked.
        """
        if self._failed is not None:
            raise self._failed
        return await self._server.name_of(model)
