"""Tools and a model that the tests of every framework share."""

from functools import cache
from typing import Any

import dtdr
from dtdr.agents import ToolMask, ToolPolicy
from dtdr.data.demonstrations import Message
from dtdr.predict.model import Model
from tests import small_data
from tests.helpers import RANKER_ONLY

QUERY = "Mail Ann the summary of q3.pdf"
NAMES = tuple(tool.name for tool in small_data.TOOLS)
NEW = "brand_new"
"""A tool that no demonstration uses."""


@cache
def shared_model() -> Model:
    """A small model that no test changes, fitted where a test first asks for it."""
    dataset = small_data.dataset(36)
    return dtdr.fit(dataset.demonstrations, dataset.tools, ranker="dtdr-c", **RANKER_ONLY)


def mask(**policy) -> ToolMask:
    """A mask over the shared model; two tools unless told otherwise."""
    return ToolMask(shared_model(), ToolPolicy(**(policy or {"top_k": 2})))


def best(history, k=2, query=QUERY):
    """The names that the model itself ranks first, the end of plan aside."""
    ranking = shared_model().rank(query, history)
    return set([name for name in ranking.tools if name in NAMES][:k])


class NotingRanker(Model):
    """Ranks as the shared one does, and notes the runs that it was told."""

    uses_calls = True

    def __init__(self):
        self.__dict__.update(shared_model().__dict__)
        self.runs = []

    def rank_batch(self, runs):
        self.runs += runs
        return shared_model().rank_batch(runs)


def record_mask() -> Any:
    """A mask that shows every tool; its model notes in ``model.runs`` what it was told."""
    return ToolMask(NotingRanker(), ToolPolicy(top_k=20))


def told(run) -> list[tuple]:
    """``(tool, arguments, output, status, step)`` of each call of a run."""
    return [
        (call.tool, dict(call.arguments), call.output, call.status, call.step) for call in run.calls
    ]


def check_two_turns(runs, script, second):
    """Check the runs of an agent that took a script's steps and was asked for more then."""
    calls: list[Any] = [
        (name, {}, "fine", "ok", step)
        for step, names in enumerate(script, start=1)
        for name in names
    ]
    done = [sum(map(len, script[:step])) for step in range(len(script) + 1)]
    assert [told(run) for run in runs] == [*(calls[:count] for count in done), []]
    assert [run.query for run in runs] == [*[QUERY] * len(done), second]
    assert all(run.before == () for run in runs[:-1])
    first, *earlier, last = runs[-1].before
    assert first == Message("user", QUERY)
    assert [(item.tool, item.output) for item in earlier] == [(name, "fine") for name, *_ in calls]
    assert last == Message("assistant", "There you are.")


def broken_mask() -> ToolMask:
    """A mask whose model fails at every step."""

    class Broken(Model):
        def rank_batch(self, runs):
            raise RuntimeError("the disk is on fire")

        def session(self, query, *, before=()):
            raise RuntimeError("the disk is on fire")

    broken = Broken(shared_model().ranker)
    broken._install_tools(shared_model().tools_)
    return ToolMask(broken, ToolPolicy(top_k=2))
