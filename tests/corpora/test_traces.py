"""Agent traces: deterministic, of the promised shape, and accepted by templates that are strict about calls."""

from __future__ import annotations

import hashlib
import json
import re
from itertools import islice, pairwise

import pytest

from bellwether.case import NAME
from bellwether.corpora import traces
from bellwether.errors import CorpusError
from bellwether.import_corpus import main as import_corpus
from bellwether.layout import corpus_folder
from bellwether.oracles.normalisation import as_vllm
from support import ROOT, load_checkpoint


@pytest.fixture(scope="module")
def conversations() -> list[list]:
    """The first eight conversations, each the list of its cases."""
    found: dict[str, list] = {}
    for case in traces.cases(1, 8):
        found.setdefault(case.row.partition("/")[0], []).append(case)
    return list(found.values())


def last(cases: list) -> dict:
    return json.loads(cases[-1].request)


def test_a_seed_gives_the_same_bytes_everywhere():
    """Names and requests of two conversations, as one digest; the sequences of `random.Random` are a contract."""
    digest = hashlib.sha256()
    for case in traces.cases(1, 2):
        digest.update(f"{case.case_id}\n{case.request}\n{case.notes}\n".encode())
    assert digest.hexdigest() == "970e99480514d2ca647111846954090594f2b5e70f1fa9eeed5c4556964d16f7"


def test_other_seeds_give_other_conversations():
    """And a conversation is the same however many follow it."""
    one, other = next(traces.cases(1, 1)), next(traces.cases(2, 1))
    assert one.request != other.request
    assert list(islice(traces.cases(1, 9), 20)) == list(islice(traces.cases(1, 3), 20))


def test_conversations_have_the_promised_size(conversations):
    """25 to 50 turns, 5 to 20 tools, results of 200 to 2000 characters."""
    for cases in conversations:
        request = last(cases)
        assert 25 <= len(cases) <= 50
        assert 5 <= len(request["tools"]) <= 20
        results = [message["content"] for message in request["messages"] if message["role"] == "tool"]
        assert results and all(200 <= len(result) <= 2000 for result in results)


def test_each_turn_goes_on_where_the_one_before_ended(conversations):
    """The same tools, and the earlier messages byte by byte: that is what makes a trace one."""
    for cases in conversations:
        for one, following in pairwise(cases):
            messages, _, tools = one.request.partition('],"tools":')
            assert following.request.startswith(messages + ",")
            assert following.request.endswith('],"tools":' + tools)
            assert json.loads(one.request)["messages"][-1]["role"] != "assistant"


def test_roles_alternate(conversations):
    """System first; then user and assistant in turn, where a call and its result stand for no turn of the user."""
    for cases in conversations:
        roles = [message["role"][0] for message in last(cases)["messages"]]
        assert re.fullmatch("su((at)*au)*(at)*", "".join(roles))


def test_calls_are_such_as_every_template_takes(conversations):
    """One call a message, nine letters or digits as its id, used once; arguments are an object as JSON text."""
    for cases in conversations:
        request = last(cases)
        tools = {tool["function"]["name"]: tool["function"]["parameters"] for tool in request["tools"]}
        seen: set[str] = set()
        for message, following in pairwise(request["messages"]):
            if "tool_calls" not in message:
                continue
            [call] = message["tool_calls"]
            assert re.fullmatch("[A-Za-z0-9]{9}", call["id"])
            assert following["role"] == "tool" and following["tool_call_id"] == call["id"]
            assert call["id"] not in seen
            seen.add(call["id"])
            arguments = json.loads(call["function"]["arguments"])
            schema = tools[call["function"]["name"]]
            assert set(schema["required"]) <= set(arguments) <= set(schema["properties"])


def test_content_is_always_a_string(conversations):
    """No parts, no null: those are other cases' subject."""
    for cases in conversations:
        assert all(isinstance(message["content"], str) for message in last(cases)["messages"])


def test_texts_are_as_mixed_as_those_of_agents(conversations):
    """Code, JSON, tables, and scripts from Latin to Thai, combining marks and emoji among them."""
    text = "".join(cases[-1].request for cases in conversations)
    for part in ("```python", "fn ", "SELECT", "| --- |", "@@ -", "ERROR", "<li class=", "\\t", "🎉", "e\u0301"):
        assert part in text
    for script in ("[а-я]", "[一-龥]", "[ぁ-ん]", "[가-힣]", "[ا-ي]", "[अ-ह]", "[ক-হ]", "[α-ω]", "[א-ת]", "[ก-ฮ]"):
        assert re.search(script, text), script


def test_names_are_slugs_and_unique(conversations):
    """As for every corpus."""
    names = [case.name for cases in conversations for case in cases]
    assert len(set(names)) == len(names)
    assert all(NAME.match(name) for name in names) and NAME.match(traces.SET)


def test_corpus_file_decides_seed_and_number(tmp_path):
    """And anything else in it is refused."""
    (tmp_path / "traces.toml").write_text("seed = 3\nconversations = 1\n")
    assert list(traces.corpus(tmp_path, None)) == list(traces.cases(3, 1))
    for text in ("seed = 3", "seed = 3\nconversations = 1.5", "seed = 3\nconversations = 1\nturns = 2", "seed"):
        (tmp_path / "traces.toml").write_text(text)
        with pytest.raises(CorpusError, match=r"traces\.toml"):
            traces.corpus(tmp_path, None)
    (tmp_path / "traces.toml").unlink()
    with pytest.raises(CorpusError, match=r"traces\.toml"):
        traces.corpus(tmp_path, None)


def test_corpus_can_be_imported(tmp_path):
    """Like any other: a folder in Git, and tables."""
    folder = tmp_path / "corpus" / "traces"
    folder.mkdir(parents=True)
    (folder / "traces.toml").write_text("seed = 1\nconversations = 1\n")
    counts = import_corpus(tmp_path, "traces")
    assert counts["cases"] == counts["requests"] == len(list(traces.cases(1, 1)))
    assert (corpus_folder(tmp_path, "traces") / "cases.parquet").is_file()
    assert (ROOT / "corpus" / "traces" / "traces.toml").is_file()


@pytest.mark.parametrize("slug", ["mistral-7b-instruct-v0.3", "qwen3-8b", "smollm2-135m-instruct"])
def test_strict_templates_take_every_turn(conversations, slug):
    """Mistral's refuses ids of another length and roles out of turn."""
    checkpoint = load_checkpoint(slug)
    for case in conversations[0]:
        request = json.loads(case.request)
        messages = as_vllm(request["messages"], "string")
        assert checkpoint.render(messages, request["tools"], {}, add_generation_prompt=True)
