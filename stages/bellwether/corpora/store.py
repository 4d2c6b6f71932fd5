"""Write an imported corpus as tables, and read cases back for a recorder, both as streams."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import duckdb

from bellwether.case import Case, LeftOut, Origin, Repeat, sha256_text
from bellwether.errors import CorpusError, TableError
from bellwether.layout import corpus_folder
from bellwether.tables import BATCH_ROWS, CASES, PER_CORPUS, REQUESTS, TableWriter, batches, check

READ_MEMORY = "400MB"
"""What DuckDB may take to put cases and requests together; beyond it, it spills to disk."""


def write_corpus(items: Iterable[Case | Repeat | LeftOut], corpus: str, folder: Path) -> dict[str, int]:
    """Write the five tables of a corpus into `folder` and return table name → rows.

    Requests are stored once, by content. Order is the importer's.
    """
    origins: dict[str, Origin] = {}
    seen: set[bytes] = set()
    index = count()
    with ExitStack() as stack:
        writers = {
            name: stack.enter_context(TableWriter(folder / f"{name}.parquet", schema))
            for name, schema in PER_CORPUS.items()
        }
        for batch in batches(items, BATCH_ROWS):
            rows: dict[str, list[dict[str, Any]]] = {name: [] for name in PER_CORPUS}
            for item in batch:
                match item:
                    case Case():
                        request = bytes.fromhex(sha256_text(item.request)) if item.request is not None else None
                        if request is not None and request not in seen:
                            seen.add(request)
                            rows["requests"].append({"request_sha256": request, "request": item.request})
                        for origin in (item.origin, *(origin for origin, _ in item.parts)):
                            origins.setdefault(origin.origin_id, origin)
                        rows["cases"].append(_case_row(item, corpus, next(index), request))
                    case Repeat():
                        rows["repeats"].append(
                            {"corpus": corpus, "kind": item.kind, "set": item.set, "name": item.name}
                            | {"repeats": item.repeats}
                        )
                    case LeftOut():
                        rows["left_out"].append(
                            {"corpus": corpus, "kind": item.kind, "set": item.set, "row": item.row}
                            | {"reason": item.reason}
                        )
            for name, new in rows.items():
                writers[name].write_rows(new)
        writers["origins"].write_rows(_origin_row(origin) for origin in origins.values())
    return {name: writer.rows for name, writer in writers.items()}


def _case_row(case: Case, corpus: str, index: int, request: bytes | None) -> dict[str, Any]:
    return {
        "case_id": case.case_id,
        "corpus": corpus,
        "kind": case.kind,
        "set": case.set,
        "name": case.name,
        "case_index": index,
        "request_sha256": request,
        "message": case.message,
        "text": case.text,
        "ids": case.ids,
        "requires": bytes.fromhex(case.requires) if case.requires else None,
        "malformed": case.malformed,
        "notes": case.notes,
        "origin_id": case.origin.origin_id,
        "origin_row": case.row,
        "written": list(case.written),
        "parts": [{"origin_id": origin.origin_id, "row": row} for origin, row in case.parts],
    }


def _origin_row(origin: Origin) -> dict[str, Any]:
    return {
        "origin_id": origin.origin_id,
        "dataset": origin.dataset,
        "source": origin.source,
        "file": origin.file,
        "sha256": origin.sha256,
        "license": origin.license,
    }


def count_cases(root: Path, corpora: Sequence[str], kinds: Sequence[str]) -> int:
    """Return how many cases of `kinds` the corpora hold.

    Raises:
        TableError: a corpus is not imported, or torn.
        CorpusError: two cases of one kind have one name, in whichever corpora.
    """
    with connect(root, corpora) as connection:
        twice = connection.execute(
            "select kind, name, string_agg(case_id || ' of ' || corpus, ' and ' order by corpus, case_index) from cases"
            " group by kind, name having count(*) > 1 order by all limit 1"
        ).fetchone()
        if twice:
            raise CorpusError(
                f"the {twice[0]} name {twice[1]!r} is used twice: {twice[2]}",
                next_step="Rename one of them: a name is unique per kind over all corpora.",
            )
        row = connection.execute("select count(*) from cases where kind in (select unnest(?))", [list(kinds)])
        return row.fetchone()[0]


def stream_cases(root: Path, corpora: Sequence[str], kinds: Sequence[str]) -> Iterator[list[dict[str, Any]]]:
    """Yield batches of BATCH_ROWS cases with their request text, in the order of `corpora`, then of the importer.

    Raises:
        TableError: a corpus is not imported, or torn.
    """
    query = """
        select case_id, kind, request, message, text, ids, requires, malformed
        from cases left join requests using (corpus, request_sha256)
        where kind in (select unnest(?))
        order by list_position(?, corpus), case_index
    """
    with connect(root, corpora) as connection:
        result = connection.execute(query, [list(kinds), list(corpora)])
        names = [column[0] for column in result.description]
        while rows := result.fetchmany(BATCH_ROWS):
            yield [dict(zip(names, row, strict=True)) for row in rows]


@contextmanager
def connect(root: Path, corpora: Sequence[str]) -> Iterator[duckdb.DuckDBPyConnection]:
    """Give a connection with the views `cases` and `requests` over the corpora's tables, and bounded memory.

    Raises:
        TableError: a corpus is not imported, or torn, or a query in the body fails.
    """
    with duckdb.connect(config={"memory_limit": READ_MEMORY, "threads": "1"}) as connection:
        try:
            _add_views(connection, root, corpora)
            yield connection
        except duckdb.InterruptException:
            raise KeyboardInterrupt from None
        except duckdb.Error as error:
            raise TableError(
                f"the tables of {', '.join(corpora)} cannot be read: {error}",
                next_step="Import the corpus it names again.",
            ) from None


def _add_views(connection: duckdb.DuckDBPyConnection, root: Path, corpora: Sequence[str]) -> None:
    for table, schema in (("cases", CASES), ("requests", REQUESTS)):
        parts = []
        for corpus in corpora:
            path = corpus_folder(root, corpus) / f"{table}.parquet"
            check(path, schema)
            named = "" if "corpus" in schema.names else f", {sql_text(corpus)} as corpus"
            parts.append(f"select *{named} from read_parquet({sql_path(path)})")
        connection.execute(f"create view {table} as {' union all '.join(parts)}")


def sql_path(path: Path) -> str:
    """Return `path` as a SQL string literal that names this one file, whatever characters it has."""
    return sql_text(glob.escape(str(path)))


def sql_text(text: str) -> str:
    """Return `text` as a SQL string literal; views take no parameters."""
    return "'" + text.replace("'", "''") + "'"
