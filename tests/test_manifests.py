"""Command `manifests`: groups of checkpoints with equal oracle inputs, and the manifests of new ones."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from bellwether import manifests as stage
from bellwether.cli import cli
from bellwether.errors import ParamsError
from bellwether.manifests import grouped, with_group
from bellwether.models import Line, Models, render
from bellwether.params import Manifest, read_manifest
from support import ROOT

REVISION = "0123456789abcdef0123456789abcdef01234567"
A, B = "a" * 64, "b" * 64
OF_TEMPLATE = {"render": ("hf-template",), "parse": ("roundtrip",)}
OF_ENCODER = {"render": ("vendor-code:deepseek-v4",), "parse": ("roundtrip",)}


def manifest(
    slug: str, inputs: Mapping[str, str] = {"tokenizer.json": A}, *, model: str = "", **more: Mapping
) -> Manifest:
    return Manifest(
        **{"slug": slug, "model": model or f"owner/{slug}", "revision": REVISION, "tier": 3, "license": "MIT"},
        **{"inputs": inputs, "files": {}, "authority": OF_TEMPLATE, "unreached": {}, **more},
    )


# ── which checkpoints are one group, and whose it is ─────────────────────────────────────────────────────────────────


def test_equal_inputs_are_one_group_and_the_recorded_checkpoint_is_its_primary():
    """However often another one is downloaded: a recording stands under its slug."""
    both = [manifest("big"), manifest("small")]
    assert grouped(both, ["small"], {"owner/big": 1000, "owner/small": 1}) == {"big": "small", "small": None}


def test_without_a_recorded_one_the_most_downloaded_is_primary():
    """Unknown is less than any number, zero too."""
    three = [manifest("a"), manifest("b"), manifest("c")]
    assert grouped(three, [], {"owner/b": 5, "owner/c": 9}) == {"a": "c", "b": "c", "c": None}
    assert grouped(three, [], {"owner/b": 0}) == {"a": "b", "b": None, "c": "b"}


@pytest.mark.parametrize("downloads", [{}, {"zeta/one": 3, "alpha/two": 3}])
def test_a_tie_goes_to_the_first_repository_name(downloads: dict[str, int]):
    """Not to the first slug."""
    both = [manifest("one", model="zeta/one"), manifest("two", model="alpha/two")]
    assert grouped(both, [], downloads) == {"one": "two", "two": None}


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"tokenizer.json": B}, id="another sha256"),
        pytest.param({"tokenizer.model": A}, id="another name"),
        pytest.param({"tokenizer.json": A, "config.json": B}, id="one more file"),
        pytest.param({}, id="nothing"),
    ],
)
def test_other_inputs_are_another_group(other: dict[str, str]):
    """File names are part of what is equal: transformers chooses by them."""
    assert grouped([manifest("one"), manifest("two", other)], [], {}) == {"one": None, "two": None}


def test_nothing_pinned_is_equal_to_nothing():
    """Two manifests without inputs say nothing of each other."""
    assert grouped([manifest("one", {}), manifest("two", {})], [], {}) == {"one": None, "two": None}


def test_equal_stand_ins_for_files_known_to_differ_are_two_groups():
    """Both tokenizers are derived from the same ranks; the checkpoints' own files have two sha256s."""
    pair = [manifest("one", unreached={"tokenizer.json": A}), manifest("two", unreached={"tokenizer.json": B})]
    assert grouped(pair, [], {}) == {"one": None, "two": None}
    pair[1] = manifest("two", unreached={"tokenizer.json": A})
    assert grouped(pair, [], {}) == {"one": None, "two": "one"}


def test_two_recorded_checkpoints_that_are_equal_are_refused():
    """Which recording stays is no rule's business; both slugs stand in the message."""
    with pytest.raises(ParamsError, match="one and two have equal oracle inputs, and both are recorded") as caught:
        grouped([manifest("two"), manifest("one"), manifest("three")], ["one", "two"], {})
    assert "params.yaml" in caught.value.next_step


def test_one_group_with_two_authorities_is_refused():
    """A member would be judged by sources that its recording does not hold."""
    both = [manifest("one"), manifest("two", authority=OF_ENCODER)]
    with pytest.raises(
        ParamsError, match=r"fixtures/two/manifest\.toml has the oracle inputs of fixtures/one/manifest\.toml"
    ):
        grouped(both, ["one"], {})
    assert grouped([both[0], manifest("two", {"x": A}, authority=OF_ENCODER)], [], {}) == {"one": None, "two": None}


