"""The BFCL importer: the whole wheel against known figures, and every rule on archives of a few rows."""

from __future__ import annotations

import csv
import hashlib
import json
import zipfile
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from bellwether.case import Case, LeftOut, Origin, Repeat, json_text
from bellwether.corpora.bfcl import CATEGORIES, SETS, UNANSWERED, cases
from bellwether.corpora.repeats import drop_repeats
from bellwether.errors import CorpusError

FIGURES = Path(__file__).parents[1] / "expected"
DATA = "bfcl_eval/data"
CONFIG = "bfcl_eval/constants/executable_backend_config.py"

PYTHON_HINT = " Note that the provided function is in Python 3 syntax."
JAVA_HINT = " Note that the provided function is in Java 8 SDK syntax."
JAVASCRIPT_HINT = " Note that the provided function is in JavaScript syntax."

SHOP_SOURCE = '''\
import os

LIMIT = os.cpu_count()


class Helper:
    def order(self, wrong):
        return wrong


class Shop:
    """A class whose code is never run."""

    raise RuntimeError("run")

    def order(self, item: str, count: int = 1, *, note: str = "") -> dict:
        return {}

    def list_all(self): ...
'''
TILL_SOURCE = "class Till:\n    def order(self, till, item): ...\n    def close(self): ...\n"
CONFIG_SOURCE = """\
import os

PREFIX = "bfcl_eval.backend"
UNREAD = os.environ["NOT_SET"]
MULTI_TURN_FUNC_DOC_FILE_MAPPING = {"Shop": "shop.json", "Till": "till.json"}
CLASS_FILE_PATH_MAPPING = {"Shop": f"{PREFIX}.shop", "Till": f"{PREFIX}.till"}
"""


def function(name: str, properties: Mapping[str, Any], required: Sequence[str] = ()) -> dict[str, Any]:
    parameters = {"type": "dict", "properties": properties, "required": list(required)}
    return {"name": name, "description": "D.", "parameters": parameters}


def text(description: str = "P.") -> dict[str, Any]:
    return {"type": "string", "description": description}


# the descriptions list the parameters of `order` in another order than its `def`
SHOP_DOC = [function("order", {"note": text(), "count": text(), "item": text()}), function("list_all", {})]
TILL_DOC = [function("order", {"item": text(), "till": text()}), function("close", {})]


def row(row_id: str, *functions: Mapping[str, Any], content: str = "hi") -> dict[str, Any]:
    return {"id": row_id, "question": [[{"role": "user", "content": content}]], "function": list(functions)}


def turns_row(row_id: str, classes: Sequence[str], **more: Any) -> dict[str, Any]:
    question = [[{"role": "user", "content": "first"}], [{"role": "user", "content": "second"}]]
    return {"id": row_id, "question": question, "involved_classes": list(classes), **more}


def lines(rows: Sequence[Any]) -> str:
    return "".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in rows)


def archive(
    folder: Path,
    questions: Mapping[str, Sequence[Any]],
    answers: Mapping[str, Mapping[str, Any]] | None = None,
    files: Mapping[str, str | bytes | None] | None = None,
) -> Path:
    """Write an archive of the wheel's layout; `files` replaces whole members, or removes them by None."""
    members: dict[str, str | bytes | None] = {
        CONFIG: CONFIG_SOURCE,
        "bfcl_eval/backend/shop.py": SHOP_SOURCE,
        "bfcl_eval/backend/till.py": TILL_SOURCE,
        f"{DATA}/multi_turn_func_doc/shop.json": lines(SHOP_DOC),
        f"{DATA}/multi_turn_func_doc/till.json": lines(TILL_DOC),
    }
    for category in CATEGORIES:
        rows = questions.get(category, ())
        members[f"{DATA}/BFCL_v4_{category}.json"] = lines(rows)
        if category not in UNANSWERED:
            truths = (answers or {}).get(category, {})
            known = [{"id": entry["id"], "ground_truth": truths.get(entry["id"], [])} for entry in rows]
            members[f"{DATA}/possible_answer/BFCL_v4_{category}.json"] = lines(known)
    path = folder / "bfcl.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for name, content in {**members, **(files or {})}.items():
            if content is not None:
                wheel.writestr(name, content)
    return path


