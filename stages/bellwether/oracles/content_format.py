"""Which form of `message.content` a chat template is written for, by the rule vLLM detects it with.

A template that loops over the content of a message gets a list of parts, every other one gets the content as sent. The
rule reads the template's syntax tree and knows nothing of scopes: names are names wherever they stand.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from jinja2 import nodes
from transformers.utils.chat_template_utils import _compile_jinja_template

STRING = "string"
"""Content is handed over as sent."""
OPENAI = "openai"
"""Content is handed over as a list of parts."""


@functools.cache
def detect(template: str) -> str:
    """Return the form `template` is written for: OPENAI when it loops over a message's content, else STRING.

    A template that cannot be parsed, or whose loops unpack what they go over, is STRING.
    """
    try:
        tree = _compile_jinja_template(template).environment.parse(template)
        return OPENAI if any(_content_loops(tree)) else STRING
    except Exception:  # transformers compiles untrusted text; whatever goes wrong in it, the rule has this answer
        return STRING


def _content_loops(tree: nodes.Template) -> Iterator[bool]:
    """Yield, for every loop in the order of the tree, whether it goes over the content of a message."""
    messages = _message_names(tree)
    parameters: dict[nodes.For, frozenset[str]] = {}
    """Loop inside a macro → the macro's parameters that some call gives a message's content."""
    for macro in tree.find_all(nodes.Macro):
        given = _content_parameters(tree, macro, messages)
        for loop in macro.find_all(nodes.For):
            parameters[loop] = given
    for loop in tree.find_all(nodes.For):
        name = loop.iter.name if isinstance(loop.iter, nodes.Name) else None
        bare = name in parameters[loop] if loop in parameters else name == "content"
        found = bare or _is_content(loop.iter, messages)
        if found:
            _target(loop)
        yield found


def _message_names(tree: nodes.Template) -> frozenset[str]:
    """Return the targets of all loops over a list of messages."""
    lists = _message_lists(tree)
    return frozenset(_target(loop) for loop in tree.find_all(nodes.For) if _name(_within(loop.iter)) in lists)


def _message_lists(tree: nodes.Template) -> set[str]:
    """Return `messages` and every name assigned from it, directly or over other names."""
    aliases = [pair for assignment in tree.find_all(nodes.Assign) for pair in _aliases(assignment)]
    lists = {"messages"}
    while found := {alias for alias, source in aliases if source in lists} - lists:
        lists |= found
    return lists


def _aliases(assignment: nodes.Assign) -> Iterator[tuple[str, str | None]]:
    """Yield `(name, name it is assigned from)`; an attribute of a namespace is a name with a dot."""
    target, value = _name(assignment.target), assignment.node
    if target is not None:
        yield target, _name(_within(value))
        if isinstance(value, nodes.Call) and _name(value.node) == "namespace":
            for keyword in value.kwargs:
                yield f"{target}.{keyword.key}", _name(_within(keyword.value))


def _content_parameters(tree: nodes.Template, macro: nodes.Macro, messages: frozenset[str]) -> frozenset[str]:
    """Return the parameters of `macro` that some call of it gives a message's content, by position or keyword."""
    names = [argument.name for argument in macro.args]
    calls = [call for call in tree.find_all(nodes.Call) if _name(call.node) == macro.name]
    placed = [pair for call in calls for pair in zip(names, call.args, strict=False)]  # a call may leave some out
    given = {name for name, value in placed if _is_content(value, messages)}
    given |= {pair.key for call in calls for pair in call.kwargs if _is_content(pair.value, messages)} & set(names)
    return frozenset(given)


def _is_content(node: nodes.Node, messages: frozenset[str]) -> bool:
    """Return whether `node` reads `content` of a message, by attribute or constant key."""
    node = _within(node)
    if isinstance(node, nodes.Getattr):
        key = node.attr
    elif isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const):
        key = node.arg.value
    else:
        return False
    return key == "content" and isinstance(node.node, nodes.Name) and node.node.name in messages


def _within(node: nodes.Node | None) -> nodes.Node | None:
    """Return what filters, tests and slices are put around."""
    while isinstance(node, nodes.Filter | nodes.Test) or (
        isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice)
    ):
        node = node.node
    return node


def _name(node: nodes.Node | None) -> str | None:
    """Return a name, or a namespace's attribute as a name with a dot; None of anything else."""
    if isinstance(node, nodes.Name):
        return node.name
    if isinstance(node, nodes.NSRef):
        return f"{node.name}.{node.attr}"
    if isinstance(node, nodes.Getattr) and isinstance(node.node, nodes.Name):
        return f"{node.node.name}.{node.attr}"
    return None


def _target(loop: nodes.For) -> str:
    """Return the name a loop gives its items. Raises ValueError when it unpacks them."""
    if not isinstance(loop.target, nodes.Name):
        raise ValueError("the loop has several targets")
    return loop.target.name
