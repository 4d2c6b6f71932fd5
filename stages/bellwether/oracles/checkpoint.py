"""A checkpoint as an oracle: chat template, encoders and stop ids, loaded from a verified snapshot folder."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from jinja2 import TemplateSyntaxError
from transformers import AutoConfig, AutoTokenizer, GenerationConfig, PreTrainedTokenizerBase
from transformers.utils.chat_template_utils import _compile_jinja_template, render_jinja_template

from bellwether.case import sha256_text
from bellwether.errors import OracleError, ParamsError, TemplateTimeout
from bellwether.materials.pins import verify
from bellwether.oracles.clock import READER, fixed_clock
from bellwether.oracles.encoders import Encoder, load_encoders
from bellwether.oracles.limits import time_limit
from bellwether.params import Manifest, Params, require_versions

LIBRARIES = ("transformers", "tokenizers", "jinja2", "pyarrow")
"""What computes a reference or writes its bytes; each has its exact version in params.yaml."""
REASON_CHARACTERS = 500
"""Longest reason stored. Some messages of transformers repeat the whole prompt."""


class TemplateError(Exception):
    """Raised when the chat template, or transformers on its behalf, refuses a request. `str()` is class and message."""


@dataclass(frozen=True, slots=True)
class StopIds:
    """Ids that end a turn."""

    parse: tuple[int, ...]
    """Sorted: those of generation_config.json, or derived from config.json, and the tokenizer's own."""
    generate: tuple[int, ...]
    """What an engine's `generate` stops on by itself."""
    generate_from: str
    """`generation_config.json` or `config.json`."""


@dataclass(frozen=True)
class Checkpoint:
    """Everything a recorder asks of a checkpoint."""

    manifest: Manifest
    params: Params
    tokenizer: PreTrainedTokenizerBase
    encoders: tuple[Encoder, ...]
    stop_ids: StopIds

    def render(
        self,
        messages: list,
        tools: list | None,
        kwargs: Mapping[str, Any],
        *,
        add_generation_prompt: bool,
        continue_final_message: bool = False,
        moment: datetime | None = None,
    ) -> str:
        """Return the prompt text the checkpoint's template writes, by transformers' own `apply_chat_template`.

        The template gets `messages` and `tools` as they are and every key of `kwargs`, and nothing else of a request.
        It sees the fixed clock of params.yaml, or `moment`.

        Raises:
            TemplateError: the template or transformers refuses; that is the reference's answer, not a failure.
            TemplateTimeout, OracleError: the render took too long or too much memory; that is no answer.
        """
        if taken := [key for key in kwargs if key in _NO_VARIABLES]:
            raise TemplateError(f"ValueError: chat_template_kwargs holds {taken[0]!r}, which is no template variable")
        try:
            with fixed_clock(moment or self.params.clock):
                return self.tokenizer.apply_chat_template(
                    messages,
                    tools=tools,
                    tokenize=False,
                    add_generation_prompt=add_generation_prompt,
                    continue_final_message=continue_final_message,
                    **kwargs,
                )
        except TemplateTimeout:
            raise
        except MemoryError:
            raise OracleError(
                f"the chat template of {self.manifest.slug} needs more memory than a recorder may take",
                next_step="Look for a loop that builds an endless string.",
            ) from None
        except Exception as error:  # a template may raise anything, and whatever it raises is its answer
            raise TemplateError(_reason(error)) from error

    @cached_property
    def template(self) -> str:
        """The default chat template's text."""
        return self.tokenizer.get_chat_template(None, None)

    def reads_clock(self, tools: list | None) -> bool:
        """Return whether the template used with `tools` can read the clock at all."""
        return READER in self.tokenizer.get_chat_template(None, tools)

    def differs_at_other_clock(self, text: str, messages: list, tools: list | None, **arguments: Any) -> bool:
        """Return whether a render gives another text than `text`, or none, at the second date of params.yaml."""
        if READER not in self.tokenizer.get_chat_template(None, tools):
            return False
        try:
            return self.render(messages, tools, **arguments, moment=self.params.other_clock) != text
        except TemplateError:
            return True

    @cached_property
    def renders_calls(self) -> bool:
        """Whether the template writes tool calls at all; where it does not, no tool-call case can exist for it.

        One user message, one tool, one call: as it is, with the call renamed, with one more argument. No change in both
        means no. A template that refuses one of them has read it.
        """

        def render(name: str, arguments: dict) -> str:
            call = {"type": "function", "function": {"name": name, "arguments": arguments}}
            turn = {"role": "assistant", "content": "", "tool_calls": [call]}
            tool = {"type": "function", "function": {"name": "probe", "parameters": {"type": "object"}}}
            messages = [{"role": "user", "content": "Probe."}, turn]
            return self.render(messages, [tool], {}, add_generation_prompt=False)

        try:
            plain = render("probe", {"a": "b"})
            return render("other_probe", {"a": "b"}) != plain or render("probe", {"a": "b", "c": "d"}) != plain
        except TemplateError:
            return True

    @cached_property
    def provenance(self) -> dict[str, Any]:
        """What a recording with this checkpoint depended on, in JSON values; equal on every machine."""
        return {
            "checkpoint": self.manifest.slug,
            "model": self.manifest.model,
            "revision": self.manifest.revision,
            "inputs": dict(self.manifest.inputs),
            "oracle": "transformers.apply_chat_template",
            **self.params.versions,
            "tokenizer_class": type(self.tokenizer).__name__,
            "encoders": [encoder.name for encoder in self.encoders],
            "chat_template_sha256": sha256_text(self.template),
            "clock": self.params.clock.isoformat(),
            "other_clock": self.params.other_clock.isoformat() if self.reads_clock(None) else None,
            "stop_ids": list(self.stop_ids.parse),
            "generate_stop_ids": list(self.stop_ids.generate),
            "generate_stop_ids_from": self.stop_ids.generate_from,
        }


