"""The studio's endpoints over a real socket: the same figures as counted by hand."""

import base64
import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from dtdr import load, read_demonstrations
from dtdr.cli import run as run_command
from dtdr.data.calls import ToolCall, renumber_calls
from dtdr.rankers.selection import count_tokens
from dtdr.serve.server import Settings
from dtdr.serve.studio.routes import Studio
from tests.server import serving
from tests.server.serving import refused

QUERY = "Mail Ann the summary of q3.pdf"


@pytest.fixture(scope="module")
def runs(folder):
    return list(read_demonstrations(folder / "demonstrations.jsonl"))


@pytest.fixture(scope="module")
def model(folder):
    return load(folder / "model")


def by_name(graph):
    return {node["name"]: node for node in graph["nodes"] if node["kind"] == "tool"}


def edges_by_name(graph):
    names = [node["name"] for node in graph["nodes"]]
    return {(names[edge["source"]], names[edge["target"]]): edge for edge in graph["edges"]}


def test_what_there_is_to_look_at(studio):
    opening = studio.get("/")
    assert (opening.status_code, opening.headers["location"]) == (307, "/studio")
    answer = studio.get("/v1/studio")
    assert answer.headers["x-content-type-options"] == "nosniff"
    about = answer.json()
    assert about["data"] == "demonstrations.jsonl"
    assert about["runs"] == 60
    assert about["models"][0] | {"demonstrations": 0} == {
        "name": "mail",
        "retriever": "dtdr-f",
        "tools": 6,
        "demonstrations": 0,
        "has_arguments": True,
    }
    assert about["may_learn"] is False


def test_the_graph_counts_what_the_runs_contain(ask, runs):
    graph = ask("/v1/studio/graph")
    calls = Counter(name for run in runs for name in run.plan.tools)
    assert {name: node["calls"] for name, node in by_name(graph).items()} == dict(calls)
    pairs = Counter(pair for run in runs for pair in pairwise(["start", *run.plan.tools, "end"]))
    edges = edges_by_name(graph)
    assert {pair: edge["order"] for pair, edge in edges.items() if edge["order"]} == dict(pairs)
    out = Counter(name for name, _ in pairs.elements())
    for (source, target), edge in edges.items():
        share = pairs[source, target] / max(out[source], 1)
        assert edge["probability"] == pytest.approx(share, abs=1e-6)
    used = Counter(
        (run.plan.tools[one], run.plan.tools[two]) for run in runs for one, two in run.plan.edges()
    )
    assert {pair: edge["dependency"] for pair, edge in edges.items() if edge["dependency"]} == used
    assert graph["runs"] == len(runs)
    twice = sum(run.plan.tools == ("read_file", "read_file") for run in runs)
    assert by_name(graph)["read_file"]["repeats"] == twice


def test_filters_count_the_matching_runs_alone(ask, runs):
    rome = [run for run in runs if "rome" in run.query.lower()]
    assert 0 < len(rome) < len(runs)
    graph = ask("/v1/studio/graph", filter={"text": " ROME "})
    assert graph["runs"] == len(rome)
    assert ask("/v1/studio/graph", filter={"outcome": "failure"})["runs"] == 0
    assert ask("/v1/studio/runs", filter={"text": "Rome"})["total"] == len(rome)
    calling = ask("/v1/studio/runs", filter={"tool": "weather"}, limit=200)["runs"]
    assert [item["position"] for item in calling] == [
        at for at, run in enumerate(runs) if "weather" in run.plan.tools
    ]


def test_a_tool_tells_what_comes_before_and_after_it(ask, runs):
    names = [
        node["name"] for node in ask("/v1/studio/graph", tool="find_contact", limit=4)["nodes"]
    ]
    assert names[0] == "find_contact"
    assert {"send_mail", "weather"} < set(names)
    assert len(names) <= 5
    tool = ask("/v1/studio/tool", tool="send_mail")
    assert tool["description"] == "Send an e-mail"
    assert [item["tool"] for item in tool["before"]] == ["find_contact"]
    assert [item["tool"] for item in tool["after"]] == [None]
    assert tool["calls"] == sum(run.plan.tools.count("send_mail") for run in runs)
    argument = tool["arguments"][0]
    assert argument["argument"] == "input"
    assert argument["sources"] == {"output": tool["calls"]}
    assert argument["tools"] == ["find_contact"]


