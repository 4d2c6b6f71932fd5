"""Command `unpack`: references as the plain JSON Lines tree that existing consumers read.

    <folder>/<slug>/manifest.toml         pins
    <folder>/<slug>/sets.toml             per set: lines, bytes, sha256, refusals
    <folder>/<slug>/<kind>/<set>.jsonl    one line per case with a result, ordered by id

Lines are those of the source that decides: prompts of messages as sent, outputs of the prompt vLLM makes of them. Cases
without a result have no line: the form has no place for one. Where two encoders differ, the tree shows what
tokenizer.json itself gives, because that is the file its consumers load.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import Any

from bellwether.case import KINDS, json_text
from bellwether.chunk_plans import chunk_plans
from bellwether.errors import BellwetherError, ParamsError, TableError
from bellwether.layout import RECORDED, reference_table
from bellwether.params import Manifest, read_manifest, read_params
from bellwether.progress import say
from bellwether.reports.database import Database, connect
from bellwether.whole import whole_folder

FETCH = 256

QUERY = """
    select
        cases.kind, cases.set, cases.name, requests.request, cases.message, cases.text,
        reference.source, reference.prompt_text, reference.prompt_ids,
        reference.output_text, reference.output_ids, reference.piece_ends,
        reference.finish_reason, reference.stop_id, reference.stop_found_by,
    from deciding as reference
    inner join cases on reference.case_id = cases.case_id
    left join requests on cases.request_sha256 = requests.request_sha256
    where reference.checkpoint = $slug and cases.kind = $kind and reference.outcome = 'result'
        and (reference.encoder is distinct from 'class' or not exists (
            select 1 from deciding as other
            where other.checkpoint = reference.checkpoint and other.case_id = reference.case_id
                and other.encoder = 'tokenizer.json'
        ))
    order by cases.set, cases.name
"""
REFUSED = """
    select cases.set, count(distinct reference.case_id)
    from deciding as reference
    inner join cases on reference.case_id = cases.case_id
    where reference.checkpoint = $slug and cases.kind = $kind and reference.outcome = 'rejected'
        and reference.encoder is distinct from 'class'
    group by cases.set
