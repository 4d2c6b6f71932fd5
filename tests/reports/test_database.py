"""The views over a checkout's tables: what stands in them, what is missing, what is torn."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from bellwether.errors import ParamsError, TableError
from bellwether.reports.database import STORED, connect
from bellwether.tables import CASES, LEFT_OUT, MATERIALS, ORIGINS, REFERENCE, REPEATS, REQUESTS, WITNESS, TableWriter
from manifests import bare_manifest
from support import ROOT

PARAMS = """
checkpoints: [beta, alpha.1]
corpora: [one, two]
oracle: {versions: {}, clock: "2026-01-15T12:00:00", other_clock: "2027-10-02T23:30:00", template_seconds: 20}
"""
SCOPE = [
    *(f"corpus/imported/{corpus}/cases.parquet" for corpus in ("one", "two")),
    *(f"corpus/imported/{corpus}/requests.parquet" for corpus in ("one", "two")),
    *(f"corpus/imported/{corpus}/origins.parquet" for corpus in ("one", "two")),
    *(f"corpus/imported/{corpus}/repeats.parquet" for corpus in ("one", "two")),
    *(f"corpus/imported/{corpus}/left_out.parquet" for corpus in ("one", "two")),
    *(f"fixtures/{slug}/materials.parquet" for slug in ("beta", "alpha.1")),
    *(f"fixtures/beta/{recorded}/reference.parquet" for recorded in ("render", "parse", "tokens")),
    *(f"fixtures/alpha.1/{recorded}/reference.parquet" for recorded in ("render", "parse", "tokens")),
]
VIEWS = {
    "cases": CASES,
    "requests": REQUESTS,
    "origins": ORIGINS,
    "repeats": REPEATS,
    "left_out": LEFT_OUT,
    "materials": MATERIALS,
    "reference": REFERENCE,
    "witness": WITNESS,
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A checkout of two checkpoints and two corpora, nothing of them recorded. Its path has a quote."""
    root = tmp_path / "it's"
    root.mkdir()
    (root / "params.yaml").write_text(PARAMS, "utf-8")
    bare_manifest(root, "beta", render=("vendor-code:toy", "hf-template"))
    bare_manifest(root, "alpha.1")
    return root


def write(root: Path, path: str, schema: pa.Schema, *rows: dict) -> Path:
    with TableWriter(root / path, schema) as table:
        table.write_rows(rows)
    return root / path


def test_empty_checkout_has_every_view_without_rows(project: Path):
    """Nothing recorded is no error: each view has its columns and no row, and every file is listed as missing."""
    database = connect(project)
    for name, schema in VIEWS.items():
        result = database.connection.execute(f"select * from {name}")
        assert [column[0] for column in result.description] == schema.names
        assert result.fetchall() == []
    assert database.connection.execute("select * from provenance").fetchall() == []
    assert sorted(database.missing) == sorted(SCOPE)


@pytest.mark.parametrize(
    ("asked", "made"),
    [
        ("select * from cases", set()),
        ("from STANDING", {"standing"}),
        ('with a as (select 1) select count(*) from a, main."disputes"', {"compared", "disputes"}),
        ("summarize defects", {"compared", "standing", "verdict", "defects"}),
        ("select case_id || ' -- ' || kind from standing", {"standing"}),
        ("/* -- */ from disputes", {"compared", "disputes"}),
        ("select 1 -- x\rfrom disputes", {"compared", "disputes"}),
        ("select count(*) from query_table('dis' || 'putes')", set(STORED)),
        ("from query('from ver' || 'dict')", set(STORED)),
        ("show tables", set(STORED)),
        ("describe", set(STORED)),
        ("select view_name from duckdb_views()", set(STORED)),
        ("select table_name from information_schema.tables", set(STORED)),
    ],
)
def test_what_is_asked_has_the_stored_queries_it_names_and_those_they_name(asked: str, made: set[str], project: Path):
    """Each takes time to make. No other is there, and none that is needed is missed."""
    shutil.copytree(ROOT / "queries", project / "queries")
    connection = connect(project, asked=asked).connection
    views = {
        name for (name,) in connection.execute("select view_name from duckdb_views() where not internal").fetchall()
    }
    assert views & set(STORED) == made
    connection.execute(asked)


def test_views_join_the_tables_of_the_scope(project: Path):
    """Rows of two corpora, of two checkpoints and of their three kinds of record stand in one view each."""
    for corpus in ("one", "two"):
        write(project, f"corpus/imported/{corpus}/cases.parquet", CASES, {"case_id": f"render/s/{corpus}"})
    for slug in ("beta", "alpha.1"):
        for recorded in ("render", "parse", "tokens"):
            row = {"checkpoint": slug, "case_id": f"{recorded}/s/a"}
            write(project, f"fixtures/{slug}/{recorded}/reference.parquet", REFERENCE, row)
    connection = connect(project).connection
    assert connection.execute("select case_id from cases order by all").fetchall() == [
        ("render/s/one",),
        ("render/s/two",),
    ]
    assert connection.execute("select checkpoint, case_id from reference order by all").fetchall() == [
        ("alpha.1", "parse/s/a"),
        ("alpha.1", "render/s/a"),
        ("alpha.1", "tokens/s/a"),
        ("beta", "parse/s/a"),
        ("beta", "render/s/a"),
        ("beta", "tokens/s/a"),
    ]


