"""A checkpoint as an oracle: chat template, encoders and stop ids, loaded from a verified snapshot folder.

A second reference is the same checkpoint with another template in its own one's place, so it is a Checkpoint too.
"""

from __future__ import annotations

import contextlib
import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateSyntaxError
from transformers import AutoConfig, AutoTokenizer, GenerationConfig, PreTrainedTokenizerBase
from transformers.utils.chat_template_utils import _compile_jinja_template, render_jinja_template

from bellwether.case import sha256_text
from bellwether.errors import OracleError, ParamsError, TemplateTimeout
from bellwether.materials.pins import verify
from bellwether.oracles.clock import READER, fixed_clock
from bellwether.oracles.content_format import detect
from bellwether.oracles.copies import hasten_copies
from bellwether.oracles.difference import ends_at_difference
from bellwether.oracles.encoders import Encoder, load_encoders
from bellwether.oracles.limits import time_limit
from bellwether.oracles.lookups import hasten
from bellwether.oracles.prompts import (
    EXAMPLE_TEMPLATE,
    HUB_TEMPLATE,
    CollidingVariable,
    Prompt,
    Prompts,
    TemplateError,
    arguments_of,
    renders_calls,
)
from bellwether.oracles.refusals import reason
from bellwether.oracles.shared import print_once_per_case
from bellwether.params import Manifest, Params, require_versions

if TYPE_CHECKING:
    from bellwether.oracles.vendor_prompts import VendorPrompts

