"""The list of checkpoints: what it says without the Hub, with it, and after it failed."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from bellwether import models
from bellwether.errors import Finding, InputUnavailable, TableError
from bellwether.models import assemble, counts, differences, render, tier
from bellwether.registries.catalogue import Catalogue, Checkpoint
from bellwether.registries.hub import Answer, NoAnswer
from local_hub import LocalHub, closed_port, environment
from support import ROOT

DAY = date(2026, 11, 30)
ENGINES = {"vllm": {"package": "pypi-sdist:vllm", "version": "0.33.0", "commit": "4ba787ec9", "sha256": "a" * 64}}
A = Checkpoint("o/a", ("AForCausalLM",), ("vllm-tests",), "text")
B = Checkpoint("o/b", ("BForCausalLM",), ("vllm-docs",), None)
PINNED = Checkpoint("o/own", (), ("manifest",), None, revision="f" * 40, slug="own", group="own")
MEMBER = replace(PINNED, model="o/member", slug="member", group="own")
BARE = Checkpoint(None, ("GrokForCausalLM",), ("sglang",), None)
SAID = Answer("pending", "1" * 40, "2026-05-01", 900, "multimodal")


def made(*checkpoints: Checkpoint, recorded=(), before=None, answers=None, today=DAY, unlisted=None) -> models.Models:
    """The list of `checkpoints`, after the list `before`, with what the Hub answers."""
    return assemble(
        Catalogue(checkpoints, {"draft": ("o/small",)}),
        ENGINES,
        frozenset(recorded),
        {line.key: line for line in before.lines} if before else {},
        unlisted or {},
        answers or {},
        today,
    )


def only(found: models.Models) -> models.Line:
    (line,) = found.lines
    return line


def test_without_the_hub_a_line_says_only_what_registries_say():
    """Never asked: nothing the Hub would know, no tier, and no day."""
    found = made(A, BARE)
    assert [json.loads(line) for line in render(found).splitlines()] == [
        {"schema_version": "1", "engines": ENGINES, "hub_day": None}
        | {"excluded": {"draft": ["o/small"], "pipeline": [], "quantised-base": []}},
        {"model": "o/a", "revision": None, "tier": None, "status": "unchecked", "created": None, "downloads": None}
        | {"modality": "text", "sources": ["vllm-tests"], "architectures": ["AForCausalLM"], "slug": None}
        | {"group": None, "checked": None, "hub": None},
        {"model": None, "revision": None, "tier": None, "status": "no-checkpoint-named", "created": None}
        | {"downloads": None, "modality": None, "sources": ["sglang"], "architectures": ["GrokForCausalLM"]}
        | {"slug": None, "group": None, "checked": None, "hub": None},
    ]


@pytest.mark.parametrize(
    ("checkpoint", "recorded", "status"),
    [
        (PINNED, ["own"], "recorded"),
        (MEMBER, ["own"], "recorded"),
        (PINNED, ["other"], "pending"),
        (A, [], "unchecked"),
    ],
)
def test_the_status_by_the_projects_own_records(checkpoint, recorded, status):
    """Recorded is what params.yaml lists, or a member of such a group; a manifest alone is a plan."""
    assert only(made(checkpoint, recorded=recorded)).status == status


def test_what_the_hub_says_stands_in_the_line():
    """With the day on which it said it."""
    line = only(made(B, answers={"o/b": SAID}))
    assert (line.status, line.revision, line.created, line.downloads) == ("pending", "1" * 40, "2026-05-01", 900)
    assert (line.modality, line.checked, line.tier) == ("multimodal", "2026-11-30", 2)


@pytest.mark.parametrize("status", ["gated", "not-on-hub", "needs-vendor-code", "no-chat-template", "pending"])
def test_the_hubs_statuses_are_the_lines(status):
    """Whatever it is, unless the project has recorded the checkpoint."""
    answers = {"o/a": replace(SAID, status=status), "o/own": replace(SAID, status=status)}
    found = {line.model: line for line in made(A, PINNED, recorded=["own"], answers=answers).lines}
    assert (found["o/a"].status, found["o/own"].status) == (status, "recorded")
    assert found["o/own"].hub == status, "what the Hub says is kept beside"


def test_the_revision_of_a_manifest_is_never_the_hubs():
    """A pin does not move because the Hub has a newer commit; what an engine says is kept before what the Hub says."""
    line = only(made(PINNED, recorded=["own"], answers={"o/own": SAID}))
    assert (line.revision, line.created) == ("f" * 40, "2026-05-01")
    assert only(made(A, answers={"o/a": SAID})).modality == "text"


def test_a_question_that_failed_changes_no_line_that_was_known():
    """A failed measurement is no evidence: status, days and numbers stay those of the last answer."""
    before = made(A, B, answers={"o/a": SAID, "o/b": replace(SAID, status="gated")})
    failed = {"o/a": NoAnswer("503", ""), "o/b": NoAnswer("unreachable", "")}
    after = made(A, B, before=before, answers=failed, today=date(2027, 1, 1))
    assert after == before
    assert after.hub_day == "2026-11-30"


def test_a_run_that_does_not_ask_changes_no_line_that_was_known():
    """Registries are read again, the Hub's word is kept."""
    before = made(A, B, answers={"o/a": SAID})
    assert made(A, B, before=before) == before


