"""What a checkpoint's standing is by what the Hub says, asked of a real hub on loopback."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

import pytest

from bellwether.registries.hub import standing
from local_hub import DeadEnd, LocalHub, closed_port, environment

REVISION = "1" * 40
TEMPLATE = b'{"chat_template": "{{ messages }}"}'

ASK = """
import json, sys
from dataclasses import asdict
from bellwether.registries import hub
for model, revision in json.loads(sys.argv[1]):
    try:
        print(json.dumps(asdict(hub.ask(model, revision))))
    except hub.NoAnswer as error:
        print(json.dumps({"reason": error.reason, "lost": error.lost}))
"""


@pytest.fixture
def ask(tmp_path) -> Callable:
    """`ask(endpoint, "o/a", …)` → one answer per model, as a process says it whose HF_ENDPOINT is `endpoint`."""

    def run(endpoint: str, *models: str, revision: str | None = None, **more: str) -> list[dict]:
        done = subprocess.run(
            [sys.executable, "-c", ASK, json.dumps([(model, revision) for model in models])],
            env=environment(endpoint, tmp_path, **more),
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"tokenizer_config.json": TEMPLATE}, "pending"),
        ({"tokenizer_config.json": b'{"chat_template": [{"name": "default", "template": "x"}]}'}, "pending"),
        ({"tokenizer_config.json": b"{}", "chat_template.jinja": b"x"}, "pending"),
        ({"additional_chat_templates/tool_use.jinja": b"x"}, "pending"),
        ({"tokenizer_config.json": b"{}", "chat_template.json": TEMPLATE}, "processor-chat-template"),
        ({"processor_config.json": TEMPLATE}, "processor-chat-template"),
        ({"tokenizer_config.json": b'{"chat_template": null}', "config.json": b"{}"}, "no-chat-template"),
        ({"chat_template.json": b"{}"}, "no-chat-template"),
        ({}, "no-chat-template"),
        ({"config.json": b"{", "tokenizer_config.json": TEMPLATE}, "invalid-model-config"),
        ({"tokenizer_config.json": b"[]"}, "invalid-tokenizer-config"),
        ({"tokenizer_config.json": b"\xff"}, "invalid-tokenizer-config"),
        ({"processor_config.json": b"no"}, "invalid-processor-config"),
        (
            {"tokenizer_config.json": b'{"chat_template": "x", "auto_map": {"AutoTokenizer": ["t.T", null]}}'},
            "needs-vendor-code",
        ),
        (
            {"config.json": b'{"auto_map": {"AutoTokenizer": "t.T"}}', "chat_template.jinja": b"x"},
            "needs-vendor-code",
        ),
        ({"config.json": b'{"auto_map": {"AutoModel": "m.M"}}', "chat_template.jinja": b"x"}, "pending"),
    ],
)
def test_the_standing_of_a_repository_by_its_files(files, expected):
    """The first rule that holds; code for the model is no code for the tokenizer."""
    assert standing(files, files.__getitem__) == expected


def test_a_nested_config_that_is_no_json_for_python_is_invalid():
    """A file that nests a hundred thousand lists makes no traceback."""
    assert standing({"config.json"}, lambda name: b"[" * 100_000) == "invalid-model-config"


def test_the_hub_says_when_how_often_and_what_for(ask):
    """Day of creation, downloads of 30 days, the newest commit, and the modality by the use it is tagged with."""
    with LocalHub({("o/a", REVISION, "tokenizer_config.json"): TEMPLATE}) as hub:
        hub.about["o/a"] = {
            "createdAt": "2026-04-27T03:42:21.000Z",
            "downloads": 1234,
            "pipeline_tag": "image-text-to-text",
            "gated": False,
            "tags": ["transformers"],
        }
        (answer,) = ask(hub.url, "o/a")
    assert answer == {
        "status": "pending",
        "revision": REVISION,
        "created": "2026-04-27",
        "downloads": 1234,
        "modality": "multimodal",
        "excluded": None,
    }


def test_a_gated_repository_and_one_that_is_not_there(ask):
    """The description of a gated repository is public, its files are not; they are not asked for."""
    with LocalHub({("o/gated", REVISION, "tokenizer_config.json"): TEMPLATE}) as hub:
        hub.about["o/gated"] = {"gated": "manual", "downloads": 5}
        gated, absent = ask(hub.url, "o/gated", "o/absent")
        assert not [path for path in hub.asked("GET") if "resolve" in path]
    assert (gated["status"], gated["downloads"], gated["revision"]) == ("gated", 5, REVISION)
    assert (absent["status"], absent["revision"]) == ("not-on-hub", None)


def test_files_that_turn_out_to_be_gated(ask):
    """The Hub may refuse the files of a repository whose description says nothing of a gate."""
    with LocalHub({("o/a", REVISION, "tokenizer_config.json"): TEMPLATE}) as hub:
        hub.refused["o/a"] = (403, {"X-Error-Code": "GatedRepo"})
        (answer,) = ask(hub.url, "o/a")
    assert answer["status"] == "gated"


@pytest.mark.parametrize(
    ("about", "rule"),
    [
        ({"tags": ["base_model:quantized:o/base"]}, "quantised-base"),
        ({"tags": ["base_model:finetune:o/base"]}, None),
        ({"pipeline_tag": "feature-extraction"}, "pipeline"),
        ({"pipeline_tag": "text-generation"}, None),
    ],
)
def test_what_the_hub_knows_to_be_a_copy_or_a_head_is_excluded(ask, about, rule):
    """By the tag of the base model, or by the use."""
    with LocalHub({("o/a", REVISION, "config.json"): b"{}"}) as hub:
        hub.about["o/a"] = about
        (answer,) = ask(hub.url, "o/a")
    assert answer["excluded"] == rule


def test_a_revision_is_asked_for_where_one_is_named(ask):
    """An engine's tests may load a pull request; a revision that is gone is no answer about the model."""
    with LocalHub({("o/a", REVISION, "config.json"): b"{}"}) as hub:
        assert ask(hub.url, "o/a", revision=REVISION)[0]["revision"] == REVISION
        assert ask(hub.url, "o/a", revision="2" * 40) == [{"reason": "no-revision", "lost": False}]


