"""The tool dependency graph: against counts by hand, and as the command prints it."""

import json
from collections import Counter, defaultdict

import pytest

from dtdr.cli import run as run_command
from dtdr.data.calls import END, ToolCall
from dtdr.data.demonstrations import Demonstration
from dtdr.data.plan import Plan
from dtdr.errors import InputError
from dtdr.predict import create
from dtdr.rankers.dependency_graph import dependency_graph
from tests.helpers import RANKER_ONLY

PLANS = ("ab", "abc", "acb", "bca", "aab")


def demonstration(id, tools):
    calls = tuple(ToolCall(str(place), tool) for place, tool in enumerate(tools))
    return Demonstration(id, f"query {id}", Plan(calls))


DEMONSTRATIONS = [demonstration(str(place), tools) for place, tools in enumerate(PLANS)]


def counted(order):
    """The graph as the paper defines it: what followed each history of the last calls."""
    counts: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    for tools in PLANS:
        names = ["start"] * order + [*tools, END]
        for place in range(order, len(names)):
            counts[tuple(names[place - order : place])][names[place]] += 1
    return {
        history: {name: round(count / next_tools.total(), 9) for name, count in next_tools.items()}
        for history, next_tools in counts.items()
    }


def rounded(entries):
    return {
        entry.history: {name: round(share, 9) for name, share in entry.probabilities.items()}
        for entry in entries
    }


@pytest.mark.parametrize("order", [0, 1, 2, 3])
def test_the_graph_of_one_cluster_is_that_of_all_demonstrations(order):
    model = create("dtdr-c", recipe="paper", clusters=1, order=order).fit(
        DEMONSTRATIONS, **RANKER_ONLY
    )
    assert rounded(dependency_graph(model.ranker)) == counted(order)


def test_the_graph_of_dr_has_the_last_call_as_its_key():
    entries = dependency_graph(create("dr").fit(DEMONSTRATIONS, **RANKER_ONLY).ranker)
    assert rounded(entries) == counted(1)
    for entry in entries:
        shares = list(entry.probabilities.values())
        assert shares == sorted(shares, reverse=True)


def test_others_have_none_and_a_cluster_must_exist():
    with pytest.raises(InputError, match="fit dtdr-c or dr"):
        dependency_graph(create("random").fit(DEMONSTRATIONS, **RANKER_ONLY).ranker)
    with pytest.raises(InputError, match="the last one is 0"):
        dependency_graph(create("dr").fit(DEMONSTRATIONS, **RANKER_ONLY).ranker, 1)


def test_the_command_prints_a_table_json_and_dot(tmp_path, capsys):
    folder = tmp_path / "model"
    create("dr").fit(DEMONSTRATIONS, **RANKER_ONLY).save(folder)
    assert run_command(["inspect", str(folder), "--graph"]) == 0
    table = capsys.readouterr().out
    assert "start" in table
    assert "0.800, 0.200" in table
    assert run_command(["inspect", str(folder), "--graph", "--json"]) == 0
    graph = json.loads(capsys.readouterr().out)["graph"]
    assert {"history": ["start"], "next": {"a": 0.8, "b": 0.2}} in graph
    assert run_command(["inspect", str(folder), "--dot"]) == 0
    dot = capsys.readouterr().out
    assert '"start" -> "a" [label="0.800"];' in dot
    assert dot.startswith("digraph")
    assert run_command(["inspect", str(folder), "--graph", "--cluster", "4"]) == 2
