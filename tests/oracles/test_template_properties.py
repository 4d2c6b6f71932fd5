"""What each checkpoint's chat template does with tools, calls, roles, parts and reasoning.

The expected outcomes were measured outside this project, checkpoint by checkpoint; those of the checkpoints in READ
were read off their templates by hand, and their token counts are those of the text so read, written out and encoded by
the tokenizers library alone. Each property is one hand-written case of the corpus, so the table also says which case
pins which property. A template that refuses is as good an answer as one that renders: the references hold both.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache

import pytest

from bellwether.corpora.handmade import cases
from bellwether.errors import InputUnavailable
from bellwether.oracles.checkpoint import TemplateError
from support import ROOT, load_checkpoint

HELLO = "Hello, 世界! 12345"


@dataclass(frozen=True)
class Row:
    """The properties of one template."""

    hello: int
    """Tokens of a user turn HELLO with generation prompt."""
    tools: str
    """yes, or ignored: whether declared tools reach the prompt."""
    object: str
    """ok, err, or dropped (the call does not reach the prompt): a call whose arguments are an object."""
    string: str
    """Likewise for arguments that are a JSON string."""
    longer: int | None
    """Tokens the string form has more than the object form; None where one of them is refused."""
    null: str
    """ok or err: content null beside a call."""
    calls: str
    """Two calls in a turn: how many reach the prompt, or err."""
    developer: str
    """yes, dropped or err: the developer role in the place of the system role."""
    parts: str
    """lost, err, joined, or list (printed as Python prints it): content as a list of two text parts."""
    reasoning: str
    """kept or dropped, in the tool turn the model goes on from; - where no tool turn renders."""
    old: str
    """Likewise in a tool turn, or where none renders a plain turn, that a later user turn has made old."""


ERR, OK = "err", "ok"
ROWS = {
    "qwen3-8b": Row(19, "yes", OK, OK, 0, OK, "2", "dropped", "lost", "kept", "dropped"),
    "hermes-4-14b": Row(33, "yes", OK, OK, 2, OK, "2", "dropped", ERR, "dropped", "dropped"),
    "qwq-32b": Row(21, "yes", OK, OK, 2, ERR, "2", "dropped", ERR, "dropped", "dropped"),
    "qwen2.5-7b-instruct": Row(40, "yes", OK, OK, 2, OK, "2", "dropped", ERR, "dropped", "dropped"),
    "qwen3-coder-30b-a3b-instruct": Row(19, "yes", OK, ERR, None, OK, "2", "yes", ERR, "dropped", "dropped"),
    "qwen3.5-9b": Row(21, "yes", OK, ERR, None, OK, "2", ERR, "joined", "kept", "dropped"),
    "qwen3.6-27b": Row(21, "yes", OK, ERR, None, OK, "2", ERR, "joined", "kept", "dropped"),
    "deepseek-v3-0324": Row(11, "ignored", ERR, OK, None, ERR, "2", "dropped", ERR, "dropped", "dropped"),
    "deepseek-v3.1": Row(12, "ignored", ERR, OK, None, ERR, "2", "dropped", ERR, "dropped", "dropped"),
    "deepseek-v4": Row(12, "yes", OK, ERR, None, OK, "2", "yes", "list", "dropped", "dropped"),
    "gemma-3-it": Row(19, "ignored", ERR, ERR, None, ERR, ERR, ERR, "joined", "-", "dropped"),
    "gemma-4-e4b-it": Row(19, "yes", OK, ERR, None, OK, "2", "yes", "joined", "kept", "dropped"),
    "glm-4.6": Row(12, "yes", OK, ERR, None, OK, "2", "dropped", "joined", "kept", "dropped"),
    "gpt-oss-20b": Row(74, "yes", OK, OK, 2, OK, "1", "yes", ERR, "kept", "dropped"),
    "kimi-k2-instruct": Row(34, "yes", OK, OK, 0, OK, "2", "yes", "joined", "dropped", "dropped"),
    "kimi-k3": Row(96, "yes", OK, OK, 1, OK, "2", "dropped", "joined", "kept", "kept"),
    "llama-3-8b-instruct": Row(17, "ignored", "dropped", "dropped", 0, OK, "0", "yes", "list", "dropped", "dropped"),
    "llama-3.1-8b-instruct": Row(42, "yes", OK, OK, 2, OK, ERR, "yes", "list", "dropped", "dropped"),
    "mistral-7b-instruct-v0.3": Row(15, "yes", OK, OK, 3, OK, "2", ERR, ERR, "dropped", "dropped"),
    "olmo-3-7b-instruct": Row(46, "yes", OK, ERR, None, OK, "2", "dropped", ERR, "dropped", "dropped"),
    "phi-4": Row(17, "ignored", "dropped", "dropped", 0, ERR, "0", "dropped", ERR, "dropped", "dropped"),
    "smollm2-135m-instruct": Row(45, "ignored", "dropped", "dropped", 0, ERR, "0", "yes", ERR, "dropped", "dropped"),
    "command-r": Row(50, "yes", OK, OK, -3, OK, "2", ERR, ERR, "dropped", "dropped"),
}
READ = {
    # As qwen2.5-7b-instruct but for a shorter default system message: arguments through tojson whatever their form,
    # content of a calling turn only where there is some, user content joined to strings, no word of reasoning_content.
    "qwen2.5-7b-instruct-1m": Row(30, "yes", OK, OK, 2, OK, "2", "dropped", ERR, "dropped", "dropped"),
    # Never names tools; arguments and content are joined to strings, and content is read beside a call too; the prompt
    # opens <think>; system, user, assistant and tool are the roles it looks for.
    "deepseek-r1": Row(13, "ignored", ERR, OK, None, ERR, "2", "dropped", ERR, "dropped", "dropped"),
    # Arguments that are a string as they are, others through tojson; content is a string, or the texts of its parts
    # joined by newlines, or nothing; system, user, assistant and tool are the roles it looks for.
    "granite-4.1-3b": Row(18, "yes", OK, OK, 0, OK, "2", "dropped", "joined", "dropped", "dropped"),
    # The whole function through tojson, without a look at content; user content is joined to strings; a role that is
    # neither user's nor a tool's stands for an assistant's when turns are counted, and may not come first.
    "mistral-nemo-instruct-2407": Row(14, "yes", OK, OK, 2, OK, "2", ERR, ERR, "dropped", "dropped"),
}
ROWS |= READ
NINE = ("mistral-7b-instruct-v0.3", "mistral-nemo-instruct-2407")
"""Templates that take call ids of nine letters and digits only."""
ALTERNATING = ("command-r", "gemma-3-it", *NINE)
"""Templates that refuse two user messages in a row: those that spell "must alternate"."""
DATED = ("gpt-oss-20b",)
"""Templates whose prompt depends on today's date."""


