"""Processor time of a recorder's way to prompts against the plain loop one would write by hand, in paired runs.

`python -m bellwether.bench_cpu [SLUG …]`, as part of `make bench`. Both ways answer the same questions, and their ids
must be equal. Each run is a process of its own, loading is not counted, and the two ways take turns: the time a
processor needs for the same work changes with what else the machine does.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

from tabulate import tabulate

from bellwether.corpora import traces
from bellwether.corpora.store import stream_cases
from bellwether.layout import inputs_folder
from bellwether.materials.routes import default_routes
from bellwether.materials.snapshot import lay_out
from bellwether.neighbours import with_neighbours
from bellwether.params import read_manifest, read_packages, read_params
from bellwether.progress import say
from bellwether.tables import BATCH_ROWS, REFERENCE, batches, record_batch
from bellwether.thrift import settle

SLUGS = ("qwen3-8b", "glm-4.6", "mistral-7b-instruct-v0.3", "gemma-4-e4b-it")
"""One of each kind: byte-level with and without a normalizer, Metaspace `first`, the slowest template."""
WANTED = {"traces": 7.0, "bfcl": 1.8}
WANTED_OF_SLOW_TEMPLATES = {("gemma-4-e4b-it", "traces"): 3.0}
"""Its template alone takes two thirds of the plain loop's time, and stays a template."""
SEED, CONVERSATIONS = 1, 20
EVERY = 3
"""Share of BFCL's cases that is asked."""
ROUNDS = 3

Requests = list[dict[str, Any]]


def main(slugs: Iterable[str] = SLUGS) -> None:
    """Measure the checkpoints named and print one table."""
    rows = [row for slug in slugs or SLUGS for row in compare(Path.cwd(), slug)]
    print(tabulate(rows, headers=["measure", "ours", "floor", "ratio", "wanted"], disable_numparse=True))


def compare(root: Path, slug: str) -> Iterator[list[str]]:
    """Yield two rows per corpus: ms of processor time a case, and whether the ids are equal."""
    with tempfile.TemporaryDirectory() as work:
        folder = inputs_folder(root, slug)
        if not folder.is_dir():
            folder = Path(work) / "inputs"
            lay_out(read_manifest(root, slug), default_routes(read_packages(root), say), folder, say)
        say(f"processor time, {slug}")
        asked = Path(work) / "asked.json"
        _child("ask", root, slug, folder, asked)
        pairs = [[_child(way, root, slug, folder, asked) for way in ("plain", "ours")] for _ in range(ROUNDS)]
    for corpus, wanted in WANTED.items():
        runs = [[way[corpus] for way in pair] for pair in pairs]
        floor, ours = (median(pair[way]["ms"] for pair in runs) for way in (0, 1))
        ratio = median(plain["ms"] / way["ms"] for plain, way in runs)
        least = WANTED_OF_SLOW_TEMPLATES.get((slug, corpus), wanted)
        yield [f"{slug}, {corpus}, processor ms a case", f"{ours:.2f}", f"{floor:.2f}", f"{ratio:.1f}", f"≥ {least:g}"]
        plain, own = (pair["digest"] for pair in runs[0])
        same = "equal" if len({way["digest"] for pair in runs for way in pair}) == 1 else "DIFFERENT"
        yield [f"{slug}, {corpus}, prompt ids", own[:12], plain[:12], same, "equal"]


def _child(what: str, *arguments: Path | str) -> Any:
    command = [sys.executable, "-m", "bellwether.bench_cpu", f"--{what}", *map(str, arguments)]
    environment = {**os.environ, "TRANSFORMERS_VERBOSITY": "error"}
    if what == "ours":
        environment["TOKENIZERS_PARALLELISM"] = "false"  # as in a recording process
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


# ── inside a process of its own ──────────────────────────────────────────────────────────────────────────────────────


def _ask(root: Path, slug: str, folder: Path, asked: Path) -> None:
    """Write the requests of both corpora as JSON texts, in the form in which this checkpoint's template takes them.

    Texts, as a recorder is given them: parsed requests kept alive would make the garbage collector walk over them.
    """
    from bellwether.oracles.normalisation import as_vllm
    from bellwether.oracles.prompts import TemplateError

    checkpoint = _load(root, slug, folder)
    raw = {
        "traces": [json.loads(case.request) for case in traces.cases(SEED, CONVERSATIONS)],
        "bfcl": [json.loads(case["request"]) for case in islice(_bfcl(root), 0, None, EVERY)],
    }

    def normalised(request: dict[str, Any]) -> dict[str, Any]:
        form = checkpoint.content_format(request.get("tools"))
        return {**request, "messages": as_vllm(request["messages"], form)}

    try:
        checkpoint.prompt(normalised(raw["traces"][10]))
        raw = {corpus: [normalised(request) for request in requests] for corpus, requests in raw.items()}
    except TemplateError:
        pass  # a template that takes arguments as text only
    texts = {
        corpus: [json.dumps(request, ensure_ascii=False) for request in requests] for corpus, requests in raw.items()
    }
    asked.write_text(json.dumps(texts), "utf-8")


