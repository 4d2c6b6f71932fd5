"""Fixtures that many tests use."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

from bellwether.params import Params, read_params
from support import ROOT, corpus_file, load_checkpoint, miniature, snapshot

settings.register_profile("untimed", deadline=None)  # how long an example takes is the machine's affair
settings.load_profile("untimed")
os.environ["BELLWETHER_JOBS"] = "1"  # of a recording that a test starts: tests run beside each other already


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout under test."""
    return ROOT


@pytest.fixture(scope="session")
def params() -> Params:
    """params.yaml of the checkout."""
    return read_params(ROOT)


@pytest.fixture(scope="session")
def bfcl_wheel() -> Path:
    """The pinned bfcl-eval wheel, a real download."""
    return corpus_file("bfcl", "bfcl_eval-2026.3.23-py3-none-any.whl")


@pytest.fixture
def checkpoint() -> Callable:
    """`checkpoint(slug)` → the real checkpoint."""
    return load_checkpoint


@pytest.fixture
def with_template() -> Callable:
    """`with_template(text)` → qwen3-8b's tokenizer under another chat template."""
    from transformers import AutoTokenizer

    def build(text: str):
        tokenizer = AutoTokenizer.from_pretrained(snapshot("qwen3-8b"), local_files_only=True)
        tokenizer.chat_template = text
        return dataclasses.replace(load_checkpoint("qwen3-8b"), tokenizer=tokenizer)

    return build


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty download cache for one test."""
    monkeypatch.setenv("BELLWETHER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A checkout in miniature: one real checkpoint, and the hand-written corpus, imported."""
    return miniature(tmp_path, ["smollm2-135m-instruct"])
