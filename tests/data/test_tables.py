"""The recorded tables of the checkout. `make test-data` runs this; `make repro` or `dvc pull` has to come before."""

from __future__ import annotations

import csv
import hashlib
import json
import struct
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator
from decimal import Context, Decimal
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from bellwether.oracles.refusals import CODES
from bellwether.params import read_manifest, read_second_references
from bellwether.tables import MATERIALS, PER_CORPUS, REFERENCE

ROOT = Path(__file__).resolve().parents[2]
SCOPE = yaml.safe_load((ROOT / "params.yaml").read_text("utf-8"))
CHECKPOINTS, CORPORA = SCOPE["checkpoints"], SCOPE["corpora"]
KINDS = {"render": ("render",), "parse": ("parse",), "tokens": ("tokenize", "detokenize")}
TABLES = {
    **{f"corpus/imported/{corpus}/{name}.parquet": schema for corpus in CORPORA for name, schema in PER_CORPUS.items()},
    **{f"fixtures/{slug}/materials.parquet": MATERIALS for slug in CHECKPOINTS},
    **{f"fixtures/{slug}/{recorded}/reference.parquet": REFERENCE for slug in CHECKPOINTS for recorded in KINDS},
}
DIGESTS_OF_A_MESSAGE = ("message_sha256", "message_value_sha256", "message_bare_sha256")
OF_A_MESSAGE = ("content", "reasoning_content", "tool_calls", *DIGESTS_OF_A_MESSAGE, "finish_reason", "stop_id")
SAMPLE = 50
"""Digests are recomputed for every row of this many."""

each_checkpoint = pytest.mark.parametrize("slug", CHECKPOINTS)
each_record = pytest.mark.parametrize("recorded", KINDS)


def reference(slug: str, recorded: str, *columns: str) -> list[dict[str, Any]]:
    path = ROOT / "fixtures" / slug / recorded / "reference.parquet"
    return pq.read_table(path, columns=list(columns)).to_pylist()


def sampled(slug: str, recorded: str) -> Iterator[dict[str, Any]]:
    """Yield every 50th row, whole; one row group is in memory at a time."""
    file = pq.ParquetFile(ROOT / "fixtures" / slug / recorded / "reference.parquet")
    seen = 0
    for batch in file.iter_batches(512):
        places = [place for place in range(batch.num_rows) if (seen + place) % SAMPLE == 0]
        yield from batch.take(pa.array(places, pa.int64())).to_pylist()
        seen += batch.num_rows


def corpus_rows(table: str) -> list[dict[str, Any]]:
    """Return the rows of one table over all corpora, in the order of params.yaml."""
    paths = [ROOT / "corpus" / "imported" / corpus / f"{table}.parquet" for corpus in CORPORA]
    return [row for path in paths for row in pq.read_table(path).to_pylist()]


def provenance(slug: str, recorded: str) -> dict[str, Any]:
    return json.loads((ROOT / "fixtures" / slug / recorded / "provenance.json").read_text("utf-8"))


def digest_of_ids(ids: list[int]) -> bytes:
    return hashlib.sha256(struct.pack(f"<{len(ids)}I", *ids)).digest()


def exact(text: str) -> Any:
    """Return arguments with keys in order and numbers without trailing zeros, or the text when they are no JSON."""

    def number(spelling: str) -> Decimal:
        return Decimal(spelling).normalize(Context(prec=1000)) or Decimal(0)

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        return dict(sorted(dict(pairs).items()))

    try:
        return [json.loads(text, parse_int=number, parse_float=number, object_pairs_hook=members)]
    except ValueError:
        return text


@pytest.fixture(scope="module")
def cases() -> list[dict[str, Any]]:
    return corpus_rows("cases")


# ── shape ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", TABLES)
def test_table_has_its_schema(path: str):
    """Columns, types, schema version and the description of every column are those of tables.py."""
    expected = TABLES[path]
    actual = pq.read_schema(ROOT / path)
    assert actual.equals(expected)
    assert actual.metadata == {b"schema_version": b"3"}
    for column in actual:
        assert column.metadata == expected.field(column.name).metadata
        assert column.metadata[b"description"].strip(), column.name


@pytest.mark.parametrize("path", TABLES)
def test_row_groups_are_small(path: str):
    """A reader never has to hold more than 10,000 rows."""
    metadata = pq.read_metadata(ROOT / path)
    assert all(metadata.row_group(place).num_rows <= 10_000 for place in range(metadata.num_row_groups))


