"""Recorders as people run them: real processes, a real checkpoint, a corpus of a few cases."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from bellwether import record as stage
from bellwether.errors import CorpusError, OracleError, PinMismatch, TableError, TemplateTimeout, VersionMismatch
from bellwether.materials.pins import sha256_of
from bellwether.recording import Recording, Table, record

SLUG = "smollm2-135m-instruct"
TABLE = Path("fixtures") / SLUG / "render" / "reference.parquet"


def record_render(project: Path, jobs: int) -> int:
    """Record the render cases and return the number of rows."""
    return stage.main(project, SLUG, jobs, ("render",))["render"]


def replace_template(project: Path, text: str) -> None:
    """Give the checkpoint another chat template, and pin it."""
    manifest = project / "fixtures" / SLUG / "manifest.toml"
    template = project / "fixtures" / SLUG / "inputs" / "chat_template.jinja"
    before = sha256_of(template.read_bytes())
    template.write_text(text, "utf-8")
    manifest.write_text(manifest.read_text("utf-8").replace(before, sha256_of(text.encode())), "utf-8")


def run(project: Path, *arguments: str, **options) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "bellwether", *arguments]
    return subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=120, **options)


def left_behind(project: Path) -> list[str]:
    return [path.name for path in (project / "fixtures").rglob("*.partial")]


def test_tables_do_not_depend_on_the_number_of_workers(project):
    """One worker and three give the same bytes, for every recorder."""
    tables = {}
    for jobs in (1, 3):
        stage.main(project, SLUG, jobs)
        for name in stage.TABLES:
            path = project / "fixtures" / SLUG / name / "reference.parquet"
            tables.setdefault(name, []).append(path.read_bytes())
    assert [first == second for first, second in tables.values()] == [True, True, True]


def test_rows_come_in_case_order(project):
    """Row by row, the table follows the corpus; every case is answered once."""
    record_render(project, 2)
    cases = pq.read_table(project / "corpus/imported/handmade/cases.parquet").to_pylist()
    rows = pq.read_table(project / TABLE).column("case_id").to_pylist()
    assert rows == [case["case_id"] for case in cases if case["kind"] == "render"]


def test_progress_counts_cases_where_a_case_has_two_rows(project, capsys):
    """A template that shows whether arguments are text answers histories with calls once per normalisation."""
    shows = "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.arguments is string }}{% endfor %}"
    replace_template(project, shows + "x{% endfor %}")
    rows = record_render(project, 2)
    cases = pq.read_table(project / "corpus/imported/handmade/cases.parquet").column("kind").to_pylist().count("render")
    assert rows > cases
    assert f": {cases:,} of {cases:,} cases, " in capsys.readouterr().err


def test_provenance_lies_beside_the_table(project):
    """Pins, versions and the clock of a recording are one JSON file, apart from the results."""
    record_render(project, 1)
    provenance = json.loads((project / TABLE.with_name("provenance.json")).read_text("utf-8"))
    assert provenance["checkpoint"] == SLUG
    assert provenance["clock"] == "2026-01-15T12:00:00"
    assert provenance["transformers"] == "5.24.0"


def test_killed_recorder_leaves_nothing_and_the_next_run_gives_the_same_bytes(project):
    """SIGKILL in the middle: no table at its place, the workers end, and a new run records the same bytes."""
    record_render(project, 2)
    expected = (project / TABLE).read_bytes()
    (project / TABLE).unlink()
    (project / "slow.py").write_text(SLOW)
    process = subprocess.Popen([sys.executable, str(project / "slow.py"), str(project)], start_new_session=True)
    _wait_for(lambda: list((project / TABLE).parent.glob("*.partial")))
    workers = _children(process.pid)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (project / TABLE).exists()
    _wait_for(lambda: not any(_alive(pid) for pid in workers))
    record_render(project, 2)
    assert (project / TABLE).read_bytes() == expected
    assert left_behind(project) == []


def test_interrupted_recorder_says_so_and_exits_2(project):
    """Ctrl-C: a sentence with the next step, exit 2, no table, no partial file, no process."""
    (project / "slow.py").write_text(SLOW)
    process = subprocess.Popen(
        [sys.executable, str(project / "slow.py"), str(project)],
        start_new_session=True,
        stderr=subprocess.PIPE,
        text=True,
    )
    _wait_for(lambda: list((project / TABLE).parent.glob("*.partial")))
    workers = _children(process.pid)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "error: interrupted" in said
    assert "Traceback" not in said
    assert not (project / TABLE).exists()
    assert left_behind(project) == []
    _wait_for(lambda: not any(_alive(pid) for pid in workers))


def test_changed_input_stops_the_recorder(project):
    """A byte of an oracle input that is not the pinned one: named with both sha256s, exit 2, no table."""
    tokenizer = project / "fixtures" / SLUG / "inputs" / "tokenizer.json"
    tokenizer.write_bytes(tokenizer.read_bytes() + b"\n")
    done = run(project, "record", SLUG, "--table", "render")
    assert done.returncode == 2
    assert (
        "tokenizer.json: expected sha256 9ca9acddb6525a194ec8ac7a87f24fbba7232a9a15ffa1af0c1224fcd888e47c"
        in done.stderr
    )
    assert "nothing was recorded" in done.stderr
    assert not (project / TABLE).exists()


def test_template_that_never_ends_stops_the_recorder(project):
    """A time-out is no evidence: no row, no table, exit 2 with the case and the next step."""
    replace_template(project, "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}")
    params = project / "params.yaml"
    params.write_text(params.read_text().replace("template_seconds: 20", "template_seconds: 0.3"))
    done = run(project, "record", SLUG, "--table", "render")
    assert done.returncode == 2
    assert "did not end within 0.3 s on smollm2-135m-instruct render/" in done.stderr
    assert "oracle.template_seconds" in done.stderr
    assert not (project / TABLE).exists()


def test_template_that_python_cannot_interrupt_stops_the_recorder(project):
    """One huge power is a single operation no signal handler gets into; the system ends the worker."""
    replace_template(project, "{{ (10 ** (10 ** 9)) % 7 }}")
    params = project / "params.yaml"
    params.write_text(params.read_text().replace("template_seconds: 20", "template_seconds: 0.3"))
    with pytest.raises(OracleError, match="a recording process died"):
        record_render(project, 1)
    assert not (project / TABLE).exists()


def test_template_that_eats_memory_stops_the_recorder(project):
    """A string that does not fit is no evidence either."""
    replace_template(project, "{{ 'a' * 99999999999 }}")
    with pytest.raises(OracleError, match="needs more memory"):
        record_render(project, 1)
    assert not (project / TABLE).exists()


def test_template_that_raises_is_recorded(project):
    """An error of the template is the reference's answer: a row for every case, and a table."""
    replace_template(project, "{{ raise_exception('closed today') }}")
    record_render(project, 1)
    rows = pq.read_table(project / TABLE).to_pylist()
    assert {(row["outcome"], row["reason_class"], row["reason_code"]) for row in rows} == {
        ("rejected", "error", "template-error")
    }
    assert "TemplateError: closed today" in {row["reason"] for row in rows}


