"""A tokenizer that is the vendor's own Python code, in a sandbox, in the place of a checkpoint for the oracles."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from bellwether.case import sha256_text
from bellwether.environments import environment
from bellwether.errors import OracleError, VersionMismatch
from bellwether.oracles.content_format import STRING, detect
from bellwether.oracles.prompts import HUB_TEMPLATE, CollidingVariable, Prompt, TemplateError, arguments_of
from bellwether.oracles.refusals import REASON_CHARACTERS
from bellwether.oracles.vendor.encoder import LARGEST_ID, OFFLINE, script
from bellwether.params import Manifest, Params
from bellwether.sandbox import MECHANISMS, Inside, Limits, Refused, Sandbox

ENVIRONMENT = "vendor-tokenizer"
LIBRARIES = ("transformers", "tokenizers", "jinja2")
"""What of the environment computes a reference, and stands in params.yaml as well."""
CLASS = re.compile(r"(?:.*--)?([A-Za-z_][A-Za-z0-9_]*)\.([A-Za-z_][A-Za-z0-9_]*)\Z")
"""`module.Class`, after the repository's name where the code is said to lie in another one."""


class TokenizerRefused(Exception):
    """Raised when the vendor's code raises on a text or on ids; `str()` is exception class and message."""


def open_tokenizer(manifest: Manifest, params: Params, folder: Path) -> SandboxedTokenizer:
    """Return the running tokenizer of a snapshot whose files were verified. A context manager.

    Raises:
        OracleError: tokenizer_config.json names no class, its module is not pinned, or it cannot be run.
        MaterialError, VersionMismatch: the environment cannot be built, or has other oracle libraries than params.yaml.
    """
    module, name = vendor_class(manifest, folder)
    built = environment(ENVIRONMENT)
    if wrong := [one for one in LIBRARIES if built.versions[one] != params.versions[one]]:
        raise VersionMismatch(
            f"the environment {ENVIRONMENT} has {wrong[0]} {built.versions[wrong[0]]}, and params.yaml pins "
            f"{params.versions[wrong[0]]}",
            next_step=f"Change stages/environments/{ENVIRONMENT}/requirements.txt to the pinned version.",
        )
    inside = Inside(
        manifest.slug,
        script(ENVIRONMENT),
        {
            "folder": str(folder.resolve()),
            "module": module,
            "class": name,
            "clock": params.clock.isoformat(),
            "other_clock": params.other_clock.isoformat(),
        },
        files=[folder / one for one in manifest.inputs],
        listed=[folder],
        python=built.python,
        packages=[built.packages],
        environment=OFFLINE,
    )
    template_only = replace(manifest, authority={**manifest.authority, "render": (HUB_TEMPLATE,)})
    sandbox = Sandbox(inside, Limits(request_seconds=params.template_seconds))
    try:
        return SandboxedTokenizer(template_only, params, sandbox, built.versions, *_facts(manifest, sandbox.facts))
    except BaseException:
        sandbox.close()
        raise


def vendor_class(manifest: Manifest, folder: Path) -> tuple[str, str]:
    """Return module and class of the tokenizer that `auto_map` of tokenizer_config.json names.

    Raises:
        OracleError: it names none, or its module is not among the manifest's inputs.
    """
    try:
        config = json.loads((folder / "tokenizer_config.json").read_bytes())
        named = config["auto_map"]["AutoTokenizer"]
        match = CLASS.match(named if isinstance(named, str) else named[0] or named[1])
    except (FileNotFoundError, ValueError, LookupError, TypeError, RecursionError):
        match = None
    if match is None:
        raise OracleError(
            f"tokenizer_config.json of {manifest.slug} names no tokenizer class of the vendor's",
            next_step="Record it with `bellwether record`.",
        )
    if f"{match[1]}.py" not in manifest.inputs:
        raise OracleError(
            f"the tokenizer of {manifest.slug} is in {match[1]}.py, which its manifest does not pin",
            next_step="Pin the file, and those it imports, under [inputs].",
        )
    return match[1], match[2]


