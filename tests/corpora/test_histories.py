"""The derived corpus of tool histories."""

from __future__ import annotations

import json
from collections import Counter

from bellwether.case import Case, Origin
from bellwether.corpora.histories import after_further_question, after_results, corpus
from support import ROOT

BFCL = Origin("bfcl", "pypi:toy==1", "a.json", "", "Apache-2.0")
MGSM = Origin("mgsm", "github:toy", "b.tsv", "", "CC-BY-4.0")
OWN = Origin("histories", "derived", "x", "", "MIT")
CALL = {"type": "function", "function": {"name": "f", "arguments": '{"a": 1.0}'}}


def called(count: int) -> Case:
    request = {"messages": [{"role": "user", "content": "Do it."}], "temperature": 0.001, "tools": [{"name": "f"}]}
    message = {"content": "", "tool_calls": [CALL] * count}
    return Case("parse", "bfcl-x", "c", BFCL, "c", ("tools",), request=json.dumps(request), message=json.dumps(message))


def asked(*texts: str) -> list[Case]:
    return [
        Case(
            "render", "mgsm-x", text, MGSM, text, request=json.dumps({"messages": [{"role": "user", "content": text}]})
        )
        for text in texts
    ]


def test_results_answer_the_calls_one_by_one():
    """Ids have nine letters and digits, arguments and the request's other keys stay as they are."""
    case = after_results(0, called(2), asked("问", "ক", "c"), OWN)
    request = json.loads(case.request)
    assert list(request) == ["messages", "temperature", "tools"]
    assert request["messages"] == [
        {"role": "user", "content": "Do it."},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "call00000", **CALL}, {"id": "call00001", **CALL}],
        },
        {"role": "tool", "tool_call_id": "call00000", "content": '{"text": "问"}'},
        {"role": "tool", "tool_call_id": "call00001", "content": '{"text": "ক"}'},
    ]
    assert (case.case_id, case.parts) == (
        "render/histories-results/histories-results-0",
        ((BFCL, "c"), (MGSM, "问"), (MGSM, "ক")),
    )
    assert case.written == ("tools", "tool call ids", "tool results")


def test_further_question_follows_an_answer():
    """The same calls, two turns later; texts are taken in turn, and the list begins again at its end."""
    case = after_further_question(2, called(1), asked("a", "b", "c"), OWN)
    messages = json.loads(case.request)["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant", "user"]
    assert [message["content"] for message in messages[2:]] == ['{"text": "c"}', "a", "b"]
    assert case.written[-1] == "assistant answer"


def test_real_corpus_is_two_thousand_requests_in_ten_languages(real, bfcl_wheel):
    """All distinct; every call has its result; both sets go on from the same calls."""
    _, fetch = real("mgsm")
    items = list(corpus(ROOT / "corpus" / "histories", fetch))
    assert Counter((item.kind, item.set) for item in items) == {
        ("render", "histories-results"): 1000,
        ("render", "histories-further-question"): 1000,
    }
    assert len({item.request for item in items}) == 2000
    for results, further in zip(items[:1000], items[1000:], strict=True):
        before, after = (json.loads(item.request)["messages"] for item in (results, further))
        assert after[: len(before)] == before
        assert len(after) == len(before) + 2
        ids = [call["id"] for message in before for call in message.get("tool_calls", [])]
        assert [message["tool_call_id"] for message in before if message["role"] == "tool"] == ids
        assert all(len(call_id) == 9 and call_id.isalnum() for call_id in ids)
    assert len({part[0].file for item in items for part in item.parts if part[0].dataset == "mgsm"}) == 10
