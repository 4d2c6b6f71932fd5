"""Witness tables as people record them: a toy engine in real processes, a real checkpoint, hand-made cases."""

from __future__ import annotations

import functools
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import toy_engine
from bellwether import record, witness
from bellwether.cli import cli
from bellwether.errors import ParamsError, PinMismatch, TableError, WitnessError
from bellwether.layout import witness_table
from bellwether.tables import WITNESS
from bellwether.witnesses import engines, process
from processes import alive, children, wait_for
from support import ROOT, miniature
from test_graph import closure
from toy_engine import NAME, loads

SLUG, TWIN = "smollm2-135m-instruct", "twin"
PARSERS = '[engines.vllm]\ntool_parser = "hermes"\n'


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of one checkpoint with its references, and a second checkpoint with the same."""
    root = miniature(tmp_path_factory.mktemp("witness"), [SLUG])
    record.main(root, SLUG, 1)
    manifest = root / "fixtures" / SLUG / "manifest.toml"
    text = manifest.read_text("utf-8")
    manifest.write_text(text[: text.index("[engines")] + PARSERS + text[text.index("[inputs]") :], "utf-8")
    shutil.copytree(root / "fixtures" / SLUG, root / "fixtures" / TWIN)
    params = root / "params.yaml"
    params.write_text(params.read_text("utf-8").replace(f"[{SLUG}]", f"[{SLUG}, {TWIN}]"), "utf-8")
    return root


@pytest.fixture
def root(recorded: Path, tmp_path: Path) -> Path:
    """A copy of it to work in."""
    return shutil.copytree(recorded, tmp_path / "root")


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The toy engine, installed; its script."""
    return toy_engine.install(monkeypatch, tmp_path)


def rows(root: Path, slug: str = SLUG) -> list[dict]:
    table = pq.read_table(witness_table(root, NAME, slug))
    assert table.schema.equals(WITNESS)
    return table.to_pylist()


def provenance(root: Path, slug: str = SLUG) -> dict:
    return json.loads(witness_table(root, NAME, slug).with_suffix(".json").read_text("utf-8"))


def files(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in witness_table(root, NAME, SLUG).parent.iterdir()}


def tell(root: Path, acts: dict[str, str]) -> None:
    """Have the toy act at cases: the word stands in the case itself."""
    path = root / "corpus" / "imported" / "handmade" / "cases.parquet"
    table = pq.read_table(path)
    texts = [
        toy_engine.does(acts[row["case_id"]]) if row["case_id"] in acts else row["text"] for row in table.to_pylist()
    ]
    column = table.schema.get_field_index("text")
    pq.write_table(table.set_column(column, table.schema.field("text"), [texts]), path)


def tokenize_cases(root: Path) -> list[str]:
    path = root / "corpus" / "imported" / "handmade" / "cases.parquet"
    return [row["case_id"] for row in pq.read_table(path).to_pylist() if row["kind"] == "tokenize"]


def test_every_case_that_can_be_asked_has_its_row(root: Path, script: Path) -> None:
    """All kinds in one table, kind after kind, in case order; provenance says how many, and how they were asked."""
    [count] = witness.main(root, NAME, [SLUG])
    found = rows(root)
    assert {row["engine"] + " " + row["engine_version"] + " " + row["checkpoint"] for row in found} == {
        f"vllm 9.9 {SLUG}"
    }
    cases = pq.read_table(root / "corpus" / "imported" / "handmade" / "cases.parquet").to_pylist()
    of_kind = {
        kind: [case["case_id"] for case in cases if case["kind"] == kind]
        for kind in ("render", "parse", "tokenize", "detokenize")
    }
    asked = [row["case_id"] for row in found if row["mode"] == "one-shot"]
    places = {case: place for place, case in enumerate(case for kind in of_kind.values() for case in kind)}
    assert asked == sorted(asked, key=places.__getitem__)
    assert {*of_kind["render"], *of_kind["tokenize"]} <= set(asked)
    told = provenance(root)
    assert told["asked"] == Counter(row["kind"] for row in found if row["mode"] == "one-shot")
    assert told["options"] == {"tool_parser": "hermes"}
    assert told["facts"] == {"version": "9.9"}
    assert told["scope"] == {"plans": "drawn", "share": 1.0}
    assert count.outcomes == Counter(row["outcome"] for row in found)