def tools_of(folder: Path, category: str, *functions: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the functions of the tools of one row, as text so that the key order counts."""
    (render, *_) = list(cases(archive(folder, {category: [row("r_1", *functions)]})))
    return [json.dumps(tool["function"], ensure_ascii=False) for tool in json.loads(render.request)["tools"]]


def schema_of(folder: Path, category: str, schema: Mapping[str, Any]) -> str:
    """Return the schema that becomes of one parameter, as text so that the key order counts."""
    (tool,) = tools_of(folder, category, function("f", {"p": schema}))
    return json.dumps(json.loads(tool)["parameters"]["properties"]["p"], ensure_ascii=False)


def parse_of(folder: Path, category: str, question: Mapping[str, Any], truth: Sequence[Any]) -> Case | LeftOut:
    _, parse = list(cases(archive(folder, {category: [question]}, {category: {question["id"]: truth}})))
    return parse


def calls_of(folder: Path, category: str, question: Mapping[str, Any], truth: Sequence[Any]) -> list[tuple[str, str]]:
    message = json.loads(parse_of(folder, category, question, truth).message)
    return [(call["function"]["name"], call["function"]["arguments"]) for call in message["tool_calls"]]


def error_of(path: Path) -> str:
    with pytest.raises(CorpusError) as caught:
        list(drop_repeats(cases(path)))
    assert caught.value.next_step
    return str(caught.value)


def table(name: str) -> list[tuple[str, ...]]:
    with (FIGURES / name).open(encoding="utf-8", newline="") as file:
        _, *rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
    return [tuple(entry) for entry in rows]


# --- the whole wheel


@pytest.fixture(scope="module")
def imported(bfcl_wheel: Path) -> list[Case | Repeat | LeftOut]:
    return list(drop_repeats(cases(bfcl_wheel)))


def test_every_set_has_its_known_lines(imported: list[Case | Repeat | LeftOut]):
    """Per kind and set: the count and the sha256 of the lines of name, request and message, in import order."""
    counts: Counter[tuple[str, str]] = Counter()
    digests: defaultdict[tuple[str, str], Any] = defaultdict(hashlib.sha256)
    for case in imported:
        if isinstance(case, Case):
            message = "" if case.message is None else f',"message":{case.message}'
            line = f'{{"name":{json_text(case.name)},"request":{case.request}{message}}}\n'
            counts[case.kind, case.set] += 1
            digests[case.kind, case.set].update(line.encode())
    got = [(*key, str(counts[key]), digests[key].hexdigest()) for key in sorted(counts)]
    assert got == sorted(table("bfcl_sets.tsv"))


def test_kinds_have_their_known_totals(imported: list[Case | Repeat | LeftOut]):
    """4,119 render and 2,735 parse cases stay."""
    assert Counter(case.kind for case in imported if isinstance(case, Case)) == {"render": 4119, "parse": 2735}


def test_known_repeats_are_dropped(imported: list[Case | Repeat | LeftOut]):
    """632 cases repeat an earlier one: these, in this order, and this many of each kind."""
    repeats = [item for item in imported if isinstance(item, Repeat)]
    named = [(repeat.name, repeat.repeats.rpartition("/")[2]) for repeat in repeats]
    assert named == table("bfcl_repeats.tsv")
    assert Counter((repeat.set, repeat.kind) for repeat in repeats) == {
        ("bfcl-live-irrelevance", "render"): 6,
        ("bfcl-multi-turn-base", "render"): 1,
        ("bfcl-multi-turn-base", "parse"): 1,
        ("bfcl-multi-turn-miss-func", "render"): 1,
        ("bfcl-multi-turn-miss-func", "parse"): 1,
        ("bfcl-multi-turn-miss-param", "render"): 117,
        ("bfcl-multi-turn-miss-param", "parse"): 114,
        ("bfcl-multi-turn-long-context", "render"): 197,
        ("bfcl-multi-turn-long-context", "parse"): 194,
    }
    assert all(repeat.repeats.startswith(repeat.kind + "/") for repeat in repeats)


def test_known_rows_are_left_out(imported: list[Case | Repeat | LeftOut]):
    """256 rows have no parse case, each for the known reason."""
    left_out = [item for item in imported if isinstance(item, LeftOut)]
    assert [(item.row, item.reason) for item in left_out] == table("bfcl_left_out.tsv")
    assert {item.kind for item in left_out} == {"parse"}


def test_origins_name_the_question_files(imported: list[Case | Repeat | LeftOut], bfcl_wheel: Path):
    """One origin per category, with the sha256 of the question file's bytes."""
    got = {(case.set, case.origin) for case in imported if isinstance(case, Case)}
    with zipfile.ZipFile(bfcl_wheel) as wheel:
        want = set()
        for category in CATEGORIES:
            path = f"{DATA}/BFCL_v4_{category}.json"
            digest = hashlib.sha256(wheel.read(path)).hexdigest()
            want.add((SETS[category], Origin("bfcl", "pypi:bfcl-eval==2026.3.23", path, digest, "Apache-2.0")))
    assert got == want


# --- one row


def test_a_row_gives_a_render_and_a_parse_case(tmp_path: Path):
    """The two cases of a row, whole."""
    question = row("Live_simple_0-0--0_", function("a.b", {"p": text()}, ["p"]), content="où\u2028?")
    path = archive(tmp_path, {"live_simple": [question]}, {"live_simple": {question["id"]: [{"a.b": {"p": ["é"]}}]}})
    digest = hashlib.sha256((json.dumps(question, ensure_ascii=False) + "\n").encode()).hexdigest()
    origin = Origin(
        "bfcl", "pypi:bfcl-eval==2026.3.23", f"{DATA}/BFCL_v4_live_simple.json", digest, license="Apache-2.0"
    )
    request = (
        '{"messages":[{"role":"user","content":"où\u2028?"}],"temperature":0.001,"store":false,'
        '"tools":[{"type":"function","function":{"name":"a_b","description":"D.' + PYTHON_HINT + '",'
        '"parameters":{"type":"object","properties":{"p":{"type":"string","description":"P."}},"required":["p"]}}}]}'
    )
    message = (
        '{"content":"","tool_calls":[{"type":"function","function":{"name":"a_b","arguments":"{\\"p\\": \\"é\\"}"}}]}'
    )
    shared = {"set": "bfcl-live-simple", "name": "bfcl-live-simple-0-0-0", "origin": origin, "row": question["id"]}
    made = ("temperature", "store", "tools")
    assert list(cases(path)) == [
        Case("render", **shared, written=made, request=request),
        Case("parse", **shared, written=(*made, "message"), request=request, message=message),
    ]


def test_a_row_without_functions_has_no_tools(tmp_path: Path):
    """An empty list of tools is left out of the request."""
    (render,) = list(cases(archive(tmp_path, {"live_irrelevance": [row("r_1")]})))
    assert render.request == '{"messages":[{"role":"user","content":"hi"}],"temperature":0.001,"store":false}'
    assert render.written == ("temperature", "store")


def test_categories_are_built_one_after_the_other(tmp_path: Path):
    """Fixed order of categories; in each all render cases, then all parse cases."""
    questions = {category: [row("r_1"), row("r_2")] for category in ("irrelevance", "multiple", "simple_python")}
    left_out = [("LeftOut", "r_1"), ("LeftOut", "r_2")]
    render = [("Case", "r_1"), ("Case", "r_2")]
    got = [(type(item).__name__, item.row) for item in cases(archive(tmp_path, questions))]
    assert got == [*render, *left_out, *render, *left_out, *render]


def test_blank_lines_are_skipped(tmp_path: Path):
    """Blank lines and a missing last LF are no fault; U+2028 and U+0085 inside a string end no line."""
    first, second = row("r_1", content="a\u2028b\u0085c"), row("r_2")
    data = "\n" + json.dumps(first, ensure_ascii=False) + "\n \r\n" + json.dumps(second)
    path = archive(tmp_path, {}, files={f"{DATA}/BFCL_v4_irrelevance.json": data})
    assert [case.row for case in cases(path)] == ["r_1", "r_2"]


# --- tool schemas


@pytest.mark.parametrize(
    ("json_type", "names"),
    [
        ("integer", "integer byte short long Bigint"),
        ("number", "number double"),
        ("string", "string any char Any String unheard-of"),
        ("boolean", "boolean bool"),
        ("array", "array list tuple ArrayList Array Queue Stack"),
        ("object", "dict object HashMap Hashtable"),
    ],
)
def test_types_become_json_schema_types(tmp_path: Path, json_type: str, names: str):
    """Each type name of the dataset, in place; a name nobody knows is a string."""
    properties = {name: {"type": name, "description": "P.", "default": 1} for name in names.split()}
    (tool,) = tools_of(tmp_path, "simple_python", function("f", properties))
    want = {name: {"type": json_type, "description": "P.", "default": 1} for name in names.split()}
    assert json.dumps(json.loads(tool)["parameters"]["properties"]) == json.dumps(want)


def test_float_gets_a_format_and_a_note(tmp_path: Path):
    """`float` is a number whose description says so; `format` goes last."""
    schema = {"type": "float", "description": "P.", "default": 1.0}
    want = '{"type": "number", "description": "P. This is a float type value.", "default": 1.0, "format": "float"}'
    assert schema_of(tmp_path, "multiple", schema) == want


def test_missing_type_is_a_string(tmp_path: Path):
    """A parameter without type gets one at the end, and nothing below it changes."""
    schema = {"description": "P.", "properties": {"q": {"type": "dict"}}}
    want = '{"description": "P.", "properties": {"q": {"type": "dict"}}, "type": "string"}'
    assert schema_of(tmp_path, "multiple", schema) == want


def test_properties_are_mapped_at_any_depth(tmp_path: Path):
    """Objects in objects, and the float note inside them."""
    leaf = {"type": "float", "description": "L."}
    schema = {"type": "dict", "properties": {"q": {"type": "HashMap", "properties": {"r": leaf}}}}
    assert json.loads(schema_of(tmp_path, "multiple", schema)) == {
        "type": "object",
        "properties": {
            "q": {
                "type": "object",
                "properties": {
                    "r": {"type": "number", "description": "L. This is a float type value.", "format": "float"}
                },
            }
        },
    }


def test_properties_win_over_items(tmp_path: Path):
    """Of a schema with both, only the properties are mapped."""
    schema = {"type": "array", "items": {"type": "float"}, "properties": {"q": {"type": "bool"}}}
    want = '{"type": "array", "items": {"type": "float"}, "properties": {"q": {"type": "boolean"}}}'
    assert schema_of(tmp_path, "multiple", schema) == want


def test_scalars_keep_what_hangs_below_them(tmp_path: Path):
    """`items` of a parameter that is no array or object is not touched."""
    schema = {"type": "string", "items": {"type": "float"}}
    assert schema_of(tmp_path, "multiple", schema) == '{"type": "string", "items": {"type": "float"}}'


@pytest.mark.parametrize(
    ("items", "want"),
    [
        pytest.param(
            {"type": "float", "description": "I."}, {"type": "number", "description": "I."}, id="no-float-note"
        ),
        pytest.param(
            {"type": "tuple", "items": {"type": "list", "items": {"type": "dict"}}},
            {"type": "array", "items": {"type": "array", "items": {"type": "dict"}}},
            id="second-level-type-only",
        ),
        pytest.param(
            {
                "type": "dict",
                "properties": {"q": {"type": "list", "items": {"type": "long", "x": 1}}},
            },
            {"type": "object", "properties": {"q": {"type": "array", "items": {"type": "integer", "x": 1}}}},
            id="object-in-list",
        ),
        pytest.param({"type": "dict"}, {"type": "object"}, id="object-without-properties"),
    ],
)
def test_items_are_mapped(tmp_path: Path, items: dict[str, Any], want: dict[str, Any]):
    """Element types get no float note; of lists in lists one more type is mapped; objects in lists go all the way."""
    assert json.loads(schema_of(tmp_path, "multiple", {"type": "array", "items": items})) == {
        "type": "array",
        "items": want,
    }


@pytest.mark.parametrize(
    ("category", "hint"),
    [
        ("simple_python", PYTHON_HINT),
        ("simple_java", JAVA_HINT),
        ("simple_javascript", JAVASCRIPT_HINT),
        ("live_simple", PYTHON_HINT),
    ],
)
def test_descriptions_name_the_language(tmp_path: Path, category: str, hint: str):
    """The hint follows the description; keys of the function keep their order and every dot of the name goes."""
    parameters = {"required": [], "type": "dict", "properties": {}, "optional": ["x"]}
    spoken = {"description": "D.", "name": "a.b.c", "parameters": parameters, "strict": True}
    want = {
        "description": "D." + hint,
        "name": "a_b_c",
        "parameters": {"required": [], "type": "object", "properties": {}, "optional": ["x"]},
        "strict": True,
    }
    assert tools_of(tmp_path, category, spoken) == [json.dumps(want)]


JAVA_ITEMS = {"type": "float", "description": "I."}


@pytest.mark.parametrize(
    ("category", "schema", "want"),
    [
        pytest.param(
            "simple_java",
            {"type": "HashMap", "description": "P.", "properties": {"é": {"type": "float"}}, "default": {}},
            {
                "type": "string",
                "description": "P. This is Java HashMap type parameter in string representation.",
                "properties": {"é": {"type": "float"}},
                "default": {},
            },
            id="java-type",
        ),
        pytest.param(
            "simple_java",
            {"description": "P.", "type": "any"},
            {
                "description": "P. This parameter can be of any type of Java object in string representation.",
                "type": "string",
            },
            id="java-any",
        ),
        *[
            pytest.param(
                "simple_java",
                {"type": kind, "items": JAVA_ITEMS, "description": "P."},
                {
                    "type": "string",
                    "description": f"P. This is Java {kind} type parameter in string representation."
                    " The list elements are of type float; they are not in string representation.",
                },
                id=f"java-{kind}",
            )
            for kind in ("ArrayList", "Array")
        ],
        pytest.param(
            "simple_java",
            {"type": "array", "items": JAVA_ITEMS, "description": "P."},
            {
                "type": "string",
                "items": JAVA_ITEMS,
                "description": "P. This is Java array type parameter in string representation.",
            },
            id="java-array-is-no-list",
        ),
        pytest.param(
            "simple_java",
            {"type": "dict", "properties": {"q": {}}, "description": "P."},
            {
                "type": "string",
                "properties": {"q": {}},
                "description": "P. This is Java dict type parameter in string representation.",
            },
            id="java-dict-keeps-properties",
        ),
        pytest.param(
            "simple_javascript",
            {"type": "any", "description": "P."},
            {
                "type": "string",
                "description": "P. This parameter can be of any type of JavaScript object in string representation.",
            },
            id="javascript-any",
        ),
        pytest.param(
            "simple_javascript",
            {"type": "array", "items": {"type": "String"}, "description": "P."},
            {
                "type": "string",
                "description": "P. This is JavaScript array type parameter in string representation."
                " The list elements are of type String; they are not in string representation.",
            },
            id="javascript-array",
        ),
        pytest.param(
            "simple_javascript",
            {"type": "dict", "properties": {"é": {"type": "float", "n": [1, 1.0]}}, "description": "P."},
            {
                "type": "string",
                "description": "P. This is JavaScript dict type parameter in string representation."
                " The dictionary entries have the following schema; they are not in string representation."
                ' {"\\u00e9": {"type": "float", "n": [1, 1.0]}}',
            },
            id="javascript-dict",
        ),
        pytest.param(
            "simple_javascript",
            {"type": "dict", "description": "P."},
            {
                "type": "string",
                "description": "P. This is JavaScript dict type parameter in string representation.",
            },
            id="javascript-dict-without-properties",
        ),
        pytest.param(
            "simple_javascript",
            {"type": "float", "description": "P."},
            {
                "type": "string",
                "description": "P. This is JavaScript float type parameter in string representation.",
            },
            id="javascript-float-has-no-format",
        ),
    ],
)
def test_java_and_javascript_parameters_become_strings(
    tmp_path: Path, category: str, schema: dict[str, Any], want: dict[str, Any]
):
    """The description tells the type the string stands for, and the schema it replaces goes."""
    assert schema_of(tmp_path, category, schema) == json.dumps(want, ensure_ascii=False)


# --- calls of single-turn rows


@pytest.mark.parametrize(
    ("acceptable", "arguments"),
    [
        pytest.param(["a", "b"], '{"p": "a"}', id="first"),
        pytest.param(["", "b"], '{"p": "b"}', id="not-the-empty-string"),
        pytest.param([""], "{}", id="only-omission"),
        pytest.param([], "{}", id="nothing"),
        pytest.param([0, ""], '{"p": 0}', id="zero-is-a-value"),
        pytest.param([False], '{"p": false}', id="false-is-a-value"),
        pytest.param([None], '{"p": null}', id="null-is-a-value"),
        pytest.param([[], [1]], '{"p": []}', id="empty-list-is-a-value"),
        pytest.param([1.0], '{"p": 1.0}', id="float-stays-float"),
        pytest.param(["é\u2028"], '{"p": "é\u2028"}', id="raw-text"),
        pytest.param([["a", ""]], '{"p": ["a", ""]}', id="list-as-is"),
        pytest.param([{"b": ["", 2], "a": ["x", "y"], "c": [""]}], '{"p": {"b": 2, "a": "x"}}', id="dict"),
        pytest.param([[{"a": [1, 2]}, {"a": ["", 3], "b": [""]}]], '{"p": [{"a": 1}, {"a": 3}]}', id="list-of-dicts"),
        pytest.param([{"a": [{"b": ["x"]}]}], '{"p": {"a": {"b": ["x"]}}}', id="one-level-of-dicts"),
        pytest.param([[{"a": [1]}, 2]], '{"p": [{"a": [1]}, 2]}', id="mixed-list-as-is"),
        pytest.param([{"a": "bare"}], '{"p": {"a": "bare"}}', id="bare-value-as-is"),
    ],
)
def test_first_acceptable_value_counts(tmp_path: Path, acceptable: list[Any], arguments: str):
    """The value of an argument is the first acceptable one that is not the empty string."""
    question = row("r_1", function("f", {"p": text()}))
    assert calls_of(tmp_path, "simple_python", question, [{"f": {"p": acceptable}}]) == [("f", arguments)]


def test_each_entry_is_a_call(tmp_path: Path):
    """Calls keep the order of the ground truth, arguments the order of the answer; dots of the name go."""
    question = row("r_1", function("a.f", {"p": text(), "q": text()}), function("g", {}))
    truth = [{"g": {}}, {"a.f": {"q": ["1"], "p": ["2"]}}, {"g": {}}]
    want = [("g", "{}"), ("a_f", '{"q": "1", "p": "2"}'), ("g", "{}")]
    assert calls_of(tmp_path, "parallel", question, truth) == want


def test_undeclared_parameter_is_skipped_where_it_may_be_omitted(tmp_path: Path):
    """A parameter the function does not declare goes, whatever its other values."""
    question = row("r_1", function("f", {"p": text()}))
    truth = [{"f": {"ghost": ["a", ""], "p": ["b"]}}]
    assert calls_of(tmp_path, "simple_python", question, truth) == [("f", '{"p": "b"}')]


@pytest.mark.parametrize(
    ("category", "truth", "reason"),
    [
        pytest.param("simple_python", [], "first turn has no call", id="no-call"),
        pytest.param("simple_python", [{"f": {"p": ["a"], "x": ["b"]}}], "f: no parameter x", id="undeclared"),
        pytest.param("simple_python", [{"f": {}}], "f: required parameter without a value", id="required-absent"),
        pytest.param(
            "simple_python", [{"f": {"p": [""]}}], "f: required parameter without a value", id="required-empty"
        ),
        pytest.param("simple_python", [{"g": {"p": ["a"]}}], "no function g", id="unknown-function"),
        pytest.param("simple_java", [{"f": {"p": [1]}}], "value not a string", id="java-number"),
        pytest.param("simple_java", [{"f": {"p": [{"a": "bare"}]}}], "value not a string", id="java-dict"),
        pytest.param("simple_javascript", [{"f": {"p": ["", None]}}], "value not a string", id="javascript-null"),
    ],
)
def test_row_without_passing_call_is_left_out(tmp_path: Path, category: str, truth: list[Any], reason: str):
    """The render case stays, and the reason stands in place of the parse case."""
    question = row("r_1", function("f", {"p": text()}, required=["p"]))
    render, left_out = list(cases(archive(tmp_path, {category: [question]}, {category: {"r_1": truth}})))
    assert (render.kind, render.row) == ("render", "r_1")
    assert left_out == LeftOut("parse", SETS[category], "r_1", reason)


def test_java_row_of_strings_has_a_call(tmp_path: Path):
    """Only the chosen values must be strings."""
    question = row("r_1", function("f", {"p": text()}))
    assert calls_of(tmp_path, "simple_java", question, [{"f": {"p": ["new A()", 1]}}]) == [("f", '{"p": "new A()"}')]


# --- multi-turn rows


def test_first_turn_of_a_multi_turn_row_is_the_request(tmp_path: Path):
    """Messages of turn one; the functions of the classes in the row's order, whatever `excluded_function` says."""
    question = turns_row("m_1", ["Till", "Shop"], excluded_function=["close"])
    render, left_out = list(cases(archive(tmp_path, {"multi_turn_base": [question]})))
    request = json.loads(render.request)
    assert request["messages"] == [{"role": "user", "content": "first"}]
    assert [tool["function"]["name"] for tool in request["tools"]] == ["order", "close", "order", "list_all"]
    assert {tool["function"]["description"] for tool in request["tools"]} == {"D." + PYTHON_HINT}
    assert left_out == LeftOut("parse", "bfcl-multi-turn-base", "m_1", "first turn has no call")


def test_missed_functions_are_held_back(tmp_path: Path):
    """Of each name the first function goes; functions of other rows stay."""
    held_back = turns_row("m_1", ["Shop", "Till"], missed_function={"1": ["order"], "2": ["close"]})
    plain = turns_row("m_2", ["Shop", "Till"])
    path = archive(tmp_path, {"multi_turn_miss_func": [held_back, plain]})
    first, second = (json.loads(case.request) for case in cases(path) if isinstance(case, Case))
    assert [tool["function"]["name"] for tool in first["tools"]] == ["list_all", "order"]
    assert list(first["tools"][1]["function"]["parameters"]["properties"]) == ["item", "till"]
    assert [tool["function"]["name"] for tool in second["tools"]] == ["order", "list_all", "order", "close"]


@pytest.mark.parametrize(
    ("classes", "call", "want"),
    [
        pytest.param(["Shop"], "order(note='a', item='b')", ("order", '{"note": "a", "item": "b"}'), id="keywords"),
        pytest.param(["Shop"], "order('a', 2)", ("order", '{"item": "a", "count": 2}'), id="order-of-the-def"),
        pytest.param(["Shop"], "order('a', note='é')", ("order", '{"item": "a", "note": "é"}'), id="mixed"),
        pytest.param(["Shop"], "order(item=-1.0)", ("order", '{"item": -1.0}'), id="negative-float"),
        pytest.param(["Shop"], "order(item=[True, None])", ("order", '{"item": [true, null]}'), id="constants"),
        pytest.param(["Shop"], "order(item={'a': (1, 2)})", ("order", '{"item": {"a": [1, 2]}}'), id="nested"),
        pytest.param(["Shop"], "list_all()", ("list_all", "{}"), id="no-arguments"),
        pytest.param(["Shop", "Till"], "order('a', 'b')", ("order", '{"till": "a", "item": "b"}'), id="later-class"),
        pytest.param(["Till", "Shop"], "order('a')", ("order", '{"item": "a"}'), id="later-class-turned"),
    ],
)
def test_calls_are_read_from_python_text(tmp_path: Path, classes: list[str], call: str, want: tuple[str, str]):
    """Positional values take the names of the method's own `def`; keywords keep their order."""
    truth = [[call], ["close()"]]
    assert calls_of(tmp_path, "multi_turn_base", turns_row("m_1", classes), truth) == [want]


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("close()", "no function close"),
        ("order(ghost=1)", "order: no parameter ghost"),
    ],
)
def test_multi_turn_row_without_passing_call_is_left_out(tmp_path: Path, call: str, reason: str):
    """Calls the first turn's tools do not permit make no parse case."""
    left_out = parse_of(tmp_path, "multi_turn_base", turns_row("m_1", ["Shop"]), [[call]])
    assert left_out == LeftOut("parse", "bfcl-multi-turn-base", "m_1", reason)