def load(manifest: Manifest, params: Params, folder: Path) -> Checkpoint:
    """Return the checkpoint whose snapshot lies in `folder`, after checking every file against its pin.

    Raises:
        VersionMismatch: an oracle library is not at its pinned version.
        PinMismatch, InputUnavailable: the folder is not what the manifest pins.
        OracleError: the folder cannot be loaded, has no chat template, or its stop set is empty.
    """
    if unpinned := [name for name in LIBRARIES if name not in params.versions]:
        raise ParamsError(f"oracle.versions pins no {unpinned[0]}", next_step="Add its version to params.yaml.")
    require_versions(params.versions)
    verify(manifest, folder)
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # vendor files: anything may go wrong in them
        raise OracleError(
            f"transformers cannot load {folder}: {_reason(error)}", next_step="Check the manifest's files."
        ) from error
    if not tokenizer.is_fast:
        raise OracleError(
            f"the tokenizer of {manifest.slug} is the vendor's own code ({type(tokenizer).__name__})",
            next_step="Only checkpoints the tokenizers library can encode are recorded.",
        )
    try:
        tokenizer.get_chat_template(None, None)
    except ValueError:
        raise OracleError(
            f"{manifest.slug} has no chat template", next_step="Take it out of params.yaml, or pin its template."
        ) from None
    _check_clock(params)
    with time_limit(params.template_seconds, f"{manifest.slug}, while it was compiled"):  # constants are folded then
        _check_templates(manifest, tokenizer)
    return Checkpoint(
        manifest=manifest,
        params=params,
        tokenizer=tokenizer,
        encoders=load_encoders(folder, tokenizer.backend_tokenizer),
        stop_ids=stop_ids(manifest, folder, tokenizer.eos_token_id),
    )


def stop_ids(manifest: Manifest, folder: Path, tokenizer_eos: int | None) -> StopIds:
    """Return the stop ids of a snapshot.

    generation_config.json decides; where the checkpoint has none, what transformers' GenerationConfig derives from
    config.json. The tokenizer's eos is added for parsing.

    Raises:
        OracleError: generation_config.json exists but was not obtained, or no id is left.
    """
    if "generation_config.json" in manifest.inputs:
        source = "generation_config.json"
        eos = json.loads((folder / source).read_bytes())["eos_token_id"]
    elif "generation_config.json" in manifest.unreached:
        raise OracleError(
            f"{manifest.slug} has a generation_config.json that was not obtained, so its stop ids are unknown",
            next_step="Pin it under [inputs].",
        )
    else:
        source = "config.json"
        value = json.loads((folder / source).read_bytes())
        if "eos_token_id" in value:  # the five-key narrowing holds what GenerationConfig derived
            eos = value["eos_token_id"]
        else:
            eos = GenerationConfig.from_model_config(AutoConfig.from_pretrained(folder)).eos_token_id
    generate = {eos} if isinstance(eos, int) else set(eos or ())
    parse = generate | ({tokenizer_eos} if tokenizer_eos is not None else set())
    if not parse:
        raise OracleError(
            f"{manifest.slug} has no stop id, so no output of it ever ends",
            next_step="Check generation_config.json, config.json and tokenizer_config.json in its manifest.",
        )
    return StopIds(tuple(sorted(parse)), tuple(sorted(generate)), source)


def _check_clock(params: Params) -> None:
    """transformers keeps its clock in a private place; if that moves, say so instead of recording today's date."""
    probe = "{{ strftime_now('%Y-%m-%dT%H:%M:%S') }}"
    with fixed_clock(params.clock):
        [seen], _ = render_jinja_template(conversations=[[]], chat_template=probe)
    if seen != params.clock.isoformat():
        raise OracleError(
            f"templates see {seen}, not the fixed clock {params.clock.isoformat()}",
            next_step="Adapt oracles/clock.py to the installed transformers.",
        )


def _check_templates(manifest: Manifest, tokenizer: PreTrainedTokenizerBase) -> None:
    """A template that does not compile says nothing about any case."""
    templates = tokenizer.chat_template
    for name, text in templates.items() if isinstance(templates, dict) else [("default", templates)]:
        try:
            _compile_jinja_template(text)
        except TemplateSyntaxError as error:
            raise OracleError(
                f"the {name} chat template of {manifest.slug} does not compile: {_reason(error)}",
                next_step="Check the pinned template.",
            ) from None


def _reason(error: Exception) -> str:
    """Return class and message, without the memory addresses that would make two runs differ."""
    message = re.sub(r"0x[0-9a-f]{6,}", "0x…", f"{type(error).__name__}: {error}")
    return message if len(message) <= REASON_CHARACTERS else message[:REASON_CHARACTERS] + "…"


_NO_VARIABLES = set(inspect.signature(PreTrainedTokenizerBase.apply_chat_template).parameters) - {
    "self",
    "kwargs",
    "documents",
}
"""Parameters of apply_chat_template that a request's chat_template_kwargs could otherwise reach."""
