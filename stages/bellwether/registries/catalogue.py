"""The checkpoints engines name, joined with those this project pins: which there are, and which are left out and why.

| source | names |
|---|---|
| vllm-tests | checkpoints: what vLLM's tests load per architecture |
| vllm-docs | checkpoints: vLLM's page of supported models |
| vllm-registry | architectures: vLLM's model registry |
| sglang | architectures: what SGLang's models announce |
| manifest | checkpoints: fixtures/<slug>/manifest.toml |

Left out are models that write no message (pooling heads, draft models of speculative decoding) and quantised copies,
which have the prompts of what they were made from. What is left out is listed, rule by rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bellwether.params import REVISION, Manifest
from bellwether.registries.values import Architecture, Named

TEXT, MULTIMODAL = "text", "multimodal"
CHAT = (TEXT, MULTIMODAL, "backend", "unsorted")
"""Sections of models that write messages, unless a name says otherwise."""

QUANTISED = frozenset("gguf awq gptq mlx onnx fp8 nvfp4 mxfp4 mxfp8 int4 int8 bnb bitsandbytes".split())
"""Whole words of a repository name that mark a quantised copy."""

DRAFT = re.compile(r"NextN|MTP|Eagle|DFlash|DSpark|Draft|Assistant|Medusa|Speculator")
"""Architecture names of draft models: they propose tokens for another model and write no message."""
DRAFT_WORDS = frozenset("eagle eagle3 mtp dflash dspark assistant speculators".split())
"""Whole words of a repository name that mark a draft, where only sections of drafts name it: vLLM's tests load some
drafts as if they were what is drafted for."""
POOLING = re.compile(
    r"Embedding|Reward|Classification|Bidirectional|Retrieval|Ranking|Contriever|VisionModel"
    r"|\A(?:Bert|XLMRoberta|Roberta|CLIP|Siglip|Mistral|Qwen3|Llama)Model\Z"
)
"""Architecture names of models that give vectors or scores. A bare `…Model` is a network without a language head."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One checkpoint, or an architecture without one."""

    model: str | None
    """Repository name on the Hub; None where registries name an architecture only."""
    architectures: tuple[str, ...]
    """Those that write messages, sorted; empty where engines name it for no such architecture, or not at all."""
    sources: tuple[str, ...]
    """Which of the module's sources name it or one of its architectures, sorted."""
    modality: str | None
    """`text` or `multimodal`, as the engine sorts it; None where none does."""
    revision: str | None = None
    """Commit of the manifest, else the one an engine asks for; None where neither says one."""
    asked: str | None = None
    """What an engine asks for where it is no commit: a branch or a pull request."""
    slug: str | None = None
    """Of its manifest."""
    group: str | None = None
    """Slug of the checkpoint whose recording serves it."""

    @property
    def key(self) -> str:
        """What tells it from every other one."""
        return self.model or "/".join(self.architectures)


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All checkpoints, ordered by key, and what was left out."""

    checkpoints: tuple[Checkpoint, ...]
    excluded: Mapping[str, tuple[str, ...]]
    """Rule → names of models or architectures, sorted."""


@dataclass(slots=True)
class _Found:
    architectures: set[str] = field(default_factory=set)
    sources: set[str] = field(default_factory=set)
    sections: set[str] = field(default_factory=set)
    asked: set[str] = field(default_factory=set)


def catalogue(named: Mapping[str, Iterable[Architecture]], manifests: Sequence[Manifest]) -> Catalogue:
    """Return the catalogue of what `named` (source → architectures) and `manifests` name.

    A checkpoint or architecture that any source lists among models that write messages is in, also where another lists
    it among pooling or draft models. What a manifest pins is in whatever its name says.
    """
    models: dict[str, _Found] = {}
    architectures: dict[str, _Found] = {}
    for source, listed in named.items():
        for architecture in listed:
            section = _section(architecture)
            found = architectures.setdefault(architecture.name, _Found())
            found.sources.add(source)
            found.sections.add(section)
            for checkpoint in architecture.checkpoints:
                model = models.setdefault(checkpoint.model, _Found())
                model.sources.add(source)
                model.sections.add(_use(checkpoint, section))
                model.asked |= {checkpoint.revision} if checkpoint.revision else set()
                if section in CHAT:
                    model.architectures.add(architecture.name)

    pinned = {manifest.model: manifest for manifest in manifests}
    kept, excluded = [], {"draft": set(), "pooling": set(), "quantised-name": set()}
    for name, found in models.items():
        if name not in pinned and (rule := _rule(found.sections) or ("quantised-name" if quantised(name) else None)):
            excluded[rule].add(name)
        else:
            kept.append(_checkpoint(name, found, architectures))
    shown = set().union(*(model.architectures for model in models.values()))
    for name, found in architectures.items():
        if name in shown:
            continue
        if rule := _rule(found.sections):
            excluded[rule].add(name)
        else:
            kept.append(Checkpoint(None, (name,), tuple(sorted(found.sources)), _modality(found.sections)))
    kept += [_checkpoint(name, _Found(), {}) for name in pinned if name not in models]
    joined = (_pinned(checkpoint, pinned.get(checkpoint.model or "")) for checkpoint in kept)
    return Catalogue(
        checkpoints=tuple(sorted(joined, key=lambda checkpoint: checkpoint.key)),
        excluded={rule: tuple(sorted(names)) for rule, names in sorted(excluded.items())},
    )


def quantised(model: str) -> bool:
    """Return whether a word of the repository's name says that it is a quantised copy."""
    return not QUANTISED.isdisjoint(_words(model))