@st.composite
def checkouts(draw: st.DrawFn) -> tuple[list[Manifest], list[str], dict[str, int]]:
    """Manifests of a few kinds of material, at most one of each kind recorded, downloads known of some."""
    kinds = draw(st.lists(st.integers(0, 3), max_size=8))
    owners = draw(st.permutations(range(len(kinds))))
    manifests = [
        manifest(f"m{place}", {"tokenizer.json": f"{kind:064}"}, model=f"o{owner}/m{place}")
        for place, (kind, owner) in enumerate(zip(kinds, owners, strict=True))
    ]
    first = {kind: f"m{place}" for place, kind in enumerate(kinds)}
    recorded = [slug for kind, slug in first.items() if draw(st.booleans())]
    downloads = {one.model: draw(st.integers(0, 2)) for one in manifests if draw(st.booleans())}
    return manifests, recorded, downloads


@given(checkouts(), st.randoms(use_true_random=False))
def test_groups_are_a_partition_by_inputs_whatever_the_order(checkout, random):
    """Each checkpoint has one primary, which is its own; two share it exactly when their inputs are equal."""
    manifests, recorded, downloads = checkout
    groups = grouped(manifests, recorded, downloads)
    primary = {slug: group or slug for slug, group in groups.items()}
    assert sorted(groups) == sorted(one.slug for one in manifests)
    assert all(primary[of] == of for of in primary.values())
    for one in manifests:
        for other in manifests:
            assert (primary[one.slug] == primary[other.slug]) == (one.inputs == other.inputs)
    assert all(groups[slug] is None for slug in recorded)
    shuffled = random.sample(manifests, len(manifests))
    assert grouped(shuffled, recorded[::-1], downloads) == groups


# ── the group line ───────────────────────────────────────────────────────────────────────────────────────────────────

TEXT = """# A checkpoint.
model = "o/m"  # of o
license = "MIT"

# Whose answer is recorded.
[authority]
render = ["hf-template"]
"""


def test_the_line_stands_below_the_last_key_and_above_the_comment_of_the_next_table():
    """Comments stay with what they speak of."""
    assert with_group(TEXT, "other", "x") == TEXT.replace('"MIT"\n', '"MIT"\ngroup = "other"\n')


def test_a_line_is_replaced_or_removed_where_it_stands():
    """Wherever its author put it; everything else stays."""
    text = TEXT.replace("# A check", 'group =  "old" # by hand\n# A check')
    assert with_group(text, "new", "x") == text.replace('group =  "old" # by hand', 'group = "new"')
    assert with_group(text, None, "x") == TEXT


@pytest.mark.parametrize("text", ["", "# only a comment\n", 'model = "x"', "\n[authority]\n", 'model = "x"\n\n\n'])
def test_a_line_is_placed_in_any_text(text: str):
    """A file without tables, without a last line end, with nothing in it."""
    edited = with_group(text, "a.b-1", "x")
    assert tomllib.loads(edited) == {**tomllib.loads(text), "group": "a.b-1"}
    assert set(text.splitlines()) <= set(edited.splitlines())


def test_line_ends_stay_what_they_are():
    """A file written on Windows gets a line with its line ends."""
    text = TEXT.replace("\n", "\r\n")
    assert with_group(text, "g", "x") == with_group(TEXT, "g", "x").replace("\n", "\r\n")
    assert with_group(with_group(text, "g", "x"), None, "x") == text


def test_a_text_that_only_looks_like_a_group_line_is_not_touched():
    """Inside a string of several lines the edit would change what the string says."""
    text = 'license = """\ngroup = "x"\n"""\n'
    with pytest.raises(ParamsError, match=r"fixtures/a/manifest\.toml: the group line cannot be placed"):
        with_group(text, "new", "fixtures/a/manifest.toml")


SPACES = st.lists(st.sampled_from(["", '# group = "no"', "  ", "# é"]), max_size=2).map(
    lambda of: [f"{x}\n" for x in of]
)


@given(st.tuples(SPACES, SPACES, SPACES, SPACES), st.sampled_from(["\n", "\r\n"]))
def test_a_line_that_is_set_and_removed_leaves_every_byte(spaces, end):
    """Also where comments and blank lines stand between the keys."""
    one, two, three, four = map("".join, spaces)
    text = f'{one}model = "o/m"\n{two}tier = 1\n{three}[inputs]\n{four}group = "{A}"\n'.replace("\n", end)
    edited = with_group(text, "g", "x")
    assert tomllib.loads(edited) == {**tomllib.loads(text), "group": "g"}
    assert with_group(edited, "g", "x") == edited
    assert with_group(edited, None, "x") == text


