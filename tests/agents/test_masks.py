import copy
import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtdr.agents import ToolMask, ToolPolicy, Transcript, anthropic, openai
from dtdr.agents.requests import transcript_of
from dtdr.data.calls import ToolCall
from dtdr.data.demonstrations import Message
from dtdr.errors import InputError
from tests.integrations.tools import NAMES as SMALL
from tests.integrations.tools import NEW, QUERY, NotingRanker, shared_model, told
from tests.mask_strategies import conversation_of, outline, steps_of

BUILT_IN: dict[str, list[Any]] = {
    "chat": [],
    "responses": [
        {"type": "web_search"},
        {"type": "mcp", "server_label": "wiki", "server_url": "https://example.org/mcp"},
        {"type": "image_generation"},
        {"type": "namespace", "name": "crm", "description": "customers", "tools": []},
    ],
    "anthropic": [
        {"type": "web_search_20250305", "name": "web_search"},
        {"type": "bash_20250124", "name": "bash"},
    ],
}
SCHEMA = {"type": "object", "properties": {"input": {"type": "string"}}}


def chat_tool(name):
    return {"type": "function", "function": {"name": name, "parameters": SCHEMA}}


def responses_tool(name):
    return {"type": "function", "name": name, "parameters": SCHEMA, "strict": False}


def anthropic_tool(name):
    return {"name": name, "input_schema": SCHEMA}


MAKE: dict[str, Any] = {"chat": chat_tool, "responses": responses_tool, "anthropic": anthropic_tool}


