"""What passes between an observer and a gateway: what is served and asked, and the four endings of a replay.

A replay ends with a value, `Refused`, `Missing` or `Failed`. The first two are evidence; nothing is concluded from the
others.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self


class Refused(Exception):
    """Raised when a gateway answers with a 4xx and a structured error object of its own."""

    def __init__(self, code: str, message: str, status: int) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status


class Failed(Exception):
    """Raised when there was no measurement: no answer in time, no connection, a 5xx, a redirect, a malformed body."""

    def __init__(self, code: str, message: str = "", status: int | None = None) -> None:
        super().__init__(message or code)
        self.code = code
        self.message = message
        self.status = status


class Missing(Exception):
    """Raised when a gateway answers 200 and the scripted engine saw no request of that id."""


@dataclass(frozen=True, slots=True)
class Served:
    """A checkpoint as a gateway is to serve it."""

    slug: str
    model: str
    """The name clients use: the repository's on the Hub, because gateways choose parsers by it."""
    folder: Path
    """Shaped like a snapshot of the Hub, without weights."""
    tool_parser: str | None = None
    """The gateway's own name of a parser; None leaves the choice to it."""
    reasoning_parser: str | None = None
    eos_ids: tuple[int, ...] = ()
    vocabulary_size: int = 0
    """One more than the largest id."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a gateway makes of a request."""

    ids: list[int]
    text: str | None = None
    """None where only ids are seen."""


@dataclass(frozen=True, slots=True)
class Output:
    """What the engine behind the gateway is to say."""

    ids: list[int]
    """Without the id that ends the turn."""
    chunks: list[list[int]] | None = None
    """The same in the pieces it is streamed by; None asks for one answer."""
    stop_id: int | None = None
    finish_reason: str = "stop"


@dataclass(slots=True)
class Answer:
    """The message a gateway gives its client."""

    content: str | None
    reasoning_content: str | None
    tool_calls: list[dict[str, str | None]]
    """Calls in order, each `name` and `arguments`; a stream may end before it has named one."""
    finish_reason: str | None
    usage: tuple[int, int] | None
    """Prompt and completion tokens."""
    status: int = 200
    parser: str | None = None
    """Who read it, where the gateway says so."""
    framing: str | None = None
    """Streams: the first rule of `chat.FRAMING` that does not hold."""
    in_pieces: bool | None = None
    """Streams: whether text came in more than one event, and so did content and reasoning, each where it is long."""
    prompt_ids: list[int] | None = None
    """What the engine was sent, where that is seen."""


class Adapter(Protocol):
    """One checkpoint behind one gateway. Every method raises Refused, Missing or Failed; and GatewayError when the
    gateway has ended."""

    version: str
    """The gateway's release, as it says itself."""
    kinds: frozenset[str]
    """Of render, parse, tokenize and detokenize: what can be seen at all."""

    async def render(self, request: str) -> Prompt:
        """Return the prompt of an OpenAI chat body, JSON text without `model`, whose key order is data."""
        ...

    async def parse(self, request: str, output: Output) -> Answer:
        """Return the message made of `output`, given as the answer to `request`."""
        ...

    async def tokenize(self, text: str) -> list[int]:
        """Return the ids of a text; no special tokens are added."""
        ...

    async def detokenize(self, ids: list[int]) -> str:
        """Return the text of ids, special tokens kept."""
        ...


class Gateway(Protocol):
    """A gateway that runs while its context is open, and is gone with all its processes afterwards."""

    plans: frozenset[str] | None
    """Chunk plans that can be streamed; None for all."""
    concurrency: int
    """Requests that may be under way at a time, per checkpoint."""
    checkpoints: int
    """Checkpoints that may be open at a time."""
    version: str
    facts: dict[str, Any]
    """How it was called, for the provenance; the same from run to run."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *exc: object) -> None: ...

    def open(self, served: Served) -> AbstractAsyncContextManager[Adapter]:
        """Serve a checkpoint.

        Raises, when entered:
            Failed: it cannot; `not-loaded` when the reason lies with the checkpoint.
        """
        ...
