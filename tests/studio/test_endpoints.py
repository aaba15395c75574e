"""The studio's endpoints over a real socket: the same figures as counted by hand."""

import json
from collections import Counter
from itertools import pairwise

import pytest

from dtdr import load, read_demonstrations
from dtdr.cli import run as run_command
from dtdr.cli.studio import studio_endpoints
from dtdr.llm.prompting import SelectionPrompts
from dtdr.rankers.selection import Selection, count_tokens
from dtdr.serve.server.keys import create_key
from tests.server import serving

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


def test_json_of_the_studio_is_not_guessed_to_be_something_else(studio):
    assert studio.get("/v1/studio").headers["x-content-type-options"] == "nosniff"


def test_the_address_of_the_server_opens_the_studio(studio):
    response = studio.get("/")
    assert response.status_code == 307
    assert response.headers["location"] == "/studio"


def test_what_there_is_to_look_at(studio):
    about = studio.get("/v1/studio").json()
    assert about["data"] == "demonstrations.jsonl"
    assert about["runs"] == 60
    assert about["models"][0] | {"demonstrations": 0} == {
        "name": "mail",
        "retriever": "dtdr-f",
        "tools": 6,
        "demonstrations": 0,
        "has_arguments": True,
        "can_learn": True,
    }
    assert about["has_lab"] is about["may_learn"] is False


@pytest.mark.parametrize("whole", [False, True])
def test_the_graph_counts_what_the_runs_hold(ask, runs, whole):
    graph = ask("/v1/studio/graph", whole=whole)
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
    assert all(0 <= node[axis] <= 1 for node in graph["nodes"] for axis in "xy")
    assert graph["runs"] == len(runs)


def test_loops_are_counted(ask, runs):
    loops = {tuple(item["tools"]): item["count"] for item in ask("/v1/studio/graph")["loops"]}
    twice = sum(run.plan.tools == ("read_file", "read_file") for run in runs)
    assert loops == {("read_file",): twice}
    node = by_name(ask("/v1/studio/graph"))["read_file"]
    assert node["repeats"] == twice


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


def test_neighbours_of_a_tool_are_drawn_around_it(ask):
    graph = ask("/v1/studio/graph", tool="find_contact", limit=4)
    places = {node["name"]: node["x"] for node in graph["nodes"]}
    assert places["find_contact"] == 0.5
    assert places["send_mail"] > 0.5 > places["weather"]
    assert len(places) <= 5


def test_a_tool_tells_what_comes_before_and_after_it(ask, runs):
    tool = ask("/v1/studio/tool", tool="send_mail")
    assert tool["description"] == "Send an e-mail"
    assert [item["tool"] for item in tool["before"]] == ["find_contact"]
    assert [item["tool"] for item in tool["after"]] == [None]
    assert tool["calls"] == sum(run.plan.tools.count("send_mail") for run in runs)
    argument = tool["arguments"][0]
    assert argument["argument"] == "input"
    assert argument["sources"] == {"output": tool["calls"]}
    assert argument["tools"] == ["find_contact"]
    assert all("send_mail" in item["tools"] for item in tool["examples"])


def test_a_run_can_be_played_into_a_session(studio, ask, model, runs):
    record = studio.get("/v1/studio/runs/0").json()
    assert record["query"] == runs[0].query
    opened = studio.post("/v1/sessions", {"query": record["query"], "rank": {}}).json()
    for made in record["calls"]:
        call = {key: made[key] for key in ("tool", "arguments", "output") if key in made}
        path = f"/v1/sessions/{opened['session']}/call"
        opened = studio.post(path, {"tools": [call], "rank": {"top_k": 1}}).json()
    assert opened["history"] == list(runs[0].plan.tools)
    assert opened["ranking"]["tools"][0]["tool"] == "end"


def test_ids_of_a_run_are_counted_from_one_and_references_follow():
    from dtdr.data.calls import ToolCall, renumber_calls

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
    grown = ask(
        "/v1/studio/shown",
        query=QUERY,
        history=["read_file", "summarize"],
        policy={"top_k": 1, "sticky": "grow"},
    )
    assert [item["shown"] for item in grown["steps"]] == sorted(
        item["shown"] for item in grown["steps"]
    )


