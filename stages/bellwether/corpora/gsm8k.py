"""The GSM8K importer: school problems as requests, their worked solutions as outputs with and without reasoning.

GSM8K is the free source of long plain text with a natural seam: an answer is a solution, line by line, then one line
`#### ` with the final answer. The seam gives two outputs of each row: the answer whole as content, and the solution as
reasoning with the final answer as content.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

from bellwether.case import Case, Origin, json_text
from bellwether.corpora.repeats import drop_repeats
from bellwether.corpora.sources import Fetch, Items, Source, read_source
from bellwether.errors import CorpusError

DATASET = "gsm8k"
SPLITS = ("train", "test")
MARK = "#### "
"""What the last line of an answer begins with."""


def corpus(folder: Path, fetch: Fetch) -> Items:
    """Yield the corpus: the cases of both splits pinned in `folder`, repeats dropped. Raises as `fetch` and `cases`."""
    source = read_source(folder)
    return drop_repeats(case for split in SPLITS for case in cases(source, fetch, split))


def cases(source: Source, fetch: Fetch, split: str) -> Iterator[Case]:
    """Yield the cases of one split: all requests, then all answers split at the seam, then all answers whole.

    Sets are `gsm8k-<split>`, `gsm8k-<split>-reasoning-content` and `gsm8k-<split>-content`; a case is named after its
    set and the 0-based line of its row. Texts are never stripped or normalised.

    Raises:
        CorpusError: a line is not JSON with the two texts, or an answer has no seam. Names the file and the 1-based
            line.
    """
    path = f"grade_school_math/data/{split}.jsonl"
    data = fetch(source, path).read_bytes()
    origin = Origin(DATASET, source.source, path, hashlib.sha256(data).hexdigest(), source.license)
    rows = list(_rows(data, path))
    for index, (question, _, _, _) in enumerate(rows):
        yield _case("render", f"gsm8k-{split}", index, origin, question)
    for index, (question, _, solution, final) in enumerate(rows):
        message = {"reasoning_content": solution, "content": final}
        yield _case("parse", f"gsm8k-{split}-reasoning-content", index, origin, question, message)
    for index, (question, answer, _, _) in enumerate(rows):
        yield _case("parse", f"gsm8k-{split}-content", index, origin, question, {"content": answer})


def _case(
    kind: str, set_name: str, index: int, origin: Origin, question: str, message: dict[str, str] | None = None
) -> Case:
    request = json_text({"messages": [{"role": "user", "content": question}]})
    return Case(
        kind,
        set_name,
        f"{set_name}-{index}",
        origin,
        str(index),
        request=request,
        message=None if message is None else json_text(message),
    )


def _rows(data: bytes, path: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield question, answer, solution and final answer of each line. A line ends at LF only: a question holds
    U+2028."""
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line.decode())
            question, answer = row["question"], row["answer"]
            solution, separator, last = answer.rpartition("\n")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as fault:
            raise _error(path, number, "an object with the texts question and answer", repr(fault)) from fault
        final = last.removeprefix(MARK)
        if not isinstance(question, str) or not question:
            raise _error(path, number, "a question", repr(question))
        if not separator or final == last or not final or final != final.strip():
            raise _error(path, number, f"an answer that ends in a line {MARK!r} and the final answer", repr(last))
        yield question, answer, solution, final


def _error(path: str, number: int, expected: str, found: str) -> CorpusError:
    return CorpusError(
        f"{path}:{number}: expected {expected}, got {found[:120]}",
        next_step="Compare the pinned file with the rules in bellwether/corpora/gsm8k.py.",
    )
