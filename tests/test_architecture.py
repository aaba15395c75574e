"""The layout in docs/architecture.md is the code's: packages, directions and budgets of lines."""

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import networkx as nx
import pytest

import dtdr

SOURCE = Path(dtdr.__file__).parent
DOCS = Path(__file__).parent.parent / "docs" / "architecture.md"

# Each package may import from those of a lower floor. The last number is its budget of lines.
PACKAGES = {
    "data": (1, 3700),
    "net": (1, 1100),
    "text": (2, 1650),
    "conversation": (2, 1550),
    "logs": (3, 6800),
    "rankers": (3, 12600),
    "predict": (4, 7200),
    "llm": (5, 3150),
    "agents": (5, 7800),
    "evaluate": (6, 9100),
    "serve": (7, 6500),
    "cli": (8, 4200),
}
TOP_FILES = {"__init__", "__main__", "_version", "api", "deprecated", "errors"}
"""The front door, above ``predict``; the version, errors and old names are below everything."""


def module_name(path):
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in SOURCE.rglob("*.py")}


@cache
def nodes(name):
    """Everything in the syntax tree of a module."""
    return tuple(ast.walk(ast.parse(MODULES[name].read_bytes())))


def imports(name):
    """Modules of the package that a module imports anywhere, type checking included."""
    for node in nodes(name):
        if isinstance(node, ast.Import):
            yield from (item.name for item in node.names if item.name in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module in MODULES:
            for item in node.names:
                inner = f"{node.module}.{item.name}"
                yield inner if inner in MODULES else node.module


@pytest.fixture(scope="module")
def graph():
    return nx.DiGraph((name, other) for name in MODULES for other in imports(name))


def package(name):
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def test_nothing_but_the_packages_and_the_front_door_is_at_the_top():
    folders = {path.name for path in SOURCE.iterdir() if path.is_dir()} - {"__pycache__"}
    files = {path.stem for path in SOURCE.glob("*.py")}
    assert folders == set(PACKAGES)
    assert files == TOP_FILES


def test_no_file_imports_in_a_circle(graph):
    components = nx.strongly_connected_components(graph)
    assert [sorted(component) for component in components if len(component) > 1] == []


def test_a_package_imports_only_from_packages_below_it(graph):
    floor: dict[str, float] = {name: floor for name, (floor, _) in PACKAGES.items()}
    floor |= {
        "_version": 0,
        "errors": 0,
        "deprecated": 0,
        "api": floor["predict"] + 0.5,
        "__init__": 9,
        "__main__": 9,
    }
    wrong = [
        (name, other)
        for name, other in graph.edges
        if (here := package(name)) != (there := package(other)) and floor[there] >= floor[here]
    ]
    assert wrong == []


def test_each_package_stays_within_its_budget_of_lines():
    lines: Counter[str] = Counter()
    for name, path in MODULES.items():
        lines[package(name)] += len(path.read_bytes().splitlines())
    over = {name: lines[name] for name, (_, budget) in PACKAGES.items() if lines[name] > budget}
    assert over == {}, "over budget: say why in docs/architecture.md, and raise it there and here"


def test_the_page_names_the_same_packages_and_budgets():
    table = DOCS.read_text(encoding="utf-8").partition("\n## Packages\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)/` \|.*\| ([\d,]+) \|$", table, flags=re.MULTILINE)
    assert [(name, int(budget.replace(",", ""))) for name, budget in rows] == [
        (name, budget) for name, (_, budget) in PACKAGES.items()
    ]


def test_no_two_classes_share_a_name():
    names: dict[str, list[str]] = {}
    for module in MODULES:
        for node in nodes(module):
            if isinstance(node, ast.ClassDef):
                names.setdefault(node.name.lstrip("_"), []).append(module)
    assert {name: modules for name, modules in names.items() if len(modules) > 1} == {}


def test_no_docstring_begins_with_what_or_of():
    """A docstring says what a function does, or what a value is, in a sentence of its field."""
    vague = re.compile(r'^\s*r?"""(?:What|Of)\b', re.MULTILINE)
    assert [name for name, path in MODULES.items() if vague.search(path.read_text("utf-8"))] == []


def test_locals_are_named_by_what_they_hold():
    """These words say nothing of a value, as names of locals, parameters and attributes."""
    vague = set("found chosen number place given own made every told one".split())  # noqa: SIM905
    named = set()
    for module in MODULES:
        for node in nodes(module):
            if isinstance(node, ast.arg):
                named.add((module, node.arg))
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                named.add((module, node.id))
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                named.add((module, node.attr))
    assert [(module, name) for module, name in named if name in vague] == []


LONGEST_FILE = 400


def test_no_file_is_too_long():
    lines = {module: len(path.read_bytes().splitlines()) for module, path in MODULES.items()}
    over = {module: count for module, count in lines.items() if count > LONGEST_FILE}
    assert over == {}, f"over {LONGEST_FILE} lines: move what belongs together to a file of its own"


LONGEST_FUNCTION = 60


def test_no_function_is_too_long():
    """Lines of code: what a command declares and a docstring explains does not count."""
    over = {}
    for module in MODULES:
        for node in nodes(module):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            code = node.body if ast.get_docstring(node) is None else node.body[1:]
            if code and (node.end_lineno or 0) - code[0].lineno + 1 > LONGEST_FUNCTION:
                over[module, node.name] = node.lineno
    assert over == {}, f"over {LONGEST_FUNCTION} lines: name its steps as functions"


def test_a_dozen_functions_at_most_are_more_complex_than_ruff_allows():
    exceptions = [
        (module, line.strip())
        for module, path in MODULES.items()
        for line in path.read_text("utf-8").splitlines()
        if re.search(r"# (?:ruff: )?noqa: .*(?:C901|PLR09)", line)
    ]
    assert len(exceptions) <= 12, exceptions
