"""Every stored query on rows made by hand, and the command that stores their results.

The checkout made here has three checkpoints: `beta` with a row of every sort, `alpha` with one answer, and `bare`,
which is in scope and has nothing recorded. params.yaml lists them in an order that is not the alphabet's.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from bellwether.cli import cli
from bellwether.report import REPORTS
from bellwether.reports.database import connect
from bellwether.tables import CASES, LEFT_OUT, MATERIALS, PER_CORPUS, REFERENCE, REPEATS, TableWriter
from manifests import bare_manifest

QUERIES = Path(__file__).resolve().parents[2] / "queries"
PARAMS = """
checkpoints: [beta, alpha, bare]
corpora: [toy, more]
oracle: {versions: {}, clock: "2026-01-15T12:00:00", other_clock: "2027-10-02T23:30:00", template_seconds: 20}
"""
SOURCES = {"render": "hf-template", "parse": "roundtrip", "tokenize": "hf-tokenizer", "detokenize": "hf-tokenizer"}
NORMALISATIONS = {"render": "raw", "parse": "vllm", "tokenize": None, "detokenize": None}


def case(case_id: str, corpus: str = "toy") -> dict[str, Any]:
    kind, set_name, name = case_id.split("/")
    return {"case_id": case_id, "corpus": corpus, "kind": kind, "set": set_name, "name": name}


def answer(case_id: str, encoder: str | None = "both", checkpoint: str = "beta", **columns: str) -> dict[str, Any]:
    kind = case_id.split("/")[0]
    row = {"checkpoint": checkpoint, "case_id": case_id, "kind": kind, "outcome": "result", "encoder": encoder}
    return row | {"source": SOURCES[kind], "normalisation": NORMALISATIONS[kind]} | columns


def refused(code: str, reason: str | None = None, reason_class: str = "unproven", outcome: str = "rejected") -> dict:
    return {"outcome": outcome, "reason_class": reason_class, "reason_code": code, "reason": reason}


def material(file: str, proof: str, checkpoint: str = "beta", size: int | None = 10, digest: str = "0") -> dict:
    row = {"checkpoint": checkpoint, "model": "o/m", "revision": "0" * 40, "license": "MIT", "file": file}
    return row | {"sha256": digest * 64, "bytes": size, "proof": proof}


TOY = [
    *(case(f"render/one/{name}") for name in ("a", "b", "c")),
    case("render/two/d"),
    *(case(f"parse/one/{name}") for name in ("p1", "p2", "p3", "p4", "p5", "p6")),
    case("tokenize/one/t"),
    case("detokenize/one/u"),
    case("detokenize/one/v"),
]
MORE = [case("render/one/m", "more")]

RENDER = [
    answer("render/one/a"),
    answer("render/one/b", "class"),
    answer("render/one/b", "tokenizer.json"),
    answer("render/one/c", None, **refused("template-error", "KeyError: 'x'", "error")),
]
PARSE = [
    answer("parse/one/p1"),
    answer("parse/one/p2", **refused("malformed")),
    # one encoder proves the case, the other does not: no claim can be made for both
    answer("parse/one/p3", "class"),
    answer("parse/one/p3", "tokenizer.json", **refused("ids-do-not-decode", "in the file")),
    answer("parse/one/p4", "tokenizer.json", **refused("ids-do-not-decode", "second")),
    answer("parse/one/p4", "class", **refused("ids-do-not-decode", "first")),
    answer("parse/one/p5", None, **refused("template-error", "TypeError: y", "error")),
]
TOKENS = [
    answer("tokenize/one/t", "class"),
    answer("tokenize/one/t", "tokenizer.json"),
    answer("detokenize/one/u"),
    answer("detokenize/one/v", None, **refused("other-vocabulary", outcome="not_applicable")),
]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The checkout, with the real queries."""
    root = tmp_path / "project"
    root.mkdir()
    (root / "params.yaml").write_text(PARAMS, "utf-8")
    for slug in ("beta", "alpha", "bare"):
        bare_manifest(root, slug, render=("hf-template", "vendor-code:toy"))
    (root / "queries").mkdir()
    for path in QUERIES.glob("*.sql"):
        shutil.copy(path, root / "queries" / path.name)
    corpus = "corpus/imported"
    for name, schema in PER_CORPUS.items():
        write(root, f"{corpus}/toy/{name}.parquet", schema, TOY if name == "cases" else [])
        write(root, f"{corpus}/more/{name}.parquet", schema, MORE if name == "cases" else [])
    write(root, "fixtures/beta/render/reference.parquet", REFERENCE, RENDER)
    write(root, "fixtures/beta/parse/reference.parquet", REFERENCE, PARSE)
    write(root, "fixtures/beta/tokens/reference.parquet", REFERENCE, TOKENS)
    write(root, "fixtures/alpha/render/reference.parquet", REFERENCE, [answer("render/two/d", checkpoint="alpha")])
    return root