# ── corpora ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_cases_are_unique_over_all_corpora(cases: list[dict[str, Any]]):
    """A case_id, and a name among the cases of a kind, stands once; the id is made of kind, set and name."""
    assert len({case["case_id"] for case in cases}) == len(cases) > 0
    assert len({(case["kind"], case["name"]) for case in cases}) == len(cases)
    for case in cases:
        assert case["case_id"] == f"{case['kind']}/{case['set']}/{case['name']}"


def test_case_index_counts_from_zero_in_each_corpus(cases: list[dict[str, Any]]):
    """A table keeps the order of its importer, and every case says which corpus it is of."""
    places = defaultdict(list)
    for case in cases:
        places[case["corpus"]].append(case["case_index"])
    assert list(places) == CORPORA
    for corpus, numbers in places.items():
        assert numbers == list(range(len(numbers))), corpus


def test_requests_are_stored_once_under_their_digest(cases: list[dict[str, Any]]):
    """A request's key is the sha256 of its text; each case that has one finds it in its corpus, and none is idle."""
    for corpus in CORPORA:
        rows = pq.read_table(ROOT / "corpus" / "imported" / corpus / "requests.parquet").to_pylist()
        stored = [row["request_sha256"] for row in rows]
        for row in rows:
            assert hashlib.sha256(row["request"].encode()).digest() == row["request_sha256"]
            assert isinstance(json.loads(row["request"])["messages"], list)
        of_cases = [case["request_sha256"] for case in cases if case["corpus"] == corpus]
        assert len(set(stored)) == len(stored)
        assert set(stored) == set(of_cases) - {None}


def test_cases_have_what_their_kind_needs(cases: list[dict[str, Any]]):
    """render: a request. parse: a request, and a message or else a malformed text. tokenize: a text. detokenize: a
    text, or ids with the vocabulary they are of. Every case has a known origin."""
    origins = {row["origin_id"] for row in corpus_rows("origins")}
    forms = {
        ("render", "request_sha256"),
        ("parse", "request_sha256", "message"),
        ("parse", "request_sha256", "text", "malformed"),
        ("tokenize", "text"),
        ("detokenize", "text"),
        ("detokenize", "ids", "requires"),
    }
    parts = ("request_sha256", "message", "text", "ids", "requires")
    for case in cases:
        form = (case["kind"], *(part for part in parts if case[part] is not None))
        assert (*form, "malformed") in forms if case["malformed"] else form in forms, case["case_id"]
        assert case["origin_id"] in origins


def test_repeats_point_at_cases_that_stay(cases: list[dict[str, Any]]):
    """What a dropped case repeats is in the corpus, is of its kind, and is not the dropped one."""
    names = {(case["kind"], case["name"]) for case in cases}
    ids = {case["case_id"] for case in cases}
    for row in corpus_rows("repeats"):
        assert row["repeats"] in ids
        assert row["repeats"].startswith(f"{row['kind']}/")
        assert (row["kind"], row["name"]) not in names


# ── references ───────────────────────────────────────────────────────────────────────────────────────────────────────


@each_checkpoint
@each_record
def test_every_case_has_a_reference_in_case_order(slug: str, recorded: str, cases: list[dict[str, Any]]):
    """No case of the kinds is left out, none stands twice apart, and rows carry their checkpoint and kind."""
    rows = reference(slug, recorded, "checkpoint", "case_id", "kind")
    expected = [case["case_id"] for case in cases if case["kind"] in KINDS[recorded]]
    assert [case_id for case_id, _ in groupby(row["case_id"] for row in rows)] == expected
    assert {row["checkpoint"] for row in rows} == {slug}
    assert all(row["case_id"].startswith(f"{row['kind']}/") for row in rows)


def of_case(row: dict[str, Any]) -> str:
    return row["case_id"]


@each_checkpoint
@each_record
def test_every_encoder_answers_once(slug: str, recorded: str):
    """A source has, per case and normalisation, one row of `both`, or one of each encoder there is, or one that asked
    none."""
    encoders = provenance(slug, recorded)["encoders"]
    assert encoders in (["both"], ["class"], ["class", "tokenizer.json"])
    allowed = [[None], encoders] + ([["both"]] if len(encoders) == 2 else [])
    rows = reference(slug, recorded, "case_id", "source", "normalisation", "encoder")
    for case_id, own in groupby(rows, key=of_case):
        for _, answers in groupby(own, key=lambda row: (row["source"], row["normalisation"])):
            assert [row["encoder"] for row in answers] in allowed, case_id