def _words(model: str) -> list[str]:
    return re.split(r"[^a-z0-9]+", model.rpartition("/")[2].lower())


def _use(checkpoint: Named, section: str) -> str:
    """Return the section of a checkpoint. What is drafted for writes messages, though drafts name it."""
    if section != "draft" or checkpoint.draft or not DRAFT_WORDS.isdisjoint(_words(checkpoint.model)):
        return "draft" if checkpoint.draft else section
    return "unsorted"


def _section(architecture: Architecture) -> str:
    """Return the section of an architecture; where the engine does not sort by use, its name says it."""
    if architecture.section in ("backend", "unsorted"):
        if DRAFT.search(architecture.name):
            return "draft"
        if POOLING.search(architecture.name):
            return "pooling"
        if architecture.section == "backend":
            return MULTIMODAL if "MultiModal" in architecture.name else TEXT
    return architecture.section


def _rule(sections: set[str]) -> str | None:
    """Return why models listed in `sections` only are left out, or None."""
    if not sections.isdisjoint(CHAT):
        return None
    return "pooling" if "pooling" in sections else "draft"


def _modality(sections: set[str]) -> str | None:
    return next((modality for modality in (MULTIMODAL, TEXT) if modality in sections), None)


def _checkpoint(model: str, found: _Found, architectures: Mapping[str, _Found]) -> Checkpoint:
    known = set().union(*(architectures[name].sources for name in found.architectures))
    commits = {asked for asked in found.asked if REVISION.match(asked)}
    others = found.asked - commits
    return Checkpoint(
        model,
        tuple(sorted(found.architectures)),
        tuple(sorted(found.sources | (known & {"vllm-registry", "sglang"}))),
        _modality(found.sections),
        revision=min(commits, default=None),
        asked=min(others, default=None),
    )


def _pinned(checkpoint: Checkpoint, manifest: Manifest | None) -> Checkpoint:
    if manifest is None:
        return checkpoint
    return replace(
        checkpoint,
        sources=tuple(sorted({*checkpoint.sources, "manifest"})),
        revision=manifest.revision,
        slug=manifest.slug,
        group=manifest.group or manifest.slug,
    )
