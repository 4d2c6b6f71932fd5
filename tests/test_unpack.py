"""The plain JSON Lines tree, read back as its consumers read it."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tomllib
from pathlib import Path

import pytest

from bellwether import record, unpack
from bellwether.case import json_text
from bellwether.chunk_plans import chunk_plans
from bellwether.errors import BellwetherError, ParamsError, TableError
from support import load_checkpoint, miniature

pytestmark = pytest.mark.xdist_group("unpack")  # one recording for all tests of this file
SLUG = "qwen3-8b"
TOP = {
    "render": ["id", "kind", "model", "request", "reference"],
    "parse": "id kind model request reference chunk_plans malformed output_ids output_pieces tools".split(),
    "tokenize": ["id", "kind", "model", "reference"],
    "detokenize": ["id", "kind", "model", "reference", "output_ids", "output_pieces"],
}


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """qwen3-8b recorded on the hand-written corpus."""
    root = miniature(tmp_path_factory.mktemp("project"), [SLUG])
    record.main(root, SLUG, 1)
    return root


@pytest.fixture(scope="module")
def tree(project, tmp_path_factory) -> Path:
    """The tree of that recording."""
    folder = tmp_path_factory.mktemp("tree")
    unpack.main(project, folder)
    return folder / SLUG


def lines(tree: Path) -> list[dict]:
    """Every line of the tree, read as consumers do: split at LF only."""
    return [
        json.loads(line)
        for path in sorted(tree.glob("*/*.jsonl"))
        for line in path.read_bytes().decode().split("\n")
        if line
    ]


def test_sets_and_files_agree_both_ways(tree):
    """sets.toml has a table for every file and no other, with its lines, its bytes and their sha256."""
    sets = {
        f"{kind}/{name}": table
        for kind, tables in tomllib.loads((tree / "sets.toml").read_text()).items()
        for name, table in tables.items()
    }
    files = {path.relative_to(tree).with_suffix("").as_posix(): path for path in tree.glob("*/*.jsonl")}
    assert set(sets) == set(files)
    for name, path in files.items():
        data = path.read_bytes()
        assert data.endswith(b"\n") and b"\r" not in data.replace(b"\\r", b"")
        assert sets[name]["cases"] == data.count(b"\n")
        assert (sets[name]["plain_bytes"], sets[name]["form"]) == (len(data), "plain")
        assert sets[name]["plain_sha256"] == hashlib.sha256(data).hexdigest()
    assert sets["parse/reported-bugs"]["rejected"] == 4  # the malformed outputs


def test_nothing_compressed_lies_in_the_tree(tree):
    """Consumers fail on anything but set files in the folders of a slug."""
    assert {path.suffix for path in tree.glob("*/*")} == {".jsonl"}
    assert {path.name for path in tree.iterdir() if path.is_file()} == {"manifest.toml", "sets.toml"}


def test_manifest_names_model_revision_and_inputs(tree):
    """The tree's manifest holds the pins by which consumers find the tokenizer."""
    manifest = tomllib.loads((tree / "manifest.toml").read_text())
    assert (manifest["model"], manifest["revision"]) == ("Qwen/Qwen3-8B", "b968826d9c46dd6066d109eabc6255188de91218")
    assert manifest["inputs"]["tokenizer.json"].startswith("aeb13307")


def test_form_of_every_line(tree):
    """Ids, key order at the top and inside, and the exact serialisation."""
    for path in tree.glob("*/*.jsonl"):
        kind, ids = path.parent.name, []
        for text in path.read_bytes().decode().split("\n")[:-1]:
            line = json.loads(text)
            assert list(line) == TOP[kind]
            assert json_text(line) == text
            assert re.fullmatch(rf"{SLUG}/{kind}/[a-z0-9-]+", line["id"])
            assert (line["kind"], line["model"]) == (kind, "Qwen/Qwen3-8B")
            assert _sorted_inside(line["reference"])
            ids.append(line["id"])
        assert ids == sorted(ids)


