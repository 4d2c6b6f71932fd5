"""Tables of another revision, in a real repository of Git and DVC."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from bellwether.cli import cli
from bellwether.errors import ParamsError, TableError
from bellwether.layout import reference_table, witness_table
from bellwether.reports.revision import tables_at
from bellwether.tables import REFERENCE, TableWriter
from witnessed import SLUG, Row, ask, checkout, claim, columns, failure, heard, no_claim, write_answers, write_claims

ENGINES = ("vllm-1.0", "vllm-2.0")
OLD, NEW = ENGINES
NOBODY = {"user.name": "nobody", "user.email": "nobody@example.org", "commit.gpgsign": "false"}


def git(root: Path, *arguments: str) -> str:
    options = [part for key, value in NOBODY.items() for part in ("-c", f"{key}={value}")]
    ran = subprocess.run(["git", *options, *arguments], cwd=root, check=True, capture_output=True, text=True)
    return ran.stdout.strip()


def dvc(root: Path, *arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "dvc", *arguments], cwd=root, check=True, capture_output=True)


def commit(root: Path) -> str:
    """Give DVC every table, and Git the rest; return the commit."""
    tables = [path.relative_to(root).as_posix() for path in sorted((root / "fixtures").rglob("*.parquet"))]
    dvc(root, "add", "--quiet", *tables)
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "state")
    return git(root, "rev-parse", "HEAD")


def repository(root: Path, claims: list[Row], answers: list[Row]) -> Path:
    made = checkout(root / "made", claims, answers, engines=ENGINES)
    git(made, "init", "--quiet")
    dvc(made, "init", "--quiet")
    return made


@pytest.fixture(scope="module")
def two_commits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two commits: of the references one moved, one came, one went and one lost its proof; of vLLM 2.0 one answer
    moved and one could not be measured any more."""
    claims = [claim("render/s/same"), claim("render/s/moved"), claim("render/s/gone"), claim("parse/s/lost")]
    answers = [heard("render/s/same", OLD), heard("render/s/same", NEW), heard("render/s/moved", NEW)]
    root = repository(tmp_path_factory.mktemp("two"), claims, answers)
    commit(root)
    claims = [claim("render/s/same"), claim("render/s/moved", "b"), claim("render/s/new")]
    write_claims(root, SLUG, "render", claims)
    write_claims(root, SLUG, "parse", [no_claim("parse/s/lost")])
    write_answers(root, NEW, SLUG, [heard("render/s/same", NEW, "x"), failure("render/s/moved", NEW)])
    commit(root)
    return root


@pytest.fixture
def moved(two_commits: Path, tmp_path: Path, own_cache: Path) -> Path:
    """A copy of them for one test."""
    return shutil.copytree(two_commits, tmp_path / "made")


NAMES = ("axis", "subject", "before", "after", "kind", "what", "cases", "example")


def test_drift_between_two_revisions(moved: Path):
    """References by source, engines by release; what came and went is named so, and never equal."""
    rows = [row for row in ask(moved, "drift", "HEAD~1") if row["axis"] == "revision"]
    before, now = "HEAD~1", "checkout"
    assert columns(rows, *NAMES) == [
        ("revision", "reference hf-template", before, now, "render", "prompt-ids", 1, "render/s/moved"),
        ("revision", "reference hf-template", before, now, "render", "appeared", 1, "render/s/new"),
        ("revision", "reference hf-template", before, now, "render", "disappeared", 1, "render/s/gone"),
        ("revision", "reference hf-template", before, now, "render", "same", 1, "render/s/same"),
        ("revision", "reference roundtrip", before, now, "parse", "claim", 1, "parse/s/lost"),
        ("revision", "vllm-1.0", before, now, "render", "same", 1, "render/s/same"),
        ("revision", "vllm-2.0", before, now, "render", "prompt-ids", 1, "render/s/same"),
        ("revision", "vllm-2.0", before, now, "render", "disappeared", 1, "render/s/moved"),
    ]


def test_drift_against_itself_is_none(moved: Path):
    """The commit's own tables are those of the checkout."""
    rows = [row for row in ask(moved, "drift", "HEAD") if row["axis"] == "revision"]
    assert {row["what"] for row in rows} == {"same"}


