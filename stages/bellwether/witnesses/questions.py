"""The questions to one engine about one checkpoint: from cases and from the references that decide, as a stream.

| kind | asked with |
|---|---|
| render | the request |
| tokenize | the text |
| parse | the ids of the output and of its prompt, by the deciding source; malformed outputs too |
| detokenize | the ids of the reference |
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import duckdb

from bellwether.corpora.store import connect, sql_path, sql_text
from bellwether.layout import reference_table
from bellwether.params import Manifest, Params
from bellwether.tables import BATCH_ROWS, REFERENCE, check
from bellwether.witnesses.scope import DIGITS, HANDMADE, bound, plans

RECORDED = {"render": "render", "parse": "parse", "tokenize": "tokens", "detokenize": "tokens"}
"""Kind → folder of its references."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One question, and what its row needs beside the answer."""

    case_id: str
    kind: str
    question: dict[str, Any]
    output_sha256: bytes | None = None
    """Of the ids the engine is given."""


@dataclass(frozen=True, slots=True)
class Questions:
    """What one engine is asked about one checkpoint."""

    root: Path
    params: Params
    manifest: Manifest
    kinds: tuple[str, ...]
    clock: bool
    """Whether the engine's templates see the clock of params.yaml. If not, it is not asked what depends on it: its
    rows would be others tomorrow."""

    def count(self) -> int:
        """Return how many rows of cases and references are asked about.

        Raises:
            TableError: a table is missing, torn or of another schema version.
        """
        with self._connect() as connection:
            return sum(
                connection.execute(f"select count(*) from ({self._query(kind)})").fetchone()[0] for kind in self.kinds
            )

    def not_asked(self) -> dict[str, int]:
        """Return reason → number of cases of these kinds that are not asked."""
        with self._connect() as connection:
            return {
                "out of share": self._number(connection, f"not ({self._in_share()})"),
                "reads the clock": self._number(connection, f"{self._in_share()} and not ({self._keeps()})"),
            }

    def _number(self, connection: duckdb.DuckDBPyConnection, condition: str) -> int:
        kinds = ", ".join(map(sql_text, self.kinds))
        return connection.execute(f"select count(*) from cases where kind in ({kinds}) and {condition}").fetchone()[0]

    def stream(self) -> Iterator[Ask]:
        """Yield the questions, kind after kind, each in case order. Memory is bounded; DuckDB spills to disk.

        Raises:
            TableError: a table is missing, torn or of another schema version.
        """
        with self._connect() as connection:
            for kind in self.kinds:
                order = "output_sha256" if kind in ("parse", "detokenize") else "case_id"
                result = connection.execute(
                    f"{self._query(kind)} order by list_position(?, corpus), case_index, {order}",
                    [list(self.params.corpora)],
                )
                for _, rows in groupby(_rows(result), key=lambda row: row["case_id"]):
                    yield from self._of_case(kind, rows)

    def _of_case(self, kind: str, rows: Iterator[dict[str, Any]]) -> Iterator[Ask]:
        """Yield the questions of one case: one per output, where encoders differ in it."""
        seen: set[bytes | None] = set()
        for row in rows:
            sha256 = row.get("output_sha256")
            if sha256 not in seen:
                seen.add(sha256)
                yield Ask(row["case_id"], kind, {"kind": kind, **self._question(kind, row)}, sha256)

    def _question(self, kind: str, row: dict[str, Any]) -> dict[str, Any]:
        match kind:
            case "render":
                return {"request": row["request"]}
            case "tokenize":
                return {"text": row["text"]}
            case "detokenize":
                return {"ids": row["output_ids"]}
        return {
            "request": row["request"],
            "prompt_ids": row["prompt_ids"] or [],
            "ids": row["output_ids"],
            "stop_id": row["stop_id"],
            "plans": plans(row["case_id"], row["corpus"], len(row["output_ids"]), self.params.witness),
        }

    # ── SQL ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _query(self, kind: str) -> str:
        """Return the rows a kind is asked with, without an order."""
        asked = f"cases.kind = {sql_text(kind)} and {self._in_share()} and {self._keeps()}"
        match kind:
            case "render":
                return (
                    "select case_id, corpus, case_index, request"
                    " from cases join requests using (corpus, request_sha256)"
                    f" where {asked}"
                )
            case "tokenize":
                return f"select case_id, corpus, case_index, text from cases where {asked}"
            case "detokenize":
                return (
                    "select case_id, corpus, case_index, output_ids, output_sha256"
                    " from tokens join cases using (case_id)"
                    f" where source = 'hf-tokenizer' and output_ids is not null and {asked}"
                )
        # An output is read as the answer to the prompt vLLM would have made.
        return (
            "select case_id, corpus, case_index, request, prompt_ids, output_ids, stop_id,"
            " output_sha256 from parse join cases using (case_id) join requests using (corpus, request_sha256)"
            f" where source = {sql_text(self.manifest.authority['parse'][0])} and output_ids is not null"
            f" and coalesce(normalisation, 'both') in ('both', 'vllm') and {asked}"
        )

    def _in_share(self) -> str:
        drawn = f"substr(sha256(cases.case_id), 1, {DIGITS}) < {sql_text(bound(self.params.witness.share))}"
        return f"(cases.corpus = {sql_text(HANDMADE)} or {drawn})"

    def _keeps(self) -> str:
        """Return the condition that a case is the same tomorrow: where prompts read the clock, one has to be known
        not to."""
        if self.clock:
            return "true"
        return (
            "(cases.kind != 'render' or not exists (select * from clock where reads_clock)"
            " or cases.case_id in (select case_id from clock group by case_id"
            " having bool_or(not reads_clock) and not coalesce(bool_or(reads_clock), false)))"
        )

    @contextmanager
    def _connect(self) -> Iterator[duckdb.DuckDBPyConnection]:
        with connect(self.root, self.params.corpora) as connection:
            for table in {RECORDED[kind] for kind in self.kinds}:
                path = reference_table(self.root, self.manifest.slug, table)
                check(path, REFERENCE)
                connection.execute(
                    f"create view {table} as select * exclude (kind) from read_parquet({sql_path(path)})"
                )
            if "render" in self.kinds:
                connection.execute("create table clock as select case_id, reads_clock from render")
            else:
                connection.execute("create table clock (case_id text, reads_clock boolean)")
            yield connection


def _rows(result: duckdb.DuckDBPyConnection) -> Iterator[dict[str, Any]]:
    names = [column[0] for column in result.description]
    while rows := result.fetchmany(BATCH_ROWS):
        for row in rows:
            yield dict(zip(names, row, strict=True))