@pytest.mark.parametrize("truth", [[], [[]], [[], ["order()"]]], ids=["no-turn", "empty-turn", "later-turn"])
def test_first_turn_without_call_is_left_out(tmp_path: Path, truth: list[Any]):
    """Only the first turn counts."""
    left_out = parse_of(tmp_path, "multi_turn_base", turns_row("m_1", ["Shop"]), truth)
    assert left_out == LeftOut("parse", "bfcl-multi-turn-base", "m_1", "first turn has no call")


# --- bad input


def test_missing_archive_is_an_error(tmp_path: Path):
    """An archive that is not there is named."""
    assert error_of(tmp_path / "none.whl").startswith(f"{tmp_path / 'none.whl'}: expected the bfcl-eval wheel, got ")


def test_truncated_archive_is_an_error(tmp_path: Path):
    """Half a zip file has no directory."""
    path = archive(tmp_path, {})
    path.write_bytes(path.read_bytes()[:-100])
    assert error_of(path) == f"{path}: expected the bfcl-eval wheel, got File is not a zip file"


def test_damaged_member_is_an_error(tmp_path: Path):
    """A flipped byte in the data is found by the archive's checksum."""
    path = archive(tmp_path, {"irrelevance": [row("r_1", content="needle")]})
    path.write_bytes(path.read_bytes().replace(b"needle", b"noodle"))
    assert error_of(path).startswith(f"{DATA}/BFCL_v4_irrelevance.json: expected whole in {path}, got Bad CRC-32")


