"""The GSM8K importer: one row becomes one request and two outputs; what is no such row is refused by file and line."""

from __future__ import annotations

import json

import pytest

from bellwether.corpora.gsm8k import cases, corpus
from bellwether.errors import CorpusError
from corpus_sets import digests, expected_sets

FILE = "grade_school_math/data/test.jsonl"


def line(question: str, answer: str) -> str:
    return json.dumps({"question": question, "answer": answer}, ensure_ascii=False) + "\n"


def test_row_becomes_a_request_and_two_outputs(given):
    """The request is the question alone; annotations stay; the final answer stands after the last `#### `."""
    answer = "Half of 4 is <<4/2=2>>2.\nSo #### it is.\n#### 2"
    got = list(cases(*given({FILE: line("How many?", answer)}), "test"))
    assert [(case.case_id, case.request, case.message) for case in got] == [
        ("render/gsm8k-test/gsm8k-test-0", '{"messages":[{"role":"user","content":"How many?"}]}', None),
        (
            "parse/gsm8k-test-reasoning-content/gsm8k-test-reasoning-content-0",
            '{"messages":[{"role":"user","content":"How many?"}]}',
            '{"reasoning_content":"Half of 4 is <<4/2=2>>2.\\nSo #### it is.","content":"2"}',
        ),
        (
            "parse/gsm8k-test-content/gsm8k-test-content-0",
            '{"messages":[{"role":"user","content":"How many?"}]}',
            '{"content":"Half of 4 is <<4/2=2>>2.\\nSo #### it is.\\n#### 2"}',
        ),
    ]
    assert {(case.row, case.origin.file, case.origin.license) for case in got} == {("0", FILE, "MIT")}


def test_texts_are_not_stripped_and_lines_end_at_lf(given):
    """U+2028 inside a question ends no line; white space at the edges is text; blank lines are no rows."""
    rows = "\n" + line(" a\u2028b ", " x \n#### 1") + "\n" + line("c", "y\n#### 2,000")
    got = [case for case in cases(*given({FILE: rows}), "test") if case.set == "gsm8k-test-reasoning-content"]
    assert [json.loads(case.request)["messages"][0]["content"] for case in got] == [" a\u2028b ", "c"]
    assert [json.loads(case.message) for case in got] == [
        {"reasoning_content": " x ", "content": "1"},
        {"reasoning_content": "y", "content": "2,000"},
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("{", "an object with the texts", id="no JSON"),
        pytest.param("[]", "an object with the texts", id="no object"),
        pytest.param('{"question":"a"}', "an object with the texts", id="no answer"),
        pytest.param('{"question":"","answer":"x\\n#### 1"}', "a question", id="empty question"),
        pytest.param('{"question":1,"answer":"x\\n#### 1"}', "a question", id="question no text"),
        pytest.param('{"question":"a","answer":"#### 1"}', "an answer that ends", id="no solution"),
        pytest.param('{"question":"a","answer":"x\\n1"}', "an answer that ends", id="no mark"),
        pytest.param('{"question":"a","answer":"x\\n#### "}', "an answer that ends", id="no final answer"),
        pytest.param('{"question":"a","answer":"x\\n#### 1 "}', "an answer that ends", id="space after"),
        pytest.param('{"question":"a","answer":"x\\n#### 1\\n"}', "an answer that ends", id="line end after"),
    ],
)
def test_row_of_another_form_is_refused(given, text, said):
    """File and 1-based line are named; nothing is guessed."""
    with pytest.raises(CorpusError, match=rf"data/test\.jsonl:2: expected {said}") as caught:
        list(cases(*given({FILE: line("a", "x\n#### 1") + text}), "test"))
    assert caught.value.next_step


def test_real_sets_are_the_known_ones(real):
    """8,792 requests and 17,584 outputs, line by line those of an existing fixture tree; no row repeats another."""
    source, fetch = real("gsm8k")
    items = list(corpus(source.folder, fetch))
    assert digests(items) == expected_sets("gsm8k")
    assert [sum(item.kind == kind for item in items) for kind in ("render", "parse")] == [8792, 17584]