def write(root: Path, path: str, schema: pa.Schema, rows: list[dict]) -> None:
    with TableWriter(root / path, schema) as table:
        table.write_rows(rows)


def run(root: Path, name: str) -> list[dict[str, Any]]:
    """Return the rows of one stored query over the checkout."""
    query = (root / "queries" / f"{name}.sql").read_text("utf-8")
    result = connect(root, asked=query).connection.execute(query)
    names = [column[0] for column in result.description]
    return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def values(root: Path, name: str) -> list[tuple]:
    return [tuple(row.values()) for row in run(root, name)]


# ── inventory ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_inventory_says_of_every_case_what_is_known(project: Path):
    """Each case counts once per checkpoint, however many rows it has; what is not recorded has a column of its own."""
    columns = "cases results template_errors unproven not_applicable not_recorded encoders_differ".split()
    rows = run(project, "inventory")
    assert list(rows[0]) == ["checkpoint", "corpus", "kind", "set", *columns]
    beta = {
        ("beta", "more", "render", "one"): (1, 0, 0, 0, 0, 1, 0),
        ("beta", "toy", "detokenize", "one"): (2, 1, 0, 0, 1, 0, 0),
        ("beta", "toy", "parse", "one"): (6, 1, 1, 3, 0, 1, 2),
        ("beta", "toy", "render", "one"): (3, 2, 1, 0, 0, 0, 1),
        ("beta", "toy", "render", "two"): (1, 0, 0, 0, 0, 1, 0),
        ("beta", "toy", "tokenize", "one"): (1, 1, 0, 0, 0, 0, 1),
    }
    assert {tuple(row.values())[:4]: tuple(row.values())[4:] for row in rows if row["checkpoint"] == "beta"} == beta


def test_inventory_lists_a_checkpoint_with_nothing_recorded(project: Path):
    """`bare` has every set, and every case of it is not recorded; `alpha` has one answer."""
    nothing = [
        ("more", "render", "one", 1, 0, 0, 0, 0, 1, 0),
        ("toy", "detokenize", "one", 2, 0, 0, 0, 0, 2, 0),
        ("toy", "parse", "one", 6, 0, 0, 0, 0, 6, 0),
        ("toy", "render", "one", 3, 0, 0, 0, 0, 3, 0),
        ("toy", "render", "two", 1, 0, 0, 0, 0, 1, 0),
        ("toy", "tokenize", "one", 1, 0, 0, 0, 0, 1, 0),
    ]
    rows = values(project, "inventory")
    assert [row[1:] for row in rows if row[0] == "bare"] == nothing
    answered = ("toy", "render", "two", 1, 1, 0, 0, 0, 0, 0)
    assert [row[1:] for row in rows if row[0] == "alpha"] == [*nothing[:4], answered, nothing[5]]
    assert [row[0] for row in rows] == ["beta"] * 6 + ["alpha"] * 6 + ["bare"] * 6


def test_other_sources_never_change_a_count(project: Path):
    """Rows of a second reference, of a source that does not decide, and of the other normalisation add to nothing."""
    before = run(project, "inventory"), run(project, "count")
    others = [
        answer(name, "both", **columns)
        for name in ("render/one/a", "render/one/c", "render/two/d")
        for columns in (
            {"source": "vllm-example:x"},
            {"source": "vendor-code:toy", **refused("template-error", None, "error")},
            {"normalisation": "vllm"},
        )
    ]
    write(project, "fixtures/beta/render/reference.parquet", REFERENCE, [*RENDER, *others])
    others = [answer(f"parse/one/{name}", source="roundtrip:vllm-example:x") for name in ("p1", "p2", "p6")]
    others += [answer("parse/one/p6", source="response-template")]
    write(project, "fixtures/beta/parse/reference.parquet", REFERENCE, [*PARSE, *others])
    assert (run(project, "inventory"), run(project, "count")) == before


