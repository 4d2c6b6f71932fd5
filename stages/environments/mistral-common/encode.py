"""Runs inside the sandbox: mistral-common's tokenizer, asked as vLLM's tokenizer and transformers' backend ask it."""

from __future__ import annotations

from mistral_common.protocol.instruct.request import ChatCompletionRequest, ReasoningEffort
from mistral_common.protocol.instruct.validator import ValidationMode
from mistral_common.tokens.tokenizers.base import SpecialTokenPolicy
from mistral_common.tokens.tokenizers.mistral import MistralTokenizer


def start(settings: dict) -> tuple:
    """Load the tokenizer file `settings["file"]`; facts are the efforts the library knows."""
    tokenizer = MistralTokenizer.from_file(settings["file"], mode=ValidationMode.test)
    version = int(tokenizer.instruct_tokenizer.tokenizer.version.value.split("v")[-1])

    def answer(request: dict) -> dict:
        effort = {"reasoning_effort": request["reasoning_effort"]} if version >= 15 else {}
        chat = ChatCompletionRequest.from_openai(
            messages=[parts_with_a_type(message) for message in request["messages"]],
            tools=request["tools"],
            continue_final_message=request["continue_final_message"],
            **effort,
        )
        ids = tokenizer.encode_chat_completion(chat).tokens
        return {"text": tokenizer.decode(ids, special_token_policy=SpecialTokenPolicy.KEEP), "ids": ids}

    return answer, {"efforts": [effort.value for effort in ReasoningEffort]}


def parts_with_a_type(message: dict) -> dict:
    """Return `message` without parts that name no type; content that is empty or a string stays as it is."""
    content = message.get("content")
    if not content or isinstance(content, str):
        return message
    return {**message, "content": [part for part in content if part.get("type")]}
