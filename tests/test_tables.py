"""The table writer and the table check, on small tables made here."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import textwrap
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bellwether import tables
from bellwether.errors import TableError
from bellwether.tables import (
    MATERIALS,
    PER_CORPUS,
    REFERENCE,
    REPEATS,
    REQUESTS,
    WITNESS,
    TableWriter,
    check,
    record_batch,
)

SCHEMAS = {**PER_CORPUS, "materials": MATERIALS, "reference": REFERENCE, "witness": WITNESS}
token_ids = st.lists(st.integers(0, 2**31 - 1), max_size=20)


def row(number: int, length: int = 10) -> dict:
    return {"request_sha256": number.to_bytes(32, "big"), "request": f"{number:0{length}d}"}


def write(path: Path, numbers: range, length: int = 10) -> None:
    with TableWriter(path, REQUESTS) as table:
        table.write_rows(row(number, length) for number in numbers)


def groups(path: Path) -> list[int]:
    """Return the rows of each row group."""
    metadata = pq.read_metadata(path)
    return [metadata.row_group(place).num_rows for place in range(metadata.num_row_groups)]


# ── rows become batches ──────────────────────────────────────────────────────────────────────────────────────────────

IDS_AND_TEXT = pa.schema([pa.field("ids", tables.IDS), pa.field("text", pa.string())])


@settings(deadline=None)
@given(st.lists(st.one_of(st.none(), token_ids, token_ids.map(lambda ids: array("I", ids)), token_ids.map(tuple))))
def test_batch_holds_what_arrow_makes_of_the_same_rows(column):
    """Lists, tuples, packed ids, no ids, null: values and buffers' meaning are those of pyarrow's own way."""
    rows = [{"ids": ids, "text": "x"} if place % 2 else {"ids": ids} for place, ids in enumerate(column)]
    batch = record_batch(rows, IDS_AND_TEXT)
    batch.validate(full=True)
    plain = [{**row, "ids": None if row["ids"] is None else list(row["ids"])} for row in rows]
    assert batch.equals(pa.RecordBatch.from_pylist(plain, schema=IDS_AND_TEXT))


@pytest.mark.parametrize("ids", [[-1], [2**31], array("I", [5, 2**31]), [2**40]])
def test_id_beyond_31_bits_is_refused(ids):
    """Such an id would come back as another one."""
    with pytest.raises(TableError, match="a token id cannot be stored"):
        record_batch([{"ids": [1]}, {"ids": ids}], IDS_AND_TEXT)


# ── schemas ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_column_is_described(name: str):
    """A reader of the Parquet file alone finds the schema version, and what each column holds."""
    schema = SCHEMAS[name]
    assert schema.metadata[b"schema_version"] == b"3"
    for column in schema:
        assert column.metadata[b"description"].strip(), column.name


# ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_same_rows_give_same_bytes(tmp_path: Path):
    """Nothing in a table depends on time, path or process."""
    for name in ("one", "other"):
        write(tmp_path / name / "requests.parquet", range(500))
    one, other = (tmp_path / name / "requests.parquet" for name in ("one", "other"))
    assert one.read_bytes() == other.read_bytes()
    write(other, range(501))
    assert one.read_bytes() != other.read_bytes()


def test_rows_come_back_as_written(tmp_path: Path):
    """Absent columns are null; ids, calls and text outside ASCII survive."""
    given_rows = [
        {"checkpoint": "a", "case_id": "parse/s/one", "prompt_ids": [0, 2**31 - 1], "content": "\u2028 😀"},
        {"checkpoint": "a", "case_id": "parse/s/two", "tool_calls": [{"name": "f", "arguments": "{}"}]},
    ]
    with TableWriter(tmp_path / "t.parquet", REFERENCE) as table:
        table.write_rows(given_rows)
    assert table.rows == 2
    stored = pq.read_table(tmp_path / "t.parquet")
    assert stored.schema.equals(REFERENCE)
    assert [column.metadata for column in stored.schema] == [column.metadata for column in REFERENCE]
    assert stored.schema.metadata == {b"schema_version": b"3"}
    empty = dict.fromkeys(REFERENCE.names)
    assert stored.to_pylist() == [empty | given_row for given_row in given_rows]


def test_table_without_rows_is_a_whole_table(tmp_path: Path):
    """No rows give a file with the schema and nothing else; parents are made."""
    path = tmp_path / "deep" / "er" / "t.parquet"
    with TableWriter(path, REPEATS) as table:
        table.write_rows([])
    check(path, REPEATS)
    assert pq.read_table(path).num_rows == 0
    assert groups(path) == []


def test_row_group_closes_at_its_number_of_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A group takes whole batches of 64: with 100 rows asked for, it closes at 128."""
    monkeypatch.setattr(tables, "GROUP_ROWS", 100)
    write(tmp_path / "t.parquet", range(300))
    assert groups(tmp_path / "t.parquet") == [128, 128, 44]


