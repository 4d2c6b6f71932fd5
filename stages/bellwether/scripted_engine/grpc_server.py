"""A gRPC server for answers that are known when they are asked for: all messages of a call go out in one write.

gRPC's own server for Python takes a turn of its poller, its event loop and the kernel for every message: with chunks of
one token, that was more work than the gateway under test had, and it set the pace. HTTP/2 is `h2`'s; what is added here
is the five bytes before a message, the trailers after the last, and the window.

A call is answered by a function, at once, so that there is nothing to schedule or to cancel.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import quote

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import DataReceived, Event, RequestReceived, StreamEnded, StreamReset
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings

from bellwether.progress import say
from bellwether.scripted_engine.ports import unbound

OK, RESOURCE_EXHAUSTED, FAILED_PRECONDITION, UNIMPLEMENTED, INTERNAL = 0, 8, 9, 12, 13
LARGEST_REQUEST = 256 << 20
TURN_BYTES = 64 << 10
"""What a connection sends in one turn of the loop: answers of megabytes let others through, and see their client go."""
HEAD = [(b":status", b"200"), (b"content-type", b"application/grpc")]
SETTINGS = {
    SettingCodes.MAX_CONCURRENT_STREAMS: 10_000,
    SettingCodes.INITIAL_WINDOW_SIZE: 1 << 20,
    SettingCodes.ENABLE_CONNECT_PROTOCOL: 0,
}
PRINTABLE = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")


class Status(Exception):
    """Raised by a call that ends without an answer."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(slots=True)
class Reply:
    """The messages of one call, serialised."""

    messages: Iterable[bytes]
    end: Callable[[bool], None] = lambda complete: None
    """Called once: with True before the last of it is written, with False when the other side went away before."""


Call = Callable[[bytes], Reply]
"""Answers a request, the bytes of one message. Raises Status."""


@dataclass(slots=True)
class _Sending:
    """A reply on its way."""

    rest: memoryview
    reply: Reply