def test_only_missing_files_are_listed(project: Path):
    """A table that is there, with rows or without, is not missing; paths are relative to the checkout."""
    write(project, "corpus/imported/two/requests.parquet", REQUESTS)
    write(project, "fixtures/beta/materials.parquet", MATERIALS, {"checkpoint": "beta"})
    database = connect(project)
    there = {"corpus/imported/two/requests.parquet", "fixtures/beta/materials.parquet"}
    assert sorted(database.missing) == sorted(set(SCOPE) - there)


def test_missing_tables_are_an_error_for_who_needs_all(project: Path):
    """`require_all` says how many are missing, names some, and is silent when all are there."""
    with pytest.raises(TableError) as caught:
        connect(project).require_all()
    assert "18 tables of the scope are missing: corpus/imported/one/cases.parquet" in str(caught.value)
    assert "make repro" in caught.value.next_step
    for path in SCOPE:
        write(project, path, VIEWS[Path(path).stem])
    connect(project).require_all()


def test_table_outside_the_scope_is_not_read(project: Path):
    """A checkpoint or corpus params.yaml does not list gives no row, torn or whole."""
    write(project, "fixtures/gamma/render/reference.parquet", REFERENCE, {"checkpoint": "gamma"})
    (project / "fixtures" / "gamma" / "materials.parquet").write_bytes(b"torn")
    (project / "corpus" / "imported" / "three").mkdir(parents=True)
    (project / "corpus" / "imported" / "three" / "cases.parquet").write_bytes(b"torn")
    assert connect(project).connection.execute("select count(*) from reference").fetchone() == (0,)


def test_scope_keeps_the_order_of_params(project: Path):
    """Reports list checkpoints as params.yaml does, recorded or not."""
    rows = connect(project).connection.execute("select * from scope order by place").fetchall()
    assert rows == [("beta", 0), ("alpha.1", 1)]


def test_authority_lists_the_sources_of_each_manifest(project: Path):
    """The first source of a kind has place 0 and decides; texts and ids have one source for every checkpoint."""
    rows = connect(project).connection.execute("select * from authority where checkpoint = 'beta'").fetchall()
    assert rows == [
        ("beta", "render", "vendor-code:toy", 0),
        ("beta", "render", "hf-template", 1),
        ("beta", "parse", "roundtrip", 0),
        ("beta", "tokenize", "hf-tokenizer", 0),
        ("beta", "detokenize", "hf-tokenizer", 0),
    ]


@pytest.mark.parametrize(
    ("kind", "source", "normalisation", "decides"),
    [
        ("render", "hf-template", "raw", True),
        ("render", "hf-template", "both", True),
        ("render", "hf-template", None, True),
        ("render", "hf-template", "vllm", False),
        ("render", "vllm-example:hermes", "raw", False),
        ("render", "vendor-code:toy", "vllm", True),
        ("render", "vendor-code:other", "vllm", False),
        ("parse", "roundtrip", "vllm", True),
        ("parse", "roundtrip", "raw", False),
        ("parse", "roundtrip:vllm-example:hermes", "vllm", False),
        ("parse", "response-template", "vllm", False),
        ("tokenize", "hf-tokenizer", None, True),
    ],
)
def test_deciding_rows(project: Path, kind: str, source: str, normalisation: str | None, decides: bool):
    """Of a case, `deciding` has the first source's answer: prompts as sent, outputs of the prompt vLLM makes.
    A vendor's code has one way to be asked."""
    slug = "beta" if source == "vendor-code:toy" else "alpha.1"
    row = {"checkpoint": slug, "kind": kind, "source": source, "normalisation": normalisation}
    write(project, "fixtures/alpha.1/render/reference.parquet", REFERENCE, row)
    result = connect(project).connection.execute("select * from deciding")
    assert [column[0] for column in result.description] == REFERENCE.names
    assert len(result.fetchall()) == decides


def test_missing_manifest_is_an_error(project: Path):
    """Without it nobody knows whose answer decides."""
    (project / "fixtures" / "beta" / "manifest.toml").unlink()
    with pytest.raises(ParamsError, match=r"fixtures/beta/manifest\.toml does not exist"):
        connect(project)


def test_empty_scope_is_empty(project: Path):
    """No checkpoint and no corpus: no row, nothing missing."""
    text = PARAMS.replace("[beta, alpha.1]", "[]").replace("[one, two]", "[]")
    (project / "params.yaml").write_text(text, "utf-8")
    database = connect(project)
    assert database.missing == ()
    assert database.connection.execute("select * from scope").fetchall() == []
    assert database.connection.execute("select * from cases").fetchall() == []