def test_a_run_can_be_ranked_step_by_step(studio, ask, model, runs):
    record = ask("/v1/studio/run", position=0)
    assert record == ask("/v1/studio/run", id=runs[0].id)
    assert record["query"] == runs[0].query
    history = []
    for made in record["calls"]:
        history.append({key: made[key] for key in ("tool", "arguments", "output") if key in made})
        step = {"query": record["query"], "history": history, "top_k": 1}
        ranked = studio.post("/v1/rank", step).json()
    assert [call["tool"] for call in history] == list(runs[0].plan.tools)
    assert ranked["tools"][0]["tool"] == "end"


def test_ids_of_a_run_are_counted_from_one_and_references_follow():
    find = ToolCall("a", "find", {"who": "Ann"})
    mail = ToolCall("z", "mail", {"to": [{"$ref": "a", "path": "/mail"}], "all": {"x": "a"}})
    calls = renumber_calls([find, mail])
    assert [call.id for call in calls] == ["1", "2"]
    assert calls[1].arguments == {"to": [{"$ref": "1", "path": "/mail"}], "all": {"x": "a"}}


def test_why_is_that_of_the_library(ask, model):
    found = ask("/v1/explain", query=QUERY, history=["read_file"], tool="weather")
    expected = model.rank(QUERY, ["read_file"]).explain("weather").to_dict()
    assert found["explanation"] == json.loads(json.dumps(expected))
    told = [{"tool": "read_file", "output": "text"}]
    assert ask("/v1/explain", query=QUERY, history=told)["explanation"]["contributions"]


def test_shown_tools_are_those_of_the_policy(ask, model):
    found = ask("/v1/studio/shown", query=QUERY, history=["read_file"], policy={"top_k": 2})
    best = [name for name in model.rank(QUERY, ["read_file"]).tools if name != "end"][:2]
    assert {item["tool"] for item in found["shown"]} == {*best, "read_file"}
    costs = {tool.name: count_tokens(tool.to_dict()) for tool in model.tools_[:-1]}
    assert found["tokens"] == sum(costs[item["tool"]] for item in found["shown"])
    assert found["all_tokens"] == sum(costs.values())
    assert found["hidden"] == 6 - len(found["shown"])
    assert [item["called"] for item in found["steps"]] == ["", "read_file"]
    step = {"query": QUERY, "history": ["read_file", "summarize"]}
    grown = ask("/v1/studio/shown", **step, policy={"top_k": 1, "sticky": "grow"})
    sizes = [item["shown"] for item in grown["steps"]]
    assert sizes == sorted(sizes)


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/studio/graph", {"tool": "<b>nobody</b>"}, 404),
        ("/v1/studio/tool", {"tool": "nobody"}, 404),
        ("/v1/studio/graph", {"limit": 0}, 422),
        ("/v1/studio/graph", {"filter": {"txt": "a"}}, 422),
        ("/v1/studio/shown", {"query": QUERY, "policy": {"sticky": "always"}}, 422),
        ("/v1/explain", {"query": QUERY, "tool": "nobody"}, 422),
        ("/v1/studio/runs", {"sort": "name"}, 422),
        ("/v1/studio/runs", {"filter": {"text": "(", "regex": True}}, 422),
        ("/v1/studio/runs", {"filter": {"since": "soon"}}, 422),
        ("/v1/studio/run", {"position": 60}, 404),
        ("/v1/studio/run", {"position": -1}, 422),
        ("/v1/studio/run", {"position": 1.5}, 422),
        ("/v1/studio/graph", {"model": "none"}, 404),
    ],
)
def test_refusals_are_one_sentence(studio, path, body, status):
    assert refused(studio.post(path, body), status)


# -- who may ask -------------------------------------------------------------------------------


def test_the_page_allows_nothing_from_elsewhere(studio):
    for path in ("/studio", "/studio/studio.js", "/studio/studio.css", "/studio/icon.svg"):
        response = studio.get(path)
        assert response.status_code == 200
        policy = response.headers["content-security-policy"]
        assert policy.startswith("default-src 'self';")
        assert "unsafe" not in policy
        assert response.headers["x-content-type-options"] == "nosniff"
        assert studio.get(path, headers={"host": "evil.example"}).status_code == 421
    body = {"query": QUERY}
    assert studio.post("/v1/explain", body, headers={"origin": "http://evil"}).status_code == 403
    page = studio.get("/studio").text
    assert "http" not in page.replace("http-equiv", ""), "nothing is loaded from elsewhere"
    assert "style=" not in page
    assert "<script>" not in page


def test_a_studio_that_only_reads_changes_no_model(studio, folder):
    before = (folder / "model" / "model.safetensors").read_bytes()
    demonstrations = [{"query": "a", "calls": ["weather"]}]
    for path, body in (
        ("/v1/feedback", {"demonstrations": demonstrations}),
        ("/v1/models/mail/tools", {"remove": ["weather"]}),
        ("/v1/models/mail/save", None),
        ("/v1/models/mail/reload", None),
    ):
        assert "--learn" in refused(studio.post(path, body), 403)
    assert studio.get("/v1/models/mail").json()["generation"] == 1
    assert (folder / "model" / "model.safetensors").read_bytes() == before


