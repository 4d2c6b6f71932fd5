"""The derived corpus of tool histories: what a server sends on the turn after the model's calls.

BFCL's requests end at the first user turn, so no call and no result ever stands in their prompts, while most requests
of an agent are full of both. A case here goes on from a BFCL answer: its calls, one result per call, and in one set an
answer and a further question. Results and questions are MGSM's, so scripts mix as they do in use. Ids of calls have
nine letters and digits, the form no template refuses.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

from bellwether.case import Case, Origin, json_text
from bellwether.corpora import mgsm
from bellwether.corpora.shapes import calls
from bellwether.corpora.sources import Derived, Fetch, Items, read_derived
from bellwether.errors import CorpusError

DATASET = "histories"
SIZE = 1000
"""Cases of a set."""
RESULTS, FURTHER = "histories-results", "histories-further-question"
WRITTEN = ("tool call ids", "tool results")


def corpus(folder: Path, fetch: Fetch) -> Items:
    """Yield the corpus: the prompts after the results, then those after a further question. Nothing in it repeats.

    The i-th cases of both sets go on from the same calls.

    Raises:
        CorpusError: a part gives too little to build from. Otherwise as the importers of the parts.
    """
    derived = read_derived(folder)
    origin = Origin(DATASET, "derived", f"corpus/{folder.name}/derived.toml", "", derived.license)
    asked = list(islice(questions(derived, fetch), SIZE * 2))
    called = list(islice(calls(derived, fetch), SIZE))
    if len(asked) < 2 or not called:
        raise CorpusError("histories: the parts give no case to build from", next_step="Import them and look.")
    return chain(
        (after_results(index, case, asked, origin) for index, case in enumerate(called)),
        (after_further_question(index, case, asked, origin) for index, case in enumerate(called)),
    )


def questions(derived: Derived, fetch: Fetch) -> Iterator[Case]:
    """Yield MGSM's requests, one of each language in turn."""
    source = derived.parts["mgsm"]
    languages = [language for language in mgsm.LANGUAGES if f"mgsm/mgsm_{language}.tsv" in source.files]
    columns = [
        [case for case in mgsm.cases(source, fetch, language) if case.kind == "render"]
        for language in languages
        if language != mgsm.ENGLISH
    ]
    return chain.from_iterable(zip(*columns, strict=False))


def after_results(index: int, called: Case, asked: list[Case], origin: Origin) -> Case:
    """Return the request that has the calls of `called` and their results."""
    messages, used = _history(index, called, asked)
    return _case(RESULTS, index, called, messages, used, origin, WRITTEN)


def after_further_question(index: int, called: Case, asked: list[Case], origin: Origin) -> Case:
    """Return the request that goes on with an answer and a question, in whatever languages come next."""
    messages, used = _history(index, called, asked)
    answer, question = asked[(index + 1) % len(asked)], asked[(index + 2) % len(asked)]
    messages += [{"role": "assistant", "content": _text(answer)}, {"role": "user", "content": _text(question)}]
    return _case(FURTHER, index, called, messages, [*used, answer, question], origin, (*WRITTEN, "assistant answer"))


def _history(index: int, called: Case, asked: list[Case]) -> tuple[list[dict[str, Any]], list[Case]]:
    """Return the messages up to the last result, and the questions the results hold."""
    made = json.loads(called.message)["tool_calls"]
    numbered = [{"id": f"call{number:05d}", **call} for number, call in enumerate(made)]
    used = [asked[(index + number) % len(asked)] for number in range(len(numbered))]
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": json.dumps({"text": _text(case)}, ensure_ascii=False)}
        for call, case in zip(numbered, used, strict=True)
    ]
    assistant = {"role": "assistant", "content": "", "tool_calls": numbered}
    return [*json.loads(called.request)["messages"], assistant, *results], used


def _case(
    set_name: str,
    index: int,
    called: Case,
    messages: list[dict[str, Any]],
    used: list[Case],
    origin: Origin,
    written: tuple[str, ...],
) -> Case:
    request = {**json.loads(called.request), "messages": messages}
    parts = ((called.origin, called.row), *dict.fromkeys((case.origin, case.row) for case in used))
    return Case(
        "render",
        set_name,
        f"{set_name}-{index}",
        origin,
        str(index),
        (*called.written, *written),
        request=json_text(request),
        parts=parts,
    )


def _text(case: Case) -> str:
    return json.loads(case.request)["messages"][0]["content"]
