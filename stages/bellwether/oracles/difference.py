"""Render only as far as it takes to see a difference: the date of a prompt stands at its beginning."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from jinja2 import Template


class Different(Exception):
    """Raised by a template that writes something else than the text it is compared with."""


@contextlib.contextmanager
def ends_at_difference(template: Template, text: str) -> Iterator[None]:
    """Make `template.render` raise Different, inside the body, as soon as what it writes is no beginning of `text`.

    Otherwise it returns what it always returns.
    """

    def render(*args: object, **variables: object) -> str:
        parts, written = [], 0
        for part in template.generate(*args, **variables):
            if not text.startswith(part, written):
                raise Different
            parts.append(part)
            written += len(part)
        return "".join(parts)

    template.render = render
    try:
        yield
    finally:
        del template.render
