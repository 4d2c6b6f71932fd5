"""Runs in the environment of SGLang 0.5.23: its chat front end, without a scheduler and without a model.

The handlers are those of its HTTP server, and get a tokenizer manager of ours: it holds what they read, and its
`generate_request` gives the output at hand, in steps, through the detokenizer manager's own incremental rule.

| what SGLang is told | why |
|---|---|
| a server's options as given, not resolved | resolving looks for a device, and chooses kernels and memory only |
| no images | a prompt of text is what is asked for |
"""

from __future__ import annotations

import asyncio
import datetime
import functools
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import no_vision  # noqa: F401  before SGLang
import orjson
import sglang
import sglang_front_end
from fastapi import HTTPException
from jsonschema import Draft202012Validator
from serve import Refused
from sglang.srt.entrypoints.openai import serving_chat
from sglang.srt.entrypoints.openai.encoding_dsv32 import DS32EncodingError
from sglang.srt.entrypoints.openai.protocol import ChatCompletionRequest
from sglang.srt.function_call.function_call_parser import FunctionCallParser
from sglang.srt.managers.detokenizer_manager import DetokenizerManager
from sglang.srt.managers.schedule_batch import INIT_INCREMENTAL_DETOKENIZATION_OFFSET as CONTEXT
from sglang.srt.parser.reasoning_parser import ReasoningParser
from sglang.srt.parser.response_template import tool_close_token_ids
from sglang.srt.parser.template_manager import TemplateManager
from sglang.srt.runtime_context import get_context, publish
from sglang.srt.server_args import ServerArgs
from sglang.srt.utils.hf_transformers_utils import get_config, get_tokenizer
from sglang_front_end import Output, Stream

VERSION = "0.5.23"


def load(settings: dict) -> tuple:
    """Return what answers questions about the checkpoint of `settings`, and the facts. See `serve`.

    Raises:
        ValueError: another release is installed, an option is not known, or SGLang cannot load a file of the
            checkpoint.
    """
    if sglang.__version__ != VERSION:
        raise ValueError(f"SGLang {VERSION} is expected, and {sglang.__version__} is installed")
    keep_special = sglang_front_end.checked_options(
        settings, FunctionCallParser.ToolCallParserEnum, ReasoningParser.DetectorMap
    )
    if settings.get("clock"):
        sglang_front_end.set_clock(datetime.datetime.fromisoformat(settings["clock"]))
    with sglang_front_end.named(Path(settings["model"]), settings["slug"]) as folder:
        front = Front(folder, settings["tool_parser"], settings["reasoning_parser"], keep_special)
    facts = {
        "versions": sglang_front_end.versions("torch", "transformers", "tokenizers"),
        "render": "OpenAIServingChat of the HTTP server, a harness-built TokenizerManager",
        "parse": "OpenAIServingChat, whole and streamed, given the prompt's ids",
        "detokenize": "the incremental rule of DetokenizerManager, special tokens kept",
        **sglang_front_end.facts_of(front, settings),
    }
    return sglang_front_end.answering(front, refused_by_server), facts


def refused_by_server(error: Exception) -> Refused | None:
    """Return what SGLang's handler of requests answers to an exception, if that is a 400."""
    match error:
        case Refused():
            return error
        case HTTPException() if error.status_code == 400:
            return Refused(error.status_code, error.detail)
        case ValueError() | DS32EncodingError():
            return Refused("BadRequest", error)
    return None


@dataclass(frozen=True, slots=True)
class Asked:
    """A request past the server's checks, and what it makes of it for the engine."""

    request: ChatCompletionRequest
    adapted: Any


class Schemas:
    """Checks schemas as the server does, each once: the same tools come with many requests, at a millisecond each."""

    @staticmethod
    def check_schema(schema: Any) -> None:
        """Raise what the server's validator raises."""
        _check_schema(json.dumps(schema))


@functools.lru_cache(maxsize=4096)
def _check_schema(schema: str) -> None:
    Draft202012Validator.check_schema(json.loads(schema))


