"""The parse reference. It proves that an engine output and a message belong together, by writing the output itself.

The claim: the checkpoint's template, given the message as the assistant's turn, writes exactly this output. Each rule
below guards one way in which that could be an accident: a part the template drops, a call it ignores, a number and a
text that print alike. A rule that is not met refuses the case with its code (`oracles/refusals.py`); the first one met
wins.

Order: generation prompt asked for → prompt renders → arguments are objects → no stop id in the message → turn renders →
calls → parts → arguments → types → turn extends the prompt → end of turn → ids decode → pieces join.
"""

from __future__ import annotations

import ast
import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from bellwether.oracles.content_format import STRING
from bellwether.oracles.encoders import Encoder, without_unicode_forms
from bellwether.oracles.normalisation import as_vllm, normalised
from bellwether.oracles.prompts import CollidingVariable, Prompt, Prompts, TemplateError
from bellwether.oracles.refusals import Refusal

MARKER = "bellwether_marker"


class Refused(Exception):
    """Raised when a rule refuses; carries the Refusal."""

    def __init__(self, code: str, detail: str = "") -> None:
        super().__init__(code)
        self.refusal = Refusal(code, detail)


@dataclass(frozen=True, slots=True)
class Output:
    """A proven engine output."""

    text: str
    """The turn up to its end, without the stop id."""
    ids: list[int]
    """Ids of `text`, encoded in isolation; not the ids a model sampled in context."""
    piece_ends: list[int]
    """Per id, where its streamed piece ends in `text`, in characters."""
    stop_id: int
    found_by: str
    """`turn`, or `next-message` when only the following message begins with the stop id."""
    finish_reason: str


class RoundTrip:
    """The round trip of one case. Renders are shared by all encoders; `prove` runs the rules for one.

    Messages are normalised as vLLM does, and their content is handed over as sent: existing references of outputs were
    made so, and templates that loop over parts write the turn of a single part as they write that of its text.
    """

    def __init__(self, writer: Prompts, request: Mapping[str, Any], message: Mapping[str, Any]) -> None:
        self.writer = writer
        self.request = request
        self.message = message
        self.tools = request.get("tools")
        self.kwargs = request.get("chat_template_kwargs") or {}
        self.history = as_vllm(request["messages"], STRING)

    @property
    def prompt(self) -> str:
        """The text of the prompt the turn answers. Raises Refused."""
        return self.made.text

    @cached_property
    def made(self) -> Prompt:
        """The prompt the turn answers. Raises Refused: the request asks for no turn, or has no prompt."""
        if self.request.get("add_generation_prompt") is False or self.request.get("continue_final_message"):
            raise Refused("no-generation-prompt")
        try:
            return self.writer.prompt({**self.request, "messages": self.history, "add_generation_prompt": True})
        except CollidingVariable as error:
            raise Refused("colliding-variable", str(error)) from error
        except TemplateError as error:
            raise Refused(error.code, str(error)) from error

    @cached_property
    def turn(self) -> dict[str, Any]:
        """The message as the template gets it. Raises Refused (`arguments-not-object`)."""
        for place, call in enumerate(self.message.get("tool_calls") or ()):
            arguments = call["function"].get("arguments")
            if not isinstance(arguments, str) or not is_object_text(arguments):
                raise Refused("arguments-not-object", f"call {place}")
        return normalised({"role": "assistant", **self.message})

    @cached_property
    def rendered(self) -> str:
        """Prompt and turn, when every part of the message shows in it and it extends the prompt. Raises Refused."""
        try:
            rendered = self._render(self.turn)
        except TemplateError as error:
            raise Refused("turn-template-error", str(error)) from error
        for code, detail, changed in _changes(self.turn, self.tools):
            if self._unread(changed, rendered):
                raise Refused(code, detail)
        if not rendered.startswith(self.prompt):
            raise Refused("does-not-extend-prompt")
        return rendered

    @cached_property
    def with_next_message(self) -> str | None:
        """Prompt, turn and the message that follows it, or None when the template refuses that."""
        calls = self.turn.get("tool_calls") or ()
        following = [{"role": "tool", "name": call["function"]["name"], "content": "{}"} for call in calls]
        try:
            return self._render(self.turn, *(following or [{"role": "user", "content": "Thanks."}]))
        except TemplateError:
            return None

    def prove(self, encoder: Encoder, stop_ids: frozenset[int]) -> Output | Refusal:
        """Return the proven output under `encoder`, or the first rule that refuses it."""
        try:
            prompt, turn = self.prompt, self.turn
            _refuse_stop_ids(encoder, stop_ids, list(_strings(turn)))
            text, stop_id, found_by = self._end_of_turn(encoder, stop_ids, self.rendered[len(prompt) :])
            if not text:
                raise Refused("empty-output")
            encoder, ids = _faithful(encoder, text)
            return Output(
                text=text,
                ids=ids,
                piece_ends=_piece_ends(encoder, ids, text),
                stop_id=stop_id,
                found_by=found_by,
                finish_reason="tool_calls" if self.message.get("tool_calls") else "stop",
            )
        except Refused as refused:
            return refused.refusal

    def _render(self, *turns: dict[str, Any]) -> str:
        return self.writer.render([*self.history, *turns], self.tools, self.kwargs, add_generation_prompt=False)

    def _unread(self, changed: dict[str, Any], rendered: str) -> bool:
        """Return whether the template writes the same for another message. An error counts as having read it."""
        try:
            return self._render(changed) == rendered
        except TemplateError:
            return False

    def _end_of_turn(self, encoder: Encoder, stop_ids: frozenset[int], turn: str) -> tuple[str, int, str]:
        """Return the output's text, the stop id, and whether the turn or the next message holds it."""
        ids, offsets = encoder.encode_with_offsets(turn)
        for place, token_id in enumerate(ids):
            if token_id in stop_ids:
                for later, (start, end) in zip(ids[place + 1 :], offsets[place + 1 :], strict=True):
                    if later not in stop_ids and turn[start:end].strip():
                        raise Refused("no-end-of-turn", f"{turn[start:end]!r} follows stop id {token_id}")
                return turn[: offsets[place][0]], token_id, "turn"
        following = self.with_next_message
        if following is not None and following.startswith(self.rendered):
            ids, offsets = encoder.encode_with_offsets(following[len(self.prompt) :])
            for token_id, (start, _) in zip(ids, offsets, strict=True):
                if start == len(turn) and token_id in stop_ids:
                    return turn, token_id, "next-message"
        raise Refused("no-end-of-turn")


