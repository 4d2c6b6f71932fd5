"""Every checkpoint in scope on five plain requests: it renders, or refuses for a reason stated here."""

from __future__ import annotations

import json
from functools import cache

import pytest

from bellwether.corpora.handmade import cases
from bellwether.oracles.checkpoint import TemplateError
from bellwether.params import read_params
from support import ROOT, load_checkpoint

SLUGS = [pytest.param(slug, marks=pytest.mark.xdist_group(slug)) for slug in read_params(ROOT).checkpoints]
"""A checkpoint's tests run in one process, which loads it once."""
WITHOUT_TOOLS = {
    "deepseek-r1",
    "deepseek-v3-0324",
    "deepseek-v3.1",
    "gemma-3-it",
    "llama-3-8b-instruct",
    "phi-4",
    "smollm2-135m-instruct",
}
"""Checkpoints whose template writes no declared tools."""
STRING_ARGUMENTS = {"deepseek-r1", "deepseek-v3-0324", "deepseek-v3.1"}
"""Checkpoints whose template takes arguments as a JSON string only."""
REFUSED = {("gemma-3-it", "history"): "roles must alternate"}
"""(checkpoint, request) → what the refusal says."""
HISTORY = "described-turn-arguments-object"
REQUESTS = {
    "plain": ("text-system-user", ["never use a list", "Why is the sky dark at night?"]),
    "tools": ("tools-described-probe", ["Hello."]),
    "history": (HISTORY, ["Remind me."]),
    "reasoning": ("thinking-history-with-reasoning-content", ["What is 17 times 6?", "102", "And plus 9?"]),
    "unicode": ("text-right-to-left", ["كم الساعة؟ ומה שלומך?"]),
}
"""What is asked → the hand-written case, and words of its messages that stand in every prompt."""


@cache
def requests() -> dict[str, dict]:
    return {
        case.name: json.loads(case.request) for case in cases(ROOT / "corpus" / "handmade") if case.kind == "render"
    }


def prompt(slug: str, asked: str) -> tuple[object, dict, str | TemplateError]:
    """Return the checkpoint, the request and the prompt, or why there is none."""
    checkpoint, name = load_checkpoint(slug), REQUESTS[asked][0]
    if asked == "history" and slug in STRING_ARGUMENTS:
        name = HISTORY.replace("object", "string")
    request = requests()[name]
    try:
        return (
            checkpoint,
            request,
            checkpoint.render(request["messages"], request.get("tools"), {}, add_generation_prompt=True),
        )
    except TemplateError as error:
        return checkpoint, request, error


@pytest.mark.parametrize("slug", SLUGS)
@pytest.mark.parametrize("asked", REQUESTS)
def test_checkpoint_renders_what_it_is_asked_or_says_why_not(slug, asked):
    """Words of the messages are in the prompt, declared tools exactly where the template writes tools, and the prompt's
    ids decode to the prompt."""
    checkpoint, _, text = prompt(slug, asked)
    if (slug, asked) in REFUSED:
        assert isinstance(text, TemplateError)
        assert REFUSED[slug, asked] in str(text)
        return
    assert isinstance(text, str), text
    assert [word for word in REQUESTS[asked][1] if word not in text] == []
    tools = {"tools": "zx_described_tool", "history": "What to write"}
    if asked in tools:
        assert (tools[asked] in text) == (slug not in WITHOUT_TOOLS)
    for encoder in checkpoint.encoders:
        (ids,) = encoder.encode([text])
        assert encoder.decode(ids) == text


@pytest.mark.parametrize("slug", SLUGS)
def test_system_message_comes_before_the_user_s(slug):
    """Where the template puts the system's words, they precede the question."""
    _, _, text = prompt(slug, "plain")
    assert text.index("never use a list") < text.index("Why is the sky dark at night?")