def write_step(api, calls):
    """The messages of one answer and its results, from ``(id, tool, arguments, output)``."""
    if api == "responses":
        asked: list[Any] = [{"type": "reasoning", "id": f"r{calls[0][0]}", "summary": []}]
        asked += [
            {
                "type": "function_call",
                "call_id": identifier,
                "name": name,
                "arguments": json.dumps(arguments),
            }
            for identifier, name, arguments, _ in calls
        ]
        return asked + [
            {"type": "function_call_output", "call_id": identifier, "output": output}
            for identifier, _, _, output in calls
        ]
    if api == "anthropic":
        uses = [
            {"type": "tool_use", "id": identifier, "name": name, "input": arguments}
            for identifier, name, arguments, _ in calls
        ]
        results = [
            {"type": "tool_result", "tool_use_id": identifier, "content": output}
            for identifier, _, _, output in calls
        ]
        return [{"role": "assistant", "content": uses}, {"role": "user", "content": results}]
    made = [
        {
            "id": identifier,
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        for identifier, name, arguments, _ in calls
    ]
    return [
        {"role": "assistant", "content": None, "tool_calls": made},
        *(
            {"role": "tool", "tool_call_id": identifier, "content": output}
            for identifier, _, _, output in calls
        ),
    ]


def write_messages(api, transcript):
    """A transcript as a provider's messages."""
    messages: list[Any] = [{"role": "system", "content": "Be brief."}] if api == "chat" else []
    numbers = itertools.count(1)
    for turn in transcript.turns:
        text = [{"type": "input_text", "text": turn.query}] if api == "responses" else turn.query
        messages.append({"role": "user", "content": text})
        for step in steps_of(turn):
            messages += write_step(api, [(f"c{next(numbers)}", name, {}, "fine") for name in step])
        if turn is not transcript.turns[-1]:
            messages.append({"role": "assistant", "content": "There you are."})
    return messages


KEYS = {"chat": "messages", "responses": "input", "anthropic": "messages"}
MODULE: dict[str, Any] = {"chat": openai, "responses": openai, "anthropic": anthropic}
API = st.sampled_from(sorted(MAKE))

steps = st.lists(st.sampled_from((*SMALL, NEW)), min_size=1, max_size=2).map(tuple)
conversations = st.lists(
    st.tuples(
        st.sampled_from([QUERY, "Text Bob what the weather in Rome is"]),
        st.lists(steps, max_size=3),
    ),
    min_size=1,
    max_size=3,
).map(lambda turns: conversation_of(*turns))
masks = st.builds(
    lambda k, sticky, always: ToolMask(
        shared_model(), ToolPolicy(top_k=k, sticky=sticky, always_include=always)
    ),
    st.integers(1, 3),
    st.sampled_from(["none", "grow", "confidence"]),
    st.lists(st.sampled_from(SMALL), max_size=1).map(tuple),
)


def body_of(api, transcript, names=(*SMALL, NEW), **more):
    tools = [*map(MAKE[api], names), *BUILT_IN[api]]
    return {"model": "m", "tools": tools, KEYS[api]: write_messages(api, transcript), **more}


def valid(package, shape, value):
    """Check a part of a request against the types of the provider's own package."""
    types = pytest.importorskip(f"{package}.types", reason=f"{package} is not installed")
    from pydantic import TypeAdapter

    for part in shape.split("."):
        types = getattr(types, part)
    # The adapter must outlive the iterators of what it validated.
    adapter = TypeAdapter(types)
    exhaust(adapter.validate_python(value))


def exhaust(value):
    """Go through a validated value: pydantic checks the items of an Iterable as they are read."""
    if isinstance(value, dict):
        value = value.values()
    if not isinstance(value, (str, bytes, int, float, bool, type(None))):
        for item in value:
            exhaust(item)


# -- reading requests ----------------------------------------------------------------------------


@given(API, conversations)
def test_every_api_tells_the_same_conversation(api, transcript):
    assert MODULE[api].transcript(body_of(api, transcript)) == transcript


def test_objects_of_the_providers_packages_are_read_like_json():
    chat = pytest.importorskip("openai.types.chat", reason="openai is not installed")
    types = pytest.importorskip("anthropic.types", reason="anthropic is not installed")
    call = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    answer = chat.ChatCompletionMessage.model_validate({"role": "assistant", "tool_calls": [call]})
    use = types.ToolUseBlock(id="t", type="tool_use", name="weather", input={})
    for message in (answer, {"role": "assistant", "content": [use.model_dump()]}):
        messages = [{"role": "user", "content": "Weather?"}, message]
        assert outline(transcript_of(messages)) == [("Weather?", [("weather",)])]


def write_answered(api):
    """A conversation with two calls that were answered in another order, and an open one."""
    text = "How can I help?"
    said = [{"type": "output_text", "text": text}] if api == "responses" else text
    calls = [
        ("a", "weather", {"city": "Rome"}, '{"days": []}'),
        ("b", "open", {}, "Error: no such file"),
    ]
    step = write_step(api, calls)
    if api == "anthropic":
        step[-1]["content"].reverse()
        step[-1]["content"][0]["is_error"] = True
    else:
        step[-2:] = step[:-3:-1]
    asked = write_step(api, [("c", "ask", {}, "")])[:-1]
    first = {"role": "assistant", "content": said}
    return [first, {"role": "user", "content": "Weather?"}, *step, *asked]


@pytest.mark.parametrize("api", sorted(MAKE))
def test_outputs_statuses_steps_and_what_was_said_are_read(api):
    conversation = MODULE[api].transcript({KEYS[api]: write_answered(api)})
    run = conversation.run()
    assert told(run) == [
        ("weather", {"city": "Rome"}, {"days": []}, "empty", 1),
        ("open", {}, "Error: no such file", "error", 1),
        ("ask", {}, None, "unknown", 2),
    ]
    assert run.before == (Message("assistant", "How can I help?"),)


def test_a_ranker_of_names_is_asked_with_names_alone():
    class NamesOnly(NotingRanker):
        uses_calls = False

        def rank_batch(self, runs):
            assert all(
                call == ToolCall(call.id, call.tool, step=call.step)
                for run in runs
                for call in run.calls
            )
            self.runs += [run.history for run in runs]
            return shared_model().rank_batch(runs)

    mask: Any = ToolMask(NamesOnly(), ToolPolicy(top_k=1, sticky="grow"))
    tools = list(map(chat_tool, SMALL))
    selection = openai.select({"messages": write_answered("chat"), "tools": tools}, mask)
    assert not selection.failure
    assert mask.model.runs[-2:] == [("weather", "open"), ("weather", "open", "ask")]


def test_a_loop_of_its_own_tells_what_it_knows(caplog):
    mask = ToolMask(shared_model(), ToolPolicy(top_k=2))
    run = mask.run(QUERY, before=[{"role": "user", "content": "Hello"}])
    run.call("weather", {"city": "Rome"}, output={"days": []}, step=1)
    run.call("read_file", output=object(), status="done")  # type: ignore[arg-type]
    plain = mask.run(QUERY).call("weather").call("read_file")
    assert run.select(SMALL).preferred == plain.select(SMALL).preferred
    assert "of a call of 'read_file' the name counts alone" in caplog.text
    assert run.history == ("weather", "read_file")


def test_built_in_calls_of_the_responses_api_are_called_as_in_the_logs():
    items = [
        {"role": "user", "content": "News?"},
        {"type": "web_search_call", "id": "w", "status": "completed"},
        {"type": "mcp_call", "id": "m", "name": "ask", "arguments": "{}", "output": "fine"},
    ]
    assert transcript_of(items).called == ("web_search", "ask")


def test_text_beside_a_tool_result_is_no_message_of_the_user():
    messages = write_messages("anthropic", conversation_of((QUERY, [("weather",)])))
    messages[-1]["content"].append({"type": "text", "text": "a reminder"})
    assert outline(transcript_of(messages)) == [(QUERY, [("weather",)])]


def test_names_are_found_where_each_api_writes_them():
    assert openai.tool_name({"type": "custom", "custom": {"name": "grep"}}) == "grep"
    assert openai.tool_name({"type": "custom", "name": "grep"}) == "grep"
    assert openai.tool_name({"function": {"name": "grep"}}) == "grep"
    assert [openai.tool_name(tool) for tool in BUILT_IN["responses"]] == [None] * 4
    assert [anthropic.tool_name(tool) for tool in BUILT_IN["anthropic"]] == [None, None]
    assert anthropic.tool_name({"type": "custom", "name": "grep"}) == "grep"


# -- filtered ------------------------------------------------------------------------------------


@given(API, conversations, masks)
def test_filtered_tools_are_the_same_objects_in_the_same_order(api, transcript, mask):
    body = body_of(api, transcript)
    found = MODULE[api].mask_request(body, mask, "filtered")
    selection = MODULE[api].select(body, mask)

    kept = [tool for tool in body["tools"] if any(tool is other for other in found["tools"])]
    assert found["tools"] == kept
    names = [MODULE[api].tool_name(tool) for tool in found["tools"]]
    assert [name for name in names if name is not None] == list(selection.shown)
    assert [tool for tool in found["tools"] if MODULE[api].tool_name(tool) is None] == BUILT_IN[api]


@given(API, conversations, masks, st.sampled_from(["filtered", "hint", None]))
def test_no_form_changes_the_request_it_is_given_or_takes_two_tools_of_one_name(
    api, transcript, mask, form
):
    body = body_of(api, transcript)
    before = copy.deepcopy(body)
    MODULE[api].mask_request(body, mask, form)
    assert body == before
    with pytest.raises(InputError, match="two tools are named 'find_contact'"):
        MODULE[api].mask_request(body_of(api, transcript, (*SMALL, SMALL[0])), mask, form)


@pytest.mark.parametrize("api", sorted(MAKE))
def test_unknown_forms_and_requests_without_tools(api):
    mask, body = ToolMask(shared_model()), body_of(api, Transcript.of(QUERY))
    with pytest.raises(InputError, match="unknown form 'folded'"):
        MODULE[api].mask_request(body, mask, "folded")
    if api == "anthropic":
        with pytest.raises(InputError, match="use mask_request"):
            anthropic.apply(body, anthropic.select(body, mask), "deferred")
    del body["tools"]
    assert MODULE[api].mask_request(body, mask) == body


@pytest.mark.parametrize(
    ("api", "choice"),
    [
        ("chat", {"type": "function", "function": {"name": "weather"}}),
        ("responses", {"type": "function", "name": "weather"}),
        ("anthropic", {"type": "tool", "name": "weather"}),
    ],
)
def test_a_tool_that_the_request_forces_is_not_taken_away(api, choice):
    mask = ToolMask(shared_model(), ToolPolicy(top_k=1))
    body = body_of(api, Transcript.of(QUERY), tool_choice=choice)
    assert "weather" not in MODULE[api].select(body, mask).shown

    found = MODULE[api].mask_request(body, mask, "filtered")
    assert "weather" in [MODULE[api].tool_name(tool) for tool in found["tools"]]
    assert found["tool_choice"] == choice


@pytest.mark.parametrize("api", sorted(MAKE))
def test_a_request_with_unreadable_messages_keeps_all_its_tools(api, caplog):
    body = body_of(api, Transcript.of(QUERY))
    body[KEYS[api]] = [3]
    found = MODULE[api].mask_request(body, ToolMask(shared_model()), "filtered")
    assert found["tools"] == body["tools"]
    assert "showing all 7 tools" in caplog.text


@pytest.mark.parametrize("api", sorted(MAKE))
def test_a_token_budget_counts_definitions_and_a_refused_call_is_no_part_of_the_run(api):
    body = body_of(api, Transcript.of(QUERY))

    def select(budget):
        return MODULE[api].select(body, ToolMask(shared_model(), ToolPolicy(token_budget=budget)))

    assert set(select(10_000).shown) == {*SMALL, NEW}
    first = select(1)
    assert len(first.shown) == 2  # the best, and the one that the model does not know
    hidden = first.hidden[0]
    for number in range(3):
        body[KEYS[api]] += write_step(api, [(f"c{number}", hidden, {}, first.refusal(hidden))])
    assert outline(MODULE[api].transcript(body)) == [(QUERY, [])]
    assert select(1).shown == first.shown


# -- OpenAI: allowed tools -----------------------------------------------------------------------


@given(st.sampled_from(["chat", "responses"]), conversations, masks)
def test_allowed_tools_leave_the_array_alone_and_name_what_is_shown(api, transcript, mask):
    body = body_of(api, transcript)
    found = openai.mask_request(body, mask)
    shown = openai.select(body, mask).shown

    assert found["tools"] is body["tools"]
    if "tool_choice" not in found:
        assert set(shown) == {*SMALL, NEW}
        return
    choice = found["tool_choice"]
    allowed = choice["allowed_tools"] if api == "chat" else choice
    assert choice["type"] == "allowed_tools"
    assert allowed["mode"] == "auto"
    named = [openai.tool_name(tool) for tool in allowed["tools"]]
    assert [name for name in named if name is not None] == list(shown)
    assert named.count(None) == len(BUILT_IN[api])


def test_allowed_tools_name_the_providers_own_tools_as_its_package_does():
    mask = ToolMask(shared_model(), ToolPolicy(top_k=2))
    responses = openai.mask_request(body_of("responses", Transcript.of(QUERY)), mask)
    assert responses["tool_choice"]["tools"] == [
        {"type": "function", "name": "read_file"},
        {"type": "function", "name": "weather"},
        {"type": "function", "name": NEW},
        {"type": "web_search"},
        {"type": "mcp", "server_label": "wiki"},
        {"type": "image_generation"},
        {"type": "namespace", "name": "crm"},
    ]


SHAPES = {
    ("chat", "allowed-tools"): {"tool_choice": "chat.ChatCompletionAllowedToolChoiceParam"},
    ("chat", "hint"): {"messages": "chat.ChatCompletionMessageParam"},
    ("responses", "allowed-tools"): {"tool_choice": "responses.ToolChoiceAllowedParam"},
    ("responses", "hint"): {"input": "responses.ResponseInputItemParam"},
    ("anthropic", "deferred"): {"tools": "ToolUnionParam", "messages": "MessageParam"},
    ("anthropic", "hint"): {"messages": "MessageParam"},
}


@pytest.mark.parametrize(("api", "form"), SHAPES)
def test_what_a_form_writes_has_the_shape_of_the_providers_package(api, form):
    transcript = conversation_of((QUERY, [("read_file",), ("summarize",)]))
    mask = ToolMask(shared_model(), ToolPolicy(top_k=2))
    request = MODULE[api].mask_request(body_of(api, transcript), mask, form)
    package = "anthropic" if api == "anthropic" else "openai"
    for key, shape in SHAPES[api, form].items():
        for part in request[key] if isinstance(request[key], list) else [request[key]]:
            valid(package, shape, part)


@pytest.mark.parametrize("extra", [0, 1])
def test_more_tools_than_openai_takes_are_filtered_unless_told_otherwise(extra):
    mask = ToolMask(shared_model(), ToolPolicy(top_k=2))
    body = body_of("chat", Transcript.of(QUERY))
    free = openai.MOST_TOOLS - len(body["tools"])
    body["tools"] = [*body["tools"], *(chat_tool(f"further_{n}") for n in range(free + extra))]
    form = "filtered" if extra else "allowed-tools"
    assert openai.mask_request(body, mask) == openai.mask_request(body, mask, form)
    assert "tool_choice" in openai.mask_request(body, mask, "allowed-tools")


@pytest.mark.parametrize(
    ("address", "form"),
    [
        ("https://api.openai.com/v1", "allowed-tools"),
        ("https://eu.api.openai.com/v1/", "allowed-tools"),
        ("https://example.openai.azure.com/openai/", "filtered"),
        ("https://api.openai.com.example/v1", "filtered"),
        ("http://localhost:8000/v1", "filtered"),
        ("", "filtered"),
    ],
)
def test_only_openai_itself_is_known_to_follow_a_list_of_allowed_tools(address, form):
    assert openai.cheapest_form(16, address=address) == form


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_required_becomes_the_mode_and_none_stays(api):
    mask = ToolMask(shared_model(), ToolPolicy(top_k=1))
    found = openai.mask_request(body_of(api, Transcript.of(QUERY), tool_choice="required"), mask)
    choice = found["tool_choice"]
    assert (choice["allowed_tools"] if api == "chat" else choice)["mode"] == "required"
    body = body_of(api, Transcript.of(QUERY), tool_choice="none")
    assert openai.mask_request(body, mask)["tool_choice"] == "none"


def test_a_list_of_allowed_tools_of_the_requests_own_stays():
    mask = ToolMask(shared_model(), ToolPolicy(top_k=1))
    body = body_of("chat", Transcript.of(QUERY))
    other = next(iter(openai.select(body, mask).hidden))
    choice = {
        "type": "allowed_tools",
        "allowed_tools": {"mode": "required", "tools": [chat_tool(other)]},
    }
    body["tool_choice"] = choice
    assert openai.mask_request(body, mask)["tool_choice"] == choice
    assert chat_tool(other) in openai.mask_request(body, mask, "filtered")["tools"]


# -- Anthropic: deferred loading -----------------------------------------------------------------


@given(conversations, masks)
def test_requests_that_load_tools_begin_with_each_other(transcript, mask):
    messages = write_messages("anthropic", transcript)
    ends = [place for place, item in enumerate(messages, start=1) if item["role"] == "user"]
    body = body_of("anthropic", transcript)
    bodies = [{**body, "messages": messages[:end]} for end in ends]
    requests = [anthropic.mask_request(each, mask) for each in bodies]
    for former, request in itertools.pairwise(requests):
        assert request["tools"] == former["tools"]
        assert request["messages"][: len(former["messages"])] == former["messages"]
    assert len(requests) >= len(transcript.turns)


def test_a_forced_tool_is_loaded_and_a_question_in_plain_text_takes_a_hint():
    mask = ToolMask(shared_model(), ToolPolicy(top_k=1))
    body = body_of("responses", Transcript.of(QUERY))
    hinted = openai.mask_request({**body, "input": QUERY}, mask, "hint")["input"]
    assert hinted[0] == {"role": "user", "content": QUERY}
    assert "read_file" in hinted[1]["content"]

    choice = {"type": "tool", "name": "weather"}
    body = body_of("anthropic", Transcript.of(QUERY), tool_choice=choice)
    assert {"read_file", "weather"} <= set(results(anthropic.mask_request(body, mask)["messages"]))


def results(messages):
    return [
        reference["tool_name"]
        for message in messages
        if message["role"] == "user" and isinstance(message["content"], list)
        for block in message["content"]
        if block["type"] == "tool_result" and isinstance(block["content"], list)
        for reference in block["content"]
    ]


@given(conversations, masks)
def test_what_was_called_is_loaded_once_by_the_next_answer_and_roles_alternate(transcript, mask):
    body = body_of("anthropic", transcript)
    found = anthropic.mask_request(body, mask)

    deferred = {tool["name"] for tool in found["tools"] if tool.get("defer_loading")}
    assert deferred == set(SMALL) - set(mask.policy.always_include)
    called: set[str] = set()
    for position, message in enumerate(found["messages"]):
        if message["role"] == "assistant" and isinstance(message["content"], list):
            used = {block["name"] for block in message["content"]}
            if used != {"load_tools"}:
                assert called <= set(results(found["messages"][:position]))
                called |= used & deferred
    assert called <= set(results(found["messages"]))
    loaded = results(found["messages"])
    assert len(loaded) == len(set(loaded))
    assert set(loaded) <= deferred
    kept = [message for message in found["messages"] if "toolu_dtdr" not in str(message)]
    assert kept == body["messages"]
    roles = [message["role"] for message in found["messages"]]
    assert all(left != right for left, right in itertools.pairwise(roles))


def test_a_tool_named_like_the_loader_is_an_error():
    body = body_of("anthropic", Transcript.of(QUERY), (*SMALL, "load_tools"))
    with pytest.raises(InputError, match="'load_tools'"):
        anthropic.mask_request(body, ToolMask(shared_model()))


def test_a_cache_breakpoint_survives_the_tool_it_stood_on():
    mark = {"type": "ephemeral"}
    tools = [anthropic_tool("read_file"), {**anthropic_tool("weather"), "cache_control": mark}]
    mask = ToolMask(shared_model(), ToolPolicy(top_k=1, fallback=False))
    asked = Transcript.of("Read the notes to me")
    body = {"tools": tools, "messages": write_messages("anthropic", asked)}
    assert anthropic.mask_request(body, mask, "filtered")["tools"] == [
        {**anthropic_tool("read_file"), "cache_control": mark}
    ]
    deferred = anthropic.mask_request(body, mask)["tools"]
    assert [tool.get("cache_control") for tool in deferred] == [mark, None, None]


# -- hints ---------------------------------------------------------------------------------------


@given(API, conversations, masks)
def test_a_hint_changes_the_end_of_the_conversation_alone(api, transcript, mask):
    key = KEYS[api]
    body = body_of(api, transcript)
    found = MODULE[api].mask_request(body, mask, "hint")
    selection = MODULE[api].select(body, mask)

    assert found["tools"] is body["tools"]
    assert found[key][: len(body[key])] == body[key]
    assert transcript_of(found[key]) == transcript_of(body[key])
    text = json.dumps(found[key][-1], ensure_ascii=False)
    for name in SMALL:
        assert (f'\\"{name}\\"' in text) == (name in selection.preferred)


@pytest.mark.parametrize("api", sorted(MAKE))
def test_nothing_is_hinted_at_where_ranking_failed(api):
    key = KEYS[api]
    body = {**body_of(api, Transcript.of(QUERY)), key: []}
    assert MODULE[api].mask_request(body, ToolMask(shared_model()), "hint")[key] == []