class Server:
    """The server while it listens."""

    def __init__(self, calls: Mapping[str, Call]) -> None:
        self.calls = {path.encode(): call for path, call in calls.items()}
        self.connections: set[_Connection] = set()
        self._listener: asyncio.Server | None = None

    async def start(self, port: int) -> int:
        """Listen on 127.0.0.1; return the port. Raises EngineError when it cannot be had."""
        try:
            loop = asyncio.get_running_loop()
            self._listener = await loop.create_server(lambda: _Connection(self), "127.0.0.1", port)
        except OSError as error:
            raise unbound(port, error) from None
        return self._listener.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close all there is; replies on their way are cut off."""
        if self._listener:
            self._listener.close()
        for connection in list(self.connections):
            connection.close()
        if self._listener:
            await self._listener.wait_closed()


@dataclass(slots=True, eq=False)
class _Connection(asyncio.Protocol):
    """One client."""

    server: Server
    _transport: asyncio.Transport = field(init=False)
    _http: H2Connection = field(init=False)
    _asking: dict[int, tuple[bytes, bytearray]] = field(default_factory=dict)
    """Stream → path, and what has come of the body."""
    _sending: dict[int, _Sending] = field(default_factory=dict)
    _full: bool = False
    """Whether the kernel takes no more at present."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        quick = dict.fromkeys(("validate_inbound_headers", "normalize_inbound_headers"), False)
        quick |= dict.fromkeys(("validate_outbound_headers", "normalize_outbound_headers"), False)
        self._http = H2Connection(H2Configuration(client_side=False, header_encoding=None, **quick))
        self._http.local_settings = Settings(client=False, initial_values=SETTINGS)
        self._http.initiate_connection()
        self.server.connections.add(self)
        self._flush()

    def connection_lost(self, error: Exception | None) -> None:
        self.server.connections.discard(self)
        self._asking.clear()
        while self._sending:
            self._sending.popitem()[1].reply.end(False)

    def close(self) -> None:
        """Say goodbye, and close without waiting for the other side."""
        try:
            self._http.close_connection()
            self._flush()
        except ProtocolError:  # it said goodbye first
            pass
        self._transport.close()
        self.connection_lost(None)

    def data_received(self, data: bytes) -> None:
        try:
            for event in self._http.receive_data(data):
                self._take(event)
            self._pump()
        except ProtocolError:  # no HTTP/2, or a client that breaks its rules; h2 has the goodbye ready
            self._flush()
            self._transport.close()
            return
        self._flush()

    def _take(self, event: Event) -> None:
        match event:
            case RequestReceived():
                self._asking[event.stream_id] = dict(event.headers).get(b":path", b""), bytearray()
            case DataReceived():
                if event.flow_controlled_length:
                    self._http.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                if asking := self._asking.get(event.stream_id):
                    asking[1].extend(event.data)
                    if len(asking[1]) > LARGEST_REQUEST:
                        del self._asking[event.stream_id]
                        self._refuse(event.stream_id, Status(RESOURCE_EXHAUSTED, "the request is too large"))
            case StreamEnded():
                if asking := self._asking.pop(event.stream_id, None):
                    self._answer(event.stream_id, *asking)
            case StreamReset():
                self._asking.pop(event.stream_id, None)
                if sending := self._sending.pop(event.stream_id, None):
                    sending.reply.end(False)

    def _answer(self, stream: int, path: bytes, body: bytearray) -> None:
        try:
            call = self.server.calls.get(path)
            if call is None:
                raise Status(UNIMPLEMENTED, f"{path.decode(errors='replace')} is not offered")
            reply = call(_message(body))
        except Status as status:
            return self._refuse(stream, status)
        except Exception as error:  # a fault of ours is an answer, too: the client is not to wait for one
            say(f"error: {path.decode(errors='replace')}: {type(error).__name__}: {error}")
            return self._refuse(stream, Status(INTERNAL, f"{type(error).__name__}: {error}"))
        framed = b"".join(part for one in reply.messages for part in (b"\0", len(one).to_bytes(4, "big"), one))
        self._sending[stream] = _Sending(memoryview(framed), reply)
        with suppress(ProtocolError):  # it went away meanwhile; `_pump` finds out
            self._http.send_headers(stream, HEAD)

    def _refuse(self, stream: int, status: Status) -> None:
        said = quote(str(status), safe=PRINTABLE).encode()
        trailers = [(b"grpc-status", b"%d" % status.code), (b"grpc-message", said)]
        with suppress(ProtocolError):  # it went away meanwhile
            self._http.send_headers(stream, [*HEAD, *trailers], end_stream=True)

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self._go_on()

    def _go_on(self) -> None:
        if not self._transport.is_closing():
            self._pump()
            self._flush()

    def _pump(self) -> None:
        """Send of every reply what the client's window, and this turn, have room for."""
        left = TURN_BYTES
        for stream, sending in list(self._sending.items()):
            if self._full:
                return
            if left <= 0:
                asyncio.get_running_loop().call_soon(self._go_on)
                return
            before = len(sending.rest)
            try:
                self._send(stream, sending, left)
            except ProtocolError:  # the stream is closed
                del self._sending[stream]
                sending.reply.end(False)
                continue
            left -= before - len(sending.rest)
            if not sending.rest:
                del self._sending[stream]
                self._finish(stream, sending.reply)
        if left <= 0:
            asyncio.get_running_loop().call_soon(self._go_on)

    def _send(self, stream: int, sending: _Sending, most: int) -> None:
        """Raises ProtocolError when the stream is closed."""
        while sending.rest:
            room = min(self._http.local_flow_control_window(stream), self._http.max_outbound_frame_size, most)
            if room <= 0:
                return
            piece = sending.rest[:room]
            self._http.send_data(stream, piece.tobytes())
            sending.rest = sending.rest[room:]
            most -= len(piece)

    def _finish(self, stream: int, reply: Reply) -> None:
        try:  # nothing of the last turn is written yet: whoever has the answer finds the capture
            reply.end(True)
        except OSError as error:
            say(f"error: {error}")
            self._http.reset_stream(stream, ErrorCodes.INTERNAL_ERROR)
        else:
            self._http.send_headers(stream, [(b"grpc-status", b"%d" % OK)], end_stream=True)

    def _flush(self) -> None:
        if data := self._http.data_to_send():
            self._transport.write(data)


def _message(body: bytearray) -> bytes:
    """Return the one message of a request. Raises Status."""
    if body[:1] == b"\1":
        raise Status(UNIMPLEMENTED, "compressed messages are not read")
    if len(body) < 5 or len(body) != 5 + int.from_bytes(body[1:5], "big"):
        raise Status(INTERNAL, "the request is no single message")
    return bytes(memoryview(body)[5:])