@pytest.mark.parametrize(
    "member",
    [
        f"{DATA}/BFCL_v4_live_simple.json",
        f"{DATA}/possible_answer/BFCL_v4_live_simple.json",
        f"{DATA}/multi_turn_func_doc/till.json",
        "bfcl_eval/backend/shop.py",
        CONFIG,
    ],
)
def test_missing_file_is_an_error(tmp_path: Path, member: str):
    """Every file the rules read must be there: less would silently be fewer cases."""
    path = archive(tmp_path, {}, files={member: None})
    assert error_of(path) == f"{member}: expected in {path}, got no such file"


@pytest.mark.parametrize(
    "member",
    [
        f"{DATA}/BFCL_v4_irrelevance.json",
        f"{DATA}/possible_answer/BFCL_v4_simple_java.json",
        f"{DATA}/multi_turn_func_doc/shop.json",
    ],
)
@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (b'{"id": "r_2", ', "expected a line of JSON, got "),
        (b'{"id": "\xff"}', "expected a line of JSON, got "),
        (b'{"id": NaN}', "expected a line of JSON, got NaN"),
        (b'{"id": ' + b"[" * 200_000, "expected a line of JSON, got "),
        (b'["r_2"]', "expected an object, got list"),
    ],
    ids=["torn", "not-utf-8", "nan", "too-deep", "not-an-object"],
)
def test_bad_line_is_named(tmp_path: Path, member: str, line: bytes, fault: str):
    """The error names the file inside the archive and the 1-based line, blank lines counted."""
    good = lines([{**row("r_1"), "ground_truth": []}]).encode()
    path = archive(tmp_path, {}, files={member: good + b"\n" + line + b"\n"})
    assert error_of(path).startswith(f"{member}:3: {fault}")