# ── the command ──────────────────────────────────────────────────────────────────────────────────────────────────────

PARAMS = """
checkpoints: [{}]
corpora: [toy]
oracle: {{versions: {{}}, clock: "2026-01-15T12:00:00", other_clock: "2027-10-02T23:30:00", template_seconds: 20}}
"""


def write(root: Path, slug: str, sha256: str = A, more: str = "") -> Path:
    """Write a manifest as a person would, with a comment, and return its path."""
    path = root / "fixtures" / slug / "manifest.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f'# {slug}, by hand\nmodel = "owner/{slug}"\nrevision = "{REVISION}"\ntier = 1\nlicense = "MIT"\n{more}'
        f'\n# Who decides.\n[authority]\nrender = ["hf-template"]\nparse = ["roundtrip"]\n[inputs]\n"x" = "{sha256}"\n',
        "utf-8",
    )
    return path


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A checkout of three equal checkpoints, the second one recorded, and of one that stands alone."""
    (tmp_path / "params.yaml").write_text(PARAMS.format("two"), "utf-8")
    for slug in ("one", "two", "three"):
        write(tmp_path, slug)
    write(tmp_path, "alone", B)
    return tmp_path


def bellwether(root: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["manifests", "--root", str(root), *arguments])


def contents(root: Path) -> dict[str, bytes]:
    """Every file below fixtures/, by its path."""
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_members_get_the_primary_s_slug_and_nothing_else_changes(project: Path):
    """One line more per member; what is printed names each file written."""
    before = contents(project)
    run = bellwether(project)
    assert (run.exit_code, run.stderr) == (0, "")
    assert run.stdout == (
        "fixtures/one/manifest.toml: a member of two\n"
        "fixtures/three/manifest.toml: a member of two\n"
        "4 manifests, 2 groups\n"
    )
    line = b'license = "MIT"\n'
    for slug in ("one", "three"):
        path = f"fixtures/{slug}/manifest.toml"
        before[path] = before[path].replace(line, line + b'group = "two"\n')
        assert read_manifest(project, slug).group == "two"
    assert contents(project) == before


def test_a_second_run_writes_nothing(project: Path):
    """Not even the same bytes: the files' times stay."""
    bellwether(project)
    times = {path: path.stat().st_mtime_ns for path in project.rglob("*.toml")}
    run = bellwether(project)
    assert (run.exit_code, run.stdout) == (0, "4 manifests, 2 groups, nothing to change\n")
    assert {path: path.stat().st_mtime_ns for path in project.rglob("*.toml")} == times


def test_a_member_that_is_no_longer_equal_loses_its_line(project: Path):
    """A pin of it has moved; the file is as it was before it became a member."""
    alone = write(project, "one", B.replace("b", "c")).read_bytes()
    write(project, "one", B.replace("b", "c"), 'group = "two"\n')
    run = bellwether(project)
    assert "fixtures/one/manifest.toml: no longer a member of two\n" in run.stdout
    assert (project / "fixtures" / "one" / "manifest.toml").read_bytes() == alone


def test_a_member_changes_its_group(project: Path):
    """Its inputs are now another primary's."""
    write(project, "one", B, 'group = "two"\n')
    run = bellwether(project)
    assert "fixtures/one/manifest.toml: a member of alone, no longer of two\n" in run.stdout
    assert read_manifest(project, "one").group == "alone"


def test_a_member_that_is_recorded_in_the_primary_s_place_becomes_the_primary(project: Path):
    """params.yaml says whose recording there is."""
    bellwether(project)
    (project / "params.yaml").write_text(PARAMS.format("three"), "utf-8")
    bellwether(project)
    assert [read_manifest(project, slug).group for slug in ("one", "two", "three")] == ["three", "three", None]


def known(model: str, downloads: int | None) -> Line:
    names = ("revision", "tier", "created", "modality", "slug", "group", "checked", "hub")
    return Line(
        model=model, status="unchecked", downloads=downloads, sources=(), architectures=(), **dict.fromkeys(names)
    )


def test_downloads_come_from_the_models_list(project: Path):
    """Of three, one is unknown to the Hub and one is not in the list."""
    (project / "params.yaml").write_text(PARAMS.format(""), "utf-8")
    listed = Models({}, {}, (known("owner/one", None), known("owner/three", 7)))
    (project / "fixtures" / "models.jsonl").write_text(render(listed), "utf-8")
    bellwether(project)
    assert [read_manifest(project, slug).group for slug in ("one", "two", "three")] == ["three", "three", None]


