"""The gap matrix as text for people and programs, over a checkout made by hand."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bellwether.cli import cli
from bellwether.registries import aliases, listed
from bellwether.registries.listed import Part, Registries
from bellwether.tables import PER_CORPUS, REFERENCE, TableWriter
from manifests import bare_manifest
from support import ROOT

PARAMS = """
checkpoints: [beta]
corpora: [toy]
oracle: {versions: {}, clock: "2026-01-15T12:00:00", other_clock: "2027-10-02T23:30:00", template_seconds: 20}
"""
ORIGIN = {"package": "pypi:p", "version": "9.1", "commit": "abc", "sha256": "0" * 64}
REGISTRIES = Registries(
    systems=dict.fromkeys(listed.ROLES, ORIGIN),
    patterns={"smg": {"tool": (("qwen*", "qwen"),)}},
    left_out={"smg-symphony": {"tool": ("plain",)}},
    parts=(
        Part("tool", "vllm", "hermes", "v:Hermes"),
        Part("tool", "vllm", "qwen3_json", "v:Hermes"),
        Part("tool", "vllm", "jamba", "v:Jamba"),
        Part("renderer", "vllm", "hf", "v:Hf"),
        Part("tokenizer", "vllm", "hf", "v:Hf"),
        Part("tool", "sglang", "hermes", "s:Hermes"),
        Part("tool", "smg", "qwen", "g:Qwen"),
        Part("renderer", "smg", "jinja", "g:Jinja"),
        Part("reasoning", "smg-symphony", "lfm2.5", "g:Lfm"),
    ),
)
ALIASES = """
[tool.vllm]
qwen3_json = { key = "hermes", reason = "One class." }
[tool.smg]
qwen = { key = "hermes", reason = "One format." }
[renderer.smg]
jinja = { key = "hf", reason = "The template." }
[renderer.source]
hf-template = { key = "hf", reason = "The template." }
[tokenizer.source]
hf-tokenizer = { key = "hf", reason = "One library." }
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """One checkpoint read by hermes, with one call recorded; its tokens are not."""
    root = tmp_path / "project"
    (root / "queries").mkdir(parents=True)
    (root / "params.yaml").write_text(PARAMS, "utf-8")
    for path in (ROOT / "queries").glob("*.sql"):
        shutil.copy(path, root / "queries" / path.name)
    aliases.path(root).write_text(ALIASES, "utf-8")
    bare_manifest(root, "beta")
    manifest = root / "fixtures" / "beta" / "manifest.toml"
    manifest.write_text(manifest.read_text("utf-8") + '[engines.vllm]\ntool_parser = "hermes"\n', "utf-8")
    listed.path(root).parent.mkdir(parents=True)
    listed.path(root).write_text(listed.render(REGISTRIES), "utf-8")
    for name, schema in PER_CORPUS.items():
        with TableWriter(root / "corpus" / "imported" / "toy" / f"{name}.parquet", schema) as table:
            table.write_rows([])
    row = {"checkpoint": "beta", "case_id": "parse/one/a", "kind": "parse", "source": "roundtrip", "outcome": "result"}
    row |= {"normalisation": "vllm", "tool_calls": [{"name": "f", "arguments": "{}"}]}
    with TableWriter(root / "fixtures" / "beta" / "parse" / "reference.parquet", REFERENCE) as table:
        table.write_rows([row])
    return root


def asked(root: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["gaps", "--root", str(root), *arguments])


