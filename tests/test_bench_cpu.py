"""The comparison of processor times: what it says of runs, and that both ways answer the same questions alike."""

from __future__ import annotations

import json

import pytest

from bellwether import bench_cpu
from bellwether.bench_cpu import compare
from support import ROOT, snapshot

SLUG = "smollm2-135m-instruct"


@pytest.fixture
def runs(monkeypatch) -> dict[str, list[dict]]:
    """`runs[way]`: what the processes of that way print, one after the other, instead of running them."""
    results: dict[str, list[dict]] = {"ask": [None], "plain": [], "ours": []}
    monkeypatch.setattr(bench_cpu, "_child", lambda way, *arguments: results[way].pop(0))
    monkeypatch.setattr(bench_cpu, "inputs_folder", lambda root, slug: snapshot(slug))
    return results


def run(ms: float, digest: str = "same") -> dict:
    return {corpus: {"ms": ms, "digest": digest} for corpus in bench_cpu.WANTED}


def test_ratio_is_that_of_the_middle_pair(runs):
    """Runs of one pair see the same machine; a pair that was disturbed moves neither ratio nor times."""
    runs["plain"] = [run(20), run(90), run(22)]
    runs["ours"] = [run(2), run(1), run(2)]
    traces, same, _, _ = compare(ROOT, SLUG)
    assert traces == [f"{SLUG}, traces, processor ms a case", "2.00", "22.00", "11.0", "≥ 7"]
    assert same[3] == "equal"


def test_other_ids_in_any_run_are_told(runs):
    """A faster way to other ids is none."""
    runs["plain"] = [run(20), run(20), run(20)]
    runs["ours"] = [run(2), run(2), run(2, "other")]
    assert [row[3] for row in compare(ROOT, SLUG) if "ids" in row[0]] == ["DIFFERENT", "DIFFERENT"]


def test_slow_template_has_a_floor_of_its_own(runs):
    """On agent traces only."""
    runs["plain"] = runs["ours"] = [run(1)] * 6
    wanted = [row[4] for row in compare(ROOT, "gemma-4-e4b-it") if "ms" in row[0]]
    assert wanted == ["≥ 3", "≥ 1.8"]


def test_digest_counts_equal_answers_of_a_case_once(tmp_path):
    """The plain loop asks in two forms; the recorder has one row where both give one answer."""
    asked = tmp_path / "asked.json"
    asked.write_text(json.dumps({"traces": [{}, {}]}))

    def digest(*cases: list) -> str:
        return bench_cpu._timed(asked, lambda texts: cases)["traces"]["digest"]

    assert digest([[1], [1]], [None]) == digest([[1]], [None, None])
    assert len({digest([[1]], [[2]]), digest([[1], [2]], []), digest([[2]], [[1]]), digest([[1]], [None])}) == 4


def test_both_ways_give_equal_ids(tmp_path, monkeypatch):
    """On real material: a few turns of a trace and a BFCL-like request, refused ones among them."""
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    request = json.dumps({"messages": [{"role": "user", "content": "Hi <|im_end|>"}], "tools": [tool]})
    refused = json.dumps({"messages": [], "tools": None})
    monkeypatch.setattr(bench_cpu, "_bfcl", lambda root: iter([{"request": request}, {"request": refused}]))
    monkeypatch.setattr(bench_cpu, "EVERY", 1)
    monkeypatch.setattr(bench_cpu, "CONVERSATIONS", 1)
    asked = tmp_path / "asked.json"
    for slug in (SLUG, "qwen3-8b"):
        bench_cpu._ask(ROOT, slug, snapshot(slug), asked)
        plain, ours = (way(ROOT, slug, snapshot(slug), asked) for way in (bench_cpu._plain, bench_cpu._ours))
        assert {corpus: one["digest"] for corpus, one in plain.items()} == {
            corpus: one["digest"] for corpus, one in ours.items()
        }