def test_answer_of_both_normalisations_counts_for_either(project: Path):
    """A row that says `both` is the raw prompt too."""
    write(
        project,
        "fixtures/alpha/render/reference.parquet",
        REFERENCE,
        [answer("render/two/d", checkpoint="alpha", normalisation="both")],
    )
    assert [row["render"] for row in run(project, "count")] == [2, 1, 0]


def test_inventory_of_no_case_is_empty(project: Path):
    """Without cases there is nothing to ask."""
    write(project, "corpus/imported/toy/cases.parquet", CASES, [])
    write(project, "corpus/imported/more/cases.parquet", CASES, [])
    assert run(project, "inventory") == []


ROWS = {
    "result": ("result", None),
    "error": ("rejected", "error"),
    "unproven": ("rejected", "unproven"),
    "not applicable": ("not_applicable", "unproven"),
}
one_case = st.one_of(
    st.just(()),
    st.sampled_from([(name,) for name in ROWS]),
    st.tuples(st.sampled_from(["result", "error", "unproven"]), st.sampled_from(["result", "error", "unproven"])),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(one_case, min_size=1, max_size=6))
def test_inventory_counts_every_case_exactly_once(answers: list[tuple[str, ...]]):
    """Whatever mixture of rows the cases have: results, errors, unproven, not applicable and not recorded add up."""
    connection = duckdb.connect()
    connection.execute("create table scope as select 'm' as checkpoint, 0 as place")
    connection.execute("create table cases (corpus text, kind text, set text, case_id text)")
    connection.execute("create table deciding (checkpoint text, case_id text, outcome text, reason_class text)")
    for number, names in enumerate(answers):
        connection.execute("insert into cases values ('c', 'render', 's', ?)", [str(number)])
        for name in names:
            connection.execute("insert into deciding values ('m', ?, ?, ?)", [str(number), *ROWS[name]])
    [row] = connection.execute((QUERIES / "inventory.sql").read_text("utf-8")).fetchall()
    cases, *parts, differ = row[4:]
    assert cases == len(answers) == sum(parts)
    assert parts[0] == sum(1 for names in answers if set(names) == {"result"})
    assert parts[4] == answers.count(())
    assert differ == sum(1 for names in answers if len(names) == 2)


# ── rejections ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_rejections_are_grouped_by_code_with_an_example(project: Path):
    """Cases count once per code; the example is the first case, with the wording its class encoder gave."""
    assert list(run(project, "rejections")[0]) == [
        *("checkpoint", "kind", "source", "normalisation", "decides", "outcome", "reason_class", "reason_code"),
        *("cases", "example", "example_reason"),
    ]
    detokenize = ("detokenize", "hf-tokenizer", None, True, "not_applicable", "unproven")
    unproven, error = (("parse", "roundtrip", "vllm", True, "rejected", name) for name in ("unproven", "error"))
    raw = ("render", "hf-template", "raw", True, "rejected", "error")
    assert values(project, "rejections") == [
        ("beta", *detokenize, "other-vocabulary", 1, "detokenize/one/v", ""),
        ("beta", *unproven, "ids-do-not-decode", 2, "parse/one/p3", "in the file"),
        ("beta", *unproven, "malformed", 1, "parse/one/p2", ""),
        ("beta", *error, "template-error", 1, "parse/one/p5", "TypeError: y"),
        ("beta", *raw, "template-error", 1, "render/one/c", "KeyError: 'x'"),
    ]


def test_rejections_of_other_sources_stand_apart(project: Path):
    """A source that does not decide, and a prompt made as vLLM hands messages over, have rows of their own."""
    rows = [
        answer("render/two/d", None, "alpha", normalisation="both", **refused("template-error", "1", "error")),
        answer("render/one/a", None, "alpha", normalisation="vllm", **refused("template-error", "2", "error")),
        answer("render/one/b", None, "alpha", source="vendor-code:toy", **refused("template-error", "3", "error")),
        answer("render/one/c", None, "alpha", source="vllm-example:x", **refused("template-error", "4", "error")),
    ]
    write(project, "fixtures/alpha/render/reference.parquet", REFERENCE, rows)
    found = [row for row in run(project, "rejections") if row["checkpoint"] == "alpha"]
    assert [(row["source"], row["normalisation"], row["decides"], row["example_reason"]) for row in found] == [
        ("hf-template", "both", True, "1"),
        ("hf-template", "vllm", False, "2"),
        ("vendor-code:toy", "raw", False, "3"),
        ("vllm-example:x", "raw", False, "4"),
    ]