def _bfcl(root: Path) -> Iterator[dict[str, Any]]:
    for batch in stream_cases(root, ("bfcl",), ("render",)):
        yield from batch


def _load(root: Path, slug: str, folder: Path) -> Any:
    from bellwether.oracles import checkpoint
    from bellwether.oracles.prompts import HUB_TEMPLATE

    manifest, params = read_manifest(root, slug), read_params(root)
    loaded = checkpoint.load(manifest, params, folder)
    authority = {**manifest.authority, "render": (HUB_TEMPLATE,)}  # a vendor's own encoder has no plain loop
    return replace(loaded, manifest=replace(manifest, authority=authority))


def _plain(root: Path, slug: str, folder: Path, asked: Path) -> dict[str, Any]:
    from transformers import AutoTokenizer

    from bellwether import oracles  # noqa: F401 - quiets transformers
    from bellwether.oracles.clock import fixed_clock
    from bellwether.oracles.content_format import detect
    from bellwether.oracles.normalisation import as_vllm

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)

    def ids(messages: list, tools: list | None) -> list[int] | None:
        try:
            tokenizer.apply_chat_template(messages, tools=tools, tokenize=False, add_generation_prompt=True)
            return tokenizer.apply_chat_template(
                messages, tools=tools, tokenize=True, add_generation_prompt=True, return_dict=False
            )
        except Exception:  # a refusal is an answer
            return None

    def answers(texts: list[str]) -> Iterator[list[list[int] | None]]:
        for text in texts:
            request = json.loads(text)
            messages, tools = request["messages"], request.get("tools")
            forms = [messages, as_vllm(messages, detect(tokenizer.get_chat_template(None, tools)))]
            yield [ids(form, tools) for form in (forms if forms[0] != forms[1] else forms[:1])]

    with fixed_clock(read_params(root).clock):
        return _timed(asked, answers)


def _ours(root: Path, slug: str, folder: Path, asked: Path) -> dict[str, Any]:
    from bellwether.oracles import render

    checkpoint = _load(root, slug, folder)
    checkpoint.encoders[0].encode(["a"])  # the proof is part of loading
    settle()

    def answers(texts: list[str]) -> Iterator[list[list[int] | None]]:
        cases = [{"case_id": f"render/x/{place}", "request": text} for place, text in enumerate(texts)]
        found: dict[str, list] = {case["case_id"]: [] for case in cases}
        for batch in with_neighbours(batches(cases, BATCH_ROWS)):
            rows = render.answer(checkpoint, batch)
            record_batch(rows, REFERENCE)
            for row in rows:
                if row.get("encoder") != "tokenizer.json":
                    found[row["case_id"]].append(row.get("prompt_ids"))
        yield from found.values()

    return _timed(asked, answers)


def _timed(asked: Path, answers: Any) -> dict[str, Any]:
    """Return, per corpus, ms of processor time a case and a digest of all answers, equal ones of a case taken once."""
    measured = {}
    for corpus, texts in json.loads(asked.read_text("utf-8")).items():
        begin = time.process_time()
        found = list(answers(texts))
        seconds = time.process_time() - begin
        digest = hashlib.sha256()
        for case in found:
            different = dict.fromkeys(b"refused" if ids is None else array("I", ids).tobytes() for ids in case)
            digest.update(b"\n".join(different) + b"\n\n")
        measured[corpus] = {"ms": seconds * 1000 / len(texts), "digest": digest.hexdigest()}
    return measured


if __name__ == "__main__":
    ways = {"--ask": _ask, "--plain": _plain, "--ours": _ours}
    if sys.argv[1:2] and sys.argv[1] in ways:
        what, root, slug, folder, asked = sys.argv[1:]
        print(json.dumps(ways[what](Path(root), slug, Path(folder), Path(asked))))
    else:
        main(sys.argv[1:])