@cache
def requests() -> dict[str, dict]:
    return {
        case.name: json.loads(case.request)
        for case in cases(ROOT / "corpus" / "handmade")
        if case.kind == "render" and case.set != "reported-bugs"
    }


@pytest.fixture
def loaded(slug: str):
    """The checkpoint; one outside params.yaml may lack a manifest, or files that only the Hub has."""
    if not (ROOT / "fixtures" / slug / "manifest.toml").is_file():
        pytest.skip(f"{slug} has no manifest")
    try:
        return load_checkpoint(slug)
    except InputUnavailable as error:
        pytest.skip(f"{slug}: {error}")


def render(checkpoint, name: str, **more) -> str | None:
    """Return what the template makes of a case; None when it refuses."""
    request = requests()[name]
    try:
        return checkpoint.render(
            request["messages"],
            request.get("tools"),
            request.get("chat_template_kwargs", {}),
            add_generation_prompt=request.get("add_generation_prompt", True),
            **more,
        )
    except TemplateError:
        return None


def form(row: Row) -> str:
    """The form of arguments the template takes."""
    return "string" if row.object == ERR and row.string == OK else "object"


def tokens(checkpoint, text: str) -> int:
    return len(checkpoint.encoders[0].encode([text])[0])


def call_outcome(text: str | None) -> str:
    return ERR if text is None else OK if "Buy oats" in text else "dropped"


def of(slug: str, *values: object):
    """A checkpoint's tests run in one process, which loads it once."""
    return pytest.param(slug, *values, marks=pytest.mark.xdist_group(slug))


rows = pytest.mark.parametrize(("slug", "row"), [of(*item) for item in ROWS.items()], ids=ROWS)