def test_rows_for_programs(checkout: Path):
    """By hand: the whole matrix, its sources, and the lists by kind."""
    result = asked(checkout, "--format", "json")
    assert result.exit_code == 0, result.stderr
    value = json.loads(result.stdout)
    assert list(value) == [
        *("schema_version", "sources", "kinds", "engine_only", "smg_only", "engines_differ", "shared_impl"),
    ]
    assert value["schema_version"] == "1"
    assert list(value["sources"]) == ["vllm", "sglang", "smg", "smg-symphony"]
    assert value["sources"]["smg"]["commit"] == "abc"
    assert value["sources"]["smg"]["model_patterns"] == {"tool": [{"pattern": "qwen*", "parser": "qwen"}]}
    assert value["sources"]["smg-symphony"]["left_out"] == {"tool": ["plain"]}
    tool = value["kinds"]["tool"]
    assert tool["counts"]["names"] == {"vllm": 3, "sglang": 1, "smg": 1, "smg-symphony": 0}
    assert tool["counts"]["keys"] == 2
    assert tool["counts"]["status"] | {"covered": 0, "gateway_missing": 0} == dict.fromkeys(tool["counts"]["status"], 0)
    assert tool["rows"][0] == {
        "key": "hermes",
        "label": "hermes",
        "status": "covered",
        "cells": {
            "vllm": [{"name": "hermes", "impl": "v:Hermes"}, {"name": "qwen3_json", "impl": "v:Hermes"}],
            "sglang": [{"name": "hermes", "impl": "s:Hermes"}],
            "smg": [{"name": "qwen", "impl": "g:Qwen"}],
            "smg-symphony": [],
        },
        "fixtures": ["beta"],
        "cases": 1,
    }
    assert [row["status"] for kind in value["kinds"].values() for row in kind["rows"]] == [
        *("covered", "gateway_missing", "gateway_only", "engines_differ", "gateway_missing"),
    ]
    assert value["engine_only"] == {"tool": ["jamba"], "reasoning": [], "renderer": [], "tokenizer": ["hf"]}
    assert value["smg_only"] == {"tool": [], "reasoning": ["lfm25"], "renderer": [], "tokenizer": []}
    assert value["engines_differ"] == {"tool": ["jamba"], "reasoning": [], "renderer": ["hf"], "tokenizer": ["hf"]}
    assert value["shared_impl"] == [
        {"kind": "tool", "system": "vllm", "impl": "v:Hermes", "names": ["hermes", "qwen3_json"]}
    ]


def test_rows_for_people(checkout: Path):
    """Counts first, then a table per kind with what the gateway lacks on top."""
    result = asked(checkout)
    assert result.exit_code == 0, result.stderr
    lines = [" ".join(line.replace("|", " ").split()) for line in result.stdout.splitlines()]
    assert lines[0].startswith("Registered by vLLM 9.1, SGLang 9.1, SMG 9.1")
    assert "tool 3 1 1 0 2 1 0 0 0 1" in lines
    headings = [line for line in lines if line.startswith("## ")]
    assert headings == ["## tool", "## reasoning", "## renderer", "## tokenizer"]
    below = lines[lines.index("## tool") :]
    assert below[4:6] == ["jamba gateway_missing jamba 0", "hermes covered hermes, qwen3_json hermes qwen beta 1"]


def test_rows_as_csv_are_the_querys(checkout: Path):
    """Lists of names as JSON."""
    result = asked(checkout, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert [row["key"] for row in rows] == ["hermes", "jamba", "lfm25", "hf", "hf"]
    assert json.loads(rows[0]["sglang"]) == [{"name": "hermes", "implementation": "s:Hermes"}]
    assert (rows[0]["status"], rows[0]["cases"]) == ("covered", "1")


def test_tables_that_are_not_recorded_are_told(checkout: Path):
    """A case that is not there is not counted; the note says so, and is no part of the matrix."""
    result = asked(checkout, "--format", "json")
    assert "2 tables of the scope are not recorded" in result.stderr
    json.loads(result.stdout)


def test_a_list_that_is_not_there_has_no_verdict(checkout: Path):
    """Exit status 2 and a sentence."""
    listed.path(checkout).unlink()
    result = asked(checkout)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "registries.jsonl does not exist" in result.stderr
    assert "gaps --refresh" in result.stderr


def test_a_query_that_does_not_run_has_no_verdict(checkout: Path):
    """Exit status 2 and a sentence; so has one that is not there."""
    (checkout / "queries" / "gaps.sql").write_text("select nothing", "utf-8")
    result = asked(checkout)
    assert (result.exit_code, "queries/gaps.sql does not run" in result.stderr) == (2, True)
    (checkout / "queries" / "gaps.sql").unlink()
    result = asked(checkout)
    assert (result.exit_code, "there is no queries/gaps.sql" in result.stderr) == (2, True)


@pytest.mark.parametrize("arguments", [["--refresh", "--check"], ["--gateway"]])
def test_options_that_do_not_fit_are_refused(checkout: Path, arguments: list[str]):
    """Nothing is read or written."""
    assert asked(checkout, *arguments).exit_code == 2
