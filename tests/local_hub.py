"""A model hub on loopback: a real HTTP server that speaks the part of the Hub's interface its client asks for.

| request | answer |
|---|---|
| `HEAD`, `GET /OWNER/NAME/resolve/REVISION/FILE` | the file, with ETag, X-Repo-Commit and Content-Length |
| the same, of a large file | a redirect to its storage, with X-Linked-Etag and X-Linked-Size |
| `HEAD`, `GET /storage/SHA256` | a large file |
| `GET /api/models/OWNER/NAME[/revision/REVISION]` | what the repository holds, and what its card says |
| `GET /api/models/OWNER/NAME/tree/REVISION` | its files with sizes |
| anything else | the front page; 404 below a repository, with the X-Error-Code the client makes typed errors of |

It counts what it is asked, and can be told to fail in the ways a hub or a proxy in front of it fails.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType
from typing import Self
from urllib.parse import unquote, urlsplit

Files = Mapping[tuple[str, str, str], bytes]
"""(repository, revision, path) → bytes. The repository of a dataset is `datasets/OWNER/NAME`."""

STORAGE = re.compile(r"/storage/([0-9a-f]{64})")
RESOLVE = re.compile(r"/((?:datasets/)?[^/]+/[^/]+)/resolve/([^/]+)/(.+)")
XET_TOKEN = re.compile(r"/api/models/([^/]+/[^/]+)/xet-read-token/([^/]+)")
API = re.compile(r"/api/models/([^/]+/[^/]+)(?:/(?:revision|tree)/([^/]+))?")


class LocalHub:
    """Serve `files` while the `with` block runs.

    `requests` lists what was asked, as (method, path). `status` makes every answer that status without a body.
    `hang_up` closes the connection instead of answering about a file. `without` names headers left out.
    `refused` maps a repository to the status and headers each of its files is answered with. `large` names files
    that lie in a storage of another host name. `cut` maps a file to the byte at which every answer about it breaks
    off, `sizes` to the size it is said to have. `xet` names files announced as chunked storage, of which this hub has
    none. `about` maps a repository to more of what the Hub knows of it, `failing` to the status its description is
    answered with. `cards` maps a repository to the metadata of its card. `authorized` lists the paths that came with a
    token.
    """

    def __init__(self, files: Files = MappingProxyType({})) -> None:
        self.files = dict(files)
        self.requests: list[tuple[str, str]] = []
        self.status: int | None = None
        self.hang_up = False
        self.without: frozenset[str] = frozenset()
        self.refused: dict[str, tuple[int, dict[str, str]]] = {}
        self.large: set[str] = set()
        self.cut: dict[str, int] = {}
        self.sizes: dict[str, int] = {}
        self.xet: set[str] = set()
        self.cards: dict[str, dict] = {}
        self.about: dict[str, dict] = {}
        self.failing: dict[str, int] = {}
        self.authorized: list[str] = []

    def __enter__(self) -> Self:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": self}))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        """What HF_ENDPOINT has to be."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def storage(self) -> str:
        """Where large files lie: the same server by another host name."""
        return f"http://localhost:{self._server.server_port}"

    def asked(self, method: str) -> list[str]:
        """The paths asked for by `method`, in order."""
        return [path for asked, path in self.requests if asked == method]


