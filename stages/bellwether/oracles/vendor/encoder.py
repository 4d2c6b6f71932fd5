"""A vendor's encoder as a value: requests in, prompts or refusals out, everything that comes back distrusted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from bellwether.errors import InputUnavailable, OracleError, PinMismatch
from bellwether.materials.pins import sha256_of
from bellwether.params import Manifest, Params
from bellwether.sandbox import ENVIRONMENTS, MECHANISMS, Inside, Limits, Refused, Sandbox

ENGINE = "vllm==0.33.0"
"""The release whose front end is followed in how encoders are called."""
LARGEST_ID = 2**31 - 1
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "TIKTOKEN_CACHE_DIR": ""}
"""Environment of scripts that load tokenizers: neither library looks for a network or for a cache to write."""


class VendorRefused(Exception):
    """Raised when the encoder, or the front end before it, refuses a request: it has no prompt. That is evidence."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What an encoder makes of a request; at least one of the two is there."""

    text: str | None
    """The prompt's text. Of encoders that give ids: those ids decoded, special tokens kept."""
    ids: list[int] | None
    """Token ids. None when the encoder writes text: the checkpoint's tokenizer encodes it, adding no special token."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How one encoder is run and called."""

    inside: Inside
    call: Callable[[Mapping[str, Any], Any], Any]
    """`(request, facts of the script) → value for the script`. Raises VendorRefused where the front end refuses."""
    content_format: str
    """How content is handed over: `string`, `openai`; for a row's column of that name."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Oracle input → sha256: what of the snapshot it reads."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Package → version of its environment."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What else its prompts depend on, in JSON values."""


class VendorEncoder:
    """A running encoder. One process serves all requests, since loading costs seconds, and none may shape the next.

    Every request arrives there as new objects; that the vendor's code keeps nothing of them is tested with the pinned
    encoders, and cannot be enforced for others.
    """

    normalisation = "vllm"
    """How messages are handed over, for a row's column of that name."""

    def __init__(self, name: str, plan: Plan, params: Params) -> None:
        self.source = f"vendor-code:{name}"
        self.content_format = plan.content_format
        self._call = plan.call
        self.provenance: dict[str, Any] = {
            "oracle": self.source,
            "called_as": ENGINE,
            "files": dict(plan.files),
            "versions": dict(plan.versions),
            "sandbox": list(MECHANISMS),
            **plan.settings,
        }
        """What its prompts depend on, in JSON values; equal on every machine."""
        self._sandbox = Sandbox(plan.inside, Limits(request_seconds=params.template_seconds))

    def prompt(self, request: Mapping[str, Any]) -> Prompt:
        """Return the prompt of an OpenAI chat request.

        Raises:
            VendorRefused: it has none. `str()` is exception class and message.
            OracleError: no evidence came of it: a limit was passed, a wall was run into, or the answer is no prompt.
        """
        value = self._call(request, self._sandbox.facts)
        try:
            answer = self._sandbox.ask(value)
        except Refused as refusal:
            raise VendorRefused(str(refusal)) from None
        return _prompt(self.source, answer)

    def close(self) -> None:
        """End the process."""
        self._sandbox.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def script(name: str) -> Path:
    """Return the script of encoder `name` that runs inside."""
    return ENVIRONMENTS / name / "encode.py"


def pinned(manifest: Manifest, folder: Path, name: str) -> Path:
    """Return the path of oracle input `name`, after comparing its bytes with the pin.

    Raises:
        InputUnavailable, PinMismatch: it is missing, or another file.
    """
    path = folder / name
    try:
        actual = sha256_of(path.read_bytes())
    except OSError:
        raise InputUnavailable(
            f"{path} is missing", next_step=f"Run `dvc repro fixtures/dvc.yaml:inputs@{manifest.slug}`."
        ) from None
    if actual != manifest.inputs[name]:
        raise PinMismatch(
            f"{name}: expected sha256 {manifest.inputs[name]}, got {actual}",
            next_step=f"Run `dvc repro fixtures/dvc.yaml:inputs@{manifest.slug}`; nothing was recorded.",
        )
    return path


def missing(manifest: Manifest, encoder: str, what: str) -> OracleError:
    """Return the error of a checkpoint that names `encoder` in its authority and pins no file for it."""
    return OracleError(
        f"{manifest.slug} is to be recorded by the vendor's encoder {encoder}, and its manifest pins no {what}",
        next_step=f"Pin it under [inputs], or take vendor-code:{encoder} out of [authority].",
    )


def _prompt(source: str, answer: Any) -> Prompt:
    """Return an answer as a prompt. Raises VendorRefused when its text is no Unicode, OracleError when it is none."""
    match answer:
        case {"text": (str() | None) as text, "ids": (list() | None) as ids} if text is not None or ids is not None:
            if all(type(token) is int and 0 <= token <= LARGEST_ID for token in ids or ()):
                _require_unicode(text or "")
                return Prompt(text, ids)
    raise OracleError(f"{source} gives no prompt but {str(answer)[:100]}", next_step="Look at the vendor's file.")


def _require_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise VendorRefused(f"UnicodeEncodeError: {error.reason}") from None
