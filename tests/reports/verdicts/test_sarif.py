"""SARIF 2.1.0, as code scanning reads it."""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bellwether.reports.verdicts import sarif as module
from bellwether.reports.verdicts.sarif import sarif
from bellwether.reports.verdicts.summary import Listed
from verdict_rows import example, row, summed, verdicts


def read(rows, **values) -> dict[str, Any]:
    """Return the run, after a check of what the format and GitHub require."""
    log = json.loads("".join(sarif(summed(rows, **values), rows)))
    assert (log["version"], len(log["runs"])) == ("2.1.0", 1)
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules)
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["message"]["text"]
        (location,) = result["locations"]
        assert location["physicalLocation"]["artifactLocation"]["uri"]
        assert location["physicalLocation"]["region"]["startLine"] == 1
        assert set(result["partialFingerprints"]) == {"bellwether/v1", "primaryLocationLineHash"}
    prints = [result["partialFingerprints"]["bellwether/v1"] for result in run["results"]]
    assert len(set(prints)) == len(prints)
    return run


def test_a_result_per_finding_and_case() -> None:
    """However many plans show it; what is excused or equal is none."""
    streamed = {"kind": "parse", "what": "message", "field": "content", "first_layer": "streaming", "mode": "stream"}
    with verdicts(
        row(),
        row("known_difference", fingerprint="k"),
        row("regression", **streamed, case_id="parse/common/a", plan="size-2"),
        row("regression", **streamed, case_id="parse/common/a", plan="whole"),
        row("regression", **streamed, case_id="parse/common/b", plan="whole"),
        row("measurement_failed", case_id="render/common/c", code="timeout", what=None, message="60 s"),
    ) as rows:
        run = read(rows)
    assert [(one["ruleId"], one["level"], one["properties"]["replays"]) for one in run["results"]] == [
        ("streaming/message", "error", 2),
        ("streaming/message", "error", 1),
        ("measurement_failed", "warning", 1),
    ]
    location = run["results"][0]["locations"][0]
    assert location["physicalLocation"]["artifactLocation"] == {
        "uri": "fixtures/qwen3-8b/parse/common/a",
        "uriBaseId": "%SRCROOT%",
    }
    assert location["logicalLocations"] == [
        {"fullyQualifiedName": "qwen3-8b/parse/common/a", "name": "a", "kind": "resource"}
    ]
    driver = run["tool"]["driver"]
    assert (driver["name"], driver["version"]) == ("Bellwether", version("bellwether-fixtures"))
    assert [(rule["id"], rule["defaultConfiguration"]["level"]) for rule in driver["rules"]] == [
        ("streaming/message", "error"),
        ("measurement_failed", "warning"),
    ]
    assert all(rule["help"]["text"] and rule["help"]["markdown"] for rule in driver["rules"])


def test_fingerprints_are_of_the_finding_and_the_case_alone() -> None:
    """The same finding has one identity whatever else was found, said or replayed."""
    one = row("regression", fingerprint="f")
    with verdicts(one) as rows:
        (alone,) = read(rows)["results"]
    with verdicts(row("regression", fingerprint="e", case_id="render/common/a"), {**one, "message": "other"}) as rows:
        others = read(rows, stopped=True)["results"]
    assert alone["partialFingerprints"] in [result["partialFingerprints"] for result in others]


def test_two_findings_on_one_case_are_two() -> None:
    """They are closed one by one."""
    parse = {"kind": "parse", "case_id": "parse/common/a", "what": "message", "field": "content"}
    with verdicts(
        row("regression", **parse, first_layer="parse"),
        row("regression", **parse, first_layer="streaming", mode="stream", plan="whole"),
    ) as rows:
        assert [result["ruleId"] for result in read(rows)["results"]] == ["parse/message", "streaming/message"]


