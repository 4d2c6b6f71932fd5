"""Ask a witness of stages/environments as the recorder does: in its own environment, through serve.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bellwether.environments import ENVIRONMENTS, environment
from bellwether.witnesses.conversation import Conversation
from bellwether.witnesses.outcome import Outcome
from bellwether.witnesses.process import Program, Server


@contextmanager
def engine(name: str) -> Iterator[Server]:
    """Start an engine that runs in an environment; the first time on a machine the environment is built."""
    built = environment(name)
    script = ENVIRONMENTS / name / "witness.py"
    with Server(Program(name, script, built.python, bytecode=built.bytecode)) as server:
        yield server


def settings(folder: Path, **others: Any) -> dict[str, Any]:
    """Return what the recorder tells a script about a checkpoint."""
    said = {"slug": folder.name, "tool_parser": None, "reasoning_parser": None, "options": {}}
    return {"model": str(folder), "clock": "2026-01-15T12:00:00", **said, **others}


def facts(server: Server, folder: Path, **others: Any) -> dict[str, Any]:
    """Return what the script says about how it is set up."""
    with Conversation(server, settings(folder, **others), print) as conversation:
        return conversation.facts


def outcomes(server: Server, folder: Path, *requests: dict[str, Any] | str) -> list[Outcome]:
    """Return what comes of render questions, in order; a request is an object, or JSON text."""
    texts = [request if isinstance(request, str) else json.dumps(request) for request in requests]
    with Conversation(server, settings(folder), print) as conversation:
        return list(conversation.outcomes({"kind": "render", "request": text} for text in texts))


def text(server: Server, folder: Path, request: dict[str, Any]) -> str:
    """Return the prompt text of one request."""
    [outcome] = outcomes(server, folder, request)
    assert outcome.value["prompt_ids"] is None
    return outcome.value["prompt_text"]


def checkpoint(folder: Path, template: str | list | None, **config: Any) -> Path:
    """Make `folder` a checkpoint with nothing but a tokenizer_config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    held = {} if template is None else {"chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps({**held, **config}), "utf-8")
    return folder


def says(content: Any, **others: Any) -> dict[str, Any]:
    """Return a request with one message of a user."""
    return {"messages": [{"role": "user", "content": content}], **others}