def test_wording_belongs_to_the_example(project: Path):
    """An example without a reason has none; another case's reason never stands beside it."""
    rows = [
        answer("render/two/d", None, "alpha", **refused("template-error", "of d", "error")),
        answer("render/one/a", None, "alpha", **refused("template-error", None, "error")),
    ]
    write(project, "fixtures/alpha/render/reference.parquet", REFERENCE, rows)
    [row] = [row for row in run(project, "rejections") if row["checkpoint"] == "alpha"]
    assert (row["cases"], row["example"], row["example_reason"]) == (2, "render/one/a", "")


def test_wording_does_not_depend_on_the_order_of_rows(project: Path):
    """Of a case whose encoders give two reasons, `class` is quoted, wherever its row stands."""
    rows = [
        answer("parse/one/p4", "tokenizer.json", "alpha", **refused("ids-do-not-decode", "a, second")),
        answer("parse/one/p4", "class", "alpha", **refused("ids-do-not-decode", "b, first")),
    ]
    for order in (rows, rows[::-1]):
        write(project, "fixtures/alpha/parse/reference.parquet", REFERENCE, order)
        [row] = [row for row in run(project, "rejections") if row["checkpoint"] == "alpha"]
        assert (row["cases"], row["example_reason"]) == (1, "b, first")


# ── count ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_count_has_one_row_per_checkpoint_in_scope(project: Path):
    """References count by case; refused render cases are the template's errors, refused parse cases are all rejected;
    a case that is for another vocabulary is none of either. Nothing recorded is zero, nothing obtained is `none`."""
    rows = [
        material("tokenizer.json", "derived"),
        material("tokenizer.json", "unreached", size=None, digest="1"),
        material("tokenizer_config.json", "identical"),
        material("chat_template.jinja", "unproved"),
    ]
    write(project, "fixtures/beta/materials.parquet", MATERIALS, rows)
    rows = [
        material("tokenizer_config.json", "identical", "alpha"),
        material("tokenizer.json", "unreached", "alpha", size=None),
        material("chat_template.jinja", "unreached", "alpha", size=None),
    ]
    write(project, "fixtures/alpha/materials.parquet", MATERIALS, rows)
    assert list(run(project, "count")[0]) == [
        *("checkpoint", "render", "render refused", "parse", "parse refused", "tokens"),
        *("tokenizer.json", "template", "license"),
    ]
    assert values(project, "count") == [
        ("beta", 2, 1, 1, 4, 2, "derived", "unproved", "MIT"),
        ("alpha", 1, 0, 0, 0, 0, "none", "identical", "MIT"),
        ("bare", 0, 0, 0, 0, 0, "none", "none", ""),
    ]


def test_count_agrees_with_the_inventory(project: Path):
    """Two queries over the same rows never tell two stories."""
    inventory = run(project, "inventory")
    for row in run(project, "count"):
        own = [entry for entry in inventory if entry["checkpoint"] == row["checkpoint"]]
        assert row["render"] == sum(entry["results"] for entry in own if entry["kind"] == "render")
        assert row["parse"] == sum(entry["results"] for entry in own if entry["kind"] == "parse")
        assert row["tokens"] == sum(entry["results"] for entry in own if entry["kind"].endswith("tokenize"))


# ── sources ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def of(case_id: str, source: str | None = None, encoder: str | None = "both", **columns: Any) -> dict[str, Any]:
    row = answer(case_id, encoder, "alpha", **columns)
    return row | ({"source": source} if source else {})


def compared(root: Path, recorded: str, rows: list[dict]) -> list[tuple]:
    write(root, f"fixtures/alpha/{recorded}/reference.parquet", REFERENCE, rows)
    return [tuple(row.values())[1:] for row in run(root, "sources") if row["checkpoint"] == "alpha"]


