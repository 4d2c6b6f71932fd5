"""Rendering up to the first difference: what is written until then, and nothing after it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2 import Template

from bellwether.oracles.difference import Different, ends_at_difference

PARTS = st.lists(st.text("ab", max_size=3), max_size=6)


@settings(deadline=None)
@given(PARTS, PARTS)
def test_raises_unless_all_that_is_written_is_a_beginning_of_the_text(parts, others):
    """Whatever the pieces in which a template writes: equal text and a mere beginning are returned."""
    template = Template("{% for part in parts %}{{ part }}{% endfor %}")
    text, written = "".join(others), "".join(parts)
    with ends_at_difference(template, text):
        if text.startswith(written):
            assert template.render(parts=parts) == written
        else:
            with pytest.raises(Different):
                template.render(parts=parts)
    assert template.render(parts=parts) == written


def test_nothing_is_rendered_after_the_difference():
    """The rest of a long conversation costs nothing."""
    seen = []
    template = Template("{{ note(1) }}x{{ note(2) }}y{{ note(3) }}")
    with ends_at_difference(template, "1z2y3"), pytest.raises(Different):
        template.render(note=lambda number: seen.append(number) or number)
    assert seen == [1]


def test_error_of_the_template_stays_its_error():
    """A refusal is the template's answer, at either date."""
    template = Template("a{{ 1 / 0 }}")
    with ends_at_difference(template, "ab"), pytest.raises(ZeroDivisionError):
        template.render()


CONVERSATION = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
ASKS = "{% set year = strftime_now('%Y') %}"


@pytest.mark.parametrize(
    ("source", "differs"),
    [
        (ASKS + "{{ messages[-1].content }}", False),
        (ASKS + "{{ messages[-1].content }} {{ year }}", True),
        (ASKS + "{% if year == '2027' %}{{ raise_exception('late') }}{% endif %}x", True),
        (ASKS + "x{% if year == '2026' %}y{% endif %}", True),
        (ASKS + "x{% if year == '2027' %}y{% endif %}", True),
    ],
)
def test_template_that_asks_the_clock_differs_only_where_its_prompt_does(with_template, source, differs):
    """Other text, an error, less or more of the same at the second date; asking alone is no difference."""
    checkpoint = with_template(source)
    text = checkpoint.render(CONVERSATION, None, {}, add_generation_prompt=False)
    arguments = {"kwargs": {}, "add_generation_prompt": False}
    assert checkpoint.differs_at_other_clock(text, CONVERSATION, None, **arguments) is differs


def test_prompt_that_continues_a_message_is_compared_when_it_is_done(with_template):
    """transformers marks the end of the message in what the template writes, and takes the mark out again."""
    checkpoint = with_template(ASKS + "{{ messages[-1].content }} and so on")
    arguments = {"kwargs": {}, "add_generation_prompt": False, "continue_final_message": True}
    text = checkpoint.render(CONVERSATION, None, **arguments)
    assert text == "Hello"
    assert checkpoint.differs_at_other_clock(text, CONVERSATION, None, **arguments) is False