def test_the_prompt_is_that_of_the_library_and_says_what_is_cached(ask, model):
    found = ask(
        "/v1/studio/prompt", query=QUERY, history=["read_file"], icl="none", policy={"top_k": 3}
    )
    writer = SelectionPrompts(model.tools_, icl="none")
    shown = model.rank(QUERY, ["read_file"]).select(Selection(top_k=3))
    assert found["prompt"]["text"].endswith(
        writer.prompt(QUERY, model.session(QUERY).call("read_file").run.calls, shown).varying
    )
    text, before = found["prompt"]["text"], found["previous"]["text"]
    assert text[: found["cached"]] == before[: found["cached"]]
    assert text[found["cached"]] != before[found["cached"]]
    assert found["cached_tokens"] == count_tokens(text[: found["cached"]])
    first = ask("/v1/studio/prompt", query=QUERY)
    assert first["previous"] is None
    assert first["cached"] == 0


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/studio/graph", {"tool": "<b>nobody</b>"}, 404),
        ("/v1/studio/tool", {"tool": "nobody"}, 404),
        ("/v1/studio/graph", {"limit": 0}, 422),
        ("/v1/studio/graph", {"filter": {"txt": "a"}}, 422),
        ("/v1/studio/prompt", {"query": QUERY, "icl": "nothing"}, 422),
        ("/v1/studio/prompt", {"query": " "}, 422),
        ("/v1/studio/shown", {"query": QUERY, "policy": {"sticky": "always"}}, 422),
        ("/v1/explain", {"query": QUERY, "tool": "nobody"}, 422),
        ("/v1/studio/lab", {}, 404),
        ("/v1/studio/graph", {"model": "none"}, 404),
    ],
)
def test_refusals_are_one_sentence(studio, path, body, status):
    response = studio.post(path, body)
    assert response.status_code == status, response.text
    assert response.json()["error"]["message"]


@pytest.mark.parametrize("position", ["60", "-1", "1.5", "x", "9" * 20, "٣"])
def test_a_run_that_is_not_there_is_refused(studio, position):
    assert studio.get(f"/v1/studio/runs/{position}").status_code in (404, 422)


# -- who may ask -------------------------------------------------------------------------------


def test_other_pages_and_hosts_are_refused(studio):
    body = {"query": QUERY}
    assert studio.post("/v1/explain", body, headers={"origin": "http://evil"}).status_code == 403
    assert studio.get("/studio", headers={"host": "evil.example"}).status_code == 421


def test_the_page_allows_nothing_from_elsewhere(studio):
    for path in ("/studio", "/studio/studio.js", "/studio/studio.css", "/studio/icon.svg"):
        response = studio.get(path)
        assert response.status_code == 200
        policy = response.headers["content-security-policy"]
        assert policy.startswith("default-src 'self';")
        assert "unsafe" not in policy
        assert response.headers["x-content-type-options"] == "nosniff"
        again = studio.get(path, headers={"if-none-match": response.headers["etag"]})
        assert again.status_code == 304
    page = studio.get("/studio").text
    assert "http" not in page.replace("http-equiv", ""), "nothing is loaded from elsewhere"
    assert "style=" not in page
    assert "<script>" not in page


def test_a_studio_that_only_reads_changes_no_model(studio, folder):
    before = (folder / "model" / "model.safetensors").read_bytes()
    demonstrations = [{"query": "a", "calls": ["weather"]}]
    for path, body in (
        ("/v1/feedback", {"demonstrations": demonstrations}),
        ("/v1/models/mail/save", None),
        ("/v1/models/mail/reload", None),
    ):
        response = studio.post(path, body)
        assert response.status_code == 403
        assert "--learn" in response.json()["error"]["message"]
    assert studio.get("/v1/models/mail").json()["generation"] == 1
    assert (folder / "model" / "model.safetensors").read_bytes() == before


def test_with_keys_the_page_is_open_and_what_it_asks_for_is_not(folder, tmp_path):
    key, _ = create_key(tmp_path / "keys.json", role="rank", note="")
    settings = serving.settings(folder / "model", keys=tmp_path / "keys.json")
    endpoints = studio_endpoints(folder / "demonstrations.jsonl", None)
    with serving.serve(settings, more=endpoints) as served:
        assert served.get("/studio").status_code == 200
        assert served.get("/studio/studio.js").status_code == 200
        assert served.get("/v1/studio").status_code == 401
        assert served.post("/v1/studio/graph", {}).status_code == 401
        about = served.get("/v1/studio", headers={"x-api-key": key}).json()
        assert about["may_learn"] is False


