"""The gRPC server below the wires, asked by a client that breaks the rules, and by gRPC's own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, DataReceived, ResponseReceived, StreamReset, TrailersReceived
from h2.settings import SettingCodes

from bellwether.scripted_engine.grpc_server import LARGEST_REQUEST, Reply, Server, Status

ASK = [
    (":method", "POST"),
    (":scheme", "http"),
    (":authority", "localhost"),
    (":path", "/some.Service/Echo"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
]


def framed(message: bytes) -> bytes:
    return b"\0" + len(message).to_bytes(4, "big") + message


class Raw:
    """An HTTP/2 client that sends what it is told."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.http = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self.http.initiate_connection()

    def ask(self, body: bytes, stream: int = 1, **headers: str) -> None:
        """Put a request into the buffer."""
        self.http.send_headers(stream, [(name, headers.get(name[1:], value)) for name, value in ASK])
        self.http.send_data(stream, body, end_stream=True)

    async def send(self) -> None:
        self.writer.write(self.http.data_to_send())
        await self.writer.drain()

    async def until(self, *kinds: type) -> list[Any]:
        """Return the events up to one of `kinds`, or to the end of the connection."""
        seen: list[Any] = []
        async with asyncio.timeout(30):
            while not seen or not isinstance(seen[-1], kinds):
                data = await self.reader.read(65536)
                if not data:
                    return seen
                for event in self.http.receive_data(data):
                    seen.append(event)
                    if isinstance(event, kinds):
                        break
                await self.send()
        return seen


def talk(calls: dict[str, Callable[[bytes], Reply]], use: Callable[[Raw, Server], Awaitable[Any]]) -> Any:
    """Return what `use` makes of a connection to a server of `calls`, by names below `/some.Service/`."""

    async def run() -> Any:
        server = Server({f"/some.Service/{name}": call for name, call in calls.items()})
        port = await server.start(0)
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                return await use(Raw(reader, writer), server)
            finally:
                writer.close()
        finally:
            await server.stop()

    return asyncio.run(run())


def told(events: list[Any]) -> dict[str, str]:
    """Return the trailers, or the head that is all there is."""
    heads = [event for event in events if isinstance(event, ResponseReceived | TrailersReceived)]
    return dict(heads[-1].headers)


def test_all_messages_of_a_call_come_between_head_and_trailers() -> None:
    async def use(raw: Raw, server: Server) -> tuple:
        raw.ask(framed(b"ping"))
        await raw.send()
        events = await raw.until(TrailersReceived)
        data = b"".join(event.data for event in events if isinstance(event, DataReceived))
        heads = [dict(event.headers) for event in events if isinstance(event, ResponseReceived)]
        return heads, data, told(events)

    heads, data, trailers = talk({"Echo": lambda body: Reply((body, b"", b"!"))}, use)
    assert heads == [{":status": "200", "content-type": "application/grpc"}]
    assert data == framed(b"ping") + framed(b"") + framed(b"!")
    assert trailers == {"grpc-status": "0"}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", "13"),
        (b"\0\0\0", "13"),
        (framed(b"ping")[:-1], "13"),
        (framed(b"ping") + framed(b"pong"), "13"),
        (b"\1\0\0\0\1x", "12"),
    ],
)
def test_a_request_that_is_no_single_plain_message_is_refused(body: bytes, status: str) -> None:
    """13 is INTERNAL, 12 UNIMPLEMENTED: no compression was offered."""

    async def use(raw: Raw, server: Server) -> dict[str, str]:
        raw.ask(body)
        await raw.send()
        return told(await raw.until(ResponseReceived))

    assert talk({"Echo": lambda body: pytest.fail("asked")}, use)["grpc-status"] == status


def test_a_message_of_a_status_is_percent_encoded() -> None:
    """gRPC over HTTP/2: what is no printable ASCII, and %, as %XX of its UTF-8."""

    def refuse(body: bytes) -> Reply:
        raise Status(9, "50 % ü\n")

    async def use(raw: Raw, server: Server) -> dict[str, str]:
        raw.ask(framed(b""))
        await raw.send()
        return told(await raw.until(ResponseReceived))

    answer = talk({"Echo": refuse}, use)
    assert (answer["grpc-status"], answer["grpc-message"]) == ("9", "50 %25 %C3%BC%0A")


def test_a_fault_of_a_call_is_an_answer(capsys: pytest.CaptureFixture) -> None:
    """The client is not to wait for one that never comes."""

    def broken(body: bytes) -> Reply:
        raise KeyError("lost")

    async def use(raw: Raw, server: Server) -> dict[str, str]:
        raw.ask(framed(b""))
        await raw.send()
        return told(await raw.until(ResponseReceived))

    answer = talk({"Echo": broken}, use)
    assert (answer["grpc-status"], answer["grpc-message"]) == ("13", "KeyError: 'lost'")
    assert "KeyError: 'lost'" in capsys.readouterr().err