def test_a_question_that_failed_about_an_unknown_line_says_so():
    """It is no status of the checkpoint: the next answer takes its place, and a manifest is not overruled."""
    failed = {name: NoAnswer("503", "") for name in ("o/a", "o/own")}
    after = made(A, PINNED, answers=failed)
    found = {line.model: line for line in after.lines}
    assert (found["o/a"].status, found["o/a"].checked) == ("hub-error-503", None)
    assert (found["o/own"].status, found["o/own"].hub) == ("pending", "hub-error-503")
    assert only(made(A, before=after)).status == "hub-error-503"
    assert only(made(A, before=after, answers={"o/a": SAID})).status == "pending"


def test_what_the_hub_excluded_stays_excluded():
    """A quantised copy by its tag is in no later list either, until the Hub says something else."""
    copy = replace(SAID, excluded="quantised-base")
    first = made(A, B, answers={"o/a": copy})
    assert [line.model for line in first.lines] == ["o/b"]
    assert first.excluded["quantised-base"] == ("o/a",)
    for answers in ({}, {"o/a": NoAnswer("503", "")}):
        again = made(A, B, before=first, unlisted={"quantised-base": ("o/a",)}, answers=answers)
        assert again.excluded == first.excluded
    back = made(A, B, before=first, unlisted={"quantised-base": ("o/a",)}, answers={"o/a": SAID})
    assert (len(back.lines), back.excluded["quantised-base"]) == (2, ())


def test_a_pinned_checkpoint_is_never_excluded():
    """Whoever wrote its manifest means it, whatever the Hub thinks it is."""
    assert only(made(PINNED, answers={"o/own": replace(SAID, excluded="pipeline")})).model == "o/own"


@pytest.mark.parametrize(
    ("model", "created", "checked", "expected"),
    [
        ("Qwen/Qwen3-8B", None, None, 1),
        ("Qwen/Qwen2-7B", "2024-06-01", "2026-11-30", 1),
        ("MiniMaxAI/MiniMax-M3", None, None, 1),
        ("tencent/Hy4-preview", None, None, 1),
        ("o/Hy4-preview", None, None, None),
        ("QwenX/a", None, None, None),
        ("o/a", "2025-11-30", "2026-11-30", 2),
        ("o/a", "2025-11-29", "2026-11-30", 3),
        ("o/a", "2027-02-28", "2028-02-29", 2),
        ("o/a", "2027-02-27", "2028-02-29", 3),
        ("o/a", None, "2026-11-30", None),
    ],
)
def test_the_tier(model, created, checked, expected):
    """1 by name, 2 within twelve months of the day the Hub was asked, 3 before; unknown without the Hub."""
    assert tier(model, created, checked) == expected


def test_the_order_of_the_list():
    """By tier, in it by downloads with the unknown last, then by name; bare architectures at the end."""
    names = ["Qwen/q", "o/many", "o/none", "o/loads-unsaid", "o/old", "o/said-nothing", "o/unknown"]
    answers = {
        "o/none": replace(SAID, downloads=0),
        "o/loads-unsaid": replace(SAID, downloads=None),
        "o/many": replace(SAID, downloads=2),
        "o/said-nothing": replace(SAID, created=None),
        "o/old": replace(SAID, created="2020-01-01"),
    }
    found = made(BARE, *(replace(A, model=name) for name in sorted(names)), answers=answers)
    assert [line.model for line in found.lines] == [*names, None]


def test_differences_name_the_line_and_what_moved():
    """An added, a lost and a changed line, an exclusion, and another release."""
    old, new = made(A, B), made(replace(A, sources=("vllm-docs",)), BARE)
    new = replace(new, excluded={"draft": ()}, engines={"vllm": ENGINES["vllm"] | {"version": "0.34.0"}})
    found = differences(old, new, moving=False)
    assert [text.partition(":")[0] for text in found] == ["vllm", "o/small", "o/b", "GrokForCausalLM", "o/a"]
    assert found[-1] == "o/a: sources is ('vllm-tests',) in the list, and should be ('vllm-docs',)"
    assert differences(old, old, moving=False) == []