def _refuse_stop_ids(encoder: Encoder, stop_ids: frozenset[int], strings: list[str]) -> None:
    for text, ids in zip(strings, encoder.encode(strings), strict=True):
        if not stop_ids.isdisjoint(ids):
            raise Refused("stop-id-in-message", json.dumps(text[:80], ensure_ascii=False))


def is_object_text(arguments: str) -> bool:
    """Return whether `arguments` is the JSON text of an object whose strings have a UTF-8 spelling."""
    try:
        value = json.loads(arguments)
        return isinstance(value, dict) and all(text.isascii() or text.encode() is not None for text in _strings(value))
    except (ValueError, RecursionError):  # UnicodeEncodeError is a ValueError; nesting may be endless
        return False


def _strings(value: Any) -> Iterator[str]:
    """Yield every string of a JSON value, object keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield key
            yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)


def _changes(turn: dict[str, Any], tools: list | None) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield `(code, detail, changed message)` for every change that has to show in the render, in rule order."""
    yield from _call_changes(turn)
    yield from _part_changes(turn)
    yield from _argument_changes(turn)
    yield from _type_changes(turn, tools)


def _calls(turn: Mapping[str, Any]) -> list[dict[str, Any]]:
    return turn.get("tool_calls") or []


def _with_call(turn: dict[str, Any], place: int, **changes: Any) -> dict[str, Any]:
    """Return `turn` with `changes` made to the function of the call at `place`."""
    calls = list(_calls(turn))
    calls[place] = {**calls[place], "function": {**calls[place]["function"], **changes}}
    return {**turn, "tool_calls": calls}


