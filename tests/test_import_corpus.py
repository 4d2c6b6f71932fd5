"""Stage `import` as a command: what it writes, what it checks, and that a corpus is replaced whole or not at all."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from bellwether import import_corpus
from bellwether.case import Case, Origin
from bellwether.cli import cli
from bellwether.corpora import handmade
from bellwether.corpora.sources import Fetch
from bellwether.errors import CorpusError, Finding, ParamsError

TABLES = ["cases.parquet", "left_out.parquet", "origins.parquet", "repeats.parquet", "requests.parquet"]
RENDER = {"set": "common", "name": "hi", "request": {"messages": []}, "notes": "A request without a message."}
PARSE = {"set": "common", "name": "yes", "request": {"messages": []}, "message": {"content": "Yes."}, "notes": "One."}
TOKENIZE = {"set": "common", "name": "dash", "text": "a–b", "notes": "A dash outside ASCII."}
DETOKENIZE = {"set": "common", "name": "star", "text": "*", "notes": "One piece."}


def line(value: dict) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A checkout with a hand-made corpus of one case per kind."""
    return make_project(tmp_path / "project")


def make_project(root: Path) -> Path:
    folder = root / "corpus" / "handmade"
    folder.mkdir(parents=True)
    (root / "fixtures").mkdir()
    for kind, value in (("render", RENDER), ("parse", PARSE), ("tokenize", TOKENIZE), ("detokenize", DETOKENIZE)):
        (folder / f"{kind}.jsonl").write_text(line(value), "utf-8")
    return root


def bellwether(root: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, [*arguments, "--root", str(root)])


def stored(root: Path) -> dict[str, bytes]:
    """Return every file below corpus/imported, by its path."""
    folder = root / "corpus" / "imported"
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def change(root: Path, kind: str, value: dict) -> None:
    (root / "corpus" / "handmade" / f"{kind}.jsonl").write_text(line(value), "utf-8")


# ── importing ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_import_writes_five_tables_and_says_how_many_rows(project: Path):
    """Render and parse share one request; each kind's file is an origin."""
    run = bellwether(project, "import", "handmade")
    assert (run.exit_code, run.stderr) == (0, "")
    assert run.stdout == "handmade: 4 cases, 1 requests, 4 origins, 0 repeats, 0 left out\n"
    assert sorted(stored(project)) == [f"handmade/{name}" for name in TABLES]
    cases = pq.read_table(project / "corpus" / "imported" / "handmade" / "cases.parquet")
    assert cases["case_id"].to_pylist() == [
        "render/common/hi",
        "parse/common/yes",
        "tokenize/common/dash",
        "detokenize/common/star",
    ]


def test_importing_again_gives_the_same_bytes(project: Path):
    """An import depends on the lines alone, not on what was imported before."""
    bellwether(project, "import", "handmade")
    before = stored(project)
    assert bellwether(project, "import", "handmade").exit_code == 0
    assert stored(project) == before


def test_file_that_no_import_writes_goes(project: Path):
    """The folder is replaced, so a table of an earlier schema does not stay beside the new ones."""
    folder = project / "corpus" / "imported" / "handmade"
    folder.mkdir(parents=True)
    (folder / "tools.parquet").write_bytes(b"of another time")
    assert bellwether(project, "import", "handmade").exit_code == 0
    assert sorted(stored(project)) == [f"handmade/{name}" for name in TABLES]


# ── checking ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_check_of_untouched_tables_is_clean(project: Path):
    """Exit 0, and the tables stay as they are."""
    bellwether(project, "import", "handmade")
    before = stored(project)
    run = bellwether(project, "import", "--check", "handmade")
    assert (run.exit_code, run.stderr) == (0, "")
    assert run.stdout == "handmade: the stored files are what the source gives\n"
    assert stored(project) == before


def test_check_names_the_tables_a_changed_line_changes(project: Path):
    """New notes change cases and nothing else; a new request changes requests too. Exit 1, and nothing is written."""
    bellwether(project, "import", "handmade")
    before = stored(project)
    change(project, "render", RENDER | {"notes": "Another note."})
    run = bellwether(project, "import", "--check", "handmade")
    assert run.exit_code == 1
    assert "a new import gives other files (cases.parquet)" in run.stderr
    assert "dvc repro import@handmade" in run.stderr
    change(project, "render", RENDER | {"request": {"messages": [], "tools": []}})
    assert "(cases.parquet, requests.parquet)" in bellwether(project, "import", "--check", "handmade").stderr
    assert stored(project) == before


def test_check_without_a_table_finds_it_missing(project: Path):
    """A missing table is a difference, and is named."""
    bellwether(project, "import", "handmade")
    (project / "corpus" / "imported" / "handmade" / "repeats.parquet").unlink()
    with pytest.raises(Finding, match=r"\(repeats\.parquet\)"):
        import_corpus.check(project, "handmade")


