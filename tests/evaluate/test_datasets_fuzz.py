"""Whatever stands in a record, a reader gives a demonstration or one clear error."""

from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtdr.data.demonstrations import Demonstration
from dtdr.errors import InputError
from dtdr.evaluate.datasets import t_eval, taskbench, tinyagent, traject_bench, ultratool
from tests.crafted import change
from tests.evaluate.test_datasets import HUB_RECORD, bank, t_eval_record, ultratool_record
from tests.evaluate.test_datasets_taskbench import NEW

NODES = [
    {"id": 0, "prev": [], "name": "a", "args": {}},
    {"id": 1, "prev": [0], "name": "b", "args": {"x": 1}},
]
TOOLS = "x\n[['a', {'name': 'a', 'required_parameters': [{'name': 'p'}]}]]\ny"
TRAJECT = {
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
}
VALID: dict[str, tuple[Any, Any]] = {
    "bank": (
        partial(tinyagent.convert, "1"),
        bank('1. a("x")\n2. b(["$1"], "see $1")\n3. join()'),
    ),
    "hub": (partial(tinyagent.convert, "1"), HUB_RECORD),
    "t_eval": (partial(t_eval.convert, "1"), t_eval_record(NODES)),
    "t_eval tools": (
        t_eval.convert_tools,
        {"origin_prompt": [{"role": "system", "content": TOOLS}]},
    ),
    "ultratool": (ultratool.convert, ultratool_record("ab", ["ab"])),
    "taskbench": (taskbench.convert, NEW),
    "traject_bench": (partial(traject_bench.convert, 1), TRAJECT),
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
