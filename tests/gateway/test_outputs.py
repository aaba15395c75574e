import json
from typing import Any

import pytest

import dtdr
from dtdr.predict.model import Model
from dtdr.rankers.random import RandomRetriever
from tests.gateway.helpers import gateway_client
from tests.helpers import RANKER_ONLY

pytestmark = pytest.mark.anyio


class Reading(RandomRetriever):
    """Says that it reads calls."""

    uses_calls = True


class Noting(Model):
    """Notes the calls that it is told."""

    told: list[list[dtdr.ToolCall]]

    def rank(self, query, history=(), *, before=(), offered=None, text=None):
        self.told.append(list(history))
        return super().rank(query, [call.tool for call in history])


async def test_a_model_that_reads_calls_is_told_arguments_statuses_and_cut_outputs(model, served):
    demonstrations = [dtdr.Demonstration("1", "x", dtdr.Plan((dtdr.ToolCall("1", "find_user"),)))]
    noting: Any = Noting(Reading()).fit(demonstrations, model.tools_[:-1], **RANKER_ONLY)
    noting.told = []
    rows = [{"id": str(number), "name": "x" * 20} for number in range(3_000)]
    specs = [served["a"], served["known"]]
    async with gateway_client(noting, specs) as (client, gateway):
        await client.call_tool("fail", {"id": "7"})
        await client.call_tool("log", {})
        await client.call_tool("open_file", {"id": "1", "rows": rows})  # answers with its arguments
        await client.list_tools()
        (state,) = gateway.clients
        assert state.characters < 40_000

    failed, logged, opened = noting.told[-1]
    assert (failed.tool, dict(failed.arguments), failed.status) == ("fail", {"id": "7"}, "error")
    assert failed.output
    assert (logged.tool, logged.status) == ("log", "ok")
    assert [call.step for call in (failed, logged, opened)] == [1, 2, 3]
    assert opened.output["rows"][0] == rows[0]
    assert len(json.dumps(opened.output, separators=(",", ":"))) <= 2_000
    assert opened.output_length > 2_000
