"""Runs in the environment of SGLang 0.5.22: its chat front end as llm-router-utils 0.8.1 carries it, without torch.

The package has the code that writes prompts and parses outputs, and neither the server's handlers nor its detokenizer.
What stands between them is here, after those of 0.5.23: reasoning before tools, what is sent at the end of a stream,
and which text a step brings; chunks cut elsewhere would make other messages, and look like another release.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import logging
import os
import sys
import unicodedata
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import sglang_front_end
from llm_router_utils.sglang.srt.entrypoints.openai.encoding_dsv32 import DS32EncodingError
from llm_router_utils.sglang.srt.entrypoints.openai.protocol import ChatCompletionRequest
from llm_router_utils.sglang.srt.entrypoints.openai.serving_chat import OpenAIServingChat
from llm_router_utils.sglang.srt.entrypoints.openai.sse_utils import build_sse_content
from llm_router_utils.sglang.srt.function_call.function_call_parser import FunctionCallParser
from llm_router_utils.sglang.srt.managers.tokenizer_manager import TokenizerManager
from llm_router_utils.sglang.srt.parser.reasoning_parser import ReasoningParser
from llm_router_utils.sglang.srt.parser.template_manager import TemplateManager
from llm_router_utils.sglang.srt.server_args import PortArgs, ServerArgs
from serve import Refused
from sglang_front_end import Output, Stream

PACKAGE, VERSION = "llm-router-utils", "0.8.1"
CALL_END = 200012
"""gpt-oss's <|call|>, which the detokenizer leaves in the text."""
CONTEXT = 5
"""Ids of the prompt the first ones of an output are decoded after."""
INCOMPLETE = "\ufffd"


def load(settings: dict) -> tuple:
    """Return what answers questions about the checkpoint of `settings`, and the facts. See `serve`.

    Raises:
        ValueError: another release is installed, an option is not known, or a file of the checkpoint cannot be loaded.
    """
    logging.disable(logging.CRITICAL)
    installed = sglang_front_end.versions(PACKAGE)[PACKAGE]
    if installed != VERSION:
        raise ValueError(f"{PACKAGE} {VERSION} is expected, and {installed} is installed")
    keep_special = sglang_front_end.checked_options(
        settings, FunctionCallParser.ToolCallParserEnum, ReasoningParser.DetectorMap
    )
    if settings.get("clock"):
        sglang_front_end.set_clock(datetime.datetime.fromisoformat(settings["clock"]))
    with sglang_front_end.named(Path(settings["model"]), settings["slug"]) as folder:
        front = Front(folder, settings["tool_parser"], settings["reasoning_parser"], keep_special)
    facts = {
        "release": f"sglang 0.5.22 via {PACKAGE} {VERSION}",
        "versions": sglang_front_end.versions(PACKAGE, "transformers", "tokenizers"),
        "render": "OpenAIServingChat._process_messages; checks of a request other than its protocol's are not carried",
        "parse": "ReasoningParser and OpenAIServingChat's tool calls, whole and streamed, given the prompt's ids",
        "text": "cut as the detokenizer of 0.5.23 cuts it; the package carries none",
        **sglang_front_end.facts_of(front, settings),
    }
    return sglang_front_end.answering(front, refused_by_server), facts


def refused_by_server(error: Exception) -> Refused | None:
    """Return what SGLang's handler of requests answers to an exception, if that is a 400."""
    match error:
        case Refused():
            return error
        case ValueError() | DS32EncodingError():
            return Refused("BadRequest", error)
    return None


@dataclass(frozen=True, slots=True)
class Asked:
    """A request whose prompt was given, as the server has it when an output comes."""

    request: ChatCompletionRequest
    tools: bool
    """Whether the tool parser reads the output."""
    force_reasoning: bool


