"""All outputs of a checkout in which a gateway was observed, by the real queries."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bellwether.errors import ParamsError
from bellwether.reports.database import connect
from bellwether.reports.verdicts import outputs
from bellwether.reports.verdicts.document import schema
from bellwether.reports.verdicts.rows import spooled
from observed import broken, list_known, observed, prompts, replay, turned_away, waive
from verdict_rows import SCHEMA, invalid
from witnessed import claim, heard, no_claim

RENDER = "render/s/a"
FILES = ("json", "junit", "sarif")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A gateway that sends one wrong prompt, refuses another, and reads one output wrong when it is streamed."""
    claims = [
        *(claim(f"render/s/{name}") for name in ("a", "b", "c")),
        claim("parse/s/a", finish_reason="stop"),
        no_claim("render/s/d"),
    ]
    answers = [heard(one["case_id"], "vllm-2.0", "a") for one in claims[:4]]
    said = {"finish_reason": "stop"}
    replays = [
        replay(RENDER, "x", **prompts("x", text="x", bare="x")),
        turned_away("render/s/b", "bad_request"),
        replay("render/s/c"),
        replay("render/s/d"),
        replay("parse/s/a", **said),
        replay("parse/s/a", "lost", "whole", **said),
        replay("parse/s/a", "a", "per_token", **said),
    ]
    return observed(tmp_path / "project", claims, answers, replays)


def written(root: Path, folder: Path, **options) -> tuple[outputs.Summary, dict[str, Path]]:
    paths = {name: folder / f"out.{name}" for name in FILES}
    return outputs.write(connect(root), root, **paths, **options), paths


def test_all_outputs_of_one_verification(project: Path, tmp_path: Path) -> None:
    """They say the same."""
    summary, paths = written(project, tmp_path)
    assert summary.targets == {"smg-1.13.0": "1.13.0"}
    assert summary.verdicts == {"match": 3, "regression": 2, "rejected": 1, "unverified": 1}
    assert [(one.rule, one.detail, one.cases) for one in summary.findings] == [
        ("template/rejected", "bad_request", 1),
        ("template/prompt-ids", None, 1),
        ("streaming/message", "content", 1),
    ]
    assert summary.exit_status == 1

    value = json.loads(paths["json"].read_text("utf-8"))
    assert list(invalid(value, schema())) == []
    assert [list(one) for one in value["replays"]] == [SCHEMA.names] * 7
    assert [one["fingerprint"] for one in value["findings"]] == [one.fingerprint for one in summary.findings]

    suites = {suite.get("name"): suite for suite in ElementTree.parse(paths["junit"]).getroot()}
    assert [suites[f"smg-1.13.0/alpha/{kind}"].get("failures") for kind in ("render", "parse")] == ["2", "1"]

    (run,) = json.loads(paths["sarif"].read_text("utf-8"))["runs"]
    assert [one["ruleId"] for one in run["results"]] == [one.rule for one in summary.findings]

    shown = outputs.text(summary)
    assert "exit 1: it differs (3 findings)" in shown
    assert "bellwether verify --target smg-1.13.0 --slug alpha --case parse/s/a --plan whole" in shown
    assert len(outputs.annotations(summary)) == 3


def test_every_finding_has_an_example_with_what_both_sides_say(project: Path, tmp_path: Path) -> None:
    """As the query of examples has it."""
    summary, _ = written(project, tmp_path)
    refused, prompt, streamed = (one.examples[0] for one in summary.findings)
    assert [(side.part, side.truth, side.gateway) for side in refused.sides] == [
        ("answer", "result", "refused: in its words")
    ]
    assert (prompt.case_id, prompt.mode, prompt.plan) == (RENDER, "full", None)
    assert (streamed.plan, streamed.part, streamed.place) == ("whole", "content", 0)
    assert [(side.part, side.truth, side.gateway) for side in streamed.sides] == [("content", "a", "lost")]


def test_coverage_adds_up(project: Path, tmp_path: Path) -> None:
    """Every case once, judged or with its reason."""
    summary, _ = written(project, tmp_path)
    assert [(one.kind, one.cases, one.sent, one.judged, one.not_judged) for one in summary.coverage] == [
        ("parse", 1, 1, 1, {}),
        ("render", 4, 4, 3, {"no_reference": 1}),
    ]
    for one in summary.coverage:
        assert one.judged + sum(one.not_judged.values()) == one.cases


