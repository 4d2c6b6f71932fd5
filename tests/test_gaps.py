"""The stored registries against the packages: made again, compared, and what a difference is called."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from bellwether import gaps
from bellwether.errors import Finding, MaterialError, ParamsError, TableError
from bellwether.registries import gateway, listed
from bellwether.registries.listed import Part
from registries.test_listed import SMALL
from support import ROOT, package

VERSION = "1.13.0"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The real pins, and the stored list and answers."""
    (tmp_path / "fixtures").mkdir()
    for name in ("packages.toml", "registries.toml"):
        shutil.copy(ROOT / "fixtures" / name, tmp_path / "fixtures")
    shutil.copytree(ROOT / "fixtures" / "registries", tmp_path / "fixtures" / "registries")
    for name in ("vllm", "sglang", "smg"):
        package(name)
    return tmp_path


def test_the_list_in_git_is_what_the_packages_register(checkout: Path):
    """And what is written again is the same to the byte."""
    gaps.check(checkout, ask_gateway=False)
    before = listed.path(checkout).read_bytes()
    listed.path(checkout).unlink()
    gaps.refresh(checkout, ask_gateway=False)
    assert listed.path(checkout).read_bytes() == before


def test_a_changed_list_is_a_finding(checkout: Path):
    """With the name that moved, and nothing written."""
    text = listed.path(checkout).read_text("utf-8").replace('"name": "hermes"', '"name": "hermes2"', 1)
    listed.path(checkout).write_text(text, "utf-8")
    with pytest.raises(Finding, match="vllm tool hermes: is not in the list") as raised:
        gaps.check(checkout, ask_gateway=False)
    assert "vllm tool hermes2: is no longer registered" in str(raised.value)
    assert listed.path(checkout).read_text("utf-8") == text


def test_another_order_is_a_finding(checkout: Path):
    """The order is the systems' own."""
    header, *lines = listed.path(checkout).read_text("utf-8").splitlines()
    listed.path(checkout).write_text("\n".join([header, *sorted(lines)]) + "\n", "utf-8")
    with pytest.raises(Finding, match="another way or order"):
        gaps.check(checkout, ask_gateway=False)


def test_a_gateway_that_said_something_else_is_a_finding(checkout: Path):
    """A parser the source registers and the program refused."""
    path = gateway.path(checkout, VERSION)
    path.write_text(path.read_text("utf-8").replace('"qwen_xml"', '"qwen_xmi"'), "utf-8")
    with pytest.raises(Finding, match="tool parser qwen_xml: in the source, not accepted"):
        gaps.check(checkout, ask_gateway=False)


def test_a_gateway_that_was_never_asked_is_an_error(checkout: Path):
    """The text alone is no proof of what the program does."""
    gateway.path(checkout, VERSION).unlink()
    with pytest.raises(TableError, match=r"smg-1\.13\.0\.json does not exist"):
        gaps.check(checkout, ask_gateway=False)


def test_a_running_gateway_that_differs_from_its_source_writes_nothing(checkout: Path, monkeypatch: pytest.MonkeyPatch):
    """Neither file is touched: one of the two is read wrong."""
    said = gateway.read(checkout, VERSION)
    other = replace(said, accepted={**said.accepted, "tool": said.accepted["tool"][1:]})
    monkeypatch.setattr(gateway, "ask", lambda version: other)
    before = {path.name: path.read_bytes() for path in listed.path(checkout).parent.iterdir()}
    with pytest.raises(Finding, match="the running gateway differs from its source in 1 places"):
        gaps.refresh(checkout, ask_gateway=True)
    assert {path.name: path.read_bytes() for path in listed.path(checkout).parent.iterdir()} == before


def test_a_running_gateway_that_says_something_new_is_a_finding(checkout: Path, monkeypatch: pytest.MonkeyPatch):
    """Compared with what it said when it was asked first."""
    said = gateway.read(checkout, VERSION)
    monkeypatch.setattr(gateway, "ask", lambda version: said)
    gaps.check(checkout, ask_gateway=True)
    monkeypatch.setattr(gateway, "ask", lambda version: replace(said, refused={}))
    with pytest.raises(Finding, match="a running gateway says something else"):
        gaps.check(checkout, ask_gateway=True)


@pytest.mark.parametrize(
    ("old", "new", "kind", "told"),
    [
        ("[smg", "[other", ParamsError, "package of smg is not pinned"),
        ('package = "smg"', 'package = "other"', ParamsError, "package of smg is not pinned"),
        ("crates/tool_parser/src/factory.rs", "crates/tool_parser/src/gone.rs", MaterialError, "has no smg-1.13.0/"),
    ],
)
def test_pins_that_do_not_fit_are_an_error(checkout: Path, old: str, new: str, kind: type, told: str):
    """A registry that is not read is no empty one."""
    path = checkout / "fixtures" / "registries.toml"
    path.write_text(path.read_text("utf-8").replace(old, new), "utf-8")
    with pytest.raises(kind, match=told):
        gaps.refresh(checkout, ask_gateway=False)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"parts": SMALL.parts[1:]}, ["vllm tool p-vllm: is no longer registered"]),
        (
            {"parts": (*SMALL.parts, Part("tool", "smg", "new", "m:C"))},
            ["smg tool new: is not in the list"],
        ),
        (
            {"parts": (Part("tool", "vllm", "p-vllm", "m:D"), *SMALL.parts[1:])},
            ["vllm tool p-vllm: is m:C in the list, and m:D in the package"],
        ),
        ({"patterns": {}}, ["the patterns of model names are others"]),
        ({"left_out": {}}, ["other names are left out"]),
        ({}, []),
    ],
)
def test_differences_are_sentences(change: dict, told: list[str]):
    """One per name."""
    assert gaps.differences(SMALL, replace(SMALL, **change)) == told


def test_another_archive_is_a_difference():
    """Though it registers the same."""
    systems = {**SMALL.systems, "vllm": {**SMALL.systems["vllm"], "version": "2"}}
    (told,) = gaps.differences(SMALL, replace(SMALL, systems=systems))
    assert told.startswith("vllm: ")
