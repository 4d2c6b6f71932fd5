"""What sources of prompts have in common: the checkpoint's chat template, one of vLLM's examples, or vendor code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

HUB_TEMPLATE = "hf-template"
VENDOR_CODE = "vendor-code"
EXAMPLE_TEMPLATE = "vllm-example"


class TemplateError(Exception):
    """Raised when a source of prompts refuses a request. `str()` is class and message of what it raised."""

    code = "template-error"


class VendorError(TemplateError):
    """Raised when a vendor's encoder refuses a request."""

    code = "vendor-error"


class CollidingVariable(Exception):
    """Raised when chat_template_kwargs name a parameter of the oracle's own call; `str()` is the name."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as its source makes it."""

    text: str | None
    ids: list[int] | None = None
    """Where the source makes ids itself; else they are the encoders'."""
    reads_clock: bool | None = None
    """Whether it differs between the two dates of params.yaml; None where nobody can ask."""


def arguments_of(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a chat request reaches a chat template, as arguments of `Prompts.render`."""
    continues = request.get("continue_final_message", False)
    return {
        "messages": request["messages"],
        "tools": request.get("tools"),
        "kwargs": request.get("chat_template_kwargs") or {},
        "continue_final_message": continues,
        "add_generation_prompt": request.get("add_generation_prompt", not continues),
    }


class Prompts(Protocol):
    """A source of prompts."""

    source: str
    """Its name in the tables and in [authority]."""

    @property
    def renders_calls(self) -> bool:
        """Whether it writes tool calls at all."""

    @property
    def provenance(self) -> Mapping[str, Any]:
        """What its answers depend on, in JSON values."""

    def prompt(self, request: Mapping[str, Any]) -> Prompt:
        """Return the prompt of a chat request. Raises TemplateError, CollidingVariable."""

    def render(
        self, messages: list, tools: list | None, kwargs: Mapping[str, Any], *, add_generation_prompt: bool
    ) -> str:
        """Return the prompt text of messages and tools. Raises TemplateError, CollidingVariable."""


def renders_calls(render: Callable[..., str]) -> bool:
    """Return whether `render` writes tool calls.

    One user message, one tool, one call: as it is, with the call renamed, with one more argument. No change in both
    means no. A source that refuses one of them has read it.
    """

    def probe(name: str, arguments: dict) -> str:
        call = {"type": "function", "function": {"name": name, "arguments": arguments}}
        turn = {"role": "assistant", "content": "", "tool_calls": [call]}
        tool = {"type": "function", "function": {"name": "probe", "parameters": {"type": "object"}}}
        messages = [{"role": "user", "content": "Probe."}, turn]
        return render(messages, [tool], {}, add_generation_prompt=False)

    try:
        plain = probe("probe", {"a": "b"})
        return probe("other_probe", {"a": "b"}) != plain or probe("probe", {"a": "b", "c": "d"}) != plain
    except TemplateError:
        return True
