"""The command line as a whole: help, exit status, errors as sentences, and where the checkout is found."""

from __future__ import annotations

import errno
import io
import os
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from bellwether import errors, import_corpus
from bellwether.cli import cli
from bellwether.progress import Progress, say

PARAMS = """
checkpoints: [alpha]
corpora: [toy]
oracle: {versions: {}, clock: "2026-01-15T12:00:00", other_clock: "2027-10-02T23:30:00", template_seconds: 20}
"""
MANIFEST = """
model = "o/m"
revision = "0123456789012345678901234567890123456789"
tier = 1
license = "MIT"
[authority]
render = ["hf-template"]
parse = ["roundtrip"]
[inputs]
[files]
"""
COMMANDS = sorted(cli.commands)
ARGUMENTS = {
    "import": ["handmade"],
    "derive": [],
    "notice": [],
    "inputs": ["alpha"],
    "second-references": [],
    "record": ["alpha"],
    "sandbox-record": ["alpha"],
    "report": [],
    "sql": ["select 1"],
    "count": [],
    "unpack": ["tree"],
    "manifests": [],
    "models": [],
    "gaps": [],
    "patterns": [],
    "waivers": [],
    "witness": ["vllm-rust-0.33.0"],
    "observe": ["smg-1.13.0"],
    "verify": ["--target", "smg"],
}
"""What each command that works in a checkout is given at least."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A checkout with one checkpoint and nothing recorded."""
    root = tmp_path / "project"
    (root / "fixtures" / "alpha").mkdir(parents=True)
    (root / "params.yaml").write_text(PARAMS, "utf-8")
    (root / "fixtures" / "packages.toml").write_text("", "utf-8")
    (root / "fixtures" / "alpha" / "manifest.toml").write_text(MANIFEST, "utf-8")
    return root


def bellwether(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


# ── help ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("option", ["--help", "-h"])
def test_every_command_explains_itself(name: str, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Help is a sentence, with exit 0, and needs no checkout."""
    monkeypatch.chdir(tmp_path)
    run = bellwether(name, option)
    assert (run.exit_code, run.stderr) == (0, "")
    assert run.stdout.startswith(f"Usage: cli {name}")
    sentence = cli.commands[name].help.split("\n\n")[0].strip()
    assert sentence[0].isupper()
    assert sentence.endswith(".")
    assert " ".join(sentence.split()) in " ".join(run.stdout.split())


def test_help_lists_every_command_with_a_line(monkeypatch: pytest.MonkeyPatch):
    """The overview names each command, what it does, and the three exit statuses."""
    run = bellwether("--help")
    assert (run.exit_code, run.stderr) == (0, "")
    lines = dict(line.split(maxsplit=1) for line in run.stdout.split("Commands:\n")[1].splitlines())
    assert sorted(lines) == COMMANDS
    assert all(line.strip() for line in lines.values())
    assert "Exit status: 0 clean, 1 a check found a difference, 2 no verdict." in run.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_explained(name: str):
    """No option of a command stands without a help text."""
    for parameter in cli.commands[name].params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name


def test_import_of_an_unknown_corpus_names_the_known_ones(project: Path):
    """What can be imported is said to whoever asks for something else."""
    run = bellwether("import", "nosuch", "--root", str(project))
    assert run.exit_code == 2
    assert f"Known corpora: {', '.join(import_corpus.corpora(project))}." in run.stderr


def test_sql_help_names_every_view(project: Path):
    """A person who asks a question needs the names of the views."""
    text = bellwether("sql", "--help").stdout
    run = bellwether(
        "sql", "select table_name from information_schema.tables", "--format", "csv", "--root", str(project)
    )
    views = [name for name in run.stdout.split()[1:] if not name.startswith("empty_")]
    assert len(views) == 32
    for view in views:
        assert view in text, view


def test_version_is_the_project_s(root: Path):
    """`--version` says what pyproject.toml says."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    run = bellwether("--version")
    assert (run.exit_code, run.stdout) == (0, f"bellwether, version {project['version']}\n")


@pytest.mark.parametrize("name", COMMANDS)
def test_readme_shows_every_command(name: str, root: Path):
    """The README spells each command out once, as one would type it."""
    assert f"bellwether {name}" in (root / "README.md").read_text("utf-8")


# ── usage ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Usage: "),
        (["nosuch"], "No such command 'nosuch'"),
        (["count", "--nosuch"], "No such option '--nosuch'"),
        (["import"], "Missing argument 'CORPUS'"),
        (["count", "extra"], "unexpected extra argument"),
        (["sql", "select 1", "--format", "xml"], "'xml' is not one of 'table', 'csv', 'json', 'parquet'"),
        (["record", "alpha", "--jobs", "0"], "'--jobs'"),
        (["record", "alpha", "--jobs", "many"], "'--jobs'"),
        (["record", "alpha", "--table", "all"], "'--table'"),
    ],
)
def test_usage_errors_are_no_verdict(arguments: list[str], said: str, project: Path, monkeypatch: pytest.MonkeyPatch):
    """What cannot be understood ends with 2 and says what was wrong, on standard error."""
    monkeypatch.chdir(project)
    run = bellwether(*arguments)
    assert (run.exit_code, run.stdout) == (2, "")
    assert said in run.stderr


