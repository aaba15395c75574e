import json
import threading

import pytest

import dtdr
from dtdr.agents.recording import Recorder
from dtdr.agents.run_folder import RunFolder
from dtdr.conversation.events import LoggedCall
from dtdr.errors import OutputError
from dtdr.logs.mcp import MCP
from tests.gateway.helpers import gateway_client, names, stdio, until

pytestmark = pytest.mark.anyio


def call(tool, *, at, output=None, failed=False, **arguments):
    return LoggedCall(tool, arguments, at, ended=at + 0.5, output=output, failed=failed)


def recording(path):
    return {"recorder": Recorder(path)}


def test_a_run_becomes_a_demonstration_with_references_and_failures(tmp_path):
    recorder = Recorder(tmp_path / "d.jsonl")
    found = call("find_user", at=1, name="Ann", output={"mail": "account-7788"})
    recorder.record(["Mail Ann"], [found, call("send_mail", at=2, to="account-7788", failed=True)])
    for _ in range(2):
        recorder.record([], [call("find_user", at=1)])

    first, *others = dtdr.read_demonstrations(tmp_path / "d.jsonl")
    assert (first.query, first.source, first.outcome) == ("Mail Ann", "dtdr mcp", "success")
    assert first.plan.tools == ("find_user", "send_mail")
    assert first.plan.calls[1].arguments == {"to": {"$ref": "1", "path": "/mail"}}
    assert [(call.output, call.status, call.step) for call in first.plan.calls] == [
        ({"mail": "account-7788"}, "ok", 1),
        (None, "error", 2),
    ]
    assert [item.query for item in others] == [MCP.default_query] * 2, "equal runs are kept apart"


@pytest.mark.parametrize("redact", [True, False])
@pytest.mark.parametrize("outputs", [True, False])
def test_secrets_are_scrubbed_and_outputs_written_as_asked(tmp_path, outputs, redact):
    recorder = Recorder(tmp_path / "d.jsonl", outputs=outputs, redact=redact)
    output = {"mail": "bob@corp.example", "found": 1}
    found = call("find_user", at=1, password="hunter2222", output=output)
    recorder.record(["mail ann@corp.example"], [found])

    content = (tmp_path / "d.jsonl").read_text()
    (written,) = json.loads(content)["calls"]
    shown = "[email]" if redact else "bob@corp.example"
    expected = {"mail": shown, "found": 1} if outputs else None
    assert (written.get("output"), written["status"]) == (expected, "ok")
    assert ("ann@corp.example" in content) is not redact
    assert ("hunter2222" in content) is not redact


def test_only_its_owner_may_read_a_new_file_and_an_old_one_keeps_its_mode(tmp_path):
    (tmp_path / "old.jsonl").touch()
    (tmp_path / "old.jsonl").chmod(0o640)
    for name, mode in (("new.jsonl", 0o600), ("old.jsonl", 0o640)):
        Recorder(tmp_path / name).record(["Mail Ann"], [call("find_user", at=1)])
        assert (tmp_path / name).stat().st_mode & 0o777 == mode


