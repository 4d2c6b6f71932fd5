"""Command `count`: printed, written into README.md, and checked against it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bellwether.cli import cli
from bellwether.layout import RECORDED
from bellwether.tables import MATERIALS, PER_CORPUS, REFERENCE, TableWriter
from manifests import bare_manifest

PARAMS = """
checkpoints: [alpha]
corpora: [toy]
oracle: {versions: {}, clock: "2026-01-15T12:00:00", other_clock: "2027-10-02T23:30:00", template_seconds: 20}
"""
QUERY = "select checkpoint, count(*) as cases from reference group by checkpoint"
README = "# Title\n\n<!-- count -->\n<!-- /count -->\n\nAfter é.\n"
TABLE = "| checkpoint   |   cases |\n|:-------------|--------:|\n| alpha        |   1,002 |"
WRITTEN = f"# Title\n\n<!-- count -->\n{TABLE}\n<!-- /count -->\n\nAfter é.\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A checkout with 1,002 references and a README whose markers have nothing between them."""
    (tmp_path / "params.yaml").write_text(PARAMS, "utf-8")
    bare_manifest(tmp_path, "alpha")
    (tmp_path / "README.md").write_text(README, "utf-8")
    (tmp_path / "queries").mkdir()
    (tmp_path / "queries" / "count.sql").write_text(QUERY, "utf-8")
    for name, schema in PER_CORPUS.items():
        with TableWriter(tmp_path / "corpus" / "imported" / "toy" / f"{name}.parquet", schema):
            pass
    with TableWriter(tmp_path / "fixtures" / "alpha" / "materials.parquet", MATERIALS):
        pass
    for recorded in RECORDED:
        record(tmp_path, recorded, 334)
    return tmp_path


def record(root: Path, recorded: str, rows: int) -> None:
    with TableWriter(root / "fixtures" / "alpha" / recorded / "reference.parquet", REFERENCE) as table:
        table.write_rows({"checkpoint": "alpha", "case_id": f"{recorded}/s/{number}"} for number in range(rows))


def bellwether(root: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["count", *arguments, "--root", str(root)])


def readme(root: Path) -> str:
    return (root / "README.md").read_bytes().decode()


def test_count_is_printed_and_nothing_is_written(project: Path):
    """Without an option the README stays as it is."""
    run = bellwether(project)
    assert (run.exit_code, run.stdout, run.stderr) == (0, TABLE + "\n", "")
    assert readme(project) == README


def test_readme_gets_the_table_between_its_markers(project: Path):
    """The rest of the file stays byte for byte, and writing again changes nothing."""
    run = bellwether(project, "--readme")
    assert (run.exit_code, run.stdout) == (0, TABLE + "\n")
    assert readme(project) == WRITTEN
    bellwether(project, "--readme")
    assert readme(project) == WRITTEN


def test_check_of_a_fresh_readme_is_clean(project: Path):
    """Exit 0 right after writing."""
    bellwether(project, "--readme")
    run = bellwether(project, "--check")
    assert (run.exit_code, run.stdout, run.stderr) == (0, "README.md holds the current count\n", "")


def test_check_of_an_old_readme_is_a_finding(project: Path):
    """Exit 1 once there are other references, and the README is not touched."""
    bellwether(project, "--readme")
    record(project, "parse", 400)
    run = bellwether(project, "--check")
    assert (run.exit_code, run.stdout) == (1, "")
    assert run.stderr == "error: README.md holds an old count\nnext:  Run `bellwether count --readme` and commit.\n"
    assert readme(project) == WRITTEN
    bellwether(project, "--readme")
    assert "1,068" in readme(project)
    assert bellwether(project, "--check").exit_code == 0


def no_markers(root: Path) -> None:
    (root / "README.md").write_text("# Title\n", "utf-8")


def no_readme(root: Path) -> None:
    (root / "README.md").unlink()


def no_table(root: Path) -> None:
    (root / "fixtures" / "alpha" / "tokens" / "reference.parquet").unlink()


def torn_table(root: Path) -> None:
    (root / "fixtures" / "alpha" / "tokens" / "reference.parquet").write_bytes(b"PAR1")


@pytest.mark.parametrize("option", ["--readme", "--check"])
@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        pytest.param(no_markers, "no <!-- count --> … <!-- /count -->", id="no markers"),
        pytest.param(no_readme, "README.md", id="no README"),
        pytest.param(
            no_table, "1 tables of the scope are missing: fixtures/alpha/tokens/reference.parquet", id="missing"
        ),
        pytest.param(torn_table, "fixtures/alpha/tokens/reference.parquet is no whole Parquet file", id="torn"),
    ],
)
def test_count_that_cannot_be_taken_is_no_verdict(project: Path, option: str, spoil: Callable[[Path], None], said: str):
    """Exit 2, not 1: nothing is known of the README. Nothing is written over a part of the tables."""
    spoil(project)
    before = readme(project) if (project / "README.md").exists() else None
    run = bellwether(project, option)
    assert (run.exit_code, run.stdout) == (2, "")
    assert said in run.stderr
    assert "\nnext:  " in run.stderr
    assert (readme(project) if (project / "README.md").exists() else None) == before


def test_count_over_a_part_says_so(project: Path):
    """Printed while recording is under way, the table comes with a note on standard error."""
    no_table(project)
    run = bellwether(project)
    assert run.exit_code == 0
    assert "|     668 |" in run.stdout
    assert run.stderr == "note: 1 tables of the scope are not recorded, e.g. fixtures/alpha/tokens/reference.parquet\n"


def test_line_ends_stay_lf(project: Path):
    """README.md is written with LF on every system."""
    (project / "README.md").write_bytes(README.replace("\n", "\r\n").encode())
    assert bellwether(project, "--readme").exit_code == 0
    assert readme(project) == WRITTEN