# ── the checkout ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ARGUMENTS)
def test_outside_a_checkout_every_command_says_so(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Exit 2 and the way out; a params.yaml of another project is none of ours."""
    (tmp_path / "params.yaml").write_text("{}", "utf-8")
    monkeypatch.chdir(tmp_path)
    run = bellwether(name, *ARGUMENTS[name])
    assert (run.exit_code, run.stdout) == (2, "")
    assert run.stderr == (
        f"error: no params.yaml in {tmp_path} or above\nnext:  Run inside a checkout, or pass --root.\n"
    )


def test_every_command_of_a_checkout_is_tried_outside():
    """The list above keeps up with the commands."""
    assert sorted(ARGUMENTS) == [name for name in COMMANDS if "root" in {p.name for p in cli.commands[name].params}]


def test_checkout_is_found_upward(project: Path, monkeypatch: pytest.MonkeyPatch):
    """A command works from any folder of the checkout."""
    folder = project / "queries" / "deep"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    run = bellwether("sql", "select checkpoint from scope", "--format", "csv")
    assert (run.exit_code, run.stdout) == (0, "checkpoint\nalpha\n")


def test_root_option_wins_over_the_folder(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """`--root` is taken as given, also relative; a folder without params.yaml is named."""
    monkeypatch.chdir(tmp_path)
    query = ["sql", "select checkpoint from scope", "--format", "csv", "--root"]
    assert bellwether(*query, "project").stdout == "checkpoint\nalpha\n"
    monkeypatch.chdir(project)
    run = bellwether(*query, str(tmp_path))
    assert run.exit_code == 2
    assert f"{tmp_path / 'params.yaml'} does not exist" in run.stderr
    assert "\nnext:  " in run.stderr


# ── params and manifests ─────────────────────────────────────────────────────────────────────────────────────────────


def test_unknown_manifest_key_is_named_with_its_file(project: Path):
    """A misspelt key is never ignored."""
    path = project / "fixtures" / "alpha" / "manifest.toml"
    path.write_text('licence = "MIT"\n' + MANIFEST, "utf-8")
    run = bellwether("inputs", "alpha", "--root", str(project))
    assert run.exit_code == 2
    assert f"{path}: unknown key 'licence'" in run.stderr
    assert "Known keys: model, revision, tier, license" in run.stderr


def test_unknown_params_key_is_named_with_its_file(project: Path):
    """Likewise in params.yaml, for whatever command reads it."""
    path = project / "params.yaml"
    path.write_text(PARAMS + "checkpoint: [alpha]\n", "utf-8")
    for arguments in (["count"], ["sql", "select 1"], ["report"]):
        run = bellwether(*arguments, "--root", str(project))
        assert run.exit_code == 2
        assert f"{path}: unknown key 'checkpoint'" in run.stderr


@pytest.mark.parametrize(
    ("slug", "said"), [("nosuch", "fixtures/nosuch/manifest.toml does not exist"), ("../up", "is no checkpoint slug")]
)
def test_unknown_checkpoint_is_no_verdict(project: Path, slug: str, said: str):
    """A slug nobody pinned, or one that leaves the folder, is an error before anything is laid out."""
    run = bellwether("inputs", slug, "--root", str(project))
    assert run.exit_code == 2
    assert said in run.stderr


# ── exit status ──────────────────────────────────────────────────────────────────────────────────────────────────────


def all_errors(kind: type[errors.BellwetherError]) -> list[type[errors.BellwetherError]]:
    return [kind, *(error for child in kind.__subclasses__() for error in all_errors(child))]


def ending_with(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> Result:
    """Run a command whose work ends with `error`."""

    def work(root: Path, corpus: str) -> dict[str, int]:
        raise error

    monkeypatch.setattr(import_corpus, "main", work)
    return bellwether("import", "toy", "--root", ".")


@pytest.mark.parametrize("kind", all_errors(errors.BellwetherError))
def test_only_a_finding_ends_with_one(kind: type[errors.BellwetherError], monkeypatch: pytest.MonkeyPatch):
    """Each error of the project is a sentence with the next step; 1 is a check's finding, 2 all else."""
    run = ending_with(monkeypatch, kind("what happened", next_step="what to do"))
    assert run.exit_code == (1 if kind is errors.Finding else 2)
    assert (run.stdout, run.stderr) == ("", "error: what happened\nnext:  what to do\n")


def test_error_without_a_step_is_one_line(monkeypatch: pytest.MonkeyPatch):
    """No empty advice."""
    run = ending_with(monkeypatch, errors.OracleError("what happened"))
    assert run.stderr == "error: what happened\n"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort()])
