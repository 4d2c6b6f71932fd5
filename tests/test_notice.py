"""NOTICE: every dataset of the scope is named with its licence, and nothing out of scope is."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bellwether import notice
from bellwether.case import Case, Origin
from bellwether.cli import cli
from bellwether.corpora.sources import read_source
from bellwether.corpora.store import write_corpus
from bellwether.errors import TableError
from support import ROOT

REQUEST = '{"messages":[]}'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A checkout with real pins and made-up tables of four corpora, two of them in scope."""
    (tmp_path / "fixtures").mkdir()
    for corpus in ("handmade", "bfcl", "gsm8k", "shapes"):
        shutil.copytree(ROOT / "corpus" / corpus, tmp_path / "corpus" / corpus)
    bfcl, gsm8k = (read_source(ROOT / "corpus" / corpus) for corpus in ("bfcl", "gsm8k"))
    origins = {
        "handmade": Origin("handmade", "handmade", "corpus/handmade/render.jsonl", "", "Apache-2.0"),
        "bfcl": Origin("bfcl", bfcl.source, "a.json", "0" * 64, "Apache-2.0"),
        "gsm8k": Origin("gsm8k", gsm8k.source, "b.jsonl", "0" * 64, "MIT"),
        "shapes": Origin("shapes", "derived", "corpus/shapes/derived.toml", "", "Apache-2.0 AND MIT"),
    }
    for corpus, origin in origins.items():
        case = Case("render", corpus, corpus, origin, "0", request=REQUEST)
        if corpus == "shapes":
            case = replace(case, parts=((origins["bfcl"], "1"), (origins["gsm8k"], "2")))
        write_corpus([case], corpus, tmp_path / "corpus" / "imported" / corpus)
    scope(tmp_path, "handmade", "bfcl")
    return tmp_path


def scope(root: Path, *corpora: str) -> None:
    _, _, oracle = (ROOT / "params.yaml").read_text("utf-8").partition("oracle:")
    (root / "params.yaml").write_text(f"checkpoints: []\ncorpora: [{', '.join(corpora)}]\noracle:{oracle}", "utf-8")


def bellwether(root: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["notice", *arguments, "--root", str(root)])


def test_datasets_in_scope_are_named_and_no_others(project: Path):
    """Source, licence, authors and changes of each; hand-written cases are the project's own."""
    assert bellwether(project).exit_code == 0
    text = (project / "NOTICE").read_text("utf-8")
    source = read_source(ROOT / "corpus" / "bfcl")
    flat = " ".join(text.split())
    for said in (source.title, source.source, source.license, source.attribution, source.changes, source.homepage):
        assert " ".join(said.split()) in flat
    assert "LICENSE.bfcl" in text and "1 render cases" in text
    assert "gsm8k" not in text
    assert max(map(len, text.splitlines())) <= notice.WIDTH


def test_derived_corpus_names_all_it_is_made_of(project: Path):
    """Its licence is the sum of its parts', each part with its own terms and authors."""
    scope(project, "shapes")
    text = notice.text(project)
    assert "Licence: Apache-2.0 AND MIT\n" in text
    assert "LICENSE.bfcl" in text and "LICENSE.gsm8k" in text and "OpenAI" in text


def test_same_tables_give_the_same_bytes(project: Path):
    """Writing again changes nothing, and the check is clean."""
    bellwether(project)
    before = (project / "NOTICE").read_bytes()
    bellwether(project)
    assert (project / "NOTICE").read_bytes() == before
    run = bellwether(project, "--check")
    assert (run.exit_code, run.stdout) == (0, "NOTICE names what the corpora hold\n")


@pytest.mark.parametrize("stale", ["changed", "missing", "another scope"])
def test_check_finds_a_notice_that_is_not_current(project: Path, stale: str):
    """Exit 1, the file stays as it is."""
    bellwether(project)
    if stale == "changed":
        (project / "NOTICE").write_text("none", "utf-8")
    elif stale == "missing":
        (project / "NOTICE").unlink()
    else:
        scope(project, "handmade", "bfcl", "gsm8k")
    before = [path.read_bytes() for path in project.glob("NOTICE")]
    run = bellwether(project, "--check")
    assert run.exit_code == 1
    assert "next:  Run `bellwether notice`." in run.stderr
    assert [path.read_bytes() for path in project.glob("NOTICE")] == before


def test_tables_of_other_pins_are_no_basis(project: Path):
    """A pin that moved since the import would put the wrong release into the notice."""
    path = project / "corpus" / "bfcl" / "source.toml"
    path.write_text(path.read_text("utf-8").replace("==2026.3.23", "==2027.1.1"), "utf-8")
    with pytest.raises(TableError, match=r"imported from pypi:bfcl-eval==2026\.3\.23, and Git pins pypi") as caught:
        notice.main(project)
    assert "dvc repro import@bfcl" in caught.value.next_step


def test_corpus_that_is_not_imported_is_no_verdict(project: Path):
    """Exit 2 names the table."""
    shutil.rmtree(project / "corpus" / "imported" / "bfcl")
    run = bellwether(project, "--check")
    assert run.exit_code == 2
    assert "bfcl/origins.parquet does not exist" in run.stderr


def test_notice_of_the_project_names_the_default_scope(params):
    """Without any table: NOTICE in Git has the source and licence of each dataset in scope. That it is current to the
    byte is tested with the recorded tables."""
    text = (ROOT / "NOTICE").read_text("utf-8")
    for corpus in params.corpora:
        if (ROOT / "corpus" / corpus / "source.toml").is_file():
            source = read_source(ROOT / "corpus" / corpus)
            assert source.source in text and source.license in text
