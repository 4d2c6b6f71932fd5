"""Stage `patterns`: what each pattern of transformers' response templates finds in the probes.

The templates are those transformers falls back to, read from its source without running its server, and those a
checkpoint in scope carries in its tokenizer_config.json. Consumers that parse answers with another regular-expression
engine compare theirs with the table.
"""

from __future__ import annotations

import ast
import json
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bellwether.errors import PinMismatch, RegistryError
from bellwether.layout import inputs_folder
from bellwether.materials.pins import sha256_of
from bellwether.params import Params, read_manifest, read_params, require_versions
from bellwether.registries import syntax
from bellwether.tables import PATTERNS, TableWriter
from bellwether.whole import write_whole

FALLBACKS = "cli/serving/utils.py"
FALLBACKS_NAME = "_RESPONSE_TEMPLATE_FALLBACKS"
CONTENT_PARSERS = "utils/chat_parsing/content_parsers.py"
JSON_PARSER = "_json"
READ = (
    *(FALLBACKS, CONTENT_PARSERS),
    *("utils/chat_parsing/response_parser.py", "utils/chat_parsing/response_templates.py"),
)
"""Files of transformers whose patterns or calls are recorded."""
CONFIG = "tokenizer_config.json"
KEY = "response_template"


@dataclass(frozen=True, slots=True)
class Counts:
    """What was recorded."""

    patterns: int
    probes: int
    rows: int
    not_laid_out: tuple[str, ...]
    """Checkpoints in scope that were not looked at, because their inputs are not there."""


def main(root: Path) -> Counts:
    """Write fixtures/patterns/patterns.parquet, and provenance.json beside it.

    Raises:
        VersionMismatch: an oracle library is not the pinned one.
        RegistryError: transformers keeps its templates elsewhere, or writes them in another way.
        PinMismatch: the tokenizer_config.json of a checkpoint is not the pinned one.
        OracleError: a template is refused, or a pattern does not end.
        CorpusError: a probe breaks the format.
    """
    params = read_params(root)
    require_versions(params.versions)
    from bellwether.oracles import response_patterns as oracle

    sources = transformers_files()
    checkpoints = checkpoint_templates(root, params)
    templates = [
        *(oracle.Template(models[0], models, spec) for models, spec in fallbacks(sources[FALLBACKS])),
        *(oracle.Template(slug, (slug,), spec) for slug, spec in checkpoints.items() if spec is not None),
    ]
    keys = unquoted_keys(sources[CONTENT_PARSERS])
    found = [pattern for template in templates for pattern in oracle.patterns(template, keys)]
    probes = oracle.read_probes(probes_file(root))
    with TableWriter(table(root), PATTERNS) as writer:
        writer.write_rows(oracle.rows(found, probes, params.template_seconds))
    provenance = {
        "engine": oracle.ENGINE,
        "engine_version": oracle.VERSION,
        "transformers": params.versions["transformers"],
        "files": {f"transformers/{name}": sha256_of(text.encode()) for name, text in sources.items()},
        "probes_sha256": sha256_of(probes_file(root).read_bytes()),
        "templates": [template.name for template in templates],
        # Which checkpoints were looked at: one whose inputs are not laid out may carry a template.
        "checkpoints": {slug: spec is not None for slug, spec in checkpoints.items()},
    }
    write_whole(table(root).with_name("provenance.json"), json.dumps(provenance, indent=2, ensure_ascii=False) + "\n")
    unseen = tuple(slug for slug in params.checkpoints if slug not in checkpoints)
    return Counts(len(found), len(probes), writer.rows, unseen)


def table(root: Path) -> Path:
    """Where the table lies."""
    return root / "fixtures" / "patterns" / "patterns.parquet"


def probes_file(root: Path) -> Path:
    """The hand-written probes, in Git."""
    return root / "corpus" / "patterns" / "probes.jsonl"


def transformers_files() -> dict[str, str]:
    """Return the text of each of READ, without importing transformers. Raises RegistryError when one is missing."""
    spec = find_spec("transformers")
    folder = Path(next(iter(spec.submodule_search_locations or ()))) if spec else Path()
    texts = {}
    for name in READ:
        try:
            texts[name] = (folder / name).read_text("utf-8")
        except OSError:
            raise RegistryError(
                f"transformers has no {name}", next_step="Find where this release keeps its response templates."
            ) from None
    return texts


def fallbacks(text: str) -> list[tuple[tuple[str, ...], dict[str, Any]]]:
    """Return the templates transformers falls back to, each with the model types it is for, in its order.

    Raises:
        RegistryError: they are no literal dict of (model types) → template.
    """
    node = syntax.assigned(syntax.module(text, FALLBACKS).body, FALLBACKS_NAME, FALLBACKS)
    value = syntax.literal(node, f"{FALLBACKS}: {FALLBACKS_NAME}")
    well_formed = isinstance(value, dict) and all(
        isinstance(models, tuple) and models and all(isinstance(model, str) for model in models) for models in value
    )
    if not value or not well_formed or not all(isinstance(spec, dict) for spec in value.values()):
        raise RegistryError(f"{FALLBACKS}: {FALLBACKS_NAME} has another shape", next_step=syntax.NEXT_STEP)
    return list(value.items())


def unquoted_keys(text: str) -> str:
    """Return the pattern with which transformers finds the bare keys of lax JSON.

    It stands inside a function, as the one literal pattern of a substitution without flags.

    Raises:
        RegistryError: there is none, or more than one.
    """
    body = syntax.module(text, CONTENT_PARSERS).body
    functions = [node for node in body if isinstance(node, ast.FunctionDef) and node.name == JSON_PARSER]
    found = [
        node.args[0].value
        for function in functions
        for node in ast.walk(function)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "sub"
        and node.args
        and isinstance(node.args[0], ast.Constant)
        and not node.keywords
    ]
    if len(found) != 1 or not isinstance(found[0], str):
        raise RegistryError(
            f"{CONTENT_PARSERS}: {JSON_PARSER} has {len(found)} literal patterns, not one", next_step=syntax.NEXT_STEP
        )
    return found[0]


def checkpoint_templates(root: Path, params: Params) -> dict[str, dict[str, Any] | None]:
    """Return slug → the response template of its tokenizer_config.json, or None where it has none.

    A checkpoint in scope whose inputs are not laid out is not in the answer.

    Raises:
        PinMismatch: the file is not the one the manifest pins.
    """
    found: dict[str, dict[str, Any] | None] = {}
    for slug in params.checkpoints:
        manifest = read_manifest(root, slug)
        path = inputs_folder(root, slug) / CONFIG
        if not inputs_folder(root, slug).is_dir():
            continue
        if CONFIG not in manifest.inputs:
            found[slug] = None
            continue
        data = path.read_bytes() if path.is_file() else b""
        if (actual := sha256_of(data)) != manifest.inputs[CONFIG]:
            raise PinMismatch(
                f"{path}: expected sha256 {manifest.inputs[CONFIG]}, got {actual}",
                next_step=f"Run `dvc repro fixtures/dvc.yaml:inputs@{slug}`; nothing was recorded.",
            )
        spec = json.loads(data).get(KEY)
        found[slug] = spec if isinstance(spec, dict) else None
    return found
