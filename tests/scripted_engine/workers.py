"""Clients of the scripted engine, made of the generated stubs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import grpc

from bellwether.gateways.answer import Served
from bellwether.scripted_engine import ScriptedEngine

STUBS = {
    "vllm": ("vllm_engine", "VllmEngineStub"),
    "sglang": ("sglang_scheduler", "SglangSchedulerStub"),
    "tokenspeed": ("tokenspeed_scheduler", "TokenSpeedSchedulerStub"),
}


@dataclass
class Worker:
    """A client of one address."""

    wire: str
    stub: Any
    messages: Any

    async def generate(self, request_id: str, ids: list[int], stream: bool = True, **more: Any) -> list[Any]:
        """Return the answers, as messages."""
        request = self.messages.GenerateRequest(
            request_id=request_id, tokenized={"input_ids": ids}, stream=stream, **more
        )
        return [answer async for answer in self.stub.Generate(request)]


def served(folder: Path, **more: Any) -> Served:
    return Served(**{"slug": "some", "model": "some/model", "folder": folder, "eos_ids": (2,)} | more)


@asynccontextmanager
async def connected(url: str, wire: str) -> AsyncIterator[Worker]:
    """Give a client of the engine at `url`."""
    module, stub = STUBS[wire]
    assert url.startswith("grpc://127.0.0.1:")
    async with grpc.aio.insecure_channel(url.removeprefix("grpc://")) as channel:
        stubs = import_module(f"smg_grpc_proto.generated.{module}_pb2_grpc")
        yield Worker(wire, getattr(stubs, stub)(channel), import_module(f"smg_grpc_proto.generated.{module}_pb2"))


def talk(wire: str, served: Served, use: Callable[[ScriptedEngine, Worker], Awaitable[Any]], **settings: Any) -> Any:
    """Return what `use` makes of an engine and a client of it."""

    async def run() -> Any:
        async with ScriptedEngine(**settings) as engine, connected(await engine.serve(served, wire), wire) as worker:
            return await use(engine, worker)

    return asyncio.run(run())
