"""Command `sql`: one query over the views, in each format, to standard output or whole into a file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from bellwether.cli import cli
from bellwether.reports import sql as runner
from bellwether.tables import PER_CORPUS, TableWriter
from manifests import bare_manifest

PARAMS = """
checkpoints: []
corpora: [toy]
oracle: {versions: {}, clock: "2026-01-15T12:00:00", other_clock: "2027-10-02T23:30:00", template_seconds: 20}
"""
QUERY = "select request_sha256, request from requests order by request"
DIGEST = "6162" * 16
BAD_QUERIES = {
    "no SQL": ("selekt 1", "selekt"),
    "no such column": ("select nosuch from cases", "nosuch"),
    "fails on a row": ("select (request)::integer from requests", "the query does not run"),
    "empty": ("", "the query is empty"),
    "a comment only": ("/* nothing */", "the query is empty"),
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A checkout of one corpus: two requests, and every other table empty."""
    root = tmp_path / "project"
    root.mkdir()
    (root / "params.yaml").write_text(PARAMS, "utf-8")
    for name, schema in PER_CORPUS.items():
        with TableWriter(root / "corpus" / "imported" / "toy" / f"{name}.parquet", schema) as table:
            if name == "requests":
                table.write_rows({"request_sha256": b"ab" * 16, "request": text} for text in ("é,", "a\u2028"))
    return root


def bellwether(root: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["sql", *arguments, "--root", str(root)])


# ── formats ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_table_is_the_default(project: Path):
    """A person sees aligned columns; digests are hex."""
    run = bellwether(project, "select request_sha256 from requests limit 1")
    assert (run.exit_code, run.stderr) == (0, "")
    assert run.stdout == f"request_sha256\n{'-' * 64}\n{DIGEST}\n"
    assert bellwether(project, "select request_sha256 from requests limit 1", "--format", "table").stdout == run.stdout


def test_csv_goes_to_standard_output(project: Path):
    """Digests are hex, text outside ASCII is itself."""
    run = bellwether(project, QUERY, "--format", "csv")
    assert (run.exit_code, run.stderr) == (0, "")
    assert run.stdout == f'request_sha256,request\n{DIGEST},a\u2028\n{DIGEST},"é,"\n'


def test_json_goes_to_standard_output(project: Path):
    """An array of objects, one per row."""
    run = bellwether(project, QUERY, "--format", "json")
    assert (run.exit_code, run.stderr) == (0, "")
    assert json.loads(run.stdout) == [
        {"request_sha256": DIGEST, "request": "a\u2028"},
        {"request_sha256": DIGEST, "request": "é,"},
    ]


def test_parquet_goes_into_a_file(project: Path, tmp_path: Path):
    """Nothing is printed; digests stay bytes for whoever reads them next."""
    path = tmp_path / "out.parquet"
    run = bellwether(project, QUERY, "--format", "parquet", "--output", str(path))
    assert (run.exit_code, run.output) == (0, "")
    assert pq.read_table(path).to_pylist() == [
        {"request_sha256": b"ab" * 16, "request": "a\u2028"},
        {"request_sha256": b"ab" * 16, "request": "é,"},
    ]


@pytest.mark.parametrize("form", ["table", "csv", "json"])
def test_file_holds_what_standard_output_would(project: Path, tmp_path: Path, form: str):
    """`-o` changes where the bytes go, not what they are."""
    printed = bellwether(project, QUERY, "--format", form).stdout_bytes
    run = bellwether(project, QUERY, "--format", form, "-o", str(tmp_path / "out"))
    assert (run.exit_code, run.output) == (0, "")
    assert (tmp_path / "out").read_bytes() == printed


def test_query_may_stand_in_a_file(project: Path, tmp_path: Path):
    """A name that ends in .sql is a file; comments in it are no obstacle."""
    path = tmp_path / "requests.sql"
    path.write_text("-- how many é\nselect count(*) as rows from requests\n", "utf-8")
    run = bellwether(project, str(path), "--format", "csv")
    assert (run.exit_code, run.stdout) == (0, "rows\n2\n")


# ── missing and torn tables ──────────────────────────────────────────────────────────────────────────────────────────


def test_missing_tables_are_noted_beside_the_answer(project: Path):
    """The answer over what is there stays usable on standard output; the note goes to standard error."""
    (project / "params.yaml").write_text(PARAMS.replace("[]", "[alpha]"), "utf-8")
    bare_manifest(project, "alpha")
    run = bellwether(project, "select count(*) as rows from reference", "--format", "csv")
    assert run.exit_code == 0
    assert run.stdout == "rows\n0\n"
    assert run.stderr == "note: 4 tables of the scope are not recorded, e.g. fixtures/alpha/materials.parquet\n"