def test_prompts_of_another_source_are_compared_case_by_case(project: Path):
    """Equal ids, other ids, a refusal on one side; two refusals are equal whatever they say."""
    one, two = b"1" * 32, b"2" * 32
    refusal = refused("template-error", "a", "error")
    rows = [
        of("render/one/a", prompt_sha256=one),
        of("render/one/a", "vendor-code:toy", None, prompt_sha256=one, normalisation="vllm"),
        of("render/one/a", "vllm-example:x", prompt_sha256=two),
        of("render/one/b", encoder=None, **refusal),
        of("render/one/b", "vendor-code:toy", None, normalisation="vllm", **refused("vendor-error", "b", "error")),
        of("render/one/b", "vllm-example:x", prompt_sha256=two),
    ]
    assert compared(project, "render", rows) == [
        ("render", "vendor-code:toy", "same", 2, "render/one/a", None),
        ("render", "vllm-example:x", "prompt-ids", 1, "render/one/a", "vllm-example:x:prompt-ids:alpha"),
        ("render", "vllm-example:x", "rejected", 1, "render/one/b", "vllm-example:x:rejected:alpha"),
    ]


def test_the_other_normalisation_is_no_other_source(project: Path):
    """A prompt made as vLLM hands messages over is compared with nothing here."""
    rows = [
        of("render/one/a", prompt_sha256=b"1" * 32),
        of("render/one/a", prompt_sha256=b"2" * 32, normalisation="vllm"),
        of("render/one/a", "vllm-example:x", prompt_sha256=b"1" * 32),
        of("render/one/a", "vllm-example:x", prompt_sha256=b"2" * 32, normalisation="vllm"),
    ]
    assert compared(project, "render", rows) == [("render", "vllm-example:x", "same", 1, "render/one/a", None)]


def test_outputs_and_messages_of_another_source(project: Path):
    """Other text; a case that is not for one of them; another message of the same output. Spaces in arguments and
    empty against missing text are no difference."""
    call = [{"name": "f", "arguments": '{"a": 1}'}]
    second, read = "roundtrip:vllm-example:x", "response-template"
    rows = [
        of("parse/one/p1", output_text="o", content="", tool_calls=call),
        of("parse/one/p1", second, output_text="p", content="", tool_calls=call),
        of("parse/one/p1", read, output_text="o", tool_calls=[{"name": "f", "arguments": '{"a":1}'}]),
        of("parse/one/p2", output_text="o", content="c"),
        of("parse/one/p2", second, None, **refused("template-renders-no-calls", None, None, "not_applicable")),
        of("parse/one/p2", read, output_text="o", content="d"),
        of("parse/one/p3", output_text="o", content="c"),
        of("parse/one/p3", read, output_text="o", content="c", reasoning_content="r"),
        of("parse/one/p4", output_text="o", tool_calls=call),
        of("parse/one/p4", read, output_text="o", tool_calls=[{"name": "g", "arguments": '{"a":1}'}]),
    ]
    assert compared(project, "parse", rows) == [
        ("parse", "response-template", "message", 3, "parse/one/p2", None),
        ("parse", "response-template", "same", 1, "parse/one/p1", None),
        ("parse", second, "not-applicable", 1, "parse/one/p2", "vllm-example:x:not-applicable:alpha"),
        ("parse", second, "output-text", 1, "parse/one/p1", "vllm-example:x:output-text:alpha"),
    ]


def test_of_two_encoders_tokenizer_json_is_compared(project: Path):
    """Whatever the order of rows; it is the file other stacks load."""
    one, two = b"1" * 32, b"2" * 32
    rows = [
        of("render/one/a", encoder="class", prompt_sha256=one),
        of("render/one/a", encoder="tokenizer.json", prompt_sha256=two),
        of("render/one/a", "vendor-code:toy", None, prompt_sha256=two, normalisation="vllm"),
    ]
    for order in (rows, rows[::-1]):
        assert compared(project, "render", order) == [("render", "vendor-code:toy", "same", 1, "render/one/a", None)]