@each_checkpoint
@each_record
def test_rows_of_a_source_differ(slug: str, recorded: str):
    """Where encoders or normalisations agree, one row says `both`; two rows of a source are always two answers."""
    columns = ("outcome", "reason_code", "reason", "prompt_sha256", "prompt_text", "output_sha256", "output_text")
    for case_id, own in groupby(reference(slug, recorded, "case_id", "source", "piece_ends", *columns), key=of_case):
        answers = [json.dumps(row, default=bytes.hex) for row in own]
        assert len(set(answers)) == len(answers), case_id


@each_checkpoint
@each_record
def test_sources_are_those_of_the_manifest(slug: str, recorded: str, cases: list[dict[str, Any]]):
    """Every source of [authority] answers every case; a second reference every case with tools, and no other."""
    manifest = read_manifest(ROOT, slug)
    sources = list(manifest.authority.get(recorded, ("hf-tokenizer",)))
    named = [name for name, template in read_second_references(ROOT).items() if template.serves(slug)]
    prefix = "roundtrip:" if recorded == "parse" else ""
    seconds = [f"{prefix}vllm-example:{name}" for name in named] if recorded != "tokens" else []
    requests = {row["request_sha256"]: json.loads(row["request"]) for row in corpus_rows("requests")}
    with_tools = {
        case["case_id"] for case in cases if case["request_sha256"] and requests[case["request_sha256"]].get("tools")
    }
    for case_id, own in groupby(reference(slug, recorded, "case_id", "source"), key=of_case):
        expected = sources + (seconds if case_id in with_tools else [])
        assert [source for source, _ in groupby(row["source"] for row in own)] == expected, case_id


@each_checkpoint
@each_record
def test_axes_say_how_messages_were_handed_over(slug: str, recorded: str):
    """render: one row of `both`, or `raw` and `vllm`; a vendor's code and parse: `vllm`. Only `raw` content is always
    as sent, and text has no normalisation."""
    rows = reference(slug, recorded, "case_id", "kind", "source", "normalisation", "content_format")
    for case_id, own in groupby(rows, key=of_case):
        for source, answers in groupby(own, key=lambda row: row["source"]):
            axes = list(dict.fromkeys((row["normalisation"], row["content_format"]) for row in answers))
            ways = [normalisation for normalisation, _ in axes]
            if recorded == "tokens":
                assert axes == [(None, None)], case_id
            elif recorded == "parse" or source.startswith("vendor-code:"):
                assert ways == ["vllm"], case_id
                assert axes[0][1] in ("string", "openai"), case_id
            else:
                assert ways in (["both"], ["raw", "vllm"]), case_id
                assert all(form == "string" for way, form in axes if way == "raw"), case_id
                assert all(form in ("string", "openai") for way, form in axes if way == "vllm"), case_id
                assert all(form in ("string", "both") for way, form in axes if way == "both"), case_id


@each_checkpoint
@each_record
def test_refusals_have_a_known_code(slug: str, recorded: str):
    """A refusal has a code of the rule book with its class; a code without a class is a case that is not for it."""
    for row in reference(slug, recorded, "case_id", "outcome", "reason_class", "reason_code", "reason"):
        if row["outcome"] == "result":
            assert (row["reason_class"], row["reason_code"], row["reason"]) == (None, None, None), row
        else:
            without_class = {"other-vocabulary", "template-renders-no-calls"}
            assert row["outcome"] == ("not_applicable" if row["reason_code"] in without_class else "rejected"), row
            assert row["reason_class"] == CODES[row["reason_code"]][0], row