class _Handler(BaseHTTPRequestHandler):
    hub: LocalHub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def log_message(self, *_: object) -> None:
        """Say nothing: tests look at `requests`."""

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append((self.command, path))
        if "Authorization" in self.headers:
            self.hub.authorized.append(path)
        if self.hub.status:
            self._send(self.hub.status, b"")
        elif match := RESOLVE.fullmatch(path):
            if self.hub.hang_up:
                self.close_connection = True
            else:
                self._file(*match.groups())
        elif match := STORAGE.fullmatch(path):
            self._stored(match[1])
        elif XET_TOKEN.fullmatch(path):
            self._send(503, b"")
        elif match := API.fullmatch(path):
            self._repository(*match.groups(), tree="/tree/" in path)
        else:
            self._send(200, b"a hub", {"Content-Type": "text/plain"})

    def _file(self, repo: str, revision: str, name: str) -> None:
        if repo in self.hub.refused:
            status, headers = self.hub.refused[repo]
            self._send(status, b"", headers)
        elif (repo, revision, name) in self.hub.files:
            data = self.hub.files[repo, revision, name]
            headers = {"ETag": f'"{hashlib.sha1(data).hexdigest()}"', "X-Repo-Commit": revision}
            if name in self.hub.xet:
                token = f"{self.hub.url}/api/models/{repo}/xet-read-token/{revision}"
                headers |= {"X-Xet-Hash": hashlib.sha256(data).hexdigest(), "X-Xet-Refresh-Route": token}
            if name in self.hub.large:
                digest = hashlib.sha256(data).hexdigest()
                size = str(self.hub.sizes.get(name, len(data)))
                headers |= {"X-Linked-Etag": f'"{digest}"', "X-Linked-Size": size}
                self._send(302, b"", headers | {"Location": f"{self.hub.storage}/storage/{digest}"})
            else:
                self._content(name, data, headers)
        elif not self._revisions(repo):
            self._send(404, b"", {"X-Error-Code": "RepoNotFound"})
        elif revision not in self._revisions(repo):
            self._send(404, b"", {"X-Error-Code": "RevisionNotFound"})
        else:
            self._send(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": revision})

    def _stored(self, digest: str) -> None:
        for (_, _, name), data in self.hub.files.items():
            if name in self.hub.large and hashlib.sha256(data).hexdigest() == digest:
                self._content(name, data, {"ETag": f'"{digest}"'})
                return
        self._send(404, b"")

    def _content(self, name: str, data: bytes, headers: Mapping[str, str]) -> None:
        """A file, or what is left of it: a client whose download broke off asks for the rest."""
        cut = self.hub.cut.get(name)
        if begin := re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", "")):
            done = int(begin[1])
            cut = None if cut is None else max(cut - done, 0)
            part = {"Content-Range": f"bytes {done}-{len(data) - 1}/{len(data)}"}
            self._send(206, data[done:], {**headers, **part}, cut=cut)
        else:
            self._send(200, data, headers, cut=cut)

    def _repository(self, repo: str, revision: str | None, *, tree: bool) -> None:
        revisions = self._revisions(repo)
        if repo in self.hub.failing:
            self._send(self.hub.failing[repo], b"")
            return
        if not revisions:
            self._send(404, b"", {"X-Error-Code": "RepoNotFound"})
            return
        revision = revision or revisions[-1]
        held = {name: data for (of, at, name), data in self.hub.files.items() if (of, at) == (repo, revision)}
        if not held:
            self._send(404, b"", {"X-Error-Code": "RevisionNotFound"})
        elif tree:
            self._json(
                [
                    {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                    for name, data in held.items()
                ]
            )
        else:
            held_files = [{"rfilename": name} for name in held]
            card = {"cardData": self.hub.cards[repo]} if repo in self.hub.cards else {}
            self._json(
                {
                    "id": repo,
                    "modelId": repo,
                    "sha": revision,
                    "siblings": held_files,
                    **card,
                    **self.hub.about.get(repo, {}),
                }
            )

    def _revisions(self, repo: str) -> list[str]:
        return [revision for of, revision, _ in self.hub.files if of == repo]

    def _json(self, value: object) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _send(
        self, status: int, body: bytes, headers: Mapping[str, str] = MappingProxyType({}), cut: int | None = None
    ) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            if name not in self.hub.without:
                self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[:cut])
            self.close_connection = self.close_connection or cut is not None


class DeadEnd:
    """A port that accepts every connection and closes it at once, counting them."""

    def __enter__(self) -> Self:
        self.connections = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)  # wakes the accepting thread
        self._thread.join()
        self._socket.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            connection.close()


def environment(endpoint: str, home: Path, **more: str) -> dict[str, str]:
    """Return the variables of a process that asks the hub at `endpoint` and keeps its files and caches below `home`.

    What the machine itself says about hubs, mirrors and proxies is left out.
    """
    ours = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HF_", "HUGGING", "BELLWETHER_")) and not name.lower().endswith("_proxy")
    }
    own = {"HF_ENDPOINT": endpoint, "HF_HOME": str(home / "hf"), "BELLWETHER_CACHE": str(home / "cache")}
    return {**ours, **own, **more}


def closed_port() -> str:
    """Return the address of a loopback port on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"http://127.0.0.1:{server.getsockname()[1]}"