def test_downloads_move_every_day():
    """A check that asks the Hub finds what it says about a checkpoint, not how often it was loaded since."""
    old = made(A, answers={"o/a": SAID})
    new = made(A, answers={"o/a": replace(SAID, downloads=901)}, today=date(2026, 12, 1))
    assert differences(old, new, moving=True) == []
    assert len(differences(old, new, moving=False)) == 2


def test_the_table_of_counts():
    """One row per status, one column per tier."""
    found = made(A, BARE, replace(B, model="Qwen/b"), answers={"o/a": SAID})
    assert [line.split() for line in counts(found).splitlines()[2:]] == [
        ["no-checkpoint-named", "0", "0", "0", "1", "1"],
        ["pending", "0", "1", "0", "0", "1"],
        ["unchecked", "1", "0", "0", "0", "1"],
        ["all", "1", "1", "0", "1", "3"],
    ]


# The command


@pytest.fixture(scope="session")
def registries() -> tuple:
    """What the pinned packages name, read once: reading them takes seconds."""
    return models.registries(ROOT)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, registries: tuple) -> Path:
    """A checkout with the pins of this one, two manifests and no list."""
    monkeypatch.setattr(models, "registries", lambda root: registries)
    for name in ("params.yaml", "fixtures/packages.toml", "fixtures/registries.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    for slug in ("qwen3-8b", "hermes-4-14b"):
        (tmp_path / "fixtures" / slug).mkdir()
        manifest = ROOT / "fixtures" / slug / "manifest.toml"
        (tmp_path / "fixtures" / slug / "manifest.toml").write_bytes(manifest.read_bytes())
    return tmp_path


def answering(model: str, revision: str | None) -> Answer:
    """A hub that knows every checkpoint, one of them gated."""
    return replace(SAID, status="gated" if model == "moonshotai/Kimi-K3" else "pending")


def test_the_same_registries_give_the_same_bytes(checkout):
    """Twice from nothing, and once more over what is there."""
    models.main(checkout, ask_hub=False)
    first = models.path(checkout).read_bytes()
    models.main(checkout, ask_hub=False)
    assert models.path(checkout).read_bytes() == first
    assert render(models.read(checkout)).encode() == first


def test_the_list_of_a_checkout(checkout):
    """Every checkpoint once, engines' and our own; a list of hundreds, of which two are recorded."""
    found = models.main(checkout, ask_hub=False)
    by_model = {line.model: line for line in found.lines if line.model}
    assert by_model["Qwen/Qwen3-8B"].status == "recorded"
    assert by_model["Qwen/Qwen3-8B"].sources == ("manifest", "sglang", "vllm-docs", "vllm-registry", "vllm-tests")
    assert by_model["NousResearch/Hermes-4-14B"].sources == ("manifest",)
    assert by_model["bigscience/bloomz-1b1"].status == "unchecked"
    assert "BAAI/bge-m3" not in by_model and "BAAI/bge-m3" in found.excluded["pooling"]
    assert "tencent/Hy4-preview-FP8" in found.excluded["quantised-name"]
    assert len(by_model) > 400
    assert sum(line.status == "recorded" for line in found.lines) == 2
    assert found.engines["vllm"]["commit"] == "4ba787ec9" and found.hub_day is None


def test_with_a_hub_every_checkpoint_is_asked_about_once(checkout):
    """And architectures without one are not."""
    asked = []

    def ask(model, revision):
        asked.append((model, revision))
        return answering(model, revision)

    found = models.current(checkout, ask_hub=True, ask=ask)
    assert sorted(model for model, _ in asked) == sorted(line.model for line in found.lines if line.model)
    assert ("Qwen/Qwen3-8B", "b968826d9c46dd6066d109eabc6255188de91218") in asked, "at the pinned revision"
    assert ("baidu/ERNIE-4.5-VL-28B-A3B-PT", "refs/pr/17") in asked, "as vLLM's tests ask for it"
    assert {line.status for line in found.lines} == {"recorded", "pending", "gated", "no-checkpoint-named"}


def test_a_hub_that_goes_away_is_not_asked_again(checkout, capsys):
    """What it said before is in the list, the others say that it gave no answer."""
    asked = []

    def ask(model, revision):
        asked.append(model)
        if len(asked) == 3:
            raise NoAnswer("unreachable", "gone", lost=True)
        return answering(model, revision)

    found = models.current(checkout, ask_hub=True, ask=ask)
    assert len(asked) == 3
    assert {line.hub for line in found.lines if line.model in asked[:2]} <= {"pending", "gated"}
    assert {line.hub for line in found.lines if line.model and line.model not in asked[:2]} == {"hub-error-unreachable"}
    assert "not asked about the other" in capsys.readouterr().err


def test_a_hub_that_answers_nothing_is_no_verdict(checkout):
    """The list stays as it was, also when there was none."""

    def ask(model, revision):
        raise NoAnswer("503", "the Hub answers with status 503")

    with pytest.raises(InputUnavailable, match="answered no question"):
        models.current(checkout, ask_hub=True, ask=ask)
    assert not models.path(checkout).exists()


def test_check_without_a_list_is_a_finding(checkout):
    """Nothing to compare with is not the same as equal."""
    with pytest.raises(Finding, match="does not exist"):
        models.check(checkout, ask_hub=False)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('"status":"recorded"', '"status":"pending"', "Qwen/Qwen3-8B: status is 'pending' in the list"),
        ('"model":"bigscience/bloomz-1b1"', '"model":"bigscience/other"', "bigscience/bloomz-1b1: is not in the list"),
        ('"commit":"4ba787ec9"', '"commit":"aaaaaaaaa"', "vllm: "),
        ('"hub_day":null', '"hub_day": null', "written in another way"),
    ],
)
def test_check_names_what_differs(checkout, old, new, told):
    """A status, a name, a release, or only the way it is written."""
    models.main(checkout, ask_hub=False)
    models.check(checkout, ask_hub=False)
    text = models.path(checkout).read_text("utf-8")
    assert old in text
    models.path(checkout).write_text(text.replace(old, new), "utf-8")
    with pytest.raises(Finding, match=told):
        models.check(checkout, ask_hub=False)


