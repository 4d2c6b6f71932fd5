"""What can be observed: pins that are there, code that makes tables stale, and words for what cannot be had."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bellwether import observe
from bellwether.environments import ENVIRONMENTS
from bellwether.errors import ParamsError
from bellwether.gateways.openai import OpenAi
from bellwether.gateways.sglang import Sglang
from bellwether.gateways.smg import Smg
from bellwether.gateways.targets import LIVE, PINNED, Reach, Target, live_target, pinned_target
from bellwether.gateways.vllm import Vllm
from bellwether.params import Params
from support import ROOT
from test_graph import closure

ADAPTERS = {"smg": "bellwether.gateways.smg", "xllamacpp": "bellwether.gateways.llama_cpp"}
"""Gateway → the module that speaks to it."""

BY_VALUE = {
    *("cache.py", "environments.py", "errors.py", "layout.py", "params.py", "progress.py", "whole.py", "case.py"),
    *("gateways/targets.py", "witnesses/vllm_rust.py"),
}
"""Modules whose part in a table is in its key by value, or that only fetch, name or write. Of one, a function reads how
large a vocabulary is, from pinned files."""
FETCH = ("building/", "materials/")
REACH = Reach("http://127.0.0.1:9", {})

pinned = pytest.mark.parametrize("target", PINNED.values(), ids=list(PINNED))


def code_of(module: str) -> set[str]:
    """Return what importing a module runs, but for what has no part in a table or has it by value."""
    run = {path.removeprefix("bellwether/") for path in closure([module])}
    return {path for path in run - BY_VALUE if not path.startswith(FETCH) and not path.endswith("__init__.py")}


def in_rooms(path: str) -> bool:
    return path.partition("/")[0] in observe.ROOMS


# ── pinned ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pinned
def test_a_pinned_target_has_an_environment_that_pins_its_release(target: Target) -> None:
    """The package of the gateway's name, at the version the target says."""
    lines = (ENVIRONMENTS / target.folder / "requirements.txt").read_text("utf-8").splitlines()
    assert f"{target.gateway}=={target.version}" in lines
    assert all(re.match(r"#|[\w-]+==[\w.]+$", line) for line in lines)


@pinned
def test_a_pinned_target_is_named_by_gateway_and_release(target: Target) -> None:
    """Its name is its folder of tables, and the key by which it is found."""
    assert PINNED[target.name] is pinned_target(target.name) is target
    assert target.name.startswith(f"{target.gateway}-{target.version}")


@pinned
def test_code_that_has_a_part_in_a_table_is_in_its_key(target: Target) -> None:
    """All that speaking to the gateway runs, and nothing else: a change elsewhere makes no table stale."""
    package = Path(observe.__file__).parent
    assert [name for name in target.code if not (package / name).is_file()] == []
    needed = {path for path in code_of(ADAPTERS[target.gateway]) if not in_rooms(path)}
    assert set(target.code) == needed


def test_code_of_the_observer_is_in_every_key() -> None:
    """All that it runs beside adapters."""
    package = Path(observe.__file__).parent
    assert [name for name in observe.CODE if not (package / name).is_file()] == []
    needed = {path for path in code_of("bellwether.observe") if not in_rooms(path) and not path.startswith("gateways/")}
    assert set(observe.CODE) == needed
    assert all((package / room).is_dir() for room in observe.ROOMS)


def test_targets_in_the_scope_are_pinned(params: Params) -> None:
    """Each item of params.yaml can be started."""
    assert params.targets
    assert set(params.targets) <= PINNED.keys()
    assert len(set(params.targets)) == len(params.targets)


def test_a_gateways_name_alone_stands_for_its_newest_release() -> None:
    """By the numbers of its releases, with the parsers it has when nobody chooses."""
    versions = {target.version for target in PINNED.values() if target.gateway == "smg"}
    newest = max(versions, key=lambda version: [int(number) for number in version.split(".")])
    assert pinned_target("smg").name == f"smg-{newest}"


def test_symphony_is_another_target_that_only_reads() -> None:
    """Prompts and texts are the same process's, whoever reads answers: they are not observed twice."""
    plain, other = PINNED["smg-1.13.0"], PINNED["smg-1.13.0-symphony"]
    assert other.kinds == {"parse"} < plain.kinds
    assert (other.folder, other.gateway) == (plain.folder, plain.gateway)
    assert (other.start(ROOT).parser, plain.start(ROOT).parser) == ("symphony", "legacy")


def test_a_pinned_gateway_sees_the_clock_of_the_references(params: Params) -> None:
    """Prompts that show a date are then the same tomorrow."""
    assert {target.start(ROOT).facts["clock"] for target in PINNED.values()} == {params.clock.isoformat()}


def test_an_unknown_target_is_told_what_there_is() -> None:
    with pytest.raises(ParamsError, match="no pinned target 'smg-0'") as caught:
        pinned_target("smg-0")
    assert all(name in caught.value.next_step for name in PINNED)


# ── what runs already ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("kind", "adapter"), [("smg", Smg), ("openai", OpenAi), ("vllm", Vllm), ("sglang", Sglang)], ids=LIVE
)
def test_a_running_server_is_spoken_to_by_the_adapter_of_its_kind(kind: str, adapter: type) -> None:
    """It has no pins, and its tables bear the name it was given."""
    target = live_target(kind, "mine", REACH)
    assert type(target.start(ROOT)) is adapter
    assert (target.name, target.gateway, target.version, target.folder) == ("mine", kind, "", "")


def test_every_kind_of_server_has_an_adapter_and_no_other() -> None:
    """A pinned name is no kind."""
    for kind in LIVE:
        live_target(kind, kind, REACH)
    with pytest.raises(ParamsError, match=r"no adapter 'smg-1\.13\.0'") as caught:
        live_target("smg-1.13.0", "mine", REACH)
    assert all(kind in caught.value.next_step for kind in LIVE)


def test_how_a_running_gateway_finds_the_engine_is_what_was_said(tmp_path: Path) -> None:
    """A port and a wire of this process, or the two files of an engine elsewhere."""
    here = live_target("openai", "mine", Reach(REACH.url, {}, "http", 4711)).start(ROOT)
    assert (here.facts["engine"], here.facts["wire"]) == ("of this process", "http")
    assert here.kinds == {"parse"}
    files = Reach(REACH.url, {}, script=tmp_path / "script", capture=tmp_path / "capture")
    there = live_target("openai", "mine", files).start(ROOT)
    assert there.facts["engine"] == "elsewhere, known by its files"
    assert there.kinds == {"parse", "render"}


def test_parsers_of_a_running_smg_are_chosen() -> None:
    """And so is what its worker speaks."""
    gateway = live_target("smg", "mine", Reach(REACH.url, {}, "sglang"), "symphony").start(ROOT)
    assert (gateway.parser, gateway.facts["wire"]) == ("symphony", "sglang")
