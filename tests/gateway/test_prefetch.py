"""Calls that the gateway makes early, before real servers: which, how often, and what for."""

import json
from typing import Any

import anyio
import pytest

import dtdr
from dtdr.agents.gateway import Gateway, Recorder
from dtdr.data.calls import ToolCall
from dtdr.data.demonstrations import Demonstration
from dtdr.data.plan import Plan
from dtdr.errors import InputError
from tests.gateway.helpers import few, gateway_client, journal_of, stdio, text, until

pytestmark = pytest.mark.anyio

TOOLS = ("open_file", "summarize_file", "send_mail")
FILES = [f"{name}{number}.pdf" for number in range(6) for name in ("plan", "notes", "report", "q")]


def fit(query, *calls):
    """A model of one kind of work, whose query and first argument name a file."""
    demonstrations = [
        Demonstration(
            str(number),
            query.format(file),
            Plan(
                tuple(
                    ToolCall(str(place), tool, {"id": argument or file}, output)
                    for place, (tool, argument, output) in enumerate(call(number) for call in calls)
                ),
                tuple((str(place), str(place + 1)) for place in range(len(calls) - 1)),
            ),
            group=f"g{number % 6}",
        )
        for number, file in enumerate(FILES)
    ]
    return dtdr.fit(demonstrations, ranker="dtdr-l", epochs=100, arguments=True)


@pytest.fixture(scope="module")
def filling():
    """Opens the file of the query, makes it short, and sends it."""
    same_file = [lambda _, tool=tool: (tool, None, None) for tool in TOOLS]
    return fit("please open {}, summarize it and mail it", *same_file)


@pytest.fixture(scope="module")
def handing_on():
    """Looks something up, and opens what it finds there."""
    return fit(
        "look up {}",
        lambda number: ("summarize_file", None, {"tool": f"k{number}", "id": 1}),
        lambda number: ("open_file", {"$ref": "0", "path": "/tool"}, None),
    )


def spec(tmp_path, *prefetch, **options):
    names = {name: f"Does {name}." for name in (*TOOLS, "fail")}
    journal = str(tmp_path / "journal")
    return stdio("files", names=names, journal=journal, prefetch=prefetch, **options)


INTENT = {"dtdr/intent": "please open budget.pdf, summarize it and mail it"}
BUDGET = {"id": "budget.pdf"}
OPTIONS: dict[str, Any] = {"prefetch": 0.5}


async def think(tmp_path, count):
    """What a slow LLM does: nothing, until so many calls were made."""
    await until(lambda: len(journal_of(tmp_path / "journal")) >= count)


async def rest():
    """Time in which a call that is not allowed would be made."""
    await anyio.sleep(0.5)


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_listed_call_is_made_while_the_llm_thinks_and_once(filling, tmp_path, mode):
    upstream = spec(tmp_path, *TOOLS[:2])
    async with gateway_client(filling, [upstream], mode=mode, options=OPTIONS) as (client, gateway):
        await client.list_tools(meta=INTENT)
        for number, tool in enumerate(TOOLS[:2], start=1):
            await think(tmp_path, number)
            result = await client.call_tool(tool, BUDGET)
            assert json.loads(text(result)) == {"tool": tool, **BUDGET}
        await rest()  # send_mail comes next for sure, and is not listed
        assert len(journal_of(tmp_path / "journal")) == 2
        await client.call_tool("send_mail", BUDGET)
        counts = gateway.prefetcher.counts
    assert journal_of(tmp_path / "journal") == ["budget.pdf"] * 3
    assert (counts.started, counts.hits, counts.wasted) == (2, 2, 0)