@pytest.mark.parametrize("broken", ["{", "[]", '{"model": "o/a"}', ""])
def test_a_broken_list_is_told_with_its_line(checkout, broken):
    """A list cut short, or merged by hand, ends in a sentence."""
    models.main(checkout, ask_hub=False)
    header, *_ = models.path(checkout).read_text("utf-8").splitlines()
    models.path(checkout).write_text(f"{header}\n{broken}\n", "utf-8")
    with pytest.raises(TableError, match="line 2"):
        models.read(checkout)


def test_a_checkpoint_with_two_lines_is_told(checkout):
    """What a merge of two branches may leave."""
    models.main(checkout, ask_hub=False)
    text = models.path(checkout).read_text("utf-8")
    models.path(checkout).write_text(text + text.splitlines()[1] + "\n", "utf-8")
    with pytest.raises(TableError, match="two lines"):
        models.read(checkout)


def command(checkout: Path, *arguments: str, endpoint: str, home: Path) -> subprocess.CompletedProcess:
    from bellwether.cache import cache_folder

    return subprocess.run(
        [sys.executable, "-m", "bellwether", "models", "--root", str(checkout), *arguments],
        env=environment(endpoint, home, BELLWETHER_CACHE=str(cache_folder())),
        capture_output=True,
        text=True,
    )


def test_the_command_asks_a_real_hub(checkout, tmp_path_factory):
    """Exit 0 with the counts; one question per checkpoint, and a hub that is away is exit 2 and changes nothing."""
    home = tmp_path_factory.mktemp("home")
    manifest = "b968826d9c46dd6066d109eabc6255188de91218"
    with LocalHub({("Qwen/Qwen3-8B", manifest, "config.json"): b"{}"}) as hub:
        hub.about["Qwen/Qwen3-8B"] = {"createdAt": "2025-04-27T03:42:21.000Z", "downloads": 77}
        done = command(checkout, "--hub", endpoint=hub.url, home=home)
        assert (done.returncode, "not-on-hub" in done.stdout) == (0, True), done.stderr
    line = next(line for line in models.read(checkout).lines if line.model == "Qwen/Qwen3-8B")
    assert (line.status, line.hub, line.created, line.downloads) == ("recorded", "no-chat-template", "2025-04-27", 77)
    kept = models.path(checkout).read_bytes()
    done = command(checkout, "--hub", endpoint=closed_port(), home=home)
    assert (done.returncode, done.stdout) == (2, "")
    assert "answered no question" in done.stderr
    assert models.path(checkout).read_bytes() == kept


def test_the_stored_list_is_what_the_registries_give():
    """fixtures/models.jsonl of this checkout."""
    models.check(ROOT, ask_hub=False)