def test_a_file_that_cannot_be_written_is_an_error_at_the_start(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(OutputError, match="cannot write"):
        Recorder(tmp_path / "folder")


async def test_a_disk_that_fills_up_later_stops_nothing(tmp_path, caplog):
    recorder = Recorder(tmp_path / "d.jsonl")
    (tmp_path / "d.jsonl").unlink()
    (tmp_path / "d.jsonl").mkdir()

    for _ in range(2):
        recorder.add([], [call("find_user", at=1)])
    recorder.close()
    assert caplog.text.count("could not record a run") == 2


async def test_runs_are_recorded_when_they_end_by_their_intent_or_searches_and_only_if_asked(
    model, served, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "d.jsonl"
    async with gateway_client(model, [served["known"]]) as (client, _):
        await client.call_tool("open_file", {"id": "9"})
    assert list(tmp_path.iterdir()) == []
    async with gateway_client(model, [served["known"]], options=recording(path)) as (
        client,
        _,
    ):
        for tool in ("open_file", "summarize_file"):
            await client.call_tool(tool, {"id": "9"}, meta={"dtdr/intent": "Shorten q3.pdf"})
        assert path.read_text() == ""
    async with gateway_client(model, [served["known"]], options=recording(path)) as (
        client,
        _,
    ):
        await client.call_tool("search_tools", {"query": "shorten a text"})
        await client.call_tool("summarize_file", {})

    first, second = dtdr.read_demonstrations(path)
    assert (first.query, first.plan.tools) == ("Shorten q3.pdf", ("open_file", "summarize_file"))
    assert (second.query, second.plan.tools) == ("shorten a text", ("summarize_file",))


async def test_long_texts_of_one_client_are_not_kept(model, served):
    long = "walrus " * 400_000
    async with gateway_client(model, [served["known"]]) as (client, gateway):
        for number in range(30):
            await client.call_tool("search_tools", {"query": f"{number} {long}"})
        await client.call_tool("open_file", {"id": long}, meta={"dtdr/intent": long})
        (state,) = gateway.clients
        assert sum(map(len, state.searches)) <= 20 * 10_000
        assert len(state.intent) <= 10_000
        assert [item.arguments for item in state.calls] == [{}]


async def test_a_long_run_is_cut_where_its_texts_take_too_much(
    model, served, tmp_path, monkeypatch
):
    path = tmp_path / "d.jsonl"
    rows = ["x" * 1_000] * 200
    monkeypatch.setattr("dtdr.agents.gateway.clients.MAX_RUN_CHARACTERS", 300_000)
    async with gateway_client(model, [served["known"]], options=recording(path)) as (
        client,
        _,
    ):
        for _ in range(24):
            await client.call_tool("open_file", {"id": "1", "rows": rows})

    runs = [len(item.plan.calls) for item in dtdr.read_demonstrations(path)]
    assert runs == [10, 10, 4]  # 16,000 characters of arguments and as many of output each
    assert path.stat().st_size < 24 * 31_000


async def test_calls_are_passed_on_while_a_run_is_recorded_and_late_runs_are_counted(
    model, served, tmp_path, monkeypatch, caplog
):
    may_end, has_begun = threading.Event(), threading.Event()

    def wait(self, *run):
        has_begun.set()
        assert may_end.wait(60)

    monkeypatch.setattr(Recorder, "record", wait)
    monkeypatch.setattr("dtdr.agents.recording.CLOSE_SECONDS", 0.0)
    options = recording(tmp_path / "d.jsonl")
    async with gateway_client(model, [served["known"]], options=options) as (client, _):
        await client.call_tool("open_file", {"id": "1"}, meta={"dtdr/intent": "first"})
        meta = {"dtdr/intent": "second"}  # ends the first run, which is recorded meanwhile
        for number in range(20):
            await client.call_tool("find_user", {"id": str(number)}, meta=meta)
        await until(has_begun.is_set)
    may_end.set()
    assert "2 runs were not recorded" in caplog.text


def test_half_a_line_spoils_no_other(tmp_path):
    path = tmp_path / "d.jsonl"
    recorder = Recorder(path)
    recorder.record([], [call("find_user", at=1)])
    with path.open("a") as stream:
        stream.write('{"id": "half')
    recorder.record([], [call("open_file", at=1)])

    first, half, last = path.read_text().splitlines()
    assert half == '{"id": "half'
    assert [json.loads(line)["calls"][0]["tool"] for line in (first, last)] == [
        "find_user",
        "open_file",
    ]


async def test_a_gateway_without_a_model_goes_on_with_what_its_runs_taught(tmp_path):
    """With a ranker that learns at once; ``test_without_model.py`` has the default one."""
    runs = RunFolder(tmp_path / "runs", ranker="markov-1")
    tools = {"zeta": "Opens a socket.", "kappa": "Paints a fence.", "omega": "Feeds a fish."}
    more = {f"tool_{number}": f"Turns wheel {number}." for number in range(6)}
    specs = [stdio("s", names={**more, **tools})]
    async with gateway_client(None, specs, options={"recorder": runs}) as (client, gateway):
        assert "omega" in await names(client) or len(await names(client)) == 2
        for number in range(4):
            for tool in ("zeta", "omega", "kappa"):
                meta = {"dtdr/intent": f"Do the work of day {number}"}
                await client.call_tool(tool, {"id": str(number)}, meta=meta)
        await until(lambda: any(item.outcome == "published" for item in runs.history()))
        await until(lambda: gateway.ranker.knows("zeta") and runs.load_newer() is None)
        meta = {"dtdr/intent": "Do the work of day 9"}
        await client.call_tool("zeta", {"id": "9"}, meta=meta)
        await until(lambda: "omega" in gateway.clients.at("stdio").shown)
    assert runs.count_runs() == 5
    assert runs.read_usage()["calls"] == 13
