"""The derived corpus of message shapes: every combination of reasoning, content and calls, a thousand times each.

BFCL's outputs hold calls alone, GSM8K's reasoning and content alone; what a parser loses is mostly lost where parts
meet. A shape takes the calls of a BFCL case and the text of a GSM8K solution. Both come from the importers' builders,
before the repeat rule, so this corpus depends on pins and never on what was imported.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import chain, cycle, islice, zip_longest
from pathlib import Path

from bellwether.case import Case, Origin, json_text
from bellwether.corpora import bfcl, gsm8k
from bellwether.corpora.sources import Derived, Fetch, Items, read_derived
from bellwether.errors import CorpusError

DATASET = "shapes"
SIZE = 1000
"""Cases of a shape."""
CATEGORIES = (
    "simple_python",
    "multiple",
    "parallel",
    "parallel_multiple",
    "live_simple",
    "live_multiple",
    "live_parallel",
    "live_parallel_multiple",
)
"""BFCL categories with calls whose arguments are JSON of every type."""
SHAPES = (
    "reasoning",
    "content",
    "reasoning-content",
    "reasoning-calls",
    "content-calls",
    "reasoning-content-calls",
)
"""Parts of a message in the order a model writes them; calls alone are BFCL's own."""


def corpus(folder: Path, fetch: Fetch) -> Items:
    """Yield the corpus, shape by shape in the order of SHAPES; nothing in it repeats.

    The i-th case of every shape has one request, calls and text. Tools stay in requests whose message calls none: a
    model need not call.

    Raises:
        CorpusError: a part gives nothing to build from. Otherwise as the importers of the parts.
    """
    derived = read_derived(folder)
    origin = Origin(DATASET, "derived", f"corpus/{folder.name}/derived.toml", "", derived.license)
    called = list(islice(calls(derived, fetch), SIZE))
    solved = [case for case in texts(derived, fetch) if all(split(case))]
    pairs = list(islice(paired(called, solved), SIZE))
    return (shaped(shape, index, origin, *pair) for shape in SHAPES for index, pair in enumerate(pairs))


def calls(derived: Derived, fetch: Fetch) -> Iterator[Case]:
    """Yield BFCL's parse cases of CATEGORIES, repeats included, one of each category in turn."""
    source = derived.parts["bfcl"]
    archive = fetch(source, next(iter(source.files)))
    columns = [
        [item for item in bfcl.cases(archive, source.source, [category]) if isinstance(item, Case)]
        for category in CATEGORIES
    ]
    rows = zip_longest(*([case for case in column if case.kind == "parse"] for column in columns))
    return (case for case in chain.from_iterable(rows) if case is not None)


def texts(derived: Derived, fetch: Fetch) -> Iterator[Case]:
    """Yield GSM8K's test rows as parse cases with their solution as reasoning, in the order of the file."""
    cases = gsm8k.cases(derived.parts["gsm8k"], fetch, "test")
    return (case for case in cases if case.set == "gsm8k-test-reasoning-content")


def split(case: Case) -> tuple[str, str]:
    """Return a solution without its last line, and the last line, which states the result. Either may be blank."""
    before, _, last = json.loads(case.message)["reasoning_content"].rpartition("\n")
    return (before, last) if before.strip() and last.strip() else ("", "")


def paired(one: list[Case], other: list[Case]) -> Iterable[tuple[Case, Case]]:
    """Pair the i-th with the i-th; the shorter list begins again.

    Raises:
        CorpusError: one of them is empty.
    """
    if not one or not other:
        raise CorpusError(
            "a part of the derived corpus gives no case to build from", next_step="Import its parts and look at them."
        )
    longest = max(len(one), len(other))
    return islice(zip(cycle(one), cycle(other), strict=False), longest)


def shaped(shape: str, index: int, origin: Origin, called: Case, solved: Case) -> Case:
    """Return the case of one shape: the request of `called`, and a message of the parts the shape names."""
    parts = shape.split("-")
    reasoning, content = split(solved)
    message: dict[str, object] = {"reasoning_content": reasoning} if "reasoning" in parts else {}
    message["content"] = content if "content" in parts else ""
    if "calls" in parts:
        message["tool_calls"] = json.loads(called.message)["tool_calls"]
    return Case(
        "parse",
        f"shapes-{shape}",
        f"shapes-{shape}-{index}",
        origin,
        str(index),
        called.written,
        request=called.request,
        message=json_text(message),
        parts=((called.origin, called.row), (solved.origin, solved.row)),
    )