def test_two_rows_with_one_name_are_an_error(tmp_path: Path):
    """Identifiers that differ in characters a name has not would give two cases one name."""
    path = archive(tmp_path, {"irrelevance": [row("Row_1"), row("row-1", content="other")]})
    assert error_of(path) == (
        "two render cases are named 'bfcl-row-1'; expected one case per name and kind, "
        f"got render/bfcl-irrelevance/bfcl-row-1 ({DATA}/BFCL_v4_irrelevance.json, row Row_1) "
        f"and render/bfcl-irrelevance/bfcl-row-1 ({DATA}/BFCL_v4_irrelevance.json, row row-1)"
    )


TWO_TURNS = {**row("r_2"), "question": [[], []]}


@pytest.mark.parametrize(
    ("bad", "fault"),
    [
        pytest.param(TWO_TURNS, "question: expected exactly one turn, got 2", id="two-turns"),
        pytest.param({**row("r_2"), "question": []}, "question: expected exactly one turn, got 0", id="no-turn"),
        pytest.param({**row("r_2"), "question": ["hi"]}, "question: expected list, got str", id="turn-no-list"),
        pytest.param({**row("r_2"), "id": 2}, "id: expected str, got int", id="id-no-text"),
        pytest.param(row("é"), "id: expected a letter or digit of ASCII in it, got 'é'", id="id-without-ascii"),
        pytest.param({"id": "r_2", "question": [[]]}, "function: expected list, got nothing", id="no-function"),
        pytest.param(row("r_2", []), "function: expected dict, got list", id="function-no-object"),
        pytest.param(row("r_2", {"name": "f"}), "parameters: expected dict, got nothing", id="no-parameters"),
        pytest.param(row("r_2", function("f", {"p": "x"})), "p: expected dict, got str", id="parameter-no-object"),
        pytest.param(
            row("r_2", function("f", {"p": {"type": ["string"]}})), "type: expected str, got list", id="list-of-types"
        ),
        pytest.param(
            row("r_2", function("f", {"p": {"type": "float"}})),
            "description: expected str, got nothing",
            id="float-without-description",
        ),
        pytest.param(
            row("r_2", function("f", {"p": {"type": "list", "items": {}}})),
            "type: expected str, got nothing",
            id="items-without-type",
        ),
        pytest.param(
            {**row("r_2", function("f", {})), "involved_classes": ["Shop"]},
            "involved_classes: expected only no class, got 'Shop'",
            id="classes-in-a-single-turn-row",
        ),
    ],
)
def test_bad_row_is_named(tmp_path: Path, bad: dict[str, Any], fault: str):
    """A row of another shape than the rules know is an error, with what was expected and what was there."""
    path = archive(tmp_path, {"irrelevance": [row("r_1"), bad]})
    assert error_of(path) == f"{DATA}/BFCL_v4_irrelevance.json:2: {fault}"


