"""Pins of a corpus and the ways to its files, over a real HTTP server on loopback."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from bellwether.corpora import sources
from bellwether.corpora.sources import fetcher, licence_text, read_source
from bellwether.errors import InputUnavailable, ParamsError, PinMismatch
from bellwether.import_corpus import corpora
from bellwether.layout import pins_folder
from local_hub import closed_port
from support import ROOT

COMMIT = "3101c7d5072418e28b9008a6636bde82a006892c"
DATA = b'{"question":"a"}\n'
SHA256 = hashlib.sha256(DATA).hexdigest()


def write(folder: Path, *, files: str | None = None, **changes: str | None) -> Path:
    """Write a source.toml; a change to None leaves the key out."""
    values = {
        "title": "Toy",
        "source": f"github:owner/repo@{COMMIT}",
        "homepage": "https://example.org",
        "license": "MIT",
        "license_file": "LICENSE",
        "attribution": "Nobody",
        "changes": "Nothing.",
    } | changes
    if files is None:
        files = f'[files."data/a b.jsonl"]\nsha256 = "{SHA256}"\nbytes = {len(DATA)}\n'
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"{key} = {value!r}\n" for key, value in values.items() if value is not None]
    (folder / "source.toml").write_text("".join(lines) + files, "utf-8")
    return folder


class GitHub:
    """Answers every path with `data` and `status`, and remembers what was asked."""

    def __init__(self) -> None:
        self.data, self.status, self.length, self.asked = DATA, 200, None, []

    def handler(self) -> type[BaseHTTPRequestHandler]:
        github = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                github.asked.append(self.path)
                self.send_response(github.status)
                self.send_header("Content-Length", str(github.length or len(github.data)))
                self.end_headers()
                self.wfile.write(github.data)

            def log_message(self, *_: object) -> None:
                pass

        return Handler


@pytest.fixture
def github(monkeypatch: pytest.MonkeyPatch, own_cache: Path) -> Iterator[GitHub]:
    monkeypatch.delenv("BELLWETHER_MIRROR", raising=False)
    github = GitHub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), github.handler())
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setattr(sources, "RAW", f"http://127.0.0.1:{server.server_port}")
    yield github
    server.shutdown()
    thread.join()
    server.server_close()


def fetch(folder: Path, said: list[str] | None = None) -> Path:
    return fetcher((said if said is not None else []).append)(read_source(folder), "data/a b.jsonl")


# ── pins ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "corpus", [name for name in corpora(ROOT) if (ROOT / "corpus" / name / "source.toml").exists()]
)
def test_pins_of_the_project_are_readable(corpus):
    """Each corpus with pins names licence, attribution and what is changed; its licence's text is pinned or in Git."""
    source = read_source(pins_folder(ROOT, corpus))
    assert source.corpus == corpus
    assert source.license_file in source.files or (source.folder / source.license_file).is_file()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        pytest.param({"title": None}, "key 'title' is missing", id="missing"),
        pytest.param({"title": ""}, "'title' is ''", id="empty"),
        pytest.param({"tite": "a"}, "unknown key 'tite'", id="unknown"),
        pytest.param(
            {"source": f"github:owner/repo@{COMMIT[:8]}"}, "source is 'github:owner/repo@3101c7d5'", id="short"
        ),
        pytest.param({"source": "github:owner/repo@main"}, "source is", id="branch"),
        pytest.param({"source": "hf:datasets/owner/name@main"}, "source is", id="branch of the Hub"),
        pytest.param({"source": "pypi:toy>=1"}, "source is", id="range"),
        pytest.param({"source": f"github:../../x@{COMMIT}"}, "source is", id="leaves GitHub"),
        pytest.param({"files": "files = 1"}, "files is no table", id="files"),
        pytest.param({"files": '[files]\na = "b"'}, 'files."a"] is no table', id="pin"),
        pytest.param({"files": '[files.a]\nsha256 = "0"\nbytes = 1'}, "no sha256", id="sha256"),
        pytest.param({"files": f'[files.a]\nsha256 = "{SHA256}"'}, "key 'bytes' is missing", id="no size"),
        pytest.param({"files": f'[files."../a"]\nsha256 = "{SHA256}"\nbytes = 1'}, "leaves the source", id="upward"),
        pytest.param({"files": f'[files."/a"]\nsha256 = "{SHA256}"\nbytes = 1'}, "leaves the source", id="absolute"),
        pytest.param({"files": "[files"}, "is not TOML", id="no TOML"),
    ],
)
def test_malformed_pins_are_refused(tmp_path, changes, said):
    """Every error names the file, and says what to do."""
    with pytest.raises(ParamsError) as caught:
        read_source(write(tmp_path / "toy", **changes))
    assert said in str(caught.value)
    assert str(tmp_path / "toy" / "source.toml") in str(caught.value)
    assert caught.value.next_step


def test_short_revision_is_told_what_is_wanted(tmp_path):
    """A short form or a branch is no pin; the 40 digits are asked for, never guessed."""
    with pytest.raises(ParamsError) as caught:
        read_source(write(tmp_path / "toy", source="hf:datasets/owner/name@dae3e1d2"))
    assert "all its 40 hex digits" in caught.value.next_step


