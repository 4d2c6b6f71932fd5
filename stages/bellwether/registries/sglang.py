"""What SGLang registers: parsers, renderers and tokenizers by name, and the architectures its models announce.

A parser's name stands twice, in a module of names for the command line and in the dict that maps it to its class; both
are read, and they have to agree. Classes are names in the dict, so what they are follows from the file's imports. An
architecture is the name of a class that a module of `sglang/srt/models` lists as its `EntryClass`. The wheel names no
checkpoints: SGLang has them in its documentation only.

Renderers and tokenizers have no dict. Renderers are what the function that chooses one by the model can return, None
being the chat template, by the code each branch of the encoding function imports. Tokenizers are Transformers' and the
modules called `…_tokenizer`.
"""

from __future__ import annotations

import ast
import re

from bellwether.errors import RegistryError
from bellwether.registries import syntax
from bellwether.registries.values import Architecture, Entry, Files, text_of

PARTS = {
    "tool": (
        "sglang/srt/function_call/function_call_parser.py",
        "FunctionCallParser",
        "ToolCallParserEnum",
        "sglang/srt/function_call/parser_names.py",
        "TOOL_CALL_PARSER_NAMES",
    ),
    "reasoning": (
        "sglang/srt/parser/reasoning_parser.py",
        "ReasoningParser",
        "DetectorMap",
        "sglang/srt/parser/reasoning_parser_names.py",
        "REASONING_PARSER_NAMES",
    ),
}
"""Kind → (file, class and dict of the implementations; file and list of the names)."""

ENCODING = "sglang/srt/entrypoints/openai/chat_encoding.py"
CHOOSES, ENCODES = "resolve_chat_encoding_spec", "encode_simple_chat"
RENDERER_FILE = re.compile(r"sglang/srt/parser/(\w+)_renderer\.py\Z")
LOADS = "sglang/srt/utils/hf_transformers/tokenizer.py"
TOKENIZER_FILE = re.compile(r"sglang/srt/(?:parser|tokenizer)/(\w+)_tokenizer\.py\Z")
TRANSFORMERS = "hf"
"""The name of what comes from Transformers: vLLM's, since SGLang has none."""

MODELS = "sglang/srt/models/"
ENTRY = "EntryClass"
VERSION = "sglang/_version.py"


def parts(files: Files) -> list[Entry]:
    """Return every registered parser, renderer and tokenizer, by kind and then in SGLang's order.

    Raises:
        RegistryError: a registry is missing or written in another way, the names and the dict differ, a class comes
            from nowhere, or a renderer's module is chosen for no model.
    """
    return [*_parsers(files), *_renderers(files), *_tokenizers(files)]


def _parsers(files: Files) -> list[Entry]:
    found = []
    for kind, (path, cls, variable, names_path, names_variable) in PARTS.items():
        tree = syntax.module(text_of(files, path), path)
        where = f"{path}: {cls}.{variable}"
        entries = syntax.entries(syntax.assigned(syntax.class_body(tree, cls, path), variable, where), where)
        names_tree = syntax.module(text_of(files, names_path), names_path)
        names = syntax.texts(syntax.assigned(names_tree.body, names_variable, names_path), names_path)
        if odd := sorted(set(names) ^ {name for name, _ in entries}):
            raise RegistryError(
                f"{names_path} and {where} differ in {', '.join(odd)}", next_step="Look which of them SGLang uses."
            )
        known = syntax.origins(tree, path.removesuffix(".py").replace("/", "."))
        for name, value in entries:
            if not isinstance(value, ast.Name) or value.id not in known:
                raise RegistryError(f"{where}[{name!r}] is no class known there", next_step=syntax.NEXT_STEP)
            found.append(Entry(kind, name, *known[value.id]))
    return found


