"""The stage `patterns` on transformers' own templates."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from bellwether import patterns
from bellwether.errors import PinMismatch, RegistryError, VersionMismatch
from bellwether.params import read_params
from bellwether.tables import PATTERNS, check
from support import ROOT, snapshot


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with the probes, and one checkpoint in scope whose inputs are not laid out."""
    return fill(tmp_path)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    """The rows of such a checkout."""
    root = fill(tmp_path_factory.mktemp("recorded"))
    patterns.main(root)
    return pq.read_table(patterns.table(root)).to_pylist()


def fill(tmp_path: Path) -> Path:
    slug = "smollm2-135m-instruct"
    text = (ROOT / "params.yaml").read_text("utf-8")
    _, _, oracle = text.partition("oracle:")
    (tmp_path / "params.yaml").write_text(f"checkpoints: [{slug}]\ncorpora: [handmade]\noracle:{oracle}", "utf-8")
    for name in (f"fixtures/{slug}/manifest.toml", "corpus/patterns/probes.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def laid_out(checkout: Path) -> Path:
    folder = checkout / "fixtures" / "smollm2-135m-instruct" / "inputs"
    shutil.copytree(snapshot("smollm2-135m-instruct"), folder)
    return folder / patterns.CONFIG


def test_the_table_of_transformers_own_templates(checkout):
    """Three fallback templates: 6, 7 and 8 patterns, each tried on every probe."""
    done = patterns.main(checkout)
    check(patterns.table(checkout), PATTERNS)
    rows = pq.read_table(patterns.table(checkout)).to_pylist()
    by_template: dict[str, set[str]] = {}
    for row in rows:
        by_template.setdefault(row["template"], set()).add(row["pattern_id"])
    assert {name: len(ids) for name, ids in by_template.items()} == {"qwen2": 6, "qwen3_5": 7, "gemma4": 8}
    assert (done.patterns, done.rows) == (21, len(rows))
    assert len({row["text"] for row in rows}) == done.probes == 72
    assert Counter(row["pattern_id"] for row in rows)["gemma4/content/close"] == 2 * 72, "searched and streamed"
    assert done.not_laid_out == ("smollm2-135m-instruct",)


@pytest.mark.parametrize(
    ("pattern", "probe", "expected"),
    [
        # The closing tag inside a string ends the call: a parser that reads JSON first would go on.
        ("qwen2/tool_calls/close", "json-call-marker-in-string", ["</tool_call>", "</tool_call>"]),
        ("qwen2/tool_calls/open_pattern", "space-ascii", ["\t\n\x0b\x0c\r <tool_call>"]),
        ("qwen2/tool_calls/open_pattern", "space-next-line", ["\x85<tool_call>"]),
        # U+001C to U+001F are white space for str.isspace and the standard library's re, not for regex.
        ("qwen2/tool_calls/open_pattern", "space-information-separators", ["<tool_call>"]),
        ("qwen2/tool_calls/open_pattern", "space-look-alikes", ["<tool_call>"]),
        ("qwen3_5/tool_calls/open_pattern", "xml-call-empty-names", []),
        ("qwen3_5/tool_calls/open_pattern", "xml-call-newline-in-name", []),
        ("gemma4/tool_calls/open_pattern", "channel-call-name-missing", []),
        ("gemma4/tool_calls/open_pattern", "channel-call-name-letters", ["<|tool_call>call:größe_東京_٣"]),
        ("gemma4/content/close", "channel-call-single", ["<|tool_response>"]),
    ],
)
def test_what_is_known_about_the_patterns(recorded, pattern, probe, expected):
    """Read off the patterns by hand, with Unicode's White_Space property for `\\s`."""
    (row,) = [row for row in recorded if (row["pattern_id"], row["probe"], row["call"]) == (pattern, probe, "search")]
    assert [row["text"][match["start"] : match["end"]] for match in row["matches"]] == expected


def test_the_same_probes_give_the_same_bytes(checkout):
    """Table and provenance; where it was made is in neither."""
    patterns.main(checkout)
    files = [patterns.table(checkout), patterns.table(checkout).with_name("provenance.json")]
    first = [file.read_bytes() for file in files]
    patterns.main(checkout)
    assert [file.read_bytes() for file in files] == first
    assert not any(str(checkout).encode() in data for data in first)


def test_provenance_says_what_was_read(checkout):
    """The library that answered, transformers' files by sha256, and which checkpoints were looked at."""
    patterns.main(checkout)
    path = patterns.table(checkout).with_name("provenance.json")
    before = json.loads(path.read_text("utf-8"))
    assert before["engine"] == "regex" and before["templates"] == ["qwen2", "qwen3_5", "gemma4"]
    assert before["transformers"] == "5.24.0"
    assert sorted(before["files"]) == [
        "transformers/cli/serving/utils.py",
        "transformers/utils/chat_parsing/content_parsers.py",
        "transformers/utils/chat_parsing/response_parser.py",
        "transformers/utils/chat_parsing/response_templates.py",
    ]
    assert before["checkpoints"] == {}
    laid_out(checkout)
    patterns.main(checkout)
    assert json.loads(path.read_text("utf-8"))["checkpoints"] == {"smollm2-135m-instruct": False}


def test_a_template_a_checkpoint_carries_is_recorded(checkout):
    """Under its slug, beside the fallbacks; the file has to be the pinned one."""
    config = laid_out(checkout)
    value = json.loads(config.read_bytes())
    value["response_template"] = {"start_anchor": "<a>", "fields": {"content": {"close": "<end>"}}}
    config.write_text(json.dumps(value), "utf-8")
    with pytest.raises(PinMismatch, match=r"tokenizer_config\.json: expected sha256"):
        patterns.main(checkout)
    from bellwether.materials.pins import sha256_of
    from bellwether.params import read_manifest

    manifest = checkout / "fixtures" / "smollm2-135m-instruct" / "manifest.toml"
    pin = read_manifest(checkout, "smollm2-135m-instruct").inputs[patterns.CONFIG]
    manifest.write_text(manifest.read_text("utf-8").replace(pin, sha256_of(config.read_bytes())), "utf-8")
    assert patterns.main(checkout).patterns == 21 + 2
    rows = pq.read_table(patterns.table(checkout), columns=["pattern_id", "models"]).to_pylist()
    assert rows[-1] == {"pattern_id": "smollm2-135m-instruct/content/close", "models": ["smollm2-135m-instruct"]}


def test_a_file_that_is_gone_from_the_inputs_is_no_checkpoint_without_a_template(checkout):
    """A folder without its pinned file is not laid out right."""
    laid_out(checkout).unlink()
    with pytest.raises(PinMismatch):
        patterns.main(checkout)


def test_another_transformers_is_refused(checkout):
    """Its patterns would be recorded under the pinned version's name."""
    path = checkout / "params.yaml"
    pinned = read_params(checkout).versions["transformers"]
    path.write_text(path.read_text("utf-8").replace(f"transformers: {pinned}", "transformers: 0.0.1"), "utf-8")
    with pytest.raises(VersionMismatch):
        patterns.main(checkout)
    assert not patterns.table(checkout).exists()


def test_the_fallbacks_are_read_and_not_imported():
    """Model types share a template; the names are those of config.json's model_type."""
    found = patterns.fallbacks(patterns.transformers_files()[patterns.FALLBACKS])
    assert [models[0] for models, _ in found] == ["qwen2", "qwen3_5", "gemma4"]
    assert "qwen3_moe" in found[0][0]


@pytest.mark.parametrize(
    "text",
    [
        "OTHER = {}",
        "_RESPONSE_TEMPLATE_FALLBACKS = {}",
        "_RESPONSE_TEMPLATE_FALLBACKS = {'qwen3': {}}",
        "_RESPONSE_TEMPLATE_FALLBACKS = {('qwen3',): None}",
        "_RESPONSE_TEMPLATE_FALLBACKS = {(): {}}",
        "_RESPONSE_TEMPLATE_FALLBACKS = load()",
    ],
)
def test_fallbacks_written_in_another_way_are_an_error(text):
    """Gone, empty, another key, no template, no model, or computed."""
    with pytest.raises(RegistryError):
        patterns.fallbacks(text)


@pytest.mark.parametrize(
    "text",
    [
        "def other(): re.sub('x', '', t)",
        "def _json(): re.sub('x', '', t); re.sub('y', '', t)",
        "def _json(): re.sub(pattern, '', t)",
        "def _json(): re.sub('x', '', t, flags=re.DOTALL)",
    ],
)
def test_another_json_parser_is_an_error(text):
    """The pattern for bare keys is the one literal without flags; two of them could not be told apart."""
    with pytest.raises(RegistryError):
        patterns.unquoted_keys(text)


@pytest.mark.parametrize("template", ["qwen2", "qwen3_5", "gemma4"])
def test_the_rows_hold_back_what_transformers_holds_back(recorded, template):
    """While text streams outside any field, transformers' own parser passes on all but what a delimiter may claim.

    For every buffer that was tried, the earliest place a row says is pending is the place from which its parser holds.
    """
    from transformers.utils.chat_parsing import ResponseParser

    specs = {models[0]: spec for models, spec in patterns.fallbacks(patterns.transformers_files()[patterns.FALLBACKS])}
    parser = ResponseParser(specs[template], prefix="")
    watched = parser._watchlist()
    ids = {f"{template}/{field.name}/{kind}" for kind, field in watched}
    rows = [
        row for row in recorded if row["call"] == "search-partial" and row["pattern_id"].removesuffix("_pattern") in ids
    ]
    assert {row["pattern_id"].removesuffix("_pattern") for row in rows} == ids
    compared = 0
    for probe in dict.fromkeys(row["probe"] for row in rows):
        of_probe = [row for row in rows if row["probe"] == probe]
        for buffer in of_probe[0]["buffers"]:
            starts = [
                match["start"]
                for row in of_probe
                for match in row["matches"]
                if match["buffer"] == buffer and pending(row, match)
            ]
            parser._buffer, parser._pos = of_probe[0]["text"][:buffer], 0
            assert parser._scan(watched, False)[1] == min(starts, default=buffer), (probe, buffer)
            compared += bool(starts)
    assert compared > 300


def pending(row: dict, match: dict) -> bool:
    """Whether more text may still change a match: it is not whole, or whole at the edge and not sure to end there."""
    if match["partial"]:
        return True
    if match["end"] != match["buffer"]:
        return match["survives"] is False
    literals = row["literals"]
    if match["start"] == match["end"] or literals is None:
        return True
    return any(one != other and one.startswith(other) for one in literals for other in literals)
