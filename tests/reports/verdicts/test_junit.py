"""JUnit XML, read back by a parser."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bellwether.reports.verdicts.junit import junit
from bellwether.reports.verdicts.summary import Listed
from verdict_rows import GATES, example, row, summed, verdicts

ATTRIBUTES = {
    "testsuites": {"name", "tests", "failures", "errors"},
    "testsuite": {"name", "tests", "failures", "errors", "skipped"},
    "testcase": {"classname", "name"},
    "skipped": {"type", "message"},
    "failure": {"type", "message"},
    "error": {"type", "message"},
}
"""What the schema Jenkins publishes allows of what we use; all of `testsuite` are required there."""
CHILDREN = {"testsuites": {"testsuite"}, "testsuite": {"testcase"}, "testcase": {"skipped", "failure", "error"}}

OUTCOMES = {"pass": None, "none": "skipped", "fail": "failure", "no_verdict": "error"}


def read(rows, **values) -> ElementTree.Element:
    """Return the root, after a check of the document's shape and of every count in it."""
    root = ElementTree.fromstring("".join(junit(summed(rows, **values), rows)).encode())
    assert root.tag == "testsuites"
    for element in root.iter():
        assert set(element.attrib) == ATTRIBUTES[element.tag]
        assert {child.tag for child in element} <= CHILDREN.get(element.tag, set())
    for element in (root, *root):
        tests = list(element.iter("testcase"))
        assert int(element.get("tests")) == len(tests)
        assert int(element.get("failures")) == sum(test.find("failure") is not None for test in tests)
        assert int(element.get("errors")) == sum(test.find("error") is not None for test in tests)
        assert int(element.get("skipped", -1)) in (-1, sum(test.find("skipped") is not None for test in tests))
        assert all(len(test) <= 1 for test in tests)
    names = [suite.get("name") for suite in root]
    assert len(set(names)) == len(names)
    return root


@pytest.mark.parametrize(("verdict", "gate"), sorted(GATES.items()))
def test_each_verdict_has_its_outcome(verdict: str, gate: str) -> None:
    """As the decision table ends."""
    values = {
        "unverified": {"reason": "no_reference"},
    }
    with verdicts(row(verdict, **values.get(verdict, {}))) as rows:
        (test,) = read(rows).findall("testsuite[1]/testcase")
    assert [child.tag for child in test] == ([] if gate == "pass" else [OUTCOMES[gate]])
    assert test.get("name") == "render/common/text-user-only [full]"


def test_suites_are_checkpoints_and_kinds() -> None:
    """In the order of the rows; list entries and the run have their own."""
    with verdicts(
        row(),
        row(kind="parse", case_id="parse/common/a"),
        row(kind="parse", case_id="parse/common/a", mode="stream", plan="size-2"),
        row(checkpoint="phi-4"),
    ) as rows:
        lists = [Listed("stale-waiver", "w", "gone", "fail"), Listed("unchecked-waiver", "v", "not asked", "none")]
        root = read(rows, lists=lists)
    assert [(suite.get("name"), [test.get("name") for test in suite]) for suite in root] == [
        ("smg-1.13.0/qwen3-8b/render", ["render/common/text-user-only [full]"]),
        ("smg-1.13.0/qwen3-8b/parse", ["parse/common/a [full]", "parse/common/a [stream size-2]"]),
        ("smg-1.13.0/phi-4/render", ["render/common/text-user-only [full]"]),
        ("lists", ["w", "v"]),
        ("run", ["all replays were made", "something was judged"]),
    ]
    assert [child.tag for child in root.find("testsuite[@name='lists']").iterfind("testcase/*")] == [
        "failure",
        "skipped",
    ]


def test_two_outputs_of_one_case_are_two_tests() -> None:
    """Two encoders write one message in two ways."""
    with verdicts(row(encoder="tokenizer.json"), row(encoder="class")) as rows:
        names = [test.get("name") for test in read(rows)[0]]
    assert names == ["render/common/text-user-only [full]", "render/common/text-user-only [full, class]"]


def test_a_failure_says_layer_reason_and_command() -> None:
    """Enough to act on without another report."""
    with verdicts(
        row(
            "regression",
            kind="parse",
            case_id="parse/common/a",
            mode="stream",
            plan="size-2",
            what="message",
            field="tool_calls",
            first_layer="streaming",
            engines=["sglang"],
            parser_used="legacy",
        )
    ) as rows:
        failure = read(rows).find("testsuite/testcase/failure")
    assert failure.get("type") == "streaming/message"
    assert failure.get("message") == "streaming/message: Streamed, the answer is read otherwise (tool_calls)"
    assert failure.text.split("\n") == [
        "verdict: regression · standing: settled",
        "first layer: streaming (exact)",
        "engines that differ: sglang",
        "gateway: 200",
        "parser: legacy",
        "finding: smg-1.13.0:streaming:message:tool_calls:qwen3-8b",
        "bellwether verify --target smg-1.13.0 --slug qwen3-8b --case parse/common/a --plan size-2",
    ]


def test_a_run_that_judged_nothing_or_stopped_is_an_error() -> None:
    """Skipped tests alone look like a pass to who reads JUnit."""
    with verdicts(row("unverified", reason="no_reference")) as rows:
        root = read(rows, stopped=True)
    assert [test.find("error").get("type") for test in root.find("testsuite[@name='run']")] == [
        "stopped",
        "nothing-judged",
    ]
    with verdicts() as rows:
        root = read(rows)
    assert [suite.get("name") for suite in root] == ["run"]
    assert root.get("errors") == "1"


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.text(), st.text()), min_size=1, max_size=10))
def test_any_words_of_a_gateway_make_a_readable_document(words: list[tuple[str, str]]) -> None:
    """Controls, quotes, angle brackets, halves of pairs."""
    said = [tuple(part.encode("utf-8", "replace").decode() for part in pair) for pair in words]
    refused = {"what": "rejected", "first_layer": "api"}
    with verdicts(*(row("rejected", **refused, code=code, message=message) for code, message in said)) as rows:
        read(rows)


def test_controls_are_spelled() -> None:
    """XML has no way to hold them."""
    with verdicts(row("measurement_failed", code="bad\x00", message="<\x1b[31m&\r\n]]>")) as rows:
        error = read(rows).find("testsuite/testcase/error")
    assert "(bad\\u0000)" in error.get("message")
    assert "gateway: 200 <\\u001b[31m&\\r\\n]]>" in error.text


def test_controls_in_a_list_are_spelled() -> None:
    """Entries and reasons are a person's."""
    with verdicts(row()) as rows:
        (test,) = read(rows, lists=[Listed("stale-waiver", "a\x1b", "b\x00", "fail")]).iterfind(
            "testsuite[@name='lists']/*"
        )
    assert (test.get("name"), test.find("failure").get("message")) == ("a\\u001b", "b\\u0000")


def test_examples_do_not_change_the_document() -> None:
    """Tests are rows; the windows are in the other reports."""
    with verdicts(row("regression", fingerprint="f")) as rows:
        assert "".join(junit(summed(rows), rows)) == "".join(
            junit(summed(rows, examples={("f", "regression"): [example()]}), rows)
        )
