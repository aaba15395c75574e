"""Requests that are not what they should be: an error in words, or a mask, never a traceback."""

import contextlib
import json
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtdr.agents import ToolMask, ToolPolicy, anthropic, openai
from dtdr.errors import InputError
from tests.agents.test_masks import KEYS, MODULE, body_of, conversations
from tests.integrations.tools import NAMES as SMALL
from tests.integrations.tools import shared_model

FORMS = {
    "chat": ("filtered", "allowed-tools", "hint"),
    "responses": ("filtered", "allowed-tools", "hint"),
    "anthropic": ("filtered", "deferred", "hint"),
}

words = st.sampled_from(
    [
        *("type", "function", "custom", "name", "tool_use", "tool_result", "role", "user", "text"),
        *("content", "tool_calls", "allowed_tools", "tools", "tool", "id", "mode", "auto", "input"),
        *("cache_control", "function_call", "mcp_call", "server_label", "assistant"),
        *SMALL,
    ]
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=4),
    max_leaves=12,
)


@cache
def two_tools():
    return ToolMask(shared_model(), ToolPolicy(top_k=2))


def mask(api, body, form):
    """Either a request that is JSON, or an error in words."""
    with contextlib.suppress(InputError):
        found = MODULE[api].mask_request(body, two_tools(), form)
        assert isinstance(found, dict)
        json.dumps(found)


@given(st.sampled_from(sorted(FORMS)), st.integers(0, 3), anything, anything, anything)
def test_any_json_is_masked_or_refused_in_words(api, form, tools, conversation, choice):
    body = {"tools": tools, KEYS[api]: conversation, "tool_choice": choice}
    mask(api, body, FORMS[api][form % len(FORMS[api])])


@given(
    st.sampled_from(sorted(FORMS)),
    st.integers(0, 3),
    conversations,
    st.lists(anything, max_size=3),
    st.lists(anything, max_size=3),
    anything,
)
def test_a_good_request_with_bad_parts_is_masked_or_refused_in_words(
    api, form, transcript, tools, messages, choice
):
    body = body_of(api, transcript, tool_choice=choice)
    body["tools"] = [*body["tools"], *tools]
    body[KEYS[api]] = [*body[KEYS[api]], *messages]
    mask(api, body, FORMS[api][form % len(FORMS[api])])


@pytest.mark.parametrize(
    ("module", "body", "message"),
    [
        (openai, {"tools": [{"function": {"name": "a"}}]}, "neither 'messages'"),
        (anthropic, {"tools": [{"name": "a"}]}, "no 'messages'"),
        (openai, {"messages": [], "tools": {"a": 1}}, "'tools' must be a list"),
        (anthropic, {"messages": [], "tools": "a"}, "'tools' must be a list"),
        (openai, {"messages": [], "tools": [3]}, "a tool must be a JSON object, not int"),
        (
            anthropic,
            {"messages": [], "tools": [None]},
            "a tool must be a JSON object, not NoneType",
        ),
        (openai, {"messages": {}, "tools": [{"function": {"name": "a"}}]}, "must be a list"),
        (anthropic, {"messages": "a", "tools": [{"name": "a"}]}, "must be a list"),
    ],
)
def test_what_is_wrong_with_a_request_is_said(module, body, message):
    for form in ("filtered", "hint"):
        with pytest.raises(InputError, match=message):
            module.mask_request(body, two_tools(), form)
