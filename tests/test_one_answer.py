"""One state has one ranking, to the last bit, whatever is asked for it and however it is told."""

import json
from typing import Any

import pytest

import dtdr
from dtdr import Demonstration, Plan, Run, ToolCall
from dtdr.agents import ToolMask, ToolPolicy, openai
from dtdr.data.outputs import looks_failed
from tests import small_data
from tests.command_line import invoke

TOOLS = (*small_data.TOOLS, dtdr.Tool("log", "Write a line"))
OUTPUTS: tuple[Any, ...] = (
    {"mail": "ann@x.org", "pages": 3},
    [],
    {"error": "not found"},
    "Error: no such file",
    '{"items": [{"id": 7}, {"id": 8}], "total": 2}',
    {"status": "failed", "pipeline": 12, "jobs": ["lint", "test"]},
    [{"text": "word " * 60, "number": number} for number in range(40)],
    "plain words",
)
RANKERS = ("dtdr-f", "dtdr-c", "dr")


def call(number, tool, arguments, output, step):
    """A call as an agent tells it: without a status, its output whole."""
    return {
        "id": str(number), "tool": tool, "arguments": arguments, "output": output, "step": step,
    }  # fmt: skip


def told(number):
    """The calls of a demonstration with outputs: two are parallel, one has a reference."""
    calls = small_data.demonstration(number).plan.calls
    steps = (1, 1, 2, 3)
    return [
        call(place, item.tool, dict(item.arguments), OUTPUTS[(number + place) % 8], step)
        for place, (item, step) in enumerate(zip(calls, steps, strict=False), start=1)
    ]


def demonstration(number):
    item = small_data.demonstration(number)
    calls = Run(item.query).with_calls(told(number)).calls
    return Demonstration(item.id, item.query, Plan(tuple(calls)))


DEMONSTRATIONS = [demonstration(number) for number in range(36)]
RUNS = [(small_data.demonstration(number).query, told(number)) for number in (36, 37, 38, 40, 43)]
RUNS.append(
    (
        "Mail Ann the summary of q4.pdf",
        [
            call(1, "read_file", {"input": "q4.pdf"}, OUTPUTS[6], 1),
            call(2, "never_seen", {}, OUTPUTS[3], 1),
            call(3, "find_contact", {"input": {"$ref": "1"}}, OUTPUTS[4], 2),
            call(4, "find_contact", {"input": "ann@x.org"}, OUTPUTS[2], 3),
        ],
    )
)
STATES = [(query, calls[:count]) for query, calls in RUNS for count in range(len(calls) + 1)]


@pytest.fixture(scope="module", params=RANKERS)
def model(request):
    return dtdr.fit(DEMONSTRATIONS, TOOLS, ranker=request.param)


@pytest.fixture(scope="module")
def answers(model):
    """Of each state, the probabilities that ``rank`` gives, by tool."""
    return [dict(model.rank(query, calls)) for query, calls in STATES]


@pytest.fixture(scope="module")
def offered_answers(model):
    """The same where only the model's tools are offered: a run may have called others."""
    names = [tool.name for tool in TOOLS]
    return [dict(model.rank(query, calls, offered=names)) for query, calls in STATES]


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("one") / "model"
    model.save(path)
    return path


def test_the_states_differ_where_outputs_are_read(model, answers):
    names = [dict(model.rank(query, [item["tool"] for item in calls])) for query, calls in STATES]
    assert (names != answers) == model.uses_calls
    assert len({json.dumps(sorted(answer.items())) for answer in answers}) > 3


def test_batches_runs_and_prepared_queries_have_one_answer(model, answers):
    runs = [Run.from_dict({"query": query, "calls": calls}) for query, calls in STATES]
    for order in (1, -1):
        batch = model.rank_batch(runs[::order])
        assert [dict(ranking) for ranking in batch] == answers[::order]
    assert [dict(model.rank(run)) for run in runs] == answers
    again = [Run.from_dict(json.loads(json.dumps(run.to_dict()))) for run in runs]
    assert [run.calls for run in again] == [run.calls for run in runs]
    assert [dict(ranking) for ranking in model.rank_batch(again)] == answers
    prepared = {query: model.prepare(query) for query, _ in STATES}
    assert [dict(prepared[query](calls)) for query, calls in reversed(STATES)] == answers[::-1]


