"""SGLang's chat front end without an engine: what the scripts of its releases share. Runs in SGLang's Python, on a CPU.

A script builds the front end of one checkpoint, and this module asks it. Kinds are independent: a request whose prompt
SGLang would refuse to write still has its output parsed, with the prompt given as ids, which SGLang's server takes.

The server skips special tokens where a request has no tools. An option of the manifest has them kept, for tokenizers
whose flags are not the vendor's: one that takes a marker for special would lose it, and that is no word of SGLang's.

An output comes in steps, as from the scheduler. A chunk is a step. The id that ends the turn comes with the last chunk;
where every id comes alone, it does too.
"""

from __future__ import annotations

import datetime
import json
import tempfile
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol

from pydantic import ValidationError
from serve import Refused
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.utils import chat_template_utils

Answer = Callable[[dict], dict]


@dataclass(frozen=True, slots=True)
class Output:
    """An output, and how it ends: `stop_id` is the id that ended the turn, None where it was cut short."""

    prompt_ids: list[int]
    ids: list[int]
    stop_id: int | None

    @property
    def finish(self) -> dict:
        """SGLang's finish reason."""
        if self.stop_id is None:
            return {"type": "length", "length": len(self.ids)}
        return {"type": "stop", "matched": self.stop_id}

    @property
    def ended(self) -> list[int]:
        """All ids the engine has sampled."""
        return [*self.ids, *([] if self.stop_id is None else [self.stop_id])]

    def steps(self, lengths: Iterable[int], *, alone: bool) -> list[list[int]]:
        """Return the ids of each step; the id that ends the turn joins the last one, or stands `alone`."""
        cut, start = [], 0
        for length in lengths:
            cut.append(self.ids[start : start + length])
            start += length
        last = self.ended[len(self.ids) :]
        if not cut or (alone and last):
            return [*cut, last]
        return [*cut[:-1], cut[-1] + last]


class FrontEnd(Protocol):
    """The front end of one checkpoint."""

    tokenizer: Any
    chat: Any
    """SGLang's OpenAIServingChat."""
    added: dict
    """What was added to config.json."""
    keep_special: bool
    """Whether special tokens are kept in texts where the server would skip them."""

    def request(self, body: str) -> Any:
        """Return the request of the server's protocol, read from the body as the server does. Raises what it raises."""

    def prompt_ids(self, request: Any) -> list[int]:
        """Return the prompt."""

    def detokenized(self, ids: list[int]) -> list[str]:
        """Return the text each id adds, special tokens kept."""

    def asked(self, request: Any, prompt_ids: list[int]) -> Any:
        """Return what the server makes of a request whose prompt is given, for any number of outputs."""

    def one_shot(self, asked: Any, output: Output) -> dict:
        """Return the message of an answer that is not streamed."""

    def streamed(self, asked: Any, output: Output, steps: list[list[int]]) -> dict:
        """Return the message a client puts together from a stream."""


def answering(front: FrontEnd, server_errors: Callable[[Exception], Refused | None]) -> Answer:
    """Return what answers questions to `front`.

    `server_errors` tells which exceptions the server answers with a 400.
    """

    def within(measure: Callable[[], Any]) -> Any:
        try:
            return measure()
        except Exception as error:
            refused = server_errors(error)
            if refused is None:
                raise
            raise refused from None

    def outcome(measure: Callable[[], dict]) -> dict:
        try:
            return {"message": within(measure)}
        except Refused as refused:
            return {"refused": {"code": refused.code, "message": str(refused)}}
        except Exception as error:
            return {"failed": {"code": type(error).__name__, "message": str(error)}}

    def request_of(question: dict) -> Any:
        try:
            return front.request(question["request"])
        except (ValidationError, json.JSONDecodeError) as error:  # FastAPI reads the body, and answers 400
            raise Refused("BadRequest", error) from None

    def parsed(question: dict) -> dict[str, dict]:
        output = Output(question["prompt_ids"], question["ids"], question["stop_id"])
        asked = within(lambda: front.asked(request_of(question), output.prompt_ids))
        modes = {"one-shot": outcome(lambda: front.one_shot(asked, output))}
        for name, lengths in question["plans"].items():
            steps = output.steps(lengths, alone=name == "per_token")
            modes[name] = outcome(lambda steps=steps: front.streamed(asked, output, steps))
        return modes

    def answer(question: dict) -> dict:
        match question["kind"]:
            case "render":
                if front.chat.chat_encoding_spec == "kimi_k3":
                    raise RuntimeError("Kimi K3's prompts are written by code of the checkpoint, which is not loaded")
                return {"prompt_ids": within(lambda: front.prompt_ids(request_of(question))), "prompt_text": None}
            case "tokenize":
                return {"ids": front.tokenizer.encode(question["text"], add_special_tokens=False)}
            case "detokenize":
                pieces = front.detokenized(question["ids"])
                return {"text": "".join(pieces), "pieces": pieces}
            case "parse":
                return {"modes": parsed(question)}
        raise ValueError(f"SGLang is not asked for {question['kind']}")

    return answer


