"""A shorter way to what templates do most: look up a key of a message, an attribute of a namespace, a method of a text.

For `message.role` Jinja's sandbox first asks the dictionary for an attribute of that name, which raises, and then for
the key. Where no dictionary has such an attribute the outcome is certain, and the first question can be left out.
Whether an attribute is safe the sandbox works out anew each time, by a dozen questions about the type. For the types
that templates handle most its verdict depends on type and name alone, and is asked for once. No verdict is made here.
"""

from __future__ import annotations

from typing import Any

from jinja2.runtime import LoopContext
from jinja2.sandbox import SandboxedEnvironment
from jinja2.utils import Namespace

_ATTRIBUTES = frozenset(dir(dict))
_PLAIN = {str, int, float, bool, list, tuple, dict, LoopContext}
_MOST = 10_000
"""Verdicts remembered at once. Templates name attributes, so there are a few dozen; a request might bring more."""


def hasten(environment: SandboxedEnvironment) -> None:
    """Give `environment` the two short ways. What templates see stays the same."""
    ask, undefined = type(environment).getattr.__get__(environment), environment.undefined
    judge = type(environment).is_safe_attribute.__get__(environment)
    verdicts: dict[tuple[type, str], bool] = {}

    def look_up(value: Any, name: str) -> Any:
        if type(value) is not dict or name in _ATTRIBUTES:
            return ask(value, name)
        try:
            return value[name]
        except KeyError:
            return undefined(obj=value, name=name)

    def is_safe(value: Any, name: str, attribute: Any) -> bool:
        kind = type(value)
        verdict = verdicts.get((kind, name))
        if verdict is None:
            verdict = judge(value, name, attribute)
            if kind in _PLAIN or issubclass(kind, Namespace):
                if len(verdicts) >= _MOST:
                    verdicts.clear()
                verdicts[kind, name] = verdict
        return verdict

    environment.getattr = look_up
    environment.is_safe_attribute = is_safe
