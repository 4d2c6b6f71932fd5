"""Bench part: questions a second that engines answer, as a recording asks them: JOBS checkpoints at a time.

`python -m bellwether.bench_witness [ENGINE …]`, as part of `make bench`. Outputs are read in one piece, for the number
of chunk plans is a matter of scope. Loading is not counted; only answers and refusals are.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from tabulate import tabulate

from bellwether.params import Params, Scope, read_manifest, read_params
from bellwether.progress import say
from bellwether.witness import JOBS, converse, start
from bellwether.witnesses.conversation import Conversation, Respondents
from bellwether.witnesses.engines import Engine, engine, options_of
from bellwether.witnesses.outcome import Failed
from bellwether.witnesses.questions import Questions

SLUG = "qwen3-8b"
ENGINES = ("vllm-rust-0.33.0", "vllm-0.33.0", "sglang-0.5.23")
EACH = 2000
"""Questions of a kind, for each job."""
WANTED = {"render": ("renders/s", 80), "parse": ("one-shot parses/s", 500)}


def compare(root: Path, engines: Iterable[str] = ENGINES) -> Iterator[list[str]]:
    """Yield a row of the bench's table per engine and kind."""
    root = root.resolve()
    params = replace(read_params(root), witness=Scope("drawn", 1.0))
    for name in engines:
        release = engine(name)
        say(f"questions to {name}")
        respondents = start(root, release)
        try:
            for kind, (unit, wanted) in WANTED.items():
                if kind in release.kinds:
                    rate = _rate(root, params, release, respondents, kind)
                    yield [f"{name}: {unit}", f"{rate:,.0f}", f"{wanted}", f"{rate / wanted:.1f}", f"≥ {wanted}"]
        finally:
            respondents.close()


def _rate(root: Path, params: Params, release: Engine, respondents: Respondents, kind: str) -> float:
    """Return answers a second of JOBS respondents together."""
    manifest = read_manifest(root, SLUG)
    asks = islice(Questions(root, params, manifest, (kind,), clock=True).stream(), EACH)
    questions = [_in_one_piece(ask.question) for ask in asks]
    options = options_of(release, manifest.engines.get(release.engine, {}), SLUG)

    def told(conversation: Conversation) -> int:
        return sum(not isinstance(outcome, Failed) for outcome in conversation.outcomes(questions))

    with ExitStack() as stack, ThreadPoolExecutor(JOBS) as pool:
        loaded = [stack.enter_context(converse(root, params, release, respondents, SLUG, options)) for _ in range(JOBS)]
        begin = time.monotonic()
        return sum(pool.map(told, loaded)) / (time.monotonic() - begin)


def _in_one_piece(question: dict[str, Any]) -> dict[str, Any]:
    return {name: {} if name == "plans" else value for name, value in question.items()}


if __name__ == "__main__":
    print(
        tabulate(
            compare(Path.cwd(), sys.argv[1:] or ENGINES),
            headers=["measure", "ours", "floor", "ratio", "wanted"],
            disable_numparse=True,
        )
    )