def test_two_recordings_are_equal_to_the_byte(root: Path, script: Path) -> None:
    """Tables and provenance, whatever the number of workers: no port, time or process stands in them."""
    case, other = tokenize_cases(root)[2:4]
    tell(root, {case: "refuse", other: "crash"})  # a refusal that names an address, and a process that dies
    witness.main(root, NAME, jobs=1)
    first = files(root)
    witness.main(root, NAME, jobs=2, force=True)
    assert files(root) == first
    assert len(first) == 4


@pytest.mark.parametrize(
    ("act", "outcome", "code", "reason"),
    [
        ("crash", "measurement_failed", "died", "ended without an answer"),
        ("hang", "measurement_failed", "timeout", "gave no answer in time"),
        ("rubbish", "measurement_failed", "rubbish", "said something that is no JSON"),
        ("forge", "measurement_failed", "rubbish", "said something else than what it was asked"),
        ("raise", "measurement_failed", "KeyError", "'nothing'"),
        ("shape", "measurement_failed", "malformed-answer", "ids is no list of token ids"),
        ("bare", "measurement_failed", "malformed-answer", "no ids"),
        ("refuse", "refused", "400", "no such thing as <object object at …>"),
    ],
)
def test_what_goes_wrong_costs_its_cell_and_says_why(
    root: Path, script: Path, monkeypatch: pytest.MonkeyPatch, act: str, outcome: str, code: str, reason: str
) -> None:
    """Every other row is what it is without the bad case."""
    hasty = functools.partial(process.Program, limits=process.Limits(answer_seconds=2))
    monkeypatch.setattr(witness, "Program", hasty)
    witness.main(root, NAME, [SLUG])
    good = {row["case_id"]: row for row in rows(root) if row["kind"] == "tokenize"}
    bad = tokenize_cases(root)[5]
    tell(root, {bad: act})
    witness.main(root, NAME, [SLUG])
    found = {row["case_id"]: row for row in rows(root) if row["kind"] == "tokenize"}
    row = found.pop(bad)
    del good[bad]
    assert found == good
    assert (row["outcome"], row["reason_code"], row["reason"]) == (outcome, code, reason)
    assert row["output_ids"] is None


def test_a_checkpoint_that_cannot_be_loaded_fails_case_by_case(root: Path, script: Path) -> None:
    """Each row says why, without a folder or an address of this machine; the other checkpoint is recorded."""
    manifest = root / "fixtures" / SLUG / "manifest.toml"
    manifest.write_text(manifest.read_text().replace(PARSERS, PARSERS + 'broken = "yes"\n'))
    result = CliRunner().invoke(cli, ["witness", NAME, "--root", str(root)], standalone_mode=False)
    assert result.exit_code == 0, result.output
    broken, sound = rows(root), rows(root, TWIN)
    assert {(row["outcome"], row["reason_code"]) for row in broken} == {("measurement_failed", "not-loaded")}
    assert {row["reason"] for row in broken} == {"ValueError: no weights in <model> at <object object at …>"}
    assert {row["case_id"] for row in broken} == {row["case_id"] for row in sound}
    assert "not-loaded" not in {row["reason_code"] for row in sound}
    assert provenance(root)["not_loaded"] == broken[0]["reason"]
    assert f"{SLUG}: measurement_failed {len(broken):,}" in result.stdout


def test_parse_is_asked_only_where_a_parser_is_named(root: Path, script: Path) -> None:
    """A case that is not asked has no row."""
    manifest = root / "fixtures" / SLUG / "manifest.toml"
    manifest.write_text(manifest.read_text().replace(PARSERS, ""))
    witness.main(root, NAME)
    assert {row["kind"] for row in rows(root)} == {"render", "tokenize", "detokenize"}
    assert {row["kind"] for row in rows(root, TWIN)} == {"render", "parse", "tokenize", "detokenize"}


def test_what_is_up_to_date_is_left_alone(root: Path, script: Path) -> None:
    """No engine is started for it; `force` records it again."""
    witness.main(root, NAME)
    before = files(root)
    loads(script)
    counts = witness.main(root, NAME)
    assert [count.recorded for count in counts] == [False, False]
    assert loads(script) == []
    witness.main(root, NAME, force=True)
    assert sorted(loads(script)) == sorted([SLUG, TWIN])
    assert files(root) == before