def test_sessions_have_one_answer_whether_they_rank_at_each_step_or_once(model, answers):
    place = 0
    for query, calls in RUNS:
        session = model.session(query)
        for count in range(len(calls) + 1):
            if count:
                session.call(**calls[count - 1])
            assert dict(session.rank()) == answers[place]
            late = model.session(query)
            for item in calls[:count]:
                late.call(ToolCall(**item))
            assert dict(late.rank()) == answers[place]
            run = Run.from_dict({"query": query, "calls": calls[:count]})
            assert dict(model.session(run).rank()) == answers[place]
            place += 1
    assert place == len(STATES)


def test_what_came_before_counts_alike_everywhere(model):
    (asked, earlier), last = RUNS[0], RUNS[1]
    earlier = json.loads(json.dumps(earlier).replace('{"$ref": "', '{"$ref": "e'))
    before = [
        {"role": "user", "content": asked},
        *({"role": "call", **item, "id": f"e{item['id']}"} for item in earlier),
        {"role": "assistant", "content": "It is done. " * 400},
    ]
    query, calls = last
    answer = dict(model.rank(query, calls, before=before))
    run = Run.from_dict({"query": query, "before": before, "calls": calls})
    (batch,) = model.rank_batch([run])
    prepared = model.prepare(run)
    rankings = (batch, model.rank(run), model.session(run).rank(), prepared(calls))
    assert all(dict(ranking) == answer for ranking in rankings)


OFFERED = ["read_file", "find_contact", "log", "not_known"]
"""What a run can call: some tools of the model, and one that it does not know."""


@pytest.fixture(scope="module")
def answers_among(answers):
    """Of each state, the probabilities given that only what is offered can be called."""
    parts = [
        {name: answer[name] for name in answer if name in (*OFFERED, "end")} for answer in answers
    ]
    totals = [sum(part.values()) for part in parts]
    return [
        {name: part[name] / total if total else 1 / len(part) for name in part}
        for part, total in zip(parts, totals, strict=True)
    ]


def test_what_is_offered_counts_alike_everywhere(model, answers_among):
    records = [{"query": query, "calls": calls, "offered": OFFERED} for query, calls in STATES]
    runs = [Run.from_dict(record) for record in records]
    among = [dict(ranking) for ranking in model.rank_batch(runs)]
    assert among == [pytest.approx(answer) for answer in answers_among]
    assert list(among[0]) == list(answers_among[0])
    assert [dict(model.rank(*state, offered=OFFERED)) for state in STATES] == among
    assert [dict(model.session(run).rank()) for run in runs] == among
    assert [dict(model.session(Run(r.query, (), r.calls)).rank(OFFERED)) for r in runs] == among
    assert [dict(model.prepare(run)(run.calls)) for run in runs] == among
    mask = ToolMask(model, ToolPolicy(top_k=len(TOOLS) + 1))
    for (query, calls), answer in zip(STATES, among, strict=True):
        body = {**openai_body(query, calls), "tools": [{"name": name} for name in OFFERED]}
        assert dict(openai.select(body, mask).weights) == weights_of(answer)


def test_a_saved_model_has_one_answer(folder, answers):
    loaded = dtdr.load(folder)
    assert [dict(loaded.rank(query, calls)) for query, calls in STATES] == answers


# -- masks -----------------------------------------------------------------------------------------


def by_step(calls):
    steps: dict[int, list[Any]] = {}
    for item in calls:
        steps.setdefault(item["step"], []).append(item)
    return steps.values()


def text_of(output):
    return output if isinstance(output, str) else json.dumps(output)


def openai_body(query, calls):
    messages = [{"role": "user", "content": query}]
    for some in by_step(calls):
        asked = [
            {
                "id": f"c{item['id']}",
                "type": "function",
                "function": {"name": item["tool"], "arguments": json.dumps(item["arguments"])},
            }
            for item in some
        ]
        messages.append({"role": "assistant", "content": None, "tool_calls": asked})
        messages += [
            {"role": "tool", "tool_call_id": f"c{item['id']}", "content": text_of(item["output"])}
            for item in some
        ]
    tools = [{"type": "function", "function": {"name": tool.name}} for tool in TOOLS]
    return {"messages": messages, "tools": tools}