@pytest.mark.parametrize(
    ("items", "where"),
    [
        ({"type": "blob"}, "items"),
        ({"type": "array", "items": {"type": "blob"}}, "items.items"),
    ],
)
def test_unknown_element_type_is_an_error(tmp_path: Path, items: dict[str, Any], where: str):
    """Unlike a parameter's own type, an element type nobody knows is no string."""
    path = archive(tmp_path, {"irrelevance": [row("r_1", function("f", {"p": {"type": "list", "items": items}}))]})
    message = error_of(path)
    assert message.startswith(f"{DATA}/BFCL_v4_irrelevance.json:1: {where}.type: expected one of integer, byte, ")
    assert message.endswith(", got 'blob'")


def test_number_beyond_floats_is_an_error(tmp_path: Path):
    """`1e999` reads as infinity, which JSON cannot say again."""
    data = lines([row("r_1", function("f", {"p": {"type": "long", "default": 0.5}}))]).replace("0.5", "1e999")
    path = archive(tmp_path, {}, files={f"{DATA}/BFCL_v4_irrelevance.json": data})
    assert error_of(path).startswith(f"{DATA}/BFCL_v4_irrelevance.json:1: ")


@pytest.mark.parametrize(
    ("truth", "fault"),
    [
        ([{"f": {}, "g": {}}], "ground_truth entry: expected one function, got f, g"),
        ([{}], "ground_truth entry: expected one function, got none"),
        (["f()"], "ground_truth entry: expected dict, got str"),
        ([{"f": {"p": "a"}}], "f.p: expected list, got str"),
    ],
)
def test_bad_answer_is_an_error(tmp_path: Path, truth: list[Any], fault: str):
    """An answer of another shape is reported at the row it answers."""
    question = row("r_1", function("f", {"p": text()}))
    path = archive(tmp_path, {"simple_python": [question]}, {"simple_python": {"r_1": truth}})
    assert error_of(path) == f"{DATA}/BFCL_v4_simple_python.json:1: {fault}"


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ([], f"{DATA}/BFCL_v4_multiple.json:1: expected an answer for every row, got none for 'r_1'"),
        (
            [{"id": "r_1", "ground_truth": []}] * 2,
            f"{DATA}/possible_answer/BFCL_v4_multiple.json:2: expected one answer per id, got a second one for 'r_1'",
        ),
        (
            [{"id": "r_1"}],
            f"{DATA}/possible_answer/BFCL_v4_multiple.json:1: ground_truth: expected list, got nothing",
        ),
    ],
    ids=["none", "two", "empty"],
)
def test_each_row_has_one_answer(tmp_path: Path, answers: list[Any], message: str):
    """A row without answer would be a case lost without a trace."""
    files = {f"{DATA}/possible_answer/BFCL_v4_multiple.json": lines(answers)}
    assert error_of(archive(tmp_path, {"multiple": [row("r_1")]}, files=files)) == message


