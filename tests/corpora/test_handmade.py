"""The hand-made corpus: what is in it, and what its reader refuses."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bellwether.case import Case, Origin, json_text
from bellwether.corpora.handmade import cases
from bellwether.errors import CorpusError

ROOT = Path(__file__).parents[2]
KINDS = ("render", "parse", "tokenize", "detokenize")

COMMON_RENDER = """
    text-user-only text-system-user text-multi-turn text-empty-user text-cjk-emoji text-markup-in-user-text
    text-long-user text-system-after-user text-assistant-first text-developer-role text-user-with-name
    tools-declared-user-asks tools-history-single-call tools-history-parallel-calls tools-history-results-reordered
    tools-call-arguments-object tools-schema-with-defs tools-history-content-and-call
    thinking-history-with-reasoning-content thinking-kwarg-off thinking-kwarg-on thinking-reasoning-effort-kwarg
    continue-final-message no-generation-prompt
""".split()
COMMON_PARSE = """
    content-thinking-on content-thinking-off reasoning-then-content reasoning-only reasoning-multiline-markdown
    call-single-thinking-on call-single-thinking-off call-with-content calls-parallel-two calls-parallel-three
    call-nested-arguments call-unicode-arguments call-empty-arguments call-after-long-content
    content-with-marker-in-code-fence reasoning-with-marker-text
""".split()
REPORTED = """
    smg-bos-not-injected gemma3-template-then-encode swiftjinja-tojson-slash-ascii mlxcel-tojson-separators
    glm-null-content-None gptoss-args-double-encoded qwen35-string-args-crash ollama-qwen3-go-struct
    dynamo-continue-wrong-cut kimi-random-tool-id special-token-in-user-content reasoning-history-dropped
    ollama-empty-vs-null-content gemma4-tokenizer-revision hermes-close-tag-in-string hermes-nested-list-stream
    dsv31-begin-end-same-delta gemma4-spec-reasoning-truncated kimi-interval4-no-call llama3-trailing-braces
    harmony-commentary-leak glm-underscore-digits glm-jsonlike-string qwenxml-schema-coercion smg-gemma3-pretty-json
    mistral-args-stream-leak skip-special-strips-marker r1-distill-open-in-prompt lmstudio-tool-text-in-think
    per-token-decode-ufffd leading-space-lost finish-reason-named-choice qwencoder-nonnumeric-int
    gemma4-quotes-in-string