# -- without a file of runs --------------------------------------------------------------------


def test_without_data_the_map_shows_the_plans_that_the_model_kept(folder, ask):
    with serving.serve(serving.settings(folder / "model"), more=Studio().endpoints) as served:
        kept = served.post("/v1/studio/graph", {}).json()
        assert kept == ask("/v1/studio/graph")
        assert served.post("/v1/studio/run", {"position": 0}).status_code == 404
        answer = served.post("/v1/studio/misses", {}).json()
        assert "--data FILE" in answer["scoring"]
        assert answer["working"] is False


# -- predicted beside actual -------------------------------------------------------------------


def ask_until_scored(ask, path, **body):
    answers: list[dict] = []

    def scored():
        answers.append(ask(path, **body))
        return not answers[-1]["working"]

    serving.wait_until(scored)
    return answers[-1]


def test_the_misses_are_those_of_evaluate(ask, folder, runs, capsys):
    found = ask_until_scored(ask, "/v1/studio/misses")
    data, model = str(folder / "demonstrations.jsonl"), str(folder / "model")
    assert run_command(["evaluate", data, "--model", model, "--json"]) == 0
    expected = json.loads(capsys.readouterr().out)
    (result,) = expected["results"]
    assert found["metrics"] == pytest.approx({name: result[name] for name in found["metrics"]})
    assert found["steps"] == result["steps"]
    shares = {cause: round(count / found["steps"], 6) for cause, count in found["causes"].items()}
    causes = result["next_calls"]["causes"]
    assert shares == pytest.approx({cause: share for cause, share in causes.items() if share})
    assert len(found["mistakes"]) >= len(result["mistakes"])
    for item, other in zip(found["mistakes"], result["mistakes"], strict=False):
        for name in ("id", "query", "history", "predicted", "called"):
            assert item[name] == other[name]
    assert [runs[at].id for at in found["positions"]] == [item["id"] for item in found["mistakes"]]
    assert found["branches"] == []  # these runs have no outputs
    wrong = round(found["steps"] * (1 - found["metrics"]["top1"]))
    assert sum(item["count"] for item in found["confusions"]) == wrong


def test_runs_are_scored_sorted_and_filtered(ask, runs, model):
    ask_until_scored(ask, "/v1/studio/misses")
    listed = ask("/v1/studio/runs", sort="rank", limit=200)
    assert (listed["total"], listed["scoring"]) == (60, "")
    lowest = [line["score"]["lowest"] or 999 for line in listed["runs"] if line["score"]]
    assert lowest == sorted(lowest, reverse=True)
    for line in listed["runs"]:
        run = runs[line["position"]]
        if run.outcome == "failure":
            assert line["score"] is None
            continue
        ranks = [
            min(model.rank(run.query, step.history).tools.index(tool) for tool in step.acceptable)
            + 1
            for step in run.plan.steps()
        ]
        score = {"steps": len(ranks), "right": ranks.count(1), "lowest": max(ranks)}
        assert line["score"] == score
        steps = ask("/v1/studio/run", position=line["position"])["steps"]
        assert [step["rank"] for step in steps] == ranks
        assert [step["called"] for step in steps] == [*run.plan.tools, "end"]
    missed = ask("/v1/studio/runs", misses=True, limit=200)
    wrong = [line for line in listed["runs"] if line["score"] and line["score"]["lowest"] != 1]
    assert missed["total"] == len(wrong)
    calls = [line["calls"] for line in ask("/v1/studio/runs", sort="calls")["runs"]]
    assert calls == sorted(calls, reverse=True)


def test_runs_are_filtered_by_a_regular_expression_and_by_day(folder, tmp_path):
    days = ("2026-03-01T23:59:00Z", "2026-03-02T00:00:00Z", "2026-03-05T12:00:00Z", None)
    path = tmp_path / "dated.jsonl"
    with path.open("w") as stream:
        for at, day in enumerate(days):
            record = {"id": str(at), "query": f"Mail {at}", "calls": ["weather"]}
            stream.write(json.dumps(record if day is None else record | {"time": day}) + "\n")
    with serving.serve(serving.settings(folder / "model"), more=Studio(path).endpoints) as served:

        def positions(**chosen):
            answer = served.post("/v1/studio/runs", {"filter": chosen}).json()
            return [line["position"] for line in answer["runs"]]

        assert positions(text="^mail [02]", regex=True) == [0, 2]
        assert positions(text="^mail [02]") == []
        assert positions(since="2026-03-02") == [1, 2]
        assert positions(until="2026-03-02") == [0, 1]
        assert positions(since="2026-03-02", until="2026-03-02") == [1]