def test_what_cannot_be_written_resets_the_stream(capsys: pytest.CaptureFixture) -> None:
    """A full disk: an answer whose capture is lost must not pass for one."""

    def full(complete: bool) -> None:
        raise OSError(28, "No space left on device")

    async def use(raw: Raw, server: Server) -> list[Any]:
        raw.ask(framed(b""))
        await raw.send()
        return await raw.until(StreamReset, TrailersReceived)

    assert isinstance(talk({"Echo": lambda body: Reply((b"",), full)}, use)[-1], StreamReset)
    assert "No space left" in capsys.readouterr().err


@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\n\r\n", b"\0" * 100])
def test_what_is_no_http_2_is_hung_up_on(garbage: bytes) -> None:
    async def use(raw: Raw, server: Server) -> tuple:
        raw.writer.write(garbage)
        async with asyncio.timeout(30):
            await raw.reader.read()
        return len(server.connections), raw.reader.at_eof()

    assert talk({}, use) == (0, True)


def test_a_request_taken_back_in_the_same_breath_ends_as_closed() -> None:
    """Both lie in one packet; the connection goes on."""
    ended: list[bool] = []

    async def use(raw: Raw, server: Server) -> bytes:
        raw.ask(framed(b"first"))
        raw.http.reset_stream(1)
        raw.ask(framed(b"second"), stream=3)
        await raw.send()
        events = await raw.until(TrailersReceived)
        return b"".join(event.data for event in events if isinstance(event, DataReceived))

    assert talk({"Echo": lambda body: Reply((body,), ended.append)}, use) == framed(b"second")
    assert ended == [False, True]


def test_a_goodbye_behind_a_request_ends_it_as_closed() -> None:
    ended: list[bool] = []

    async def use(raw: Raw, server: Server) -> None:
        raw.ask(framed(b"first"))
        raw.http.close_connection()
        await raw.send()
        raw.writer.close()
        async with asyncio.timeout(30):
            while server.connections:
                await asyncio.sleep(0.01)

    talk({"Echo": lambda body: Reply((body,), ended.append)}, use)
    assert ended == [False]


def test_no_more_is_sent_than_the_client_has_room_for() -> None:
    """A window of 10 bytes a stream: the rest waits for it to open, and a client that leaves meanwhile is seen."""
    ended: list[bool] = []

    async def use(raw: Raw, server: Server) -> tuple[int, list[bool], int]:
        raw.http.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 10})
        raw.ask(framed(b"x" * 100))
        await raw.send()
        first = sum(len(one.data) for one in await raw.until(DataReceived) if isinstance(one, DataReceived))
        before = list(ended)
        raw.http.increment_flow_control_window(1000, 1)
        await raw.send()
        rest = await raw.until(TrailersReceived)
        return first, before, sum(len(one.data) for one in rest if isinstance(one, DataReceived))

    assert talk({"Echo": lambda body: Reply((body,), ended.append)}, use) == (10, [], 95)
    assert ended == [True]


def test_a_client_that_hangs_up_while_it_has_no_room_is_seen() -> None:
    ended: list[bool] = []

    async def use(raw: Raw, server: Server) -> None:
        raw.http.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 10})
        raw.ask(framed(b"x" * 100))
        await raw.send()
        await raw.until(DataReceived)
        raw.writer.transport.abort()
        async with asyncio.timeout(30):
            while server.connections:
                await asyncio.sleep(0.01)

    talk({"Echo": lambda body: Reply((body,), ended.append)}, use)
    assert ended == [False]


def test_a_stopped_server_says_goodbye_and_ends_what_is_on_its_way() -> None:
    ended: list[bool] = []

    async def use(raw: Raw, server: Server) -> list[Any]:
        raw.http.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 10})
        raw.ask(framed(b"x" * 100))
        await raw.send()
        await raw.until(DataReceived)
        await server.stop()
        assert ended == [False]
        return await raw.until(ConnectionTerminated)

    assert isinstance(talk({"Echo": lambda body: Reply((body,), ended.append)}, use)[-1], ConnectionTerminated)


def test_a_request_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """8 is RESOURCE_EXHAUSTED. What goes on coming is thrown away."""
    assert LARGEST_REQUEST == 256 << 20
    monkeypatch.setattr("bellwether.scripted_engine.grpc_server.LARGEST_REQUEST", 100)

    async def use(raw: Raw, server: Server) -> str:
        raw.http.send_headers(1, ASK)
        raw.http.send_data(1, b"x" * 101)
        await raw.send()
        status = told(await raw.until(ResponseReceived))["grpc-status"]
        raw.ask(framed(b"ping"), stream=3)
        await raw.send()
        assert told(await raw.until(TrailersReceived)) == {"grpc-status": "0"}
        return status

    assert talk({"Echo": lambda body: Reply((body,))}, use) == "8"


def test_many_calls_of_one_client_are_answered_each_with_its_own() -> None:
    """gRPC's own client, 500 calls at a time on one connection, answers of up to 200 kB."""

    async def run() -> None:
        server = Server({"/some.Service/Echo": lambda body: Reply((body, body[:1]))})
        port = await server.start(0)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            echo = channel.unary_stream("/some.Service/Echo")

            async def ask(number: int) -> None:
                body = b"%d" % number * (number * 137 % 50_000 + 1)
                assert [one async for one in echo(body)] == [body, body[:1]]

            await asyncio.gather(*map(ask, range(500)))
        await server.stop()

    asyncio.run(run())
