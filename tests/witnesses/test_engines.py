"""The registry of engine releases, against the checkout: environments, scripts, params.yaml, manifests."""

from __future__ import annotations

import ast

import pytest

from bellwether.environments import ENVIRONMENTS as FOLDER
from bellwether.errors import ParamsError
from bellwether.params import ENGINES as SPOKEN_TO
from bellwether.params import Params, read_manifest, read_packages
from bellwether.witnesses.engines import ALL_KINDS, ENGINES, engine, options_of
from bellwether.witnesses.vllm_rust import read_executable
from support import ROOT

SLUGS = sorted(path.parent.name for path in (ROOT / "fixtures").glob("*/manifest.toml"))


def test_a_name_is_engine_and_version() -> None:
    """SQL joins on the two, folders and params.yaml on the one."""
    assert {name: (one.engine, one.version) for name, one in ENGINES.items()} == {
        "vllm-rust-0.33.0": ("vllm-rust", "0.33.0"),
        "minijinja-3.1.0": ("minijinja", "3.1.0"),
        "llama.cpp-b10775": ("llama.cpp", "b10775"),
        "vllm-0.33.0": ("vllm", "0.33.0"),
        "vllm-0.32.0": ("vllm", "0.32.0"),
        "sglang-0.5.23": ("sglang", "0.5.23"),
        "sglang-0.5.22": ("sglang", "0.5.22"),
    }
    assert {one.engine for one in ENGINES.values()} == set(SPOKEN_TO) - {"smg"}  # a gateway
    assert all(set(one.kinds) <= set(ALL_KINDS) for one in ENGINES.values())


def test_an_executable_is_of_the_release_it_goes_by() -> None:
    """The wheel it is taken from has the version."""
    for release in (one for one in ENGINES.values() if one.over_http):
        pin = read_executable(FOLDER / release.folder / "executable.toml")
        assert read_packages(ROOT)[pin.package].version == release.version


def test_params_name_releases_there_are(params: Params) -> None:
    """A misspelt release would be a stage that cannot run."""
    assert set(params.engines) <= set(ENGINES)


@pytest.mark.parametrize("name", [name for name, one in ENGINES.items() if not one.over_http])
def test_a_release_has_its_environment_and_a_script_that_keeps_the_contract(name: str) -> None:
    """`load(settings)` at the top of witness.py; the modules it shares are there. Nothing is imported."""
    release = ENGINES[name]
    assert (FOLDER / release.folder / "requirements.txt").is_file()
    tree = ast.parse((FOLDER / release.folder / "witness.py").read_text("utf-8"))
    [load] = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "load"]
    assert len(load.args.args) == 1
    assert all((FOLDER / name).is_file() for name in release.shared)
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    beside = {path.stem for path in FOLDER.glob("*.py")} - {"serve", "jail", "tether"}
    assert {f"{module}.py" for module in imported & beside} <= set(release.shared)


@pytest.mark.parametrize("slug", SLUGS)
def test_manifests_say_what_engines_understand(slug: str) -> None:
    """An option that no release of an engine has is a slip."""
    for name, table in read_manifest(ROOT, slug).engines.items():
        for release in (one for one in ENGINES.values() if one.engine == name):
            assert options_of(release, table, slug) == dict(table)


def test_an_unknown_release_is_told() -> None:
    """With those there are."""
    with pytest.raises(ParamsError, match=r"no engine release 'vllm-1\.0'") as caught:
        engine("vllm-1.0")
    assert "vllm-rust-0.33.0" in caught.value.next_step
