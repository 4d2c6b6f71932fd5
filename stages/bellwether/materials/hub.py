"""The model hub: a file at a revision, what a repository holds, and why it gives neither, in sentences.

Whether the Hub answers at all is asked once per run. A refusal that holds for every file (the Hub went away, the
repository is gated, the revision is gone) is kept and not asked for again: the client repeats a failing question for
half a minute.

Files come by plain HTTP, redirects to the Hub's storage included. The client's chunked transfer (Xet) needs further
hosts and gains nothing for files of this size; `HF_HUB_DISABLE_XET=0` asks for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

HUB_SECONDS = 3
"""How long the one attempt to reach the Hub may take."""
LISTING_SECONDS = 30
TRANSPORT_STATUSES = (408, 429)
"""Beside those from 500 on: answers about the Hub, not about what was asked."""


class HubFailed(Exception):
    """Raised when the Hub has nothing to offer; the message says why."""


@dataclass(frozen=True, slots=True)
class Listing:
    """What a repository holds at a revision."""

    files: tuple[str, ...]
    license: str | None
    """As the card's metadata names it: an identifier of the Hub, or the card's own name for an `other` license."""


class Hub:
    """The client of one run."""

    def __init__(self) -> None:
        self._lost: str | None = None
        self._closed: dict[tuple[str, str], str] = {}

    def download(self, model: str, revision: str, path: str, *, repo_type: str = "model") -> bytes:
        """Return the bytes of one file. Raises HubFailed."""

        def question() -> bytes:
            from huggingface_hub import hf_hub_download

            file = hf_hub_download(model, path, repo_type=repo_type, revision=revision, etag_timeout=HUB_SECONDS)
            return Path(file).read_bytes()

        return self._ask(model, revision, path, question)

    def listing(self, model: str, revision: str) -> Listing:
        """Return what `model` holds at `revision`. Raises HubFailed, also when the Hub knows both by other names."""

        def question() -> Any:
            from huggingface_hub import model_info

            return model_info(model, revision=revision, timeout=LISTING_SECONDS)

        info = self._ask(model, revision, None, question)
        if (info.id, info.sha) != (model, revision):
            raise HubFailed(f"the Hub calls it {info.id}@{info.sha}")
        card = info.card_data.to_dict() if info.card_data else {}
        named = card.get("license_name") if card.get("license") == "other" else card.get("license")
        return Listing(
            files=tuple(sibling.rfilename for sibling in info.siblings or ()),
            license=named if isinstance(named, str) and named else None,
        )

    @cached_property
    def _down(self) -> str | None:
        """Why the Hub cannot be asked, or None. In offline mode the client's own cache may still answer."""
        import httpx
        from huggingface_hub import constants

        if constants.HF_HUB_OFFLINE:
            return None
        try:
            status = httpx.head(constants.ENDPOINT, timeout=HUB_SECONDS).status_code
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return f"{constants.ENDPOINT} is unreachable ({type(error).__name__})"
        return f"{constants.ENDPOINT} answers with status {status}" if status >= 500 else None

    def _ask(self, model: str, revision: str, path: str | None, question: Callable[[], Any]) -> Any:
        if reason := self._down or self._lost or self._closed.get((model, revision)):
            raise HubFailed(reason)
        from huggingface_hub import constants
        from huggingface_hub.errors import (
            EntryNotFoundError,
            HTTPError,  # that of the client's own library
            XetDownloadError,
        )

        if "HF_HUB_DISABLE_XET" not in os.environ:
            constants.HF_HUB_DISABLE_XET = True  # the client may have been imported long ago
        try:
            return question()
        except (HTTPError, EntryNotFoundError, XetDownloadError, OSError, ValueError, RuntimeError) as error:
            reason, holds_for = _refusal(error, model, revision, path)
            if holds_for == "hub":
                self._lost = reason
            elif holds_for == "revision":
                self._closed[model, revision] = reason
            raise HubFailed(reason) from error


def _refusal(error: Exception, model: str, revision: str, path: str | None) -> tuple[str, str]:
    """Return why the Hub gave nothing, and whether that holds for the `hub`, the `revision` or only the `file`."""
    from huggingface_hub import constants
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HTTPError,
        LocalEntryNotFoundError,
        RemoteEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    if isinstance(error, LocalEntryNotFoundError) and isinstance(error.__cause__, HTTPError):
        error = error.__cause__  # what the client met when it asked; that its cache is empty says nothing
    hub = constants.ENDPOINT
    if isinstance(error, GatedRepoError):
        steps = f"accept its terms at {hub}/{model}, then set HF_TOKEN or run `hf auth login`"
        return f"{model} is gated: {steps}", "revision"
    if isinstance(error, RepositoryNotFoundError):
        return f"{hub} shows no repository {model}: no such name, or private to others (HF_TOKEN)", "revision"
    if isinstance(error, RevisionNotFoundError):
        return f"{model} has no revision {revision}: never made, or made and removed", "revision"
    if isinstance(error, RemoteEntryNotFoundError):
        return f"{model} has no file {path} at revision {revision}", "file"
    if isinstance(error, HfHubHTTPError):
        status = error.response.status_code
        lost = status >= 500 or status in TRANSPORT_STATUSES
        return f"{hub} answers with status {status} about {path or model}", "hub" if lost else "file"
    reason = f"{type(error).__name__}: {(str(error).splitlines() or ['no reason given'])[0]}"
    if isinstance(error, HTTPError):  # without an answer: the connection itself
        return f"{reason} (about {path or model}; the Hub is not asked again)", "hub"
    return reason, "file"
