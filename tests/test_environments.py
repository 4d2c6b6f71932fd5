"""Environments: pinned, built once, whole or not at all. Packages come from a folder, as a mirror would give them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner

from bellwether import environments
from bellwether.building import pip
from bellwether.cli import cli
from bellwether.environments import (
    build,
    environment,
    normal_name,
    plan,
    read_blocks,
    read_requirements,
    requirements_file,
    wheels_folder,
)
from bellwether.errors import MaterialError, VersionMismatch
from bellwether.reports import environments as listing
from wheel_files import wheel

PINNED = "# For tests. Downloads nothing.\nToy.Package==1.0\n"


@pytest.fixture
def registry(tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The environments folder of a checkout with `toy`, and a folder of wheels as pip's only source."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    wheel(wheels, "toy_package", "1.0")
    (tmp_path / "environments" / "toy").mkdir(parents=True)
    (tmp_path / "environments" / "toy" / "requirements.txt").write_text(PINNED)
    monkeypatch.setattr(environments, "ENVIRONMENTS", tmp_path / "environments")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    return tmp_path


def pin(registry: Path, text: str, name: str = "toy") -> None:
    folder = registry / "environments" / name
    folder.mkdir(exist_ok=True)
    (folder / "requirements.txt").write_text(text)


def test_an_environment_is_built_once_and_has_what_is_pinned(registry: Path) -> None:
    """It is said what is downloaded, and what came of it; dependencies nobody pinned are not installed."""
    said: list[str] = []
    built = environment("toy", said.append)
    assert environment("toy", said.append) == built
    assert said[0] == "building the environment toy, 1 packages: For tests. Downloads nothing."
    assert len(said) == 2 and said[1].startswith("toy is built: ")
    assert built.versions == {"toy-package": "1.0"}
    code = "import toy_package, sys; print(toy_package.VALUE, sys.prefix != sys.base_prefix)"
    run = subprocess.run([built.python, "-c", code], capture_output=True, text=True)
    assert (run.stdout, run.stderr) == ("1 True\n", "")
    assert (built.packages / "toy_package.py").is_file()
    assert not (built.packages / "pip").exists()


def test_another_pin_is_another_folder(registry: Path) -> None:
    """The folder is named by the sha256 of the pins: an old environment never passes for a new one."""
    first = environment("toy", print)
    wheel(registry / "wheels", "toy_package", "2.0")
    pin(registry, PINNED.replace("1.0", "2.0"))
    second = environment("toy", print)
    assert second.python != first.python
    assert second.versions == {"toy-package": "2.0"}
    pin(registry, PINNED)
    assert environment("toy", print) == first
    # what is said beside the pins is none
    pin(registry, PINNED.replace("For tests", "For other tests") + "\n# The end.\n")
    assert environment("toy", print) == first


def test_concurrent_builders_wait_for_one(registry: Path) -> None:
    """Four at once, one build."""
    said: list[str] = []
    with ThreadPoolExecutor(4) as pool:
        built = list(pool.map(lambda _: environment("toy", said.append), range(4)))
    assert [line for line in said if line.startswith("building")] == said[:1]
    assert built == built[:1] * 4


def test_a_build_that_fails_leaves_nothing_and_says_what_to_do(registry: Path) -> None:
    """No source has the package: as without a network."""
    pin(registry, PINNED + "absent-package==1.0\n")
    with pytest.raises(MaterialError, match=r"environment toy cannot be built: .*absent-package==1\.0") as error:
        environment("toy", print)
    assert "registry or a mirror" in error.value.next_step
    assert not list((registry / "cache" / "environments").glob("toy-*"))
    pin(registry, PINNED)
    assert environment("toy", print).versions == {"toy-package": "1.0"}


def test_the_rest_of_an_interrupted_build_is_not_used(registry: Path) -> None:
    """Without its mark a folder is built again from nothing."""
    built = environment("toy", print)
    folder = built.python.parents[1]
    (folder / environments.READY).unlink()
    (built.packages / "toy_package.py").write_text("VALUE = 'half'")
    said: list[str] = []
    environment("toy", said.append)
    assert said[0].startswith("building")
    assert (built.packages / "toy_package.py").read_text() == "VALUE = 1\n"


def test_an_interrupt_leaves_nothing_but_what_was_fetched(registry: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while pip installs."""
    run = pip.run

    def interrupted(arguments: list[str], *others: object) -> None:
        if "install" in arguments:
            raise KeyboardInterrupt
        run(arguments, *others)

    monkeypatch.setattr(pip, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        environment("toy", print)
    assert not plan("toy").folder.exists()
    assert [path.name for path in wheels_folder().iterdir()] == ["toy_package-1.0-py3-none-any.whl"]


def test_a_killed_build_goes_on_with_what_it_had_fetched(registry: Path) -> None:
    """SIGKILL while the second block is fetched, from a source that never ends. The first block's source is gone by the
    next run, and not missed; the lock is free, the half-built folder is not used, the wheels go when all is built."""
    pin(registry, PINNED + "\nother==2.0\n")
    (registry / "wheels" / "pipe").mkdir()
    pipe = registry / "wheels" / "pipe" / "other-2.0-py3-none-any.whl"
    os.mkfifo(pipe)
    code = (
        "import sys; from pathlib import Path; from bellwether import environments\n"
        "environments.ENVIRONMENTS = Path(sys.argv[1]); environments.environment('toy')"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(registry / "environments")],
        env={**os.environ, "PIP_FIND_LINKS": f"{registry / 'wheels'} {registry / 'wheels' / 'pipe'}"},
        stderr=subprocess.DEVNULL,
    )
    first = wheels_folder() / "toy_package-1.0-py3-none-any.whl"
    _wait_until(first.is_file)
    process.send_signal(signal.SIGKILL)
    process.wait()
    pipe.unlink()
    (registry / "wheels" / "toy_package-1.0-py3-none-any.whl").unlink()
    wheel(registry / "wheels", "other", "2.0")
    built = environment("toy", print)
    assert built.versions == {"toy-package": "1.0", "other": "2.0"}
    assert (built.packages / "other.py").is_file() and (built.packages / "toy_package.py").is_file()
    assert not wheels_folder().exists()


