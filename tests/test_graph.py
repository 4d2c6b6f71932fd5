"""The DVC graph: code each stage runs is among its dependencies, and the lists agree with params.yaml."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from graphlib import TopologicalSorter
from itertools import permutations
from pathlib import Path

import pytest
import yaml

from bellwether.import_corpus import corpora
from bellwether.layout import RECORDED
from bellwether.record import TABLES
from bellwether.report import REPORTS
from bellwether.reports.database import STORED
from bellwether.witnesses.engines import ENGINES
from support import ROOT

INPUTS, WITNESSES, OBSERVATIONS = "fixtures", "fixtures/witnesses", "fixtures/observations"
FOLDERS = (".", INPUTS, WITNESSES, OBSERVATIONS)
GRAPHS = {folder: yaml.safe_load((ROOT / folder / "dvc.yaml").read_text("utf-8")) for folder in FOLDERS}
GRAPH = {name: stage for graph in GRAPHS.values() for name, stage in graph["stages"].items()}
PACKAGE = ROOT / "stages"

# Modules that cannot change what a stage writes: messages to people, errors, the command line, where downloads stay.
NO_PART = {
    "bellwether/__init__.py",
    "bellwether/cache.py",
    "bellwether/cli.py",
    "bellwether/errors.py",
    "bellwether/progress.py",
    "bellwether/corpora/__init__.py",
    "bellwether/materials/__init__.py",
    "bellwether/reports/__init__.py",
}
ENTRIES = {
    "import": ["bellwether.import_corpus"],
    "inputs": ["bellwether.inputs"],
    "second-references": ["bellwether.second_references"],
    "record": ["bellwether.record", *(table.oracle for table in TABLES.values())],
    "witness": ["bellwether.witness"],
    "observe": ["bellwether.observe"],
    "patterns": ["bellwether.patterns"],
    "report": ["bellwether.report"],
}
"""Stage → the modules its command runs; recorders load their oracle by name."""

# An importer's route to its archive: the archive's sha256 decides, so routes have no part in a corpus; nor has the way
# an environment is built, whose pins decide. Of the pins, the report needs only where tables lie.
BUILT = ("environments.py", "building/")
ROUTES = {
    "import": ("materials/", "params.py", "layout.py"),
    "record": BUILT,
    "witness": (*BUILT, "materials/"),
    "observe": (*BUILT, "materials/"),
    "second-references": ("materials/", "params.py", "layout.py", "whole.py"),
    "report": ("corpora/", "case.py", "params.py", "layout.py"),
}


def imports_of(module: str) -> set[str]:
    """Modules of the package that `module` imports, at the top or inside functions, and its parent packages."""
    path = file_of(module)
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    found = {package} if package else set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.startswith("bellwether") and file_of(name).is_file()}


def file_of(module: str) -> Path:
    path = PACKAGE / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def closure(modules: list[str]) -> set[str]:
    """Files that importing `modules` runs, relative to the source root."""
    todo, seen = list(modules), set()
    while todo:
        module = todo.pop()
        if module not in seen:
            seen.add(module)
            todo += imports_of(module)
    return {file_of(module).relative_to(PACKAGE).as_posix() for module in seen}


def code_dependencies(stage: str) -> set[str]:
    """Files among the stage's dependencies, relative to the source root; folders stand for what they hold."""
    body = GRAPH[stage].get("do", GRAPH[stage])
    listed = [dep for dep in body["deps"] if dep.startswith("stages/bellwether")]
    files = set()
    for dep in listed:
        path = ROOT / dep
        assert path.exists(), dep
        files |= {path} if path.is_file() else set(path.rglob("*.py"))
    return {path.relative_to(PACKAGE).as_posix() for path in files}


@pytest.mark.parametrize("stage", ENTRIES)
def test_code_a_stage_runs_is_a_dependency(stage):
    """DVC does not follow imports; a module that is not listed means outputs that are silently stale."""
    needed = {
        path
        for path in closure(ENTRIES[stage]) - NO_PART
        if not path.removeprefix("bellwether/").startswith(ROUTES.get(stage, ("nothing",)))
    }
    assert needed - code_dependencies(stage) == set()


def test_recorders_depend_on_nothing_else():
    """A module that a recorder does not run must not make its tables stale. Oracles are one folder: DVC's lock would
    grow by five lines a module and stage, and it is read and written whole for each stage."""
    extra = code_dependencies("record") - closure(ENTRIES["record"])
    assert {path for path in extra if not path.startswith("bellwether/oracles/")} == set()


def test_every_stage_is_known_here():
    """A new stage states what it runs."""
    assert set(GRAPH) == set(ENTRIES)


def test_corpora_in_params_are_the_ones_imported(params):
    """The list in params.yaml is the only switch; each name has pins or lines in Git, and an importer."""
    assert GRAPH["import"]["foreach"] == "${corpora}"
    assert set(params.corpora) <= set(corpora(ROOT))