def test_interrupt_is_no_verdict(error: BaseException, monkeypatch: pytest.MonkeyPatch):
    """Ctrl-C ends with 2 and says that nothing is half-written."""
    run = ending_with(monkeypatch, error)
    assert run.exit_code == 2
    assert run.stderr.lstrip("\n") == (
        "error: interrupted\nnext:  Nothing half-written is left; run the same command again.\n"
    )


@pytest.mark.parametrize(
    ("number", "step"),
    [
        (errno.ENOSPC, "Free some space and run the same command again."),
        (errno.EDQUOT, "Free some space and run the same command again."),
        (errno.EACCES, "Mend what the system reports and run the same command again."),
    ],
)
def test_system_errors_are_no_verdict(number: int, step: str, monkeypatch: pytest.MonkeyPatch):
    """What the system refuses is told in its words, with the file."""
    run = ending_with(monkeypatch, OSError(number, os.strerror(number), "some/file"))
    assert run.exit_code == 2
    error, hint = run.stderr.splitlines()
    assert error.startswith("error: ")
    assert os.strerror(number) in error
    assert "some/file" in error
    assert hint == f"next:  {step}"


def test_fault_of_the_program_is_no_finding(monkeypatch: pytest.MonkeyPatch):
    """An exception nobody foresaw ends with 2 and not with Python's 1; its traceback comes along for the report."""
    run = ending_with(monkeypatch, RuntimeError("a bug"))
    assert run.exit_code == 2
    assert "Traceback" in run.stderr
    *_, error, step = run.stderr.splitlines()
    assert error == "error: RuntimeError: a bug"
    assert step == "next:  This is a fault of bellwether; report it with the lines above."


def test_signal_ends_a_running_command_in_order(project: Path, tmp_path: Path):
    """A real SIGINT, sent while the command reads: exit 2, the sentence, and no traceback."""
    pipe = tmp_path / "query.sql"
    os.mkfifo(pipe)
    command = [sys.executable, "-W", "error", "-c", "from bellwether.cli import cli; cli()"]
    with subprocess.Popen(
        [*command, "sql", str(pipe), "--root", str(project)],
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a job in the background ignores it
    ) as run:
        with pipe.open("w"):  # opens when the command does
            run.send_signal(signal.SIGINT)
            assert run.wait() == 2
        assert run.stderr.read().strip().startswith(b"error: interrupted\n")


# ── what commands say ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("options", "jobs", "tables"),
    [
        ([], None, ("render", "parse", "tokens")),
        (["--jobs", "3"], 3, ("render", "parse", "tokens")),
        (["--table", "tokens", "--table", "render"], None, ("tokens", "render")),
    ],
)
def test_recorder_says_how_many_rows(options, jobs, tables, project: Path, monkeypatch: pytest.MonkeyPatch):
    """Slug, jobs and tables reach the stage; without a choice all tables; the rows of each are printed."""
    monkeypatch.delenv("BELLWETHER_JOBS")
    asked = []

    def stage(root: Path, slug: str, jobs: int | None, tables: tuple[str, ...]) -> dict[str, int]:
        asked.append((root, slug, jobs, tables))
        return {"tokens": 56, "render": 12345}

    monkeypatch.setattr("bellwether.record.main", stage)
    run = bellwether("record", "alpha", *options, "--root", str(project))
    assert (run.exit_code, run.stdout) == (0, "alpha: reference rows tokens 56, render 12,345\n")
    assert asked == [(project, "alpha", jobs, tables)]


