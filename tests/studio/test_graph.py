"""Places and communities of large graphs."""

import numpy as np

from dtdr.evaluate.datasets import synthetic
from dtdr.serve.studio.graph import ToolGraph


def runs_of(tools):
    return list(synthetic.generate(3 * tools, tools=tools))


def test_the_same_runs_have_the_same_places():
    runs = runs_of(300)
    first, second = ToolGraph.of(runs), ToolGraph.of(runs)
    assert first.positions.shape == (len(first.names), 2)
    assert np.array_equal(first.positions, second.positions)
    assert first.communities == second.communities
    assert min(first.communities[2:]) == 0


def test_other_runs_have_other_places():
    runs = runs_of(300)
    first, second = ToolGraph.of(runs), ToolGraph.of([*runs, *runs[:400]])
    assert first.names == second.names
    assert not np.array_equal(first.positions, second.positions)