def _wait_until(done: object) -> None:
    end = time.monotonic() + 60
    while not done():
        assert time.monotonic() < end, "nothing came of it within a minute"
        time.sleep(0.02)


def test_a_package_two_environments_pin_is_fetched_once(registry: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its wheel stays until the second is built, and no longer."""
    fetched, run = [], pip.run

    def watched(arguments: list[str], *others: object) -> None:
        fetched.extend(argument for argument in arguments if "==" in argument)
        run(arguments, *others)

    monkeypatch.setattr(pip, "run", watched)
    wheel(registry / "wheels", "other", "2.0")
    pin(registry, "# Second.\ntoy-package==1.0\nother==2.0\n", "second")
    build(["toy", "second", "toy"], print)
    assert fetched == ["toy-package==1.0", "other==2.0"]
    assert not wheels_folder().exists()


def test_large_files_of_two_environments_are_one(registry: Path) -> None:
    """Equal bytes at the same place; a small file, and one that differs, are files of their own."""
    wheel(registry / "wheels", "big", "1.0", "# " + "x" * (1 << 18) + "\n")
    wheel(registry / "wheels", "big", "2.0", "# " + "y" * (1 << 18) + "\n")
    pin(registry, "# First.\nbig==1.0\ntoy-package==1.0\n", "first")
    pin(registry, "# Second.\nbig==1.0\n", "second")
    pin(registry, "# Third.\nbig==2.0\ntoy-package==1.0\n", "third")
    first, second, third = build(["first", "second", "third"], print)
    assert (first.packages / "big.py").samefile(second.packages / "big.py")
    assert not (first.packages / "big.py").samefile(third.packages / "big.py")
    assert not (first.packages / "toy_package.py").samefile(third.packages / "toy_package.py")
    assert (third.packages / "big.py").read_text().startswith("# y")


CPU, ROCM = "cuda: str | None = None\nhip: str | None = None\n", "cuda = None\n"


@pytest.mark.parametrize("said", [CPU, ROCM])
def test_a_torch_for_cpus_is_taken(registry: Path, said: str) -> None:
    """torch/version.py of a build without CUDA says None, with a type or without. A local version is a pin, too."""
    wheel(registry / "wheels", "torch", "2.13.0+cpu", files={"torch/version.py": said})
    pin(registry, "# For tests.\ntorch==2.13.0+cpu\n")
    assert environment("toy", print).versions == {"torch": "2.13.0+cpu"}


@pytest.mark.parametrize("said", ["cuda: str | None = '13.0'\n", "cuda = '12.8'\n", "debug = False\n"])
def test_a_torch_for_cuda_is_refused(registry: Path, said: str) -> None:
    """Nor one that does not say. Nothing is left, and the sentence says what to do."""
    wheel(registry / "wheels", "torch", "2.13.0", files={"torch/version.py": said})
    pin(registry, "# For tests.\ntorch==2.13.0\n")
    with pytest.raises(MaterialError, match="CUDA") as error:
        environment("toy", print)
    assert "+cpu" in error.value.next_step and "pip's own settings" in error.value.next_step
    assert not plan("toy").folder.exists()


def test_without_a_source_of_the_cpu_build_the_next_step_names_one(registry: Path) -> None:
    """The registry has torch 2.13.0, the one for CUDA, and pip does not take it for 2.13.0+cpu."""
    wheel(registry / "wheels", "torch", "2.13.0", files={"torch/version.py": "cuda = '13.0'\n"})
    pin(registry, "# For tests.\ntorch==2.13.0+cpu\n")
    with pytest.raises(MaterialError, match=r"torch==2\.13\.0\+cpu") as error:
        environment("toy", print)
    assert "a source that has torch==2.13.0+cpu" in error.value.next_step
    assert "://" not in error.value.next_step


def test_prune_removes_what_it_names_and_is_part_of_the_key(registry: Path) -> None:
    """A file and a folder are left out; without prune.txt it is another environment."""
    files = {"toy/kernel.so": "k", "toy/test/one.py": "", "toy/__init__.py": ""}
    wheel(registry / "wheels", "toy", "1.0", files=files)
    pin(registry, "# For tests.\ntoy==1.0\n")
    whole = environment("toy", print)
    (registry / "environments" / "toy" / "prune.txt").write_text("# Not loaded.\ntoy/*.so\n\ntoy/test\n")
    built = environment("toy", print)
    assert built.folder != whole.folder
    assert (whole.packages / "toy" / "kernel.so").is_file()
    assert [path.name for path in (built.packages / "toy").glob("[!_]*")] == []
    assert (built.packages / "toy" / "__init__.py").is_file()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("toy_package/absent.so", "nothing is at"),
        ("../toy/x", "not below a package"),
        ("/etc/passwd", "not below a package"),
        ("toy_package.py", "not below a package"),
        ("*", "not below a package"),
    ],
)
def test_a_line_of_prune_that_names_nothing_or_too_much_is_an_error(registry: Path, line: str, says: str) -> None:
    """A whole package, what lies outside, or what another release had. No environment is left."""
    (registry / "environments" / "toy" / "prune.txt").write_text(f"# Not loaded.\n{line}\n")
    with pytest.raises(MaterialError, match=says) as error:
        environment("toy", print)
    assert "prune.txt:2:" in str(error.value)
    assert not list(environments.environments_folder().glob("toy-*"))


@pytest.mark.parametrize(("script", "compiled"), [("witness.py", False), ("encode.py", True)])
def test_what_runs_confined_is_compiled(registry: Path, script: str, compiled: bool) -> None:
    """It cannot write bytecode; an engine's environment is compiled by its first start, as far as it is imported."""
    (registry / "environments" / "toy" / script).write_text("")
    built = environment("toy", print)
    assert any(built.packages.glob("__pycache__/toy_package*")) is compiled


def test_the_list_says_what_is_built(registry: Path) -> None:
    """Built, not built, and the rest of a build; the package it is about; what is left of unfinished builds."""
    built = environment("toy", print)
    pin(registry, "# Later.\nother==2.0\ntorch==2.13.0+cpu\n", "later")
    pin(registry, "# Half.\ntoy-package==1.0\n", "half")
    plan("half").folder.mkdir()
    wheels_folder().mkdir()
    (wheels_folder() / "x.whl").write_bytes(b"x" * 2_000_000)
    former = built.folder.with_name("toy-0000000000000000-py3.11")
    former.mkdir()
    run = CliRunner().invoke(cli, ["env", "list"])
    lines = run.output.splitlines()
    version = ".".join(map(str, sys.version_info[:3]))
    words = {line.split()[0]: line.split()[1:] for line in lines if line}
    assert words["toy"][:2] == ["built", words["toy"][1]] and words["toy"][3:] == [version, "toy-package", "1.0"]
    assert words["later"] == ["not", "built", "other", "2.0,", "torch", "2.13.0+cpu"]
    assert words["half"][:1] == ["unfinished"]
    assert "downloads of unfinished builds 2 MB, kept until those are built" in lines
    assert f"  {former.name}" in lines


def test_shared_files_are_counted_once(registry: Path) -> None:
    """Two folders with one file between them take the space of one."""
    one, two = registry / "one", registry / "two"
    one.mkdir()
    two.mkdir()
    (one / "file").write_bytes(b"x" * 3_000_000)
    (two / "file").hardlink_to(one / "file")
    assert listing.megabytes([one, two]) == listing.megabytes([one]) == "3 MB"


def test_the_command_builds_what_it_names(registry: Path) -> None:
    """One by name, and none by another."""
    built = CliRunner().invoke(cli, ["env", "build", "toy"])
    assert (built.exit_code, f"toy: {plan('toy').folder}" in built.output) == (0, True)
    assert plan("toy").ready
    other = CliRunner().invoke(cli, ["env", "build", "toys"])
    assert (other.exit_code, "no environment 'toys'" in other.output) == (2, True)


def test_without_names_the_command_builds_what_the_engines_need(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of params.yaml that have an environment; vLLM's Rust front end is an executable and needs none."""
    asked: list[str] = []
    monkeypatch.setattr(environments, "build", lambda names: asked.extend(names) or [])
    assert CliRunner().invoke(cli, ["env", "build", "--root", str(root)]).exit_code == 0
    assert {"vllm-0.33.0", "sglang-0.5.23"} <= set(asked) <= set(environments.names())
    assert not any(name.startswith("vllm-rust") for name in asked)


def test_an_environment_whose_python_is_gone_is_built_again(registry: Path) -> None:
    """The system's Python was replaced by another: the link in the environment leads nowhere."""
    built = environment("toy", print)
    built.python.unlink()
    built.python.symlink_to("/nowhere/python")
    said: list[str] = []
    assert environment("toy", said.append).python.exists()
    assert said[0].startswith("building")


@pytest.mark.parametrize(
    ("version", "says"),
    [(None, "toy-package: expected 1.0, found nothing"), ("3.0", "toy-package: expected 1.0, found 3.0")],
)
def test_what_was_changed_afterwards_is_found(registry: Path, version: str | None, says: str) -> None:
    """Someone upgraded or removed a package by hand; the message says which folder to delete."""
    built = environment("toy", print)
    info = built.packages / "toy_package-1.0.dist-info"
    if version is None:
        (info / "METADATA").unlink()
        for path in sorted(info.iterdir()):
            path.unlink()
        info.rmdir()
    else:
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: toy_package\nVersion: {version}\n")
    with pytest.raises(VersionMismatch, match=says) as error:
        environment("toy", print)
    assert str(built.python.parents[1]) in error.value.next_step


def test_a_package_too_many_is_found(registry: Path) -> None:
    """It might be imported in the place of something."""
    built = environment("toy", print)
    (built.packages / "other-1.dist-info").mkdir()
    (built.packages / "other-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1\n")
    with pytest.raises(VersionMismatch, match="other: expected nothing, found 1"):
        environment("toy", print)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("requests", "'requests' is no pin"),
        ("requests>=2", "'requests>=2' is no pin"),
        ("requests==2.*", "'requests==2.*' is no pin"),
        ("requests==2 --hash=sha256:00", "is no pin"),
        ("--index-url https://example.org/simple", "is no pin"),
        ("-r other.txt", "is no pin"),
        ("requests @ https://example.org/requests.whl", "is no pin"),
        ("toy_package==1.0", "toy_package is pinned twice"),
    ],
)
def test_a_line_that_is_no_pin_is_an_error(registry: Path, line: str, says: str) -> None:
    """Only `name==version`: no range, no option, no address. File and line are named."""
    pin(registry, PINNED + line + "\n")
    with pytest.raises(MaterialError) as error:
        environment("toy", print)
    assert says in str(error.value) and "requirements.txt:3:" in str(error.value)


