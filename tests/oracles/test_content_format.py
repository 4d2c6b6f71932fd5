"""Which content form a template is written for: each part of the rule on a template made for it, and real templates."""

from __future__ import annotations

import pytest

from bellwether.oracles.content_format import detect
from support import chat_template, load_checkpoint

LOOP = "{% for message in messages %}BODY{% endfor %}"


def over(iterable: str) -> str:
    """A template whose loop over `iterable` stands inside a loop over the messages."""
    return LOOP.replace("BODY", "{% for part in " + iterable + " %}{{ part.text }}{% endfor %}")


@pytest.mark.parametrize(
    "template",
    [
        over("message.content"),
        over("message['content']"),
        over("message.content | list"),
        over("message['content'][1:]"),
        over("message.content | selectattr('type', 'equalto', 'text') | list"),
        over("(message.content is iterable)"),
    ],
)
def test_loop_over_the_content_of_a_message(template):
    """By attribute or key, through filters, slices and tests."""
    assert detect(template) == "openai"


@pytest.mark.parametrize(
    "template",
    [
        "{% set turns = messages %}" + over("message.content").replace("in messages", "in turns"),
        "{% set turns = messages[1:] | list %}" + over("message.content").replace("in messages", "in turns"),
        "{% set a = messages %}{% set b = a %}{% set c = b[:2] %}"
        + over("message.content").replace("in messages", "in c"),
        "{% if messages[0].role == 'system' %}{% set turns = messages[1:] %}{% else %}{% set turns = messages %}"
        "{% endif %}" + over("message.content").replace("in messages", "in turns"),
        "{% set ns = namespace(rest=messages) %}" + over("message.content").replace("in messages", "in ns.rest"),
        "{% set ns = namespace(rest=[]) %}{% set ns.rest = messages %}"
        + over("message.content").replace("in messages", "in ns.rest"),
    ],
)
def test_messages_under_another_name(template):
    """A name assigned from the messages, directly, over other names, or inside a namespace, is a list of messages."""
    assert detect(template) == "openai"


@pytest.mark.parametrize(
    "assignments",
    ["{% set messages = messages %}", "{% set messages = messages[1:] %}", "{% set a = b %}{% set b = a %}"],
)
def test_assignments_in_a_circle_end(assignments):
    """A name assigned from itself, or two from each other, is followed once."""
    assert detect(assignments + over("message.content")) == "openai"
    assert detect(assignments + LOOP) == "string"


MACRO = "{% macro write(role, body) %}{% for part in body %}{{ part.text }}{% endfor %}{% endmacro %}"


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("write('user', message.content)", "openai"),
        ("write(role='user', body=message['content'])", "openai"),
        ("write(body=message.content | list)", "openai"),
        ("write(message.content, 'user')", "string"),
        ("write('user', message.tool_calls)", "string"),
        ("write('user', content)", "string"),
        ("other('user', message.content)", "string"),
    ],
)
def test_macro_that_loops_over_the_content_it_is_given(call, expected):
    """The parameter the macro loops over has to get a message's content from some call, by position or keyword."""
    assert detect(MACRO + LOOP.replace("BODY", "{{ " + call + " }}")) == expected


def test_bare_content_counts_outside_macros_only():
    """`content` alone is a message's content where no macro could have been given something else under that name."""
    bare = "{% for part in content %}{{ part.text }}{% endfor %}"
    assert detect(LOOP.replace("BODY", "{% set content = message.content %}" + bare)) == "openai"
    assert detect("{% macro write(content) %}" + bare + "{% endmacro %}" + LOOP) == "string"


@pytest.mark.parametrize(
    "template",
    [
        LOOP.replace("BODY", "{{ message.content }}"),
        over("message.tool_calls"),
        over("tools"),
        over("message.content.split('x')"),
        over("message[key]"),
        "{% for message in others %}{% for part in message.content %}{% endfor %}{% endfor %}",
        "{% for part in messages[0].content %}{% endfor %}",
        LOOP.replace("BODY", "{{ message.content | map(attribute='text') | join }}"),
        "no messages at all",
        "",
    ],
)
def test_everything_else_takes_content_as_sent(template):
    """No loop over a message's content: the template is written for text."""
    assert detect(template) == "string"


@pytest.mark.parametrize(
    "template",
    [
        "{% for message in messages %}",
        "{% unknown %}",
        "{% for a, b in messages %}{% endfor %}" + over("message.content"),
        over("message.content").replace("for part", "for key, part"),
    ],
)
def test_template_that_cannot_be_read_takes_content_as_sent(template):
    """Broken syntax, and loops that unpack what they go over: the rule's answer is the plain form."""
    assert detect(template) == "string"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("google-gemma-4-E4B-it", "openai"),  # for item in message['content']
        ("GLM-4.6", "openai"),  # macro visible_text(content) is given m.content and loops over it
        ("ibm-granite-granite-4.1", "openai"),  # for entry in message.content
        ("openai-gpt-oss-120b", "string"),  # content is only tested and written
        ("mistralai-Mistral-7B-Instruct-v0.3", "string"),
        ("HuggingFaceTB-SmolLM2-135M-Instruct", "string"),
    ],
)
def test_real_templates(name, expected):
    """As read off the templates by eye."""
    assert detect(chat_template(name)) == expected


def test_qwen3_takes_text_and_its_successor_parts():
    """Qwen3 tests whether content is a string and writes it; Qwen3.5's macro render_content loops over it."""
    assert load_checkpoint("qwen3-8b").content_format(None) == "string"
    assert load_checkpoint("qwen3.5-9b").content_format(None) == "openai"
