"""The HTTP face, asked over loopback."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bellwether.errors import EngineError
from bellwether.scripted_engine import ScriptedEngine
from bellwether.scripted_engine.script import ScriptFile
from scripted_engine.workers import served
from support import snapshot


class Client:
    """Asks one address."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self.session = session
        self.url = url

    async def ask(self, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """Return status and JSON: of a GET, or of a POST when there is a body."""
        method = "GET" if body is None else "POST"
        data = body if isinstance(body, bytes | None) else json.dumps(body)
        async with self.session.request(method, self.url + path, data=data, headers=headers) as answer:
            return answer.status, json.loads(await answer.read())

    async def events(self, path: str, body: Any) -> list[Any]:
        """Return the events of a stream; the last is [DONE]."""
        async with self.session.post(self.url + path, json={**body, "stream": True}) as answer:
            assert answer.status == 200
            assert answer.content_type == "text/event-stream"
            events = (await answer.read()).decode().split("\n\n")
        assert events.pop() == ""
        assert events.pop() == "data: [DONE]"
        return [json.loads(event.removeprefix("data: ")) for event in events]


def talk(folder: Path, use: Callable[[ScriptedEngine, Client], Awaitable[Any]], **settings: Any) -> Any:
    async def run() -> Any:
        async with ScriptedEngine(**settings) as engine, aiohttp.ClientSession() as session:
            url = await engine.serve(served(folder, model="Qwen/Qwen3-8B", vocabulary_size=10), "http")
            assert url.startswith("http://127.0.0.1:")
            return await use(engine, Client(session, url))

    return asyncio.run(run())


def test_a_completion_gives_the_scripted_ids_and_their_text() -> None:
    """9707 is `Hello` and 0 is `!` in Qwen3's vocabulary; <|im_end|> is skipped as special."""

    async def use(engine: ScriptedEngine, client: Client) -> tuple:
        engine.expect("a", [[9707], [0, 151645]], "stop", 151645)
        body = {"model": "Qwen/Qwen3-8B", "prompt": [1, 2, 3], "return_token_ids": True, "request_id": "a"}
        return await client.ask("/v1/completions", body), engine.take("a")

    (status, answer), (capture,) = talk(snapshot("qwen3-8b"), use)
    assert status == 200
    assert answer["choices"] == [
        {
            "index": 0,
            "text": "Hello!",
            "logprobs": None,
            "finish_reason": "stop",
            "stop_reason": 151645,
            "token_ids": [9707, 0, 151645],
            "prompt_token_ids": [1, 2, 3],
        }
    ]
    assert answer["usage"] == {"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6}
    assert (capture.input_ids, capture.text, capture.prompt_tokens, capture.wire) == ([1, 2, 3], None, 3, "http")


def test_a_prompt_of_text_is_captured_as_text_and_counted() -> None:
    """Nobody sent ids, so the capture has none; the tokenizer makes two of it: 9707, 1879."""

    async def use(engine: ScriptedEngine, client: Client) -> tuple:
        body = {"prompt": "Hello world", "return_token_ids": True}
        return await client.ask("/v1/completions", body, **{"X-Request-Id": "a-1"}), engine.take("a")

    (_, answer), (capture,) = talk(snapshot("qwen3-8b"), use)
    assert answer["choices"][0]["prompt_token_ids"] == [9707, 1879]
    assert answer["usage"] == {"prompt_tokens": 2, "completion_tokens": 1, "total_tokens": 3}
    assert (capture.input_ids, capture.text, capture.request_id) == (None, "Hello world", "a-1")


@pytest.mark.parametrize("skip", [True, False])
def test_a_stream_has_an_event_per_chunk(skip: bool) -> None:
    async def use(engine: ScriptedEngine, client: Client) -> list[Any]:
        engine.expect("a", [[9707], [], [0, 151645]], "length")
        body = {"prompt": [1], "return_token_ids": True, "request_id": "a", "skip_special_tokens": skip}
        return await client.events("/v1/completions", {**body, "stream_options": {"include_usage": True}})

    *events, usage = talk(snapshot("qwen3-8b"), use)
    choices = [event["choices"][0] for event in events]
    assert [one["text"] for one in choices] == ["Hello", "", "!" if skip else "!<|im_end|>"]
    assert [one["token_ids"] for one in choices] == [[9707], [], [0, 151645]]
    assert [one["finish_reason"] for one in choices] == [None, None, "length"]
    assert ["prompt_token_ids" in one for one in choices] == [True, False, False]
    assert (usage["choices"], usage["usage"]["completion_tokens"]) == ([], 3)


def test_a_character_cut_in_two_waits_for_its_other_half() -> None:
    """𝄞 is two ids of Qwen3; what never becomes one is told at the end, as the tokenizer decodes it."""
    from tokenizers import Tokenizer

    first, second = Tokenizer.from_file(str(snapshot("qwen3-8b") / "tokenizer.json")).encode("𝄞").ids

    async def use(engine: ScriptedEngine, client: Client) -> list[list[str]]:
        texts = []
        for chunks in ([[9707, first], [second]], [[9707, first], []]):
            engine.expect("a", chunks)
            events = await client.events("/v1/completions", {"prompt": [1], "request_id": "a"})
            texts.append([event["choices"][0]["text"] for event in events])
        return texts

    assert talk(snapshot("qwen3-8b"), use) == [["Hello", "𝄞"], ["Hello", "�"]]


def test_a_chat_is_captured_as_it_came_and_answered_with_text() -> None:
    """Key order and spelling of the body are data."""
    body = b'{"messages": [{"content": "\\u00fc", "role": "user"}],  "tools": [], "temperature": 1e-7, "rid": "a-7"}'

    async def use(engine: ScriptedEngine, client: Client) -> tuple:
        engine.expect("a", [[9707], [0]], "tool_calls")
        return await client.ask("/v1/chat/completions", body), engine.take("a")

    (status, answer), (capture,) = talk(snapshot("qwen3-8b"), use)
    assert status == 200
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": "Hello!"}
    assert answer["choices"][0]["finish_reason"] == "tool_calls"
    assert capture.body == body.decode()
    assert (capture.sampling, capture.constraint) == ({"temperature": 1e-07}, {"tools": []})
    assert (capture.input_ids, capture.text, capture.request_id) == (None, None, "a-7")


def test_a_streamed_chat_has_a_role_and_then_an_event_per_chunk() -> None:
    async def use(engine: ScriptedEngine, client: Client) -> list[Any]:
        engine.expect("a", [[9707], [0], [151645]])
        return await client.events("/v1/chat/completions", {"messages": [], "rid": "a"})

    choices = [event["choices"][0] for event in talk(snapshot("qwen3-8b"), use)]
    assert [one["delta"] for one in choices] == [
        {"role": "assistant", "content": ""},
        {"content": "Hello"},
        {"content": "!"},
        {},
    ]
    assert [one["finish_reason"] for one in choices] == [None, None, None, "stop"]


def test_generate_answers_as_sglang_does() -> None:
    """Streamed, each event has all so far."""

    async def use(engine: ScriptedEngine, client: Client) -> tuple:
        engine.expect("a", [[9707], [0]], "stop", 0)
        body = {"input_ids": [4, 5], "rid": "a", "sampling_params": {"temperature": 0, "stop": "END", "regex": "x+"}}
        return await client.ask("/generate", body), await client.events("/generate", body), engine.take("a")

    (_, answer), events, (capture, _) = talk(snapshot("qwen3-8b"), use)
    assert answer == {
        "text": "Hello!",
        "output_ids": [9707, 0],
        "meta_info": {
            "id": "a",
            "finish_reason": {"type": "stop", "matched": 0},
            "prompt_tokens": 2,
            "completion_tokens": 2,
            "cached_tokens": 0,
        },
    }
    assert [(event["text"], event["output_ids"]) for event in events] == [("Hello", [9707]), ("Hello!", [9707, 0])]
    assert [event["meta_info"]["finish_reason"] for event in events] == [None, {"type": "stop", "matched": 0}]
    assert (capture.sampling, capture.stop, capture.constraint) == ({"temperature": 0}, ["END"], {"regex": "x+"})


def test_a_folder_without_a_tokenizer_gives_ids_and_no_text(tmp_path: Path) -> None:
    async def use(engine: ScriptedEngine, client: Client) -> tuple:
        engine.expect("*", [[1], [2]])
        body = {"prompt": "Hello", "return_token_ids": True}
        return await client.ask("/v1/completions", body), await client.events("/v1/completions", body)

    (_, answer), events = talk(tmp_path, use)
    assert (answer["choices"][0]["text"], answer["choices"][0]["token_ids"]) == ("", [1, 2])
    assert [event["choices"][0]["token_ids"] for event in events] == [[1], [2]]


def test_what_is_served_is_told(tmp_path: Path) -> None:
    async def use(engine: ScriptedEngine, client: Client) -> list[Any]:
        async with client.session.get(client.url + "/health") as health:
            assert (health.status, await health.read()) == (200, b"")
        return [await client.ask(path) for path in ("/v1/models", "/version", "/get_model_info", "/get_server_info")]

    (_, models), (_, version), (_, model), (_, server) = talk(tmp_path, use)
    assert [(one["id"], one["object"]) for one in models["data"]] == [("Qwen/Qwen3-8B", "model")]
    assert set(version) == {"version"}
    assert (model["served_model_name"], model["tokenizer_path"], model["vocab_size"]) == (
        "Qwen/Qwen3-8B",
        str(tmp_path),
        10,
    )
    assert server["model_path"] == str(tmp_path)


@pytest.mark.parametrize(
    ("path", "body"),
    [("/nope", None), ("/v1/embeddings", {}), ("/v1/completions", None), ("/health", {}), ("/v1/models/x", None)],
)
def test_what_is_not_offered_is_a_404_with_an_error_object(tmp_path: Path, path: str, body: Any) -> None:
    status, answer = talk(tmp_path, lambda engine, client: client.ask(path, body))
    assert status == 404
    assert set(answer) == {"error"}
    assert answer["error"]["type"] == "not_found_error"
    assert path in answer["error"]["message"]
    assert set(answer["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/completions", b"{", None),
        ("/v1/completions", [], None),
        ("/v1/completions", {}, "prompt"),
        ("/v1/completions", {"prompt": ["a", "b"]}, "prompt"),
        ("/v1/completions", {"prompt": [-1]}, "prompt"),
        ("/v1/completions", {"prompt": "a", "stream": 1}, "stream"),
        ("/v1/completions", {"prompt": "a", "stop": [1]}, "stop"),
        ("/v1/completions", {"prompt": "a", "request_id": 7}, None),
        ("/v1/chat/completions", {"messages": "Hi"}, "messages"),
        ("/generate", {}, None),
        ("/generate", {"text": "a", "input_ids": [1]}, None),
        ("/generate", {"text": "a", "sampling_params": []}, "sampling_params"),
    ],
)
def test_a_malformed_request_is_a_400_with_an_error_object(
    tmp_path: Path, path: str, body: Any, param: str | None
) -> None:
    async def use(engine: ScriptedEngine, client: Client) -> tuple:
        return await client.ask(path, body), engine.requests

    (status, answer), requests = talk(tmp_path, use)
    assert (status, answer["error"]["type"], answer["error"]["param"]) == (400, "invalid_request_error", param)
    assert requests == 0


def test_another_model_is_not_served(tmp_path: Path) -> None:
    status, answer = talk(
        tmp_path, lambda engine, client: client.ask("/v1/completions", {"model": "other/model", "prompt": "a"})
    )
    assert (status, answer["error"]["code"]) == (404, "model_not_found")
    assert "other/model" in answer["error"]["message"]


def test_an_id_no_header_can_hold_is_still_captured(tmp_path: Path) -> None:
    """It would end the header and begin another."""

    async def use(engine: ScriptedEngine, client: Client) -> tuple:
        own = "ü\r\nX-Other: 1"
        status, _ = await client.ask("/v1/completions", {"prompt": [1], "rid": own})
        return status, [capture.request_id for capture in engine.take(own)]

    assert talk(tmp_path, use) == (200, ["ü\r\nX-Other: 1"])


def test_a_client_that_goes_away_is_on_the_capture(tmp_path: Path) -> None:
    async def use(engine: ScriptedEngine, client: Client) -> list[str]:
        engine.expect("a", [[1] * 1000] * 5000)
        body = {"prompt": [1], "rid": "a", "stream": True, "return_token_ids": True}
        async with client.session.post(client.url + "/v1/completions", json=body) as answer:
            await answer.content.readany()
        async with asyncio.timeout(30):
            while engine.closed_early == 0:
                await asyncio.sleep(0.01)
        return [capture.ended for capture in engine.take("a")]

    assert talk(tmp_path, use) == ["closed"]


def test_a_request_is_refused_while_the_script_file_is_malformed(tmp_path: Path) -> None:
    path = tmp_path / "script.jsonl"
    path.write_text('{"key": "*", "chunks": [[1]]}\n')

    async def use(engine: ScriptedEngine, client: Client) -> tuple:
        path.write_text("{")
        return await client.ask("/v1/completions", {"prompt": [1], "rid": "a"}), engine.take("a")

    (status, answer), (capture,) = talk(tmp_path, use, script_file=ScriptFile(path))
    assert status == 500
    assert answer["error"]["message"].startswith(f"{path}:1: ")
    assert capture.ended == "refused"


class FullDisk:
    """A sink that cannot write."""

    def write(self, capture: object) -> None:
        raise OSError(28, "No space left on device")

    def close(self) -> None:
        pass


def test_an_answer_whose_capture_cannot_be_written_is_none(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Whole, it is a 500; streamed, it breaks off."""

    async def use(engine: ScriptedEngine, client: Client) -> tuple:
        whole = await client.ask("/v1/completions", {"prompt": [1]})
        with pytest.raises(aiohttp.ClientPayloadError):
            await client.events("/v1/completions", {"prompt": [1]})
        return whole

    status, answer = talk(tmp_path, use, sinks=[FullDisk()])
    assert (status, answer["error"]["type"]) == (500, "server_error")
    said = capsys.readouterr().err.splitlines()
    assert said == ["error: [Errno 28] No space left on device"] * 2


def test_a_port_in_use_is_an_error_with_its_number(tmp_path: Path) -> None:
    async def use(engine: ScriptedEngine, client: Client) -> str:
        port = client.url.rpartition(":")[2]
        with pytest.raises(EngineError) as error:
            await engine.serve(served(tmp_path), "http", int(port))
        assert f"port {port} " in str(error.value)
        return str(error.value)

    assert "in use" in talk(tmp_path, use)
