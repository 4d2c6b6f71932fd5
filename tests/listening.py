"""Servers for tests: an application of ours on a free port, and a program that serves one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from aiohttp import web

from bellwether.gateways import chat
from bellwether.gateways.answer import Failed
from bellwether.gateways.process import Process, free_ports, until_ready

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
START_SECONDS = 120.0


@contextlib.asynccontextmanager
async def listening(routes: Mapping[str, Handler], port: int = 0) -> AsyncIterator[str]:
    """Serve `METHOD /path` → handler; give the address."""
    app = web.Application(client_max_size=64 << 20)
    for route, handler in routes.items():
        method, path = route.split()
        app.router.add_route(method, path, handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def says(value: Any, status: int = 200) -> Handler:
    """Return a handler that answers JSON, whatever it is asked."""

    async def handler(request: web.Request) -> web.Response:
        return web.json_response(value, status=status)

    return handler


@contextlib.asynccontextmanager
async def program(
    command: Sequence[str | Path], environment: Mapping[str, str] | None = None, ready: str = "/v1/models"
) -> AsyncIterator[str]:
    """Run a program that listens at the port in the place of `PORT`, until it answers; give the address."""
    [port] = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    called = [str(port) if part == "PORT" else part for part in command]
    async with Process(called, environment) as process, chat.session() as client:

        async def answers() -> bool:
            with contextlib.suppress(Failed):
                return (await chat.post(client, url + ready, b"", method="GET", seconds=5)).status == 200
            await asyncio.sleep(0.2)
            return False

        await until_ready(process, answers, START_SECONDS)
        yield url