@each_checkpoint
@each_record
def test_results_are_complete_and_refusals_claim_nothing(slug: str, recorded: str):
    """A result has ids, text and digests of its kind; a refusal has no part of a message, nor how a turn ends."""
    prompt = {"prompt_text", "prompt_text_sha256", "prompt_ids", "prompt_sha256"}
    output = {"output_ids", "output_sha256"}
    spoken = {*output, "output_text", "output_text_sha256", "piece_ends", "pieces_sha256"}
    complete = {
        "render": prompt,
        "parse": {*prompt, *spoken, *DIGESTS_OF_A_MESSAGE, "finish_reason", "stop_id", "stop_found_by"},
        "tokenize": output,
        "detokenize": spoken,
    }
    file = pq.ParquetFile(ROOT / "fixtures" / slug / recorded / "reference.parquet")
    watched = [*prompt, *spoken, *OF_A_MESSAGE, "stop_found_by"]
    told = ("case_id", "kind", "outcome", "source")
    for batch in file.iter_batches(512, columns=[*told, *watched]):
        there = {name: batch.column(name).is_valid().to_pylist() for name in watched}
        for place, (case_id, kind, outcome, source) in enumerate(
            zip(*(batch.column(name).to_pylist() for name in told), strict=True)
        ):
            has = {name for name in watched if there[name][place]}
            if source == "response-template" and outcome == "result":  # also of outputs that no stop id is known of
                assert has >= {*prompt, *output, *DIGESTS_OF_A_MESSAGE, "finish_reason"}, case_id
            elif outcome == "result":
                assert has - {"content", "reasoning_content", "tool_calls"} == complete[kind], case_id
            else:
                assert not has & {*OF_A_MESSAGE, "stop_found_by"}, case_id
                assert len(has & prompt) in (0, 4), case_id
                assert len(has & output) in (0, 2), case_id


@each_checkpoint
@each_record
def test_digests_are_of_the_ids(slug: str, recorded: str):
    """Recomputed for every 50th row: sha256 of the ids as little-endian u32, and absent where ids are."""
    checked = 0
    for row in sampled(slug, recorded):
        for part in ("prompt", "output"):
            ids = row[f"{part}_ids"]
            assert row[f"{part}_sha256"] == (None if ids is None else digest_of_ids(ids)), row["case_id"]
            checked += ids is not None
    assert checked > 0


@each_checkpoint
@each_record
def test_digests_are_of_the_texts(slug: str, recorded: str):
    """Recomputed for every 50th row: sha256 of the text in UTF-8, and absent where a text is."""
    checked = 0
    for row in sampled(slug, recorded):
        for part in ("prompt", "output"):
            text = row[f"{part}_text"]
            expected = None if text is None else hashlib.sha256(text.encode()).digest()
            assert row[f"{part}_text_sha256"] == expected, row["case_id"]
            checked += text is not None
    assert checked > 0


@each_checkpoint
@pytest.mark.parametrize("recorded", ["parse", "tokens"])
def test_piece_digests_are_of_the_pieces(slug: str, recorded: str):
    """Recomputed for every 50th row: JSON of the output's text, cut where its pieces end; absent without pieces."""
    checked = 0
    for row in sampled(slug, recorded):
        text, ends = row["output_text"], row["piece_ends"]
        if text is None or ends is None:
            assert row["pieces_sha256"] is None, row["case_id"]
        else:
            pieces = json.dumps([text[start:end] for start, end in pairwise([0, *ends])])
            assert row["pieces_sha256"] == hashlib.sha256(pieces.encode()).digest(), row["case_id"]
            checked += 1
    assert checked > 0


@each_checkpoint
def test_message_digests_are_of_the_message(slug: str):
    """Recomputed for every 50th row: canonical JSON with sorted keys, where no text and empty text are the same."""
    for row in sampled(slug, "parse"):
        if row["outcome"] == "result":
            canonical = {
                "content": row["content"] or "",
                "reasoning_content": row["reasoning_content"] or "",
                "tool_calls": [[call["name"], call["arguments"]] for call in row["tool_calls"] or []],
            }
            text = json.dumps(canonical, sort_keys=True)
            assert row["message_sha256"] == hashlib.sha256(text.encode()).digest(), row["case_id"]


@each_checkpoint
def test_value_digests_part_messages_as_their_values_do(slug: str):
    """Over every 50th row: as many digests by value as messages whose arguments are read with exact numbers."""
    digests, meant = set(), set()
    for row in sampled(slug, "parse"):
        if row["outcome"] == "result":
            calls = [(call["name"], exact(call["arguments"])) for call in row["tool_calls"] or []]
            message = repr((row["content"] or "", row["reasoning_content"] or "", calls))
            digests.add((row["message_value_sha256"], message))
            meant.add(message)
    assert len(digests) == len({digest for digest, _ in digests}) == len(meant)


