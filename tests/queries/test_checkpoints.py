"""What is pinned and not recorded: the view `manifests`, its query, and the list below the count."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import duckdb
import pytest
from click.testing import CliRunner

from bellwether.cli import cli
from bellwether.errors import ParamsError
from bellwether.layout import RECORDED
from bellwether.params import read_params
from bellwether.reports.database import connect
from bellwether.reports.pinned import add_manifests
from bellwether.tables import REFERENCE, TableWriter
from support import ROOT

QUERIES = ROOT / "queries"
PARAMS = """
checkpoints: [whole, begun, lost]
corpora: []
oracle: {versions: {}, clock: "2026-01-15T12:00:00", other_clock: "2027-10-02T23:30:00", template_seconds: 20}
"""
PLANS = {"identical": "copy", "derived": "packed-ranks-to-json", "unproved": "literal"}


def pin(root: Path, slug: str, more: str = "", **files: str) -> None:
    """Write a manifest; each file is `hub`, without a plan, or has a proof and a plan."""
    inputs = "".join(f'"{name}.json" = "{"0" * 64}"\n' for name in files)
    plans = "".join(
        f'[files."{name}.json"]\nproof = "{proof}"\ntransform = "{PLANS[proof]}"\n'
        for name, proof in files.items()
        if proof != "hub"
    )
    path = root / "fixtures" / slug / "manifest.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f'model = "Owner/{slug}"\nrevision = "{"1" * 40}"\ntier = 2\nlicense = "MIT"\n{more}[authority]\n'
        f'render = ["hf-template"]\nparse = ["roundtrip"]\n[inputs]\n{inputs}{plans}',
        "utf-8",
    )


def record(root: Path, slug: str, *recorded: str) -> None:
    for name in recorded:
        with TableWriter(root / "fixtures" / slug / name / "reference.parquet", REFERENCE):
            pass


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Three checkpoints in scope, of which one is recorded, one has a table and one cannot be had; three outside."""
    (tmp_path / "params.yaml").write_text(PARAMS, "utf-8")
    shutil.copytree(QUERIES, tmp_path / "queries", ignore=shutil.ignore_patterns("reports"))
    pin(tmp_path, "whole", a="identical", b="derived", c="unproved", d="identical", e="hub")
    pin(tmp_path, "begun", a="identical")
    pin(tmp_path, "lost", a="hub", b="identical")
    pin(tmp_path, "brother", 'group = "whole"\n', a="hub")
    pin(tmp_path, "afar", "[unreached]\n", a="hub", b="hub", c="derived")
    pin(tmp_path, "next", a="derived")
    record(tmp_path, "whole", *RECORDED)
    record(tmp_path, "begun", "render")
    return tmp_path


def rows(root: Path) -> dict[str, dict[str, Any]]:
    """Checkpoint → its row of the stored query, in the query's order."""
    query = (root / "queries" / "checkpoints.sql").read_text("utf-8")
    result = connect(root, asked=query).connection.execute(query)
    names = [column[0] for column in result.description]
    return {row[0]: dict(zip(names, row, strict=True)) for row in result.fetchall()}


def test_every_pinned_checkpoint_has_one_row(project: Path):
    """Those in scope as params.yaml lists them, then the others by status and name."""
    found = rows(project)
    assert list(found) == ["whole", "begun", "lost", "brother", "next", "afar"]
    assert found["brother"] == {
        **{"checkpoint": "brother", "model": "Owner/brother", "revision": "1" * 40, "tier": 2, "license": "MIT"},
        **{"group_slug": "whole", "in_scope": False, "status": "member", "files": 1},
        **{"identical": 0, "derived": 0, "unproved": 0, "only_on_hub": 1, "missing": "a.json", "unreached": ""},
    }


def test_status_says_why_there_are_no_references(project: Path):
    """One table of three is not recorded; a file only the Hub has keeps a checkpoint out, in scope or not."""
    assert {slug: (row["status"], row["in_scope"]) for slug, row in rows(project).items()} == {
        "whole": ("recorded", True),
        "begun": ("pending", True),
        "lost": ("unavailable", True),
        "brother": ("member", False),
        "next": ("pending", False),
        "afar": ("unavailable", False),
    }


def test_tables_outside_the_scope_are_not_recorded(project: Path):
    """What no report reads is no recording: it may be of any age."""
    record(project, "next", *RECORDED)
    assert rows(project)["next"]["status"] == "pending"


def test_files_are_counted_by_proof_and_a_file_nobody_obtained_has_none(project: Path):
    """A file without a plan is pinned by the checkpoint's own sha256, and is not proved identical by that."""
    columns = ("files", "identical", "derived", "unproved", "only_on_hub", "missing")
    counts = {slug: tuple(row[name] for name in columns) for slug, row in rows(project).items()}
    assert counts["whole"] == (5, 2, 1, 1, 1, "e.json")
    assert counts["afar"] == (3, 0, 1, 0, 2, "a.json b.json")
    assert all(row[0] == sum(row[1:5]) for row in counts.values())


def test_known_copies_that_were_not_obtained_are_named(project: Path):
    """A derived file stands in for one whose sha256 is known."""
    pin(project, "next", f'[unreached]\n"a.json" = "{"2" * 64}"\n', a="derived")
    assert rows(project)["next"]["unreached"] == "a.json"


def test_the_view_answers_questions_of_its_own(project: Path):
    """Lists stay lists there."""
    connection = connect(project).connection
    query = "select checkpoint from manifests where list_contains(missing, 'b.json')"
    assert connection.execute(query).fetchall() == [("afar",)]


def test_a_malformed_manifest_outside_the_scope_is_named(project: Path):
    """Its row could not be right."""
    path = project / "fixtures" / "next" / "manifest.toml"
    path.write_text(path.read_text("utf-8").replace("tier", "teir"), "utf-8")
    with pytest.raises(ParamsError, match=r"next/manifest\.toml: unknown key 'teir'"):
        connect(project)


def test_count_lists_what_is_pinned_and_not_recorded(project: Path):
    """A line each, below the table; tables of the scope that are missing have the note they always had."""
    run = CliRunner().invoke(cli, ["count", "--root", str(project)])
    assert run.exit_code == 0
    table, listed = run.stdout.split("\n\n")
    assert table.startswith("| checkpoint ")
    assert listed == (
        "Pinned, not recorded:\n"
        "- afar: unavailable, 2 of 3 files only on the Hub: a.json, b.json\n"
        "- lost: unavailable, 1 of 2 files only on the Hub: a.json\n"
        "- next: pending, every file can be had: list it in params.yaml\n"
        "- brother: member, recorded as whole\n"
    )


def test_the_checkout_s_unavailable_checkpoints_have_rows(root: Path):
    """SmolLM3's template is at hand, its tokenizer is not: pinned, with what is missing."""
    result = connect_manifests(root)
    status, files, missing = result["smollm3-3b"]
    assert (status, files) == ("unavailable", 6)
    assert missing == ["special_tokens_map.json", "tokenizer.json", "tokenizer_config.json"]
    assert {status for status, _, _ in result.values()} <= {"recorded", "member", "unavailable", "pending"}
    assert len(result) >= 41


def connect_manifests(root: Path) -> dict[str, tuple[str, int, list[str]]]:
    """The view over the checkout's manifests alone, whatever state its tables are in."""
    connection = duckdb.connect()
    add_manifests(connection, root, read_params(root))
    found = connection.execute("select checkpoint, status, files, missing from manifests").fetchall()
    return {checkpoint: tuple(rest) for checkpoint, *rest in found}
