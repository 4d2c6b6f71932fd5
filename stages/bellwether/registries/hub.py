"""What the Hub says about a checkpoint nobody here has recorded: can it be, and if not, why not.

| status | rule, the first that holds |
|---|---|
| not-on-hub | the Hub shows no such repository |
| gated | the repository says that its files need an accepted licence |
| invalid-model-config, invalid-tokenizer-config, invalid-processor-config | a file does not hold one JSON object |
| needs-vendor-code | `auto_map` of the tokenizer's or the model's config names a tokenizer class in the repository |
| pending | there is a chat template the tokenizer loads: nothing stands against a recording |
| processor-chat-template | only the processor's own files hold a chat template |
| no-chat-template | no file does |

Everything else is no answer and says nothing about the checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

HUB_SECONDS = 10
"""Longest time one answer may take."""

CONFIGS = {
    "config.json": "invalid-model-config",
    "tokenizer_config.json": "invalid-tokenizer-config",
    "processor_config.json": "invalid-processor-config",
    "chat_template.json": "invalid-processor-config",
}
"""Files that are looked into → the status of a checkpoint whose file is no JSON object."""
TEMPLATE_FILES = ("chat_template.jinja", "additional_chat_templates/")
"""A file, or the folder of files, a tokenizer loads its chat templates from."""

POOLING_PIPELINES = frozenset(
    {
        *("feature-extraction", "sentence-similarity", "text-classification", "token-classification"),
        *("text-ranking", "fill-mask", "zero-shot-classification", "image-classification", "image-feature-extraction"),
        *("visual-document-retrieval", "zero-shot-image-classification"),
    }
)
"""Uses the Hub knows that give vectors or scores."""
MULTIMODAL_PIPELINES = frozenset(
    {
        *("image-text-to-text", "video-text-to-text", "audio-text-to-text", "image-to-text", "any-to-any"),
        *("visual-question-answering", "document-question-answering", "automatic-speech-recognition"),
    }
)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the Hub says about one checkpoint."""

    status: str
    """One of the module's table."""
    revision: str | None = None
    """Commit the answer is about; None when the Hub shows no repository."""
    created: str | None = None
    """Day the repository was made, YYYY-MM-DD."""
    downloads: int | None = None
    """Downloads of the last 30 days."""
    modality: str | None = None
    """`text` or `multimodal`, by the use the repository says; None when it says none that decides."""
    excluded: str | None = None
    """Why it is no entry of the list at all: `quantised-base` or `pipeline`."""


class NoAnswer(Exception):
    """Raised when the Hub gives none. `reason` is short and stable; `lost` says that the next question fails too."""

    def __init__(self, reason: str, message: str, *, lost: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.lost = lost


def ask(model: str, revision: str | None) -> Answer:
    """Return what the Hub that HF_ENDPOINT names says about `model`, at `revision` or on its default branch.

    Raises:
        NoAnswer: it is unreachable, refuses, answers something else, or has no such revision.
    """
    from huggingface_hub import model_info
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    try:
        info = _answered(lambda: model_info(model, revision=revision, timeout=HUB_SECONDS))
    except GatedRepoError:
        return Answer("gated")
    except RepositoryNotFoundError:
        return Answer("not-on-hub")
    tags, pipeline = set(info.tags or ()), info.pipeline_tag
    excluded = None
    if any(tag.startswith("base_model:quantized:") for tag in tags):
        excluded = "quantised-base"
    elif pipeline in POOLING_PIPELINES:
        excluded = "pipeline"
    files = {sibling.rfilename for sibling in info.siblings or ()}
    return Answer(
        status="gated" if info.gated else _standing(model, info.sha, files),
        revision=info.sha,
        created=info.created_at.date().isoformat() if info.created_at else None,
        downloads=info.downloads,
        modality="multimodal"
        if pipeline in MULTIMODAL_PIPELINES
        else "text"
        if pipeline == "text-generation"
        else None,
        excluded=excluded,
    )


def standing(files: Collection[str], read: Callable[[str], bytes]) -> str:
    """Return the status of a checkpoint that holds `files`, of which `read` gives the bytes."""
    configs: dict[str, dict[str, Any]] = {}
    for name, invalid in CONFIGS.items():
        if name in files:
            try:
                value = json.loads(read(name))
            except (ValueError, RecursionError):
                return invalid
            if not isinstance(value, dict):
                return invalid
            configs[name] = value
    tokenizer = configs.get("tokenizer_config.json", {})
    for config in (tokenizer, configs.get("config.json", {})):
        named = config.get("auto_map")
        if isinstance(named, dict) and named.get("AutoTokenizer"):
            return "needs-vendor-code"
    if tokenizer.get("chat_template") or any(name.startswith(TEMPLATE_FILES) for name in files):
        return "pending"
    if any(configs.get(name, {}).get("chat_template") for name in ("chat_template.json", "processor_config.json")):
        return "processor-chat-template"
    return "no-chat-template"


def _standing(model: str, revision: str, files: Collection[str]) -> str:
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    try:
        return standing(files, lambda name: _file(model, revision, name))
    except GatedRepoError:
        return "gated"
    except RepositoryNotFoundError as error:
        raise NoAnswer("garbled", "the Hub lists the repository and shows none of its files") from error


def _file(model: str, revision: str, name: str) -> bytes:
    """Return a file's bytes, asked for once: the client's own download repeats a failing question for half a minute."""
    from huggingface_hub import hf_hub_url
    from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

    def question() -> bytes:
        url = hf_hub_url(model, name, revision=revision)
        response = get_session().get(url, headers=build_hf_headers(), timeout=HUB_SECONDS, follow_redirects=True)
        hf_raise_for_status(response)
        return response.content

    return _answered(question)


def _answered(question: Callable[[], Any]) -> Any:
    """Return what `question` gives. What it says about the repository itself passes; all else is NoAnswer."""
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HTTPError,  # that of the client's own library
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    try:
        return question()
    except (GatedRepoError, RepositoryNotFoundError):
        raise
    except OfflineModeIsEnabled as error:
        raise NoAnswer("offline", "HF_HUB_OFFLINE is set", lost=True) from error
    except RevisionNotFoundError as error:
        raise NoAnswer("no-revision", "the repository has no such revision") from error
    except HfHubHTTPError as error:
        status = error.response.status_code
        raise NoAnswer(str(status), f"the Hub answers with status {status}", lost=status == 429) from error
    except HTTPError as error:
        raise NoAnswer("unreachable", f"the Hub is unreachable ({type(error).__name__})", lost=True) from error
    except (OSError, ValueError, KeyError, TypeError) as error:  # an answer that is none of the Hub's
        raise NoAnswer("garbled", f"the Hub's answer cannot be read ({type(error).__name__}: {error})") from error
