"""Source archives from an index by HTTP: the simple repository API served on the loopback, asked by the real client."""

from __future__ import annotations

import base64
import io
import json
import os
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from bellwether.errors import MaterialError, PinMismatch
from bellwether.materials import sdist
from bellwether.materials.archives import read_member
from bellwether.materials.routes import PackageRoute, RouteFailed
from bellwether.materials.sdist import Settings, default_index, download, pip_settings, read_settings
from bellwether.params import Package
from local_hub import closed_port

JSON = "application/vnd.pypi.simple.v1+json"


def archive() -> bytes:
    """A source archive whose build code would leave a mark if it ran."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as tar:
        for name, text in {
            "tiny_pkg-1.0/setup.py": "import pathlib\npathlib.Path('/tmp/bellwether-setup-ran').touch()\n",
            "tiny_pkg-1.0/data.txt": "data\r\n",
        }.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    return file.getvalue()


DATA = archive()
PACKAGE = Package("Tiny.Pkg", "pypi-sdist", "1.0", sha256(DATA).hexdigest(), len(DATA), "MIT")
FILE = "tiny_pkg-1.0.tar.gz"


class Index:
    """An HTTP server with fixed answers; `asked` are the paths and user names of all requests."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.asked: list[tuple[str, str | None]] = []
        index = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                login = self.headers.get("Authorization")
                user = base64.b64decode(login.partition(" ")[2]).decode().partition(":")[0] if login else None
                index.asked.append((self.path, user))
                status, headers, body = index.answers.get(self.path, (404, {}, b""))
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.handle_error = lambda *_: None  # a client may hang up; that is tested
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self.settings = Settings((f"{self.url}/simple",))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def page(self, text: str | list[dict], path: str = "/simple/tiny-pkg/") -> None:
        """Serve a listing: HTML, or JSON of its files."""
        if isinstance(text, str):
            self.answers[path] = (200, {"Content-Type": "text/html"}, text.encode())
        else:
            value = {"meta": {"api-version": "1.0"}, "name": "tiny-pkg", "files": text}
            self.answers[path] = (200, {"Content-Type": JSON}, json.dumps(value).encode())

    def file(self, path: str, data: bytes = DATA) -> None:
        self.answers[path] = (200, {}, data)


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    served = Index()
    try:
        yield served
    finally:
        served.close()