@pytest.mark.parametrize("corpus", corpora(ROOT))
def test_code_of_every_importer_is_a_dependency(corpus):
    """The import stage loads its importer by name: what that runs is listed too, for corpora out of scope as well."""
    needed = {
        path
        for path in closure([f"bellwether.corpora.{corpus}"]) - NO_PART
        if not path.removeprefix("bellwether/").startswith(ROUTES["import"])
    }
    assert needed - code_dependencies("import") == set()


def test_stages_that_read_corpora_depend_on_all_of_them(params):
    """Each imported corpus of the scope is a dependency, by its own folder or by the one above."""
    for stage in ("record", "report"):
        body = GRAPH[stage].get("do", GRAPH[stage])
        deps = {dep for dep in body["deps"] if dep.startswith("corpus/")}
        assert deps in ({"corpus/imported"}, {f"corpus/imported/{corpus}" for corpus in params.corpora})


def test_report_depends_on_every_table(params):
    """The report of the scope reads every table of the scope."""
    tables = {f"fixtures/{slug}/materials.parquet" for slug in params.checkpoints}
    tables |= {f"fixtures/{slug}/{kind}/reference.parquet" for slug in params.checkpoints for kind in RECORDED}
    tables |= {path.relative_to(ROOT).as_posix() for path in (ROOT / "fixtures").glob("*/manifest.toml")}
    tables |= {f"{WITNESSES}/{name}" for name in params.engines} | {"fixtures/registries/registries.jsonl"}
    tables |= {f"{OBSERVATIONS}/{name}" for name in params.targets}
    listed = {dep for dep in GRAPH["report"]["deps"] if dep.startswith("fixtures/")}
    assert listed == tables, "under report in dvc.yaml: " + ", ".join(sorted(listed ^ tables))


def test_report_stores_its_queries():
    """Each stored query is a dependency, those they use and the reviewed lists too; its result is kept in Git."""
    read = {f"queries/{name}.sql" for name in (*REPORTS, *STORED)} | {"queries/waivers.toml", "queries/aliases.toml"}
    assert {dep for dep in GRAPH["report"]["deps"] if dep.startswith("queries/")} == read
    outs = {path: settings for out in GRAPH["report"]["outs"] for path, settings in out.items()}
    assert outs == {f"queries/reports/{name}.csv": {"cache": False} for name in REPORTS}


def test_every_stage_says_what_it_does():
    """`dvc stage list` shows one sentence per stage."""
    assert [name for name, stage in GRAPH.items() if not stage.get("do", stage).get("desc")] == []


def test_vendor_files_are_never_pushed():
    """Oracle inputs are laid out on each machine; no remote gets them."""
    outs = GRAPH["inputs"]["do"]["outs"]
    assert {"fixtures/${item}/inputs": {"push": False}} in outs


def test_lock_holds_the_pins_of_every_checkpoint(params):
    """The sha256 of every oracle input stands verbatim in a dvc.lock, for each stage that reads it."""
    lock = locked(".") | locked(INPUTS)
    for slug in params.checkpoints:
        path = f"fixtures/{slug}/manifest.toml"
        manifest = tomllib.loads((ROOT / path).read_text("utf-8"))
        for stage in ("inputs", "record"):
            pinned = lock[f"{stage}@{slug}"]["params"][path]
            pinned.pop("authority", None)  # which sources are recorded
            assert pinned == {"inputs": manifest["inputs"], "revision": manifest["revision"]}


def test_lock_holds_no_stage_that_is_gone(params):
    """DVC keeps the entry of a removed checkpoint; nobody else would notice."""
    expected = {f"import@{corpus}" for corpus in params.corpora} | {"second-references", "patterns", "report"}
    assert set(locked(".")) == expected | {f"record@{slug}" for slug in params.checkpoints}
    assert set(locked(INPUTS)) == {f"inputs@{slug}" for slug in params.checkpoints}
    assert set(locked(WITNESSES)) == {f"witness@{name}" for name in params.engines}
    assert set(locked(OBSERVATIONS)) == {f"observe@{name}" for name in params.targets}


def locked(folder: str) -> dict:
    return yaml.safe_load((ROOT / folder / "dvc.lock").read_text("utf-8"))["stages"]


def test_witnesses_depend_on_what_they_are_asked_from(params):
    """Inputs, manifest and references of each checkpoint, and all code that runs inside an engine's environment."""
    deps = GRAPH["witness"]["do"]["deps"]
    parts = ("manifest.toml", "inputs", *(f"{kind}/reference.parquet" for kind in RECORDED))
    of_checkpoints = {f"fixtures/{slug}/{part}" for slug in params.checkpoints for part in parts}
    assert {dep for dep in deps if dep.startswith("fixtures/")} == of_checkpoints
    assert {f"stages/environments/{name}" for name in params.engines} <= set(deps)
    shared = {f"stages/environments/{name}" for engine in params.engines for name in ENGINES[engine].shared}
    assert shared <= set(deps)