class Front:
    """The code that writes prompts and parses outputs, for one checkpoint."""

    def __init__(self, folder: Path, tool_parser: str | None, reasoning_parser: str | None, keep_special: bool) -> None:
        self.keep_special = keep_special
        args = ServerArgs(
            model_path=str(folder), device="cpu", tool_call_parser=tool_parser, reasoning_parser=reasoning_parser
        )
        manager = TokenizerManager(args, PortArgs())
        if manager.tokenizer is None or manager.model_config.hf_config is None:
            raise ValueError("SGLang cannot load the tokenizer or config.json of the checkpoint")
        self.tokenizer = manager.tokenizer
        self.added = sglang_front_end.name_architecture(manager.model_config.hf_config)
        templates = TemplateManager()
        templates.initialize_templates(manager, str(folder))
        self.chat = OpenAIServingChat(manager, templates)
        self._loop = asyncio.new_event_loop()

    def request(self, body: str) -> ChatCompletionRequest:
        return ChatCompletionRequest.model_validate(json.loads(body))

    def prompt_ids(self, request: ChatCompletionRequest) -> list[int]:
        return self.chat._process_messages(request, False).prompt_ids

    def detokenized(self, ids: list[int]) -> list[str]:
        raise NotImplementedError("SGLang's detokenizer is not carried")

    def asked(self, request: ChatCompletionRequest, prompt_ids: list[int]) -> Asked:
        request.input_ids = prompt_ids
        self.chat._process_messages(request, False)
        return Asked(
            request,
            bool(self.chat.tool_call_parser and self.chat._effective_tools(request) and request.tool_choice != "none"),
            self.chat.template_manager.force_reasoning or self.chat._get_reasoning_from_request(request),
        )

    def one_shot(self, asked: Asked, output: Output) -> dict:
        (text,) = self._texts(asked, output, [output.ended])
        reasoning, calls = None, None
        if self._separates(asked):
            reasoning, text = self._reasoning_parser(asked, stream=False).parse_non_stream(text)
        if asked.tools:
            calls, text, _ = self.chat._process_tool_calls(
                text,
                self.chat._effective_tools(asked.request),
                dict(output.finish),
                asked.request.tool_choice,
                self.chat._get_history_tool_calls_cnt(asked.request),
            )
        return {
            "content": text or "",
            "reasoning_content": reasoning or None,
            "tool_calls": [{"name": call.function.name, "arguments": call.function.arguments} for call in calls or ()],
        }

    def streamed(self, asked: Asked, output: Output, steps: list[list[int]]) -> dict:
        async def read() -> dict:
            stream = Stream()
            stream.take(_event(role="assistant", content=""))
            async for event in self._events(asked, self._texts(asked, output, steps)):
                stream.take(event)
            return stream.message()

        return self._loop.run_until_complete(read())

    async def _events(self, asked: Asked, texts: list[str]) -> AsyncIterator[str]:
        """Yield what the server sends for the text of each step."""
        reasons = (
            self._reasoning_parser(asked, stream=asked.request.stream_reasoning) if self._separates(asked) else None
        )
        content, parsers, has_calls = {"meta_info": {"id": ""}}, {}, {}
        for number, delta in enumerate(texts, 1):
            last = number == len(texts)
            if reasons:
                parts = [reasons.parse_stream_chunk(delta), *([reasons.parse_stream_end()] if last else [])]
                delta = "".join(normal or "" for _, normal in parts)
                if reasoning := "".join(thought or "" for thought, _ in parts):
                    yield _event(reasoning_content=reasoning)
            if asked.tools:
                called = self.chat._process_tool_call_stream(
                    0, delta, parsers, content, asked.request, has_calls, created=0, flush=last
                )
                async for event in called:
                    yield event
                if last and (
                    rest := self.chat._check_for_unstreamed_tool_args(parsers[0], content, asked.request, 0, 0)
                ):
                    yield rest
            elif delta:
                yield _event(content=delta)

    def _separates(self, asked: Asked) -> bool:
        return bool(self.chat.reasoning_parser and asked.request.separate_reasoning)

    def _reasoning_parser(self, asked: Asked, *, stream: bool) -> ReasoningParser:
        return ReasoningParser(
            self.chat.reasoning_parser,
            stream,
            asked.force_reasoning,
            asked.request,
            tokenizer=self.tokenizer,
            tool_call_parser_active=asked.tools,
        )

    def _texts(self, asked: Asked, output: Output, steps: list[list[int]]) -> list[str]:
        """Return the text of each step, without that of the id that ends the turn."""
        skip = asked.request.skip_special_tokens and not self.keep_special
        last = list(steps[-1])
        if output.stop_id is not None and not (self.chat.tool_call_parser == "gpt-oss" and last[-1] == CALL_END):
            last.pop()
        context = output.prompt_ids[-CONTEXT:]
        return list(texts_of(context, [*steps[:-1], last], partial(self.tokenizer.decode, skip_special_tokens=skip)))


def texts_of(context: list[int], steps: list[list[int]], decode: Callable[[list[int]], str]) -> Iterator[str]:
    """Yield the text of each step after `context`. Of an incomplete character nothing is sent before the last step."""
    ids, start, end = list(context), 0, len(context)
    committed, sent = "", 0
    for number, step in enumerate(steps, 1):
        ids += step
        new = decode(ids[start:])[len(decode(ids[start:end])) :]
        shown = committed + (new if number == len(steps) else printable(new))
        if new and not new.endswith(INCOMPLETE):
            committed, start, end = committed + new, end, len(ids)
        yield shown[sent:]
        sent = len(shown)


def printable(text: str) -> str:
    """Return what may be sent of a text: whole words, where its last character is incomplete."""
    if not text.endswith(INCOMPLETE):
        return text
    if unicodedata.name(text[-2:-1] or " ", "").startswith("CJK "):
        return text[:-1]
    return text[: text.rfind(" ") + 1]


def _event(**delta: str) -> str:
    return build_sse_content(chunk_id="", created=0, model="", index=0, **delta)