class Front:
    """The handler of chat requests for one checkpoint, and what stands for the engine behind it."""

    def __init__(self, folder: Path, tool_parser: str | None, reasoning_parser: str | None, keep_special: bool) -> None:
        self.keep_special = keep_special
        args = ServerArgs(
            model_path=str(folder), device="cpu", tool_call_parser=tool_parser, reasoning_parser=reasoning_parser
        )
        args._resolution_finished = True
        publish(args, role="tokenizer")
        self.tokenizer = get_tokenizer(str(folder))
        config = get_config(str(folder), trust_remote_code=False)
        self.added = sglang_front_end.name_architecture(config)
        self._loop = asyncio.new_event_loop()
        self._manager = SimpleNamespace(
            tokenizer=self.tokenizer,
            processor=None,
            model_config=SimpleNamespace(
                hf_config=config, is_multimodal=False, context_len=None, get_default_sampling_params=dict
            ),
            server_args=args,
            model_path=str(folder),
            served_model_name=folder.name,
            config_value=lambda name: get_context().config_leaf(name),
        )
        templates = TemplateManager()
        templates.initialize_templates(self._manager, str(folder))
        serving_chat.Draft202012Validator = Schemas
        self.chat = serving_chat.OpenAIServingChat(self._manager, templates)
        self._detokenizer = detokenizer(self.tokenizer, tool_parser)

    def request(self, body: str) -> ChatCompletionRequest:
        # so the server: an integer beyond 64 bits becomes a float
        return ChatCompletionRequest.model_validate(orjson.loads(body))

    def prompt_ids(self, request: ChatCompletionRequest) -> list[int]:
        return self._converted(request).input_ids

    def detokenized(self, ids: list[int]) -> list[str]:
        steps = [[token] for token in ids]
        ended = {"type": "length", "length": len(ids)}
        return self._texts([], steps, ended, skip_special_tokens=False, spaces_between_special_tokens=True)

    def asked(self, request: ChatCompletionRequest, prompt_ids: list[int]) -> Asked:
        request.input_ids = prompt_ids
        request.logprobs = False  # an output is given without
        return Asked(request, self._converted(request))

    def one_shot(self, asked: Asked, output: Output) -> dict:
        contents = self._contents(asked.adapted, output, [output.ended])
        response = self.chat._build_chat_response(asked.request, contents, 0)
        if not hasattr(response, "choices"):
            error = json.loads(response.body)
            raise RuntimeError(f"{error['code']} {error['type']}: {error['message']}")
        message = response.choices[0].message
        return {
            "content": message.content,
            "reasoning_content": message.reasoning_content,
            "tool_calls": [
                {"name": call.function.name, "arguments": call.function.arguments} for call in message.tool_calls or ()
            ],
        }

    def streamed(self, asked: Asked, output: Output, steps: list[list[int]]) -> dict:
        contents = self._contents(asked.adapted, output, steps)

        async def generate_request(*_: object) -> AsyncIterator[dict]:
            for content in contents:
                yield content

        async def read() -> dict:
            stream = Stream()
            async for event in self.chat._generate_chat_stream(asked.adapted, asked.request, None):
                stream.take(event)
            return stream.message()

        self._manager.generate_request = generate_request
        return self._loop.run_until_complete(read())

    def _converted(self, request: ChatCompletionRequest) -> Any:
        """Return the engine's request, past the checks of the server. Raises Refused when one says no."""
        if said := self.chat._validate_request(request):
            raise Refused("BadRequestError", said)
        return self.chat._convert_to_internal_request(request)[0]

    def _contents(self, adapted: Any, output: Output, steps: list[list[int]]) -> list[dict]:
        """Return what the tokenizer manager hands over per step: all text and all ids so far."""
        params = adapted.sampling_params
        texts = self._texts(
            output.prompt_ids,
            steps,
            output.finish,
            skip_special_tokens=params["skip_special_tokens"] and not self.keep_special,
            spaces_between_special_tokens=params["spaces_between_special_tokens"],
            no_stop_trim=params["no_stop_trim"],
        )
        text, ids, contents = "", [], []
        for number, (piece, step) in enumerate(zip(texts, steps, strict=True), 1):
            text, ids = text + piece, ids + step
            meta = {"id": "", "prompt_tokens": len(output.prompt_ids), "completion_tokens": len(ids)}
            meta |= {"finish_reason": dict(output.finish) if number == len(steps) else None, "weight_version": ""}
            contents.append({"index": 0, "text": text, "output_ids": ids, "meta_info": meta})
        return contents

    def _texts(
        self,
        prompt_ids: list[int],
        steps: list[list[int]],
        finish: dict,
        *,
        skip_special_tokens: bool,
        spaces_between_special_tokens: bool,
        no_stop_trim: bool = False,
    ) -> list[str]:
        """Return the text of each step, as the detokenizer sends it. The last one ends the output."""
        context = prompt_ids[-CONTEXT:]
        self._detokenizer.decode_status.clear()
        texts = []
        for number, step in enumerate(steps, 1):
            batch = SimpleNamespace(
                rids=[""],
                decoded_texts=[""],
                decode_ids=[step if texts else context + step],
                read_offsets=[len(context)],
                finished_reasons=[finish if number == len(steps) else None],
                no_stop_trim=[no_stop_trim],
                skip_special_tokens=[skip_special_tokens],
                spaces_between_special_tokens=[spaces_between_special_tokens],
            )
            texts += self._detokenizer._decode_batch_token_id_output(batch)
        return texts


def detokenizer(tokenizer: Any, tool_parser: str | None) -> DetokenizerManager:
    """Return a detokenizer manager without sockets."""
    manager = DetokenizerManager.__new__(DetokenizerManager)
    manager.tokenizer, manager.vocab_size = tokenizer, len(tokenizer)
    manager.decode_status = {}
    manager.disable_tokenizer_batch_decode = False
    manager.is_tool_call_parser_gpt_oss = tool_parser == "gpt-oss"
    manager.tool_close_token_ids = tool_close_token_ids(tool_parser, tokenizer)
    return manager
