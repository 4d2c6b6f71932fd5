"""Releases: their order, the pinned one, and whether a range covers one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bellwether.errors import ParamsError
from bellwether.reports.releases import covers, releases, targets, version_key


def test_releases_stand_by_engine_and_the_newest_is_pinned():
    """0.33.0 came after 0.9.2, whatever params.yaml lists first; an engine of one release has that one pinned."""
    names = ["vllm-0.33.0", "sglang-0.5.23", "vllm-0.9.2", "vllm-rust-0.33.0", "llama.cpp-b10775", "llama.cpp-b9999"]
    assert [(one.name, one.engine, one.version, one.order, one.pinned) for one in releases(names)] == [
        ("llama.cpp-b9999", "llama.cpp", "b9999", 1, False),
        ("llama.cpp-b10775", "llama.cpp", "b10775", 2, True),
        ("sglang-0.5.23", "sglang", "0.5.23", 1, True),
        ("vllm-0.9.2", "vllm", "0.9.2", 1, False),
        ("vllm-0.33.0", "vllm", "0.33.0", 2, True),
        ("vllm-rust-0.33.0", "vllm-rust", "0.33.0", 1, True),
    ]


@given(st.permutations(["0.9", "0.10.0rc1", "0.10.0", "0.10.0.post1", "1.0", "b99", "b100", "main"]))
def test_order_of_versions_does_not_depend_on_the_list(versions):
    """PEP 440 where it applies: a candidate comes before its release. Others come first, numbers by value."""
    assert sorted(versions, key=version_key) == [
        *("b99", "b100", "main", "0.9", "0.10.0rc1", "0.10.0", "0.10.0.post1", "1.0"),
    ]


@pytest.mark.parametrize("name", ["vllm", "vllm-", "-0.33.0", "vllm-rust"])
def test_a_name_without_a_version_is_no_release(name: str):
    """The name says which folder holds the answers, so it has to say which release."""
    with pytest.raises(ParamsError, match=f"'{name}' is no release"):
        releases([name])


@pytest.mark.parametrize(
    ("versions", "version", "inside"),
    [
        (">=0.5.22,<0.6", "0.5.23", True),
        (">=0.5.22,<0.6", "0.6", False),
        ("==0.33.*", "0.33.0", True),
        (">=0.33", "0.33.0rc1", False),
        (">=0.32", "0.33.0rc1", True),
        (">=10700", "b10775", True),
        ("<10775", "b10775", False),
        ("==1.2", "v-1.2_x", True),
    ],
)
def test_range_covers_a_version(versions: str, version: str, inside: bool):
    """Candidates count as the versions they are; of a build its number does."""
    assert covers(versions, version) is inside


def test_targets_stand_by_gateway_and_a_parser_makes_another_gateway():
    """1.13.0 came after 1.9.0; of each the newest is pinned."""
    names = ["smg-1.13.0", "smg-1.13.0-symphony", "smg-1.9.0", "xllamacpp-2026.10.11549", "vllm-rust-0.33.0"]
    found = targets(dict.fromkeys(names))
    assert [(one.name, one.gateway, one.version, one.order, one.pinned) for one in found] == [
        ("smg-1.9.0", "smg", "1.9.0", 1, False),
        ("smg-1.13.0", "smg", "1.13.0", 2, True),
        ("smg-1.13.0-symphony", "smg-symphony", "1.13.0", 1, True),
        ("vllm-rust-0.33.0", "vllm-rust", "0.33.0", 1, True),
        ("xllamacpp-2026.10.11549", "xllamacpp", "2026.10.11549", 1, True),
    ]


def test_a_target_that_was_asked_says_its_release_itself():
    """Its name need not; what it says counts."""
    found = targets({"mine": "7.1", "smg-1.9.0": "1.9.1"})
    assert [(one.name, one.gateway, one.version) for one in found] == [
        ("mine", "mine", "7.1"),
        ("smg-1.9.0", "smg", "1.9.1"),
    ]


@pytest.mark.parametrize("name", ["smg", "smg-", "-1.9.0", "smg-symphony"])
def test_a_target_without_a_version_is_none(name: str):
    """Of params.yaml."""
    with pytest.raises(ParamsError, match=f"'{name}' is no release"):
        targets({name: None})
