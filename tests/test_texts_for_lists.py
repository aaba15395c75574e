"""One text where a list of texts is due is an error: Python would read it letter by letter."""

from pathlib import Path
from typing import Any

import pytest

import dtdr
from dtdr.agents import ToolMask, ToolPolicy, Transcript
from dtdr.data.demonstration_files import read_shards
from dtdr.data.erasure import delete_unfinished, erase_groups, find_unfinished
from dtdr.errors import InputError
from dtdr.evaluate.drift import compare_runs
from dtdr.evaluate.harness import rank_steps
from dtdr.evaluate.result_tables import retrieval_table
from dtdr.logs import CutOptions
from dtdr.predict.counting import draw_sample
from dtdr.text.encoders.lexical import LexicalEncoder
from tests.helpers import RANKER_ONLY

PATH: Any = Path("folder")
TEXT: Any = "mail"
"""What no type checker refuses."""


@pytest.fixture(scope="module")
def model() -> Any:
    return dtdr.fit([("Mail Ann", ["mail"]), ("Call Bo", ["call"])], ranker="dr", **RANKER_ONLY)


@pytest.fixture(scope="module")
def client() -> Any:
    """A client of no server: nothing here is sent."""
    with dtdr.Client(model="mail") as client:
        yield client


OF_A_MODEL: dict[str, Any] = {
    "history of rank": lambda model: model.rank("Mail Ann", "mail"),
    "before of rank": lambda model: model.rank("Mail Ann", before="mail"),
    "offered of rank": lambda model: model.rank("Mail Ann", offered="mail"),
    "rank_batch": lambda model: model.rank_batch("Mail Ann"),
    "prepare": lambda model: model.prepare("Mail Ann")("mail"),
    "before of session": lambda model: model.session("Mail Ann", before="mail"),
    "offered of a session's rank": lambda model: model.session("Mail Ann").rank("mail"),
    "offered of search": lambda model: model.search("mail", offered="mail"),
    "remove_tools": lambda model: model.remove_tools("mail"),
    "add_tools": lambda model: model.add_tools("mail"),
    "rank_steps": lambda model: [*rank_steps(model, TEXT)],
    "restrict": lambda model: model.rank("Mail Ann").restrict("mail"),
    "new_tool": lambda model: model.rank("Mail Ann").new_tool("mail"),
    "names of a mask": lambda model: ToolMask(model).select("mail", Transcript.of("Mail Ann")),
    "names of a mask's run": lambda model: ToolMask(model).run("Mail Ann").select("mail"),
    "before of a mask's run": lambda model: ToolMask(model).run(
        "Mail Ann",
        before=TEXT,
    ),
}
OF_A_CLIENT: dict[str, Any] = {
    "history of rank": lambda client: client.rank("Mail Ann", "mail"),
    "before of rank": lambda client: client.rank("Mail Ann", before="mail"),
    "offered of rank": lambda client: client.rank("Mail Ann", offered="mail"),
    "offered of search": lambda client: client.search("Mail Ann", offered="mail"),
    "feedback": lambda client: client.feedback("mail"),
    "add_tools": lambda client: client.add_tools("mail"),
    "remove_tools": lambda client: client.remove_tools("mail"),
    "session": lambda client: client.session("Mail Ann", "mail"),
    "offered of a session's rank": lambda client: client.session("Mail Ann").rank(offered="mail"),
    "offered of a session's search": lambda client: client.session("Mail Ann").search(
        "mail", offered="mail"
    ),
}
OTHERS: dict[str, Any] = {
    "fit": lambda: dtdr.fit([("Mail Ann", "mail")], ranker="dr"),
    "tools of fit": lambda: dtdr.fit(
        [("Mail Ann", ["mail"])],
        tools=TEXT,
        ranker="dr",
    ),
    "before of a run": lambda: dtdr.Run("Mail Ann", before=TEXT),
    "calls of a run": lambda: dtdr.Run("Mail Ann", calls=TEXT),
    "offered of a run": lambda: dtdr.Run("Mail Ann", offered="mail"),
    "calls of a plan": lambda: dtdr.Plan(TEXT),
    "before of a demonstration": lambda: dtdr.Demonstration(
        "1",
        "Mail Ann",
        dtdr.Plan(()),
        before=TEXT,
    ),
    "history of a transcript": lambda: Transcript.of("Mail Ann", "mail"),
    "a policy": lambda: ToolPolicy(always_include=TEXT),
    "what is left out": lambda: CutOptions(leave_out=TEXT),
    "read_shards": lambda: read_shards("folder"),
    "read_shards of a path": lambda: read_shards(PATH),
    "draw_sample": lambda: draw_sample("folder", 10),
    "paths of erase_groups": lambda: erase_groups("folder", ["ann"]),
    "groups of erase_groups": lambda: erase_groups(["folder"], "ann"),
    "find_unfinished": lambda: find_unfinished("folder"),
    "delete_unfinished": lambda: delete_unfinished("folder"),
    "compare_runs": lambda: compare_runs(TEXT, TEXT),
    "retrieval_table": lambda: retrieval_table([], "mrr", title="", caption=""),
    "an encoder's fit": lambda: LexicalEncoder().fit("mail"),
    "encode": lambda: LexicalEncoder().fit(["mail"]).encode("mail"),
}
REFUSED = r"must be a list|give a list|give demonstrations"


@pytest.mark.parametrize("ask", OF_A_MODEL.values(), ids=OF_A_MODEL)
def test_a_model_refuses_a_text_for_a_list(model, ask):
    with pytest.raises(InputError, match=REFUSED):
        ask(model)


@pytest.mark.parametrize("ask", OF_A_CLIENT.values(), ids=OF_A_CLIENT)
def test_a_client_refuses_a_text_for_a_list_before_it_asks(client, ask):
    with pytest.raises(InputError, match=REFUSED):
        ask(client)


@pytest.mark.parametrize("ask", OTHERS.values(), ids=OTHERS)
def test_a_text_for_a_list_is_refused(ask):
    with pytest.raises(InputError, match=REFUSED):
        ask()


def test_the_error_shows_the_list():
    with pytest.raises(InputError, match=r"^groups must be a list, not 'ann'; write \['ann'\]$"):
        erase_groups(["folder"], "ann")
