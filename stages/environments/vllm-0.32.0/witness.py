"""Runs in the environment of vLLM 0.32.0: its front end, asked as `vllm_front_end` says."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import vllm_front_end
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionResponseStreamChoice
from vllm.entrypoints.serve.utils.tool_calls_utils import maybe_filter_parallel_tool_calls

COMPARED = (
    "qwen3-8b: 219 requests, ids and refusals equal; 281 outputs parsed whole and 25 in chunks of five ids, messages "
    "equal but for the text of the id that ends the turn, which the derender route of this release leaves in and its "
    "engine does not"
)


def load(settings: dict) -> tuple:
    """Return what answers questions about the checkpoint of `settings`, and the facts. See `serve`."""
    return vllm_front_end.load(vllm_front_end.Release("0.32.0", make_arg_parser, stream, COMPARED), settings)


def stream(derenderer, request, prompt_ids: list[int], chunks: list) -> Iterator:
    """Yield what the server sends for each chunk: what a parser of its own makes of it, filtered as it does."""
    parser = derenderer.parser(
        derenderer.renderer.get_tokenizer(),
        request.tools,
        chat_template_kwargs=derenderer._resolve_chat_template_kwargs(request),
        model_config=derenderer.model_config,
    )
    for text, ids, finished in chunks:
        delta = parser.parse_delta(text, ids, request, prompt_token_ids=prompt_ids, finished=finished)
        if delta is not None:
            choice = ChatCompletionResponseStreamChoice(index=0, delta=delta)
            yield maybe_filter_parallel_tool_calls(choice, request).delta