def _call_changes(turn: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for place, call in enumerate(_calls(turn)):
        function = call["function"]
        yield "call-not-rendered", f"call {place}", _with_call(turn, place, name=f"{function['name']}_{MARKER}")
        yield (
            "call-not-rendered",
            f"arguments of call {place}",
            _with_call(turn, place, arguments={**function["arguments"], MARKER: MARKER}),
        )


def _part_changes(turn: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for part in ("reasoning_content", "content"):
        text = turn.get(part)
        if isinstance(text, str) and text:
            yield "part-not-rendered", part, {**turn, part: text + MARKER}


def _argument_changes(turn: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for place, call in enumerate(_calls(turn)):
        arguments = call["function"]["arguments"]
        for name in arguments:
            rest = {key: value for key, value in arguments.items() if key != name}
            yield "argument-not-rendered", f"{name} of call {place}", _with_call(turn, place, arguments=rest)
        for name, value in arguments.items():
            for path, without in _without_nulls(value):
                detail = ".".join((name, *path)) + f" of call {place}"
                yield "argument-not-rendered", detail, _with_call(turn, place, arguments={**arguments, name: without})


def _without_nulls(value: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield `(path, copy of value)` for every object entry that is null, with that one entry removed."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if inner is None:
                yield (key,), {other: kept for other, kept in value.items() if other != key}
            for path, changed in _without_nulls(inner):
                yield (key, *path), {**value, key: changed}
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            for path, changed in _without_nulls(inner):
                yield (str(place), *path), [*value[:place], changed, *value[place + 1 :]]


def _type_changes(turn: dict[str, Any], tools: list | None) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for place, call in enumerate(_calls(turn)):
        arguments = call["function"]["arguments"]
        for name, value in arguments.items():
            declared = declared_types(tools, call["function"]["name"], name)
            for other in other_types(value, declared):
                detail = f"{name} of call {place}: {json.dumps(value, ensure_ascii=False)} as {other!r}"[:200]
                yield (
                    "argument-type-not-rendered",
                    detail,
                    _with_call(turn, place, arguments={**arguments, name: other}),
                )


def declared_types(tools: list | None, function: str, parameter: str) -> frozenset[str] | None:
    """Return the JSON Schema types the first tool named `function` declares for `parameter`; None when undeclared."""
    for tool in tools or ():
        declaration = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(declaration, dict) or declaration.get("name") != function:
            continue
        node: Any = declaration
        for key in ("parameters", "properties", parameter, "type"):
            node = node.get(key) if isinstance(node, dict) else None
        if isinstance(node, str):
            return frozenset({node})
        if isinstance(node, list) and node and all(isinstance(one, str) for one in node):
            return frozenset(node)
        return None
    return None


def types_of(value: Any) -> frozenset[str]:
    """Return the JSON Schema types that admit `value`. An integer is a number too."""
    if value is None:
        return frozenset({"null"})
    if isinstance(value, bool):
        return frozenset({"boolean"})
    if isinstance(value, int):
        return frozenset({"integer", "number"})
    if isinstance(value, float):
        return frozenset({"number"})
    if isinstance(value, str):
        return frozenset({"string"})
    return frozenset({"array" if isinstance(value, list) else "object"})


def other_types(value: Any, declared: frozenset[str] | None) -> Iterator[Any]:
    """Yield the values of another type that a template printing bare text would write the same way as `value`.

    A parser that knows the declared type can tell some of them apart, so those are no doubt.
    """
    if value is None and declared != {"string"}:
        yield "None"
        return
    if declared is not None and declared & types_of(value):
        if isinstance(value, str) and len(declared) > 1:
            with contextlib.suppress(ValueError, RecursionError):
                reading = json.loads(value)
                if not isinstance(reading, str) and declared & types_of(reading):
                    yield reading
        return
    if not isinstance(value, str):
        texts = (json.dumps(value), json.dumps(value, ensure_ascii=False), str(value))
        yield from dict.fromkeys(texts)
        return
    with contextlib.suppress(ValueError, RecursionError):
        reading = json.loads(value)
        if not isinstance(reading, str):
            yield reading
    if declared is None and value in ("True", "False", "None"):
        yield ast.literal_eval(value)


def _faithful(encoder: Encoder, text: str) -> tuple[Encoder, list[int]]:
    """Return an encoder under which the ids of `text` decode to `text`, and the ids.

    Raises:
        Refused: `ids-do-not-decode`, also without the Unicode forms of the normalizer.
    """
    [ids] = encoder.encode([text])
    if encoder.decode(ids) == text:
        return encoder, ids
    plain = without_unicode_forms(encoder)
    if plain is not None:
        [ids] = plain.encode([text])
        if plain.decode(ids) == text:
            return plain, ids
    raise Refused("ids-do-not-decode")


def _piece_ends(encoder: Encoder, ids: list[int], text: str) -> list[int]:
    """Return where each streamed piece ends in `text`. Raises Refused (`pieces-do-not-join`)."""
    ends = piece_ends(encoder.pieces(ids), text)
    if ends is None:
        raise Refused("pieces-do-not-join")
    return ends


def piece_ends(pieces: list[str], text: str) -> list[int] | None:
    """Return the running length of `pieces` in characters, or None when they do not join to `text`."""
    if "".join(pieces) != text:
        return None
    ends, end = [], 0
    for piece in pieces:
        end += len(piece)
        ends.append(end)
    return ends
