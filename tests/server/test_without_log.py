"""``dtdr serve --new``: a server that begins with definitions of tools alone."""

import json

import pytest

from dtdr.agents.run_folder import RunFolder
from dtdr.cli import run
from tests.server import serving

TOOLS = [
    {"name": "send_mail", "description": "Sends a letter to a person.", "input_schema": {}},
    {"name": "read_file", "description": "Opens a document.", "input_schema": {}},
    {"name": "get_weather", "description": "Says whether it rains.", "input_schema": {}},
]


@pytest.fixture
def home(tmp_path, monkeypatch):
    (tmp_path / "tools.json").write_text(json.dumps(TOOLS))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path


def test_it_ranks_by_descriptions_keeps_feedback_and_starts_again(home):
    arguments = ("--new", "mail", "--tools", home / "tools.json")
    with serving.process(*arguments, environment={}) as served:
        ranked = served.post("/v1/rank", {"query": "Open the document q3.pdf"}).json()
        item = {"query": "Open q3", "calls": [{"tool": "read_file"}]}
        assert served.post("/v1/feedback", {"demonstrations": [item]}).status_code < 300
    assert ranked["tools"][0]["tool"] == "read_file"
    runs = RunFolder(home / "data" / "dtdr" / "mail")
    assert runs.count_runs() == 1
    with serving.process("--new", "mail") as served:
        assert served.get("/v1/models").json()["models"][0]["name"] == "mail"


@pytest.mark.slow
def test_it_learns_from_feedback_and_serves_what_it_learned(home):
    arguments = ("--new", "mail", "--tools", home / "tools.json", "--watch", "0.2")
    items = [
        {"query": f"Go, number {n}", "calls": [{"tool": "get_weather"}, {"tool": "send_mail"}]}
        for n in range(3)
    ]
    runs = RunFolder(home / "data" / "dtdr" / "mail")
    with serving.process(*arguments) as served:
        assert served.post("/v1/feedback", {"demonstrations": items}).status_code < 300
        serving.wait_until(lambda: runs.history(), 180)
        assert runs.history()[0].outcome == "published"
        ask = {"query": "Go, number 7"}
        serving.wait_until(
            lambda: served.post("/v1/rank", ask).json()["tools"][0]["tool"] == "get_weather", 60
        )


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ((), "name a model folder, or begin without one"),
        (("--new", "mail"), "give --tools"),
        (("model", "--new", "mail"), "give --new alone"),
        (("model", "--tools", "tools.json"), "--tools needs --new"),
        (("--new", "a/b", "--tools", "tools.json"), "cannot name a model"),
    ],
)
def test_what_does_not_fit_together_is_one_sentence(home, monkeypatch, capsys, words, reason):
    monkeypatch.chdir(home)
    assert run(["serve", *words]) == 2
    assert reason in capsys.readouterr().err
