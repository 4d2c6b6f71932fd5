"""A model hub on loopback: a real HTTP server that speaks the part of the Hub's interface its client asks for.

| request | answer |
|---|---|
| `HEAD`, `GET /OWNER/NAME/resolve/REVISION/FILE` | the file, with ETag, X-Repo-Commit and Content-Length |
| `GET /api/models/OWNER/NAME[/revision/REVISION]` | what the repository holds |
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
"""(repository, revision, path) → bytes."""

RESOLVE = re.compile(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)")
API = re.compile(r"/api/models/([^/]+/[^/]+)(?:/(?:revision|tree)/([^/]+))?")


class LocalHub:
    """Serve `files` while the `with` block runs.

    `requests` lists what was asked, as (method, path). `status` makes every answer that status without a body.
    `hang_up` closes the connection instead of answering about a file. `without` names headers left out.
    """

    def __init__(self, files: Files = MappingProxyType({})) -> None:
        self.files = dict(files)
        self.requests: list[tuple[str, str]] = []
        self.status: int | None = None
        self.hang_up = False
        self.without: frozenset[str] = frozenset()

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
        if self.hub.status:
            self._send(self.hub.status, b"")
        elif match := RESOLVE.fullmatch(path):
            if self.hub.hang_up:
                self.close_connection = True
            else:
                self._file(*match.groups())
        elif match := API.fullmatch(path):
            self._repository(*match.groups(), tree="/tree/" in path)
        else:
            self._send(200, b"a hub", {"Content-Type": "text/plain"})

    def _file(self, repo: str, revision: str, name: str) -> None:
        if (repo, revision, name) in self.hub.files:
            data = self.hub.files[repo, revision, name]
            self._send(200, data, {"ETag": f'"{hashlib.sha1(data).hexdigest()}"', "X-Repo-Commit": revision})
        elif not self._revisions(repo):
            self._send(404, b"", {"X-Error-Code": "RepoNotFound"})
        elif revision not in self._revisions(repo):
            self._send(404, b"", {"X-Error-Code": "RevisionNotFound"})
        else:
            self._send(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": revision})

    def _repository(self, repo: str, revision: str | None, *, tree: bool) -> None:
        revisions = self._revisions(repo)
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
            self._json(
                {"id": repo, "modelId": repo, "sha": revision, "siblings": [{"rfilename": name} for name in held]}
            )

    def _revisions(self, repo: str) -> list[str]:
        return [revision for of, revision, _ in self.hub.files if of == repo]

    def _json(self, value: object) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _send(self, status: int, body: bytes, headers: Mapping[str, str] = MappingProxyType({})) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            if name not in self.hub.without:
                self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


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