def test_cases_of_a_finding_are_capped_and_counted() -> None:
    """The totals stay; a notification says what was left out."""
    with verdicts(*(row("regression", fingerprint="f", case_id=f"render/s/c{n:03}") for n in range(23))) as rows:
        run = read(rows)
    assert len(run["results"]) == module.PER_FINDING == 20
    assert run["results"][0]["properties"] == {
        **{"fingerprint": "f", "verdict": "regression", "checkpoint": "qwen3-8b", "kind": "render", "replays": 1},
        **{"casesOfFinding": 23, "replaysOfFinding": 23, "casesLeftOut": 3},
    }
    (note,) = run["invocations"][0]["toolExecutionNotifications"]
    assert note["message"]["text"] == "Left out: 3 cases of the findings, beyond 20 each or 5,000 in all."


def test_a_run_is_capped_with_errors_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """GitHub shows a part of a long list; here that part is what fails."""
    monkeypatch.setattr(module, "MOST", 2)
    failed = [row("measurement_failed", fingerprint=f"m{n}", case_id=f"render/s/a{n}", what=None) for n in range(2)]
    with verdicts(*failed, row("regression", fingerprint="f", case_id="render/s/z")) as rows:
        run = read(rows, lists=[Listed("stale-waiver", "w", "gone", "fail")])
    assert [result["ruleId"] for result in run["results"]] == ["stale-waiver", "template/prompt-ids"]
    (note,) = run["invocations"][0]["toolExecutionNotifications"]
    assert note["message"]["text"].startswith("Left out: 2 cases")


def test_the_caps_stay_below_githubs() -> None:
    """25,000 results are refused, 5,000 shown."""
    assert module.MOST <= 5000


def test_stale_entries_are_results_of_their_list() -> None:
    """What is only told is none."""
    lists = [
        Listed("stale-waiver", "sglang >=0.5: a", "gone", "fail"),
        Listed("stale-known-difference", "smg: b/*", "it names no case", "fail"),
        Listed("unchecked-waiver", "c", "not asked", "none"),
    ]
    with verdicts(row()) as rows:
        run = read(rows, lists=lists)
    assert [
        (one["ruleId"], one["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]) for one in run["results"]
    ] == [("stale-waiver", "queries/waivers.toml"), ("stale-known-difference", "queries/known")]


def test_no_verdict_is_no_success() -> None:
    """exit 2: the run is not called successful, and says why."""
    with verdicts(row("unverified", reason="no_reference")) as rows:
        (invocation,) = read(rows, stopped=True)["invocations"]
    assert (invocation["executionSuccessful"], invocation["exitCode"]) == (False, 2)
    assert [note["message"]["text"] for note in invocation["toolExecutionNotifications"]] == [
        "The run stopped early; the cases left are not judged.",
        "Nothing was held against a truth: this is no pass.",
    ]
    with verdicts(row()) as rows:
        run = read(rows)
    assert (run["results"], run["tool"]["driver"]["rules"], run["invocations"][0]["exitCode"]) == ([], [], 0)


def test_braces_and_links_of_a_gateway_stay_words() -> None:
    """SARIF 3.11.5 and 3.11.6: braces are placeholders, and brackets before parentheses a link."""
    with verdicts(row("rejected", what="rejected", first_layer="api", code="x", message="{0} [a](1) \x1b")) as rows:
        (result,) = read(rows)["results"]
    assert "{{0}} [a]\\(1) \\u001b" in result["message"]["text"]


def test_an_example_shows_both_sides() -> None:
    """Of the case of the result, and of no other."""
    with verdicts(
        row("regression", fingerprint="f"), row("regression", fingerprint="f", case_id="render/common/z")
    ) as rows:
        first, second = read(rows, examples={("f", "regression"): [example()]})["results"]
    assert (
        "ids: truth `1 2 3 4`, gateway `1 2 5 4`. text: truth `a b c d`, gateway `a b C d`." in first["message"]["text"]
    )
    assert "truth `" not in second["message"]["text"]


@settings(max_examples=20, deadline=None)
@given(st.lists(st.text(), min_size=1, max_size=10))
def test_any_words_make_readable_json(words: list[str]) -> None:
    """Whatever gateways write."""
    said = [word.encode("utf-8", "replace").decode() for word in words]
    found = [
        row("rejected", what="rejected", first_layer="api", message=word, case_id=f"render/s/c{n}", fingerprint=f"f{n}")
        for n, word in enumerate(said)
    ]
    with verdicts(*found) as rows:
        assert len(read(rows)["results"]) == len(words)
