"""The JSON document."""

from __future__ import annotations

import json
from typing import Any

from bellwether.reports.verdicts import playbook
from bellwether.reports.verdicts.document import SCHEMA_VERSION, document, schema
from bellwether.reports.verdicts.rules import LAYERS
from bellwether.reports.verdicts.summary import Coverage, Listed
from verdict_rows import GATES, SCHEMA, example, invalid, row, summed, verdicts


def read(rows, **values) -> dict[str, Any]:
    """Return the document, after a check against its schema."""
    value = json.loads("".join(document(summed(rows, **values), rows)))
    assert list(invalid(value, schema())) == []
    return value


def test_the_document_holds_counts_findings_lists_coverage_and_rows() -> None:
    """One document, whatever was found."""
    with verdicts(
        row("regression", fingerprint="f", given=b"\x01" * 32, engines=["sglang"]),
        row("engine_defect", engines=["sglang"], checkpoint="phi-4"),
        row("known_but_matches", known="phi-4/render/a", checkpoint="phi-4"),
        *(
            row(verdict, case_id=f"render/s/{verdict.replace('_', '-')}")
            for verdict in GATES
            if verdict != "regression"
        ),
    ) as rows:
        value = read(
            rows,
            examples={("f", "regression"): [example(plan="size-2", mode="stream")]},
            lists=[
                Listed("stale-waiver", "w", "gone", "fail"),
                Listed("expired-waiver", "v", "out of its range", "none"),
            ],
            coverage=[Coverage("smg-1.13.0", "phi-4", "render", 5, 3, 2, {"not_sent": 2, "disputed": 1})],
            alike={"f": "sglang 1"},
        )
        written = [dict(one) for one in rows]
    assert value["schema_version"] == SCHEMA_VERSION
    assert value["targets"] == [{"name": "smg-1.13.0", "version": "1.13.0"}]
    assert (value["exit_status"], value["stopped"]) == (1, False)
    assert value["counts"]["replays"] == len(value["replays"]) == 16
    finding = value["findings"][0]
    assert (finding["fingerprint"], finding["rule"], finding["alike"]) == ("f", "template/prompt-ids", "sglang 1")
    assert finding["playbook"]["title"] == playbook.PAGES["template", "prompt-ids"].title
    assert finding["examples"][0]["sides"][0] == {"part": "ids", "truth": "1 2 3 4", "gateway": "1 2 5 4"}
    assert finding["examples"][0]["command"].endswith("--case render/common/text-user-only --plan size-2")
    assert value["coverage"][0]["not_judged"] == {"not_sent": 2, "disputed": 1}
    assert [one["playbook"] is None for one in value["lists"]] == [False, True]
    assert value["replays"][0]["given"] == "01" * 32
    assert [list(one) for one in value["replays"]] == [SCHEMA.names] * 16
    assert [one["verdict"] for one in value["replays"]] == [one["verdict"] for one in written]


def test_a_run_without_rows_is_a_document() -> None:
    """Nothing was judged, and it says so."""
    with verdicts() as rows:
        value = read(rows, stopped=True)
    assert (value["replays"], value["exit_status"], value["stopped"]) == ([], 2, True)


def test_the_schema_has_the_words_of_the_rules() -> None:
    """Both change together."""
    words = schema()["$defs"]
    assert set(words["verdict"]["enum"]) == set(GATES)
    assert set(words["layer"]["enum"]) == {*LAYERS, None}
    assert set(words["what"]["enum"]) == {*playbook.DIFFERENCES, "same", None}
    assert schema()["properties"]["schema_version"]["const"] == SCHEMA_VERSION
    assert set(schema()["properties"]["replays"]["items"]["properties"]) == set(SCHEMA.names)


def test_the_check_finds_what_breaks_the_schema() -> None:
    """A check that passes everything would prove nothing."""
    with verdicts(row("regression", fingerprint="f")) as rows:
        value = read(rows)
    broken = [
        {**value, "extra": 1},
        {name: item for name, item in value.items() if name != "counts"},
        {**value, "exit_status": True},
        {**value, "exit_status": 3},
        {**value, "counts": {**value["counts"], "cases": -1}},
        {**value, "counts": {**value["counts"], "verdicts": {"fine": 1}}},
        {**value, "replays": [{**value["replays"][0], "given": "xyz"}]},
        {**value, "replays": [{**value["replays"][0], "engines": "sglang"}]},
        {**value, "findings": [{**value["findings"][0], "layer": "templates"}]},
    ]
    assert all(list(invalid(one, schema())) for one in broken)
