"""The graph end to end: a miniature checkout with two real checkpoints under DVC, recorded, changed, recorded again."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from support import ROOT, miniature

SLUGS = ["smollm2-135m-instruct", "qwen3-8b"]
pytestmark = pytest.mark.xdist_group("pipeline")  # one miniature for all tests of this file
STAGES = ("fixtures/dvc.yaml:inputs", "record")
"""Stages of each checkpoint, as DVC names them from the root."""
LOCKS = ("dvc.lock", "fixtures/dvc.lock")


def dvc(project: Path, *arguments: str) -> subprocess.CompletedProcess:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return subprocess.run(
        [sys.executable, "-m", "dvc", *arguments],
        cwd=project,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PATH": path},
    )


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """The real dvc.yaml and code over two checkpoints and the hand-written corpus, recorded once."""
    root = miniature(tmp_path_factory.mktemp("pipeline"), SLUGS)
    shutil.rmtree(root / "corpus" / "imported")
    for slug in SLUGS:
        shutil.rmtree(root / "fixtures" / slug / "inputs")
    for name in ("stages", "queries"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__", "reports", "*.egg-info"))
    shutil.copytree(ROOT / "stages/bellwether/reports", root / "stages/bellwether/reports", dirs_exist_ok=True)
    shutil.copytree(ROOT / "corpus" / "patterns", root / "corpus" / "patterns")
    shutil.copy(ROOT / ".dvcignore", root)
    graph = yaml.safe_load((ROOT / "dvc.yaml").read_text("utf-8"))
    _shrink(graph["stages"])
    (root / "dvc.yaml").write_text(yaml.safe_dump(graph, sort_keys=False), "utf-8")
    shutil.copy(ROOT / "fixtures" / "dvc.yaml", root / "fixtures")
    assert dvc(root, "init", "--no-scm", "-q").returncode == 0
    done = dvc(root, "repro", "--keep-going")
    assert done.returncode == 0, done.stdout + done.stderr
    return root


def _shrink(stages: dict) -> None:
    """Take out what is not in the miniature: the other checkpoints."""
    kept = (*SLUGS, "second-references", "second-references.toml")
    for stage in stages.values():
        body = stage.get("do", stage)
        body["deps"] = [
            dep for dep in body["deps"] if not dep.startswith("fixtures/") or "$" in dep or dep.split("/")[1] in kept
        ]


def test_unchanged_checkout_has_nothing_to_do(project):
    """A second run runs no stage and leaves each dvc.lock as it is."""
    locks = [(project / name).read_bytes() for name in LOCKS]
    done = dvc(project, "repro", "--keep-going")
    assert done.returncode == 0
    assert "Running stage" not in done.stdout
    assert [(project / name).read_bytes() for name in LOCKS] == locks


def test_recording_again_gives_the_same_lock(project):
    """Without any cached result, the same inputs give the same bytes: every md5 of a dvc.lock comes out again."""
    locks = [(project / name).read_bytes() for name in LOCKS]
    done = dvc(project, "repro", "--force", "--no-run-cache")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [(project / name).read_bytes() for name in LOCKS] == locks


def test_changed_pin_makes_exactly_its_checkpoint_stale_and_recording_refuses(project, tmp_path):
    """One sha256 of one manifest: both stages of that checkpoint are stale, and the report of pins; nothing is
    recorded."""
    root = tmp_path / "copy"
    shutil.copytree(project, root, symlinks=True)
    manifest = root / "fixtures" / SLUGS[0] / "manifest.toml"
    text = manifest.read_text("utf-8")
    pin = re.search(r'^"tokenizer\.json" = "([0-9a-f]{64})"$', text, re.MULTILINE).group(1)
    manifest.write_text(text.replace(pin, "0" * 64), "utf-8")

    stale = json.loads(dvc(root, "status", "--json").stdout)
    assert set(stale) == {f"{stage}@{SLUGS[0]}" for stage in STAGES} | {"report"}

    done = subprocess.run(
        [sys.executable, "-m", "bellwether", "record", SLUGS[0]], cwd=root, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert f"tokenizer.json: expected sha256 {'0' * 64}, got {pin}" in done.stderr

    repro = dvc(root, "repro", "--keep-going")
    assert repro.returncode != 0
    assert f"{SLUGS[0]}/tokenizer.json: no route gives the pinned bytes" in repro.stderr + repro.stdout
    assert f"record@{SLUGS[1]}" not in [
        line.split("'")[1] for line in repro.stdout.splitlines() if line.startswith("Running stage")
    ]


def test_new_case_makes_recordings_stale_and_inputs_not(project, tmp_path):
    """A line added to the hand-written corpus goes through import to every recorder, and to no oracle input."""
    root = tmp_path / "copy"
    shutil.copytree(project, root, symlinks=True)
    with (root / "corpus/handmade/tokenize.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"set": "common", "name": "one-more", "text": "one more", "notes": "A line added by a test."}\n')
    assert set(json.loads(dvc(root, "status", "--json").stdout)) == {"import@handmade"}
    done = dvc(root, "repro", "--keep-going")
    assert done.returncode == 0, done.stdout + done.stderr
    ran = {line.split("'")[1] for line in done.stdout.splitlines() if line.startswith("Running stage")}
    recorders = {f"{stage}@{slug}" for stage in STAGES[1:] for slug in SLUGS}
    # Render and parse tables come out as they were, so nothing after them would run for their sake.
    assert ran == {"import@handmade", "report"} | recorders


def test_push_leaves_the_files_of_vendors_out(project, tmp_path):
    """A remote gets tables and provenance; tokenizers and templates stay on the machine that laid them out."""
    root, remote = tmp_path / "copy", tmp_path / "remote"
    shutil.copytree(project, root, symlinks=True)
    assert dvc(root, "remote", "add", "--default", "shared", str(remote)).returncode == 0
    done = dvc(root, "push")
    assert done.returncode == 0, done.stderr
    pushed = {path.read_bytes() for path in remote.rglob("*") if path.is_file()}
    tables = {path.read_bytes() for path in root.glob("fixtures/*/*/reference.parquet")}
    vendor = {path.read_bytes() for path in root.glob("fixtures/*/inputs/*")}
    assert tables <= pushed
    assert vendor.isdisjoint(pushed)
