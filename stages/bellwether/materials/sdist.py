"""Source archives from the user's own package index, as files.

`pip download` of a source archive runs the build code inside it, to learn its metadata. Here the archive is data, so
this module asks the index itself: the simple repository API, as JSON or HTML, at the addresses pip is configured for.
Nothing of the archive is opened.
"""

from __future__ import annotations

import ast
import os
import re
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import httpx
from packaging.utils import InvalidSdistFilename, canonicalize_name, parse_sdist_filename
from packaging.version import InvalidVersion, Version

from bellwether.errors import MaterialError, PinMismatch
from bellwether.params import Package

ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
SECONDS = 60
"""How long an index may be silent."""
SAY_EVERY = 10.0
"""Seconds between two lines about a download that takes long."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What pip is configured for, as far as a download needs it."""

    indexes: tuple[str, ...]
    """The one of index-url first, then the extra ones; only those asked by HTTP."""
    has_own_index: bool = True
    """Whether index-url is configured; where it is not, pip asks its default index first."""
    certificates: str | None = None
    trusted: tuple[str, ...] = ()
    """`host` or `host:port` whose certificate is not checked."""
    proxy: str | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """One file an index lists."""

    name: str
    url: str
    sha256: str | None
    yanked: bool


def pip_settings() -> Settings:
    """Return what `pip config list` says: environment variables win over `[download]`, and that over `[global]`.

    Raises:
        MaterialError: pip is missing, or is told to use no index.
    """
    settings = read_settings(_pip("config", "list"))
    if settings.has_own_index:
        return settings
    return replace(settings, indexes=(default_index(_pip("download", "--help")), *settings.indexes))


def default_index(helped: str) -> str:
    """Return the index pip asks when none is configured, which its own help tells.

    Raises:
        MaterialError: the help tells none.
    """
    found = re.search(r"--index-url.*?\(default:?\s+(https?://[^\s)]+)\)", helped, re.DOTALL)
    if not found:
        raise MaterialError("pip's help names no default index", next_step="Set pip's index-url.")
    return found[1]


def _pip(*arguments: str) -> str:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, errors="replace", env={**os.environ, "COLUMNS": "200"}
    )
    if done.returncode:
        raise MaterialError(
            f"`pip {' '.join(arguments)}` fails: {(done.stderr.splitlines() or ['it says nothing'])[-1]}",
            next_step="Install pip into this environment, or put the archive into a mirror folder.",
        )
    return done.stdout


def read_settings(listed: str) -> Settings:
    """Return the settings in the output of `pip config list`.

    Raises:
        MaterialError: pip is told to use no index.
    """
    values: dict[str, str] = {}
    for section in ("global", "download", ":env:"):  # the later one wins
        for line in listed.splitlines():
            key, separator, value = line.partition("=")
            if separator and key.startswith(f"{section}."):
                values[key.removeprefix(f"{section}.")] = str(ast.literal_eval(value))
    if values.get("no-index", "0").lower() in ("1", "true", "yes", "on"):
        raise MaterialError(
            "pip is told to use no index (no-index)",
            next_step="Put the archive into a mirror folder (BELLWETHER_MIRROR), named by its sha256.",
        )
    indexes = f"{values.get('index-url', '')} {values.get('extra-index-url', '')}".split()
    return Settings(
        indexes=tuple(url for url in indexes if urlsplit(url).scheme in ("http", "https")),
        has_own_index="index-url" in values,
        certificates=values.get("cert"),
        trusted=tuple(values.get("trusted-host", "").split()),
        proxy=values.get("proxy"),
    )


def download(package: Package, folder: Path, say: Callable[[str], None], settings: Settings | None = None) -> Path:
    """Write the source archive of `package` into `folder` and return its path. The caller compares its sha256.

    A release that was yanked is taken, and said to be: it is pinned by its sha256, and old pins have to stay good.

    Raises:
        PinMismatch: the index lists the archive with another sha256, or sends more bytes than are pinned.
        MaterialError: no index has it, or an index cannot be asked.
    """
    settings = settings or pip_settings()
    failures = []
    for index in settings.indexes:
        try:
            with _client(index, settings) as client:
                link = _chosen(package, _links(client, index, package.name))
                if link.yanked:
                    say(f"{link.name} was withdrawn from its index (yanked)")
                return _fetch(client, replace(link, url=_with_login(link.url, index)), package, folder, say)
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, ValueError, LookupError) as error:
            failures.append(f"{_host(index)}: {_said(error)}")
    raise MaterialError(
        f"no index gave {package.name}=={package.version}: {'; '.join(failures) or 'no index by HTTP is configured'}",
        next_step="Check pip's index-url, or put the archive into a mirror folder (BELLWETHER_MIRROR).",
    )


