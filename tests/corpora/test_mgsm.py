"""The MGSM importer: rows of tabs and exemplars of a Python file that is never run."""

from __future__ import annotations

import json

import pytest

from bellwether.corpora.mgsm import LANGUAGES, cases, corpus, exemplars
from bellwether.errors import CorpusError
from corpus_sets import digests, expected_sets

PY = "mgsm/exemplars.py"


def exemplar_file(question: str, answer: str, number: str = "[11]", language: str = "en") -> str:
    return (
        f"EXEMPLAR_NUMBER_ANSWERS = {number}\n"
        f"MGSM_EXEMPLARS = {{{language!r}: {{'1': {{'q': {question!r}, 'a': {answer!r}}}}}}}\n"
    )


def test_row_becomes_a_request_and_an_output(given):
    """The question as it stands, quotes and edges included; the answer keeps its commas."""
    got = list(cases(*given({"mgsm/mgsm_de.tsv": ' "Wie viel?" \t2,125\n'}), "de"))
    assert [(case.case_id, case.message) for case in got] == [
        ("render/mgsm-de/mgsm-de-0", None),
        ("parse/mgsm-de-content/mgsm-de-content-0", '{"content":"2,125"}'),
    ]
    assert [json.loads(case.request) for case in got] == [
        {"messages": [{"role": "user", "content": ' "Wie viel?" '}]}
    ] * 2


def test_text_keeps_its_unicode_form(given):
    """U+09DF is one code point here and two in NFC; it stays one."""
    (case, _) = cases(*given({"mgsm/mgsm_bn.tsv": "\u09df\t1"}), "bn")
    assert json.loads(case.request)["messages"][0]["content"] == "\u09df"


def test_english_has_no_requests(given):
    """Its questions are GSM8K's, word for word."""
    got = list(cases(*given({"mgsm/mgsm_en.tsv": "How many?\t1\n"}), "en"))
    assert [case.case_id for case in got] == ["parse/mgsm-en-content/mgsm-en-content-0"]


def test_empty_lines_count_but_give_no_case(given):
    """A case is named after its line, so a line that goes does not rename the others."""
    got = list(cases(*given({"mgsm/mgsm_fr.tsv": "a\t1\n\nb\t-2\n"}), "fr"))
    assert [case.row for case in got] == ["0", "2", "0", "2"]


@pytest.mark.parametrize("line", ["a", "a\t1\t2", "\t1", "a\t1.5", "a\t1,00", "a\t১", "a\t1 ", " ", "a\t"])
def test_line_of_another_form_is_refused(given, line):
    """One tab, and a whole number in ASCII digits."""
    with pytest.raises(CorpusError, match=r"mgsm_sw\.tsv:2: expected a question, one tab") as caught:
        list(cases(*given({"mgsm/mgsm_sw.tsv": f"a\t1\n{line}\n"}), "sw"))
    assert caught.value.next_step


def test_exemplar_loses_its_labels_and_is_split_at_the_last_final_words(given):
    """The words may occur earlier; white space before the final sentence goes, what follows it stays."""
    answer = "Step-by-Step Answer: The answer is near. 5 + 6 = 11.  The answer is 11. Bye"
    (case,) = exemplars(*given({PY: exemplar_file("Question: Roger has 5.", answer)}))
    assert case.case_id == "parse/mgsm-exemplars/mgsm-exemplars-en-1"
    assert json.loads(case.request) == {"messages": [{"role": "user", "content": "Roger has 5."}]}
    assert json.loads(case.message) == {
        "reasoning_content": "The answer is near. 5 + 6 = 11.",
        "content": "The answer is 11. Bye",
    }
    assert case.row == "MGSM_EXEMPLARS['en']['1']"


def test_exemplar_file_is_read_and_never_run(given, tmp_path):
    """Whatever else the file does, it does not do here."""
    text = exemplar_file("Question: a", "Step-by-Step Answer: b. The answer is 11.")
    trap = tmp_path / "ran"
    (case,) = exemplars(*given({PY: f"import pathlib\npathlib.Path({str(trap)!r}).touch()\n{text}raise SystemExit\n"}))
    assert case.kind == "parse"
    assert not trap.exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("MGSM_EXEMPLARS = {}", "the literals", id="no answers"),
        pytest.param("MGSM_EXEMPLARS = dict()\nEXEMPLAR_NUMBER_ANSWERS = [1]", "the literals", id="a call"),
        pytest.param("MGSM_EXEMPLARS = (", "the literals", id="no Python"),
        pytest.param(exemplar_file("Q: a", "Step-by-Step Answer: The answer is 11."), "a text that begins", id="label"),
        pytest.param(exemplar_file("Question: a", "The answer is 11."), "a text that begins", id="answer's label"),
        pytest.param(exemplar_file("Question: a", "Step-by-Step Answer: It is 11."), "a last sentence", id="words"),
        pytest.param(
            exemplar_file("Question: a", "Step-by-Step Answer: The answer is 12."), "a last sentence", id="12"
        ),
        pytest.param(
            exemplar_file("Question: a", "Step-by-Step Answer: The answer is so."), "a last sentence", id="none"
        ),
        pytest.param(exemplar_file("a", "b", language="xx"), "language", id="unknown language"),
        pytest.param(exemplar_file("a", "b", number="[]"), "language", id="too few answers"),
        pytest.param("MGSM_EXEMPLARS = []\nEXEMPLAR_NUMBER_ANSWERS = [1]", "language", id="no dict"),
    ],
)
def test_exemplar_of_another_form_is_refused(given, text, said):
    """The wording of each language is known; anything else is not guessed at."""
    with pytest.raises(CorpusError, match=rf"exemplars\.py.*expected {said}"):
        list(exemplars(*given({PY: text})))


def test_real_sets_are_the_known_ones(real):
    """2,500 requests of ten languages and 2,838 outputs, line by line those of an existing fixture tree."""
    source, fetch = real("mgsm")
    items = list(corpus(source.folder, fetch))
    assert digests(items) == expected_sets("mgsm")
    assert [sum(item.kind == kind for item in items) for kind in ("render", "parse")] == [2500, 2838]
    assert list(LANGUAGES) == sorted(LANGUAGES)