def test_render_lines_encode_to_their_ids(tree):
    """Encoding the text without added special tokens gives the ids."""
    encoder = load_checkpoint(SLUG).encoders[0]
    checked = [line["reference"] for line in lines(tree) if line["kind"] == "render"]
    assert encoder.encode([one["text"] for one in checked]) == [one["input_ids"] for one in checked]
    assert {one["source"] for one in checked} == {"hf-template"}


def test_parse_lines_hold_what_replays_need(tree):
    """Pieces join to the text, one per id; plans are written out; the message keeps its argument strings."""
    checked = [line for line in lines(tree) if line["kind"] == "parse"]
    for line in checked:
        assert len(line["output_pieces"]) == len(line["output_ids"])
        assert "".join(line["output_pieces"]) == line["reference"]["text"]
        assert line["malformed"] is False
        assert line["tools"] == line["request"].get("tools", [])
        plans = chunk_plans(len(line["output_ids"]))
        assert list(line["chunk_plans"]) == list(plans)
        assert line["chunk_plans"]["whole"] is line["chunk_plans"]["per_token"] is None
        assert {n: p for n, p in line["chunk_plans"].items() if p} == {
            n: p for n, p in plans.items() if n not in ("whole", "per_token")
        }
        message = line["reference"]["message"]
        assert message["role"] == "assistant"
        assert all(isinstance(call["function"]["arguments"], str) for call in message.get("tool_calls", []))
        assert line["reference"]["end_of_turn"] == {"found_by": "turn", "stop_id": 151645}
    assert {line["reference"]["source"] for line in checked} == {"roundtrip"}


def test_names_that_existing_lists_refer_to_are_there(tree):
    """Lists of known differences name these cases; a missing one fails their run."""
    ids = {line["id"] for line in lines(tree)}
    for name in (
        "parse/reasoning-with-marker-text",
        "parse/content-with-marker-in-code-fence",
        "render/no-generation-prompt",
        "render/tools-call-arguments-object",
        "render/text-developer-role",
    ):
        assert f"{SLUG}/{name}" in ids


def test_text_lines(tree):
    """A tokenize line has text and ids; a detokenize line ids, pieces and text."""
    by_id = {line["id"]: line for line in lines(tree)}
    plain = by_id[f"{SLUG}/tokenize/plain-sentence"]
    encoder = load_checkpoint(SLUG).encoders[0]
    assert encoder.encode([plain["reference"]["text"]]) == [plain["reference"]["input_ids"]]
    back = by_id[f"{SLUG}/detokenize/plain-sentence"]
    assert "".join(back["output_pieces"]) == back["reference"]["text"] == encoder.decode(back["output_ids"])


def test_provenance_has_what_consumers_read(tree):
    """transformers and tokenizers as strings, the template's sha256, and the encoder."""
    [provenance] = {json.dumps(line["reference"]["provenance"]) for line in lines(tree)}
    provenance = json.loads(provenance)
    assert provenance["chat_template_sha256"] == "a55ee1b1660128b7098723e0abcd92caa0788061051c62d51cbe87d9cf1974d8"
    assert (provenance["transformers"], provenance["tokenizers"]) == ("5.24.0", "0.23.3")
    assert provenance["encoder"] == "tokenizers:tokenizer.json"


def test_generate_stop_ids_are_written_where_they_differ(tree, project, tmp_path):
    """qwen3-8b stops and parses on the same ids, so its sets say nothing; a difference is written to the set."""
    assert "generate_stop_ids" not in (tree / "sets.toml").read_text()
    root = tmp_path / "copy"
    shutil.copytree(project, root)
    path = root / "fixtures" / SLUG / "parse" / "provenance.json"
    provenance = json.loads(path.read_text())
    path.write_text(json.dumps({**provenance, "generate_stop_ids": [151643]}))
    unpack.main(root, tmp_path / "tree")
    sets = tomllib.loads((tmp_path / "tree" / SLUG / "sets.toml").read_text())
    assert sets["parse"]["common"]["generate_stop_ids"] == [151643]
    assert sets["parse"]["common"]["generate_stop_ids_from"] == "generation_config.json"


