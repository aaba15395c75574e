"""Whatever stands in a record, a reader gives a demonstration or one clear error."""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtdr.data.demonstrations import Demonstration
from dtdr.errors import InputError
from dtdr.evaluate.datasets import t_eval, taskbench, tinyagent, traject_bench, ultratool

VALID: dict[str, tuple[Any, Any]] = {
    "bank": (
        lambda record: tinyagent.convert("1", record),
        {"tools": ["a"], "text": 'Question: q\n1. a("x")\n2. b(["$1"], "see $1")\n3. join()'},
    ),
    "hub": (
        lambda record: tinyagent.convert("1", record),
        {
            "input": "q",
            "output": [
                {"type": "plan", "parsed_output": [{"tool_name": "a", "tool_args": ["$x"]}]}
            ],
        },
    ),
    "t_eval": (
        lambda record: t_eval.convert("1", record),
        {
            "ground_truth": [
                {"id": 0, "prev": [], "name": "a", "args": {}},
                {"id": 1, "prev": [0], "name": "b", "args": {"x": 1}},
            ],
            "origin_prompt": [
                {"role": "system", "content": "[['a', {'name': 'a'}]]\n"},
                {"role": "user", "content": "q"},
            ],
        },
    ),
    "t_eval tools": (
        t_eval.convert_tools,
        {
            "origin_prompt": [
                {
                    "role": "system",
                    "content": "x\n[['a', {'required_parameters': [{'name': 'p'}]}]]\ny",
                }
            ]
        },
    ),
    "ultratool": (
        ultratool.convert,
        {
            "id": "1",
            "user_request": "q",
            "task_nodes": [{"task": "a"}, {"task": "b"}],
            "task_links": [{"source": "a", "target": "b"}],
        },
    ),
    "taskbench": (
        taskbench.convert,
        {
            "id": "1",
            "user_request": "q",
            "task_nodes": [
                {"task": "a", "arguments": ["x"]},
                {"task": "b", "arguments": [{"name": "p", "value": "<node-0>"}]},
            ],
            "task_links": [{"source": "a", "target": "b"}],
        },
    ),
    "traject_bench": (
        lambda record: traject_bench.convert(1, record),
        {
            "query": "q",
            "sequence_name": "s",
            "domain": "d",
            "tool list": [
                {
                    "tool name": "a",
                    "tool description": "does a",
                    "required parameters": [{"name": "p", "value": 1}],
                    "optional parameters": [],
                }
            ],
        },
    ),
}

anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 3)
    | st.floats(allow_nan=True)
    | st.sampled_from(
        ["", "end", "$1", "<node-0>", "<node-9>", "1. a(", "1. a(b)", "[['a']]\n", "[]"]
    )
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


def places(value, path=()):
    yield path
    members = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in members:
        if isinstance(item, (dict, list)):
            yield from places(item, (*path, key))
        else:
            yield (*path, key)


@pytest.mark.parametrize("name", VALID)
def test_the_record_that_is_damaged_below_is_valid(name):
    convert, record = VALID[name]
    assert convert(record)


@pytest.mark.parametrize("name", VALID)
@given(data=st.data())
@settings(max_examples=settings().max_examples * 2)
def test_damaged_record_gives_a_demonstration_or_an_input_error(name, data):
    convert, record = VALID[name]
    damaged = copy.deepcopy(record)
    path = data.draw(st.sampled_from(list(places(record))))
    value = data.draw(anything)
    if path:
        target = damaged
        for key in path[:-1]:
            target = target[key]
        if data.draw(st.booleans()):
            target[path[-1]] = value
        else:
            del target[path[-1]]
    else:
        damaged = value
    refusal = ""
    try:
        converted = convert(damaged)
    except InputError as error:
        refusal = str(error)
    if refusal:
        assert "\n" not in refusal
    elif isinstance(converted, Demonstration):
        assert list(converted.plan.steps())
