"""Runs in the environment of vLLM 0.33.0: its front end, asked as `vllm_front_end` says."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import vllm_front_end
from vllm.entrypoints.common.cli_args import make_arg_parser
from vllm.entrypoints.openai.chat_completion.stream_processor import ChatStreamProcessor

COMPARED = (
    "qwen3-8b, deepseek-v3.1 and llama-3.1-8b-instruct: 219 requests each, ids and refusals equal; 551 outputs parsed "
    "whole and 53 in chunks of five ids, messages equal"
)


def load(settings: dict) -> tuple:
    """Return what answers questions about the checkpoint of `settings`, and the facts. See `serve`."""
    return vllm_front_end.load(vllm_front_end.Release("0.33.0", make_arg_parser, stream, COMPARED), settings)


def stream(derenderer, request, prompt_ids: list[int], chunks: list) -> Iterator:
    """Yield what the server sends for each chunk: its own processor of a choice, with a parser of its own."""
    parser = derenderer.parser(
        derenderer.renderer.get_tokenizer(),
        request.tools,
        chat_template_kwargs=derenderer._resolve_chat_template_kwargs(request),
        model_config=derenderer.model_config,
    )
    processor = ChatStreamProcessor(
        request, parser, enable_auto_tools=derenderer.enable_auto_tools, parser_cls=derenderer.parser
    )
    for text, ids, finished in chunks:
        yield processor.step(text, ids, "stop" if finished else None, prompt_ids).delta
