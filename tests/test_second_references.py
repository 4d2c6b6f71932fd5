"""Stage `second-references`: vLLM's example templates, pinned and laid out."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bellwether import second_references
from bellwether.errors import InputUnavailable, MaterialError, ParamsError, PinMismatch
from bellwether.materials.pins import sha256_of
from bellwether.params import read_packages, read_second_references
from support import ROOT

PINNED = {
    "apertus": "ae354cfceb68",
    "deepseekr1": "fe055ac311d9",
    "deepseekv3": "76233095fd64",
    "deepseekv31": "8b99b81c2f0d",
    "functiongemma": "9d60691c7f5e",
    "granite": "4ae5bbdb1511",
    "granite_20b_fc": "4bb42dac7699",
    "hermes": "9d08161b0665",
    "internlm2_tool": "e00f16381b76",
    "llama3.1_json": "8aedd05f7ab5",
    "llama3.2_json": "c22af47e53f4",
    "llama3.2_pythonic": "a4958a094209",
    "llama4_pythonic": "3fe950790d03",
    "mistral": "0121272d0fe4",
    "mistral_parallel": "0b4dd7ac0ba2",
    "toolace": "b9ded9033e0f",
    "xlam_llama": "777a5f5ca9ed",
    "xlam_qwen": "1d41a6a10697",
}
"""Template → the beginning of its sha256 as published for vLLM's commit db9527a4."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A checkout with the pins, and nothing laid out."""
    (tmp_path / "fixtures").mkdir()
    for name in ("packages.toml", "second-references.toml"):
        shutil.copy(ROOT / "fixtures" / name, tmp_path / "fixtures")
    return tmp_path


def change(project: Path, old: str, new: str) -> None:
    path = project / "fixtures" / "second-references.toml"
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), "utf-8")


def test_pins_are_the_published_ones():
    """18 templates, each with the sha256 it has at the commit whose documentation names it."""
    templates = read_second_references(ROOT)
    assert {name: template.sha256[:12] for name, template in templates.items()} == PINNED
    assert {template.vllm_commit for template in templates.values()} == {"db9527a46873454610df6dbedf79a36d6bf1a7f6"}
    assert {template.source.package for template in templates.values()} <= set(read_packages(ROOT))


@pytest.mark.parametrize(
    ("slug", "names"),
    [
        ("llama-3.1-8b-instruct", ["llama3.1_json"]),
        ("llama-3.2-1b-instruct", ["llama3.2_json", "llama3.2_pythonic"]),
        ("llama-3-8b-instruct", []),
        ("mistral-7b-instruct-v0.3", ["mistral", "mistral_parallel"]),
        ("deepseek-v3.1", ["deepseekv31"]),
        ("deepseek-v3-0324", ["deepseekv3"]),
        ("deepseek-v3", []),
        ("hermes-3-llama-3.1-8b", []),
    ],
)
def test_checkpoints_a_template_is_named_for(slug, names):
    """The documentation names some checkpoints one by one, and families of Llama by their beginning."""
    assert [name for name, template in read_second_references(ROOT).items() if template.serves(slug)] == names


def test_templates_are_laid_out(project):
    """One file per template, with the pinned bytes; a second run gives the same folder."""
    folder = project / "fixtures" / "second-references"
    for _ in range(2):
        assert second_references.main(project) == 18
        assert {path.stem: sha256_of(path.read_bytes())[:12] for path in folder.iterdir()} == PINNED


def test_other_bytes_than_pinned_are_refused(project):
    """Both sha256s are named, and no folder appears."""
    pin = read_second_references(ROOT)["hermes"].sha256
    change(project, pin, "0" * 64)
    with pytest.raises(PinMismatch, match=f"example chat template hermes: expected sha256 {'0' * 64}, got {pin}"):
        second_references.main(project)
    assert not (project / "fixtures" / "second-references").exists()


def test_member_that_is_not_there_is_named(project):
    """A wrong path inside the package."""
    change(project, "tool_chat_template_hermes.jinja", "nosuch.jinja")
    with pytest.raises(MaterialError, match=r"has no member .*nosuch\.jinja"):
        second_references.main(project)


def test_package_that_cannot_be_had_is_named(project):
    """The package is in no list: which template, and why."""
    change(project, 'source = "vllm:', 'source = "nobody:')
    with pytest.raises(InputUnavailable, match="template apertus cannot be obtained: package 'nobody' is not in"):
        second_references.main(project)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('vllm_commit = "db9527a46873454610df6dbedf79a36d6bf1a7f6"', 'vllm_commit = "main"', "vllm_commit is 'main'"),
        ('parser = "apertus"', "", "key 'parser' is missing"),
        ('parser = "apertus"', 'parser = "apertus"\nextra = 1', "unknown key 'extra'"),
        ('"deepseek-r1-0528"', '"DeepSeek-R1"', "'DeepSeek-R1' is no slug"),
        ('"llama-3.1-*"', '"*"', "'\\*' is no slug"),
        ('sha256 = "ae35', 'sha256 = "AE35', "is no sha256"),
        ('source = "vllm:', 'source = "vllm ', "has no ':'"),
    ],
)
def test_malformed_pins_are_errors(project, old, new, said):
    """Unknown, missing and malformed values are named."""
    change(project, old, new)
    with pytest.raises(ParamsError, match=said):
        read_second_references(project)
