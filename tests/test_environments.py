"""Environments: pinned, built once, whole or not at all. Packages come from a folder, as a mirror would give them."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bellwether import environments
from bellwether.environments import environment, normal_name, read_requirements, requirements_file
from bellwether.errors import MaterialError, VersionMismatch

PINNED = "# For tests. Downloads nothing.\nToy.Package==1.0\n"


def wheel(folder: Path, name: str, version: str, code: str = "VALUE = 1\n") -> None:
    """Write a wheel with one module."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": code,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nRequires-Dist: absent\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = ""
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            record += f"{path},sha256={digest},{len(text)}\n"
        archive.writestr(f"{info}/RECORD", record + f"{info}/RECORD,,\n")


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


def pin(registry: Path, text: str) -> None:
    (registry / "environments" / "toy" / "requirements.txt").write_text(text)


def test_an_environment_is_built_once_and_has_what_is_pinned(registry: Path) -> None:
    """One progress line, with what is downloaded; dependencies nobody pinned are not installed."""
    said: list[str] = []
    built = environment("toy", said.append)
    assert environment("toy", said.append) == built
    assert said == ["building the environment toy, 1 packages: For tests. Downloads nothing."]
    assert built.versions == {"toy-package": "1.0"}
    code = "import toy_package, sys; print(toy_package.VALUE, sys.prefix != sys.base_prefix)"
    run = subprocess.run([built.python, "-c", code], capture_output=True, text=True)
    assert (run.stdout, run.stderr) == ("1 True\n", "")
    assert (built.packages / "toy_package.py").is_file()
    assert not (built.packages / "pip").exists()


def test_another_pin_is_another_folder(registry: Path) -> None:
    """The folder is named by the requirement file's sha256: an old environment never passes for a new one."""
    first = environment("toy", print)
    wheel(registry / "wheels", "toy_package", "2.0")
    pin(registry, PINNED.replace("1.0", "2.0"))
    second = environment("toy", print)
    assert second.python != first.python
    assert second.versions == {"toy-package": "2.0"}
    pin(registry, PINNED)
    assert environment("toy", print) == first


def test_concurrent_builders_wait_for_one(registry: Path) -> None:
    """Four at once, one build."""
    said: list[str] = []
    with ThreadPoolExecutor(4) as pool:
        built = list(pool.map(lambda _: environment("toy", said.append), range(4)))
    assert len(said) == 1 and built == built[:1] * 4


def test_a_build_that_fails_leaves_nothing_and_says_what_to_do(registry: Path) -> None:
    """No source has the package: as without a network."""
    pin(registry, PINNED + "absent-package==1.0\n")
    with pytest.raises(MaterialError, match=r"environment toy cannot be built: .*absent-package==1\.0") as error:
        environment("toy", print)
    assert "registry or a mirror" in error.value.next_step
    assert not list((registry / "cache" / "environments").glob("toy-*/*"))
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
    assert len(said) == 1
    assert (built.packages / "toy_package.py").read_text() == "VALUE = 1\n"


def test_an_interrupt_leaves_nothing(registry: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C between making the environment and filling it."""
    run, calls = environments._run, []

    def interrupted(command: list[str], name: str) -> None:
        calls.append(command)
        if len(calls) == 2:
            raise KeyboardInterrupt
        run(command, name)

    monkeypatch.setattr(environments, "_run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        environment("toy", print)
    assert not [path for path in (registry / "cache" / "environments").iterdir() if path.is_dir()]


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


@pytest.mark.parametrize("name", ["harmony", "mistral-common", "vendor-tokenizer"])
def test_the_requirement_files_are_pins_with_a_purpose(name: str) -> None:
    """Each begins with what it is for and how much it downloads, and holds no address."""
    file = requirements_file(name)
    first, *_ = file.read_text("utf-8").split("\n")
    assert first.startswith("# ") and "Downloads about" in first and first.endswith("MB.")
    assert "://" not in file.read_text("utf-8")
    assert read_requirements(file)


def test_a_build_has_a_time_limit(registry: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry that never answers."""
    monkeypatch.setattr(environments, "BUILD_SECONDS", 0.01)
    with pytest.raises(MaterialError, match="not finished within"):
        environments._run([sys.executable, "-c", "import time; time.sleep(60)"], "toy")