def test_row_group_closes_at_its_number_of_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """64 rows of 1,000 characters are past 50,000 bytes, 64 rows of 100 are not, 512 of them are."""
    monkeypatch.setattr(tables, "GROUP_BYTES", 50_000)
    write(tmp_path / "long.parquet", range(192), length=1000)
    assert groups(tmp_path / "long.parquet") == [64, 64, 64]
    write(tmp_path / "short.parquet", range(640), length=100)
    assert groups(tmp_path / "short.parquet") == [384, 256]


def test_no_row_group_has_more_than_ten_thousand_rows(tmp_path: Path):
    """However many rows are handed over at once, a reader never has to hold more than this."""
    write(tmp_path / "t.parquet", range(30_000))
    assert sum(groups(tmp_path / "t.parquet")) == 30_000
    assert max(groups(tmp_path / "t.parquet")) <= 10_000


def test_rows_are_taken_as_a_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A group is written before the rows after it are asked for."""
    monkeypatch.setattr(tables, "GROUP_ROWS", 64)
    seen = []

    def rows() -> Iterator[dict]:
        for number in range(200):
            if number == 130:
                [partial] = tmp_path.glob("*.partial")
                seen.append(partial.stat().st_size)
            yield row(number, length=1000)

    with TableWriter(tmp_path / "t.parquet", REQUESTS) as table:
        table.write_rows(rows())
    assert seen[0] > 4  # the four bytes every Parquet file begins with


# ── whole or not at all ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("rows", [0, 10, 20_000], ids=["before rows", "inside a group", "after a group"])
def test_nothing_is_written_when_the_body_fails(tmp_path: Path, error: type[BaseException], rows: int):
    """A body that raises leaves neither the table nor a partial file, and its own error comes out."""
    with pytest.raises(error, match="mine"), TableWriter(tmp_path / "t.parquet", REQUESTS) as table:
        table.write_rows(row(number) for number in range(rows))
        raise error("mine")
    assert list(tmp_path.iterdir()) == []


def test_earlier_table_stays_when_the_body_fails(tmp_path: Path):
    """A failed run costs nothing that was there."""
    path = tmp_path / "t.parquet"
    write(path, range(3))
    before = path.read_bytes()
    with pytest.raises(ZeroDivisionError), TableWriter(path, REQUESTS) as table:
        table.write_rows([row(9)])
        raise ZeroDivisionError
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["t.parquet"]


def test_row_of_another_shape_is_refused_whole(tmp_path: Path):
    """A value the column cannot hold fails the table; nothing is written for the rows before it."""
    with pytest.raises((pa.ArrowInvalid, pa.ArrowTypeError)), TableWriter(tmp_path / "t.parquet", REQUESTS) as table:
        table.write_rows([row(1), {"request_sha256": b"short", "request": "x"}])
    assert list(tmp_path.iterdir()) == []


def test_path_that_cannot_be_opened_is_told(tmp_path: Path):
    """A folder in the place of the partial file is the system's error, not a torn table."""
    (tmp_path / f"t.parquet.{os.getpid()}.partial").mkdir()
    with pytest.raises(OSError, match=r"partial"), TableWriter(tmp_path / "t.parquet", REQUESTS):
        raise AssertionError("the body ran")
    assert not (tmp_path / "t.parquet").exists()


FILL = """
    import gc, random, sys
    from pathlib import Path
    from bellwether.tables import REQUESTS, TableWriter

    folder, rows = Path(sys.argv[1]), int(sys.argv[2])
    try:
        with TableWriter(folder / "t.parquet", REQUESTS) as table:
            for number in range(rows):
                text = random.Random(number).randbytes(10_000).hex()
                table.write_rows([{"request_sha256": bytes(32), "request": text}])
            if sys.argv[3:]:
                raise ValueError("the body's own error")
    except (OSError, ValueError) as error:
        print(type(error).__name__, getattr(error, "errno", None))
    gc.collect()
    print(sorted(path.name for path in folder.iterdir()))
"""
"""Run in a process of its own, because a file size limit holds for a whole process."""


