"""What the SMG gateway registers: parsers, renderers and tokenizers by name, and which models' names choose a parser.

Its wheel holds machine code only; the names stand in the Rust text of its source archive, and are read by expressions.
Text cannot tell a registration it does not know from one that is not there, so whatever is read one way is counted
another way, and what differs is an error.

| system | parts | where |
|---|---|---|
| smg | parsers | `register_parser…("name", … Box::new(Type::…` of the two factories |
| smg | renderers | variants of `enum Renderer` and the public modules of `encoders`, which have to agree |
| smg | tokenizers | variants of `enum TokenizerType`, without the one for tests |
| smg | `harmony`, a parser of both kinds and a renderer | a module of its own, beside the registries |
| smg-symphony | parsers | variants of `enum Table`: a name, a function that builds it, and what that function emits |
| smg-symphony | `hf`, a parser of both kinds | the constant that names the checkpoint's own response template |

The gateway has two ways to parse, its older parsers and the tables of Symphony. They are registries of their own: a
name of one means nothing to the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from bellwether.errors import RegistryError
from bellwether.registries.syntax import NEXT_STEP
from bellwether.registries.values import Entry, Files, normal, text_of

TOOL = "crates/tool_parser/src/factory.rs"
REASONING = "crates/reasoning_parser/src/factory.rs"
FACTORIES = {
    "tool": (TOOL, "tool_parser::parsers", "map_model"),
    "reasoning": (REASONING, "reasoning_parser::parsers", "register_pattern"),
}
"""Kind → (file, module of the implementations, method that maps a model's name)."""

RENDERERS = ("crates/tokenizer/src/huggingface.rs", "crates/tokenizer/src/tiktoken.rs")
"""Each tokenizer chooses among renderers of its own."""
JINJA = "Jinja"
"""The variant that is no encoder: the checkpoint's chat template."""
ENCODERS = "crates/tokenizer/src/encoders/"
TOKENIZERS = "crates/tokenizer/src/factory.rs"
FOR_TESTS = "Mock"
GRPC = "model_gateway/src/routers/grpc/mod.rs"
HARMONY = "model_gateway/src/routers/grpc/harmony/mod.rs"
HARMONY_TYPES = {
    "tool": "HarmonyParserAdapter",
    "reasoning": "HarmonyParserAdapter",
    "renderer": "HarmonyBuilder",
}
"""Kind → the type of the Harmony module that does its work."""

TABLES = "crates/symphony/src/formats/registry.rs"
FORMATS = "crates/symphony/src/formats/"
TEMPLATE = "model_gateway/src/config/types.rs"

_REGISTERS = re.compile(r"\bregistry\s*\.\s*register_parser\w*\(")
_REGISTRATION = re.compile(r'\s*"(?P<name>[^"]+)"\s*,\s*\|\|.*?\bBox::new\(\s*(?P<type>\w+)::(?P<maker>\w+)', re.DOTALL)
_MAPPING = r'\bregistry\s*\.\s*{method}\(\s*"([^"]+)"\s*,\s*"([^"]+)"\s*,?\s*\)'
_TESTS = re.compile(r"#\[cfg\(test\)\]\s*mod\s")
_ENUM = r"\benum {name} \{{(.*?)\n\}}"
_VARIANT = re.compile(r"\A([A-Z]\w*)(?:\([^)]*\))?\Z")
_MODULE = re.compile(r"^pub mod (\w+);$", re.MULTILINE)
_NAMES = re.compile(r"Self::(\w+)\s*=>\s*\"([^\"]+)\"\s*,")
_MAKERS = re.compile(r"Self::(\w+)\s*=>\s*(\w+)\(")
_ALL = re.compile(r"\bpub const ALL: \[Table; (\d+)\] = \[(.*?)\];", re.DOTALL)


def parts(files: Files) -> list[Entry]:
    """Return every name of the gateway's older parsers, its renderers and tokenizers, by kind and then as they stand.

    Raises:
        RegistryError: a registry is missing or written in another way, or two places that name the same differ.
    """
    found = [entry for kind in FACTORIES for entry in _parsers(files, kind)]
    found += _renderers(files) + _tokenizers(files) + _harmony(files)
    _require_different(found)
    return found


def symphony(files: Files) -> list[Entry]:
    """Return every name Symphony's tables go by, as a parser of the kinds its table emits; `hf` last.

    A table that emits neither reasoning nor calls is no parser of either kind, and left out.

    Raises:
        RegistryError: as `parts`.
    """
    names, makers = tables(files), _makers(files)
    found = []
    for kind, emits in (("tool", "calls"), ("reasoning", "reasoning")):
        found += [
            Entry(kind, names[table], "symphony::formats", f"{makers[table]} ({table})")
            for table in names
            if emits in _emitted(files, makers[table])
        ]
        found.append(Entry(kind, _template_name(files), "response_template", "ResponseTemplate"))
    _require_different(found)
    return found


def tables(files: Files) -> dict[str, str]:
    """Return Symphony's tables: variant of `enum Table` → name, in its order. Raises as `parts`."""
    text = _code(files, TABLES)
    names = dict(_NAMES.findall(_function(text, "name")))
    listed = _ALL.search(text)
    order = re.findall(r"Self::(\w+)", listed[2]) if listed else []
    if not order or listed is None or int(listed[1]) != len(order):
        raise RegistryError(f"{TABLES} has no whole list of its tables", next_step=NEXT_STEP)
    if odd := sorted(set(order) ^ set(names)):
        raise RegistryError(f"{TABLES}: its lists differ in {', '.join(odd)}", next_step=NEXT_STEP)
    if len(set(names.values())) != len(names):
        twice = next(name for name in names.values() if list(names.values()).count(name) > 1)
        raise RegistryError(f"{TABLES} names {twice} twice", next_step=NEXT_STEP)
    return {table: names[table] for table in order}


def _makers(files: Files) -> dict[str, str]:
    """Return Symphony's tables: variant → the function that builds it."""
    makers = dict(_MAKERS.findall(_function(_code(files, TABLES), "format")))
    if odd := sorted(set(tables(files)) ^ set(makers)):
        raise RegistryError(f"{TABLES}: its lists differ in {', '.join(odd)}", next_step=NEXT_STEP)
    return makers


def patterns(files: Files) -> dict[str, list[tuple[str, str]]]:
    """Return kind → (pattern of a model's name, name of the parser it chooses), in the gateway's order.

    Raises:
        RegistryError: there are none, or one chooses a parser that is not registered.
    """
    found = {}
    for kind, (path, _, method) in FACTORIES.items():
        text = _code(files, path)
        pairs = re.findall(_MAPPING.format(method=method), text)
        if not pairs or len(pairs) != len(re.findall(rf"\bregistry\s*\.\s*{method}\(", text)):
            raise RegistryError(f"{path}: {method} is called in another way", next_step=NEXT_STEP)
        known = {entry.name for entry in _parsers(files, kind)}
        if odd := sorted({name for _, name in pairs} - known):
            raise RegistryError(f"{path}: {method} chooses {', '.join(odd)}, not registered", next_step=NEXT_STEP)
        found[kind] = pairs
    return found


def _parsers(files: Files, kind: str) -> list[Entry]:
    path, module, _ = FACTORIES[kind]
    text = _code(files, path)
    starts = [match.end() for match in _REGISTERS.finditer(text)]
    if not starts:
        raise RegistryError(f"{path} registers no parser", next_step=NEXT_STEP)
    found = []
    for start, following in zip(starts, [*starts[1:], len(text)], strict=True):
        end = text.find("\n    }\n", start, following)  # of the method: the last registration is followed by other code
        match = _REGISTRATION.match(text, start, following if end < 0 else end)
        if match is None:
            line = text.count("\n", 0, start) + 1
            raise RegistryError(f"{path}:{line} registers a parser in another way", next_step=NEXT_STEP)
        maker = "" if match["maker"] == "new" else f"::{match['maker']}"
        found.append(Entry(kind, match["name"], module, match["type"] + maker))
    return found


def _renderers(files: Files) -> list[Entry]:
    modules = _MODULE.findall(text_of(files, f"{ENCODERS}mod.rs"))
    if missing := [name for name in modules if f"{ENCODERS}{name}.rs" not in files]:
        raise RegistryError(f"{ENCODERS} has no file for {', '.join(missing)}", next_step=NEXT_STEP)
    encoders = {normal(name): name for name in modules}
    found: dict[str, Entry] = {}
    for path in RENDERERS:
        for variant in _variants(_code(files, path), "Renderer", path):
            name = JINJA.lower() if variant == JINJA else encoders.get(normal(variant))
            if name is None:
                raise RegistryError(f"{path}: no encoder is called as Renderer::{variant}", next_step=NEXT_STEP)
            module = "tokenizer::chat_template" if variant == JINJA else f"tokenizer::encoders::{name}"
            found.setdefault(name, Entry("renderer", name, module, f"Renderer::{variant}"))
    if odd := sorted(set(modules) - set(found)):
        raise RegistryError(f"no Renderer stands for the encoder {', '.join(odd)}", next_step=NEXT_STEP)
    return list(found.values())


def _tokenizers(files: Files) -> list[Entry]:
    return [
        Entry("tokenizer", variant.lower(), "tokenizer::factory", f"TokenizerType::{variant}")
        for variant in _variants(_code(files, TOKENIZERS), "TokenizerType", TOKENIZERS)
        if variant != FOR_TESTS
    ]


def _harmony(files: Files) -> list[Entry]:
    """Harmony is no entry of a registry: the gateway detects its models, and takes this module's way for them."""
    declared = re.search(r"^pub(?:\(crate\))? mod harmony;$", text_of(files, GRPC), re.MULTILINE)
    if declared is None:
        raise RegistryError(f"{GRPC} has no module harmony", next_step=NEXT_STEP)
    text = text_of(files, HARMONY)
    if missing := [name for name in HARMONY_TYPES.values() if not re.search(rf"\buse .*\b{name}\b", text)]:
        raise RegistryError(f"{HARMONY} has no {missing[0]}", next_step=NEXT_STEP)
    return [Entry(kind, "harmony", "routers::grpc::harmony", name) for kind, name in HARMONY_TYPES.items()]


def _emitted(files: Files, maker: str) -> set[str]:
    """Return which of `calls` and `reasoning` the table built by `maker` can give, by the states it declares."""
    path = f"{FORMATS}{maker}.rs"
    text = _code(files, path)
    states = set(re.findall(r"\bEmits::(\w+)", text))
    if not re.search(rf"^pub fn {maker}\(", text, re.MULTILINE) or not states:
        raise RegistryError(f"{path} builds its table in another way", next_step=NEXT_STEP)
    return {word for state, word in (("Arguments", "calls"), ("Reasoning", "reasoning")) if state in states}


def _template_name(files: Files) -> str:
    match = re.search(r'^pub const TEMPLATE_PARSER: &str = "([^"]+)";$', text_of(files, TEMPLATE), re.MULTILINE)
    if match is None:
        raise RegistryError(f"{TEMPLATE} has no TEMPLATE_PARSER", next_step=NEXT_STEP)
    return match[1]


def _variants(text: str, name: str, path: str) -> list[str]:
    """Return the variants of the one enum `name`, without what they carry."""
    bodies = re.findall(_ENUM.format(name=name), text, re.DOTALL)
    if len(bodies) != 1:
        raise RegistryError(f"{path} has {len(bodies)} enums {name}, not one", next_step=NEXT_STEP)
    items = [item.strip() for item in re.sub(r"//.*", "", bodies[0]).split(",")]
    matches = [_VARIANT.match(item) for item in items if item]
    if not matches or None in matches:
        raise RegistryError(f"{path}: enum {name} is written in another way", next_step=NEXT_STEP)
    return [match[1] for match in matches if match]


def _function(text: str, name: str) -> str:
    """Return the body of the first method `name`, as rustfmt sets it."""
    match = re.search(rf"^    pub fn {name}\(self\).*?^    \}}$", text, re.DOTALL | re.MULTILINE)
    if match is None:
        raise RegistryError(f"{TABLES} has no fn {name}", next_step=NEXT_STEP)
    return match[0]


def _code(files: Files, path: str) -> str:
    """Return a file's text up to its tests, which register parsers of their own; comments are blanked."""
    text = _TESTS.split(text_of(files, path))[0]
    return re.sub(r"^(\s*)//.*$", r"\1", text, flags=re.MULTILINE)


def _require_different(entries: Iterable[Entry]) -> None:
    seen = set()
    for entry in entries:
        if (entry.kind, entry.name) in seen:
            raise RegistryError(f"the gateway registers {entry.name} twice", next_step=NEXT_STEP)
        seen.add((entry.kind, entry.name))
