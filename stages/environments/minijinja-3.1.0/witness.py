"""MiniJinja as a witness of prompts: its rendered text of a checkpoint's own chat template.

The environment is the one a gateway in Rust gets when it asks for what chat templates need and leaves the rest as it
is: `trim_blocks`, `lstrip_blocks`, no escaping of the output, Python's methods on text and maps, `raise_exception`,
`strftime_now`. **`tojson` is the stock filter**: it writes `<`, `>`, `&` and `'` as `\\u003c`, `\\u003e`, `\\u0026`,
`\\u0027`, as is right in HTML and wrong in a prompt, and knows no `ensure_ascii`. Gateways that noticed replace it.

A gateway's values come from its JSON reader and are the engine's own. The Python binding would wrap Python's objects
instead, whose methods (`update`, `copy`, `items` where a key is meant) no gateway has. So a request is not handed over
as Python objects but written as assignments in front of the template.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

from minijinja import Environment, TemplateError
from serve import Refused, beside

chat_template = beside("chat_template")

CLOCK = "2026-01-15T12:00:00"
FUEL = 50_000_000
"""Instructions per render, some seconds' worth. Real prompts take less than a hundredth."""
REFUSES = "template-error"


class OutOfFuel(Exception):
    """Raised when a template does not end."""


class Unwritable(Exception):
    """Raised when a request has no form in the template language, such as nesting of 70 levels."""


class _Raised(Exception):
    """Raised by a template itself."""


def load(settings: dict) -> tuple[Callable[[dict], dict], dict]:
    """Return the answerer of a checkpoint, and how it is set up.

    Raises:
        TemplateError: the engine does not know the syntax of a template.
        ValueError: there is no template.
    """
    found = chat_template.templates(Path(settings["model"]))
    moment = datetime.fromisoformat(settings.get("clock", CLOCK))
    engine = environment(moment)
    for name, text in found.named.items():
        engine.add_template(name, text)

    def answer(question: dict) -> dict:
        if question["kind"] != "render":
            raise chat_template.NoMeasurement(f"a template engine has no answer to {question['kind']}")
        asked = chat_template.asked(question["request"])
        text = found.named[found.name_for(asked.tools)]
        return {"prompt_ids": None, "prompt_text": render(engine, text, variables(asked, found.tokens))}

    facts = {
        "minijinja": version("minijinja"),
        "environment": {"trim_blocks": True, "lstrip_blocks": True, "pycompat": True, "tojson": "stock"},
        "chat_templates": found.digests,
        "clock": moment.isoformat(),
    }
    return answer, facts


def environment(moment: datetime) -> Environment:
    """Return the engine as gateways set it up, at a fixed time."""

    def raise_exception(message: str) -> None:
        raise _Raised(message)

    return Environment(
        trim_blocks=True,
        lstrip_blocks=True,
        auto_escape_callback=lambda _: False,
        fuel=FUEL,
        globals={"raise_exception": raise_exception, "strftime_now": moment.strftime},
    )


def variables(asked: chat_template.Asked, tokens: dict[str, str]) -> dict:
    """Return what a template sees; a request's own kwargs win over special tokens."""
    fixed = {"messages": asked.messages, "tools": asked.tools, "add_generation_prompt": asked.add_generation_prompt}
    return {"documents": None, **tokens, **asked.kwargs, **fixed}


def render(engine: Environment, template: str, variables: dict) -> str:
    """Return the text of a template.

    Raises:
        Refused: the template or the engine refuses.
        OutOfFuel, Unwritable: there is no answer.
    """
    # one line, whose end trim_blocks removes: the template starts at the start of a line, as it would alone
    head = "".join(f"{{% set {name} = {literal(value)} %}}" for name, value in variables.items() if name.isidentifier())
    try:
        return engine.render_str(f"{head}\n{template}", "chat")
    except _Raised as error:
        raise Refused(REFUSES, error) from None
    except TemplateError as error:
        if error.kind == "OutOfFuel":
            raise OutOfFuel(f"more than {FUEL:,} instructions") from None
        what = f"{error.kind}: {error.detail}" if error.detail else error.kind
        if error.line == 1:
            raise Unwritable(what) from None
        raise Refused(REFUSES, what) from None


def literal(value: object) -> str:
    """Return a JSON value in the template language, where null is `none`. Raises ValueError for what JSON has not."""
    match value:
        case None:
            return "none"
        case dict():
            return "{" + ", ".join(f"{literal(key)}: {literal(item)}" for key, item in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(literal, value)) + "]"
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
