"""Why a reference gives no result: every code, its class, and the rule behind it.

Class `error`: the reference code itself refuses, the request or the message as a turn. That is evidence.
Class `unproven`: the round trip cannot vouch for the case. Nothing is claimed then, for or against anyone.
No class: the case is not for this checkpoint, so there is nothing to refuse.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

ERROR = "error"
UNPROVEN = "unproven"

CODES = {
    "template-error": (ERROR, "the chat template, or transformers on its behalf, raises: the request has no prompt"),
    "vendor-error": (ERROR, "the vendor's prompt encoder refuses: the request has no prompt"),
    "colliding-variable": (UNPROVEN, "chat_template_kwargs name a parameter of the oracle's own call"),
    "non-text-part": (UNPROVEN, "content is handed over as parts, and a part is no text"),
    "turn-template-error": (ERROR, "the chat template renders the prompt and raises on the message as a turn"),
    "no-generation-prompt": (UNPROVEN, "the request asks for no turn to come"),
    "arguments-not-object": (UNPROVEN, "a call's arguments are no JSON text of an object"),
    "stop-id-in-message": (UNPROVEN, "a string of the message alone encodes to a stop id"),
    "call-not-rendered": (UNPROVEN, "changing a call's name or adding an argument leaves the render as it was"),
    "part-not-rendered": (UNPROVEN, "changing reasoning_content or content leaves the render as it was"),
    "argument-not-rendered": (UNPROVEN, "removing an argument or a null entry leaves the render as it was"),
    "argument-type-not-rendered": (UNPROVEN, "a value of another type with the same text renders the same"),
    "does-not-extend-prompt": (UNPROVEN, "the render with the turn does not begin with the prompt"),
    "no-end-of-turn": (UNPROVEN, "no stop id ends the turn, nor begins the next message"),
    "empty-output": (UNPROVEN, "the turn has no text before its end"),
    "ids-do-not-decode": (UNPROVEN, "decoding the ids of the text gives another text"),
    "pieces-do-not-join": (UNPROVEN, "the incremental decoder's pieces do not join to the text"),
    "tokenizer-error": (ERROR, "the vendor's tokenizer code raises on the text or on the ids"),
    "no-output": (UNPROVEN, "there is no proven output that could be parsed"),
    "response-template-error": (ERROR, "parsing the output by the checkpoint's response template raises"),
    "malformed": (UNPROVEN, "no template writes this output; what a server makes of it is policy"),
    "template-renders-no-calls": (None, "the message has calls, and the template writes none whatever they are"),
    "other-vocabulary": (None, "the case's ids belong to another vocabulary"),
}
"""Code → class and meaning."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A reference that gives no result."""

    code: str
    detail: str = ""

    @property
    def reason_class(self) -> str | None:
        return CODES[self.code][0]


REASON_CHARACTERS = 500
"""Longest reason stored. Some messages of transformers repeat the whole prompt."""


def reason(error: Exception) -> str:
    """Return class and message of an error, without the memory addresses that would make two runs differ."""
    message = re.sub(r"0x[0-9a-f]{6,}", "0x…", f"{type(error).__name__}: {error}")
    return message if len(message) <= REASON_CHARACTERS else message[:REASON_CHARACTERS] + "…"