@pytest.fixture
def own_pip(index: Index, monkeypatch: pytest.MonkeyPatch) -> Index:
    """The index is the one pip is configured for."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", f"{index.url}/simple")
    return index


@pytest.mark.parametrize("href", [f"../../files/{FILE}", f"/files/{FILE}", "{url}/files/" + FILE])
@pytest.mark.parametrize("form", ["html", "json"])
def test_an_archive_is_found_in_both_forms_of_a_listing(index: Index, tmp_path: Path, form: str, href: str):
    """Links may be relative to the page, to the host, or whole; other files and versions are passed over."""
    href = href.replace("{url}", index.url)
    if form == "html":
        index.page(
            f'<a href="x/tiny_pkg-1.0-py3-none-any.whl">w</a><a href="x/tiny_pkg-1.0.1.tar.gz">o</a>'
            f'<a href="x/tiny_pkg-1.0.zip">z</a><a>none</a><a href="{href}#sha256={PACKAGE.sha256}">{FILE}</a>'
        )
    else:
        index.page(
            [
                {"filename": "tiny_pkg-1.0-py3-none-any.whl", "url": "x.whl", "hashes": {}},
                {"filename": "tiny_pkg-1.0.1.tar.gz", "url": "x.tar.gz", "hashes": {}},
                {"filename": FILE, "url": href, "hashes": {"sha256": PACKAGE.sha256}},
            ]
        )
    index.file(f"/files/{FILE}")
    said: list[str] = []
    path = download(PACKAGE, tmp_path, said.append, index.settings)
    assert path.read_bytes() == DATA
    assert said == []
    assert [path for path, _ in index.asked] == ["/simple/tiny-pkg/", f"/files/{FILE}"]


def test_a_page_s_base_address_counts(index: Index, tmp_path: Path):
    """As in any HTML page."""
    index.page(f'<base href="{index.url}/elsewhere/"><a href="{FILE}">x</a>')
    index.file(f"/elsewhere/{FILE}")
    assert download(PACKAGE, tmp_path, print, index.settings).read_bytes() == DATA


def test_a_file_host_may_redirect(index: Index, tmp_path: Path):
    """Listing, and archive at another host that sends on to a third address."""
    other = Index()
    try:
        index.page([{"filename": FILE, "url": f"{other.url}/a", "hashes": {}}])
        other.answers["/a"] = (302, {"Location": f"{index.url}/b"}, b"")
        index.file("/b")
        assert download(PACKAGE, tmp_path, print, index.settings).read_bytes() == DATA
        assert other.asked == [("/a", None)]
    finally:
        other.close()


def test_a_login_of_the_index_goes_to_its_own_host_only(index: Index, tmp_path: Path):
    """The password is in the index's address; the file host of another name never sees it, nor does a message."""
    other = Index()
    secret = index.url.replace("http://", "http://user:hunter2@")
    try:
        index.page([{"filename": FILE, "url": f"{other.url}/a", "hashes": {}}])
        other.file("/a")
        download(PACKAGE, tmp_path, print, Settings((f"{secret}/simple",)))
        assert (index.asked, other.asked) == ([("/simple/tiny-pkg/", "user")], [("/a", None)])
    finally:
        other.close()
    index.page([{"filename": FILE, "url": f"{index.url}/a", "hashes": {}}])
    index.file("/a")
    download(PACKAGE, tmp_path, print, Settings((f"{secret}/simple",)))
    assert index.asked[-1] == ("/a", "user")
    del index.answers["/a"]
    with pytest.raises(MaterialError) as caught:
        download(PACKAGE, tmp_path, print, Settings((f"{secret}/simple",)))
    assert "hunter2" not in str(caught.value)
    assert str(caught.value).endswith("answers with status 404")


@pytest.mark.parametrize("form", ["html", "json"])
def test_a_yanked_release_is_taken_and_said_to_be(index: Index, tmp_path: Path, form: str):
    """The pin names its bytes, so a withdrawal does not break old pins. The reason may be empty."""
    if form == "html":
        index.page(f'<a data-yanked="" href="/{FILE}">x</a>')
    else:
        index.page([{"filename": FILE, "url": f"/{FILE}", "hashes": {}, "yanked": ""}])
    index.file(f"/{FILE}")
    said: list[str] = []
    assert download(PACKAGE, tmp_path, said.append, index.settings).read_bytes() == DATA
    assert said == [f"{FILE} was withdrawn from its index (yanked)"]


def test_another_sha256_in_the_listing_stops_before_the_download(index: Index, tmp_path: Path):
    """Expected and listed sha256 are named."""
    index.page([{"filename": FILE, "url": f"/{FILE}", "hashes": {"sha256": "0" * 64}}])
    index.file(f"/{FILE}")
    with pytest.raises(PinMismatch) as caught:
        download(PACKAGE, tmp_path, print, index.settings)
    assert str(caught.value) == f"{FILE} by its index: expected sha256 {PACKAGE.sha256}, it lists {'0' * 64}"
    assert "do not use them" in caught.value.next_step
    assert len(index.asked) == 1


def test_of_two_archives_the_pinned_one_is_taken(index: Index, tmp_path: Path):
    """Two spellings of one name are one release; the sha256 decides."""
    index.page(
        [
            {"filename": "Tiny-Pkg-1.0.tar.gz", "url": "/old", "hashes": {"sha256": "0" * 64}},
            {"filename": FILE, "url": "/new", "hashes": {"sha256": PACKAGE.sha256}},
        ]
    )
    index.file("/new")
    assert download(PACKAGE, tmp_path, print, index.settings).read_bytes() == DATA