def test_only_what_moved_is_recorded_again(root: Path, script: Path) -> None:
    """An option of one checkpoint, then the script, then the share: what each has a part in."""
    witness.main(root, NAME)
    loads(script)
    manifest = root / "fixtures" / TWIN / "manifest.toml"
    manifest.write_text(manifest.read_text().replace(PARSERS, PARSERS + 'clock = "set"\n'))
    witness.main(root, NAME)
    assert loads(script) == [TWIN]
    script.write_text(script.read_text() + "\n# another script\n")
    witness.main(root, NAME)
    assert sorted(loads(script)) == sorted([SLUG, TWIN])
    params = root / "params.yaml"
    params.write_text("witness: {plans: all, share: 0.5}\n" + params.read_text())
    assert [count.recorded for count in witness.main(root, NAME)] == [True, True]
    assert provenance(root)["scope"] == {"plans": "all", "share": 0.5}


def test_a_table_that_was_changed_is_recorded_again(root: Path, script: Path) -> None:
    """Provenance holds its sha256."""
    witness.main(root, NAME, [SLUG])
    path = witness_table(root, NAME, SLUG)
    expected = path.read_bytes()
    path.write_bytes(expected[:-1])
    assert [count.recorded for count in witness.main(root, NAME, [SLUG])] == [True]
    assert path.read_bytes() == expected


def test_an_interrupted_run_goes_on_where_it_was(root: Path, script: Path) -> None:
    """The checkpoint that was done stays; no half table, no process is left; the next run records the rest."""
    witness.main(root, NAME, jobs=1)
    expected = files(root)
    for path in witness_table(root, NAME, TWIN).parent.glob("*"):
        path.unlink()
    hang = "def load(settings):\n    import time\n    time.sleep(3600 * (settings['slug'] == 'twin'))\n"
    original = script.read_text()
    script.write_text(original.replace("def load(settings):\n", hang))
    host = script.parents[2] / "host.py"
    host.write_text(HOST.format(tests=str(ROOT / "tests"), script=str(script), root=str(root)))
    running = subprocess.Popen([sys.executable, str(host)], stderr=subprocess.PIPE, text=True, start_new_session=True)
    wait_for(lambda: witness_table(root, NAME, SLUG).with_suffix(".json").exists() and children(running.pid))
    started = children(running.pid) + [one for child in children(running.pid) for one in children(child)]
    os.killpg(running.pid, signal.SIGINT)
    _, said = running.communicate(timeout=30)
    assert running.returncode == 2
    assert "error: interrupted" in said
    assert "Traceback" not in said
    wait_for(lambda: not any(map(alive, started)))
    assert sorted(files(root)) == [f"{SLUG}.json", f"{SLUG}.parquet"]
    key = provenance(root)["key"]
    stored = witness_table(root, NAME, SLUG).with_suffix(".json")
    script.write_text(original)
    stored.write_text(stored.read_text().replace(key, json.loads(expected[f"{SLUG}.json"])["key"]))
    loads(script)
    witness.main(root, NAME)
    assert loads(script) == [TWIN]
    assert files(root) == expected


HOST = """
import signal
import sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job inherits that it is ignored
sys.path.insert(0, {tests!r})
from pathlib import Path
import pytest
import toy_engine
from bellwether.cli import cli
toy_engine.point_at(pytest.MonkeyPatch(), Path({script!r}))
cli(["witness", toy_engine.NAME, "--jobs", "1", "--root", {root!r}])
"""


def test_tables_of_checkpoints_that_left_the_scope_are_removed(root: Path, script: Path) -> None:
    """When the scope is recorded, not when one checkpoint is."""
    witness.main(root, NAME)
    params = root / "params.yaml"
    params.write_text(params.read_text().replace(f"[{SLUG}, {TWIN}]", f"[{SLUG}]"))
    witness.main(root, NAME, [SLUG])
    assert f"{TWIN}.parquet" in files(root)
    witness.main(root, NAME)
    assert sorted(files(root)) == [f"{SLUG}.json", f"{SLUG}.parquet"]