def test_truncated_table_is_named(project: Path):
    """A torn table is no verdict, also for a query that does not ask for it."""
    path = project / "corpus" / "imported" / "toy" / "repeats.parquet"
    path.write_bytes(path.read_bytes()[:-1])
    run = bellwether(project, "select 1")
    assert (run.exit_code, run.stdout) == (2, "")
    assert "imported/toy/repeats.parquet is no whole Parquet file" in run.stderr
    assert "\nnext:  " in run.stderr


# ── what does not run ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("case", BAD_QUERIES)
@pytest.mark.parametrize("form", ["table", "csv", "json", "parquet"])
def test_query_that_does_not_run_is_no_verdict(project: Path, tmp_path: Path, case: str, form: str):
    """Exit 2 and a sentence in every format; a file that was there stays as it was, and no other one appears."""
    query, said = BAD_QUERIES[case]
    path = tmp_path / "results" / "out"
    path.parent.mkdir()
    path.write_text("earlier", "utf-8")
    run = bellwether(project, query, "--format", form, "-o", str(path))
    assert run.exit_code == 2
    assert run.stderr.startswith("error: ")
    assert said in run.stderr
    assert "\nnext:  " in run.stderr
    assert path.read_text("utf-8") == "earlier"
    assert list(path.parent.iterdir()) == [path]


def test_parquet_needs_a_file(project: Path):
    """Bytes are never thrown at a terminal."""
    run = bellwether(project, "select 1", "--format", "parquet")
    assert (run.exit_code, run.stdout) == (2, "")
    assert run.stderr == "error: Parquet is no text\nnext:  Name a file with --output.\n"


def test_file_that_is_not_there_is_named(project: Path):
    """A misspelt path is not taken for SQL."""
    run = bellwether(project, "queries/nosuch.sql")
    assert run.exit_code == 2
    assert "there is no file queries/nosuch.sql" in run.stderr


def test_file_that_is_no_text_is_named(project: Path, tmp_path: Path):
    """A query file is UTF-8."""
    (tmp_path / "q.sql").write_bytes(b"select '\xff'")
    run = bellwether(project, str(tmp_path / "q.sql"))
    assert run.exit_code == 2
    assert "q.sql is not UTF-8" in run.stderr


def test_folder_that_is_not_there_is_told(project: Path, tmp_path: Path):
    """`-o` makes no folders: a misspelt one is the system's error, with exit 2."""
    run = bellwether(project, "select 1", "-o", str(tmp_path / "nosuch" / "out"))
    assert run.exit_code == 2
    assert "nosuch/out" in run.stderr


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_interrupt_leaves_the_earlier_file(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str):
    """What was written before the interrupt does not replace what was there."""

    def interrupted(result: object, *rest: object) -> int:
        raise KeyboardInterrupt

    path = tmp_path / "out"
    path.write_text("earlier", "utf-8")
    monkeypatch.setattr(runner, "write_parquet" if form == "parquet" else "write", interrupted)
    run = bellwether(project, QUERY, "--format", form, "-o", str(path))
    assert run.exit_code == 2
    assert "interrupted" in run.stderr
    assert path.read_text("utf-8") == "earlier"
    assert not path.with_name("out.partial").exists()


def test_link_stays_a_link(project: Path, tmp_path: Path):
    """Writing through a link changes the file it points at."""
    (tmp_path / "real").write_text("earlier", "utf-8")
    (tmp_path / "link").symlink_to("real")
    assert bellwether(project, "select 1 as a", "--format", "csv", "-o", str(tmp_path / "link")).exit_code == 0
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text("utf-8") == "a\n1\n"


def test_device_is_written_and_not_replaced(project: Path):
    """The null device stays one, whoever runs the command."""
    assert bellwether(project, "select 1", "--format", "csv", "-o", os.devnull).exit_code == 0
    assert Path(os.devnull).is_char_device()


def test_reader_that_goes_away_is_no_finding(project: Path):
    """In `bellwether sql … | head -1` the command ends with 2, because 1 means a difference; there is no traceback."""
    command = [sys.executable, "-W", "error", "-c", "from bellwether.cli import cli; cli()"]
    query = "select i from range(300000) t(i) order by i"
    with subprocess.Popen(
        [*command, "sql", query, "--format", "csv", "--root", str(project)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as run:
        assert run.stdout.readline() == b"i\n"
        run.stdout.close()
        assert run.stderr.read() == b""
    assert run.returncode == 2
