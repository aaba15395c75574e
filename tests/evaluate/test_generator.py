"""The synthetic set: reproducible, valid, varied, and a task that needs query and history."""

from collections import Counter

import pytest

import synthetic_runs
from dtdr.evaluate import datasets
from dtdr.evaluate.datasets.synthetic import BASE as BASE_TOOLS

BASE = len(BASE_TOOLS)


@pytest.fixture(scope="module")
def bundled():
    return datasets.load("bundled")


def test_bundled_set_is_large_labelled_and_has_distinct_queries(bundled):
    assert len(bundled) >= 3000
    assert bundled.synthetic
    assert "synthetic" in bundled.title
    assert "synthetic" in bundled.source
    assert len({item.query for item in bundled.demonstrations}) == len(bundled)
    assert len({item.id for item in bundled.demonstrations}) == len(bundled)
    assert all("synthetic" in item.source for item in bundled.demonstrations)


def test_bundled_tools_are_described_and_all_used(bundled):
    assert len(bundled.tools) >= 32
    assert all(tool.description for tool in bundled.tools)
    used = Counter(tool for item in bundled.demonstrations for tool in item.plan.tools)
    assert set(used) == {tool.name for tool in bundled.tools}
    assert min(used.values()) >= 20


def test_bundled_plans_branch_repeat_tools_and_have_one_to_eight_calls(bundled):
    plans = [item.plan for item in bundled.demonstrations]
    assert {len(plan) for plan in plans} == set(range(1, 9))
    assert sum(len(set(plan.tools)) < len(plan) for plan in plans) > 300
    assert sum(any(len(needs) > 1 for needs in plan.dependencies) for plan in plans) > 300
    forks = sum(max(Counter(parent for parent, _ in plan.edges()).values(), default=0) > 1
                for plan in plans)  # fmt: skip
    assert forks > 50
    assert all(not plan.links for plan in plans), "every dependency shows in an argument"


def test_arguments_fit_the_parameters_of_their_tools(bundled):
    services = list(synthetic_runs.generate(1000, BASE + 150, 2))
    parameters = {
        tool.name: (
            {item.name for item in tool.parameters},
            {item.name for item in tool.parameters if item.required},
        )
        for tool in synthetic_runs.tools(BASE + 150, 2)
    }
    for item in [*bundled.demonstrations, *services]:
        for call in item.plan.calls:
            allowed, required = parameters[call.tool]
            assert required <= set(call.arguments) <= allowed, (call.tool, call.arguments)
