"""llama.cpp's own server, the real one: what it renders, what it makes of outputs, and how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from bellwether.errors import GatewayError
from bellwether.gateways import gguf_models
from bellwether.gateways.answer import Answer, Failed, Output, Refused, Served
from bellwether.gateways.llama_cpp import LlamaCpp, LlamaCppAdapter, _complaint
from processes import alive, children, wait_for
from support import load_checkpoint, snapshot

pytestmark = pytest.mark.xdist_group("llama.cpp")  # one server per checkpoint for all tests of this file

VERSION = "2026.10.11549"
DAY = datetime(2026, 1, 15, 12)
QWEN, LLAMA, SMOLLM = "qwen3-8b", "llama-3.1-8b-instruct", "smollm2-135m-instruct"
IM_END, EOT = 151645, 128009
"""Qwen3's and Llama 3's ends of a turn."""
TOOL = {
    "type": "function",
    "function": {
        "name": "room_temp",
        "parameters": {"type": "object", "properties": {"room": {"type": "string"}}, "required": ["room"]},
    },
}
TWO_CALLS = """<think>
Two rooms.
</think>

I ask both.
<tool_call>
{"name": "room_temp", "arguments": {"room": "attic"}}
</tool_call>
<tool_call>
{"name": "room_temp", "arguments": {"room": "cellar"}}
</tool_call>"""


def served(slug: str) -> Served:
    return Served(slug, slug, snapshot(slug))


def says(content: Any, **more: Any) -> str:
    return json.dumps({"messages": [{"role": "user", "content": content}], **more})


class Serving:
    """The server in one event loop, a checkpoint opened when it is first asked for."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()
        self._open: dict[str, LlamaCppAdapter] = {}
        self.gateway = LlamaCpp(VERSION, clock=DAY)
        self.run(self._stack.enter_async_context(self.gateway))

    def run(self, what: Any) -> Any:
        async def wait() -> Any:
            return await what

        return self._runner.run(wait())

    def __call__(self, slug: str) -> LlamaCppAdapter:
        if slug not in self._open:
            self._open[slug] = self.run(self._stack.enter_async_context(self.gateway.open(served(slug))))
        return self._open[slug]

    def answer(self, slug: str, text: str, request: str, stop_id: int, *, streamed: bool = False) -> Answer:
        """Return what the server makes of an output, spelled by the checkpoint's own tokenizer."""
        ids = load_checkpoint(slug).tokenizer.encode(text, add_special_tokens=False)
        chunks = [[token] for token in ids] if streamed else None
        return self.run(self(slug).parse(request, Output(ids, chunks, stop_id)))

    def close(self) -> None:
        self.run(self._stack.aclose())
        self._runner.close()


@pytest.fixture(scope="module")
def server() -> Iterator[Serving]:
    serving = Serving()
    yield serving
    serving.close()


# ── prompts and tokens ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_plain_chat_has_the_reference_s_text_and_ids(server: Serving) -> None:
    """Qwen3's format, from its model card."""
    prompt = server.run(server(QWEN).render(says("Hello")))
    assert prompt.text == "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    assert prompt.ids == [151644, 872, 198, 9707, 151645, 198, 151644, 77091, 198]


def test_a_decomposed_letter_stays_decomposed(server: Serving) -> None:
    """Qwen3's tokenizer normalises to NFC, llama.cpp does not: other ids of an equal prompt."""
    adapter, tokenizer = server(QWEN), load_checkpoint(QWEN).tokenizer
    ids = server.run(adapter.tokenize("e\u0301"))
    assert server.run(adapter.detokenize(ids)) == "e\u0301"
    assert tokenizer.decode(tokenizer.encode("e\u0301")) == "\u00e9"


def test_a_final_assistant_turn_is_closed_and_another_opened(server: Serving) -> None:
    """The server's default leaves it open and ignores add_generation_prompt."""
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]
    for opened, end in ((True, "<|im_start|>assistant\n"), (False, "")):
        request = json.dumps({"messages": messages, "add_generation_prompt": opened})
        prompt = server.run(server(QWEN).render(request))
        assert prompt.text.partition("Ho")[2] == "<|im_end|>\n" + end


def test_null_content_is_rendered_as_empty_text(server: Serving) -> None:
    """transformers raises on it."""
    messages = [{"role": "assistant", "content": None}, {"role": "user", "content": "Hi"}]
    prompt = server.run(server(SMOLLM).render(json.dumps({"messages": messages})))
    assert "<|im_start|>assistant\n<|im_end|>\n<|im_start|>user\nHi<|im_end|>" in prompt.text


