"""Command `engine`: the scripted engine alone, for a gateway that somebody else starts."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from bellwether.errors import EngineError
from bellwether.gateways.answer import Served
from bellwether.progress import say
from bellwether.scripted_engine.engine import ScriptedEngine
from bellwether.scripted_engine.script import ScriptFile
from bellwether.scripted_engine.sinks import ArrowStream, JsonLines


def main(
    served: Served,
    wire: str,
    port: int,
    script: Path,
    *,
    capture: Path | None,
    capture_arrow: Path | None,
    seconds: float | None,
    ready: Callable[[str], None],
) -> None:
    """Serve until SIGINT, SIGTERM or `seconds` have passed. `ready` is given the URL once it answers.

    Raises:
        EngineError: the port is in use, or the script file is malformed at the start. Malformed later, it is told to
            standard error, and requests fail until it is mended.
        OSError: a file of captures cannot be written.
    """
    file = ScriptFile(script, complain=lambda wrong: say(f"error: {wrong}; requests fail until it is mended"))
    asyncio.run(_serve(served, wire, port, file, capture, capture_arrow, seconds, ready))


async def _serve(
    served: Served,
    wire: str,
    port: int,
    script: ScriptFile,
    capture: Path | None,
    capture_arrow: Path | None,
    seconds: float | None,
    ready: Callable[[str], None],
) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    with ExitStack() as files:
        sinks = [kind(path) for kind, path in ((JsonLines, capture), (ArrowStream, capture_arrow)) if path]
        for sink in sinks:
            files.callback(sink.close)
        async with ScriptedEngine(script_file=script, sinks=sinks, keep=0) as engine:
            ready(await engine.serve(served, wire, port))
            with suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), seconds)
    say(
        f"{engine.requests:,} requests: {engine.closed_early:,} closed early, {engine.refused:,} refused for the"
        f" script, {engine.aborts:,} calls of Abort"
    )


def served(folder: Path, model: str) -> Served:
    """Return what a folder shaped like a snapshot of the Hub says of itself.

    Raises:
        EngineError: config.json or generation_config.json is no JSON.
    """
    config, generation = _json(folder / "config.json"), _json(folder / "generation_config.json")
    text = config.get("text_config") if isinstance(config.get("text_config"), dict) else {}
    size = config.get("vocab_size", text.get("vocab_size"))
    ending = next(
        (one["eos_token_id"] for one in (generation, config, text) if one.get("eos_token_id") is not None), []
    )
    ids = [one for one in (ending if isinstance(ending, list) else [ending]) if type(one) is int and one >= 0]
    return Served(
        slug=folder.resolve().name,
        model=model,
        folder=folder.resolve(),
        eos_ids=tuple(ids),
        vocabulary_size=size if type(size) is int and size > 0 else 0,
    )


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_bytes())
    except ValueError as error:
        raise EngineError(f"{path}: {error}", next_step="Mend the file, or remove it.") from None
    return value if isinstance(value, dict) else {}
