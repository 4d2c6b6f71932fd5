"""Reading literals out of Python text: whole, or an error."""

from __future__ import annotations

import pytest

from bellwether.errors import RegistryError
from bellwether.registries import syntax


def value(text: str):
    """The expression assigned to NAMES in `text`."""
    return syntax.assigned(syntax.module(text, "f.py").body, "NAMES", "f.py")


def test_plain_and_annotated_assignments_are_the_same():
    """An engine that adds a type to its registry registers what it did before."""
    for text in ('NAMES = {"a": 1}', 'NAMES: dict[str, int] = {"a": 1}'):
        assert [key for key, _ in syntax.entries(value(text), "f.py")] == ["a"]


@pytest.mark.parametrize("text", ["OTHER = {}", "NAMES = 1\nNAMES = 2", "NAMES: dict", "if x:\n    NAMES = {}"])
def test_a_name_is_assigned_exactly_once(text):
    """Gone, assigned twice, declared only, or set under a condition: none of them is a registry that can be read."""
    with pytest.raises(RegistryError, match=r"f\.py assigns NAMES \d times, not once"):
        value(text)


@pytest.mark.parametrize(
    "text",
    [
        "NAMES = {}",
        "NAMES = dict(a=1)",
        'NAMES = {"a": 1, **MORE}',
        'NAMES = {"a": 1, b: 2}',
        'NAMES = {"a": 1, "a": 2}',
        'NAMES = {k: 1 for k in ["a"]}',
    ],
)
def test_a_dict_that_is_no_plain_display_is_an_error(text):
    """What stands in MORE, or behind b, would be left out of the list."""
    with pytest.raises(RegistryError):
        syntax.entries(value(text), "f.py")


@pytest.mark.parametrize("text", ['NAMES = ("m",)', 'NAMES = ["m", "C"]', 'NAMES = ("m", cls)', 'NAMES = ("m", "")'])
def test_an_implementation_is_a_module_and_a_class(text):
    """One text, a list, or a name that would have to be looked up is no (module, class)."""
    with pytest.raises(RegistryError):
        syntax.pair(value(text), "f.py")


@pytest.mark.parametrize("text", ["NAMES = []", 'NAMES = ["a", "a"]', 'NAMES = ["a", 1]', "NAMES = names()"])
def test_a_list_of_names_has_each_of_them_once(text):
    """An empty list, or one with a name twice, is not what a command line offers."""
    with pytest.raises(RegistryError):
        syntax.texts(value(text), "f.py")


@pytest.mark.parametrize("text", ["NAMES = {**A, 'b': 1}", "NAMES = A | B", "NAMES = {}", "NAMES = {**f()}"])
def test_a_joined_dict_is_made_of_names_only(text):
    """`{**A, **B}` says which dicts make the registry; anything else hides one."""
    with pytest.raises(RegistryError):
        syntax.spread(value(text), "f.py")
    assert syntax.spread(value("NAMES = {**A, **B}"), "f.py") == ["A", "B"]


def test_what_is_no_python_is_told_with_its_path():
    """A file that moved to another language version is no empty registry."""
    with pytest.raises(RegistryError, match=r"f\.py is not Python"):
        syntax.module("def (:", "f.py")


@pytest.mark.parametrize(
    ("text", "commit"),
    [
        ("__version__ = version = '1'\n__commit_id__ = commit_id = 'g4ba787ec9'", "4ba787ec9"),
        ("__commit_id__ = commit_id = None", None),
    ],
)
def test_the_commit_of_a_version_file(text, commit):
    """setuptools-scm writes `g` and the short commit, or None for a build outside Git."""
    assert syntax.commit(text, "_version.py") == commit


def test_a_version_file_without_a_commit_is_another_file():
    """No `__commit_id__` is not the same as a commit that is None."""
    with pytest.raises(RegistryError):
        syntax.commit("__version__ = '1'", "_version.py")