def test_provenance_is_asked_by_path_inside_the_json(project: Path):
    """What a table depended on is one row per recorded table, beside its checkpoint and kind of record."""
    path = write(project, "fixtures/beta/parse/reference.parquet", REFERENCE)
    path.with_name("provenance.json").write_text('{"transformers": "5.24.0", "stop_ids": [7, 9]}', "utf-8")
    result = connect(project).connection.execute(
        "select checkpoint, recorded, provenance->>'transformers', provenance->>'$.stop_ids[1]' from provenance"
    )
    assert result.fetchall() == [("beta", "parse", "5.24.0", "9")]


@pytest.mark.parametrize("path", ["corpus/imported/two/left_out.parquet", "fixtures/alpha.1/tokens/reference.parquet"])
def test_truncated_table_is_named(project: Path, path: str):
    """One torn file of the scope is an error before any query runs."""
    written = write(project, path, VIEWS[Path(path).stem])
    written.write_bytes(written.read_bytes()[:-5])
    with pytest.raises(TableError, match=f"{path} is no whole Parquet file"):
        connect(project)


def test_table_of_another_version_is_named(project: Path):
    """Tables of two schema versions never stand in one view."""
    path = "fixtures/beta/materials.parquet"
    write(project, path, MATERIALS.with_metadata({"schema_version": "0"}))
    with pytest.raises(TableError, match=f"{path}: expected schema version 3, found 0"):
        connect(project)


def test_torn_provenance_is_named(project: Path):
    """Half a JSON file is a torn table's companion, and as bad."""
    path = write(project, "fixtures/beta/render/reference.parquet", REFERENCE).with_name("provenance.json")
    path.write_text('{"transformers": ', "utf-8")
    with pytest.raises(TableError, match=r"fixtures/beta/render/provenance\.json is no whole JSON file"):
        connect(project)


def test_missing_params_are_told(tmp_path: Path):
    """A folder without params.yaml is no checkout."""
    with pytest.raises(ParamsError, match=r"params\.yaml does not exist"):
        connect(tmp_path)


# ── engines ──────────────────────────────────────────────────────────────────────────────────────────────────────────


ASKED = PARAMS.replace("oracle:", "engines: [vllm-2.0, sglang-1.0, vllm-10.0]\noracle:")


def test_witnesses_of_the_scope_stand_in_one_view(project: Path):
    """Of every release listed, for every checkpoint in scope; a release that is not listed gives no row."""
    (project / "params.yaml").write_text(ASKED, "utf-8")
    for release in ("vllm-2.0", "vllm-10.0", "vllm-3.0"):
        for slug in ("beta", "gamma"):
            row = {"checkpoint": slug, "case_id": "render/s/a", "engine_version": release}
            write(project, f"fixtures/witnesses/{release}/{slug}.parquet", WITNESS, row)
    database = connect(project)
    rows = database.connection.execute("select checkpoint, engine_version from witness order by all").fetchall()
    assert rows == [("beta", "vllm-10.0"), ("beta", "vllm-2.0")]
    missing = [path for path in database.missing if "witnesses" in path]
    assert missing == [
        "fixtures/witnesses/vllm-2.0/alpha.1.parquet",
        "fixtures/witnesses/sglang-1.0/beta.parquet",
        "fixtures/witnesses/sglang-1.0/alpha.1.parquet",
        "fixtures/witnesses/vllm-10.0/alpha.1.parquet",
    ]


def test_missing_witnesses_are_no_matter_to_who_counts_references(project: Path):
    """A checkout without the heavy engines still has its references."""
    (project / "params.yaml").write_text(ASKED, "utf-8")
    for path in SCOPE:
        write(project, path, VIEWS[Path(path).stem])
    database = connect(project)
    database.require_all(witnesses=False)
    with pytest.raises(TableError, match=r"6 tables of the scope are missing: fixtures/witnesses/vllm-2\.0/"):
        database.require_all()


def test_engines_are_the_releases_listed(project: Path):
    """In the order they came out, the newest of each engine pinned."""
    (project / "params.yaml").write_text(ASKED, "utf-8")
    query = "select name, engine_version, release_order, pinned from engines"
    assert connect(project).connection.execute(query).fetchall() == [
        ("sglang-1.0", "1.0", 1, True),
        ("vllm-2.0", "2.0", 1, False),
        ("vllm-10.0", "10.0", 2, True),
    ]


def test_provenance_of_a_witness_stands_beside_that_of_references(project: Path):
    """One row per table, by the name of the release."""
    (project / "params.yaml").write_text(ASKED, "utf-8")
    path = write(project, "fixtures/witnesses/vllm-2.0/beta.parquet", WITNESS)
    path.with_suffix(".json").write_text('{"torch": "2.13.0"}', "utf-8")
    query = "select checkpoint, recorded, provenance ->> 'torch' from provenance"
    assert connect(project).connection.execute(query).fetchall() == [("beta", "vllm-2.0", "2.13.0")]


def test_a_stored_query_others_use_is_named_when_it_does_not_run(project: Path):
    """Whoever edits it learns which file it is; without the file there is no such view."""
    (project / "queries").mkdir()
    (project / "queries" / "standing.sql").write_text("selekt", "utf-8")
    with pytest.raises(ParamsError, match=r"queries/standing\.sql does not run"):
        connect(project)
