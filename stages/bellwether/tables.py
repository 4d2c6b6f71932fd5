"""Arrow schemas of every table, and the one way a table is written: canonical Parquet, streamed, whole or not at all.

The same rows give the same bytes: rows come in case order, row groups are cut by a rule that looks at rows only, and
pyarrow is pinned because its version stands in the footer.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, Self, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bellwether.errors import TableError
from bellwether.whole import whole_file

T = TypeVar("T")
SCHEMA_VERSION = "3"
GROUP_ROWS = 8192
GROUP_BYTES = 32 << 20
"""A row group closes at this many rows, or at this many bytes of Arrow data, whichever comes first."""
BATCH_ROWS = 64
"""Rows that travel together from a worker to the writer; row groups are whole batches."""
PAGE_BYTES = GROUP_BYTES
"""One page per column of a row group gives zstd the longest window: neighbouring prompts repeat their tools."""
ZSTD_LEVEL = 12
"""Against level 9: 2 % smaller in the same time; level 17 saves 9 % more and takes seven times as long."""


def _field(name: str, kind: pa.DataType, description: str) -> pa.Field:
    return pa.field(name, kind, metadata={"description": description})


def _schema(*fields: pa.Field) -> pa.Schema:
    return pa.schema(fields, metadata={"schema_version": SCHEMA_VERSION})


TEXT, NUMBER, FLAG, DIGEST = pa.string(), pa.int32(), pa.bool_(), pa.binary(32)
IDS = pa.list_(pa.field("id", NUMBER, nullable=False))
PARTS = pa.list_(pa.struct([pa.field("origin_id", TEXT), pa.field("row", TEXT)]))
TOOL_CALLS = pa.list_(pa.struct([pa.field("name", TEXT), pa.field("arguments", TEXT)]))

CASES = _schema(
    _field("case_id", TEXT, "kind/set/name; the identity of the case in every table"),
    _field("corpus", TEXT, "name of the corpus that holds the case"),
    _field("kind", TEXT, "render, parse, tokenize or detokenize"),
    _field("set", TEXT, "name of the set inside the corpus"),
    _field("name", TEXT, "name of the case, unique per kind over all corpora"),
    _field("case_index", NUMBER, "0-based place of the case in its corpus; tables keep this order"),
    _field("request_sha256", DIGEST, "key into requests; null for tokenize and detokenize"),
    _field("message", TEXT, "parse: JSON text of the assistant message the output stands for; null when malformed"),
    _field("text", TEXT, "tokenize, detokenize: the text; parse: the engine's output when malformed"),
    _field("ids", IDS, "detokenize: output ids of one vocabulary, instead of text"),
    _field("requires", DIGEST, "sha256 of the only tokenizer.json for which ids mean something"),
    _field("malformed", FLAG, "parse: no template writes this output; what a server makes of it is policy"),
    _field("notes", TEXT, "for people: the one thing the case probes"),
    _field("origin_id", TEXT, "key into origins"),
    _field("origin_row", TEXT, "identifier of the row in the origin's file"),
    _field("written", pa.list_(TEXT), "what the importer invented, as opposed to took over"),
    _field("parts", PARTS, "the rows a derived case is put together from; empty for a case of one origin"),
)
REQUESTS = _schema(
    _field("request_sha256", DIGEST, "sha256 of the request text in UTF-8"),
    _field("request", TEXT, "OpenAI chat body without model, as JSON text; key order is data"),
)
ORIGINS = _schema(
    _field("origin_id", TEXT, "source#file"),
    _field("dataset", TEXT, "short name of the dataset"),
    _field("source", TEXT, "pypi:name==version, github:owner/repo@sha, hf:datasets/owner/name@sha, or handmade"),
    _field("file", TEXT, "path of the file inside the source"),
    _field("sha256", TEXT, "sha256 of the file's bytes; empty for files whose bytes Git keeps"),
    _field("license", TEXT, "SPDX identifier of the data's licence"),
)
REPEATS = _schema(
    _field("corpus", TEXT, "name of the corpus"),
    _field("kind", TEXT, "kind of the dropped case"),
    _field("set", TEXT, "set of the dropped case"),
    _field("name", TEXT, "name of the dropped case"),
    _field("repeats", TEXT, "case_id of the earlier case that says the same, key order included"),
)
LEFT_OUT = _schema(
    _field("corpus", TEXT, "name of the corpus"),
    _field("kind", TEXT, "kind of the case that could not be made"),
    _field("set", TEXT, "set it would have stood in"),
    _field("row", TEXT, "identifier of the dataset row"),
    _field("reason", TEXT, "why the importer made no case of it"),
)
MATERIALS = _schema(
    _field("checkpoint", TEXT, "slug of the checkpoint"),
    _field("model", TEXT, "repository name on the Hub"),
    _field("revision", TEXT, "40 hex digits"),
    _field("license", TEXT, "licence of the checkpoint's material"),
    _field("file", TEXT, "path inside the snapshot"),
    _field("sha256", TEXT, "sha256 of the bytes, or of the narrowed value for configs"),
    _field("bytes", pa.int64(), "size in the snapshot; null when not obtained"),
    _field("proof", TEXT, "identical, derived, unproved, or unreached when the pinned file was not obtained"),
    _field("note", TEXT, "what is known about the file beyond its label"),
)
# Sources. render: hf-template, vendor-code:<encoder>, vllm-example:<template>; parse: roundtrip,
# roundtrip:vllm-example:<template>, response-template; tokenize and detokenize: hf-tokenizer. A case has one row per
# distinct answer of a source; a second reference (vllm-example) never takes the place of a first one.
REFERENCE = _schema(
    _field("checkpoint", TEXT, "slug of the checkpoint group"),
    _field("case_id", TEXT, "key into cases"),
    _field("kind", TEXT, "render, parse, tokenize or detokenize"),
    _field("source", TEXT, "whose answer this is; a manifest's [authority] names the source that decides a kind"),
    _field("outcome", TEXT, "result, rejected or not_applicable"),
    _field("reason_class", TEXT, "rejected: error (the template refuses) or unproven (nothing is claimed)"),
    _field("reason_code", TEXT, "stable name of the rule that refused"),
    _field("reason", TEXT, "the rule's arguments, or exception class and message"),
    _field("encoder", TEXT, "both, tokenizer.json or class: which encoders gave this row; null when none was asked"),
    _field(
        "normalisation", TEXT, "raw: messages handed over as sent; vllm: as vLLM hands them over; both: same answer"
    ),
    _field("content_format", TEXT, "string: content handed over as sent; openai: as lists of parts; both: same answer"),
    _field(
        "reads_clock", FLAG, "whether the prompt differs between the two dates of params.yaml; null without a prompt"
    ),
    _field("prompt_text", TEXT, "what the template renders"),
    _field("prompt_text_sha256", DIGEST, "sha256 of prompt_text in UTF-8"),
    _field("prompt_ids", IDS, "token ids of prompt_text"),
    _field("prompt_sha256", DIGEST, "sha256 of prompt_ids as little-endian u32"),
    _field("output_text", TEXT, "parse: the turn up to the end of turn; detokenize: the text"),
    _field("output_text_sha256", DIGEST, "sha256 of output_text in UTF-8"),
    _field("output_ids", IDS, "tokenize, parse, detokenize: ids of the text, in isolation"),
    _field("output_sha256", DIGEST, "sha256 of output_ids as little-endian u32"),
    _field("piece_ends", IDS, "one per output id: end of its streamed piece in output_text, in characters"),
    _field("pieces_sha256", DIGEST, "sha256 of the pieces in canonical JSON"),
    _field("content", TEXT, "parse: content of the message"),
    _field("reasoning_content", TEXT, "parse: reasoning_content of the message"),
    _field("tool_calls", TOOL_CALLS, "parse: calls in order; arguments is the JSON text of the corpus"),
    _field("message_sha256", DIGEST, "sha256 of the message in canonical JSON; empty and null text are the same"),
    _field("message_value_sha256", DIGEST, "the same with arguments as values: spelling and key order do not count"),
    _field("message_bare_sha256", DIGEST, "that without white space in content and reasoning_content"),
    _field("finish_reason", TEXT, "parse: tool_calls when the message has calls, else stop"),
    _field("stop_id", NUMBER, "parse: the id that ends the turn; it is not in output_ids"),
    _field("stop_found_by", TEXT, "parse: turn, or next-message when only the following message writes it"),
)

# An engine's answers. Of the chunk plans a parse case is streamed by, those whose message equals one-shot's are counted
# and not stored. A case that was not asked has no row; a failed measurement has one, and it is never evidence.
WITNESS = _schema(
    _field("checkpoint", TEXT, "slug of the checkpoint group"),
    _field("case_id", TEXT, "key into cases"),
    _field("kind", TEXT, "render, parse, tokenize or detokenize"),
    _field("engine", TEXT, "whose answer this is"),
    _field("engine_version", TEXT, "its release"),
    _field("mode", TEXT, "one-shot; or the chunk plan whose message differs from one-shot's, or could not be measured"),
    _field("outcome", TEXT, "result, refused or measurement_failed"),
    _field("reason_code", TEXT, "refused: the engine's own code; measurement_failed: what went wrong"),
    _field("reason", TEXT, "the engine's own words, or what was seen"),
    _field("prompt_text", TEXT, "render: the prompt, where the engine gives a text"),
    _field("prompt_text_sha256", DIGEST, "sha256 of prompt_text in UTF-8"),
    _field("prompt_ids", IDS, "render: the prompt, where the engine gives token ids"),
    _field("prompt_sha256", DIGEST, "sha256 of prompt_ids as little-endian u32"),
    _field("output_text", TEXT, "detokenize: the text"),
    _field("output_text_sha256", DIGEST, "sha256 of output_text in UTF-8"),
    _field("output_ids", IDS, "tokenize: the ids the engine gives"),
    _field("output_sha256", DIGEST, "tokenize: of output_ids; parse, detokenize: of the ids the engine was given"),
    _field("piece_ends", IDS, "detokenize: one per id: end of its streamed piece in output_text, in characters"),
    _field("pieces_sha256", DIGEST, "sha256 of the pieces in canonical JSON"),
    _field("content", TEXT, "parse: content of the message"),
    _field("reasoning_content", TEXT, "parse: reasoning_content of the message"),
    _field("tool_calls", TOOL_CALLS, "parse: calls in order; arguments is the JSON text the engine gives"),
    _field("message_sha256", DIGEST, "sha256 of the message in canonical JSON; empty and null text are the same"),
    _field("message_value_sha256", DIGEST, "the same with arguments as values: spelling and key order do not count"),
    _field("message_bare_sha256", DIGEST, "that without white space in content and reasoning_content"),
    _field("plans", NUMBER, "parse, one-shot: chunk plans the output was streamed by"),
    _field("plans_equal", NUMBER, "parse, one-shot: plans that gave one-shot's message, byte for byte"),
    _field("plans_failed", NUMBER, "parse, one-shot: plans that could not be measured"),
)

PER_CORPUS = {
    "cases": CASES,
    "requests": REQUESTS,
    "origins": ORIGINS,
    "repeats": REPEATS,
    "left_out": LEFT_OUT,
}
"""Table name → schema, for the tables of one imported corpus."""

# Columns with few distinct values gain from a dictionary; on ids and text it costs 1.3 to 1.6 times the bytes.
DICTIONARY = [
    *("checkpoint", "corpus", "kind", "set", "origin_id", "source", "outcome", "reason_class", "reason_code"),
    *("encoder", "normalisation", "content_format", "finish_reason", "stop_found_by", "proof", "model", "revision"),
    *("license", "engine", "engine_version", "mode"),
]


def record_batch(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Return rows given as dictionaries as one batch; absent columns are null.

    Ids go in as blocks of bytes: one by one, a long prompt's take as long as making them.

    Raises:
        TableError: an id is negative or takes more than 31 bits.
    """
    columns = []
    for field in schema:
        values = [row.get(field.name) for row in rows]
        columns.append(_ids_column(values) if field.type == IDS else pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _ids_column(values: Sequence[Sequence[int] | None]) -> pa.ListArray:
    try:
        packed = [array("I", value or ()) for value in values]
    except OverflowError as error:
        raise _no_id(str(error)) from None
    ends = pa.array([0, *accumulate(map(len, packed))], pa.int32())
    ids = pa.Array.from_buffers(NUMBER, ends[-1].as_py(), [None, pa.py_buffer(b"".join(packed))])
    least = pc.min(ids).as_py()
    if least is not None and least < 0:
        raise _no_id(f"{least + (1 << 32)} takes more than 31 bits")
    absent = pa.array([value is None for value in values], FLAG)
    return pa.ListArray.from_arrays(ends, ids, type=IDS, mask=absent)


def _no_id(why: str) -> TableError:
    return TableError(f"a token id cannot be stored: {why}", next_step="Look for the case that holds it.")


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield `items` in lists of `size`, the last one shorter."""
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch


class TableWriter:
    """Write one Parquet file by row groups; memory holds one group. Nothing appears at `path` unless all went well."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path = path
        self.schema = schema
        self.rows = 0
        self._batches: list[pa.RecordBatch] = []

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._writer = pq.ParquetWriter(
                stack.enter_context(whole_file(self.path)),
                self.schema,
                compression="zstd",
                compression_level=ZSTD_LEVEL,
                use_dictionary=[name for name in DICTIONARY if name in self.schema.names],
                write_statistics=["case_id"] if "case_id" in self.schema.names else False,
                data_page_size=PAGE_BYTES,
            )
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with self._stack:  # learns of whatever goes wrong, and then keeps nothing
            try:
                if error is not None:
                    raise error
                self._flush()
            except BaseException:
                with suppress(OSError):  # a full disk refuses the footer too; the first error is the one to tell
                    self._writer.close()
                raise
            self._writer.close()

    def write(self, batch: pa.RecordBatch) -> None:
        """Add `batch`; a row group is written out when enough has come together."""
        self.rows += batch.num_rows
        self._batches.append(batch)
        if (
            sum(batch.num_rows for batch in self._batches) >= GROUP_ROWS
            or sum(batch.nbytes for batch in self._batches) >= GROUP_BYTES
        ):
            self._flush()

    def write_rows(self, rows: Iterable[dict]) -> None:
        """Add rows given as dictionaries; absent columns are null."""
        for batch in batches(rows, BATCH_ROWS):
            self.write(record_batch(batch, self.schema))

    def _flush(self) -> None:
        if self._batches:
            self._writer.write_table(pa.Table.from_batches(self._batches, schema=self.schema))
            self._batches = []


def check(path: Path, schema: pa.Schema) -> None:
    """Check that `path` is a whole Parquet file of `schema` and of this schema version.

    Raises:
        TableError: missing, truncated, or of another schema. Names file, expected and actual.
    """
    try:
        actual = pq.read_schema(path)
    except FileNotFoundError:
        raise TableError(f"{path} does not exist", next_step="Run `make repro`, or `dvc pull`.") from None
    except (pa.ArrowInvalid, OSError) as error:
        raise TableError(
            f"{path} is no whole Parquet file: {error}", next_step="Delete it and run `make repro`."
        ) from None
    version = (actual.metadata or {}).get(b"schema_version", b"none").decode()
    if version != SCHEMA_VERSION:
        wrong = f"expected schema version {SCHEMA_VERSION}, found {version}"
    elif actual.names != schema.names:
        wrong = f"expected the columns {', '.join(schema.names)}, found {', '.join(actual.names)}"
    elif not actual.equals(schema):
        name = next(field.name for field in schema if not field.equals(actual.field(field.name)))
        wrong = f"expected {name} to be {schema.field(name).type}, found {actual.field(name).type}"
    else:
        return
    raise TableError(f"{path}: {wrong}", next_step="Record it again with `make repro`.")


SPAN = [
    _field("start", NUMBER, "0-based place of its first character; null for a group that took no part"),
    _field("end", NUMBER, "place after its last character"),
    _field("start_byte", NUMBER, "bytes before start, in UTF-8"),
    _field("end_byte", NUMBER, "bytes before end, in UTF-8"),
]
GROUPS = pa.list_(pa.struct([_field("number", NUMBER, "from 1"), _field("name", TEXT, "null without a name"), *SPAN]))
MATCHES = pa.list_(
    pa.struct(
        [
            _field("buffer", NUMBER, "characters of the text that were there, counted from its begin"),
            _field("pos", NUMBER, "place at which the call began to look"),
            _field("partial", FLAG, "the buffer ends before the match does: more text decides"),
            _field("survives", FLAG, "whether the match stays the same before one more character; null: not asked"),
            *SPAN,
            _field("groups", GROUPS, "in the order of their numbers"),
        ]
    )
)
PATTERNS = _schema(
    _field("pattern_id", TEXT, "template/field/role; without field for the start anchor"),
    _field("template", TEXT, "name of the response template: the first model type it is for, or a checkpoint's slug"),
    _field("models", pa.list_(TEXT), "model types transformers uses the template for, or the checkpoint"),
    _field("field", TEXT, "field of the message; null for the start anchor"),
    _field("role", TEXT, "key of the template the pattern comes from"),
    _field("pattern", TEXT, "the pattern as transformers compiles it"),
    _field("flags", pa.list_(TEXT), "flags it is compiled with, the engine's defaults too"),
    _field("literals", pa.list_(TEXT), "texts the pattern was made of; null when it is written as a pattern"),
    _field("engine", TEXT, "library that answered"),
    _field("engine_version", TEXT, "its version"),
    _field("call", TEXT, "finditer, search, search-partial or sub: the call transformers makes"),
    _field("probe", TEXT, "name of the text"),
    _field("text", TEXT, "the text"),
    _field(
        "buffers", IDS, "lengths in characters of the buffers tried; for all calls but search-partial the whole text"
    ),
    _field("matches", MATCHES, "what was found, by buffer and place; a buffer that is tried and not here has no match"),
)
