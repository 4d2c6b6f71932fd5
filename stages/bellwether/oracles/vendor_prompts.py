"""A vendor's prompt encoder as a source of prompts, and as what writes a turn where there is no chat template."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from bellwether.errors import OracleError
from bellwether.oracles.prompts import Prompt, VendorError, renders_calls
from bellwether.oracles.vendor import VendorEncoder, VendorRefused


class VendorPrompts:
    """Prompts of one vendor encoder. It has a front end of its own, so a request is asked once, as it is."""

    def __init__(self, encoder: VendorEncoder) -> None:
        self.encoder = encoder
        self.source: str = encoder.source
        self.normalisation: str = encoder.normalisation
        self.content_format: str = encoder.content_format

    @cached_property
    def renders_calls(self) -> bool:
        """Whether the encoder writes tool calls at all."""
        return renders_calls(self.render)

    @property
    def provenance(self) -> Mapping[str, Any]:
        """What the encoder's answers depend on."""
        return self.encoder.provenance

    def prompt(self, request: Mapping[str, Any]) -> Prompt:
        """Return the encoder's prompt for a chat request.

        Raises:
            VendorError: the encoder refuses; that is its answer.
            OracleError: no evidence came of it.
        """
        try:
            made = self.encoder.prompt(request)
        except VendorRefused as refused:
            raise VendorError(str(refused)) from refused
        return Prompt(made.text, made.ids)

    def render(
        self, messages: list, tools: list | None, kwargs: Mapping[str, Any], *, add_generation_prompt: bool
    ) -> str:
        """Return the text of the encoder's prompt for messages and tools.

        Raises:
            VendorError: the encoder refuses.
            OracleError: no evidence came of it, or the encoder gives ids without a text.
        """
        request: dict[str, Any] = {"messages": messages, "add_generation_prompt": add_generation_prompt}
        request |= {"tools": tools} if tools is not None else {}
        request |= {"chat_template_kwargs": dict(kwargs)} if kwargs else {}
        text = self.prompt(request).text
        if text is None:
            raise OracleError(f"{self.source} writes no text", next_step="Take roundtrip out of the [authority].")
        return text
