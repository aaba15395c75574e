"""Which code a result depends on, as one hash: comments and docstrings do not count."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGE = "dtdr"
_ROOT = Path(__file__).resolve().parents[2]


@cache
def code_version(*modules: str) -> str:
    """Hash of the given modules and of all modules of this package that they import.

    The code of an ``__init__`` module is left out: those are registries, and one more line
    changes no result. What it imports counts.
    """
    digest = hashlib.sha256()
    for name in sorted(_closure(modules)):
        if not _is_registry(name):
            digest.update(f"{name}\0{_code(name)}\0".encode())
    return digest.hexdigest()[:16]


def _closure(modules: tuple[str, ...]) -> set[str]:
    """The modules and all that they import, inside functions too."""
    names: set[str] = set()
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name not in names and _path(name) is not None:
            names.add(name)
            waiting.extend(_imports(name))
    return names


@cache
def _imports(name: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_imports_of_tree(_parse(name))))


def _imports_of_tree(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if _is_own(alias.name))
        elif isinstance(node, ast.ImportFrom) and node.module and _is_own(node.module):
            for alias in node.names:
                module = f"{node.module}.{alias.name}"
                yield node.module if _path(module) is None else module


def _is_own(name: str) -> bool:
    return name.partition(".")[0] == PACKAGE


def _is_registry(name: str) -> bool:
    path = _path(name)
    return path is not None and path.name == "__init__.py"


def _parse(name: str) -> ast.Module:
    path = _path(name)
    return ast.parse("" if path is None else path.read_text(encoding="utf-8"))


@cache
def _code(name: str) -> str:
    tree = _parse(name)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            # Every bare text is dropped, not only the first: attributes are documented below.
            node.body = [
                item
                for item in node.body
                if not (isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant))
            ] or [ast.Pass()]
    return ast.unparse(tree)


@cache
def _path(name: str) -> Path | None:
    """The file of a module; None where the name is not one."""
    if _is_own(name):
        path = _ROOT.joinpath(*name.split(".")[1:])
        options = (path.with_suffix(".py"), path / "__init__.py")
        return next((option for option in options if option.is_file()), None)
    spec = importlib.util.find_spec(name)
    return Path(spec.origin) if spec and spec.origin and spec.origin.endswith(".py") else None
