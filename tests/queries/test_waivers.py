"""What becomes of waivers and known differences, and the command that fails when one has to go."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bellwether.cli import cli
from bellwether.layout import corpus_folder, reference_table
from observed import TARGET, list_known, replay, write_replays
from witnessed import ask, checkout, claim, columns, failure, heard, no_claim, refusal, write_answers

ENGINES = ("sglang-0.4", "sglang-0.5", "vllm-2.0")
OLD, PINNED, VLLM = ENGINES
CASE = "render/s/a"
WAIVER = {
    **{"engine": "sglang", "versions": ">=0.5,<0.6", "model": "o/m", "case": "alpha/render/a"},
    **{"reason": "r", "evidence": "e", "upstream": "https://example.org/1"},
}


def waive(root: Path, **changes: str) -> None:
    lines = "".join(f'{key} = "{value}"\n' for key, value in (WAIVER | changes).items())
    (root / "queries" / "waivers.toml").write_text(f"[[waiver]]\n{lines}", "utf-8")


def bellwether(root: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["waivers", *arguments, "--root", str(root)])


def state(root: Path, **changes: str) -> tuple[str, str]:
    waive(root, **changes)
    [row] = ask(root, "waivers")
    return columns([row], "state", "why")[0]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The newest engine differs from a settled case; of another case the older one is all that is known."""
    claims = [claim(CASE), claim("render/s/old"), claim("render/s/disputed"), no_claim("render/s/unproven")]
    answers = [
        *(heard(CASE, VLLM), heard(CASE, PINNED, "x"), heard(CASE, OLD)),
        *(heard("render/s/old", OLD, "x"), failure("render/s/old", PINNED)),
        *(heard("render/s/disputed", VLLM, "x"), heard("render/s/disputed", PINNED, "x")),
        heard("render/s/unproven", PINNED, "x"),
    ]
    return checkout(tmp_path / "made", claims, answers, engines=ENGINES, malformed=["parse/s/bad"])


def test_active_while_the_pinned_release_differs_inside_the_range(project: Path):
    """It excuses the case; that an older release agreed is no matter."""
    assert state(project) == ("active", "the engine differs at 0.5")
    ran = bellwether(project, "--check")
    assert (ran.exit_code, ran.stdout) == (
        *(0, "active: sglang >=0.5,<0.6, alpha/render/a: the engine differs at 0.5\n"),
    )


def test_stale_once_the_engine_is_fixed(project: Path):
    """The waived engine's newer row agrees with the truth: the check fails until the waiver is gone."""
    waive(project)
    assert bellwether(project, "--check").exit_code == 0
    write_answers(project, PINNED, "alpha", [heard(CASE, PINNED)])
    ran = bellwether(project, "--check")
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert "stale: sglang >=0.5,<0.6, alpha/render/a: the engine agrees at 0.5" in ran.stderr
    assert "next:  Remove these entries." in ran.stderr
    ran = bellwether(project)
    assert (ran.exit_code, ran.stdout) == (0, "stale: sglang >=0.5,<0.6, alpha/render/a: the engine agrees at 0.5\n")
    (project / "queries" / "waivers.toml").unlink()
    assert bellwether(project, "--check").exit_code == 0


def test_stale_when_the_newest_that_is_known_agrees(project: Path):
    """The pinned release could not be measured, and the one before agrees."""
    write_answers(project, PINNED, "alpha", [failure(CASE, PINNED)])
    assert state(project) == ("stale", "the engine agrees at 0.4")


@pytest.mark.parametrize("changes", [{"case": "alpha/render/gone"}, {"case": "beta/render/a"}, {"model": "o/other"}])
def test_stale_without_such_a_case(changes: dict, project: Path):
    """No case of the name, no checkpoint in scope, another model's."""
    assert state(project, **changes) == ("stale", "there is no such case of this model in scope")


def test_stale_when_disputed_malformed_or_without_a_truth(project: Path):
    """There is nothing an engine could be wrong about."""
    assert state(project, case="alpha/render/disputed")[0] == "stale"
    assert "disputed" in state(project, case="alpha/render/disputed")[1]
    assert state(project, case="alpha/parse/bad")[1].startswith("the case is malformed")
    assert state(project, case="alpha/render/unproven") == ("stale", "the reference claims nothing")


def test_expired_outside_the_range(project: Path):
    """It still differs, and the range has ended: nothing is excused, and nothing has to go."""
    assert state(project, versions="<0.5") == ("expired", "the engine still differs at 0.5")
    assert bellwether(project, "--check").exit_code == 0


