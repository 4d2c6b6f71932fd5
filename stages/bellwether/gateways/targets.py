"""The systems that can be observed, one line each: what of them is seen, and how they are started or reached."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bellwether.case import KINDS
from bellwether.chunk_plans import FEW
from bellwether.errors import ParamsError
from bellwether.gateways.answer import Gateway
from bellwether.params import read_params

ALL_KINDS = frozenset(KINDS)
SHARED_CODE = ("gateways/answer.py", "gateways/chat.py", "gateways/process.py")


@dataclass(frozen=True, slots=True)
class Target:
    """Something to observe."""

    name: str
    """Column `target` of its tables. Of a pinned one: folder of its tables, item of params.yaml."""
    gateway: str
    """What it is; its table in a manifest, [engines.<gateway>], names its parsers."""
    version: str
    """The pinned release; empty where that is found out."""
    kinds: frozenset[str]
    """Kinds of cases that are replayed."""
    start: Callable[[Path], Gateway]
    """Takes the root of the checkout."""
    plans: frozenset[str] | None = None
    """Chunk plans that are streamed; None for all it can be streamed by."""
    share: float = 1.0
    """Largest share of the imported cases that is replayed, whatever params.yaml says."""
    folder: str = ""
    """Folder of its environment below stages/environments; empty for one that runs already."""
    code: tuple[str, ...] = SHARED_CODE
    """Modules of this package that have a part in its tables."""
    reached: tuple[str, ...] = ()
    """Of one that runs already: where, by which parsers and wire. What was seen of another is another's."""


def _smg(version: str, parser: str = "legacy", plans: frozenset[str] | None = None) -> Target:
    def start(root: Path) -> Gateway:
        from bellwether.gateways.smg import Smg

        return Smg(version, parser=parser, clock=read_params(root).clock)

    plain = parser == "legacy"
    return Target(
        f"smg-{version}" if plain else f"smg-{version}-{parser}",
        "smg",
        version,
        ALL_KINDS if plain else frozenset({"parse"}),  # its parsers are all that is another
        start,
        plans,
        folder=f"smg-{version}",
        code=(*SHARED_CODE, "gateways/clock.py", "gateways/smg.py", "gateways/spoken.py"),
    )


def _llama_cpp(version: str) -> Target:
    def start(root: Path) -> Gateway:
        from bellwether.gateways.llama_cpp import LlamaCpp

        return LlamaCpp(version, clock=read_params(root).clock)

    return Target(
        f"xllamacpp-{version}",
        "xllamacpp",
        version,
        ALL_KINDS,
        start,
        share=0.0,  # it computes each token of an output, which takes a hundred times what a scripted one does
        folder=f"xllamacpp-{version}",
        code=(*SHARED_CODE, "gateways/clock.py", "gateways/gguf_models.py", "gateways/llama_cpp.py"),
    )


PINNED = {
    target.name: target
    for target in (
        _smg("1.13.0"),
        _smg("1.13.0", "symphony"),
        _smg("1.9.0", plans=FEW),
        _llama_cpp("2026.10.11549"),
    )
}
"""Name → target that this project starts itself."""


def pinned_target(name: str) -> Target:
    """Return the pinned target `name`; a gateway's name alone stands for the first of its targets, the newest.

    Raises:
        ParamsError: there is none.
    """
    for target in PINNED.values():
        if name in (target.name, target.gateway):
            return target
    if name in LIVE:
        raise ParamsError(f"{name} is not started here", next_step="Start it, and say where it listens with --url.")
    raise ParamsError(f"there is no pinned target {name!r}", next_step=f"Known: {', '.join(PINNED)}.")


# ── what runs already ────────────────────────────────────────────────────────────────────────────────────────────────

LIVE = ("smg", "openai", "vllm", "sglang")
"""Kinds of running servers there is an adapter for."""
ENGINE_PORT = 29600
"""Where a running gateway finds the scripted engine, when nobody says another port."""


@dataclass(frozen=True, slots=True)
class Reach:
    """How a running server is reached, and how it reaches the scripted engine."""

    url: str
    headers: Mapping[str, str]
    wire: str = "vllm"
    engine_port: int = ENGINE_PORT
    script: Path | None = None
    """With `capture`: the files of an engine started elsewhere, instead of one of this process."""
    capture: Path | None = None


def live_target(kind: str, name: str, reach: Reach, parser: str = "legacy") -> Target:
    """Return the running server at `reach.url` as a target called `name`.

    Raises:
        ParamsError: there is no adapter for `kind`.
    """

    def start(root: Path) -> Gateway:
        match kind:
            case "smg":
                from bellwether.gateways.smg import Smg

                return Smg(None, url=reach.url, headers=reach.headers, parser=parser, wire=reach.wire)
            case "vllm":
                from bellwether.gateways.vllm import Vllm

                return Vllm(reach.url, headers=reach.headers)
            case "sglang":
                from bellwether.gateways.sglang import Sglang

                return Sglang(reach.url, headers=reach.headers)
        from bellwether.gateways.behind import EngineAt, EngineFiles
        from bellwether.gateways.openai import OpenAi

        engine = (
            EngineFiles(reach.script, reach.capture)
            if reach.script and reach.capture
            else EngineAt(reach.engine_port, reach.wire)
        )
        return OpenAi(reach.url, engine, headers=reach.headers)

    if kind not in LIVE:
        raise ParamsError(f"there is no adapter {kind!r}", next_step=f"Known: {', '.join(LIVE)}.")
    return Target(name, kind, "", ALL_KINDS, start, reached=(reach.url, parser, reach.wire))