def test_a_bos_that_the_tokenizer_adds_is_in_the_ids_once(server: Serving) -> None:
    """The template writes it, the server takes it from the text, and the chat route counts it."""
    prompt = server.run(server(LLAMA).render(says("Hi")))
    assert prompt.ids[0] == 128000
    assert prompt.ids.count(128000) == 1
    assert "<|begin_of_text|>" not in prompt.text
    assert server.answer(LLAMA, "Ho", says("Hi"), EOT).usage == (len(prompt.ids), 2)


def test_a_bos_in_the_text_of_a_message_is_a_second_one(server: Serving) -> None:
    """Special tokens in a message are special to the server, in both of its routes."""
    prompt = server.run(server(LLAMA).render(says("<|begin_of_text|>")))
    assert prompt.ids.count(128000) == 2
    assert server.answer(LLAMA, "Ho", says("<|begin_of_text|>"), EOT).usage[0] == len(prompt.ids)


def test_templates_see_the_date_of_the_clock(server: Serving) -> None:
    """The server gives every template `date_string`; Llama 3.1's own default is 26 Jul 2024."""
    assert "Today Date: 15 Jan 2026\n" in server.run(server(LLAMA).render(says("Hi"))).text


def test_a_refusal_is_told_by_the_server_s_own_words(server: Serving) -> None:
    with pytest.raises(Refused) as refused:
        server.run(server(QWEN).render("{}"))
    assert (refused.value.code, refused.value.status) == ("invalid_request_error", 400)
    assert refused.value.message == "'messages' is required"


@pytest.mark.parametrize(
    "ask",
    [
        lambda adapter: adapter.render(says("Hi", tools=[{"type": "function"}])),
        lambda adapter: adapter.detokenize([1 << 24]),
    ],
)
def test_a_500_is_no_evidence(server: Serving, ask: Callable[[LlamaCppAdapter], Any]) -> None:
    with pytest.raises(Failed) as failed:
        server.run(ask(server(QWEN)))
    assert failed.value.code == "http-500"


# ── outputs ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("streamed", [False, True])
def test_reasoning_content_and_two_calls_come_back(server: Serving, streamed: bool) -> None:
    """As hand-read from the output; this release keeps the newline before the next part."""
    answer = server.answer(QWEN, TWO_CALLS, says("Warm?", tools=[TOOL]), IM_END, streamed=streamed)
    assert answer.reasoning_content == "Two rooms.\n"
    assert answer.content == "I ask both.\n"
    assert [call["name"] for call in answer.tool_calls] == ["room_temp", "room_temp"]
    assert [json.loads(call["arguments"]) for call in answer.tool_calls] == [{"room": "attic"}, {"room": "cellar"}]
    assert (answer.finish_reason, answer.framing) == ("tool_calls", None)
    assert answer.in_pieces is (True if streamed else None)


def test_outputs_follow_each_other_on_one_server(server: Serving) -> None:
    """Several at once too: each is written before it is asked for, and one at a time."""

    async def all_of(texts: list[str]) -> list[Answer]:
        outputs = [Output(tokenizer.encode(text), None, IM_END) for text in texts]
        return await asyncio.gather(*(server(QWEN).parse(says("Hi"), output) for output in outputs))

    tokenizer = load_checkpoint(QWEN).tokenizer
    texts = [f"Number {number}, and {'so on, ' * number}done." for number in range(12)]
    server(QWEN)
    assert [answer.content for answer in server.run(all_of(texts))] == texts


def test_a_temperature_changes_nothing(server: Serving) -> None:
    answer = server.answer(QWEN, "Just so.", says("Hi", temperature=2.0, max_completion_tokens=1), IM_END)
    assert (answer.content, answer.finish_reason) == ("Just so.", "stop")


@pytest.mark.parametrize("streamed", [False, True])
def test_what_the_grammar_forbids_is_no_answer_to_the_output(server: Serving, streamed: bool) -> None:
    """With tools the server lets a model call none but the declared ones."""
    text = '<tool_call>\n{"name": "light", "arguments": {}}\n</tool_call>'
    with pytest.raises(Failed) as failed:
        server.answer(QWEN, text, says("Warm?", tools=[TOOL]), IM_END, streamed=streamed)
    assert failed.value.code == "script-not-followed"