def test_unchecked_without_evidence_of_the_pinned_release(project: Path):
    """It failed there, and differed before."""
    assert state(project, case="alpha/render/old") == ("unchecked", "there is no evidence of 0.5")
    write_answers(project, PINNED, "alpha", [])
    write_answers(project, OLD, "alpha", [])
    assert state(project) == ("unchecked", "there is no evidence of 0.5")
    assert bellwether(project, "--check").exit_code == 0


def test_unchecked_when_the_engine_is_not_in_scope(project: Path):
    """No release of it is listed, so none is pinned."""
    assert state(project, engine="minijinja") == ("unchecked", "no release of the engine is in scope")


def test_unchecked_when_the_reference_is_not_recorded(project: Path):
    """A table that is missing says nothing about a waiver; corpora that are missing leave no verdict at all."""
    reference_table(project, "alpha", "render").unlink()
    assert state(project) == ("unchecked", "the reference is not recorded")
    ran = bellwether(project, "--check")
    assert (ran.exit_code, ran.stderr) == (
        *(0, "note: 1 tables of the scope are not recorded, e.g. fixtures/alpha/render/reference.parquet\n"),
    )
    (corpus_folder(project, "toy") / "cases.parquet").unlink()
    ran = bellwether(project, "--check")
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert "corpus/imported/toy/cases.parquet is missing" in ran.stderr


def test_a_plan_that_differs_keeps_a_waiver_active(tmp_path: Path):
    """One-shot agrees, streaming does not; and a refusal where the truth is a result is a difference."""
    claims = [claim("parse/s/a"), claim(CASE)]
    answers = [heard("parse/s/a", PINNED), heard("parse/s/a", PINNED, "x", mode="size-2"), refusal(CASE, PINNED)]
    root = checkout(tmp_path / "made", claims, answers, engines=ENGINES)
    assert state(root, case="alpha/parse/a")[0] == "active"
    assert state(root)[0] == "active"


def test_a_member_s_model_is_the_group_s(project: Path):
    """One recording serves a group: a waiver may name any of its models."""
    folder = project / "fixtures" / "brother"
    folder.mkdir()
    text = (project / "fixtures" / "alpha" / "manifest.toml").read_text("utf-8")
    (folder / "manifest.toml").write_text('group = "alpha"\n' + text.replace("o/m", "o/brother"), "utf-8")
    assert state(project, model="o/brother")[0] == "active"


def test_no_waiver_is_clean(project: Path):
    """Nothing is printed, and nothing fails."""
    ran = bellwether(project, "--check")
    assert (ran.exit_code, ran.stdout, ran.stderr) == (0, "", "")


def test_known_differences_that_name_no_case_are_stale(project: Path):
    """By id or by its beginning; of one that names cases nothing is known before a gateway was observed."""
    folder = project / "queries" / "known"
    folder.mkdir()
    entry = '["{}"]\nverdict = "regression"\nreason = "r"\nissue = "https://example.org/2"\n'
    (folder / "smg.toml").write_text(entry.format("alpha/render/a") + entry.format("alpha/render/*"), "utf-8")
    assert columns(ask(project, "known"), "target", "entry", "cases", "state") == [
        ("smg", "alpha/render/*", 4, "unseen"),
        ("smg", "alpha/render/a", 1, "unseen"),
    ]
    assert bellwether(project, "--check").exit_code == 0
    (folder / "smg.toml").write_text(entry.format("alpha/render/a-") + entry.format("alpha/parse/b*"), "utf-8")
    ran = bellwether(project, "--check")
    assert ran.exit_code == 1
    assert "stale: smg, alpha/render/a-: 0 cases" in ran.stderr
    assert "alpha/parse/b*" not in ran.stderr


def test_known_differences_that_match_have_to_go(project: Path):
    """Observed, and equal: the check fails until the entry is gone, or the gateway differs again."""
    params = project / "params.yaml"
    params.write_text(f"{params.read_text('utf-8')}targets: [{TARGET}]\n", "utf-8")
    list_known(project, ("alpha/render/old", "regression", None))
    write_replays(project, TARGET, "alpha", [replay("render/s/old")])
    ran = bellwether(project, "--check")
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert f"matches: {TARGET}, alpha/render/old: 1 cases, 1 asked, 0 replays excused" in ran.stderr
    write_replays(project, TARGET, "alpha", [replay("render/s/old", "b")])
    ran = bellwether(project, "--check")
    assert (ran.exit_code, ran.stdout) == (
        *(0, f"needed: {TARGET}, alpha/render/old: 1 cases, 1 asked, 1 replays excused\n"),
    )
