"""A user's own ranker, with three methods, does what the rankers of the package do."""

import inspect
import json
import re
import subprocess
import sys
from typing import Any

import pytest

import dtdr
from dtdr.agents import ToolMask, ToolPolicy
from dtdr.errors import InputError, ModelError
from dtdr.evaluate.lab.fitting import make_model
from dtdr.predict import create
from dtdr.predict.model import Model
from dtdr.rankers.similarity import QueryToolSimilarity
from tests import small_data
from tests.command_line import invoke
from tests.conftest import PROJECT
from tests.helpers import RANKER_ONLY
from tests.lab.own_rankers import Frequent
from tests.updating_ranker import WordCounts
from tests.whole_calls import DEMONSTRATIONS
from tests.whole_calls import TOOLS as WHOLE_TOOLS

NAME = "tests.lab.own_rankers:Frequent"
PAGE = (PROJECT / "docs" / "api.md").read_text(encoding="utf-8")
SET = small_data.dataset(24)
QUERY = "Mail Ann the summary of q3.pdf"


@pytest.fixture(scope="module")
def model():
    return create(NAME, again=0.25).fit(SET.demonstrations, SET.tools, **RANKER_ONLY)


def test_it_ranks_whatever_way_it_is_asked(model):
    history = ["read_file", "never_seen", "read_file"]
    answer = dict(model.rank(QUERY, history))
    assert sum(answer.values()) == pytest.approx(1)
    assert answer["read_file"] < 0.5 * model.rank(QUERY).probability("read_file")
    session = model.session(QUERY)
    for name in history:
        session.call(name)
    names = [tool.name for tool in SET.tools]
    run = ToolMask(model, ToolPolicy(top_k=9)).run(QUERY)
    for name in history:
        run.call(name)
    assert dict(session.rank()) == dict(model.prepare(QUERY)(history)) == answer
    assert run.select(names).weights == {name: answer[name] for name in answer if name != "end"}
    assert model.rank(QUERY).probability("end") == 0
    assert "gives no reasons" in session.rank().explain().note
    assert model.search("send a mail")[0][0] == "send_mail"


def test_it_has_parameters_whatever_its_attributes_are_called(model):
    assert model.get_params() == {"again": 0.25, "threshold": 0.0}
    assert repr(model) == "Frequent(again=0.25)"
    assert model.clone().get_params() == model.get_params()
    assert create(NAME, again=1.0).get_params()["again"] == 1.0
    with pytest.raises(InputError, match="other"):
        create(NAME, other=1)


def test_a_constructor_that_is_inherited_or_missing_gives_the_parameters():
    class Heir(QueryToolSimilarity):
        pass

    class Bare(Frequent):
        __init__ = object.__init__  # as where a class writes none

    assert Heir(threshold=0.5).get_params()["threshold"] == 0.5
    assert inspect.signature(Heir) == inspect.signature(QueryToolSimilarity)
    assert Bare().get_params() == {}


def test_a_subclass_of_a_class_without_a_name_has_its_own():
    assert WordCounts.name == "tests.updating_ranker:WordCounts"
    assert dtdr.fit([("Mail Ann", ["mail"])], ranker=WordCounts.name, **RANKER_ONLY).name


def test_it_is_saved_and_loaded_by_its_name(model, tmp_path):
    model.save(tmp_path / "model")
    loaded = dtdr.load(tmp_path / "model")
    assert loaded.get_params() == model.get_params()
    for history in ([], ["read_file"]):
        assert dict(loaded.rank(QUERY, history)) == dict(model.rank(QUERY, history))
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    assert config["ranker"] == NAME


def test_a_folder_does_not_choose_what_is_imported(model, tmp_path):
    model.save(tmp_path / "model")
    program = (
        "import dtdr, sys\n"
        "try:\n"
        "    dtdr.load(sys.argv[1])\n"
        "except dtdr.DtdrError as error:\n"
        "    print(error)\n"
        "print('tests.lab.own_rankers' in sys.modules)\n"
        f"print(dtdr.load(sys.argv[1], allow_class={NAME!r}).rank('x').best)"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "model")]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")
    assert "whose code would be run" in printed[0]
    assert printed[1] == "False"
    assert printed[2] == model.rank("x").best


def test_it_fills_arguments_and_makes_plans(tmp_path):
    whole = Model(Frequent()).fit(DEMONSTRATIONS[:40], WHOLE_TOOLS, arguments=True, plans=True)
    query = "Look up Ann"
    assert whole.next_calls(dtdr.Run(query))
    assert isinstance(whole.plans(query), list)
    whole.save(tmp_path / "model")
    assert dict(dtdr.load(tmp_path / "model").rank(query)) == dict(whole.rank(query))


def test_the_lab_and_the_command_line_take_it(tmp_path):
    from dtdr.cli import app

    spec = {"retriever": NAME, "parameters": {"again": 0.1}, "seed": 3}
    made = make_model(spec, 20).fit(SET.demonstrations, SET.tools, **RANKER_ONLY)
    assert made.parameters() == {"again": 0.1, "threshold": 0.0}
    data = small_data.write(tmp_path, 24)
    printed = invoke(app, "evaluate", data, "--retriever", NAME, "--json")
    assert printed.exit_code == 0, printed.output
    assert NAME in printed.stdout


def test_what_it_cannot_do_is_said_in_a_sentence(model, tmp_path):
    assert not model.can_update
    assert not model.can_change_tools
    with pytest.raises(dtdr.DtdrError, match="does not support updates"):
        model.update(SET.demonstrations)
    with pytest.raises(dtdr.DtdrError, match="cannot change"):
        model.add_tools([dtdr.Tool("new")])

    class Odd(Frequent):
        name = "odd"

        def fit(self, demonstrations, tools):
            super().fit(demonstrations, tools)
            self.words = {"a": 1}

    odd = Model(Odd()).fit(SET.demonstrations, SET.tools, **RANKER_ONLY)
    with pytest.raises(ModelError, match="'words' is not a numpy array"):
        odd.save(tmp_path / "odd")


def test_the_ranker_of_the_page_is_fitted_to_a_file_and_ranks(tmp_path, monkeypatch):
    (code,) = re.findall(r"<!-- test: ranker -->\n```python\n(.*?)```", PAGE, re.DOTALL)
    lines = (json.dumps(item.to_dict()) for item in SET.demonstrations)
    (tmp_path / "demonstrations.jsonl").write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(code, names)
    model = names["model"]
    assert model.rank(QUERY).best == "read_file"
    assert model.rank(QUERY, ["read_file", "summarize"]).best == "find_contact"
    assert model.plans(QUERY)
    assert not model.can_update