def test_tools_count_calls_and_failures_and_never_called_ones_come_last(ask, runs, model):
    lines = ask("/v1/studio/tools")["tools"]
    calls = Counter(name for run in runs for name in run.plan.tools)
    assert {line["tool"]: line["calls"] for line in lines if line["calls"]} == dict(calls)
    assert {line["tool"] for line in lines} == {*calls, *model.vocabulary[:-1]}
    counts = [line["calls"] for line in lines]
    assert counts == sorted(counts, reverse=True)
    for line in lines:
        follows = Counter(
            after
            for run in runs
            for tool, after in pairwise([*run.plan.tools, None])
            if tool == line["tool"]
        )
        if follows:
            assert line["share"] == pytest.approx(max(follows.values()) / follows.total(), abs=1e-6)
            assert follows[line["next"]] == max(follows.values())


def test_the_runs_of_a_raw_log_are_shown():
    log = Path(__file__).parents[2] / "examples" / "hotel" / "openai-chat.jsonl"
    runs = Studio(log)._runs
    assert runs is not None
    assert len(runs.demonstrations) == 300
    assert runs.demonstrations[0].plan.tools


def test_runs_of_another_agent_are_one_sentence(folder, tmp_path):
    path = tmp_path / "other.jsonl"
    path.write_text('{"id": "1", "query": "a", "calls": [{"id": "1", "tool": "nobody"}]}\n')
    with serving.serve(serving.settings(folder / "model"), more=Studio(path).endpoints) as served:
        said = ask_until_scored(lambda path: served.post(path, {}).json(), "/v1/studio/misses")
    assert "knows none of the tools" in said["scoring"]


# -- a dropped log -----------------------------------------------------------------------------


@pytest.fixture
def empty_studio():
    """A studio without a model, which takes logs."""
    endpoints = Studio().endpoints
    with serving.serve(Settings({}, port=0, read_only=True), more=endpoints) as served:
        yield served


def drop(served, content, name="runs.jsonl", part=4_000):
    """Send a log in parts, as the page does; return the last state."""
    for offset in range(0, max(len(content), 1), part):
        piece = base64.b64encode(content[offset : offset + part]).decode()
        place = {"offset": offset, "is_last": offset + part >= len(content)}
        response = served.post("/v1/studio/log", {"name": name, "content": piece, **place})
        assert response.status_code == 200, response.text
    serving.wait_until(lambda: not served.get("/v1/studio/log").json()["working"], 120)
    return served.get("/v1/studio/log").json()


def test_a_dropped_log_gives_a_model_and_figures_of_the_runs_it_did_not_learn(
    empty_studio, folder, runs
):
    assert empty_studio.get("/v1/studio").json()["models"] == []
    state = drop(empty_studio, (folder / "demonstrations.jsonl").read_bytes())
    assert state["model"] == "runs"
    about = empty_studio.get("/v1/studio").json()
    assert about["runs"] == len(runs)
    learned = about["models"][0]["demonstrations"]
    assert 0.7 * len(runs) < learned < len(runs)
    misses = ask_until_scored(lambda path: empty_studio.post(path, {}).json(), "/v1/studio/misses")
    assert misses["runs"] == len(runs) - learned


def test_dropped_logs_replace_each_other_but_no_model_of_the_server(folder):
    content = b"".join((folder / "demonstrations.jsonl").read_bytes().splitlines(True)[:5])
    settings = serving.settings(folder / "model", read_only=True)
    with serving.serve(settings, more=Studio().endpoints) as served:
        for name, model in (("runs.jsonl", "runs"), ("mail.jsonl", "mail-log")):
            assert drop(served, content, name)["model"] == model
            about = served.get("/v1/studio").json()
            assert [each["name"] for each in about["models"]] == ["mail", model]


@pytest.mark.parametrize("content", [b"", b"no log\n", b'{"a": 1}\n'])
def test_a_file_that_is_not_a_log_is_refused_in_one_sentence(empty_studio, content):
    part = {"name": "a", "content": "", "offset": 7, "is_last": True}
    assert empty_studio.post("/v1/studio/log", part).status_code == 422, "a part is missing"
    state = drop(empty_studio, content, "notes.txt")
    assert state["model"] == ""
    assert state["stage"].startswith("notes.txt cannot be used: ")
    assert "/tmp" not in state["stage"]