def _client(index: str, settings: Settings) -> httpx.Client:
    """A user name in the index's address is sent to that address only, and stands in no message."""
    parts = urlsplit(index)
    verify: bool | ssl.SSLContext = True
    if settings.certificates:
        verify = ssl.create_default_context(cafile=settings.certificates)
    if parts.hostname in settings.trusted or _host(index) in settings.trusted:
        verify = False
    return httpx.Client(follow_redirects=True, timeout=SECONDS, verify=verify, proxy=settings.proxy)


def _links(client: httpx.Client, index: str, name: str) -> list[Link]:
    page = client.get(f"{index.rstrip('/')}/{canonicalize_name(name)}/", headers={"Accept": ACCEPT})
    page.raise_for_status()
    base = str(page.url)
    if "json" in page.headers.get("Content-Type", ""):
        return list(_of_json(page.json(), base))
    return list(_of_html(page.text, base))


def _of_json(value: dict, base: str) -> Iterator[Link]:
    for file in value["files"]:
        yield Link(
            name=file["filename"],
            url=urljoin(base, file["url"]),
            sha256=file.get("hashes", {}).get("sha256"),
            yanked=file.get("yanked", False) is not False,  # a reason, which may be empty
        )


def _of_html(text: str, base: str) -> Iterator[Link]:
    parser = _Anchors()
    parser.feed(text)
    for attributes in parser.found:
        url, fragment = urldefrag(urljoin(urljoin(base, parser.base), attributes["href"] or ""))
        yield Link(
            name=unquote(urlsplit(url).path.rpartition("/")[2]),
            url=url,
            sha256=fragment.removeprefix("sha256=") if fragment.startswith("sha256=") else None,
            yanked="data-yanked" in attributes,
        )


class _Anchors(HTMLParser):
    """Collects the links of a page, and the address they are relative to."""

    def __init__(self) -> None:
        super().__init__()
        self.base = ""
        self.found: list[dict[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag == "base" and not self.base:
            self.base = attributes.get("href") or ""
        elif tag == "a" and attributes.get("href"):
            self.found.append(attributes)


def _chosen(package: Package, links: list[Link]) -> Link:
    """Return the source archive of the pinned release, among several the one with the pinned sha256."""
    found = [link for link in links if _is_sdist_of(link.name, package)]
    if not found:
        raise LookupError("has no such source archive")
    fitting = [link for link in found if link.sha256 in (package.sha256, None)]
    if not fitting:
        raise PinMismatch(
            f"{found[0].name} by its index: expected sha256 {package.sha256}, it lists {found[0].sha256}",
            next_step="The index serves other bytes than were pinned: do not use them; compare the release.",
        )
    return next((link for link in fitting if link.sha256), fitting[0])


def _is_sdist_of(filename: str, package: Package) -> bool:
    try:
        name, version = parse_sdist_filename(filename)
        return filename.endswith(".tar.gz") and (name, version) == (
            canonicalize_name(package.name),
            Version(package.version),
        )
    except (InvalidSdistFilename, InvalidVersion):
        return False


def _fetch(client: httpx.Client, link: Link, package: Package, folder: Path, say: Callable[[str], None]) -> Path:
    path = (
        folder / f"{canonicalize_name(package.name)}-{package.version}.tar.gz"
    )  # never a name of the index's choosing
    done, said = 0, time.monotonic()
    with client.stream("GET", link.url) as answer, path.open("wb") as file:
        answer.raise_for_status()
        for chunk in answer.iter_bytes(1 << 20):
            file.write(chunk)
            done += len(chunk)
            if done > package.bytes:
                raise PinMismatch(
                    f"{link.name} by its index: more than the pinned {package.bytes:,} bytes",
                    next_step="The index serves other bytes than were pinned: do not use them; compare the release.",
                )
            if time.monotonic() - said >= SAY_EVERY:
                said = time.monotonic()
                say(f"  {package.name}: {done / 1e6:,.1f} of {package.bytes / 1e6:,.1f} MB")
    return path


def _with_login(url: str, index: str) -> str:
    """Return `url` with the user name and password of the index's address, where it leads to the same host."""
    parts, login = urlsplit(url), urlsplit(index).netloc.rpartition("@")[0]
    if not login or parts.netloc != _host(index):
        return url
    return parts._replace(netloc=f"{login}@{parts.netloc}").geturl()


def _host(index: str) -> str:
    return urlsplit(index).netloc.rpartition("@")[2]


def _said(error: Exception) -> str:
    """Say what went wrong without the address, which may hold a password."""
    if isinstance(error, httpx.HTTPStatusError):
        return f"answers with status {error.response.status_code}"
    if isinstance(error, httpx.HTTPError):
        return f"cannot be asked ({type(error).__name__})"
    if isinstance(error, LookupError) and not isinstance(error, KeyError):
        return str(error)
    return f"its page cannot be read ({type(error).__name__})"