def test_more_bytes_than_pinned_are_cut_off(index: Index, tmp_path: Path):
    """The pinned size bounds what a server can put on the disk."""
    index.page(f'<a href="/{FILE}">x</a>')
    index.file(f"/{FILE}", DATA + bytes(5 << 20))
    with pytest.raises(PinMismatch, match=f"more than the pinned {len(DATA):,} bytes"):
        download(PACKAGE, tmp_path, print, index.settings)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 3 << 20


def test_a_file_name_cannot_lead_out_of_the_folder(index: Index, tmp_path: Path):
    """The name on disk is ours, whatever the index says."""
    index.page([{"filename": FILE, "url": f"/..%2F..%2F{FILE}", "hashes": {}}])
    index.file(f"/..%2F..%2F{FILE}")
    path = download(PACKAGE, tmp_path / "", print, index.settings)
    assert path == tmp_path / "tiny-pkg-1.0.tar.gz"


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ((404, {}, b""), "answers with status 404"),
        ((503, {}, b""), "answers with status 503"),
        ((200, {"Content-Type": "text/html"}, b"<p>portal</p>"), "has no such source archive"),
        ((200, {"Content-Type": JSON}, b"{}"), "its page cannot be read (KeyError)"),
        ((200, {"Content-Type": JSON}, b"{"), "its page cannot be read (JSONDecodeError)"),
        ((200, {"Content-Type": JSON, "Content-Length": "999"}, b"{"), "cannot be asked (RemoteProtocolError)"),
        ((302, {"Location": "/simple/tiny-pkg/"}, b""), "cannot be asked (TooManyRedirects)"),
    ],
)
def test_what_an_index_does_wrong_is_said(index: Index, tmp_path: Path, answer: tuple, says: str):
    """Host, package and reason; nothing is left in the folder."""
    index.answers["/simple/tiny-pkg/"] = answer
    with pytest.raises(MaterialError) as caught:
        download(PACKAGE, tmp_path, print, index.settings)
    host = index.url.removeprefix("http://")
    assert str(caught.value) == f"no index gave Tiny.Pkg==1.0: {host}: {says}"
    assert "BELLWETHER_MIRROR" in caught.value.next_step


def test_the_next_index_is_asked(index: Index, tmp_path: Path):
    """One that is away, one that lacks the release, one that has it."""
    index.page([{"filename": FILE, "url": f"/{FILE}", "hashes": {}}], "/extra/tiny-pkg/")
    index.file(f"/{FILE}")
    settings = Settings((closed_port(), f"{index.url}/simple/", f"{index.url}/extra"))
    assert download(PACKAGE, tmp_path, print, settings).read_bytes() == DATA


def test_without_an_index_there_is_a_sentence(tmp_path: Path):
    """An index in a folder is not asked."""
    with pytest.raises(MaterialError, match="no index by HTTP is configured"):
        download(PACKAGE, tmp_path, print, Settings(()))


def test_a_long_download_is_said_to_go_on(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """One line now and then; here after every piece."""
    monkeypatch.setattr(sdist, "SAY_EVERY", 0)
    index.page([{"filename": FILE, "url": f"/{FILE}", "hashes": {}}])
    index.file(f"/{FILE}")
    said: list[str] = []
    download(PACKAGE, tmp_path, said.append, index.settings)
    assert said == ["  Tiny.Pkg: 0.0 of 0.0 MB"]


# pip's configuration

LISTED = """\
:env:.index-url='http://env.example/simple'
:env:.extra-index-url='http://one.example/simple file:///srv/simple'
download.index-url='http://download.example/simple'
global.cert='/etc/ca.pem'
global.index-url='http://global.example/simple'
global.trusted-host='one.example two.example:8080'
install.index-url='http://install.example/simple'
"""


def test_settings_of_pip_are_read():
    """Environment before [download] before [global]; [install] is for another command; folders are left out."""
    assert read_settings(LISTED) == Settings(
        indexes=("http://env.example/simple", "http://one.example/simple"),
        certificates="/etc/ca.pem",
        trusted=("one.example", "two.example:8080"),
    )
    lines = LISTED.splitlines(keepends=True)
    assert read_settings("".join(lines[2:])).indexes == ("http://download.example/simple",)
    assert read_settings("".join(lines[3:])).indexes == ("http://global.example/simple",)
    assert read_settings("") == Settings((), has_own_index=False)


@pytest.mark.parametrize("line", ["global.no-index='1'", ":env:.no-index='true'"])
def test_a_pip_that_may_use_no_index_uses_none(line: str):
    """The user's own rule."""
    with pytest.raises(MaterialError, match="no index"):
        read_settings(line)


def test_pip_itself_tells_its_default_index(own_pip: Index, monkeypatch: pytest.MonkeyPatch):
    """Configured: that one and no other. Not configured: the one pip's help names, before the extra ones."""
    assert pip_settings().indexes == (f"{own_pip.url}/simple",)
    monkeypatch.delenv("PIP_INDEX_URL")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"{own_pip.url}/extra")
    default, extra = pip_settings().indexes
    assert default.startswith("https://") and default.endswith("/simple")
    assert extra == f"{own_pip.url}/extra"


