import json
from contextlib import asynccontextmanager
from typing import Any

import pytest

import dtdr
from dtdr.agents.gateway.clients import ClientState
from dtdr.logs.log_format import TracedCall
from dtdr.predict.model import Model
from dtdr.rankers.random import RandomRetriever
from tests.gateway.helpers import gateway_client

pytestmark = pytest.mark.anyio


class Reading(RandomRetriever):
    """Says that it reads calls."""

    uses_calls = True


class Noting(Model):
    """Notes the calls that it is told."""

    told: list[list[dtdr.ToolCall]]

    def rank(self, query, history=(), *, before=(), offered=None):
        self.told.append(list(history))
        return super().rank(query, [call.tool for call in history])


@asynccontextmanager
async def record_gateway(model, spec, **options):
    """A client of a gateway whose model notes what it is told, and the notes."""
    demonstrations = [dtdr.Demonstration("1", "x", dtdr.Plan((dtdr.ToolCall("1", "find_user"),)))]
    noting: Any = Noting(Reading()).fit(demonstrations, model.tools_[:-1])
    noting.told = []
    async with gateway_client(noting, [spec], options=options) as (client, gateway):
        yield client, gateway, noting.told


async def test_arguments_outputs_and_statuses_are_told_to_a_model_that_reads_them(model, served):
    async with record_gateway(model, served["a"]) as (client, _, told):
        await client.call_tool("fail", {"id": "7"})
        await client.call_tool("log", {})
        await client.list_tools()

    failed, logged = told[-1]
    assert (failed.tool, dict(failed.arguments), failed.status) == ("fail", {"id": "7"}, "error")
    assert failed.output
    assert (logged.tool, logged.status) == ("log", "ok")
    assert (failed.step, logged.step) == (1, 2)


async def test_an_answer_of_json_is_read_and_cut(model, served):
    rows = [{"id": str(number), "name": "x" * 20} for number in range(3_000)]
    async with record_gateway(model, served["known"]) as (client, gateway, told):
        await client.call_tool("open_file", {"id": "1", "rows": rows})  # answers with its arguments
        await client.list_tools()
        (state,) = gateway.clients
        assert state.characters < 40_000

    (call,) = told[-1]
    assert call.output["rows"][0] == rows[0]
    assert len(json.dumps(call.output, separators=(",", ":"))) <= 2_000
    assert call.output_length > 2_000


async def test_a_model_of_names_is_told_names_and_nothing_is_kept(model, served):
    async with gateway_client(model, [served["known"]]) as (client, gateway):
        await client.call_tool("open_file", {"id": "1"})
        await client.list_tools()
        (state,) = gateway.clients
        assert [(call.arguments, call.output) for call in state.calls] == [({}, None)]
        assert state.history == ["open_file"]


def test_a_call_is_read_once_and_again_when_it_goes_on():
    state = ClientState("x")
    state.calls = [TracedCall("find_user", {}, 1.0, id="1", output="{}")]
    assert state.read_calls()[0].status == "unknown"
    state.calls[0].ended = 2.0
    (first,) = state.read_calls()
    assert first.status == "empty"
    assert state.read_calls()[0] is first
    state.resume(state.calls[0])
    state.calls[0].output, state.calls[0].ended = "Ann", 3.0
    assert state.read_calls()[0].output == "Ann"
    assert state.start_over()
    state.calls = [TracedCall("send_mail", {}, 4.0, id="1")]
    assert state.read_calls()[0].tool == "send_mail"