def test_a_server_without_a_studio_has_no_page(folder):
    with serving.serve(serving.settings(folder / "model")) as served:
        assert served.get("/studio").status_code == 404
        assert served.get("/v1/studio").status_code == 404
        assert "/v1/studio" not in served.get("/openapi.json").json()["paths"]
        assert served.post("/v1/explain", {"query": QUERY}).status_code == 200


# -- without a file of runs --------------------------------------------------------------------


def test_without_data_the_map_shows_the_plans_that_the_model_kept(folder, ask):
    with serving.serve(
        serving.settings(folder / "model"), more=studio_endpoints(None, None)
    ) as served:
        kept = served.post("/v1/studio/graph", {}).json()
        whole = ask("/v1/studio/graph")
        assert kept == whole
        assert served.get("/v1/studio/runs/0").status_code == 404


def test_a_model_that_keeps_no_plans_has_an_empty_map(folder, tmp_path):
    serving.fit(tmp_path / "model", retriever="dtdr-l")
    with serving.serve(
        serving.settings(tmp_path / "model"), more=studio_endpoints(None, None)
    ) as served:
        graph = served.post("/v1/studio/graph", {}).json()
        assert graph["runs"] == graph["tools"] == 0
        assert len(graph["uncalled"]) == 6


# -- a lab -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lab(folder, tmp_path_factory):
    cache = tmp_path_factory.mktemp("lab")
    data = str(folder / "demonstrations.jsonl")
    arguments = ["lab", "run", "retrieval", "--data", data, "--cache", str(cache), "--seeds", "1"]
    for name in ("dr", "bm25"):
        arguments += ["--retriever", name]
    assert run_command([*arguments, "--output", str(cache / "report"), "--workers", "1"]) == 0
    endpoints = studio_endpoints(folder / "demonstrations.jsonl", cache)
    with serving.serve(serving.settings(folder / "model"), more=endpoints) as served:
        yield served


def test_two_runs_of_a_lab_stand_side_by_side(lab):
    listed = lab.post("/v1/studio/lab", {}).json()
    runs = {item["method"].split()[0]: item for item in listed["runs"]}
    assert {"dr", "bm25"} <= runs.keys()
    body = {"first": runs["bm25"]["key"], "second": runs["dr"]["key"]}
    found = lab.post("/v1/studio/lab/compare", body).json()
    means = [found[side]["means"]["mrr"] for side in ("first", "second")]
    assert means[0] != means[1]
    assert found["difference"]["low"] <= found["difference"]["difference"]
    for side in (found["first"], found["second"]):
        assert side["recall"] == sorted(side["recall"])
        assert side["recall"][4] == pytest.approx(side["means"]["recall@5"])
        assert side["by_step"][0]["steps"] == side["plans"]
        assert sum(one["steps"] for one in side["by_step"]) <= side["steps"]
        assert all(0 <= one["top1"] <= 1 and one["steps"] >= 5 for one in side["by_step"])
    same = lab.post("/v1/studio/lab/compare", {**body, "first": body["second"]}).json()
    assert same["difference"]["difference"] == 0
    assert lab.post("/v1/studio/lab/compare", {"first": "none"}).status_code == 422


def test_worst_steps_say_what_to_open_in_the_run_view(lab, runs):
    listed = lab.post("/v1/studio/lab", {}).json()["runs"]
    key = next(item["key"] for item in listed if item["method"].startswith("bm25"))
    worst = lab.post("/v1/studio/lab/compare", {"first": key}).json()["worst"]
    ranks = [item["rank"] for item in worst if item["rank"]]
    assert ranks == sorted(ranks, reverse=True)
    plans = {run.id: run for run in runs}
    for step in worst:
        run = plans[step["plan"]]
        assert step["query"] == run.query
        assert tuple(step["history"]) == run.plan.tools[: len(step["history"])]
        assert set(step["acceptable"]) == run.plan.acceptable_next(range(len(step["history"])))


def test_the_report_of_a_lab_is_text_and_tables(lab):
    report = lab.post("/v1/studio/lab/report", {}).json()
    tables = [block for part in report["sections"] for block in part["blocks"] if block["columns"]]
    assert tables
    assert all(len(row) == len(table["columns"]) for table in tables for row in table["rows"])


def test_a_folder_without_a_lab_is_refused(tmp_path, folder, capsys):
    assert run_command(["studio", str(folder / "model"), "--lab", str(tmp_path)]) == 2
    assert "holds no lab" in capsys.readouterr().err
    assert run_command(["serve", str(folder / "model"), "--lab", str(tmp_path)]) == 2
    assert "--studio" in capsys.readouterr().err