@each_checkpoint
@pytest.mark.parametrize("recorded", ["parse", "tokens"])
def test_streamed_pieces_cover_the_text(slug: str, recorded: str):
    """One end per id, never going back, and the last one is the end of the text in characters."""
    streamed = 0
    for row in reference(slug, recorded, "case_id", "output_text", "output_ids", "piece_ends"):
        ends = row["piece_ends"]
        if ends is not None:
            streamed += 1
            assert len(ends) == len(row["output_ids"]), row["case_id"]
            assert ends == sorted(ends), row["case_id"]
            assert (ends[-1] if ends else 0) == len(row["output_text"]), row["case_id"]
    assert streamed > 0


@each_checkpoint
def test_turn_ends_on_a_stop_id_that_is_not_in_it(slug: str):
    """The id that ends a turn is one of the checkpoint's, and the output before it holds none."""
    stops = set(provenance(slug, "parse")["stop_ids"])
    columns = ("case_id", "source", "outcome", "stop_id", "stop_found_by", "output_ids")
    for row in reference(slug, "parse", *columns):
        if row["outcome"] == "result" and row["source"] != "response-template":
            assert row["stop_id"] in stops, row["case_id"]
            assert row["stop_found_by"] in ("turn", "next-message"), row["case_id"]
            assert not stops & set(row["output_ids"]), row["case_id"]


@each_checkpoint
def test_messages_are_those_of_the_corpus(slug: str, cases: list[dict[str, Any]]):
    """A proven output stands for exactly the message of its case, arguments as the same JSON text."""
    messages = {case["case_id"]: case["message"] for case in cases if case["kind"] == "parse"}
    columns = ("case_id", "source", "outcome", "content", "reasoning_content", "tool_calls", "finish_reason")
    for row in reference(slug, "parse", *columns):
        if row["outcome"] == "result" and row["source"] != "response-template":
            message = json.loads(messages[row["case_id"]])
            functions = [call["function"] for call in message.get("tool_calls", [])]
            calls = [{"name": function["name"], "arguments": function["arguments"]} for function in functions]
            assert row["content"] == message.get("content"), row["case_id"]
            assert row["reasoning_content"] == message.get("reasoning_content"), row["case_id"]
            assert row["tool_calls"] == (calls or None), row["case_id"]
            assert row["finish_reason"] == ("tool_calls" if calls else "stop"), row["case_id"]


@each_checkpoint
def test_texts_are_told_from_ids_of_another_vocabulary(slug: str, cases: list[dict[str, Any]]):
    """Ids of a vocabulary are for checkpoints that pin its tokenizer.json, and not applicable to all others."""
    own = read_manifest(ROOT, slug).inputs.get("tokenizer.json")
    requires = {case["case_id"]: case["requires"] for case in cases}
    for row in reference(slug, "tokens", "case_id", "outcome"):
        needed = requires[row["case_id"]]
        assert (row["outcome"] == "not_applicable") == (needed is not None and needed.hex() != own), row["case_id"]


# ── what they depended on ────────────────────────────────────────────────────────────────────────────────────────────


@each_checkpoint
@each_record
def test_provenance_agrees_with_manifest_and_params(slug: str, recorded: str):
    """A table was recorded from the pins, with the library versions and the clock, that stand in Git now."""
    manifest, oracle = read_manifest(ROOT, slug), SCOPE["oracle"]
    record = provenance(slug, recorded)
    assert record["checkpoint"] == slug
    assert (record["model"], record["revision"]) == (manifest.model, manifest.revision)
    assert record["inputs"] == dict(manifest.inputs)
    for library, version in oracle["versions"].items():
        assert record[library] == str(version)
    assert record["clock"] == oracle["clock"]
    assert record["other_clock"] in (None, oracle["other_clock"])
    assert set(record["generate_stop_ids"]) <= set(record["stop_ids"])
    assert record["authority"] == {kind: list(sources) for kind, sources in manifest.authority.items()}
    vendors = [source for source in manifest.authority["render"] if source.startswith("vendor-code:")]
    assert list(record["vendor_code"]) == (vendors if recorded != "tokens" else [])
    for second in record["second_references"].values():
        assert second["vllm_commit"] == "db9527a46873454610df6dbedf79a36d6bf1a7f6"
        assert second["chat_template_sha256"] in {
            template.sha256 for template in read_second_references(ROOT).values() if template.serves(slug)
        }
    of_prompts = ("second_references", "vendor_code")  # texts and ids ask nobody for a prompt
    same = provenance(slug, "render") | ({name: {} for name in of_prompts} if recorded == "tokens" else {})
    assert record == same


