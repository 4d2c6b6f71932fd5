"""What a manifest uses, and tables made of a checkout's registries, aliases and manifests."""

from __future__ import annotations

import shutil
from pathlib import Path

import duckdb
import pytest

from bellwether.errors import ParamsError, TableError
from bellwether.params import read_manifest, read_params
from bellwether.registries import aliases, listed
from bellwether.reports.gap_tables import add_registries, uses
from manifests import bare_manifest
from support import ROOT

PARAMS = """
checkpoints: [beta]
corpora: [toy]
oracle: {versions: {}, clock: "2026-01-15T12:00:00", other_clock: "2027-10-02T23:30:00", template_seconds: 20}
"""
ENGINES = """
[engines.vllm]
tool_parser = "hermes"
reasoning_parser = "qwen3"
[engines.vllm-rust]
reasoning_parser = "none"
[engines.sglang]
tool_parser = "qwen25"
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The real registries and aliases, with manifests of every source; only `beta` is in scope."""
    (tmp_path / "params.yaml").write_text(PARAMS, "utf-8")
    sources = ("hf-template", "vendor-code:harmony", "vendor-code:mistral-common")
    bare_manifest(tmp_path, "beta", render=sources[:1])
    bare_manifest(tmp_path, "alpha", render=(*sources, "vendor-code:deepseek-v4", "vendor-code:deepseek-v4.1"))
    for path in (listed.path(ROOT), aliases.path(ROOT)):
        copy = tmp_path / path.relative_to(ROOT)
        copy.parent.mkdir(exist_ok=True)
        shutil.copy(path, copy)
    return tmp_path


def with_engines(checkout: Path, text: str) -> Path:
    path = checkout / "fixtures" / "beta" / "manifest.toml"
    path.write_text(path.read_text("utf-8") + text, "utf-8")
    return checkout


def tables(checkout: Path) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    add_registries(connection, checkout, read_params(checkout))
    return connection


def test_what_a_checkpoint_uses(checkout: Path):
    """Parsers of the two engines whose registries are read, sources of prompts, and the one source of tokens."""
    assert uses(read_manifest(with_engines(checkout, ENGINES), "beta")) == [
        ("beta", "tool", "vllm", "hermes"),
        ("beta", "reasoning", "vllm", "qwen3"),
        ("beta", "tool", "sglang", "qwen25"),
        ("beta", "renderer", "source", "hf-template"),
        ("beta", "tokenizer", "source", "hf-tokenizer"),
    ]


def test_tables_hold_what_is_registered_and_what_the_scope_uses(checkout: Path):
    """58 tool parsers of vLLM 0.33.0; a checkpoint out of scope uses nothing."""
    connection = tables(with_engines(checkout, ENGINES))
    counted = "select role, version, count(*) from registry where system = 'vllm' and kind = 'tool' group by all"
    assert connection.execute(counted).fetchall() == [("engine", "0.33.0", 58)]
    assert connection.execute("select distinct checkpoint from uses").fetchall() == [("beta",)]
    told = "select key, reason <> '' from aliases where (kind, system, name) = ('tool', 'vllm', 'openai')"
    assert connection.execute(told).fetchall() == [("gptoss", True)]


def test_tables_are_made_again_over_old_ones(checkout: Path):
    """Whoever has them already may ask for them."""
    connection = tables(checkout)
    add_registries(connection, checkout, read_params(checkout))
    assert connection.execute("select count(*) from uses").fetchone() == (2,)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_parser_no_engine_registers_is_an_error(checkout: Path, engine: str):
    """A misspelt name would read as a parser without fixtures."""
    text = f'[engines.{engine}]\ntool_parser = "hermess"\n'
    with pytest.raises(ParamsError, match=f"beta/manifest.toml: {engine} registers no tool parser 'hermess'"):
        tables(with_engines(checkout, text))


def test_a_parser_of_the_other_kind_is_an_error(checkout: Path):
    """Names of the two kinds are apart."""
    with pytest.raises(ParamsError, match="vllm registers no reasoning parser 'hermes'"):
        tables(with_engines(checkout, '[engines.vllm]\nreasoning_parser = "hermes"\n'))


def test_no_stored_list_is_an_error(checkout: Path):
    """Never a matrix of nothing."""
    listed.path(checkout).unlink()
    with pytest.raises(TableError, match="does not exist"):
        tables(checkout)


def test_an_alias_of_a_source_no_manifest_has_is_an_error(checkout: Path):
    """It was meant for something."""
    shutil.rmtree(checkout / "fixtures" / "alpha")
    with pytest.raises(ParamsError, match="matches nothing"):
        tables(checkout)


def test_every_manifest_names_what_its_engine_registers():
    """Of the checkout under test."""
    tables(ROOT)
