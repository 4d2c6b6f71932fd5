"""What vLLM registers: parsers, renderers and tokenizers by name, architectures, and the checkpoints it names for them.

| what | where in the source archive |
|---|---|
| parts | dict literals name → (module, class), imported by vLLM on use |
| architectures | dict literals in the model registry, one per kind of model |
| example checkpoints | the registry of vLLM's own tests, one `_HfExamplesInfo` per architecture |
| documented checkpoints | the tables of its page of supported models |

The tests' registry and the documentation are in the source archive only, never in the wheel.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from bellwether.errors import RegistryError
from bellwether.registries import syntax
from bellwether.registries.values import Architecture, Entry, Files, Named, text_of

PARTS = {
    "tool": ("vllm/tool_parsers/__init__.py", "_TOOL_PARSERS_TO_REGISTER", "vllm.tool_parsers"),
    "reasoning": ("vllm/reasoning/__init__.py", "_REASONING_PARSERS_TO_REGISTER", "vllm.reasoning"),
    "renderer": ("vllm/renderers/registry.py", "_VLLM_RENDERERS", "vllm.renderers"),
    "tokenizer": ("vllm/tokenizers/registry.py", "_VLLM_TOKENIZERS", "vllm.tokenizers"),
}
"""Kind → (file, dict, package in which the modules stand)."""

ARCHITECTURES = "vllm/model_executor/models/registry.py"
SECTIONS = {
    "_TEXT_GENERATION_MODELS": "text",
    "_MULTIMODAL_MODELS": "multimodal",
    "_TRANSFORMERS_SUPPORTED_MODELS": "unsorted",
}
"""Dict of the model registry → section."""
UNREAD = frozenset(
    {
        *("_EMBEDDING_MODELS", "_LATE_INTERACTION_MODELS", "_REWARD_MODELS"),
        *("_TOKEN_CLASSIFICATION_MODELS", "_SEQUENCE_CLASSIFICATION_MODELS"),
        *("_SPECULATIVE_DECODING_MODELS", "_TRANSFORMERS_BACKEND_MODELS"),
    }
)
"""Dicts of models that write no message, and the backend's own class names. The registry joins SECTIONS and these; a
dict that is in neither is an error."""
JOINED_ARCHITECTURES = "_VLLM_MODELS"

EXAMPLES = "tests/models/registry.py"
EXAMPLE_SECTIONS = {
    "_TEXT_GENERATION_EXAMPLE_MODELS": "text",
    "_EMBEDDING_EXAMPLE_MODELS": "pooling",
    "_LATE_INTERACTION_EXAMPLE_MODELS": "pooling",
    "_REWARD_EXAMPLE_MODELS": "pooling",
    "_TOKEN_CLASSIFICATION_EXAMPLE_MODELS": "pooling",
    "_SEQUENCE_CLASSIFICATION_EXAMPLE_MODELS": "pooling",
    "_MULTIMODAL_EXAMPLE_MODELS": "multimodal",
    "_SPECULATIVE_DECODING_EXAMPLE_MODELS": "draft",
    "_TRANSFORMERS_BACKEND_MODELS": "backend",
}
JOINED_EXAMPLES = "_EXAMPLE_MODELS"
EXAMPLE_CALL = "_HfExamplesInfo"

DOCUMENTED = "docs/models/supported_models.md"
DOCUMENTED_SECTIONS = {
    ("List of Text-only Language Models", "Generative Models", "Text Generation"): "text",
    ("List of Multimodal Language Models", "Generative Models", "Text Generation"): "multimodal",
    ("List of Multimodal Language Models", "Generative Models", "Transcription"): "multimodal",
    ("List of Multimodal Language Models", "Generative Models", "Realtime Transcription"): "multimodal",
}
"""Headings above a table → section; each of them has at least one table."""
COLUMN = "Example HF Models"

VERSION = "vllm/_version.py"
REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+\Z", re.ASCII)
"""A repository on the Hub. vLLM also writes names without an owner where there is nothing to download."""

_HEADING = re.compile(r"(#{2,4}) (.+)")
_CODE = re.compile(r"`([^`]+)`")


def parts(files: Files) -> list[Entry]:
    """Return every registered name, by kind and then in vLLM's order.

    Raises:
        RegistryError: a registry is missing, or written in another way.
    """
    found = []
    for kind, (path, variable, package) in PARTS.items():
        node = syntax.assigned(syntax.module(text_of(files, path), path).body, variable, path)
        for name, value in syntax.entries(node, f"{path}: {variable}"):
            module, cls = syntax.pair(value, f"{path}: {variable}[{name!r}]")
            found.append(Entry(kind, name, f"{package}.{module}", cls))
    return found


def architectures(files: Files) -> list[Architecture]:
    """Return the architectures of SECTIONS in the model registry's order, without checkpoints.

    Raises:
        RegistryError: as `parts`, or the registry joins a dict that is in no list here.
    """
    tables = _tables(files, ARCHITECTURES, JOINED_ARCHITECTURES, SECTIONS, UNREAD)
    found = []
    for variable, entries in tables.items():
        for name, value in entries:
            syntax.pair(value, f"{ARCHITECTURES}: {variable}[{name!r}]")
            found.append(Architecture(name, SECTIONS[variable]))
    return found


def examples(files: Files) -> list[Architecture]:
    """Return the architectures of vLLM's tests with the checkpoints they load, the default one first.

    In the section of drafts the default is the model that is drafted for; the draft comes last, where it is another.

    Raises:
        RegistryError: as `parts`, or an example is no `_HfExamplesInfo` with a literal name.
    """
    tables = _tables(files, EXAMPLES, JOINED_EXAMPLES, EXAMPLE_SECTIONS)
    return [
        Architecture(name, EXAMPLE_SECTIONS[variable], tuple(_example(value, f"{EXAMPLES}: {variable}[{name!r}]")))
        for variable, entries in tables.items()
        for name, value in entries
    ]


def documented(files: Files) -> list[Architecture]:
    """Return the architectures of the page of supported models with the checkpoints it names, in its order.

    Raises:
        RegistryError: a section has no table, or a row has no architecture.
    """
    found, seen = [], set()
    for section, row in _rows(text_of(files, DOCUMENTED)):
        seen.add(section)
        names = _CODE.findall(row["Architecture"])
        if not names:
            raise RegistryError(
                f"{DOCUMENTED}: a row names no architecture: {row['Architecture']!r}", next_step=syntax.NEXT_STEP
            )
        named = tuple(Named(model) for model in _CODE.findall(row[COLUMN]) if REPOSITORY.match(model))
        found += [Architecture(name, DOCUMENTED_SECTIONS[section], named) for name in names]
    if missing := [section for section in DOCUMENTED_SECTIONS if section not in seen]:
        raise RegistryError(f"{DOCUMENTED} has no table below {' / '.join(missing[0])}", next_step=syntax.NEXT_STEP)
    return found


def commit(files: Files) -> str | None:
    """Return the commit the archive was built from. Raises RegistryError when it has no place for one."""
    return syntax.commit(text_of(files, VERSION), VERSION)


def _tables(
    files: Files, path: str, joined: str, sections: Mapping[str, str], unread: frozenset[str] = frozenset()
) -> dict[str, list[tuple[str, ast.expr]]]:
    """Return variable → entries for `sections`, after checking that `joined` spreads them, `unread` and no others."""
    body = syntax.module(text_of(files, path), path).body
    whole = syntax.assigned(body, joined, path)
    spread = syntax.spread(whole, f"{path}: {joined}")
    if odd := sorted(set(spread) ^ set(sections) ^ unread):
        raise RegistryError(f"{path}: {joined} joins other dicts: {', '.join(odd)}", next_step=syntax.NEXT_STEP)
    return {name: syntax.entries(syntax.assigned(body, name, path), f"{path}: {name}") for name in sections}


def _example(node: ast.expr, where: str) -> Iterator[Named]:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id != EXAMPLE_CALL:
        raise RegistryError(f"{where} is no {EXAMPLE_CALL}", next_step=syntax.NEXT_STEP)
    given = dict(zip(("default", "extras"), node.args, strict=False))
    given |= {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
    if len(node.args) > 2 or "default" not in given:
        raise RegistryError(f"{where} names its checkpoint in another place", next_step=syntax.NEXT_STEP)
    default = syntax.literal(given["default"], where)
    extras = syntax.literal(given["extras"], where) if "extras" in given else {}
    revision = syntax.literal(given["revision"], where) if "revision" in given else None
    if not isinstance(extras, dict) or not all(isinstance(name, str) for name in (default, *extras.values())):
        raise RegistryError(f"{where}: a checkpoint is no text", next_step=syntax.NEXT_STEP)
    draft = syntax.literal(given["speculative_model"], where) if "speculative_model" in given else None
    if not isinstance(revision, str | None) or not isinstance(draft, str | None):
        raise RegistryError(f"{where}: the revision or the draft model is no text", next_step=syntax.NEXT_STEP)
    if REPOSITORY.match(default):
        yield Named(default, revision)
    yield from (Named(name) for name in extras.values() if REPOSITORY.match(name))
    if draft and draft != default and REPOSITORY.match(draft):
        yield Named(draft, draft=True)


def _rows(page: str) -> Iterator[tuple[tuple[str, ...], dict[str, str]]]:
    """Yield headings and cells of each row of the tables that stand below a heading of DOCUMENTED_SECTIONS."""
    path: tuple[str, ...] = ()
    columns: list[str] = []
    for line in page.splitlines():
        if heading := _HEADING.match(line):
            path = (*path[: len(heading[1]) - 2], heading[2].strip())
        if not line.startswith("|"):
            columns = []
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if path not in DOCUMENTED_SECTIONS or set(line) <= set("|- :"):
            continue
        if not columns:
            columns = cells
            if "Architecture" not in columns or COLUMN not in columns:
                raise RegistryError(f"{DOCUMENTED}: a table has other columns: {line}", next_step=syntax.NEXT_STEP)
        elif len(cells) != len(columns):
            raise RegistryError(f"{DOCUMENTED}: a row has other columns: {line}", next_step=syntax.NEXT_STEP)
        else:
            yield path, dict(zip(columns, cells, strict=True))