def test_an_id_that_ends_no_turn_to_the_server_is_no_answer(server: Serving) -> None:
    """It goes on behind it."""
    with pytest.raises(Failed) as failed:
        server.answer(QWEN, "Hi", says("Hi"), 13)
    assert failed.value.code == "script-not-followed"


@pytest.mark.parametrize("streamed", [False, True])
def test_an_output_that_the_parser_does_not_read_is_refused(server: Serving, streamed: bool) -> None:
    """Text in front of which Llama 3.1 would have had to call: the server answers 500 to a finished output."""
    text = '{"name": "room_temp", "parameters": {"room": "attic"}} it is.'
    with pytest.raises(Refused) as refused:
        server.answer(LLAMA, text, says("Warm?", tools=[TOOL]), EOT, streamed=streamed)
    assert refused.value.code == "output-not-read"


def test_an_output_longer_than_the_model_s_positions_is_no_evidence(server: Serving) -> None:
    output = Output([13] * gguf_models.CONTEXT, None, IM_END)
    with pytest.raises(Failed) as failed:
        server.run(server(QWEN).parse(says("Hi"), output))
    assert failed.value.code == "too-long"


# ── checkpoints and processes ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("slug", "reason"),
    [("gemma-3-it", "none of BPE over bytes"), ("olmo-3-7b-instruct", "filter 'tojson' for type Undefined")],
)
def test_a_checkpoint_that_cannot_be_loaded_says_why(server: Serving, slug: str, reason: str) -> None:
    """OLMo 3's template is refused by the server itself, which tries it without tools."""
    with pytest.raises(Failed, match=reason) as failed:
        server.run(server.gateway.open(served(slug)).__aenter__())
    assert failed.value.code == "not-loaded"


def test_a_wrong_pre_tokenizer_is_found_out(server: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would be taken for a fault of the server."""
    wrong = tuple((digest, kinds, "llama-bpe") for digest, kinds, _ in gguf_models.PRE_TOKENIZERS)
    monkeypatch.setattr(gguf_models, "PRE_TOKENIZERS", wrong)
    with pytest.raises(Failed, match="as a llama-bpe tokenizer it is another one"):
        server.run(server.gateway.open(served(SMOLLM)).__aenter__())


def test_a_server_that_dies_is_told() -> None:
    async def observe() -> None:
        async with LlamaCpp(VERSION) as gateway, gateway.open(served(SMOLLM)) as adapter:
            assert await adapter.tokenize("Hi")
            os.kill(adapter.pid, signal.SIGKILL)
            with pytest.raises(GatewayError, match="ended"):
                await adapter.tokenize("Hi")

    asyncio.run(observe())


def test_the_server_has_no_way_to_the_network(server: Serving) -> None:
    """A filter of system calls leaves it Unix sockets alone (Linux: mode 2)."""
    assert re.search(r"^Seccomp:\t2$", Path(f"/proc/{server(SMOLLM).pid}/status").read_text(), re.MULTILINE)


def test_nothing_is_left_of_a_gateway_that_was_closed() -> None:
    async def observe() -> int:
        async with LlamaCpp(VERSION) as gateway, gateway.open(served(SMOLLM)) as adapter:
            return adapter.pid

    assert not alive(asyncio.run(observe()))


def test_the_server_dies_with_who_started_it() -> None:
    """Killed, it can close nothing."""
    code = (
        "import asyncio, pathlib\n"
        "from bellwether.gateways.llama_cpp import LlamaCpp\n"
        "from bellwether.gateways.answer import Served\n"
        "async def main():\n"
        f"    async with LlamaCpp({VERSION!r}) as gateway:\n"
        f"        async with gateway.open(Served('s', 's', pathlib.Path({str(snapshot(SMOLLM))!r}))) as adapter:\n"
        "            print(adapter.pid, flush=True)\n"
        "            await asyncio.sleep(600)\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as starter:
        pid = int(starter.stdout.readline())
        assert pid in children(starter.pid)
        starter.kill()
    wait_for(lambda: not alive(pid))


def test_the_reason_is_what_the_engine_says_last() -> None:
    said = "W 1 E init\nError: first\nError: second\nTraceback\nRuntimeError: Failed to init server\n"
    assert _complaint(said) == "second"
    assert _complaint("a\nKilled\n") == "Killed"
    assert _complaint("") == "it does not say why"
