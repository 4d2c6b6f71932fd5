"""The derived corpus of message shapes, and the pins it repeats."""

from __future__ import annotations

import json
import shutil
from itertools import product

import pytest

from bellwether.case import Case, Origin
from bellwether.corpora.shapes import SHAPES, corpus, paired, shaped, split
from bellwether.corpora.sources import read_derived
from bellwether.errors import CorpusError, ParamsError
from bellwether.import_corpus import corpora
from corpus_sets import digests, expected_sets
from support import ROOT

BFCL = Origin("bfcl", "pypi:toy==1", "a.json", "", "Apache-2.0")
GSM8K = Origin("gsm8k", "github:toy", "b.jsonl", "", "MIT")
DERIVED = [name for name in corpora(ROOT) if (ROOT / "corpus" / name / "derived.toml").is_file()]
REQUEST = '{"messages":[],"tools":[{}]}'
CALL = {"type": "function", "function": {"name": "f", "arguments": "{}"}}


def called(name: str = "c") -> Case:
    message = json.dumps({"content": "", "tool_calls": [CALL]})
    return Case("parse", "bfcl-x", name, BFCL, name, request=REQUEST, message=message)


def solved(solution: str) -> Case:
    message = json.dumps({"reasoning_content": solution, "content": "4"})
    return Case("parse", "gsm8k-x", "s", GSM8K, "7", request="{}", message=message)


@pytest.mark.parametrize("corpus_name", DERIVED)
def test_pins_of_the_parts_are_taken_over(corpus_name):
    """Reading compares each sha256 with the part's own pin, so a pin that moved there is missed nowhere."""
    derived = read_derived(ROOT / "corpus" / corpus_name)
    assert derived.title and derived.changes
    assert set(derived.parts) <= set(corpora(ROOT))


@pytest.fixture
def pins(tmp_path):
    for name in ("shapes", "bfcl", "gsm8k"):
        shutil.copytree(ROOT / "corpus" / name, tmp_path / name)
    return tmp_path


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        pytest.param('"LICENSE" = "86', '"LICENSE" = "00', "LICENSE of gsm8k is 00", id="another sha256"),
        pytest.param('"LICENSE" =', '"NOTICE" =', "and not pinned there", id="no such file"),
        pytest.param("[parts.gsm8k]", "[parts.nosuch]", "nosuch/source.toml does not exist", id="no such part"),
        pytest.param("title =", "titel =", "unknown key 'titel'", id="unknown key"),
        pytest.param('"LICENSE" = "86', '"LICENSE" = 1 # "', "'LICENSE' is 1", id="no text"),
    ],
)
def test_pins_that_say_something_else_are_refused(pins, old, new, said):
    """A derived corpus never runs on pins that are not its parts'."""
    path = pins / "shapes" / "derived.toml"
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), "utf-8")
    with pytest.raises(ParamsError) as caught:
        read_derived(path.parent)
    assert said in str(caught.value)
    assert caught.value.next_step


@pytest.mark.parametrize(
    ("solution", "parts"),
    [
        ("a\nb\nc", ("a\nb", "c")),
        (" a \n c ", (" a ", " c ")),
        ("a", ("", "")),
        ("a\n ", ("", "")),
        (" \nc", ("", "")),
    ],
)
def test_solution_is_split_at_its_last_line(solution, parts):
    """Lines before it are reasoning, the last one is content; a row without either has no use."""
    assert split(solved(solution)) == parts


def test_shapes_are_all_combinations_but_calls_alone():
    """Seven non-empty subsets of three parts; BFCL's own cases are the seventh."""
    words = ("reasoning", "content", "calls")
    every = {
        "-".join(word for word, taken in zip(words, row, strict=True) if taken) for row in product((0, 1), repeat=3)
    }
    assert set(SHAPES) == every - {"", "calls"}


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ("reasoning", {"reasoning_content": "a\nb", "content": ""}),
        ("content", {"content": "c"}),
        ("reasoning-content", {"reasoning_content": "a\nb", "content": "c"}),
        ("reasoning-calls", {"reasoning_content": "a\nb", "content": "", "tool_calls": [CALL]}),
        ("content-calls", {"content": "c", "tool_calls": [CALL]}),
        ("reasoning-content-calls", {"reasoning_content": "a\nb", "content": "c", "tool_calls": [CALL]}),
    ],
)
def test_message_has_the_parts_of_its_shape_in_order(shape, message):
    """Tools stay in the request; the case names the rows of both datasets."""
    case = shaped(shape, 3, Origin("shapes", "derived", "x", "", "MIT"), called(), solved("a\nb\nc"))
    assert (case.case_id, case.request) == (f"parse/shapes-{shape}/shapes-{shape}-3", REQUEST)
    assert list(json.loads(case.message).items()) == list(message.items())
    assert case.parts == ((BFCL, "c"), (GSM8K, "7"))


def test_shorter_list_begins_again():
    """The i-th goes with the i-th, as far as the longer list reaches."""
    ones, others = [called("a"), called("b"), called("c")], [solved("1"), solved("2")]
    got = [(one.name, json.loads(other.message)["reasoning_content"]) for one, other in paired(ones, others)]
    assert got == [("a", "1"), ("b", "2"), ("c", "1")]


@pytest.mark.parametrize(("ones", "others"), [([], [solved("a\nb")]), ([called()], [])])
def test_part_without_cases_is_refused(ones, others):
    """Nothing would be built, silently."""
    with pytest.raises(CorpusError, match="gives no case"):
        paired(ones, others)


def test_real_sets_are_the_known_ones(real, bfcl_wheel):
    """6,000 outputs, line by line those of an existing fixture tree."""
    _, fetch = real("gsm8k")
    items = list(corpus(ROOT / "corpus" / "shapes", fetch))
    assert digests(items) == expected_sets("shapes")
    assert len(items) == 6000
