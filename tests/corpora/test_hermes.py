"""The Hermes importer on rows in the dataset's own form, and the way of a Hub dataset from pin to check."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bellwether.case import Case, LeftOut
from bellwether.corpora import hermes
from bellwether.corpora.hermes import FILES, cases
from bellwether.corpora.rows import rows
from bellwether.errors import CorpusError
from local_hub import LocalHub, closed_port, environment

FILE = "func-calling.json"
REVISION = "dae3e1d28cfbcf4b915c04ea1e072030529b4bda"
REPO = "datasets/NousResearch/hermes-function-calling-v1"
TOOL = {"type": "function", "function": {"name": "get_time", "description": "Time", "parameters": {"type": "object"}}}
PROMPT = (
    "You are a function calling AI model. You are provided with function signatures within <tools> </tools> XML tags."
    f"\n<tools>\n{json.dumps([TOOL])}\n</tools>\nFor each function call return a JSON object."
)
CALL = '<tool_call>\n{"arguments": {"city": "K\\u00f6ln"}, "name": "get_time"}\n</tool_call>'


def said(speaker: str, text: str) -> dict[str, str]:
    return {"from": speaker, "value": text}


def row(*conversation: dict[str, str], tools: object = None, **more: object) -> dict[str, object]:
    return {
        "id": "0f1e",
        "conversations": list(conversation),
        "tools": json.dumps([TOOL]) if tools is None else tools,
        "category": "Clocks",
        "subcategory": "Time",
        "task": "Ask",
        **more,
    }


CONVERSATION = row(
    said("system", PROMPT),
    said("human", "What time is it in Köln?"),
    said("gpt", CALL),
    said("tool", '<tool_response>\n{"time": "10\\u00a0h"}\n</tool_response>'),
    said("gpt", "It is ten."),
)


def imported(given, *made: dict[str, object]) -> list[Case | LeftOut]:
    return list(cases(*given({FILE: json.dumps(list(made))}), FILE))


def test_conversation_becomes_two_requests_and_two_outputs(given):
    """The tool prompt goes, the tools stay; JSON is written again with raw characters."""
    got = imported(given, CONVERSATION)
    assert [case.case_id for case in got] == [
        "render/hermes-func-calling/hermes-func-calling-0-1",
        "parse/hermes-func-calling/hermes-func-calling-0-2",
        "render/hermes-func-calling/hermes-func-calling-0-3",
        "parse/hermes-func-calling/hermes-func-calling-0-4",
    ]
    function = {"name": "get_time", "arguments": '{"city": "Köln"}'}
    assert json.loads(got[1].message) == {"content": "", "tool_calls": [{"type": "function", "function": function}]}
    assert json.loads(got[3].request) == {
        "messages": [
            {"role": "user", "content": "What time is it in Köln?"},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": "call_0", "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": "call_0", "content": '{"time": "10\u00a0h"}'},
        ],
        "tools": [TOOL],
    }
    assert json.loads(got[3].message) == {"content": "It is ten."}


def test_row_without_tools_keeps_its_system_turn(given):
    """Nothing would stand in its place."""
    for tools in ("[]", "", None):
        made = row(said("system", "Be kind."), said("human", "a"), said("gpt", "b"))
        made["tools"] = tools
        request = json.loads(imported(given, made)[0].request)
        assert request == {"messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "a"}]}


def test_text_beside_a_call_is_content(given):
    """Two blocks are two calls; the prose around them stays, without the white space that set it apart."""
    got = imported(given, row(said("human", "a"), said("gpt", f"One moment.\n{CALL}\n{CALL}")))
    message = json.loads(got[1].message)
    assert (message["content"], len(message["tool_calls"])) == ("One moment.", 2)


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        pytest.param(row(said("human", "a"), said("gpt", CALL.replace('"', "'"))), "no JSON", id="Python's quotes"),
        pytest.param(row(said("human", "a"), said("gpt", CALL + "<tool_call>")), "does not end", id="open block"),
        pytest.param(row(said("human", "a"), said("gpt", "<tool_call>[]</tool_call>")), "without a name", id="list"),
        pytest.param(
            row(said("human", "a"), said("gpt", '<tool_call>{"name":"get_time","arguments":1}</tool_call>')),
            "arguments are no object",
            id="arguments",
        ),
        pytest.param(
            row(said("system", PROMPT), said("human", "a"), tools="[]"), "system prompt only", id="lost tools"
        ),
        pytest.param(row(said("human", "a"), said("gpt", CALL), said("tool", "10")), "outside of a", id="bare result"),
        pytest.param(row(said("human", "a"), said("gpt", CALL), said("gpt", "b")), "without a result", id="no result"),
        pytest.param(row(said("human", "a"), tools="{"), "no JSON", id="torn tools"),
        pytest.param(row(said("human", "a"), tools="{}"), "no list", id="tools no list"),
        pytest.param(row(said("narrator", "a")), "a turn of 'narrator'", id="speaker"),
        pytest.param(row(), "no conversation", id="empty"),
    ],
)
def test_row_without_a_faithful_form_is_left_out_with_its_reason(given, made, reason):
    """Both kinds are on record; the rows around it give their cases."""
    got = imported(given, CONVERSATION, made, CONVERSATION)
    left = [item for item in got if isinstance(item, LeftOut)]
    assert [(item.kind, item.set, item.row) for item in left] == [
        ("render", "hermes-func-calling", "1"),
        ("parse", "hermes-func-calling", "1"),
    ]
    assert reason in left[0].reason
    assert len(got) == 4 + 2 + 4


def test_rows_come_from_parquet_likewise(tmp_path):
    """The reader goes by the file's name in the dataset, whatever it is called on this machine."""
    made = [CONVERSATION, row(said("human", "a\u2028b"), said("gpt", "c"))]
    pq.write_table(pa.Table.from_pylist(made), tmp_path / "ab12")
    (tmp_path / "cd34").write_text(json.dumps(made), "utf-8")
    assert list(rows(tmp_path / "ab12", "train.parquet")) == list(rows(tmp_path / "cd34", FILE)) == made