@rows
def test_tokens_of_a_user_turn(loaded, row):
    """The whole path, from text over template to ids, on one line of two scripts."""
    text = loaded.render([{"role": "user", "content": HELLO}], None, {}, add_generation_prompt=True)
    assert tokens(loaded, text) == row.hello


@rows
def test_declared_tools(loaded, row):
    """Six templates write no tools; what a server makes of a call then was never asked for."""
    text = render(loaded, "tools-described-probe")
    assert ("yes" if "zx_described_tool" in text and "zx_argument_description" in text else "ignored") == row.tools


@rows
def test_arguments_of_a_call_as_object_and_as_string(loaded, row):
    """Both forms are legitimate, and most families give them different ids."""
    as_object = render(loaded, "described-turn-arguments-object")
    as_string = render(loaded, "described-turn-arguments-string")
    assert (call_outcome(as_object), call_outcome(as_string)) == (row.object, row.string)
    if row.longer is not None:
        assert tokens(loaded, as_string) - tokens(loaded, as_object) == row.longer


@rows
def test_content_null_beside_a_call(loaded, row):
    """transformers leaves a null out, so a template that reads the key without asking for it refuses."""
    text = render(loaded, f"described-turn-content-null-{form(row)}")
    assert (ERR if text is None else OK) == row.null
    if text is not None:
        assert "None" not in text


@rows
def test_two_calls_in_a_turn(loaded, row):
    """gpt-oss loses the second without a word, llama-3.1 refuses."""
    text = render(loaded, f"described-turn-marked-calls-{form(row)}")
    got = ERR if text is None else str(sum(mark in text for mark in ("zx_first_call", "zx_second_call")))
    assert got == row.calls
    if got == "1":
        assert "zx_first_call" in text


@rows
def test_developer_role(loaded, row):
    """A message that is dropped leaves a prompt that looks right."""
    text = render(loaded, "text-developer-role")
    assert (ERR if text is None else "yes" if "Use metric units" in text else "dropped") == row.developer
    if text is not None:
        assert "How high is a basketball hoop?" in text


@rows
def test_content_as_text_parts(loaded, row):
    """Where parts are lost the model answers an empty question."""
    text = render(loaded, "content-text-parts")
    if text is None:
        got = ERR
    elif "First part." not in text:
        got = "lost"
    else:
        assert "Second part." in text
        got = "list" if "'type': 'text'" in text else "joined"
    assert got == row.parts


@rows
def test_reasoning_in_the_tool_turn_and_in_an_old_one(loaded, row):
    """Most families keep reasoning up to the next user turn, or never."""
    text = render(loaded, f"described-turn-reasoning-{form(row)}")
    old = render(loaded, f"described-turn-reasoning-old-{form(row)}")
    if old is None:  # no tool turn renders at all
        old = render(loaded, "reasoning-in-plain-turn")

    def kept(text: str | None) -> str:
        return "-" if text is None else "kept" if "zx_reasoning" in text else "dropped"

    assert (kept(text), kept(old)) == (row.reasoning, row.old)


@rows
def test_date_in_the_prompt(loaded, row, slug, params):
    """Of all templates one writes today's date; llama-3.1 writes a date of its own, which stays."""
    text = render(loaded, "date-default")
    assert (text != render(loaded, "date-default", moment=params.other_clock)) == (slug in DATED)
    assert ("26 Jul 2024" in text) == (slug == "llama-3.1-8b-instruct")


@rows
def test_two_user_messages_in_a_row(loaded, row, slug):
    """All other templates write them one after the other."""
    text = render(loaded, "roles-user-twice")
    assert (text is None) == (slug in ALTERNATING)
    if text is not None:
        first, second = (message["content"] for message in requests()["roles-user-twice"]["messages"])
        assert -1 < text.find(first) < text.rfind(second)


@pytest.mark.parametrize("slug", list(map(of, NINE)))
def test_only_ids_of_nine_letters_and_digits(loaded):
    """Any other id is refused, whatever else is right."""
    request = requests()["tool-turn-arguments-object"]
    with pytest.raises(TemplateError, match="length 9"):
        loaded.render(request["messages"], request["tools"], {}, add_generation_prompt=True)
    assert render(loaded, "described-turn-arguments-object") is not None


@pytest.mark.parametrize("slug", list(map(of, ["kimi-k2-instruct", *NINE])))
def test_call_ids_are_prompt_text(loaded):
    """A server that invents ids changes the prompt of the next turn."""
    assert "zx_call_1" in render(loaded, "tool-turn-marked-id")


