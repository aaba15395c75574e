"""Hypothesis strategies for plans and demonstrations, shared by the property-based tests."""

from datetime import UTC

from hypothesis import strategies as st

from dtdr import Demonstration, Plan, ToolCall
from dtdr.data.demonstrations import Message, Parent
from dtdr.data.outputs import iter_leaves

TOOL_NAMES = ("open_file", "summarize", "send mail", "weather.get", "übersetze", "搜索")

TIMES = st.none() | st.datetimes(timezones=st.just(UTC))

plain_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("ab", min_size=1), inner),
    max_leaves=4,
)


@st.composite
def plans(draw, max_calls=6):
    """Plans with repeated tools, argument references at any depth, and links."""
    size = draw(st.integers(0, max_calls))
    calls, links = [], []
    for index in range(size):
        arguments = {"value": draw(plain_values)}
        for source in draw(st.sets(st.integers(0, index - 1)) if index else st.just(set())):
            reference = {"$ref": str(source)}
            shape = draw(st.sampled_from(["whole", "list", "text", "link"]))
            if shape == "whole":
                arguments[f"use{source}"] = reference
            elif shape == "list":
                arguments[f"use{source}"] = [1, [reference]]
            elif shape == "text":
                arguments[f"use{source}"] = {"$join": ["see ", reference]}
            else:
                links.append((str(source), str(index)))
        calls.append(ToolCall(str(index), draw(st.sampled_from(TOOL_NAMES)), arguments))
    return Plan(tuple(calls), tuple(links))


@st.composite
def run_calls(draw, earlier=(), prefix="", max_calls=5):
    """Calls with outputs, statuses and steps; arguments refer to parts of earlier outputs."""
    known, calls, step = list(earlier), [], 0
    for index in range(draw(st.integers(0, max_calls))):
        arguments = {"value": draw(plain_values)}
        for source in draw(st.lists(st.sampled_from(known), max_size=2)) if known else ():
            reference = {"$ref": source.id}
            if source.output is not None and draw(st.booleans()):
                places = [place for place, _ in iter_leaves(source.output)] or [""]
                reference["path"] = draw(st.sampled_from(places))
            arguments[f"use {source.id}"] = reference
        step = draw(st.integers(step, step + 1))
        status = draw(st.sampled_from(["ok", "error", "empty", "unknown"]))
        calls.append(
            ToolCall(
                f"{prefix}{index}",
                draw(st.sampled_from(TOOL_NAMES)),
                arguments,
                draw(plain_values),
                status,
                draw(st.sampled_from([step, None])) if draw(st.booleans()) else step,
                draw(st.sampled_from([None, 5000])),
                draw(st.sampled_from([None, "I look for it first."])),
            )
        )
        known.append(calls[-1])
    return tuple(calls)


@st.composite
def runs(draw):
    """Demonstrations with outputs, steps, and calls and messages before the query."""
    earlier = draw(run_calls(prefix="b", max_calls=3))
    messages = st.builds(Message, st.sampled_from(["user", "assistant"]), st.text(max_size=9))
    before = [item for call in earlier for item in (*draw(st.lists(messages, max_size=1)), call)]
    return Demonstration(
        "r1",
        "and then?",
        Plan(draw(run_calls(earlier)), (), earlier),
        before=tuple(before),
        time=draw(TIMES),
    )


@st.composite
def demonstrations(draw):
    """Valid demonstrations with any printable query."""
    query = draw(st.text(min_size=1, max_size=30).filter(lambda text: text.strip()))
    return Demonstration(
        draw(st.text("0123456789abc", min_size=1, max_size=8)),
        query,
        draw(plans()),
        draw(st.sampled_from(["", "made by a test"])),
        draw(st.sampled_from(["success", "failure", "unknown"])),
        draw(st.sampled_from(["", "g1"])),
        parent=draw(st.sampled_from([None, Parent("7"), Parent("7", "2")])),
    )