def test_a_refusal_is_no_answer_and_the_next_question_is_asked(ask):
    """Status 500 about one repository says nothing about it, and nothing about the next."""
    files = {(repo, REVISION, "tokenizer_config.json"): TEMPLATE for repo in ("o/a", "o/b", "o/c")}
    with LocalHub(files) as hub:
        hub.failing["o/a"] = 500
        hub.refused["o/b"] = (503, {})
        assert ask(hub.url, "o/a", "o/b", "o/c")[:2] == [
            {"reason": "500", "lost": False},
            {"reason": "503", "lost": False},
        ]
        hub.failing["o/a"] = 429
        assert ask(hub.url, "o/a") == [{"reason": "429", "lost": True}]


def test_a_hub_that_is_away_is_lost(ask):
    """Nothing listens, the connection is closed at once, or the client is told to stay offline."""
    with DeadEnd() as dead:
        assert ask(dead.url, "o/a") == [{"reason": "unreachable", "lost": True}]
    assert ask(closed_port(), "o/a") == [{"reason": "unreachable", "lost": True}]
    assert ask(closed_port(), "o/a", HF_HUB_OFFLINE="1") == [{"reason": "offline", "lost": True}]


def test_an_answer_of_another_server_is_garbled(ask):
    """A proxy's page, or JSON of another shape, is no description of a repository."""
    with LocalHub({("o/a", REVISION, "config.json"): b"{}"}) as hub:
        hub.about["o/a"] = {"siblings": [{"name": "x"}]}
        assert ask(hub.url, "o/a") == [{"reason": "garbled", "lost": False}]