# ── what is no import ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("corpus", ["nosuch", "", "../handmade"])
@pytest.mark.parametrize("arguments", [(), ("--check",)], ids=["import", "check"])
def test_unknown_corpus_is_no_verdict(project: Path, corpus: str, arguments: tuple[str, ...]):
    """Exit 2 with the corpora there are; nothing is made or removed."""
    (project / "corpus" / "imported.old").mkdir()
    run = bellwether(project, "import", *arguments, corpus)
    assert run.exit_code == 2
    assert run.stderr == f"error: there is no corpus {corpus!r}\nnext:  Known corpora: handmade.\n"
    assert sorted(path.name for path in (project / "corpus").iterdir()) == ["handmade", "imported.old"]


def not_json(root: Path) -> None:
    path = root / "corpus" / "handmade" / "tokenize.jsonl"
    path.write_text(path.read_text("utf-8") + '{"set": "common", "name"\n', "utf-8")


def no_lines(root: Path) -> None:
    for path in (root / "corpus" / "handmade").iterdir():
        path.write_text("", "utf-8")


def no_file(root: Path) -> None:
    (root / "corpus" / "handmade" / "detokenize.jsonl").unlink()


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        pytest.param(not_json, "corpus/handmade/tokenize.jsonl line 2: expected one JSON object", id="not JSON"),
        pytest.param(no_lines, "corpus handmade has no case", id="no case"),
        pytest.param(no_file, "corpus/handmade/detokenize.jsonl: expected a corpus file, found none", id="no file"),
    ],
)
@pytest.mark.parametrize("earlier", [True, False], ids=["imported before", "first import"])
def test_corpus_that_cannot_be_read_leaves_what_was_imported(
    project: Path, spoil: Callable[[Path], None], said: str, earlier: bool
):
    """Exit 2 names file and line, and every table, also of the kinds read before, is what it was."""
    if earlier:
        bellwether(project, "import", "handmade")
    before = stored(project)
    change(project, "render", RENDER | {"name": "changed"})
    spoil(project)
    run = bellwether(project, "import", "handmade")
    assert run.exit_code == 2
    assert said in run.stderr
    assert "\nnext:  " in run.stderr
    assert stored(project) == before
    assert [path.name for path in (project / "corpus").glob("imported/*")] == (["handmade"] if earlier else [])


TOY = Origin("toy", "handmade", "toy.jsonl", "", "MIT")


def importer_that_raises(error: BaseException) -> Callable:
    def corpus(folder: Path, fetch: Fetch) -> Iterator[Case]:
        for number in range(9000):  # more than a row group, so that bytes have been written
            yield Case("tokenize", "toy", f"c{number}", TOY, "1", text=str(number))
        raise error

    return corpus


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (KeyboardInterrupt(), "error: interrupted"),
        (CorpusError("row 9001 is torn"), "error: row 9001 is torn"),
        (RuntimeError("a bug"), "error: RuntimeError: a bug"),
    ],
)
def test_import_that_breaks_off_leaves_what_was_imported(
    project: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, said: str
):
    """Whatever ends an import, the corpus is the earlier one, whole."""
    bellwether(project, "import", "handmade")
    before = stored(project)
    monkeypatch.setattr(handmade, "corpus", importer_that_raises(error))
    run = bellwether(project, "import", "handmade")
    assert run.exit_code == 2
    assert said in run.stderr
    assert stored(project) == before
    assert [path.name for path in (project / "corpus" / "imported").iterdir()] == ["handmade"]


def test_interrupt_while_folders_change_places_leaves_what_was_imported(project: Path, monkeypatch: pytest.MonkeyPatch):
    """Between the earlier folder's leaving and the new one's coming, an interrupt brings the earlier one back."""
    bellwether(project, "import", "handmade")
    before = stored(project)
    rename = Path.rename

    def interrupted(path: Path, target: Path) -> Path:
        if path.name.endswith(".partial"):
            raise KeyboardInterrupt
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    change(project, "render", RENDER | {"name": "changed"})
    assert bellwether(project, "import", "handmade").exit_code == 2
    assert stored(project) == before


@pytest.mark.parametrize("left", ["handmade.999999999.partial", "handmade.999999999.old"])
def test_what_a_killed_import_left_is_cleared_away(project: Path, left: str):
    """A killed run may leave a half-written folder, or the earlier one beside the new one: the next run removes it."""
    bellwether(project, "import", "handmade")
    before = stored(project)
    shutil.copytree(project / "corpus" / "imported" / "handmade", project / "corpus" / "imported" / left)
    assert bellwether(project, "import", "handmade").exit_code == 0
    assert stored(project) == before


def test_what_a_killed_import_put_aside_is_not_lost(project: Path):
    """Killed between the two renames, only the folder put aside is whole: an import that then fails keeps it."""
    bellwether(project, "import", "handmade")
    before = stored(project)
    folder = project / "corpus" / "imported" / "handmade"
    folder.rename(folder.with_name("handmade.999999999.old"))
    not_json(project)
    assert bellwether(project, "import", "handmade").exit_code == 2
    assert stored(project) == before