""".split()
DISAGREEMENTS = {
    "newlines and blanks that a wrong tokenizer class drops": "render/text-white-space-at-edges",
    "tool without description": "render/tool-without-description",
    "tool without parameters": "render/tool-without-parameters",
    "keys added to every tool": "render/tools-declared-user-asks",
    "strict": "render/tool-strict",
    "order of tool keys": "render/tools-keys-unsorted",
    "tool_choice none": "render/tool-choice-none",
    "tool_choice that names a tool": "render/tool-choice-named",
    "developer role": "render/text-developer-role",
    "content null beside a call": "render/tool-turn-content-null",
    "two text parts": "render/content-text-parts",
    "empty arguments in the history": "render/history-arguments-empty-string",
    "arguments in the history that are no JSON": "render/history-arguments-no-json",
    "assistant last": "render/last-message-assistant",
    "think block before what is continued": "render/continue-final-think-block",
    "tools is an empty list": "render/tools-empty-list",
    "no think tag, thinking on": "parse/no-think-tag-thinking-on",
    "think tag as a word, thinking off": "parse/think-tag-in-content-thinking-off",
    "think block, thinking off": "parse/think-block-thinking-off",
    "unclosed think": "parse/think-unclosed",
    "text after a call": "parse/text-after-call",
    "text between calls": "parse/text-between-calls",
    "call tags without newlines": "parse/call-tags-without-newlines",
    "closing tag inside a string": "parse/hermes-close-tag-in-string",
    "no arguments": "parse/call-without-arguments-key",
    "parameters for arguments": "parse/call-with-parameters-key",
    "unknown tool": "parse/call-of-undeclared-tool",
    "truncated arguments": "parse/call-arguments-truncated",
    "unclosed call": "parse/call-unclosed",
    "good call, bad call": "parse/call-good-then-bad",
    "call inside think": "parse/call-inside-think",
    "unclosed think, then a call": "parse/think-unclosed-then-call",
    "second think block": "parse/think-block-twice",
    "list of calls": "parse/call-list",
    "tools not given": "parse/kimi-random-tool-id",
    "DeepSeek: arguments that are no JSON": "parse/deepseek-call-no-json",
    "DeepSeek: text after the calls": "parse/deepseek-text-after-calls",
    "white space around content": "parse/content-white-space-at-edges",
    "white space before a call": "parse/call-after-white-space",
    "blanks of arguments": "parse/call-compact-json",
    "spelling of a number": "parse/call-number-spelling",
}
"""What engines and templates are known to make different things of, and the case (kind and name) that shows it."""

POLICY = {
    *("llama3-trailing-braces", "smg-gemma3-pretty-json", "finish-reason-named-choice", "qwencoder-nonnumeric-int"),
    *("no-think-tag-thinking-on", "think-block-thinking-off", "think-unclosed", "text-after-call"),
    *("text-between-calls", "call-tags-without-newlines", "call-without-arguments-key", "call-with-parameters-key"),
    *("call-arguments-truncated", "call-unclosed", "call-good-then-bad", "think-unclosed-then-call"),
    *("think-block-twice", "call-list", "deepseek-call-no-json", "deepseek-text-after-calls", "call-compact-json"),
    "call-number-spelling",
}
UNDECLARED = {"kimi-random-tool-id", "call-of-undeclared-tool"}

RENDER = {"set": "s", "name": "n", "request": {"messages": []}, "notes": "A note."}
PARSE = {"set": "s", "name": "n", "request": {"messages": []}, "message": {"content": "x"}, "notes": "A note."}
MALFORMED = {"set": "s", "name": "n", "request": {"messages": []}, "malformed": True, "text": "x", "notes": "A note."}
TOKENIZE = {"set": "s", "name": "n", "text": "x", "notes": "A note."}
DETOKENIZE = {"set": "s", "name": "n", "ids": [1, 2], "requires": "a" * 64, "notes": "A note."}


@pytest.fixture(scope="module")
def corpus() -> list[Case]:
    return list(cases(ROOT / "corpus" / "handmade"))


def write(folder: Path, **lines: list[object]) -> Path:
    """Write the four files; a line is text as it is or an object to be serialised."""
    for kind in KINDS:
        texts = [line if isinstance(line, str) else json_text(line) for line in lines.get(kind, [])]
        (folder / f"{kind}.jsonl").write_bytes("".join(f"{text}\n" for text in texts).encode("utf-8"))
    return folder


def refusal(folder: Path, kind: str, *lines: object) -> CorpusError:
    with pytest.raises(CorpusError) as caught:
        list(cases(write(folder, **{kind: list(lines)})))
    assert caught.value.next_step
    return caught.value


# What is in the corpus


def test_kinds_come_in_order(corpus):
    """Cases come by file: render, parse, tokenize, detokenize."""
    kinds = [case.kind for case in corpus]
    assert kinds == sorted(kinds, key=KINDS.index)
    assert set(kinds) == set(KINDS)


@pytest.mark.parametrize(("kind", "names"), [("render", COMMON_RENDER), ("parse", COMMON_PARSE)])
def test_common_set_has_exactly_the_names_consumers_list(corpus, kind, names):
    """Consumers hold lists of these names; a missing one fails their run."""
    assert sorted(case.name for case in corpus if (case.kind, case.set) == (kind, "common")) == sorted(names)


def test_every_reported_bug_is_a_case(corpus):
    """The row of a case is the id of the report; one report has three variants, each a case."""
    rows = Counter(case.row for case in corpus if case.set == "reported-bugs")
    assert rows == Counter(REPORTED) + Counter({"ollama-empty-vs-null-content": 2})


def test_reported_bugs_tell_their_origin(corpus):
    """Every reported case names the report it comes from and says that its text is invented."""
    for case in corpus:
        if case.set == "reported-bugs":
            assert (case.origin.dataset, "#" in case.origin.source) == ("reported-bugs", True), case.case_id
            assert case.written[0] == "everything", case.case_id
            assert ("user message" in case.written) == (case.kind == "parse"), case.case_id


def test_every_known_disagreement_has_a_case(corpus):
    """The set of disagreements holds nothing else; some are shown by cases of other sets."""
    own = {f"{case.kind}/{case.name}" for case in corpus if case.set == "disagreements"}
    shown = set(DISAGREEMENTS.values())
    assert len(shown) == len(DISAGREEMENTS)
    assert own <= shown <= {f"{case.kind}/{case.name}" for case in corpus}


def test_outputs_of_policy_are_malformed(corpus):
    """Where no vendor fixes the message, the case keeps the output and claims no message."""
    assert {case.name for case in corpus if case.malformed} == POLICY


def test_ids_belong_to_one_tokenizer(corpus):
    """Output ids mean something for the vocabulary of Qwen3 only."""
    with_ids = {case.name: case.requires for case in corpus if case.ids is not None}
    qwen3 = "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4"
    assert with_ids == {"per-token-decode-ufffd": qwen3, "leading-space-lost": qwen3}


def test_names_are_unique_per_kind(corpus):
    assert len({(case.kind, case.name) for case in corpus}) == len(corpus)


def test_notes_state_what_a_case_probes(corpus):
    assert [case.case_id for case in corpus if not case.notes.strip() or "should" in case.notes.lower()] == []


def test_requests_differ_outside_the_reports(corpus):
    """Two cases with one request probe one thing; only reports may coincide, since each is a fault of its own."""
    said = [(case.kind, case.request, case.message, case.text) for case in corpus if case.set != "reported-bugs"]
    assert len(set(said)) == len(said)


def test_parse_arguments_are_json_objects(corpus):
    """A case whose arguments are no object has no round trip."""
    for case in corpus:
        for call in json.loads(case.message or "{}").get("tool_calls", []):
            assert isinstance(json.loads(call["function"]["arguments"]), dict), case.case_id


def test_tool_calls_name_declared_tools(corpus):
    """A parser with a tool list answers for a declared tool; two cases are about one that is not."""
    for case in corpus:
        message = json.loads(case.message or "{}")
        tools = {tool["function"]["name"] for tool in json.loads(case.request or "{}").get("tools", [])}
        called = {call["function"]["name"] for call in message.get("tool_calls", [])}
        assert called <= tools or case.name in UNDECLARED, case.case_id


def test_thinking_is_set_where_the_name_says_so(corpus):
    """Everywhere else in the common parse set the default of the checkpoint decides."""
    said = {
        case.name: json.loads(case.request)["chat_template_kwargs"]
        for case in corpus
        if (case.kind, case.set) == ("parse", "common") and "chat_template_kwargs" in json.loads(case.request)
    }
    assert said == {
        "content-thinking-on": {"enable_thinking": True},
        "content-thinking-off": {"enable_thinking": False},
        "call-single-thinking-on": {"enable_thinking": True},
        "call-single-thinking-off": {"enable_thinking": False},
    }


def test_marker_cases_hold_their_markers(corpus):
    """Consumers rely on these two to differ from a parser that looks for markers only."""
    messages = {case.name: json.loads(case.message) for case in corpus if case.message is not None}
    fenced = messages["content-with-marker-in-code-fence"]["content"].split("```")[1]
    assert "<tool_call>" in fenced and "</tool_call>" in fenced
    assert "<tool_call>" in messages["reasoning-with-marker-text"]["reasoning_content"]


def test_files_stay_reviewable():
    """A person reads these files; U+FEFF and the like are written as escapes."""
    folder = ROOT / "corpus" / "handmade"
    assert (folder / "render.jsonl").stat().st_size < 80_000
    for kind in KINDS:
        text = (folder / f"{kind}.jsonl").read_bytes().decode("utf-8")
        assert text.endswith("\n") and not set(text) & set("\r\u0085\u200b\u200d\u2028\u2029\ufeff"), kind


def test_right_values_name_cases_of_the_corpus(corpus):
    """The right values the reports give are kept beside the tests; each belongs to a case and a checkpoint."""
    lines = (ROOT / "tests" / "expected" / "reported_bugs_right.jsonl").read_bytes().decode("utf-8").split("\n")[:-1]
    rights = [json.loads(line) for line in lines]
    known = {case.case_id: case for case in corpus if case.set == "reported-bugs"}
    assert len({right["case_id"] for right in rights}) == len(rights) == 13
    for right in rights:
        case = known[right["case_id"]]
        # gpt-oss's template spells the call's header in another way than the report, so only the message is kept
        output = ["output_text"] if case.kind == "parse" and right["checkpoint"] != "gpt-oss-20b" else []
        assert list(right) == ["case_id", "checkpoint", "right", *output, "why"]
        assert right["checkpoint"] in {"qwen3-8b", "glm-4.6", "gpt-oss-20b", "qwen3.5-9b"}
        assert right["right"] and right["why"]


# What the reader makes of a line


def test_render_line(tmp_path):
    """A line without origin is hand-made, its row is its name."""
    line = '{"set":"s","name":"n-1","request":{"tools":[],"messages":[{"b":1,"a":1.0}]},"notes":"A note."}'
    origin = Origin("handmade", "handmade", "corpus/handmade/render.jsonl", "", "Apache-2.0")
    request = '{"tools":[],"messages":[{"b":1,"a":1.0}]}'
    expected = Case("render", "s", "n-1", origin, "n-1", notes="A note.", request=request)
    assert list(cases(write(tmp_path, render=[line]))) == [expected]


def test_parse_line(tmp_path):
    message = {
        "content": "",
        "reasoning_content": "r",
        "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}],
    }
    (case,) = cases(write(tmp_path, parse=[PARSE | {"message": message}]))
    assert (case.request, case.message, case.malformed, case.text) == (
        '{"messages":[]}',
        json_text(message),
        False,
        None,
    )


def test_malformed_line(tmp_path):
    (case,) = cases(write(tmp_path, parse=[MALFORMED]))
    assert (case.request, case.message, case.malformed, case.text) == ('{"messages":[]}', None, True, "x")


def test_detokenize_line_with_ids(tmp_path):
    (case,) = cases(write(tmp_path, detokenize=[DETOKENIZE]))
    assert (case.text, case.ids, case.requires) == (None, (1, 2), "a" * 64)


def test_origin_of_a_line(tmp_path):
    """Origin holds what differs from hand-made; the file is the corpus file all the same."""
    origin = {"dataset": "d", "source": "o/r#1", "row": "Row 1", "written": ["everything"]}
    (case,) = cases(write(tmp_path, tokenize=[TOKENIZE | {"origin": origin}]))
    assert case.origin == Origin("d", "o/r#1", "corpus/handmade/tokenize.jsonl", "", "Apache-2.0")
    assert (case.row, case.written) == ("Row 1", ("everything",))


def test_one_name_in_two_kinds(tmp_path):
    """Names are unique per kind, so a render and a parse case may share one."""
    assert [case.kind for case in cases(write(tmp_path, render=[RENDER], parse=[PARSE]))] == ["render", "parse"]


def test_only_line_feeds_end_a_line(tmp_path):
    """U+2028, U+2029 and U+0085 are text, raw as well as escaped."""
    text = "a\u2028b\u2029c\u0085d"
    (case,) = cases(write(tmp_path, tokenize=[TOKENIZE | {"text": text}]))
    assert case.text == text


JSON_VALUE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)
JSON_OBJECT = st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), JSON_VALUE, max_size=5)


@settings(deadline=None)
@given(
    extra=JSON_OBJECT,
    messages=st.lists(JSON_VALUE, max_size=3),
    text=st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    ascii_only=st.booleans(),
)
def test_values_survive_reading(tmp_path_factory, extra, messages, text, ascii_only):
    """Whatever JSON a request holds comes back as the same text, key order included, however the file escapes it."""
    request = {key: value for key, value in extra.items() if key not in ("model", "messages")}
    request["messages"] = messages
    message = {"reasoning_content": text, "content": text}
    lines = {
        "render": [json.dumps(RENDER | {"request": request}, ensure_ascii=ascii_only)],
        "parse": [json.dumps(PARSE | {"request": request, "message": message}, ensure_ascii=ascii_only)],
        "tokenize": [json.dumps(TOKENIZE | {"text": text}, ensure_ascii=ascii_only)],
    }
    render, parse, tokenize = cases(write(tmp_path_factory.mktemp("corpus"), **lines))
    assert (render.request, parse.request) == (json_text(request), json_text(request))
    assert (parse.message, tokenize.text) == (json_text(message), text)


# What the reader refuses


def test_error_names_file_and_line(tmp_path):
    """The line is 1-based."""
    error = refusal(tmp_path, "render", RENDER, "{")
    assert str(error).startswith(f"{tmp_path / 'render.jsonl'} line 2: expected one JSON object, found no JSON (")


def test_missing_file(tmp_path):
    """A missing file is an error: an empty corpus would look like a clean one."""
    folder = write(tmp_path)
    (folder / "parse.jsonl").unlink()
    with pytest.raises(CorpusError, match=r"parse\.jsonl: expected a corpus file, found none"):
        list(cases(folder))


def test_file_not_utf8(tmp_path):
    folder = write(tmp_path)
    (folder / "tokenize.jsonl").write_bytes(b'{"set": "\xff"}\n')
    with pytest.raises(CorpusError, match=r"expected UTF-8, found byte 0xff at offset 9"):
        list(cases(folder))


def test_duplicate_name(tmp_path):
    """A name is unique per kind over all sets."""
    error = refusal(tmp_path, "tokenize", TOKENIZE, TOKENIZE | {"name": "m"}, TOKENIZE | {"set": "other"})
    expected = "line 3: expected a name that is unique among the tokenize cases, found 'n' again, first on line 1"
    assert str(error).endswith(expected)


def messages_line(raw: str) -> str:
    return f'{{"set":"s","name":"n","request":{{"messages":[{raw}]}},"notes":"A note."}}'


def calls(*values: object) -> dict[str, object]:
    return PARSE | {"message": {"content": "", "tool_calls": list(values)}}


def function(**changes: object) -> dict[str, object]:
    return {"type": "function", "function": {"name": "f", "arguments": "{}"} | changes}


REFUSED = {
    "empty-line": ("render", "", "one JSON object, found no JSON (Expecting value at column 1)"),
    "not-json": ("parse", "nothing", "one JSON object, found no JSON (Expecting value at column 1)"),
    "two-objects": ("render", "{} {}", "one JSON object, found no JSON (Extra data at column 4)"),
    "not-an-object": ("render", [1], "line to be a JSON object, found [1]"),
    "nan": ("render", messages_line("NaN"), "numbers JSON knows, found NaN"),
    "infinity": ("render", messages_line("-Infinity"), "numbers JSON knows, found -Infinity"),
    "too-large": ("render", messages_line("1e999"), "numbers a double can hold, found 1e999"),
    "too-long": ("render", messages_line("1" * 5000), "JSON this reader can hold, found Exceeds the limit"),
    "repeated-key": ("render", messages_line('{"a":1,"a":2}'), "each key once per object, found 'a' twice"),
    "lone-surrogate": (
        "tokenize",
        json.dumps(TOKENIZE | {"text": "\ud800"}),
        "text that UTF-8 can hold, found U+D800, half of a surrogate pair",
    ),
    "unknown-key": ("render", RENDER | {"comment": "x"}, "only keys a render case has, found unknown key 'comment'"),
    "key-of-another-kind": ("render", RENDER | {"text": "x"}, "only keys a render case has, found unknown key 'text'"),
    "missing-key": (
        "tokenize",
        {"set": "s", "name": "n", "text": "x"},
        "the keys set, name, text, notes in this order (then origin, if any), found the keys set, name, text",
    ),
    "key-order": (
        "tokenize",
        {"name": "n", "set": "s", "text": "x", "notes": "A note."},
        "the keys set, name, text, notes in this order (then origin, if any), found the keys name, set, text, notes",
    ),
    "origin-before-notes": (
        "tokenize",
        {"set": "s", "name": "n", "text": "x", "origin": {}, "notes": "A note."},
        "found the keys set, name, text, origin, notes",
    ),
    "message-and-malformed": (
        "parse",
        {**PARSE, "malformed": True},
        "the keys set, name, request, message, notes or set, name, request, malformed, text, notes in this order",
    ),
    "text-and-ids": (
        "detokenize",
        {"set": "s", "name": "n", "text": "x", "ids": [1], "requires": "a" * 64, "notes": "A note."},
        "the keys set, name, text, notes or set, name, ids, requires, notes in this order",
    ),
    "ids-without-requires": (
        "detokenize",
        {"set": "s", "name": "n", "ids": [1], "notes": "A note."},
        "found the keys set, name, ids, notes",
    ),
    "bad-set": (
        "tokenize",
        TOKENIZE | {"set": "A b"},
        'set to be a slug (a-z, 0-9, single hyphens between them), found "A b"',
    ),
    "bad-name": (
        "tokenize",
        TOKENIZE | {"name": "n_1"},
        'name to be a slug (a-z, 0-9, single hyphens between them), found "n_1"',
    ),
    "name-no-string": ("tokenize", TOKENIZE | {"name": 1}, "name to be a non-empty string, found 1"),
    "name-line-feed": (
        "tokenize",
        TOKENIZE | {"name": "n\n"},
        r'name to be a slug (a-z, 0-9, single hyphens between them), found "n\n"',
    ),
    "empty-text": ("tokenize", TOKENIZE | {"text": ""}, 'text to be a non-empty string, found ""'),
    "text-no-string": ("detokenize", TOKENIZE | {"text": ["x"]}, 'text to be a non-empty string, found ["x"]'),
    "empty-notes": ("tokenize", TOKENIZE | {"notes": ""}, 'notes to be a non-empty string, found ""'),
    "blank-notes": ("tokenize", TOKENIZE | {"notes": "  "}, 'notes to be one sentence, found "  "'),
    "notes-of-two-lines": ("tokenize", TOKENIZE | {"notes": "A.\nB."}, r'notes to be one sentence, found "A.\nB."'),
    "notes-with-a-wish": (
        "tokenize",
        TOKENIZE | {"notes": "It Should pass."},
        'notes that state what the case probes, without "should", found "It Should pass."',
    ),
    "request-no-object": ("render", RENDER | {"request": "{}"}, 'request to be a JSON object, found "{}"'),
    "request-with-model": (
        "render",
        RENDER | {"request": {"model": "m", "messages": []}},
        "a request without model, found model",
    ),
    "request-without-messages": ("parse", PARSE | {"request": {}}, "request.messages to be a list, found null"),
    "malformed-false": (
        "parse",
        MALFORMED | {"malformed": False},
        "malformed to be true, or the key left out, found false",
    ),
    "malformed-one": ("parse", MALFORMED | {"malformed": 1}, "malformed to be true, or the key left out, found 1"),
    "message-no-object": ("parse", PARSE | {"message": "x"}, 'message to be a JSON object, found "x"'),
    "message-with-role": (
        "parse",
        PARSE | {"message": {"role": "assistant", "content": "x"}},
        "only the keys content, reasoning_content, tool_calls in message, found unknown key 'role'",
    ),
    "content-missing": (
        "parse",
        PARSE | {"message": {"reasoning_content": "x"}},
        'message.content to be a string ("" for no text), found null',
    ),
    "reasoning-null": (
        "parse",
        PARSE | {"message": {"content": "", "reasoning_content": None}},
        'message.reasoning_content to be a string ("" for no text), found null',
    ),
    "no-calls": ("parse", calls(), "message.tool_calls to be a non-empty list, or the key left out, found []"),
    "call-no-object": ("parse", calls("f"), 'message.tool_calls[0] to be a JSON object, found "f"'),
    "call-with-id": (
        "parse",
        calls(function(), function() | {"id": "1"}),
        "message.tool_calls[1] without id, found id",
    ),
    "call-without-type": (
        "parse",
        calls({"function": {"name": "f", "arguments": "{}"}}),
        'message.tool_calls[0] to be {"type":"function","function":…}',
    ),
    "call-of-other-type": (
        "parse",
        calls(function() | {"type": "custom"}),
        'message.tool_calls[0] to be {"type":"function","function":…}',
    ),
    "function-no-object": (
        "parse",
        calls({"type": "function", "function": "f"}),
        'message.tool_calls[0].function to be a JSON object, found "f"',
    ),
    "function-with-more": (
        "parse",
        calls(function(strict=True)),
        "message.tool_calls[0].function to be a name and its arguments",
    ),
    "function-name-no-string": (
        "parse",
        calls(function(name=1)),
        "message.tool_calls[0].function to be a name and its arguments",
    ),
    "arguments-object": (
        "parse",
        calls(function(arguments={"x": 1})),
        'message.tool_calls[0].function.arguments to be a string, found {"x":1}',
    ),
    "ids-empty": ("detokenize", DETOKENIZE | {"ids": []}, "ids to be a non-empty list of token ids, found []"),
    "ids-bool": ("detokenize", DETOKENIZE | {"ids": [True]}, "ids to be a non-empty list of token ids, found [true]"),
    "ids-float": ("detokenize", DETOKENIZE | {"ids": [1.0]}, "ids to be a non-empty list of token ids, found [1.0]"),
    "ids-negative": ("detokenize", DETOKENIZE | {"ids": [-1]}, "ids to be a non-empty list of token ids, found [-1]"),
    "requires-short": (
        "detokenize",
        DETOKENIZE | {"requires": "aeb13307"},
        'requires to be the sha256 of a tokenizer.json, 64 hex digits, found "aeb13307"',
    ),
    "origin-no-object": ("tokenize", TOKENIZE | {"origin": "d"}, 'origin to be a JSON object, found "d"'),
    "origin-unknown-key": (
        "tokenize",
        TOKENIZE | {"origin": {"file": "x"}},
        "only the keys dataset, source, row, written in origin, found unknown key 'file'",
    ),
    "origin-row-number": ("tokenize", TOKENIZE | {"origin": {"row": 1}}, "row to be a non-empty string, found 1"),
    "origin-written-text": (
        "tokenize",
        TOKENIZE | {"origin": {"written": "everything"}},
        'origin.written to be a list of strings, found "everything"',
    ),
}


@pytest.mark.parametrize(("kind", "line", "expected"), REFUSED.values(), ids=REFUSED.keys())
def test_refused_line(tmp_path, kind, line, expected):
    """The message says what was expected and what was found, the error carries a next step."""
    assert f"{kind}.jsonl line 1: expected " in (message := str(refusal(tmp_path, kind, line)))
    assert expected in message


def test_long_values_are_cut_in_messages(tmp_path):
    error = refusal(tmp_path, "render", RENDER | {"request": "x" * 500})
    assert str(error).endswith('found "' + "x" * 78 + "…")