def test_an_unknown_environment_names_the_known_ones(registry: Path) -> None:
    """A misspelt name."""
    with pytest.raises(MaterialError, match="no environment 'toys'") as error:
        environment("toys", print)
    assert error.value.next_step == "Known: toy."


@pytest.mark.parametrize("name", ["Toy_Package", "toy.package", "TOY--package"])
def test_names_are_compared_in_normal_form(name: str) -> None:
    """Registries take `_`, `.` and `-` for one, and letters in either case."""
    assert normal_name(name) == "toy-package"


def test_blocks_are_what_empty_lines_divide(registry: Path) -> None:
    """Comments and repeated empty lines divide nothing; a package in two blocks is a repeat, and no pin is an error."""
    file = registry / "environments" / "toy" / "requirements.txt"
    file.write_text("# A\none==1\n# B\ntwo==2\n\n\n# C\nThree_3==3+cpu\n")
    assert read_blocks(file) == [{"one": "1", "two": "2"}, {"three-3": "3+cpu"}]
    file.write_text("one==1\n\none==1\n")
    with pytest.raises(MaterialError, match="pinned twice"):
        read_requirements(file)
    file.write_text("# nothing\n")
    with pytest.raises(MaterialError, match="pins nothing"):
        read_requirements(file)


@pytest.mark.parametrize("name", environments.names())
def test_the_requirement_files_are_pins_with_a_purpose(name: str) -> None:
    """Each begins with what it is for and how much it downloads, and holds no address."""
    file = requirements_file(name)
    first, *_ = file.read_text("utf-8").split("\n")
    assert first.startswith("# ") and "Downloads about" in first and first.endswith("MB.")
    assert "://" not in file.read_text("utf-8")
    assert read_requirements(file)


@pytest.mark.parametrize("name", [name for name in environments.names() if "torch" in plan(name).versions])
def test_torch_is_pinned_to_a_build_for_cpus(name: str) -> None:
    """By its local version, which no build for CUDA has; and it is fetched alone, for it is large."""
    assert plan(name).versions["torch"].endswith("+cpu")
    assert [block for block in read_blocks(requirements_file(name)) if "torch" in block] == [
        {"torch": plan(name).versions["torch"]}
    ]
