"""Places and communities of large graphs, which are computed once."""

import warnings

import numpy as np
import pytest

from dtdr.evaluate.datasets import synthetic
from dtdr.serve.studio import graph
from dtdr.serve.studio.graph import ToolGraph
from dtdr.serve.studio.layout import spread
from dtdr.text.encoders.cache import CacheWarning


@pytest.fixture
def computed(monkeypatch, tmp_path):
    """How often places were computed; the cache is a folder of the test's."""
    monkeypatch.setenv("DTDR_CACHE", str(tmp_path))
    times = []

    def count(nodes, links):
        times.append(nodes)
        return spread(nodes, links)

    monkeypatch.setattr(graph, "spread", count)
    return times


def runs_of(tools):
    return list(synthetic.generate(3 * tools, tools=tools))


def graph_of(tools):
    return ToolGraph.of(runs_of(tools))


def test_places_of_many_tools_are_computed_once(computed):
    first, second = graph_of(300), graph_of(300)
    assert first.positions.shape == (len(first.names), 2)
    assert np.array_equal(first.positions, second.positions)
    assert first.communities == second.communities
    assert min(first.communities[2:]) == 0
    assert len(computed) == 1


def test_other_runs_have_places_of_their_own(computed):
    runs = runs_of(300)
    first, second = ToolGraph.of(runs), ToolGraph.of([*runs, *runs[:400]])
    assert first.names == second.names
    assert not np.array_equal(first.positions, second.positions)
    assert len(computed) == 2


def test_places_of_few_tools_are_not_kept(computed, tmp_path):
    assert np.array_equal(graph_of(60).positions, graph_of(60).positions)
    assert len(computed) == 2
    assert not list(tmp_path.iterdir())


def test_damaged_places_are_computed_again(computed, tmp_path):
    first = graph_of(300).positions
    (path,) = tmp_path.rglob("vectors.db")
    path.write_bytes(b"x" * path.stat().st_size)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CacheWarning)
        assert np.array_equal(graph_of(300).positions, first)
    assert len(computed) == 2