def test_template_that_is_no_jinja_stops_the_recorder(project):
    """A template that does not compile says nothing about any case."""
    replace_template(project, "{% if %}")
    with pytest.raises(OracleError, match="the default chat template of smollm2-135m-instruct does not compile"):
        record_render(project, 1)
    assert not (project / TABLE).exists()


def test_other_library_version_stops_the_recorder(project):
    """params.yaml pins the libraries; another installed version is refused by name."""
    params = project / "params.yaml"
    params.write_text(params.read_text().replace("jinja2: 3.1.6", "jinja2: 3.1.5"))
    with pytest.raises(VersionMismatch, match=r"jinja2: expected 3\.1\.5, found 3\.1\.6"):
        record_render(project, 1)


def test_absent_jinja2_is_named(project, tmp_path):
    """Without jinja2 nothing can be rendered, and it is not a case's fault."""
    hide = tmp_path / "hide"
    hide.mkdir()
    (hide / "sitecustomize.py").write_text(
        "import importlib.metadata as metadata\n"
        "found = metadata.version\n"
        "def version(name):\n"
        "    if name == 'jinja2':\n"
        "        raise metadata.PackageNotFoundError(name)\n"
        "    return found(name)\n"
        "metadata.version = version\n"
    )
    done = run(project, "record", SLUG, "--table", "render", env={**os.environ, "PYTHONPATH": str(hide)})
    assert done.returncode == 2
    assert "jinja2: expected 3.1.6, found not installed" in done.stderr
    assert "make env" in done.stderr
    assert not (project / TABLE).exists()


