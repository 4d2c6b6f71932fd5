"""What the engine was asked: captures, kept in memory until they are taken, and written as they end.

Memory is bounded. What nobody takes is dropped, oldest first, and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from bellwether.scripted_engine.script import Script

KEEP = 4096
"""Captures that wait to be taken."""
KEEP_BYTES = 256 << 20
"""Bytes of the requests that wait to be taken."""

RUNNING, COMPLETE, CLOSED, REFUSED = "running", "complete", "closed", "refused"


@dataclass(frozen=True, slots=True)
class Capture:
    """One request, whole, and how it ended."""

    request_id: str
    model: str
    """The name it asked for; on gRPC, where requests name no model, the one served at that address."""
    wire: str
    """vllm, sglang, tokenspeed or http."""
    route: str
    """`Generate`, or the path of an HTTP request."""
    stream: bool
    input_ids: list[int] | None
    """None when it came as text or messages."""
    text: str | None
    """The prompt's text, when it was sent."""
    sampling: dict[str, Any]
    """Sampling parameters under their names on the wire; what the wire cannot tell from 0 is 0."""
    stop: list[str]
    constraint: dict[str, Any] | None
    """What binds the output: a grammar, a schema, a structural tag; on HTTP also `tools` and `tool_choice`."""
    other: dict[str, Any]
    """Everything else the request said."""
    body: str | None
    """The body of an HTTP request as it came."""
    answered_by: str | None
    """Key of the script; None when there was none and one end-of-turn id was sent."""
    finish_reason: str | None
    prompt_tokens: int
    """0 when it came as text and the checkpoint has no tokenizer.json, or as messages."""
    completion_tokens: int
    """Ids of the whole answer, sent or not."""
    ended: str
    """`running`; `complete`, all was handed over; `closed`, the other side went away before; `refused`, the script file
    could not be read."""
    aborted: bool
    """Whether Abort was called for it."""


Asked = dict[str, Any]
"""The fields of a capture that a wire reads from a request: stream to body."""


@dataclass(slots=True, eq=False)
class Record:
    """A request under way, or answered and not taken. Its fields are read when they are wanted: most never are."""

    request_id: str
    model: str
    wire: str
    route: str
    read: Callable[[], Asked]
    prompt: Callable[[], list[int] | None]
    """Its ids alone, which takes a tenth of reading it all."""
    size: int
    script: Script | None
    answered_by: str | None
    prompt_tokens: int
    names: tuple[str, ...] = ()
    ended: str = RUNNING
    aborted: bool = False

    def capture(self) -> Capture:
        return Capture(
            request_id=self.request_id,
            model=self.model,
            wire=self.wire,
            route=self.route,
            **self.read(),
            answered_by=self.answered_by,
            finish_reason=self.script.finish_reason if self.script else None,
            prompt_tokens=self.prompt_tokens,
            completion_tokens=sum(map(len, self.script.chunks)) if self.script else 0,
            ended=self.ended,
            aborted=self.aborted,
        )


@dataclass(slots=True)
class Store:
    """Records that wait to be taken, by any of their names, in the order they came."""

    keep: int = KEEP
    keep_bytes: int = KEEP_BYTES
    dropped: int = 0
    size: int = 0
    _records: dict[Record, None] = field(default_factory=dict)
    _named: dict[str, dict[Record, None]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._records)

    def add(self, record: Record, names: Iterable[str]) -> list[Record]:
        """Keep a record under its names; return those dropped for it."""
        record.names = tuple(names)
        self._records[record] = None
        self.size += record.size
        for name in record.names:
            self._named.setdefault(name, {})[record] = None
        dropped = []
        while len(self._records) > self.keep or (self.size > self.keep_bytes and len(self._records) > 1):
            oldest = next(iter(self._records))
            self._remove(oldest)
            self.dropped += 1
            dropped.append(oldest)
        return dropped

    def named(self, name: str) -> list[Record]:
        """Return the records of a name."""
        return list(self._named.get(name, ()))

    def take(self, name: str) -> list[Record]:
        """Return the records of a name, and forget them."""
        records = self.named(name)
        for record in records:
            self._remove(record)
        return records

    def drop(self, name: str) -> None:
        """Forget the records of a name, and count them as dropped."""
        self.dropped += len(self.take(name))

    def _remove(self, record: Record) -> None:
        del self._records[record]
        self.size -= record.size
        for name in record.names:
            records = self._named[name]
            del records[record]
            if not records:
                del self._named[name]