def fill(folder: Path, rows: int, *raises: str, limit: int | None = None) -> subprocess.CompletedProcess[str]:
    def below_limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))  # Python ignores SIGXFSZ

    return subprocess.run(
        [sys.executable, "-W", "error", "-B", "-c", textwrap.dedent(FILL), str(folder), str(rows), *raises],
        preexec_fn=below_limit if limit is not None else None,
        capture_output=True,
        text=True,
        check=True,
    )


@pytest.mark.parametrize("rows", [40, 0], ids=["in a row group", "in the footer"])
def test_file_size_limit_leaves_no_partial_file(tmp_path: Path, rows: int):
    """Where the system takes no more bytes, the writer raises OSError with its number (27, EFBIG)."""
    run = fill(tmp_path, rows, limit=100)
    assert run.stdout == "OSError 27\n[]\n"
    assert run.stderr == ""


def test_error_of_the_body_outlives_a_full_disk(tmp_path: Path):
    """When the body fails and then the footer cannot be written either, the first error is told."""
    run = fill(tmp_path, 0, "raises", limit=100)
    assert run.stdout == "ValueError None\n[]\n"
    assert run.stderr == ""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or not shutil.which("mount") or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("this machine lets us mount nothing")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("free", [60_000, 0], ids=["too small", "full from the start"])
def test_full_disk_leaves_no_partial_file(small_disk: Path, free: int):
    """A full disk is OSError 28 (ENOSPC), and what was taken is given back."""
    (small_disk / "taken").write_bytes(bytes(65_536 - free))
    run = fill(small_disk, 40)
    assert run.stdout == "OSError 28\n['taken']\n"
    assert run.stderr == ""


# ── checking ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_whole_table_of_this_version_passes(tmp_path: Path):
    """What the writer wrote is what the check expects."""
    write(tmp_path / "t.parquet", range(10))
    check(tmp_path / "t.parquet", REQUESTS)


def damaged(change: Callable[[pa.Schema], pa.Schema]) -> Callable[[Path], None]:
    def build(path: Path) -> None:
        pq.write_table(change(REQUESTS).empty_table(), path)

    return build


def cut(size: int) -> Callable[[Path], None]:
    def build(path: Path) -> None:
        write(path, range(100))
        path.write_bytes(path.read_bytes()[:size])

    return build


@pytest.mark.parametrize(
    ("build", "said"),
    [
        pytest.param(lambda path: None, "does not exist", id="missing"),
        pytest.param(cut(0), "is no whole Parquet file", id="empty"),
        pytest.param(cut(-1), "is no whole Parquet file", id="last byte missing"),
        pytest.param(cut(900), "is no whole Parquet file", id="cut in the middle"),
        pytest.param(lambda path: path.mkdir(), "is no whole Parquet file", id="a folder"),
        pytest.param(
            damaged(lambda schema: schema.with_metadata({"schema_version": "4"})),
            "expected schema version 3, found 4",
            id="another version",
        ),
        pytest.param(
            damaged(lambda schema: schema.remove_metadata()), "expected schema version 3, found none", id="no version"
        ),
        pytest.param(
            damaged(lambda schema: schema.append(pa.field("extra", pa.string()))),
            "expected the columns request_sha256, request, found request_sha256, request, extra",
            id="a column more",
        ),
        pytest.param(
            damaged(lambda schema: pa.schema(reversed(list(schema)), metadata=schema.metadata)),
            "expected the columns request_sha256, request, found request, request_sha256",
            id="another order",
        ),
        pytest.param(
            damaged(lambda schema: schema.set(1, pa.field("request", pa.binary()))),
            "expected request to be string, found binary",
            id="another type",
        ),
    ],
)
def test_table_that_cannot_be_read_is_named(tmp_path: Path, build: Callable[[Path], None], said: str):
    """The error names the file, what was expected and what was found, and says what to do."""
    path = tmp_path / "t.parquet"
    build(path)
    with pytest.raises(TableError) as caught:
        check(path, REQUESTS)
    assert str(path) in str(caught.value)
    assert said in str(caught.value)
    assert "make repro" in caught.value.next_step