def test_lines_are_those_of_the_deciding_source(tree):
    """Prompts of messages as sent: a history whose arguments are text has the prompt the template makes of text."""
    line = next(line for line in lines(tree) if line["id"] == f"{SLUG}/render/tools-history-single-call")
    arguments = next(m for m in line["request"]["messages"] if "tool_calls" in m)["tool_calls"][0]["function"]
    assert isinstance(arguments["arguments"], str)
    assert arguments["arguments"] in line["reference"]["text"]
    ids = [line["id"] for line in lines(tree)]
    assert len(ids) == len(set(ids))


def test_tree_of_a_vendors_encoder(tmp_path):
    """DeepSeek V4's prompts are made by code: lines name it, and their provenance its files instead of a template."""
    (tmp_path / "project").mkdir()
    root = miniature(tmp_path / "project", ["deepseek-v4"])
    record.main(root, "deepseek-v4", 1)
    unpack.main(root, tmp_path / "tree")
    made = lines(tmp_path / "tree" / "deepseek-v4")
    sources = {(line["kind"], line["reference"]["source"]) for line in made}
    assert sources == {
        ("render", "vendor-code:deepseek-v4"),
        ("parse", "roundtrip"),
        ("tokenize", "hf-tokenizer"),
        ("detokenize", "hf-tokenizer"),
    }
    provenance = next(line["reference"]["provenance"] for line in made if line["kind"] == "render")
    assert "chat_template_sha256" not in provenance
    assert list(provenance["files"]) == ["vendor/deepseek_v4_encoding.py"]
    hi = next(line for line in made if line["id"] == "deepseek-v4/render/text-user-only")
    assert hi["reference"]["text"].startswith("<｜begin▁of▁sentence｜>")


def test_unpacking_twice_gives_the_same_tree(project, tree, tmp_path):
    """A tree replaces an earlier one, byte for byte the same."""
    unpack.main(project, tmp_path)
    unpack.main(project, tmp_path, [SLUG])
    assert {path.relative_to(tmp_path / SLUG): path.read_bytes() for path in (tmp_path / SLUG).rglob("*.*")} == {
        path.relative_to(tree): path.read_bytes() for path in tree.rglob("*.*")
    }
    assert [path.name for path in tmp_path.iterdir()] == [SLUG]


def test_folder_that_is_no_tree_is_left_alone(project, tmp_path):
    """Somebody's folder of the same name is not overwritten."""
    (tmp_path / SLUG).mkdir()
    (tmp_path / SLUG / "letter.txt").write_text("dear")
    with pytest.raises(BellwetherError, match="is no fixture tree"):
        unpack.main(project, tmp_path)
    assert (tmp_path / SLUG / "letter.txt").read_text() == "dear"


def test_unknown_slug_and_missing_table_are_errors(project, tmp_path):
    """A slug out of scope, and a table that was not recorded, are named."""
    with pytest.raises(ParamsError, match=r"'nobody' is not in params\.yaml"):
        unpack.main(project, tmp_path, ["nobody"])
    root = tmp_path / "copy"
    shutil.copytree(project, root)
    (root / "fixtures" / SLUG / "parse" / "reference.parquet").unlink()
    with pytest.raises(TableError, match=r"parse/reference\.parquet is not recorded"):
        unpack.main(root, tmp_path / "tree")
    assert not (tmp_path / "tree" / SLUG).exists()


def _sorted_inside(value) -> bool:
    if isinstance(value, dict):
        return list(value) == sorted(value) and all(map(_sorted_inside, value.values()))
    return all(map(_sorted_inside, value)) if isinstance(value, list) else True