@each_checkpoint
def test_materials_agree_with_the_manifest(slug: str):
    """One row per pinned file with its proof, and one per file that is known and was not obtained."""
    manifest = read_manifest(ROOT, slug)
    rows = pq.read_table(ROOT / "fixtures" / slug / "materials.parquet").to_pylist()
    obtained = {row["file"]: (row["sha256"], row["proof"]) for row in rows if row["bytes"] is not None}
    assert obtained == {name: (file.sha256, file.proof) for name, file in manifest.files.items()}
    unreached = {row["file"]: row["sha256"] for row in rows if row["proof"] == "unreached"}
    assert unreached == dict(manifest.unreached)
    assert len(rows) == len(obtained) + len(unreached)
    for row in rows:
        assert (row["checkpoint"], row["model"], row["revision"], row["license"]) == (
            *(slug, manifest.model, manifest.revision, manifest.license),
        )


@pytest.mark.parametrize("folder", [".", "fixtures"])
def test_lock_holds_the_stages_of_the_graph_and_no_other(folder):
    """dvc.lock has one entry per stage of dvc.yaml, each list written out over params.yaml."""
    expected = set()
    for name, stage in yaml.safe_load((ROOT / folder / "dvc.yaml").read_text("utf-8"))["stages"].items():
        match stage.get("foreach"):
            case None:
                expected.add(name)
            case "${checkpoints}":
                expected |= {f"{name}@{slug}" for slug in CHECKPOINTS}
            case "${corpora}":
                expected |= {f"{name}@{corpus}" for corpus in CORPORA}
            case items:
                expected |= {f"{name}@{item}" for item in items}
    locked = yaml.safe_load((ROOT / folder / "dvc.lock").read_text("utf-8"))["stages"]
    assert set(locked) == expected != set()


# ── the folders ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_folder_is_in_scope():
    """No checkpoint or corpus that params.yaml does not list, and nothing half-written, lies about."""
    assert {path.parents[1].name for path in (ROOT / "fixtures").glob("*/*/reference.parquet")} == set(CHECKPOINTS)
    assert {path.name for path in (ROOT / "corpus" / "imported").iterdir()} == set(CORPORA)
    assert [*(ROOT / "fixtures").rglob("*.partial"), *(ROOT / "corpus").rglob("*.partial")] == []


def test_inventory_counts_every_case(cases: list[dict[str, Any]]):
    """The stored report has each case once per checkpoint, in its set, and says of each what the tables say."""
    with (ROOT / "queries" / "reports" / "inventory.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    counted = {tuple(row[key] for key in ("checkpoint", "corpus", "kind", "set")): row for row in rows}
    sets = Counter((case["corpus"], case["kind"], case["set"]) for case in cases)
    assert {key: int(row["cases"]) for key, row in counted.items()} == {
        (slug, *key): number for slug in CHECKPOINTS for key, number in sets.items()
    }
    assert {row["not_recorded"] for row in rows} == {"0"}
    places = {case["case_id"]: (case["corpus"], case["kind"], case["set"]) for case in cases}
    for slug in CHECKPOINTS:
        answers = defaultdict(list)
        authority = {"tokens": ("hf-tokenizer",), **read_manifest(ROOT, slug).authority}
        for recorded in KINDS:
            judged = ("both", "vllm" if "vendor-code" in authority[recorded][0] else "raw", None)
            for row in reference(slug, recorded, "case_id", "source", "normalisation", "outcome"):
                if row["source"] != authority[recorded][0]:
                    continue
                if recorded == "parse" or row["normalisation"] in judged:
                    answers[row["case_id"]].append(row["outcome"])
        results = Counter(places[case_id] for case_id, outcomes in answers.items() if set(outcomes) == {"result"})
        differ = Counter(places[case_id] for case_id, outcomes in answers.items() if len(outcomes) > 1)
        for key in sets:
            assert int(counted[(slug, *key)]["results"]) == results[key]
            assert int(counted[(slug, *key)]["encoders_differ"]) == differ[key]


def test_no_file_of_a_vendor_is_in_git():
    """Oracle inputs are laid out on each machine and never kept by Git, nor are tables."""
    run = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    files = [Path(name) for name in run.stdout.split("\0") if name]
    assert Path("params.yaml") in files
    assert [path for path in files if path.parts[0] == "fixtures" and "inputs" in path.parts] == []
    assert [path for path in files if path.suffix == ".parquet"] == []
