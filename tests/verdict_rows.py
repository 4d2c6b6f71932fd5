"""Rows as queries/verdict.sql gives them, made by hand, and a check of JSON against a schema."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import duckdb
import pyarrow as pa

from bellwether.reports.verdicts.rows import Rows, spooled
from bellwether.reports.verdicts.summary import Example, Side, Summary, summarise

SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("target", "checkpoint", "kind", "case_id", "mode", "plan")),
        ("given", pa.binary()),
        *((name, pa.string()) for name in ("standing", "verdict", "reason", "gate", "what", "field")),
        *((name, pa.string()) for name in ("first_layer", "localisation")),
        ("respelled", pa.bool_()),
        ("coverage", pa.string()),
        ("engines", pa.list_(pa.string())),
        ("waived", pa.list_(pa.string())),
        *((name, pa.string()) for name in ("known", "code", "message")),
        ("http_status", pa.int32()),
        *((name, pa.string()) for name in ("parser_used", "encoder", "fingerprint")),
    ]
)
"""Columns of the query, in their order."""

GATES = {
    "match": "pass",
    "policy": "pass",
    "engines_split": "pass",
    "engine_defect_waived": "pass",
    "known_difference": "pass",
    "rejected": "fail",
    "regression": "fail",
    "known_but_matches": "fail",
    "engine_defect": "fail",
    "missing": "no_verdict",
    "measurement_failed": "no_verdict",
    "disputed": "none",
    "not_applicable": "none",
    "unverified": "none",
}
"""Verdict → gate, from the decision table."""


def row(verdict: str = "match", **values: Any) -> dict[str, Any]:
    """Return a row; of what differs, one that the template shows first."""
    differs = verdict in ("regression", "known_difference")
    filled = {
        **dict.fromkeys(SCHEMA.names),
        "target": "smg-1.13.0",
        "checkpoint": "qwen3-8b",
        "kind": "render",
        "case_id": "render/common/text-user-only",
        "mode": "full",
        "standing": "settled",
        "verdict": verdict,
        "gate": GATES[verdict],
        "what": "prompt-ids" if differs else "same",
        "first_layer": "template" if differs else None,
        "localisation": "exact" if differs else None,
        "respelled": False,
        "coverage": "full",
        "engines": [],
        "waived": [],
        "http_status": 200,
        "encoder": "both",
        **values,
    }
    if "fingerprint" not in values and filled["gate"] in ("fail", "no_verdict"):
        parts = [filled["target"], filled["first_layer"] or verdict, filled["what"] if filled["first_layer"] else None]
        parts += [filled["field"] or filled["code"], filled["checkpoint"]]
        filled["fingerprint"] = ":".join(filter(None, parts))
    return filled


@contextmanager
def verdicts(*rows: dict[str, Any]) -> Iterator[Rows]:
    """Give rows as outputs read them."""
    with duckdb.connect() as connection:
        connection.register("hand_made", pa.Table.from_pylist(list(rows), schema=SCHEMA))
        connection.execute("create view verdict as from hand_made")
        with spooled(connection) as its:
            yield its


def invalid(value: Any, schema: dict[str, Any], top: dict[str, Any] | None = None, where: str = "$") -> Iterator[str]:
    """Yield what of `value` breaks a JSON Schema. Knows the keywords of ours, and fails on any other."""
    top = top or schema
    known = {
        "$schema",
        "title",
        "description",
        "$defs",
        "type",
        "required",
        "additionalProperties",
        "properties",
        "items",
    }
    known |= {"const", "enum", "minimum", "pattern", "propertyNames", "anyOf", "$ref"}
    assert set(schema) <= known, f"{where}: unknown keywords {set(schema) - known}"
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#/$defs/")
        yield from invalid(value, top["$defs"][name], top, where)
    if "anyOf" in schema and all(any(invalid(value, one, top, where)) for one in schema["anyOf"]):
        yield f"{where}: none of anyOf"
    types = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "null": type(None)}
    wanted = schema.get("type", list(types))
    wanted = wanted if isinstance(wanted, list) else [wanted]
    if type(value) not in [types[one] for one in wanted]:
        yield f"{where}: {type(value).__name__}, not {wanted}"
        return
    if "const" in schema and value != schema["const"]:
        yield f"{where}: {value!r}, not {schema['const']!r}"
    if "enum" in schema and not any(value == one and type(value) is type(one) for one in schema["enum"]):
        yield f"{where}: {value!r} is none of {schema['enum']}"
    if "minimum" in schema and isinstance(value, int) and value < schema["minimum"]:
        yield f"{where}: {value} is below {schema['minimum']}"
    if "pattern" in schema and isinstance(value, str) and not re.search(schema["pattern"], value):
        yield f"{where}: {value!r} is not as {schema['pattern']}"
    if isinstance(value, list) and "items" in schema:
        for number, item in enumerate(value):
            yield from invalid(item, schema["items"], top, f"{where}[{number}]")
    if isinstance(value, dict):
        yield from (f"{where}: no {name}" for name in schema.get("required", ()) if name not in value)
        others = schema.get("additionalProperties", {})
        for name, item in value.items():
            if "propertyNames" in schema:
                yield from invalid(name, schema["propertyNames"], top, f"{where} name {name}")
            if name in schema.get("properties", {}):
                yield from invalid(item, schema["properties"][name], top, f"{where}.{name}")
            elif others is False:
                yield f"{where}: {name} is not allowed"
            else:
                yield from invalid(item, others, top, f"{where}.{name}")


def example(case_id: str = "render/common/text-user-only", **values: Any) -> Example:
    """Return an example in which the prompts part at the third id."""
    sides = (Side("ids", "1 2 3 4", "1 2 5 4"), Side("text", "a b c d", "a b C d"))
    filled: dict[str, Any] = {"mode": "full", "plan": None, "size": 10, "part": "ids", "place": 2, "truth_length": 4}
    return Example(case_id, **{**filled, "gateway_length": 4, "sides": sides, **values})


def summed(rows: Rows, **values: Any) -> Summary:
    """Return the summary of rows, of one gateway and with nothing else unless told."""
    filled: dict[str, Any] = {"targets": {"smg-1.13.0": "1.13.0"}, "examples": {}, "coverage": (), "lists": ()}
    return summarise(rows, **{**filled, **values})
