"""How values of a verification are put into words: one spelling of a finding, a place and a command in all outputs.

What a gateway or a model wrote may hold any character. `visible` is applied before it reaches a terminal, a log or XML.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

LONGEST = 400
"""Characters of a gateway's own words that are shown."""

UNSEEN = re.compile(
    r"[^\S ]|[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufffe\uffff\ud800-\udfff]"
)
"""White space other than the space, controls, marks of direction, and what XML forbids."""

SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def visible(text: str) -> str:
    r"""Return `text` with characters one cannot see, or that do something to a terminal, spelled as in JSON: `\n`,
    `\u001b`. Backslashes stay as they are: this is for reading, not for reading back."""
    return UNSEEN.sub(lambda match: SHORT.get(match[0]) or f"\\u{ord(match[0]):04x}", text)


def cut(text: str, longest: int = LONGEST) -> str:
    """Return `text`, visible, at most `longest` characters of it; how many are left out is said."""
    shown = visible(text[:longest])
    return shown if len(text) <= longest else f"{shown}… ({len(text) - longest:,} more characters)"


def rule(verdict: str, layer: str | None, what: str | None) -> str:
    """Return the name of a kind of finding: `layer/what`, or the verdict where nothing was compared or differs."""
    return f"{layer}/{what}" if layer and what else verdict


def played(mode: str, plan: str | None) -> str:
    """Return how a case was replayed: `full`, or `stream per_token`."""
    return f"{mode} {plan}" if plan else mode


def place(checkpoint: str, case_id: str) -> str:
    """Return a case with its checkpoint, `<checkpoint>/<kind>/<set>/<name>`."""
    return f"{checkpoint}/{case_id}"


def command(asked: Sequence[str], checkpoint: str, case_id: str, plan: str | None = None) -> str:
    """Return the command that shows one case again; `asked` are the words that name the gateway and the scope."""
    words = ["bellwether", "verify", *asked, "--slug", checkpoint, "--case", case_id]
    return shlex.join([*words, "--plan", plan] if plan else words)


def counted(number: int, one: str, more: str | None = None) -> str:
    """Return `1 case`, `2,345 cases`."""
    return f"{number:,} {one if number == 1 else more or one + 's'}"


def listed(names: Sequence[str], most: int = 4) -> str:
    """Return names with commas, the first `most` of them and the number of the others."""
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[:most])} and {len(names) - most} more"