def test_an_engine_that_cannot_be_started_is_no_verdict(root: Path, script: Path) -> None:
    """Exit 2, with the reason; no table."""
    script.write_text("import torch_of_another_world")
    with pytest.raises(WitnessError, match="No module named 'torch_of_another_world'") as caught:
        witness.main(root, NAME)
    assert caught.value.exit_code == 2
    assert not witness_table(root, NAME, SLUG).exists()


def test_an_unknown_release_and_an_unknown_option_are_told(root: Path, script: Path) -> None:
    """Before anything is started."""
    with pytest.raises(ParamsError, match="no engine release 'vllm-0'"):
        witness.main(root, "vllm-0")
    manifest = root / "fixtures" / TWIN / "manifest.toml"
    manifest.write_text(manifest.read_text().replace(PARSERS, PARSERS + 'tool_praser = "x"\n'))
    with pytest.raises(ParamsError, match=r"twin/manifest\.toml: \[engines\.vllm\]: vllm has no option 'tool_praser'"):
        witness.main(root, NAME)
    assert loads(script) == []


def test_changed_inputs_and_missing_references_stop_the_recording(root: Path, script: Path) -> None:
    """Rows of other bytes than the pinned ones would be nobody's."""
    (root / "fixtures" / TWIN / "parse" / "reference.parquet").unlink()
    with pytest.raises(TableError, match=r"twin/parse/reference\.parquet does not exist"):
        witness.main(root, NAME, [TWIN])
    tokenizer = root / "fixtures" / SLUG / "inputs" / "tokenizer.json"
    tokenizer.write_bytes(tokenizer.read_bytes() + b"\n")
    with pytest.raises(PinMismatch, match=r"tokenizer\.json: expected sha256"):
        witness.main(root, NAME, [SLUG])
    assert files(root) == {} if witness_table(root, NAME, SLUG).parent.exists() else True


def test_code_that_has_a_part_in_a_table_is_in_its_key() -> None:
    """What the recorder runs, but for what is taken by value, only fetches, or only writes."""
    by_value = {"cache.py", "environments.py", "errors.py", "layout.py", "params.py", "progress.py", "whole.py"}
    by_value |= {"__init__.py", "case.py", "oracles/prompts.py", "witnesses/engines.py"}
    run = {path.removeprefix("bellwether/") for path in closure(["bellwether.witness"])}
    run = {
        path for path in run if not path.startswith(("materials/", "building/")) and not path.endswith("__init__.py")
    }
    assert run - by_value == {*witness.CODE, *witness.HTTP_CODE, *witness.PROCESS_CODE}
    assert all((witness.ENVIRONMENTS / name).is_file() for name in witness.INSIDE)


def test_a_template_engine_is_not_asked_for_prompts_that_code_writes(
    root: Path, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DeepSeek V4's vendor encodes with code: what its Jinja file renders to is not what anyone serves."""
    monkeypatch.setitem(engines.ENGINES, NAME, replace(engines.ENGINES[NAME], renders_templates=True))
    manifest = root / "fixtures" / SLUG / "manifest.toml"
    text = manifest.read_text("utf-8")
    manifest.write_text(text.replace('render = ["hf-template"]', 'render = ["vendor-code:deepseek-v4"]'), "utf-8")
    witness.main(root, NAME, [SLUG, TWIN])
    assert "render" not in provenance(root)["asked"]
    assert "render" in provenance(root, TWIN)["asked"]


def test_a_release_may_be_asked_by_fewer_chunk_plans(root: Path, script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One-shot's row counts those; a table of all plans is stale then, and provenance says which are left."""
    witness.main(root, NAME, [SLUG])
    monkeypatch.setitem(engines.ENGINES, NAME, replace(engines.ENGINES[NAME], plans=frozenset({"whole", "size-2"})))
    [count] = witness.main(root, NAME, [SLUG])
    assert count.recorded
    counted = {row["plans"] for row in rows(root) if row["kind"] == "parse" and row["mode"] == "one-shot"}
    assert counted == {2}
    assert provenance(root)["scope"] == {"plans": "drawn", "share": 1.0, "only": ["size-2", "whole"]}
