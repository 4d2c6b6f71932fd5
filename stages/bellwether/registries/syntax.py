"""Read literals out of Python text. What is not there, or is written in another way than expected, is an error: a
registry that is read by half looks like an engine that registers less.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from bellwether.errors import RegistryError

NEXT_STEP = "The engine writes its registry in another way now: correct its reader."


def module(text: str, where: str) -> ast.Module:
    """Return the syntax tree of `text`; `where` is its path in errors.

    Raises:
        RegistryError: it is not Python.
    """
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise RegistryError(f"{where} is not Python: {error}", next_step=NEXT_STEP) from None


def class_body(tree: ast.Module, name: str, where: str) -> list[ast.stmt]:
    """Return the statements of the one top-level class `name`. Raises RegistryError when there is none, or two."""
    found = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    if len(found) != 1:
        raise RegistryError(f"{where} has {len(found)} classes {name}, not one", next_step=NEXT_STEP)
    return found[0].body


def function_body(tree: ast.Module, name: str, where: str) -> list[ast.stmt]:
    """Return the statements of the one top-level function `name`. Raises RegistryError when there is none, or two."""
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    if len(found) != 1:
        raise RegistryError(f"{where} has {len(found)} functions {name}, not one", next_step=NEXT_STEP)
    return found[0].body


def assignments(body: Sequence[ast.stmt]) -> list[tuple[str, ast.expr]]:
    """Return the plain and annotated assignments to one name among `body`, as (name, value) in their order."""
    found = []
    for node in body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            found.append((node.targets[0].id, node.value))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            found.append((node.target.id, node.value))
    return found


def assigned(body: Sequence[ast.stmt], name: str, where: str) -> ast.expr:
    """Return what is assigned to `name` among `body`.

    Raises:
        RegistryError: nothing is, or more than once.
    """
    found = [value for target, value in assignments(body) if target == name]
    if len(found) != 1:
        raise RegistryError(f"{where} assigns {name} {len(found)} times, not once", next_step=NEXT_STEP)
    return found[0]


def literal(node: ast.expr, where: str) -> Any:
    """Return the value of a literal. Raises RegistryError when it is none."""
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError) as error:
        raise RegistryError(f"{where} is no literal: {error}", next_step=NEXT_STEP) from None


def entries(node: ast.expr, where: str) -> list[tuple[str, ast.expr]]:
    """Return the items of a dict display whose keys are texts, in its order.

    Raises:
        RegistryError: it is no dict display, is empty, spreads another dict, or says a key twice.
    """
    if not isinstance(node, ast.Dict) or not node.keys:
        raise RegistryError(f"{where} is no dict with entries", next_step=NEXT_STEP)
    found: dict[str, ast.expr] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
            raise RegistryError(f"{where}: a key is no text", next_step=NEXT_STEP)
        if key.value in found:
            raise RegistryError(f"{where} has {key.value!r} twice", next_step=NEXT_STEP)
        found[key.value] = value
    return list(found.items())


def spread(node: ast.expr, where: str) -> list[str]:
    """Return the names a dict display spreads, as in `{**a, **b}`. Raises RegistryError when it holds anything else."""
    values = node.values if isinstance(node, ast.Dict) and not any(node.keys) else []
    names = [value.id for value in values if isinstance(value, ast.Name)]
    if not names or len(names) != len(values):
        raise RegistryError(f"{where} is not made of other dicts", next_step=NEXT_STEP)
    return names


def pair(node: ast.expr, where: str) -> tuple[str, str]:
    """Return a literal tuple of two texts. Raises RegistryError when it is none."""
    value = literal(node, where)
    if not isinstance(value, tuple) or len(value) != 2 or not all(isinstance(part, str) and part for part in value):
        raise RegistryError(f"{where} is no (module, class): {value!r}", next_step=NEXT_STEP)
    return value


def texts(node: ast.expr, where: str) -> list[str]:
    """Return a literal list of different texts. Raises RegistryError when it is none, or empty."""
    value = literal(node, where)
    if not isinstance(value, list) or not value or not all(isinstance(part, str) for part in value):
        raise RegistryError(f"{where} is no list of names", next_step=NEXT_STEP)
    if len(set(value)) != len(value):
        raise RegistryError(f"{where} has a name twice", next_step=NEXT_STEP)
    return value


def origins(tree: ast.Module, here: str) -> dict[str, tuple[str, str]]:
    """Return name → (module, name there) for each top-level class and each `from … import`; `here` is the module."""
    known = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and not node.level and node.module:
            known.update({alias.asname or alias.name: (node.module, alias.name) for alias in node.names})
        elif isinstance(node, ast.ClassDef):
            known[node.name] = (here, node.name)
    return known


def commit(text: str, where: str) -> str | None:
    """Return the commit a `_version.py` of setuptools-scm names, without its `g`; None where it names none."""
    found = [literal(value, where) for value in _chained(module(text, where), "__commit_id__")]
    if len(found) != 1 or not isinstance(found[0], str | None):
        raise RegistryError(f"{where} says no commit", next_step=NEXT_STEP)
    return found[0].removeprefix("g") if found[0] else None


def _chained(tree: ast.Module, name: str) -> list[ast.expr]:
    """Return what `name = … = value` assigns."""
    return [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and any(isinstance(x, ast.Name) and x.id == name for x in node.targets)
    ]