def _renderers(files: Files) -> list[Entry]:
    tree = syntax.module(text_of(files, ENCODING), ENCODING)
    chosen = [
        syntax.literal(node.value, f"{ENCODING}: {CHOOSES}")
        for node in ast.walk(ast.Module(syntax.function_body(tree, CHOOSES, ENCODING), []))
        if isinstance(node, ast.Return) and node.value is not None
    ]
    names = list(dict.fromkeys(chosen))
    if None not in names or not all(isinstance(name, str | None) for name in names):
        raise RegistryError(f"{ENCODING}: {CHOOSES} returns something else than names", next_step=syntax.NEXT_STEP)
    imported: dict[str, tuple[str, str]] = {}
    for node in syntax.function_body(tree, ENCODES, ENCODING):
        if not isinstance(node, ast.If) or not isinstance(node.test, ast.Compare):
            continue
        origin = next((statement for statement in node.body if isinstance(statement, ast.ImportFrom)), None)
        if origin is not None and origin.module:
            told = syntax.literal(node.test.comparators[0], f"{ENCODING}: {ENCODES}")
            names_there = (told,) if isinstance(told, str) else told
            imported |= dict.fromkeys(names_there, (origin.module, origin.names[0].name))
    if odd := sorted(imported.keys() - set(names)):
        raise RegistryError(f"{ENCODING}: {', '.join(odd)} is encoded and never chosen", next_step=syntax.NEXT_STEP)
    modules = {module.replace(".", "/") + ".py" for module, _ in imported.values()}
    if unused := sorted(path for path in files if RENDERER_FILE.match(path) and path not in modules):
        raise RegistryError(f"{unused[0]} is a renderer no model gets", next_step=syntax.NEXT_STEP)
    # without a branch of its own it is the tokenizer's: Jinja, or Python code that comes with the checkpoint
    template = ("transformers", "apply_chat_template")
    return [Entry("renderer", name or TRANSFORMERS, *imported.get(name or "", template)) for name in names]


def _tokenizers(files: Files) -> list[Entry]:
    tree = syntax.module(text_of(files, LOADS), LOADS)
    if "AutoTokenizer" not in {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}:
        raise RegistryError(f"{LOADS} loads no AutoTokenizer", next_step=syntax.NEXT_STEP)
    found = [Entry("tokenizer", TRANSFORMERS, "transformers", "AutoTokenizer")]
    for path in sorted(files):
        if match := TOKENIZER_FILE.match(path):
            body = syntax.module(files[path], path).body
            classes = [node.name for node in body if isinstance(node, ast.ClassDef) and node.name.endswith("Tokenizer")]
            module = path.removesuffix(".py").replace("/", ".")
            found.append(Entry("tokenizer", match[1], module, classes[0] if len(classes) == 1 else "(module)"))
    if len(found) == 1:
        raise RegistryError("no module of SGLang is called …_tokenizer", next_step=syntax.NEXT_STEP)
    return found


def architectures(files: Files) -> list[Architecture]:
    """Return the architectures SGLang's models announce, ordered by module and then as announced.

    Raises:
        RegistryError: no module announces any, one does so in another way, or two announce the same.
    """
    found: dict[str, Architecture] = {}
    for path in sorted(path for path in files if path.startswith(MODELS)):
        for name in _announced(files[path], path):
            if name in found:
                raise RegistryError(f"{path} announces {name} a second time", next_step=syntax.NEXT_STEP)
            found[name] = Architecture(name, "unsorted")
    if not found:
        raise RegistryError(f"no module of {MODELS} has an {ENTRY}", next_step=syntax.NEXT_STEP)
    return list(found.values())


def commit(files: Files) -> str | None:
    """Return the commit the archive was built from. Raises RegistryError when it has no place for one."""
    return syntax.commit(text_of(files, VERSION), VERSION)


def _announced(text: str, path: str) -> list[str]:
    """Return the class names a module lists as its EntryClass; none where it has no such name at all."""
    if ENTRY not in text:
        return []
    tree = syntax.module(text, path)
    writes = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == ENTRY and _stores(node)]
    if not writes:
        return []
    value = syntax.assigned(tree.body, ENTRY, path)
    items = value.elts if isinstance(value, ast.List) else [value]
    if len(writes) != 1 or not items or not all(isinstance(item, ast.Name) for item in items):
        raise RegistryError(f"{path}: {ENTRY} is no class and no list of classes", next_step=syntax.NEXT_STEP)
    return [item.id for item in items if isinstance(item, ast.Name)]


def _stores(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)