"""


def main(root: Path, folder: Path, slugs: Sequence[str] = ()) -> dict[str, int]:
    """Write the tree of `slugs`, or of every checkpoint in scope, below `folder`; return slug → lines.

    A checkpoint's folder appears whole or not at all, and replaces an earlier one.

    Raises:
        ParamsError: a slug is not in the scope.
        TableError: a table of a slug is missing or torn.
        BellwetherError: a folder is in the way that is no fixture tree.
    """
    scope = read_params(root).checkpoints
    if unknown := [slug for slug in slugs if slug not in scope]:
        raise ParamsError(f"{unknown[0]!r} is not in params.yaml", next_step=f"In scope: {', '.join(scope)}.")
    database = connect(root)
    return {slug: _unpack(root, database, slug, folder / slug) for slug in slugs or scope}


def _unpack(root: Path, database: Database, slug: str, folder: Path) -> int:
    needed = {reference_table(root, slug, recorded).relative_to(root).as_posix() for recorded in RECORDED}
    if missing := [path for path in database.missing if path in needed or path.startswith("corpus/")]:
        raise TableError(f"{missing[0]} is not recorded", next_step="Run `make repro`, or `dvc pull`.")
    if folder.exists() and not (folder / "sets.toml").is_file():
        raise BellwetherError(f"{folder} is no fixture tree", next_step="Choose another folder, or remove it.")
    manifest = read_manifest(root, slug)
    say(f"writing {folder}")
    lines, tables = 0, []
    with whole_folder(folder) as work:
        for kind in KINDS:
            provenance = _provenance(database, slug, kind)
            refused = dict(database.connection.execute(REFUSED, {"slug": slug, "kind": kind}).fetchall())
            rows = _rows(database, slug, kind)
            for name, members in groupby(rows, key=lambda row: row["set"]):
                count, size, sha256 = _write_set(work / kind / f"{name}.jsonl", manifest, members, provenance)
                tables.append(_set_table(f"{kind}.{name}", count, refused.get(name, 0), size, sha256, kind, provenance))
                lines += count
        (work / "sets.toml").write_text("\n".join(tables), "utf-8")
        (work / "manifest.toml").write_text(_manifest(manifest), "utf-8")
    return lines


def _rows(database: Database, slug: str, kind: str) -> Iterator[dict[str, Any]]:
    # a cursor of its own: the next query on the connection would end this result
    result = database.connection.cursor().execute(QUERY, {"slug": slug, "kind": kind})
    names = [column[0] for column in result.description]
    while batch := result.fetchmany(FETCH):
        yield from (dict(zip(names, row, strict=True)) for row in batch)


def _write_set(
    path: Path, manifest: Manifest, rows: Iterator[dict[str, Any]], provenance: dict[str, Any]
) -> tuple[int, int, str]:
    """Write one set and return its number of lines, its bytes, and their sha256."""
    path.parent.mkdir(parents=True, exist_ok=True)
    count = size = 0
    digest = hashlib.sha256()
    shown = _shown_provenance(provenance)
    with path.open("wb") as file:
        for row in rows:
            data = (json_text(line(manifest, row, shown)) + "\n").encode()
            digest.update(data)
            count, size = count + 1, size + len(data)
            file.write(data)
    return count, size, digest.hexdigest()


def line(manifest: Manifest, row: dict[str, Any], provenance: dict[str, Any]) -> dict[str, Any]:
    """Return one line of the tree as an object with its keys in the order of the form."""
    kind = row["kind"]
    head = {"id": f"{manifest.slug}/{kind}/{row['name']}", "kind": kind, "model": manifest.model}
    request = json.loads(row["request"]) if row["request"] is not None else None
    reference: dict[str, Any] = {"provenance": provenance, "source": row["source"]}
    match kind:
        case "render":
            reference |= {"input_ids": row["prompt_ids"], "text": row["prompt_text"]}
            return {**head, "request": request, "reference": _sorted(reference)}
        case "tokenize":
            reference |= {"input_ids": row["output_ids"], "text": row["text"]}
            return {**head, "reference": _sorted(reference)}
        case "detokenize":
            reference |= {"text": row["output_text"]}
            return {**head, "reference": _sorted(reference), **_output(row)}
    reference |= {
        "end_of_turn": {"found_by": row["stop_found_by"], "stop_id": row["stop_id"]},
        "finish_reason": row["finish_reason"],
        "message": {"role": "assistant", **json.loads(row["message"])},
        "text": row["output_text"],
    }
    return {
        **head,
        "request": request,
        "reference": _sorted(reference),
        "chunk_plans": _plans(len(row["output_ids"])),
        "malformed": False,
        **_output(row),
        "tools": request.get("tools") or [],
    }


def _output(row: dict[str, Any]) -> dict[str, Any]:
    text, pieces, begin = row["output_text"], [], 0
    for end in row["piece_ends"]:
        pieces.append(text[begin:end])
        begin = end
    return {"output_ids": row["output_ids"], "output_pieces": pieces}


def _plans(length: int) -> dict[str, list[int] | None]:
    """Return the chunk plans in the written form: `whole` and `per_token` need no lengths."""
    return {name: None if name in ("whole", "per_token") else plan for name, plan in chunk_plans(length).items()}


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def _provenance(database: Database, slug: str, kind: str) -> dict[str, Any]:
    recorded = kind if kind in ("render", "parse") else "tokens"
    row = database.connection.execute(
        "select provenance from provenance where checkpoint = ? and recorded = ?", [slug, recorded]
    ).fetchone()
    if row is None:
        raise TableError(f"fixtures/{slug}/{recorded}/provenance.json is missing", next_step="Run `make repro`.")
    return json.loads(row[0])


def _shown_provenance(provenance: dict[str, Any]) -> dict[str, Any]:
    names = ("chat_template_sha256", "jinja2", "oracle", "revision", "tokenizer_class", "tokenizers", "transformers")
    of_class_only = provenance["encoders"] == ["class"]
    encoder = f"transformers:{provenance['tokenizer_class']}" if of_class_only else "tokenizers:tokenizer.json"
    shown = {"bellwether": version("bellwether-fixtures"), "encoder": encoder}
    shown |= {name: provenance[name] for name in names if provenance[name] is not None}
    # code of a vendor in the place of a template: which files, in what environment
    code = provenance["vendor_code"].get(provenance["oracle"], {})
    return shown | {name: code[name] for name in ("files", "sandbox", "versions") if name in code}


def _set_table(
    name: str, count: int, refused: int, size: int, sha256: str, kind: str, provenance: dict[str, Any]
) -> str:
    lines = [f"[{name}]", 'form = "plain"', f"cases = {count}", f"rejected = {refused}"]
    lines += [f"plain_bytes = {size}", f'plain_sha256 = "{sha256}"']
    if kind == "parse" and provenance["generate_stop_ids"] != provenance["stop_ids"]:
        lines += [f"generate_stop_ids = {provenance['generate_stop_ids']}"]
        lines += [f'generate_stop_ids_from = "{provenance["generate_stop_ids_from"]}"']
    return "\n".join(lines) + "\n"


def _manifest(manifest: Manifest) -> str:
    # a JSON string is a TOML string
    pins = [f'{json.dumps(name)} = "{sha256}"' for name, sha256 in sorted(manifest.inputs.items())]
    head = [f"model = {json.dumps(manifest.model)}", f'revision = "{manifest.revision}"', f"tier = {manifest.tier}"]
    return "\n".join([*head, "", "[inputs]", *pins]) + "\n"