async def test_nothing_is_made_early_without_the_option_or_if_the_list_leaves_it_out(
    filling, tmp_path
):
    for options, listed in (({}, TOOLS), (OPTIONS, ["summarize_file"])):
        specs = [spec(tmp_path, *listed)]
        async with gateway_client(filling, specs, options=options) as (client, gateway):
            await client.list_tools(meta=INTENT)
            await rest()
            assert journal_of(tmp_path / "journal") == []
            if options:
                await client.call_tool("open_file", BUDGET)
                await think(tmp_path, 2)
                await client.call_tool("summarize_file", BUDGET)
                assert gateway.prefetcher.counts.hits == 1
    assert len(journal_of(tmp_path / "journal")) == 2


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_another_client_s_write_makes_the_early_reads_of_its_server_alone_stale(
    filling, tmp_path, mode
):
    other = stdio("other", names={"elsewhere": "Writes."})
    upstreams = [spec(tmp_path, *TOOLS[:2]), other]
    reader, writer = {"dtdr/session": "reader", **INTENT}, {"dtdr/session": "writer"}
    async with gateway_client(filling, upstreams, mode=mode, options=OPTIONS) as (client, gateway):
        await client.list_tools(meta=reader)
        await think(tmp_path, 1)
        await client.call_tool("elsewhere", {}, meta=writer)
        await client.call_tool("open_file", BUDGET, meta=reader)
        assert gateway.prefetcher.counts.hits == 1
        await think(tmp_path, 2)  # summarize_file, early
        await client.call_tool("send_mail", {"id": "written"}, meta=writer)
        await client.call_tool("summarize_file", BUDGET, meta=reader)
        assert gateway.prefetcher.counts.hits == 1
    # Opened and summarized early, written, and summarized again.
    journal = journal_of(tmp_path / "journal")[:4]
    assert journal == ["budget.pdf", "budget.pdf", "written", "budget.pdf"]


async def test_the_end_of_a_run_cancels_its_early_calls(filling, tmp_path):
    upstream = spec(tmp_path, TOOLS[0], delay=0.6)
    async with gateway_client(filling, [upstream], options=OPTIONS) as (client, gateway):
        await client.list_tools(meta=INTENT)
        await think(tmp_path, 1)
        await client.list_tools(meta={"dtdr/intent": "another thing altogether"})
        assert (gateway.prefetcher.counts.hits, gateway.prefetcher.counts.wasted) == (0, 1)
        await client.call_tool("send_mail", {"id": "x"})  # the server answers others meanwhile


async def test_a_listed_tool_gets_values_of_earlier_calls(handing_on, tmp_path):
    specs = [spec(tmp_path, "open_file")]
    async with gateway_client(handing_on, specs, options=OPTIONS) as (client, _):
        await client.list_tools(meta={"dtdr/intent": "look up budget.pdf"})
        await client.call_tool("summarize_file", BUDGET)
        await think(tmp_path, 2)
    # The server's answer names the tool, which nothing but its output holds.
    assert journal_of(tmp_path / "journal") == ["budget.pdf", "summarize_file"]


async def test_a_failing_early_call_is_made_again_and_early_calls_are_not_learned(tmp_path):
    model = fit("break {}", lambda _: ("fail", None, None))
    learned = tmp_path / "learned.jsonl"
    options = {**OPTIONS, "recorder": Recorder(learned)}
    specs = [spec(tmp_path, "fail")]
    async with gateway_client(model, specs, options=options) as (client, gateway):
        await client.list_tools(meta={"dtdr/intent": "break budget.pdf"})
        await think(tmp_path, 1)
        assert (await client.call_tool("fail", BUDGET)).is_error
        assert gateway.prefetcher.counts.hits == 0
    assert len(journal_of(tmp_path / "journal")) == 2
    (record,) = map(json.loads, learned.read_text().splitlines())
    assert [call["tool"] for call in record["calls"]] == ["fail"]


def test_what_can_make_no_call_early_is_refused(model, filling, tmp_path):
    for candidate, listed, probability, said in (
        (model, (), 0.5, "fitted without arguments"),
        (filling, (), 0.5, "no server lists tools"),
        (filling, ("read",), 2, "must be above 0 and at most 1"),
    ):
        with pytest.raises(InputError, match=said):
            Gateway(candidate, [spec(tmp_path, *listed)], few(), prefetch=probability)
