"""The engine releases that can be asked, one registry line each: what they answer, and how they are started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bellwether.chunk_plans import FEW
from bellwether.errors import ParamsError

ALL_KINDS = ("render", "parse", "tokenize", "detokenize")
PARSERS = ("tool_parser", "reasoning_parser")


@dataclass(frozen=True, slots=True)
class Engine:
    """A release of an engine."""

    name: str
    """`<engine>-<version>`: folder of its environment and of its tables, item of params.yaml."""
    engine: str
    version: str
    kinds: tuple[str, ...]
    """Kinds of cases it can answer. `parse` is asked only where a manifest names a parser."""
    heavy: bool
    """Whether it takes minutes to install or to ask."""
    folder: str
    """Folder below stages/environments with its requirements and the script that runs inside, or with the executable's
    pin."""
    shared: tuple[str, ...] = ()
    """Modules of stages/environments that its script uses, beside those every script does."""
    options: tuple[str, ...] = PARSERS
    """Keys of its table in a manifest."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of its process."""
    renders_templates: bool = False
    """Whether it is a template engine and no front end: of prompts that come from code it has nothing to say."""
    plans: frozenset[str] | None = None
    """Chunk plans by which it is asked, of those in scope; None for all."""
    over_http: bool = False
    """Whether it is an executable that serves HTTP, as opposed to a script in a Python environment."""


_VLLM = {
    "kinds": ALL_KINDS,
    "heavy": True,
    "shared": ("vllm_front_end.py",),
    "options": (*PARSERS, "architecture", "tokenizer_mode", "content_format"),
}
_SGLANG = {"kinds": ALL_KINDS, "shared": ("sglang_front_end.py",), "options": (*PARSERS, "special_tokens")}
_SGLANG_WITHOUT_DETOKENIZER = _SGLANG | {"kinds": ("render", "parse", "tokenize")}
_TEMPLATE = {
    "kinds": ("render",),
    "heavy": False,
    "shared": ("chat_template.py",),
    "options": (),
    "renders_templates": True,
}

ENGINES = {
    release.name: release
    for release in (
        Engine("vllm-rust-0.33.0", "vllm-rust", "0.33.0", ("render",), False, "vllm-rust-0.33.0", over_http=True),
        Engine("minijinja-3.1.0", "minijinja", "3.1.0", folder="minijinja-3.1.0", **_TEMPLATE),
        Engine("llama.cpp-b10775", "llama.cpp", "b10775", folder="llama.cpp-b10775", **_TEMPLATE),
        Engine("vllm-0.33.0", "vllm", "0.33.0", folder="vllm-0.33.0", **_VLLM),
        Engine("vllm-0.32.0", "vllm", "0.32.0", folder="vllm-0.32.0", plans=FEW, **_VLLM),
        Engine("sglang-0.5.23", "sglang", "0.5.23", heavy=True, folder="sglang-0.5.23", **_SGLANG),
        Engine(
            "sglang-0.5.22",
            "sglang",
            "0.5.22",
            heavy=True,
            folder="sglang-0.5.22",
            plans=FEW,
            **_SGLANG_WITHOUT_DETOKENIZER,
        ),
    )
}
"""Name → engine release."""


def engine(name: str) -> Engine:
    """Return the engine release `name`.

    Raises:
        ParamsError: there is none.
    """
    if name not in ENGINES:
        raise ParamsError(f"there is no engine release {name!r}", next_step=f"Known: {', '.join(ENGINES)}.")
    return ENGINES[name]


def options_of(engine: Engine, table: Mapping[str, str], where: str) -> dict[str, str]:
    """Return what a manifest says to an engine.

    Raises:
        ParamsError: it names an option the engine does not have.
    """
    if unknown := sorted(set(table) - set(engine.options)):
        raise ParamsError(
            f"{where}: {engine.engine} has no option {unknown[0]!r}", next_step=f"Known: {', '.join(engine.options)}."
        )
    return dict(table)