# ── materials ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_materials_list_files_obtained_and_not(project: Path):
    """A file whose own bytes were not reached stands beside the one used in its place; checkpoints in scope order."""
    own = material("tokenizer.json", "unreached", size=None, digest="1")
    rows = [own, material("tokenizer.json", "derived") | {"note": "from parts"}, material("config.json", "identical")]
    write(project, "fixtures/beta/materials.parquet", MATERIALS, rows)
    write(project, "fixtures/alpha/materials.parquet", MATERIALS, [material("config.json", "unproved", "alpha")])
    assert list(run(project, "materials")[0]) == ["checkpoint", "file", "proof", "bytes", "sha256", "license", "note"]
    assert values(project, "materials") == [
        ("beta", "config.json", "identical", 10, "0" * 64, "MIT", None),
        ("beta", "tokenizer.json", "derived", 10, "0" * 64, "MIT", "from parts"),
        ("beta", "tokenizer.json", "unreached", None, "1" * 64, "MIT", None),
        ("alpha", "config.json", "unproved", 10, "0" * 64, "MIT", None),
    ]


# ── repeats ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_repeats_and_rows_left_out_stand_together(project: Path):
    """Repeats are counted per set, rows left out per set and reason; an example is one and the same case or row."""

    def repeat(name: str, repeats: str, kind: str = "render") -> dict[str, str]:
        return {"corpus": "toy", "kind": kind, "set": "one", "name": name, "repeats": repeats}

    def left_out(row: str, reason: str) -> dict[str, str]:
        return {"corpus": "more", "kind": "parse", "set": "one", "row": row, "reason": reason}

    dropped = [repeat("y", "render/one/a"), repeat("x", "render/two/d"), repeat("z", "parse/one/p1", "parse")]
    write(project, "corpus/imported/toy/repeats.parquet", REPEATS, dropped)
    unmade = [left_out("r2", "no call"), left_out("r1", "no call"), left_out("r3", "no answer")]
    write(project, "corpus/imported/more/left_out.parquet", LEFT_OUT, unmade)
    assert list(run(project, "repeats")[0]) == [
        *("corpus", "kind", "set", "repeats", "left_out", "example", "example_reason")
    ]
    assert values(project, "repeats") == [
        ("more", "parse", "one", 0, 1, "r3", "no answer"),
        ("more", "parse", "one", 0, 2, "r1", "no call"),
        ("toy", "parse", "one", 1, 0, "z", "parse/one/p1"),
        ("toy", "render", "one", 2, 0, "x", "render/two/d"),
    ]


# ── stored results ───────────────────────────────────────────────────────────────────────────────────────────────────


def complete(root: Path) -> None:
    """Record, without rows, what is still missing."""
    for path in connect(root).missing:
        write(root, path, MATERIALS if path.endswith("materials.parquet") else REFERENCE, [])


def report(root: Path) -> Result:
    return CliRunner().invoke(cli, ["report", "--root", str(root)])


def test_report_stores_the_result_of_each_query(project: Path):
    """A CSV file with LF per query, and a line for each; the same tables give the same bytes."""
    complete(project)
    ran = report(project)
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert ran.stdout.splitlines() == [
        "queries/reports/inventory.csv: 18 rows",
        "queries/reports/rejections.csv: 5 rows",
        "queries/reports/sources.csv: 0 rows",
        "queries/reports/materials.csv: 0 rows",
        "queries/reports/repeats.csv: 0 rows",
        "queries/reports/checkpoints.csv: 3 rows",
        # neither engines nor a list of registries here
        *(f"queries/reports/{name}.csv: 0 rows" for name in REPORTS[6:]),
    ]
    folder = project / "queries" / "reports"
    first = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert first["repeats.csv"] == b"corpus,kind,set,repeats,left_out,example,example_reason\n"
    lines = first["rejections.csv"].decode().split("\n")
    assert lines[2] == "beta,parse,roundtrip,vllm,True,rejected,unproven,ids-do-not-decode,2,parse/one/p3,in the file"
    assert len(lines) == 7  # header, five rows, and nothing after the last line end
    assert report(project).exit_code == 0
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == first


def test_report_over_a_part_is_no_verdict(project: Path):
    """With tables missing nothing is written: a report over a part would look complete."""
    ran = report(project)
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert "8 tables of the scope are missing: fixtures/beta/materials.parquet" in ran.stderr
    assert not (project / "queries" / "reports").exists()


def test_report_whose_query_fails_replaces_nothing(project: Path):
    """Stored results are those of one run: a query that does not run leaves the earlier files, all of them."""
    complete(project)
    report(project)
    folder = project / "queries" / "reports"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    write(project, "corpus/imported/more/cases.parquet", CASES, [])
    (project / "queries" / "repeats.sql").write_text("selekt", "utf-8")
    assert report(project).exit_code == 2
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
