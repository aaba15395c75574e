"""The mask endpoints give what dtdr.agents gives."""

import dataclasses
from typing import Any

import msgspec
import pytest

import dtdr
from dtdr.agents import ToolMask, ToolPolicy, anthropic, openai
from dtdr.rankers.selection import count_tokens
from dtdr.serve.server.masks import MaskPolicy
from tests import small_data
from tests.server import serving
from tests.server.serving import QUERY, refused

USER = {"role": "user", "content": QUERY}
FUNCTION = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
ANSWER = {"role": "tool", "tool_call_id": "1", "content": "…"}
DESCRIBED = [{"name": tool.name, "description": tool.description} for tool in small_data.TOOLS]
OPENAI: dict[str, Any] = {
    "messages": [USER, {"role": "assistant", "tool_calls": [FUNCTION]}, ANSWER],
    "tools": [{"type": "function", "function": tool} for tool in DESCRIBED],
    "temperature": 0.5,
}
USE = {"type": "tool_use", "id": "1", "name": "weather", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "1", "content": "…"}
ANTHROPIC: dict[str, Any] = {
    "messages": [
        USER,
        {"role": "assistant", "content": [USE]},
        {"role": "user", "content": [RESULT]},
    ],
    "tools": [{**tool, "input_schema": {"type": "object"}} for tool in DESCRIBED],
    "max_tokens": 10,
}


def tokens(served):
    return [
        served.metric(f'dtdr_{kind}_definition_tokens_total{{model="mail"}}')
        for kind in ("shown", "hidden")
    ]


@pytest.mark.parametrize(
    ("provider", "body", "form"),
    [
        (openai, OPENAI, "filtered"),
        (openai, OPENAI, "allowed-tools"),
        (anthropic, ANTHROPIC, "deferred"),
    ],
)
def test_a_request_is_masked_and_counted_as_the_library_does(served, fitted, provider, body, form):
    before = tokens(served)
    path = f"/v1/mask/{provider.__name__.rpartition('.')[2]}"
    sent = {"request": body, "form": form, "policy": {"top_k": 2}}
    answer = served.post(path, sent).json()
    mask = ToolMask(dtdr.load(fitted), ToolPolicy(top_k=2))
    assert {**body, **answer["changes"]} == provider.mask_request(body, mask, form)
    assert all(body.get(name) != value for name, value in answer["changes"].items())
    selection = provider.select(body, mask)
    assert (answer["shown"], answer["hidden"]) == (list(selection.shown), list(selection.hidden))
    assert answer["reasons"]["weather"] == "called"
    assert answer["failure"] == ""
    shown, hidden = (after - count for after, count in zip(tokens(served), before, strict=True))
    every = sum(map(count_tokens, body["tools"]))
    if form == "allowed-tools":
        assert (shown, hidden) == (every, 0), "every definition is sent all the same"
    elif form == "filtered":
        assert shown == sum(map(count_tokens, answer["changes"]["tools"]))
        assert hidden == every - shown > 0
    else:
        assert 0 < shown < every
        assert 0 < hidden < every


@pytest.mark.parametrize(
    ("provider", "body", "form"),
    [(openai, OPENAI, "allowed-tools"), (anthropic, ANTHROPIC, "deferred")],
)
def test_no_form_is_the_default_of_the_provider(served, provider, body, form):
    path = f"/v1/mask/{provider.__name__.rpartition('.')[2]}"
    sent = {"request": body, "policy": {"top_k": 2}}
    answers = [
        served.post(path, sent | extra).json()
        for extra in ({}, {"form": None}, {"form": form}, {"form": "filtered"})
    ]
    assert answers[0] == answers[1] == answers[2] != answers[3]


def test_a_request_with_more_tools_than_openai_takes_is_filtered(served):
    new = [
        {"type": "function", "function": {"name": f"further_{number}"}}
        for number in range(openai.MOST_TOOLS)
    ]
    body = OPENAI | {"tools": [*OPENAI["tools"], *new]}
    answer = served.post("/v1/mask/openai", {"request": body, "policy": {"top_k": 2}}).json()
    assert list(answer["changes"]) == ["tools"]
    assert openai.tool_names(answer["changes"]["tools"]) == tuple(answer["shown"])


def test_what_a_policy_leaves_out_is_as_in_the_library():
    assert msgspec.structs.asdict(MaskPolicy()) == dataclasses.asdict(ToolPolicy())


def test_more_tools_or_messages_than_the_limit_are_refused(fitted):
    long = {"messages": [{"role": "user", "content": "a"}] * 5, "tools": []}
    with serving.serve(serving.settings(fitted, tools=5, history=1)) as served:
        for path, body, said in (
            ("openai", OPENAI, "6 tools were sent; the limit is 5"),
            ("anthropic", long, "5 messages were sent; the limit is 4"),
        ):
            assert refused(served.post(f"/v1/mask/{path}", {"request": body}), 422) == said


@pytest.mark.parametrize(
    ("provider", "body", "form"),
    [(openai, OPENAI, "filtered"), (anthropic, ANTHROPIC, "deferred")],
)
def test_a_request_is_ranked_once(fitted, monkeypatch, provider, body, form):
    batches: list[Any] = []
    rank = dtdr.Model.rank_batch

    def rank_batch(model, runs):
        batches.append(runs)
        return rank(model, runs)

    monkeypatch.setattr(dtdr.Model, "rank_batch", rank_batch)
    mask = ToolMask(dtdr.load(fitted), ToolPolicy(top_k=2))
    selection, masked = provider.select_and_mask(body, mask, form)
    assert len(batches) == 1
    assert selection == provider.select(body, mask)
    assert masked == provider.mask_request(body, mask, form)
