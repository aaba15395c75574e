import json

import pytest

from dtdr.cli import planning_options, tune
from dtdr.cli.signature import CommandGroup
from dtdr.errors import InputError
from dtdr.llm.backends.replay import Recorder
from tests import small_data
from tests.command_line import invoke
from tests.scripted_llm import ScriptedLLM

app = CommandGroup()
app.command()(tune.tune)

SMALL = ("--top", 3, "--steps", 8)


@pytest.fixture
def data(tmp_path):
    return small_data.write(tmp_path, 40)


@pytest.fixture
def llm(monkeypatch):
    """Any LLM that a test gives stands in for the one that the command names."""

    def stand_in(model):
        def opened(_name, *, record=None, **_):
            return model if record is None else Recorder(model, record)

        monkeypatch.setattr(planning_options, "open_llm", opened)
        return model

    return stand_in


def run(*arguments):
    return invoke(app, *arguments)


def test_an_llm_that_knows_nothing_leaves_the_retriever_alone(llm, data):
    llm(ScriptedLLM(likelihoods=lambda _: -1.0))
    result = run(data, "--llm", "gguf:a model.gguf", "--retriever", "dtdr-l", *SMALL)
    assert "8 held-out steps" in result.stdout
    last = result.stdout.strip().splitlines()[-1]
    assert last.startswith(
        'Use: dtdr plan MODEL QUERY --llm "gguf:a model.gguf" --icl hard --top 3 --examples '
    )
    assert last.endswith("--select retriever")


def test_an_llm_that_knows_more_than_the_retriever_is_asked(llm, data):
    likes = {"end": -0.1, "read_file": -2.0}
    llm(ScriptedLLM(likelihoods=lambda name: likes.get(name, -9.0)))
    given = (data, "--llm", "gguf:x", "--retriever", "random", "--steps", 40, "--budget", 1)
    found = json.loads(run(*given, "--json").stdout)
    accuracy = {name: one["value"] for name, one in found["accuracy"].items()}
    assert accuracy["fused"] > accuracy["retriever"]
    assert accuracy["auto"] >= accuracy["fused"]
    assert 0 < found["asks"]["auto"] <= 1
    assert found["options"].startswith("--select auto --weight ")
    assert f"--confidence {found['confidence']!r}" in found["options"]


def test_a_better_llm_is_advised_though_auto_may_not_ask_it(llm, data):
    likes = {"end": -0.1, "read_file": -2.0}
    llm(ScriptedLLM(likelihoods=lambda name: likes.get(name, -9.0)))
    given = (data, "--llm", "gguf:x", "--retriever", "random", "--steps", 40, "--budget", 0)
    found = json.loads(run(*given, "--json").stdout)
    assert found["asks"] == {
        "greedy": 1.0,
        "constrained": 1.0,
        "fused": 1.0,
        "retriever": 0.0,
        "auto": 0.0,
    }
    assert found["options"] == f"--select fused --weight {found['weight']:g}"


def test_what_was_recorded_is_not_asked_again(llm, data, tmp_path):
    recording = tmp_path / "answers.jsonl"
    given = (data, "--llm", "gguf:x", "--retriever", "dr", *SMALL, "--record", recording)
    first = llm(ScriptedLLM(likelihoods=len))
    expected = run(*given).stdout
    assert first.prompts
    again = llm(ScriptedLLM(likelihoods=len))
    assert run(*given).stdout == expected
    assert again.prompts == []


def test_misuse_is_told_in_one_sentence(llm, data, tmp_path):
    with pytest.raises(InputError, match="name the LLM"):
        run(data)
    llm(ScriptedLLM())
    with pytest.raises(InputError, match="gives no likelihoods"):
        run(data, "--llm", "openai:x@http://host/v1", "--retriever", "dr")
    with pytest.raises(InputError, match="'dr' uses no encoder"):
        run(data, "--llm", "gguf:x", "--retriever", "dr", "--encoder", "lexical")
    llm(ScriptedLLM(likelihoods=len, context=3))
    with pytest.raises(InputError, match="--llm-context"):
        run(data, "--llm", "gguf:x", "--retriever", "dr", *SMALL)
    one = small_data.write(tmp_path, 2)
    with pytest.raises(InputError, match="too few to hold out"):
        run(one, "--llm", "gguf:x", "--retriever", "dr")