def test_corpus_without_pins_is_named(project: Path):
    """A folder with an importer but without source.toml is no verdict, and names the file."""
    (project / "corpus" / "bfcl").mkdir()
    with pytest.raises(ParamsError, match=r"corpus/bfcl/source\.toml does not exist") as caught:
        import_corpus.main(project, "bfcl")
    assert caught.value.next_step
    assert not (project / "corpus" / "imported" / "bfcl").exists()


def test_helper_of_importers_is_no_corpus(project: Path):
    """A corpus is a folder *and* a module of that name: neither alone, nor a folder of results, is one."""
    for name in ("imported", "nosuch", "store.old"):
        (project / "corpus" / name).mkdir()
    assert import_corpus.corpora(project) == ["handmade"]


# ── a full disk ──────────────────────────────────────────────────────────────────────────────────────────────────────


def grow(root: Path) -> None:
    """Give the corpus 300 cases of text that hardly compresses."""
    lines = []
    for number in range(300):
        text = random.Random(number).randbytes(1000).hex()
        lines.append(line(TOKENIZE | {"name": f"long-{number}", "text": text}))
    (root / "corpus" / "handmade" / "tokenize.jsonl").write_text("".join(lines), "utf-8")


def run_import(root: Path, limit: int | None = None) -> subprocess.CompletedProcess[str]:
    def below_limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))  # Python ignores SIGXFSZ

    command = [sys.executable, "-W", "error", "-B", "-c", "from bellwether.cli import cli; cli()"]
    return subprocess.run(
        [*command, "import", "handmade", "--root", str(root)],
        preexec_fn=below_limit if limit is not None else None,
        capture_output=True,
        text=True,
    )


def assert_told(run: subprocess.CompletedProcess[str]) -> None:
    assert run.returncode == 2
    error, step = run.stderr.splitlines()
    assert error.startswith("error: OSError: [Errno ")
    assert step == "next:  Free some space and run the same command again."


def test_file_size_limit_leaves_what_was_imported(project: Path):
    """A quota or limit ends the import with exit 2, the system's words and what to do; no table is half-written."""
    bellwether(project, "import", "handmade")
    before = stored(project)
    grow(project)
    assert_told(run_import(project, limit=20_000))
    assert stored(project) == before
    assert [path.name for path in (project / "corpus" / "imported").iterdir()] == ["handmade"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or not shutil.which("mount") or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("this machine lets us mount nothing")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_full_disk_leaves_what_was_imported(small_disk: Path, tmp_path: Path):
    """On a full disk likewise; the space the new tables took is free again."""
    root = make_project(small_disk / "project")
    shutil.move(root / "corpus" / "handmade", tmp_path / "handmade")
    (root / "corpus" / "handmade").symlink_to(tmp_path / "handmade")  # only the tables fill the disk
    bellwether(root, "import", "handmade")
    before = stored(root)
    grow(root)
    assert_told(run_import(root))
    assert stored(root) == before
    assert [path.name for path in (root / "corpus" / "imported").iterdir()] == ["handmade"]


def test_mirror_serves_the_archive_of_a_corpus(root, bfcl_wheel, tmp_path, own_cache, monkeypatch):
    """With a mirror folder that holds the wheel by its sha256, no registry is asked; the licence stands beside."""
    monkeypatch.setenv("BELLWETHER_MIRROR", str(tmp_path / "mirror"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    (tmp_path / "mirror").mkdir()
    sha256 = "3bb6dfa5f0c68ad403c9ec50b00db2bb3b4cc9b38ab1ff33f48fe30d853d3a0a"
    shutil.copy(bfcl_wheel, tmp_path / "mirror" / sha256)
    shutil.copytree(root / "corpus" / "bfcl", tmp_path / "corpus" / "bfcl")
    assert import_corpus.main(tmp_path, "bfcl")["cases"] == 6854
    assert "Apache License" in (tmp_path / "corpus" / "imported" / "bfcl" / "LICENSE.bfcl").read_text("utf-8")


def test_check_finds_a_changed_licence(root, bfcl_wheel, tmp_path):
    """The licence's text belongs to the corpus: it is compared like a table."""
    shutil.copytree(root / "corpus" / "bfcl", tmp_path / "corpus" / "bfcl")
    import_corpus.main(tmp_path, "bfcl")
    import_corpus.check(tmp_path, "bfcl")
    (tmp_path / "corpus" / "imported" / "bfcl" / "LICENSE.bfcl").write_text("none")
    with pytest.raises(Finding, match=r"gives other files \(LICENSE\.bfcl\)"):
        import_corpus.check(tmp_path, "bfcl")


# ── deriving ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_derived_corpora_are_listed(root):
    """Without a name the command says what there is, and from what."""
    run = bellwether(root, "derive")
    assert (run.exit_code, run.stderr) == (0, "")
    assert "shapes: Message shapes, from bfcl and gsm8k\n" in run.stdout


def test_what_is_not_derived_is_imported(root):
    """The two commands do not stand in for each other by accident."""
    run = bellwether(root, "derive", "bfcl")
    assert run.exit_code == 2
    assert run.stderr.startswith("error: 'bfcl' is no derived corpus\nnext:  There are ")