def test_file_without_a_pin_is_not_fetched(tmp_path, github):
    """Only pinned bytes reach an importer."""
    with pytest.raises(ParamsError, match="'other' is not pinned"):
        fetcher(print)(read_source(write(tmp_path / "toy")), "other")
    assert github.asked == []


# ── routes ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_file_comes_from_github_once(tmp_path, github, own_cache):
    """By repository, commit and path; then it lies in the cache under its sha256 and nobody is asked."""
    said = []
    path = fetch(write(tmp_path / "toy"), said)
    assert path == own_cache / "files" / SHA256
    assert path.read_bytes() == DATA
    assert fetch(tmp_path / "toy", said) == path
    assert github.asked == [f"/owner/repo/{COMMIT}/data/a%20b.jsonl"]
    assert said == [f"downloading data/a b.jsonl of github:owner/repo@{COMMIT}, 0.0 MB"]


def test_mirror_is_asked_first(tmp_path, github, monkeypatch):
    """A folder of files named by sha256; nothing is copied or asked."""
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    (mirror / SHA256).write_bytes(DATA)
    monkeypatch.setenv("BELLWETHER_MIRROR", str(mirror))
    assert fetch(write(tmp_path / "toy")) == mirror / SHA256
    assert github.asked == []


@pytest.mark.parametrize("place", ["mirror", "cache"])
def test_other_bytes_under_the_right_name_do_not_count(tmp_path, github, monkeypatch, own_cache, place):
    """A name proves nothing: the next route is asked, and a spoilt cache is mended."""
    monkeypatch.setenv("BELLWETHER_MIRROR", str(tmp_path / "mirror"))
    folder = {"mirror": tmp_path / "mirror", "cache": own_cache / "files"}[place]
    folder.mkdir(parents=True)
    (folder / SHA256).write_bytes(DATA[:-1])
    assert fetch(write(tmp_path / "toy")).read_bytes() == DATA
    assert len(github.asked) == 1


def test_other_bytes_from_github_are_refused(tmp_path, github, own_cache):
    """Expected and actual sha256 are named, and nothing is kept."""
    github.data = DATA.upper()
    with pytest.raises(PinMismatch) as caught:
        fetch(write(tmp_path / "toy"))
    assert SHA256 in str(caught.value) and hashlib.sha256(DATA.upper()).hexdigest() in str(caught.value)
    assert not (own_cache / "files").exists()


def missing(github: GitHub, patch: pytest.MonkeyPatch) -> None:
    github.status = 404


def longer(github: GitHub, patch: pytest.MonkeyPatch) -> None:
    github.data = DATA * 1000


def shorter(github: GitHub, patch: pytest.MonkeyPatch) -> None:
    github.data = DATA[:-1]


def cut(github: GitHub, patch: pytest.MonkeyPatch) -> None:
    github.data, github.length = DATA[:-1], len(DATA)


def unreachable(github: GitHub, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sources, "RAW", closed_port())


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (missing, "answers with status 404"),
        (longer, "gives more than the 17 bytes"),
        (shorter, "gives 16 bytes of the 17"),
        (cut, "is unreachable (RemoteProtocolError)"),
        (unreachable, "is unreachable (ConnectError)"),
    ],
)
def test_github_without_the_file_names_every_route(tmp_path, github, monkeypatch, own_cache, spoil, said):
    """Why each route failed, and how to go on without GitHub: the folder and the name it needs there."""
    spoil(github, monkeypatch)
    with pytest.raises(InputUnavailable) as caught:
        fetch(write(tmp_path / "toy"))
    assert said in str(caught.value)
    assert "mirror: BELLWETHER_MIRROR is not set" in str(caught.value)
    assert f"cache: no file {own_cache / 'files' / SHA256}" in str(caught.value)
    assert caught.value.next_step.startswith("Make GitHub reachable, or put") and SHA256 in caught.value.next_step
    assert not (own_cache / "files").exists()


def test_package_that_no_route_gives_is_named(tmp_path, own_cache, monkeypatch):
    """A corpus on a package registry that is not to be had is no verdict."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    files = f'[files."toy.whl"]\nsha256 = "{SHA256}"\nbytes = 1\n'
    source = read_source(write(tmp_path / "toy", source="pypi:no-such-toy==1.0", files=files))
    with pytest.raises(InputUnavailable, match=r"corpus toy: pypi did not give no-such-toy==1\.0"):
        fetcher(print)(source, "toy.whl")


# ── licences ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_licence_is_a_pinned_file_or_one_in_git(tmp_path, github):
    """Where the source has its licence it is pinned like data, else its text stands beside the pins."""
    folder = write(tmp_path / "toy", license_file="data/a b.jsonl")
    assert licence_text(read_source(folder), fetcher(print)) == DATA
    write(folder)
    (folder / "LICENSE").write_bytes(b"Do as you like.")
    assert licence_text(read_source(folder), fetcher(print)) == b"Do as you like."


def test_licence_without_a_text_is_refused(tmp_path):
    """A corpus is not handed on without the terms it stands under."""
    with pytest.raises(ParamsError, match="no licence text 'LICENSE'"):
        licence_text(read_source(write(tmp_path / "toy")), fetcher(print))
