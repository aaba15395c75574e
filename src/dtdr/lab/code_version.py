"""Which code a result depends on, as one hash: comments and docstrings do not count."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGE = "dtdr"


@cache
def code_version(*modules: str) -> str:
    """Hash of the given modules and of all modules of this package that they import.

    What an ``__init__`` module defines is left out: those are registries, and a line more in one
    changes no result; what they lead to is named by the caller. A name that it only imports is
    followed to where it is from.
    """
    digest = hashlib.sha256()
    for name in sorted(_closure(modules)):
        digest.update(f"{name}\0{_code(name)}\0".encode())
    return digest.hexdigest()[:16]


def _closure(modules: tuple[str, ...]) -> set[str]:
    modules_seen: set[str] = set()
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        path = _path(name)
        if name in modules_seen or path is None or path.name == "__init__.py":
            continue
        modules_seen.add(name)
        waiting.extend(_imports(name))
    return modules_seen


@cache
def _imports(name: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_imports_of_tree(_tree(name))))


def _imports_of_tree(tree: ast.Module) -> Iterator[str]:
    """Modules of this package that a module imports anywhere, inside functions too."""
    for module, alias in _from_package(tree):
        yield from (module, f"{module}.{alias.name}")
        yield from _find_reexports(module).get(alias.name, ())
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.split(".")[0] == PACKAGE)


def _from_package(tree: ast.Module) -> Iterator[tuple[str, ast.alias]]:
    """Each name that a module imports from one of this package, and from which."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.ImportFrom)
            and (module := node.module or "").split(".")[0] == PACKAGE
        ):
            yield from ((module, alias) for alias in node.names)


@cache
def _find_reexports(name: str) -> dict[str, tuple[str, ...]]:
    """Modules behind each name that an ``__init__`` module imports from others."""
    path = _path(name)
    if path is None or path.name != "__init__.py":
        return {}
    return {
        alias.asname or alias.name: (module, f"{module}.{alias.name}")
        for module, alias in _from_package(_tree(name))
    }


@cache
def _code(name: str) -> str:
    tree = _tree(name)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            # Every bare text is dropped, not only the first: attributes are documented below.
            node.body = [
                item
                for item in node.body
                if not (isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant))
            ] or [ast.Pass()]
    return ast.unparse(tree)


def _tree(name: str) -> ast.Module:
    path = _path(name)
    return ast.parse("" if path is None else path.read_text(encoding="utf-8"))


@cache
def _path(name: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):  # a function or class of a module, no module
        return None
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        return None
    return Path(spec.origin)