@pytest.mark.parametrize(
    ("call", "fault"),
    [
        ("order(", "expected a call with literal arguments, got 'order('"),
        ("order", "expected a call with literal arguments, got 'order'"),
        ("shop.order()", "expected a call with literal arguments, got 'shop.order()'"),
        ("order(print('x'))", "expected a call with literal arguments, got "),
        ("order(*['a'])", "expected a call with literal arguments, got "),
        ("order(item=1 + 1)", "expected a call with literal arguments, got 'order(item=1 + 1)'"),
        ("order('a', 1, 'b')", "order expected at most 2 positional values, got "),
        ("order(**{'item': 1})", "expected each parameter by name and once, got "),
        ("order('a', item='b')", "expected each parameter by name and once, got "),
        ("order(item={1, 2})", "order expected values JSON can say, got "),
        ("order(item=1e999)", "order expected values JSON can say, got "),
    ],
)
def test_call_beyond_literals_is_an_error(tmp_path: Path, call: str, fault: str):
    """Call text is never evaluated beyond literals, and what has no JSON is not bent into some."""
    path = archive(tmp_path, {"multi_turn_base": [turns_row("m_1", ["Shop"])]}, {"multi_turn_base": {"m_1": [[call]]}})
    assert error_of(path).startswith(f"{DATA}/BFCL_v4_multi_turn_base.json:1: ground_truth: {fault}")


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        (
            {"missed_function": {"0": ["order"]}},
            "missed_function: expected turns after the first, got turn 0 with ['order']",
        ),
        (
            {"missed_function": {"1": ["close"]}},
            "missed_function: expected a function of ['Shop'], got 'close'",
        ),
        ({"involved_classes": ["Bank"]}, "involved_classes: expected only Shop, Till, got 'Bank'"),
        ({"involved_classes": [{}]}, "involved_classes: expected str, got dict"),
        ({"question": []}, "question: expected a turn, got 0"),
    ],
    ids=["missed-in-turn-0", "missed-unknown", "unknown-class", "class-no-text", "no-turn"],
)
def test_bad_multi_turn_row_is_an_error(tmp_path: Path, more: dict[str, Any], fault: str):
    """A function held back from turn one on, or one that is not there, breaks the dataset's own rules."""
    path = archive(tmp_path, {"multi_turn_miss_func": [{**turns_row("m_1", ["Shop"]), **more}]})
    assert error_of(path) == f"{DATA}/BFCL_v4_multi_turn_miss_func.json:1: {fault}"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({CONFIG: "def ("}, f"{CONFIG}: expected Python source, got "),
        ({CONFIG: ""}, f"{CONFIG}: MULTI_TURN_FUNC_DOC_FILE_MAPPING: expected dict, got nothing"),
        (
            {CONFIG: CONFIG_SOURCE.replace('"Till": f"', '"Tilt": f"')},
            f"{CONFIG}: Till: expected str, got nothing",
        ),
        (
            {"bfcl_eval/backend/till.py": "class Tilt: ...\n"},
            f"{CONFIG}: CLASS_FILE_PATH_MAPPING: expected a class Till in bfcl_eval/backend/till.py, got none",
        ),
    ],
    ids=["not-python", "no-mapping", "no-module", "no-class"],
)
def test_bad_backend_is_an_error(tmp_path: Path, files: dict[str, str], message: str):
    """The mappings and classes multi-turn rows need are checked when they are read."""
    assert error_of(archive(tmp_path, {}, files=files)).startswith(message)