def test_without_a_revision_its_views_are_empty(moved: Path):
    """Nothing appeared out of nowhere: there is one kind of drift."""
    assert ask(moved, "select * from reference_before union all by name select * from witness_before") == []
    assert {row["axis"] for row in ask(moved, "drift")} == {"release"}


def test_drift_between_two_releases(moved: Path):
    """One step per pair of neighbours; what one of them was not asked is no equality."""
    assert columns(ask(moved, "drift"), *NAMES) == [
        ("release", "vllm", "1.0", "2.0", "render", "prompt-ids", 1, "render/s/same"),
    ]
    write_answers(moved, OLD, SLUG, [heard("render/s/moved", OLD)])
    assert columns(ask(moved, "drift"), "what", "example") == [
        ("appeared", "render/s/same"),
        ("disappeared", "render/s/moved"),
    ]


def test_command_takes_a_revision(moved: Path):
    """`--against` names a commit, a branch or a tag."""
    git(moved, "tag", "before", "HEAD~1")
    query = ["sql", "select case_id from reference_before where kind = 'render' order by all", "--format", "csv"]
    ran = CliRunner().invoke(cli, [*query, "--against", "before", "--root", str(moved)])
    assert (ran.exit_code, ran.stdout) == (0, "case_id\nrender/s/gone\nrender/s/moved\nrender/s/same\n")


def test_tables_the_cache_lost_come_from_a_remote(moved: Path, tmp_path: Path, own_cache: Path):
    """From the remote of today, which the old revision does not name; a second question fetches nothing."""
    dvc(moved, "remote", "add", "--default", "store", str(tmp_path / "store"))
    git(moved, "commit", "--quiet", "--all", "--message", "remote")
    (moved / ".dvc" / "cache").rename(tmp_path / "store")  # what a push of every commit leaves
    path = "fixtures/alpha/render/reference.parquet"
    [copy] = tables_at(moved, "HEAD~2", [path, "fixtures/other/render/reference.parquet"]).values()
    assert copy.is_relative_to(own_cache / "revisions")
    shutil.rmtree(moved / ".dvc" / "cache", ignore_errors=True)
    shutil.rmtree(tmp_path / "store")
    assert tables_at(moved, "HEAD~2", [path]) == {path: copy}


def test_tables_nobody_has_any_more_are_named(moved: Path):
    """A table the revision had and that cannot be had is no missing one: that would look like a new table."""
    shutil.rmtree(moved / ".dvc" / "cache")
    with pytest.raises(TableError, match=r"fixtures/alpha/render/reference\.parquet cannot be had as it was at HEAD~1"):
        tables_at(moved, "HEAD~1", ["fixtures/alpha/render/reference.parquet"])


def test_unknown_revisions_and_folders_without_git_are_named(moved: Path, tmp_path: Path):
    """No verdict, and what to name."""
    for root, revision in ((moved, "nosuch"), (tmp_path, "HEAD")):
        with pytest.raises(ParamsError) as caught:
            tables_at(root, revision, [])
        assert f"cannot be read at {revision!r}" in str(caught.value)


def test_a_table_of_another_form_is_named_with_its_revision(tmp_path: Path, own_cache: Path):
    """What was recorded in another schema version cannot be compared."""
    root = repository(tmp_path, [claim("render/s/a")], [])
    old = pa.schema(list(REFERENCE), metadata={"schema_version": "1"})
    with TableWriter(reference_table(root, SLUG, "render"), old):
        pass
    commit(root)
    write_claims(root, SLUG, "render", [claim("render/s/a")])
    with pytest.raises(TableError, match=r"fixtures/alpha/render/reference\.parquet at HEAD: .*found 1"):
        ask(root, "drift", "HEAD")


def test_a_table_that_is_new_has_no_rows_before(tmp_path: Path, own_cache: Path):
    """All of its answers appeared."""
    root = repository(tmp_path, [claim("render/s/a")], [heard("render/s/a", OLD), heard("render/s/a", NEW)])
    new = witness_table(root, NEW, SLUG)
    content = new.read_bytes()
    new.unlink()
    commit(root)
    new.write_bytes(content)
    rows = [row for row in ask(root, "drift", "HEAD") if row["subject"] == NEW]
    assert columns(rows, "what", "cases") == [("appeared", 1)]