@pytest.mark.parametrize(("name", "data"), [("a.json", b'[{"a": 1}, {'), ("a.parquet", b"PAR1"), ("a.txt", b"a")])
def test_file_that_cannot_be_read_is_named(tmp_path, name, data):
    """Torn, or of a form nobody reads."""
    (tmp_path / "ab12").write_bytes(data)
    with pytest.raises(CorpusError, match=f"{name}: expected") as caught:
        list(rows(tmp_path / "ab12", name))
    assert caught.value.next_step


# ── from the Hub ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def checkout(tmp_path: Path, root: Path) -> Path:
    made = tmp_path / "checkout"
    (made / "fixtures").mkdir(parents=True)
    (made / "corpus" / "hermes").mkdir(parents=True)
    for name in ("source.toml", "LICENSE"):
        (made / "corpus" / "hermes" / name).write_bytes((root / "corpus" / "hermes" / name).read_bytes())
    return made


def run(checkout: Path, endpoint: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bellwether", "import", "hermes", *arguments, "--root", str(checkout)],
        env=environment(endpoint, checkout.parent / "home"),
        capture_output=True,
        text=True,
    )


def hub_files() -> dict[tuple[str, str, str], bytes]:
    """The three files; the second one's row begins as the first one's."""
    single = row(*CONVERSATION["conversations"][:3])
    plain = row(said("human", "a"), said("gpt", "b"), tools="[]")
    made = dict(zip(FILES, ([single], [CONVERSATION], [plain, row(said("human", "a"), tools="{")]), strict=True))
    return {(REPO, REVISION, name): json.dumps(content).encode() for name, content in made.items()}


def test_dataset_of_the_hub_is_pinned_imported_and_checked(checkout: Path):
    """Pins come first and stand in Git; an import without them says how to get them. Then the Hub is not needed."""
    path = checkout / "corpus" / "hermes" / "source.toml"
    with LocalHub(hub_files()) as hub:
        refused = run(checkout, hub.url)
        assert refused.returncode == 2
        assert "'func-calling-singleturn.json' is not pinned" in refused.stderr
        assert "bellwether import hermes --pin" in refused.stderr

        pinned = run(checkout, hub.url, "--pin")
        assert (pinned.returncode, pinned.stdout) == (0, "hermes: 3 files pinned; review source.toml, then import\n")
        text = path.read_text("utf-8")
        assert text.count("sha256 = ") == 3 and "No file is pinned yet" not in text
        assert run(checkout, hub.url, "--pin").returncode == 0
        assert path.read_text("utf-8") == text

        done = run(checkout, hub.url)
        assert done.returncode == 0, done.stderr
        assert done.stdout == "hermes: 6 cases, 3 requests, 3 origins, 2 repeats, 2 left out\n"
    checked = run(checkout, closed_port(), "--check")
    assert (checked.returncode, checked.stderr) == (0, "")
    (checkout / "corpus" / "imported" / "hermes" / "cases.parquet").write_bytes(b"")
    assert run(checkout, closed_port(), "--check").returncode == 1


def test_hub_that_serves_other_bytes_is_refused(checkout: Path):
    """A commit that changes is no commit: expected and actual sha256, exit 2, nothing imported."""
    files = hub_files()
    with LocalHub(files) as hub:
        assert run(checkout, hub.url, "--pin").returncode == 0
    changed = {key: data + b"\n" for key, data in files.items()}
    with LocalHub(changed) as hub:
        done = subprocess.run(
            [sys.executable, "-m", "bellwether", "import", "hermes", "--root", str(checkout)],
            env=environment(hub.url, checkout.parent / "another-home"),
            capture_output=True,
            text=True,
        )
    assert done.returncode == 2
    assert "expected sha256" in done.stderr
    assert not (checkout / "corpus" / "imported" / "hermes").exists()


def test_unreachable_hub_names_every_route(checkout: Path):
    """Mirror, cache and Hub, each with its reason, and the name the file needs in a mirror."""
    path = checkout / "corpus" / "hermes" / "source.toml"
    before = path.read_text("utf-8")
    pinned = run(checkout, closed_port(), "--pin")
    assert pinned.returncode == 2 and path.read_text("utf-8") == before
    path.write_text(before + f'\n[files."{next(iter(FILES))}"]\nsha256 = "{"0" * 64}"\nbytes = 1\n', "utf-8")
    done = run(checkout, closed_port())
    assert done.returncode == 2
    for said_ in ("mirror: BELLWETHER_MIRROR is not set", "cache: no file", "Hub: ", "0" * 64):
        assert said_ in done.stderr


def test_short_revision_is_refused(checkout: Path):
    """Eight digits of a commit name no commit."""
    path = checkout / "corpus" / "hermes" / "source.toml"
    path.write_text(path.read_text("utf-8").replace(REVISION, REVISION[:8]), "utf-8")
    done = run(checkout, closed_port(), "--pin")
    assert done.returncode == 2
    assert "all its 40 hex digits" in done.stderr


def test_library_is_loaded_by_its_importers_only():
    """`datasets` takes seconds to import; no other command pays for it."""
    code = "import sys, bellwether.cli, bellwether.import_corpus, bellwether.corpora.hermes, bellwether.corpora.glaive"
    done = subprocess.run([sys.executable, "-c", f"{code}; print('datasets' in sys.modules)"], capture_output=True)
    assert done.stdout == b"False\n"
    assert hermes.FILES
