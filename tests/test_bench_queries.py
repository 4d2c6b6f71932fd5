"""The made-up answers that queries are measured on: as many as asked for, and of the states the queries tell apart."""

from __future__ import annotations

from pathlib import Path

from bellwether import bench_queries
from bellwether.reports.database import connect


def test_made_up_answers_are_settled_but_for_every_hundredth(root: Path, tmp_path: Path):
    """800 answers, 20 prompts and 20 messages for each of 20 checkpoints: one of each is disputed."""
    bench_queries.build(root, tmp_path / "made", 800)
    database = connect(tmp_path / "made")
    database.require_all()
    query = "select kind, state, witnesses, count(*) from standing group by all order by all"
    assert database.connection.execute(query).fetchall() == [
        ("parse", "disputed", "vllm", 20),
        ("parse", "settled", "vllm", 380),
        ("render", "disputed", "vllm-rust", 20),
        ("render", "settled", "vllm-rust", 380),
    ]
    query = "select engine, kind, sum(cases) from disputes group by all order by all"
    assert database.connection.execute(query).fetchall() == [
        ("vllm", "parse", 20),
        ("vllm-rust", "render", 20),
    ]


def test_queries_are_measured_in_a_process_of_their_own(root: Path, tmp_path: Path):
    """Seconds, rows and the peak of one query."""
    bench_queries.build(root, tmp_path / "made", 400)
    measured = bench_queries._child(tmp_path / "made", "standing")
    assert measured["rows"] == 400
    assert measured["seconds"] > 0 and measured["peak"] > 10