def test_duplicate_case_name_stops_the_recorder(project):
    """Two corpora that use one name cannot be recorded: the ids of the tree would collide."""
    shutil.copytree(project / "corpus/imported/handmade", project / "corpus/imported/other")
    params = project / "params.yaml"
    params.write_text(params.read_text().replace("[handmade]", "[handmade, other]"))
    with pytest.raises(CorpusError, match="is used twice"):
        record_render(project, 1)


def test_truncated_corpus_table_stops_the_recorder(project):
    """A torn table is named, with what to do."""
    cases = project / "corpus/imported/handmade/cases.parquet"
    cases.write_bytes(cases.read_bytes()[:-100])
    with pytest.raises(TableError, match=r"cases\.parquet is no whole Parquet file"):
        record_render(project, 1)


def test_full_disk_stops_the_recorder_and_leaves_nothing(project):
    """Writing beyond the limit of a file's size fails like a full disk: exit 2, no table, no partial file."""
    limited = f"import resource, runpy, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); \
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)); \
sys.argv = ['bellwether', 'record', {SLUG!r}, '--table', 'render']; \
runpy.run_module('bellwether', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", limited], cwd=project, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert "Free some space" in done.stderr
    assert not (project / TABLE).exists()
    assert left_behind(project) == []


def test_worker_that_dies_is_reported(project, monkeypatch):
    """The system may kill a worker for its memory: a sentence, exit 2, no table."""
    monkeypatch.syspath_prepend(project)
    (project / "deadly.py").write_text("import os\n\ndef answer(checkpoint, cases):\n    os._exit(9)\n")
    with pytest.raises(OracleError, match="a recording process died"):
        record(Recording(project, SLUG, (Table("render", ("render",), "deadly"),)), 1)
    assert not (project / TABLE).exists()


@pytest.mark.parametrize(
    "error",
    [PinMismatch("a", next_step="b"), TemplateTimeout("a", next_step="b"), OracleError("a"), CorpusError("a")],
)
def test_errors_cross_processes_whole(error):
    """A worker's error arrives with its message and its next step."""
    import pickle

    back = pickle.loads(pickle.dumps(error))
    assert (type(back), str(back), back.next_step) == (type(error), str(error), error.next_step)


# A process started in the background of a shell script ignores Ctrl-C; this one is not to inherit that.
SLOW = f"""
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from pathlib import Path
import bellwether.oracles.render as render
from bellwether.cli import cli

if __name__ == "__main__":
    import bellwether.recording as recording
    stream = recording.stream_cases
    def slowly(*arguments):
        for batch in stream(*arguments):
            yield batch
            time.sleep(30)
    recording.stream_cases = slowly
    cli(["record", {SLUG!r}, "--table", "render", "--jobs", "2", "--root", sys.argv[1]])
"""


def _wait_for(condition, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.05)


def _children(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(stat.parent.name))
    return found


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
