"""Command `sandbox-record`: references of a checkpoint whose tokenizer is the vendor's own Python code.

Elsewhere such a checkpoint is refused, because loading it runs code of a stranger. Here the class its
tokenizer_config.json names is loaded inside the sandbox, and the rows are those `record`
write. There is one process: such tokenizers are few, and what counts is that they are confined.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bellwether.corpora.store import count_cases, stream_cases
from bellwether.layout import inputs_folder, reference_table
from bellwether.materials.pins import verify
from bellwether.oracles import render, rows, tokens
from bellwether.oracles.refusals import Refusal
from bellwether.oracles.vendor.tokenizer import SandboxedTokenizer, TokenizerRefused, open_tokenizer
from bellwether.params import Params, read_manifest, read_params
from bellwether.progress import Progress
from bellwether.tables import REFERENCE, TableWriter
from bellwether.whole import write_whole

KINDS = {"render": ("render",), "tokens": ("tokenize", "detokenize")}
"""Folder of a reference table → kinds of the cases it answers."""


def main(root: Path, slug: str) -> int:
    """Record the render and token references of one checkpoint through its own code; return the number of rows.

    Raises:
        OracleError: its tokenizer is no code of its own, cannot be confined or loaded, or gave no evidence for a case.
        PinMismatch, InputUnavailable, VersionMismatch, TableError, CorpusError: what it reads is not what is pinned.
    """
    params, manifest = read_params(root), read_manifest(root, slug)
    folder = inputs_folder(root, slug)
    verify(manifest, folder)
    with open_tokenizer(manifest, params, folder) as tokenizer:
        return sum(_record(root, params, tokenizer, recorded) for recorded in KINDS)


def answer(tokenizer: SandboxedTokenizer, case: dict[str, Any]) -> list[rows.Row]:
    """Return the reference rows of one case. Raises OracleError when no evidence came of it."""
    if case["kind"] == "render":
        return [_by_class(row) for row in render.prompts_of(tokenizer, case)]
    try:
        return tokens.answer(tokenizer, [case])
    except TokenizerRefused as error:
        head = {"checkpoint": tokenizer.manifest.slug, "case_id": case["case_id"], "kind": case["kind"]}
        return [{**head, "source": "hf-tokenizer", **rows.refused(Refusal("tokenizer-error", str(error)))}]


def _by_class(row: rows.Row) -> rows.Row:
    return {**row, "encoder": "class"} if row["outcome"] == "result" else row


def _record(root: Path, params: Params, tokenizer: SandboxedTokenizer, recorded: str) -> int:
    kinds = KINDS[recorded]
    progress = Progress(f"{tokenizer.manifest.slug} {'+'.join(kinds)}", count_cases(root, params.corpora, kinds))
    path = reference_table(root, tokenizer.manifest.slug, recorded)
    with TableWriter(path, REFERENCE) as table:
        for batch in stream_cases(root, params.corpora, kinds):
            table.write_rows(row for case in batch for row in answer(tokenizer, case))
            progress.advance(len(batch))
        text = json.dumps(tokenizer.provenance, indent=2, ensure_ascii=False) + "\n"
        write_whole(path.with_name("provenance.json"), text)
    progress.finish()
    return table.rows