def test_the_environment_says_how_many_workers_record(project: Path, monkeypatch: pytest.MonkeyPatch):
    """`make repro` has two recordings beside each other share the processors; what a person says comes first."""
    asked = []
    monkeypatch.setattr("bellwether.record.main", lambda root, slug, jobs, tables: asked.append(jobs) or {})
    monkeypatch.setenv("BELLWETHER_JOBS", "5")
    for options in ([], ["--jobs", "3"]):
        assert bellwether("record", "alpha", *options, "--root", str(project)).exit_code == 0
    assert asked == [5, 3]


def test_cache_says_where_and_how_much(own_cache: Path):
    """An absent cache is empty; folders inside count with what they hold."""
    assert bellwether("cache").stdout == f"{own_cache}  0.0 MB\n"
    (own_cache / "deep").mkdir(parents=True)
    (own_cache / "deep" / "a").write_bytes(bytes(1_500_000))
    (own_cache / "b").write_bytes(bytes(1_000_000))
    assert bellwether("cache").stdout == f"{own_cache}  2.5 MB\n"


# ── progress ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def watch(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO) -> Callable[[float, int], str]:
    """Return `step(seconds, count)` → what a progress of 2,000 cases then writes; it begins at second 100."""
    now = 100.0
    monkeypatch.setattr(sys, "stderr", stream)
    progress = Progress("alpha render", 2000, clock=lambda: now)

    def step(seconds: float, count: int) -> str:
        nonlocal now
        now = 100.0 + seconds
        before = len(stream.getvalue())
        progress.advance(count) if count else progress.finish()
        return stream.getvalue()[before:]

    return step


def test_progress_on_a_terminal_is_one_line_that_moves(monkeypatch: pytest.MonkeyPatch):
    """The line is redrawn at most ten times a second, and ended when all is done."""
    step = watch(monkeypatch, Terminal())
    assert step(0.05, 64) == ""
    assert step(0.5, 936) == "\r\x1b[Kalpha render: 1,000 of 2,000 cases, 2,000/s"
    assert step(0.55, 500) == ""
    assert step(1.0, 500) == "\r\x1b[Kalpha render: 2,000 of 2,000 cases, 2,000/s"
    assert step(2.0, 0) == "\r\x1b[Kalpha render: 2,000 of 2,000 cases, 1,000/s\n"


def test_progress_in_a_log_is_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch):
    """Every ten seconds at most, and once at the end; no carriage returns."""
    step = watch(monkeypatch, io.StringIO())
    assert step(9.0, 900) == ""
    assert step(10.0, 100) == "alpha render: 1,000 of 2,000 cases, 100/s\n"
    assert step(15.0, 1000) == ""
    assert step(20.0, 0) == "alpha render: 2,000 of 2,000 cases, 100/s\n"


def test_progress_of_no_time_divides_by_nothing(monkeypatch: pytest.MonkeyPatch):
    """A clock that has not moved is no error."""
    step = watch(monkeypatch, io.StringIO())
    assert step(0.0, 0) == "alpha render: 0 of 2,000 cases, 0/s\n"


def test_progress_writes_to_the_stream_of_the_moment(monkeypatch: pytest.MonkeyPatch):
    """Whoever redirects standard error gets the lines, and standard output stays the result's."""
    for _ in range(2):
        stream = io.StringIO()
        monkeypatch.setattr(sys, "stderr", stream)
        say("a word")
        Progress("x", 1, clock=lambda: 1.0).finish()
        assert stream.getvalue() == "a word\nx: 0 of 1 cases, 0/s\n"


@pytest.mark.parametrize("error", [RuntimeError("Query interrupted"), KeyboardInterrupt()])
def test_interruption_inside_the_database_is_an_interruption(monkeypatch, capsys, error):
    """DuckDB reports Ctrl-C as an error of its own; to a person it is the same: a sentence, exit 2, no traceback."""
    from bellwether import cache

    def interrupted():
        raise error

    monkeypatch.setattr(cache, "cache_folder", interrupted)
    with pytest.raises(SystemExit) as exit_info:
        cli(["cache"])
    assert exit_info.value.code == 2
    said = capsys.readouterr().err
    assert "error: interrupted\n" in said
    assert "Traceback" not in said


def test_interrupt_ends_a_long_query(project: Path):
    """A query that would run for hours ends at Ctrl-C: exit 2, the sentence, no traceback."""
    query = "select count(*) from range(1000000) a, range(1000000) b where a.range * b.range % 7 = 3"
    run = subprocess.Popen(
        [sys.executable, "-m", "bellwether", "sql", query],
        cwd=project,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    time.sleep(3)
    run.send_signal(signal.SIGINT)
    _, said = run.communicate(timeout=60)
    assert run.returncode == 2
    assert "error: interrupted" in said
    assert "Traceback" not in said