def weights_of(answer):
    return {name: answer[name] for name in answer if name != "end"}


def test_masks_have_one_answer(model, offered_answers):
    mask = ToolMask(model, ToolPolicy(top_k=len(TOOLS) + 1, sticky="grow"))
    for (query, calls), answer in zip(STATES, offered_answers, strict=True):
        selection = openai.select(openai_body(query, calls), mask)
        assert not selection.failure
        assert dict(selection.weights) == weights_of(answer)
        run = mask.run(query)
        for item in calls:
            run.call(**item)
        assert run.select([tool.name for tool in TOOLS]).weights == weights_of(answer)


# -- other processes -------------------------------------------------------------------------------


def rounded(answer):
    """As answers in JSON have them."""
    return {name: round(value, 6) for name, value in answer.items()}


def test_the_command_line_has_one_answer(folder, answers, tmp_path):
    from dtdr.cli import app

    for (query, calls), answer in zip(STATES[-4:], answers[-4:], strict=True):
        path = tmp_path / "run.json"
        path.write_text(json.dumps({"query": query, "calls": calls}))
        printed = invoke(app, "rank", folder, "--run", path, "--top-k", "0", "--json").stdout
        shown = json.loads(printed)["tools"]
        assert {item["tool"]: item["probability"] for item in shown} == rounded(answer)
    path.write_text(json.dumps({"query": query, "calls": calls, "offered": OFFERED}))
    printed = invoke(app, "rank", folder, "--run", path, "--top-k", "0", "--json").stdout
    assert {item["tool"] for item in json.loads(printed)["tools"]} == {*OFFERED[:3], "end"}


@pytest.fixture(scope="module")
def served(folder):
    pytest.importorskip("msgspec", reason="the HTTP server needs the extra 'server'")
    pytest.importorskip("httpx2", reason="these tests speak HTTP with httpx2")
    from dtdr.serve.studio.routes import Studio
    from tests.server import serving

    with serving.serve(serving.settings(folder), more=Studio().endpoints) as found:
        yield found


def test_the_server_and_its_client_have_one_answer(served, model, answers):
    queries, histories = zip(*STATES[-5:], strict=True)
    top: Any = {"top_k": len(TOOLS) + 2}  # with the end of plan and a tool of the run
    with dtdr.Client(served.url) as client:
        ranked = [dict(client.rank(*step, **top)) for step in STATES]
        assert ranked == list(map(rounded, answers))
        expected = ranked[-5:]
        steps = [{"query": query, "history": calls} for query, calls in STATES[-5:]]
        batch = served.post("/v1/rank/batch", {"steps": steps, **top}).json()["rankings"]
        assert [
            {item["tool"]: item["probability"] for item in ranking["tools"]} for ranking in batch
        ] == expected
        with client.session(queries[0]) as session:
            assert dict(session.rank(**top)) == expected[0]
            for item, ranking in zip(histories[-1], expected[1:], strict=True):
                assert dict(session.call(item).rank(**top)) == ranking
        query, calls = STATES[-1]
        among = rounded(dict(model.rank(query, calls, offered=OFFERED)))
        top["offered"] = OFFERED
        assert dict(client.rank(query, calls, **top)) == among
        with client.session(query, calls) as session:
            assert dict(session.rank(**top)) == among


def test_the_gateway_has_one_answer(model, answers):
    pytest.importorskip("mcp", reason="the gateway needs the extra 'mcp'")
    from dtdr.agents.gateway.clients import ClientState
    from dtdr.agents.gateway.ranking import ClientRanker
    from dtdr.conversation.events import LoggedCall
    from dtdr.data.outputs import parse_output

    ranker = ClientRanker(model, ToolPolicy())
    for (query, calls), answer in zip(STATES, answers, strict=True):
        state = ClientState("client", intent=query)
        state.calls = [
            LoggedCall(
                item["tool"],
                item["arguments"],
                item["step"] + int(item["id"]) / 100,  # no two calls come at one time
                item["step"] + 0.5,
                item["id"],
                parse_output(item["output"]),
                looks_failed(item["output"]),
            )
            for item in calls
        ]
        assert ranker._model is not None
        assert dict(ranker._model.rank(query, state.read_calls())) == answer