@pytest.mark.parametrize(
    "slug",
    list(map(of, ["qwen3-8b", "hermes-4-14b", "glm-4.6", "gpt-oss-20b", "llama-3.1-8b-instruct", "granite-4.1-3b"])),
)
def test_call_ids_are_no_prompt_text(loaded):
    """In these families a server may invent ids."""
    assert "zx_call_1" not in render(loaded, "tool-turn-marked-id")


@pytest.mark.parametrize("slug", list(map(of, ["gemma-3-it"])))
def test_roles_must_alternate(loaded):
    """Two user messages, and a tool's result after a call, are refused by that rule."""
    for name in ("roles-user-twice", "described-turn-arguments-object"):
        request = requests()[name]
        with pytest.raises(TemplateError, match="roles must alternate"):
            loaded.render(request["messages"], request.get("tools"), {}, add_generation_prompt=True)


@pytest.mark.parametrize("slug", list(map(of, ["command-r"])))
def test_tools_select_another_template(loaded):
    """Only the template named tool_use writes tools, and transformers takes it when tools are given."""
    named = loaded.tokenizer.chat_template
    assert isinstance(named, dict)
    assert "zx_described_tool" in render(loaded, "tools-described-probe")
    request = requests()["tools-described-probe"]
    plain = loaded.render(request["messages"], None, {}, add_generation_prompt=True)
    assert "zx_described_tool" not in plain
    assert loaded.tokenizer.get_chat_template(None, request["tools"]) == named["tool_use"]
    assert loaded.tokenizer.get_chat_template(None, None) == named["default"]


@pytest.mark.parametrize("slug", list(map(of, ["command-r"])))
def test_tool_without_descriptions_is_refused(loaded):
    """The template reads the description of every parameter without asking whether there is one."""
    request = requests()["tools-ignored-probe"]
    with pytest.raises(TemplateError, match="no attribute 'description'"):
        loaded.render(request["messages"], request["tools"], {}, add_generation_prompt=True)


@pytest.mark.parametrize("slug", list(map(of, ["deepseek-v3-0324", *NINE])))
def test_generation_prompt_has_no_effect(loaded):
    """These templates open the assistant's turn, or do not, by themselves."""
    messages = requests()["text-user-only"]["messages"]
    with_prompt, without = (loaded.render(messages, None, {}, add_generation_prompt=asked) for asked in (True, False))
    assert with_prompt == without


VARIABLES = {
    "qwen3-8b": ["enable-thinking-false"],
    "hermes-4-14b": ["variable-thinking", "variable-keep-cots"],
    "deepseek-v3.1": ["variable-thinking"],
    "gemma-4-e4b-it": ["enable-thinking-true"],
    "glm-4.6": ["enable-thinking-false"],
    "gpt-oss-20b": ["thinking-reasoning-effort-kwarg", "variable-model-identity", "variable-builtin-tools"],
    "kimi-k3": ["variable-thinking-effort", "variable-response-format"],
    "llama-3.1-8b-instruct": ["variable-date-string", "variable-tools-in-user-message", "custom-tools-variable"],
    "qwen3.5-9b": ["enable-thinking-false"],
    "qwen3.6-27b": ["enable-thinking-false", "variable-preserve-thinking"],
}
"""Checkpoint → cases whose template variable changes its prompt."""


@pytest.mark.parametrize(("slug", "name"), [of(slug, name) for slug, names in VARIABLES.items() for name in names])
def test_variable_changes_the_prompt(loaded, name):
    """The variables a template reads are part of a request; any other is ignored."""
    request = requests()[name]
    plain = loaded.render(request["messages"], request.get("tools"), {}, add_generation_prompt=True)
    assert render(loaded, name) not in (None, plain)
    assert render(loaded, "unknown-kwarg") == loaded.render(
        requests()["unknown-kwarg"]["messages"], None, {}, add_generation_prompt=True
    )


def test_every_checkpoint_in_scope_has_its_properties_here_or_is_named(params):
    """A checkpoint that is added gets its row, or a line here that says no figures were measured outside."""
    unmeasured = {"granite-4.1-3b", "qwen2.5-7b-instruct-1m", "deepseek-r1", "mistral-nemo-instruct-2407"}
    assert set(params.checkpoints) <= set(ROWS) | unmeasured