LIBRARIES = ("transformers", "tokenizers", "jinja2", "pyarrow")
"""What computes a reference or writes its bytes; each has its exact version in params.yaml."""


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
    source: str = HUB_TEMPLATE
    """Whose template `render` uses: `hf-template`, or `vllm-example:<template>`."""
    chat_template: str | None = None
    """A template in the place of the checkpoint's own; None for its own."""
    vllm_commit: str | None = None
    """The vLLM whose documentation names that template for the checkpoint."""
    seconds: tuple[Checkpoint, ...] = ()
    """The checkpoint once more per second reference, for requests with tools."""
    vendors: Mapping[str, VendorPrompts] = field(default_factory=dict)
    """Source → the vendor's prompt encoder, for every `vendor-code` source of [authority]."""

    def with_template(self, name: str, text: str, vllm_commit: str) -> Checkpoint:
        """Return this checkpoint as a second reference: with vLLM's example template `name` in its own one's place.

        Raises:
            OracleError: the template does not compile.
        """
        with time_limit(self.params.template_seconds, f"{name}, while it was compiled"):
            _check_template(f"the example chat template {name}", text)
        source = f"{EXAMPLE_TEMPLATE}:{name}"
        return replace(self, source=source, chat_template=text, vllm_commit=vllm_commit, seconds=(), vendors={})

    @property
    def writer(self) -> Prompts:
        """What writes the turns of a round trip: the chat template where it is a source, else the vendor's encoder."""
        if self.chat_template is not None or HUB_TEMPLATE in self.manifest.authority["render"]:
            return self
        return self.vendors[self.manifest.authority["render"][0]]

    def prompt(self, request: Mapping[str, Any]) -> Prompt:
        """Return the prompt the template writes for a chat request, and whether it reads the clock.

        Raises:
            TemplateError, CollidingVariable, TemplateTimeout, OracleError: see `render`.
        """
        arguments = arguments_of(request)
        text = self.render(**arguments)
        return Prompt(text, reads_clock=self.differs_at_other_clock(text, **arguments))

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
            CollidingVariable: a key of `kwargs` is a parameter of apply_chat_template, so it reaches no template.
            TemplateTimeout, OracleError: the render took too long or too much memory; that is no answer.
        """
        if taken := [key for key in kwargs if key in _NO_VARIABLES]:
            raise CollidingVariable(taken[0])
        try:
            with fixed_clock(moment or self.params.clock):
                return self.tokenizer.apply_chat_template(
                    messages,
                    tools=tools,
                    chat_template=self.chat_template,
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
            raise TemplateError(reason(error)) from error

    @cached_property
    def template(self) -> str | None:
        """The default chat template's text; None where the prompt is made by a vendor's code and there is none."""
        if self.chat_template is None and not self.tokenizer.chat_template:
            return None
        return self.tokenizer.get_chat_template(self.chat_template, None)

    def content_format(self, tools: list | None) -> str:
        """Return the form of message.content the template used with `tools` is written for."""
        return detect(self.tokenizer.get_chat_template(self.chat_template, tools))

    def reads_clock(self, tools: list | None) -> bool:
        """Return whether the template used with `tools` can read the clock at all."""
        return READER in self.tokenizer.get_chat_template(self.chat_template, tools)

    def differs_at_other_clock(self, text: str, messages: list, tools: list | None, **arguments: Any) -> bool:
        """Return whether a render gives another text than `text`, or none, at the second date of params.yaml."""
        if not self.reads_clock(tools):
            return False
        template = _compile_jinja_template(self.tokenizer.get_chat_template(self.chat_template, tools))
        edited = arguments.get("continue_final_message")  # then `text` is not what the template wrote
        try:
            with contextlib.nullcontext() if edited else ends_at_difference(template, text):
                return self.render(messages, tools, **arguments, moment=self.params.other_clock) != text
        except TemplateError:
            return True

    @cached_property
    def renders_calls(self) -> bool:
        """Whether the template writes tool calls at all; where it does not, no tool-call case can exist for it."""
        return renders_calls(self.render)

    @cached_property
    def provenance(self) -> dict[str, Any]:
        """What a recording with this checkpoint depended on, in JSON values; equal on every machine."""
        deciding = self.manifest.authority["render"]
        template = self.template if HUB_TEMPLATE in deciding else None
        return {
            "checkpoint": self.manifest.slug,
            "model": self.manifest.model,
            "revision": self.manifest.revision,
            "inputs": dict(self.manifest.inputs),
            "authority": {kind: list(sources) for kind, sources in self.manifest.authority.items()},
            "oracle": "transformers.apply_chat_template" if template else deciding[0],
            **self.params.versions,
            "tokenizer_class": type(self.tokenizer).__name__,
            "encoders": [encoder.name for encoder in self.encoders],
            "encode": {encoder.name: encoder.proof.way for encoder in self.encoders},
            "chat_template_sha256": sha256_text(template) if template else None,
            "content_format": self.content_format(None) if template else None,
            "clock": self.params.clock.isoformat(),
            "other_clock": self.params.other_clock.isoformat() if template and self.reads_clock(None) else None,
            "stop_ids": list(self.stop_ids.parse),
            "generate_stop_ids": list(self.stop_ids.generate),
            "generate_stop_ids_from": self.stop_ids.generate_from,
            "second_references": {
                second.source: {
                    "vllm_commit": second.vllm_commit,
                    "chat_template_sha256": sha256_text(second.template),
                    "content_format": second.content_format(None),
                    "renders_calls": second.renders_calls,
                }
                for second in self.seconds
            },
            "vendor_code": {source: dict(prompts.provenance) for source, prompts in self.vendors.items()},
        }


def load(manifest: Manifest, params: Params, folder: Path) -> Checkpoint:
    """Return the checkpoint whose snapshot lies in `folder`, after checking every file against its pin.

    Raises:
        VersionMismatch: an oracle library is not at its pinned version.
        PinMismatch, InputUnavailable: the folder is not what the manifest pins.
        OracleError: the folder cannot be loaded, its stop set is empty, or it has no chat template although that is a
            source of its prompts, or no response template although that reads its outputs.
    """
    if unpinned := [name for name in LIBRARIES if name not in params.versions]:
        raise ParamsError(f"oracle.versions pins no {unpinned[0]}", next_step="Add its version to params.yaml.")
    require_versions(params.versions)
    verify(manifest, folder)
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # vendor files: anything may go wrong in them
        raise OracleError(
            f"transformers cannot load {folder}: {reason(error)}", next_step="Check the manifest's files."
        ) from error
    if not tokenizer.is_fast:
        raise OracleError(
            f"the tokenizer of {manifest.slug} is the vendor's own code ({type(tokenizer).__name__})",
            next_step="Only checkpoints the tokenizers library can encode are recorded.",
        )
    if HUB_TEMPLATE in manifest.authority["render"]:
        try:
            tokenizer.get_chat_template(None, None)
        except ValueError:
            raise OracleError(
                f"{manifest.slug} has no chat template",
                next_step="Take hf-template out of its [authority], or pin its template.",
            ) from None
    if "response-template" in manifest.authority["parse"] and getattr(tokenizer, "response_template", None) is None:
        raise OracleError(
            f"{manifest.slug} has no response template", next_step="Take response-template out of its [authority]."
        )
    _check_clock(params)
    hasten_copies()
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
    templates = tokenizer.chat_template or {}
    for name, text in templates.items() if isinstance(templates, dict) else [("default", templates)]:
        _check_template(f"the {name} chat template of {manifest.slug}", text)


def _check_template(what: str, text: str) -> None:
    """A template that does not compile says nothing about any case."""
    try:
        environment = _compile_jinja_template(text).environment
        hasten(environment)
        print_once_per_case(environment)
    except TemplateSyntaxError as error:
        raise OracleError(f"{what} does not compile: {reason(error)}", next_step="Check the pinned template.") from None


_NO_VARIABLES = set(inspect.signature(PreTrainedTokenizerBase.apply_chat_template).parameters) - {
    "self",
    "kwargs",
    "documents",
}
"""Parameters of apply_chat_template that a request's chat_template_kwargs could otherwise reach."""