def test_what_make_calls_light_is_what_the_registry_of_engines_does(params):
    """`make repro-light` leaves out the engines that take minutes to install or to ask, and no other."""
    makefile = (ROOT / "Makefile").read_text("utf-8")
    listed = re.search(r"^LIGHT := \$\(filter (.*?),", makefile, re.MULTILINE)[1].split()
    assert listed == [name for name in params.engines if not ENGINES[name].heavy]


def test_dvc_finds_all_graphs_from_the_root(params):
    """A graph below a folder that DVC takes for ignored is not part of `dvc repro`, without a word."""
    listed = subprocess.run(
        [sys.executable, "-m", "dvc", "stage", "list", "--all", "--name-only"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert {f"{WITNESSES}/dvc.yaml:witness@{name}" for name in params.engines} <= set(listed)
    assert {f"{INPUTS}/dvc.yaml:inputs@{slug}" for slug in params.checkpoints} <= set(listed)


@pytest.fixture(scope="module")
def before() -> dict[str, set[str]]:
    """Stage → all stages it waits for."""
    said = subprocess.run(
        [sys.executable, "-m", "dvc", "dag", "--dot"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    waits: dict[str, set[str]] = {stage: set() for stage in re.findall(r'^\s*"([^"]+)";$', said, re.MULTILINE)}
    for earlier, later in re.findall(r'^\s*"([^"]+)" -> "([^"]+)";$', said, re.MULTILINE):
        waits[later].add(earlier)
    for stage in TopologicalSorter(waits).static_order():
        waits[stage] |= {further for one in waits[stage] for further in waits[one]}
    return waits


@pytest.fixture(scope="module")
def parts() -> list[list[str]]:
    """What `make repro` has several DVCs do: the stages of each, in the order in which make would start them alone."""
    said = subprocess.run(["make", "--dry-run", "all"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    commands = [line.split(" --single-item ")[1] for line in said.split("\n") if " --single-item " in line]
    return [command.split() for command in commands]


def test_make_reads_the_lists_of_params_however_they_are_written(tmp_path: Path):
    """Comments, quotes, empty lines, ends of lines; a list of one, and a light engine that is not in scope."""
    (tmp_path / "Makefile").write_bytes((ROOT / "Makefile").read_bytes())
    params = """checkpoints:  # first
- qwen3-8b  # one

  # none
engines:
  - "minijinja-3.1.0"
  - vllm-0.33.0

targets:
    - 'smg-1.13.0'
oracle:
  versions: {}
"""
    (tmp_path / "params.yaml").write_bytes(params.replace("\n", "\r\n").encode())
    said = subprocess.run(["make", "--dry-run", "all"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert [line.rpartition("--single-item ")[2] for line in said.splitlines() if "--single-item" in line] == [
        "fixtures/dvc.yaml:inputs@qwen3-8b record@qwen3-8b",
        "fixtures/observations/dvc.yaml:observe@smg-1.13.0",
        "fixtures/witnesses/dvc.yaml:witness@vllm-0.33.0",
        "fixtures/witnesses/dvc.yaml:witness@minijinja-3.1.0",
        "patterns",
    ]


def test_make_without_a_heavy_engine_or_a_gateway_names_no_part_of_none(tmp_path: Path):
    (tmp_path / "Makefile").write_bytes((ROOT / "Makefile").read_bytes())
    (tmp_path / "params.yaml").write_text("checkpoints:\n  - qwen3-8b\nengines:\n  - minijinja-3.1.0\ntargets:\n")
    said = subprocess.run(["make", "--dry-run", "all"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert re.findall(r"(?:witness|observe)@\S*", said) == ["witness@minijinja-3.1.0"]


def test_parts_of_make_are_every_stage_once_but_what_is_before_and_after_all(before, parts):
    """`sources` and the last DVC, which have no part beside them, do the rest."""
    named = [stage for part in parts for stage in part]
    assert len(named) == len(set(named))
    assert set(before) - set(named) == {"import@handmade", "import@bfcl", "second-references", "report"}


def test_stages_of_a_part_of_make_come_after_what_they_wait_for(before, parts):
    """With --single-item DVC takes stages as they come."""
    for part in parts:
        for place, stage in enumerate(part):
            assert not before[stage] & set(part[place:])


def test_parts_of_make_that_run_beside_each_other_do_not_wait_for_one_another(before, parts):
    """DVC fails a stage whose inputs another DVC writes. References are one round, what is asked from them another."""
    rounds = [[part for part in parts if ("record" in part[-1]) is first] for first in (True, False)]
    assert [len(each) for each in rounds] == [2, len(parts) - 2]
    for each in rounds:
        for part, other in permutations(each, 2):
            assert not any(before[stage] & set(other) for stage in part)
    later = {stage for part in rounds[1] for stage in part}
    assert not any(before[stage] & later for part in rounds[0] for stage in part)
