"""Whatever stands in a record, a reader gives a demonstration or one clear error."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtdr.data.demonstrations import Demonstration
from dtdr.errors import InputError
from dtdr.evaluate.datasets import t_eval, taskbench, tinyagent, traject_bench, ultratool
from tests.crafted import change

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


@pytest.mark.parametrize("name", VALID)
@given(data=st.data())
@settings(max_examples=settings().max_examples * 2)
def test_damaged_record_gives_a_demonstration_or_an_input_error(name, data):
    convert, record = VALID[name]
    assert convert(record)
    refusal, converted = "", None
    try:
        converted = convert(change(record, data.draw))
    except InputError as error:
        refusal = str(error)
    assert "\n" not in refusal
    if isinstance(converted, Demonstration):
        assert list(converted.plan.steps())