def test_a_help_without_a_default_is_an_error():
    """Then nothing is guessed."""
    assert default_index("-i, --index-url <url>  Base URL (default\n   https://a.example/simple). More") == (
        "https://a.example/simple"
    )
    with pytest.raises(MaterialError, match="names no default index"):
        default_index("--index-url <url> Base URL")


# As a route


def test_the_package_route_reads_a_source_archive_and_runs_nothing_of_it(own_pip: Index, own_cache: Path):
    """From the index pip is configured for into the cache, once; a member comes out byte for byte."""
    own_pip.page([{"filename": FILE, "url": f"/{FILE}", "hashes": {}}])
    own_pip.file(f"/{FILE}")
    said: list[str] = []
    route = PackageRoute({"Tiny.Pkg": PACKAGE}, said.append)
    path = route.archive("Tiny.Pkg")
    assert path == own_cache / "packages" / PACKAGE.sha256 / "tiny-pkg-1.0.tar.gz"
    assert read_member(path, "tiny_pkg-1.0/data.txt") == b"data\r\n"
    assert route.member("Tiny.Pkg", "tiny_pkg-1.0/data.txt") == b"data\r\n"
    assert said == ["downloading Tiny.Pkg 1.0 from pypi-sdist, 0.0 MB"]
    assert len(own_pip.asked) == 2
    assert not Path("/tmp/bellwether-setup-ran").exists()


def test_wrong_bytes_are_never_kept(own_pip: Index, own_cache: Path):
    """The listing names no sha256, the bytes have another one."""
    own_pip.page(f'<a href="/{FILE}">x</a>')
    own_pip.file(f"/{FILE}", DATA[:-1])
    with pytest.raises(PinMismatch, match=f"expected sha256 {PACKAGE.sha256}, got {sha256(DATA[:-1]).hexdigest()}"):
        PackageRoute({"Tiny.Pkg": PACKAGE}, print).archive("Tiny.Pkg")
    assert not list((own_cache / "packages").iterdir())


def test_an_index_without_the_release_is_a_failed_route(own_pip: Index, own_cache: Path):
    """The run goes on with the next route."""
    own_pip.page("<p>nothing</p>")
    with pytest.raises(RouteFailed, match=r"no index gave Tiny\.Pkg==2\.0: 127\.0\.0\.1:\d+: has no such"):
        PackageRoute({"Tiny.Pkg": replace(PACKAGE, version="2.0")}, print).archive("Tiny.Pkg")


def test_a_mirror_serves_source_archives_too(own_cache: Path, tmp_path: Path):
    """Under an ending by which they are read as what they are."""
    (tmp_path / "mirror").mkdir()
    (tmp_path / "mirror" / PACKAGE.sha256).write_bytes(DATA)
    route = PackageRoute({"Tiny.Pkg": PACKAGE}, print, tmp_path / "mirror")
    assert route.archive("Tiny.Pkg").name == f"{PACKAGE.sha256}.tar.gz"
    assert route.member("Tiny.Pkg", "tiny_pkg-1.0/data.txt") == b"data\r\n"