def test_a_torn_models_list_is_named_with_its_line(project: Path):
    """Exit 2; who is primary cannot be said without it."""
    text = render(Models({}, {}, (known("owner/one", None),)))
    (project / "fixtures" / "models.jsonl").write_text(text[:-9], "utf-8")
    before = contents(project)
    run = bellwether(project)
    assert run.exit_code == 2
    assert "models.jsonl, line 2: " in run.stderr
    assert contents(project) == before


def test_check_says_what_a_run_would_change_and_writes_nothing(project: Path):
    """Exit 1 before, 0 after."""
    before = contents(project)
    run = bellwether(project, "--check")
    assert (run.exit_code, run.stdout) == (1, "")
    assert run.stderr == (
        "error: groups have moved\n"
        "  fixtures/one/manifest.toml: a member of two\n"
        "  fixtures/three/manifest.toml: a member of two\n"
        "next:  Run `bellwether manifests` and commit.\n"
    )
    assert contents(project) == before
    bellwether(project)
    assert bellwether(project, "--check").exit_code == 0


def test_two_recorded_equal_checkpoints_stop_the_command(project: Path):
    """Exit 2, also with --check: it is no difference that a run would mend."""
    (project / "params.yaml").write_text(PARAMS.format("two, three"), "utf-8")
    before = contents(project)
    for options in ([], ["--check"]):
        run = bellwether(project, *options)
        assert run.exit_code == 2
        assert "three and two have equal oracle inputs, and both are recorded" in run.stderr
    assert contents(project) == before


def test_a_malformed_manifest_stops_the_command(project: Path):
    """No manifest is written while one cannot be read."""
    before = contents(project)
    torn = project / "fixtures" / "alone" / "manifest.toml"
    torn.write_text("model = ", "utf-8")
    run = bellwether(project)
    assert run.exit_code == 2
    assert f"{torn} is not TOML" in run.stderr
    assert contents(project) == before | {"fixtures/alone/manifest.toml": b"model = "}


def test_all_manifests_are_written_or_none(project: Path, monkeypatch: pytest.MonkeyPatch):
    """The second file cannot be put in place: the first is as before, and no work file stays."""
    before = contents(project)
    replace, moved = Path.replace, []

    def fail_at_second(self: Path, target: Path) -> Path:
        if self.name.endswith(".partial"):
            moved.append(target)
            if len(moved) == 2:
                raise OSError(28, "No space left on device", str(target))
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", fail_at_second)
    run = bellwether(project)
    assert run.exit_code == 2
    assert "No space left on device" in run.stderr
    assert len(moved) == 2
    assert contents(project) == before


def test_a_new_manifest_is_taken_back_with_its_folder(tmp_path: Path):
    """The second one's folder cannot be made, because a file has its name."""
    (tmp_path / "taken").write_text("")
    texts = {tmp_path / "new" / "manifest.toml": "a", tmp_path / "taken" / "manifest.toml": "b"}
    with pytest.raises(OSError):
        stage.write_all(texts)
    assert contents(tmp_path) == {"taken": b""}
    assert not (tmp_path / "new").exists()


def test_what_a_killed_run_left_is_cleared(project: Path):
    """Work files of a process that no longer runs; what it had put in place is kept, the rest is done now."""
    folder = project / "fixtures" / "one"
    (folder / "manifest.toml.999999999.partial").write_text("half")
    (folder / "manifest.toml.999999999.old").write_text("old")
    bellwether(project)
    assert [path.name for path in folder.iterdir()] == ["manifest.toml"]
    assert read_manifest(project, "one").group == "two"


def test_a_member_is_not_recorded(project: Path):
    """Its references are the primary's; a second recording would be free to differ."""
    bellwether(project)
    run = CliRunner().invoke(cli, ["record", "one", "--root", str(project)])
    assert (run.exit_code, run.stderr.splitlines()) == (
        2,
        [
            "error: one is a member of two, whose recording serves both",
            "next:  Record two; or list one in its place in params.yaml, then run `bellwether manifests`.",
        ],
    )
    assert sorted(path.name for path in (project / "fixtures" / "one").iterdir()) == ["manifest.toml"]


def test_groups_of_the_checkout_are_written(root: Path):
    """What stands in Git is what the rules give."""
    run = bellwether(ROOT, "--check")
    assert (run.exit_code, run.stderr) == (0, "")