def test_the_same_rows_give_the_same_bytes(project: Path, tmp_path: Path) -> None:
    """In another folder too: no time, host or path is in them."""
    other = tmp_path / "elsewhere" / "copy"
    shutil.copytree(project, other)
    digests = []
    for root, folder in ((project, tmp_path / "one"), (other, tmp_path / "two")):
        summary, paths = written(root, folder)
        said = [outputs.text(summary), *outputs.annotations(summary)]
        digests.append([*said, *(hashlib.sha256(path.read_bytes()).hexdigest() for path in paths.values())])
        assert not any(str(tmp_path).encode() in path.read_bytes() for path in paths.values())
    assert digests[0] == digests[1]


def test_only_what_is_asked_for_is_written(project: Path, tmp_path: Path) -> None:
    """Nothing else appears, and nothing half-written stays."""
    folder = tmp_path / "out"
    outputs.write(connect(project), project, sarif=folder / "a.sarif")
    assert [path.name for path in folder.iterdir()] == ["a.sarif"]


def test_stale_entries_of_the_gateway_fail_and_those_of_others_do_not(project: Path, tmp_path: Path) -> None:
    """A list of another gateway is not this verification's."""
    list_known(project, ("alpha/render/gone", "regression", None))
    list_known(project, ("alpha/render/gone-too", "regression", None), target="other-1.0")
    waive(project, ("sglang", ">=1", "render/a"), ("vllm", ">=1", "render/a"))
    summary, _ = written(project, tmp_path)
    assert [(one.about, one.entry, one.gate) for one in summary.lists] == [
        ("unchecked-waiver", "sglang >=1: alpha/render/a", "none"),
        ("stale-waiver", "vllm >=1: alpha/render/a", "fail"),
        ("stale-known-difference", "smg-1.13.0: alpha/render/gone", "fail"),
    ]


def test_an_open_entry_under_which_all_matches_has_to_go(project: Path, tmp_path: Path) -> None:
    """An entry of one case has a row of its own that says so."""
    list_known(project, ("alpha/render/c*", "regression", None), ("alpha/render/c", "regression", None))
    summary, _ = written(project, tmp_path)
    assert [(one.about, one.entry, one.gate) for one in summary.lists] == [
        ("matching-known-difference", "smg-1.13.0: alpha/render/c*", "fail")
    ]
    assert summary.verdicts["known_but_matches"] == 1


def test_a_measurement_that_failed_is_a_warning_and_no_pass(tmp_path: Path) -> None:
    """exit 2, and the reason is among the findings."""
    root = observed(tmp_path / "p", [claim(RENDER)], [heard(RENDER, "vllm-2.0")], [broken(RENDER)])
    summary, _ = written(root, tmp_path)
    assert summary.exit_status == 2
    assert [(one.rule, one.detail, one.gate) for one in summary.findings] == [
        ("measurement_failed", "timeout", "no_verdict")
    ]
    assert "1 timeout" not in outputs.text(summary) and "measurement_failed timeout" in outputs.text(summary)
    assert [line.split(" ")[0] for line in outputs.annotations(summary)] == ["::warning", "::warning"]


def test_a_stop_is_in_every_output(project: Path, tmp_path: Path) -> None:
    """Whoever reads one of them alone learns of it."""
    summary, paths = written(project, tmp_path, stopped=True)
    assert json.loads(paths["json"].read_text("utf-8"))["stopped"] is True
    assert 'type="stopped"' in paths["junit"].read_text("utf-8")
    assert "stopped early" in paths["sarif"].read_text("utf-8")
    assert "the run stopped early" in outputs.text(summary)
    assert any("Stopped early" in line for line in outputs.annotations(summary))


def test_the_view_is_as_it_was_after_all_outputs(project: Path, tmp_path: Path) -> None:
    """Rows stand for the view only while they are read."""
    database = connect(project)
    outputs.write(database, project)
    with spooled(database.connection) as rows:
        spooled_rows = list(rows)
    result = database.connection.execute("select * from verdict")
    names = [column[0] for column in result.description]
    assert spooled_rows == [dict(zip(names, row, strict=True)) for row in result.fetchall()]
    assert names == SCHEMA.names


def test_a_missing_or_broken_query_is_named(project: Path) -> None:
    """No traceback of the database."""
    path = project / "queries" / "coverage.sql"
    path.write_text("select nothing from nowhere", "utf-8")
    with pytest.raises(ParamsError, match=r"queries/coverage\.sql cannot be read"):
        outputs.write(connect(project), project)
    path.unlink()
    with pytest.raises(ParamsError, match=r"there is no queries/coverage\.sql"):
        outputs.write(connect(project), project)