class Stream:
    """A message put together from a stream: texts joined per field, calls per index."""

    def __init__(self) -> None:
        self._texts: dict[str, str | None] = {"content": None, "reasoning_content": None}
        self._calls: dict[int, dict[str, str]] = {}

    def take(self, event: str) -> None:
        """Add a server-sent event. Raises Refused for an error the stream reports."""
        data = event.strip().removeprefix("data: ")
        if data == "[DONE]":
            return
        said = json.loads(data)
        if "error" in said:
            raise Refused(said["error"]["type"], said["error"]["message"])
        for choice in said["choices"]:
            delta = choice["delta"]
            for name in self._texts:
                if (more := delta.get(name)) is not None:
                    self._texts[name] = (self._texts[name] or "") + more
            for part in delta.get("tool_calls") or ():
                call = self._calls.setdefault(part["index"], {"name": "", "arguments": ""})
                for name in call:
                    call[name] += part["function"].get(name) or ""

    def message(self) -> dict:
        """Return the message."""
        return self._texts | {"tool_calls": [self._calls[index] for index in sorted(self._calls)]}


def checked_options(settings: dict, tool_parsers: Container[str], reasoning_parsers: Container[str]) -> bool:
    """Check what a manifest says to SGLang, and return whether it asks for special tokens to be kept.

    Raises:
        ValueError: it asks for something else, or for a parser SGLang has not.
    """
    for kind, known in (("tool_parser", tool_parsers), ("reasoning_parser", reasoning_parsers)):
        if settings[kind] is not None and settings[kind] not in known:
            raise ValueError(f"SGLang has no {kind.replace('_', ' ')} {settings[kind]!r}")
    options = settings["options"]
    asked = {name: value for name, value in options.items() if name not in ("tool_parser", "reasoning_parser")}
    if asked not in ({}, {"special_tokens": "kept"}):
        raise ValueError(f"unknown options for SGLang: {asked}; known is special_tokens = 'kept'")
    return bool(asked)


def name_architecture(config: Any) -> dict:
    """Name the architecture in a configuration that has none, as transformers does for the model type.

    Returns:
        What was added.
    """
    if config.architectures:
        return {}
    named = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(config.model_type)
    config.architectures = [named] if isinstance(named, str) else list(named or ())
    return {"architectures": config.architectures}


@contextmanager
def named(model: Path, slug: str) -> Iterator[Path]:
    """Give a path to the checkpoint that names it alone: SGLang looks for names of model families in a path."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / slug
        path.symlink_to(model.resolve(), target_is_directory=True)
        yield path


def facts_of(front: FrontEnd, settings: dict) -> dict:
    """Return what the provenance is to say of a loaded front end, whatever the release."""
    templates = front.chat.template_manager
    return {
        "tokenizer": type(front.tokenizer).__name__,
        "special tokens": "kept" if front.keep_special else "kept or skipped as the server does",
        "added to config.json": front.added,
        "chat encoding": front.chat.chat_encoding_spec,
        "conversation template": templates.chat_template_name,
        "content format": templates.jinja_template_content_format,
        "reasoning": None if templates.reasoning_config is None else repr(templates.reasoning_config),
        "force reasoning": templates.force_reasoning,
        "parsers of the template": [templates.suggested_tool_call_parser, templates.suggested_reasoning_parser],
        **({"clock": settings["clock"]} if settings.get("clock") else {}),
    }


def set_clock(moment: datetime.datetime) -> None:
    """Make templates of this process see `moment`."""

    class Fixed(datetime.datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime.datetime:
            return moment

    chat_template_utils.datetime = Fixed


def versions(*packages: str) -> dict[str, str]:
    """Return package → installed version."""
    return {name: metadata.version(name) for name in packages}