@dataclass(frozen=True)
class SandboxedTokenizer:
    """A checkpoint, as far as the render and token oracles ask for one: its prompts, and its one encoder."""

    manifest: Manifest
    """Its render authority is the chat template alone."""
    params: Params
    sandbox: Sandbox
    versions: Mapping[str, str]
    """Package → version of the environment."""
    tokenizer_class: str
    templates: Mapping[str, str]
    """Chat templates by name; empty where prompts are written by code."""
    seconds: tuple = ()
    vendors: Mapping[str, Any] = field(default_factory=dict)
    source: str = HUB_TEMPLATE
    name: str = "class"
    """Its name as an encoder: it is the class; there is no tokenizer.json beside it."""

    @property
    def encoders(self) -> tuple[Self]:
        """The encoder is the tokenizer itself."""
        return (self,)

    def content_format(self, tools: list | None) -> str:
        """Return the form of message.content its template is written for; code takes content as sent."""
        name = "tool_use" if tools is not None and "tool_use" in self.templates else "default"
        return detect(self.templates[name]) if name in self.templates else STRING

    def prompt(self, request: Mapping[str, Any]) -> Prompt:
        """Return the prompt of a chat request, its text and its ids.

        Raises:
            TemplateError, CollidingVariable: it has none.
            OracleError: no evidence came of it.
        """
        try:
            answer = self.sandbox.ask({"do": "render", **arguments_of(request)})
        except Refused as error:
            raise TemplateError(_short(error)) from None
        match answer:
            case {"colliding": str(key)}:
                raise CollidingVariable(key)
            case {"text": str(text), "ids": ids, "reads_clock": bool(reads_clock)} if _are_ids(ids):
                if not _is_text(text):
                    raise TemplateError("UnicodeEncodeError: surrogates not allowed")
                return Prompt(text, ids, reads_clock)
        raise self._no("prompt")

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text, in order; special tokens are read where the text spells them, never added.

        Raises:
            TokenizerRefused: the code raises on a text.
            OracleError: no evidence came of it.
        """
        return [self._ask("encode", "ids", _are_ids, text=text) for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of `ids`, special tokens kept. Raises what `encode` raises."""
        return self._ask("decode", "text", _is_text, ids=list(ids))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return one streamed piece per id, `""` while a character is incomplete. Raises what `encode` raises."""

        def valid(value: Any) -> bool:
            return isinstance(value, list) and len(value) == len(ids) and all(map(_is_text, value))

        return self._ask("pieces", "pieces", valid, ids=list(ids))

    @property
    def provenance(self) -> dict[str, Any]:
        """What a recording with this tokenizer depended on, in JSON values; equal on every machine."""
        return {
            "checkpoint": self.manifest.slug,
            "model": self.manifest.model,
            "revision": self.manifest.revision,
            "inputs": dict(self.manifest.inputs),
            "oracle": "transformers.apply_chat_template",
            **self.params.versions,
            "tokenizer_class": self.tokenizer_class,
            "encoders": [self.name],
            "chat_templates_sha256": {name: sha256_text(text) for name, text in sorted(self.templates.items())},
            "clock": self.params.clock.isoformat(),
            "other_clock": self.params.other_clock.isoformat(),
            "environment": dict(self.versions),
            "sandbox": list(MECHANISMS),
        }

    def close(self) -> None:
        """End the process."""
        self.sandbox.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, what: str, key: str, valid: Callable[[Any], bool], **arguments: Any) -> Any:
        try:
            answer = self.sandbox.ask({"do": what, **arguments})
        except Refused as error:
            raise TokenizerRefused(_short(error)) from None
        if not isinstance(answer, dict) or not valid(answer.get(key)):
            raise self._no(key)
        return answer[key]

    def _no(self, what: str) -> OracleError:
        return _nonsense(self.manifest, what)


def _facts(manifest: Manifest, facts: Any) -> tuple[str, dict[str, str]]:
    """Return the class's name and its templates, as the script inside says."""
    match facts:
        case {"class": str(name), "templates": None}:
            return name, {}
        case {"class": str(name), "templates": dict(templates)} if all(map(_is_text, templates.values())):
            return name, templates
    raise _nonsense(manifest, "class name and chat templates")


def _nonsense(manifest: Manifest, what: str) -> OracleError:
    return OracleError(
        f"the tokenizer of {manifest.slug} answers with something that is no {what}",
        next_step="Look at the vendor's code; nothing was recorded.",
    )


def _are_ids(value: Any) -> bool:
    return isinstance(value, list) and all(type(token) is int and 0 <= token <= LARGEST_ID for token in value)


def _is_text(value: Any) -> bool:
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


def _short(error: Refused) -> str:
    return str(error)[:REASON_CHARACTERS]
