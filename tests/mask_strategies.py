"""Hypothesis strategies for masks: rankings, tool lists, conversations, policies."""

import itertools

import numpy as np
from hypothesis import strategies as st

from dtdr.agents import ToolPolicy, Transcript, Turn
from dtdr.data.calls import END, ToolCall
from dtdr.data.demonstrations import Message
from dtdr.rankers.ranking import Ranking

KNOWN = ("open_file", "summarize", "send mail", "weather.get", "übersetze", "搜索")
FOREIGN = ("web_search", "new-tool", "🔧")
NAMES = (*KNOWN, *FOREIGN)


@st.composite
def rankings(draw, known=KNOWN):
    """Rankings of the known tools and the end of plan; zeros and ties included."""
    vocabulary = (*known, END)
    weights = draw(st.lists(st.integers(0, 20), min_size=len(vocabulary), max_size=len(vocabulary)))
    scores = np.array(weights, dtype=float)
    total = scores.sum()
    shares = scores / total if total else np.full(len(scores), 1 / len(scores))
    return Ranking(vocabulary, shares, threshold=draw(st.sampled_from([None, 0.1, 0.3])))


available = st.lists(st.sampled_from(NAMES), unique=True, max_size=len(NAMES))
called = st.lists(st.sampled_from(NAMES), max_size=6)
costs = st.fixed_dictionaries({name: st.integers(0, 50) for name in NAMES})

policies = st.builds(
    ToolPolicy,
    top_k=st.none() | st.integers(1, 8),
    threshold=st.none() | st.sampled_from([0.0, 0.05, 0.2, 0.5, 0.9]),
    token_budget=st.none() | st.integers(1, 200),
    always_include=st.lists(st.sampled_from(NAMES), max_size=2).map(tuple),
    sticky=st.sampled_from(["none", "grow", "confidence"]),
    tolerance=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
)

steps = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map(tuple)


def conversation_of(*turns):
    """A transcript of ``(query, steps)``, a step being the names called by one answer."""
    numbers = itertools.count(1)
    return Transcript(
        tuple(
            Turn(
                query,
                tuple(
                    ToolCall(str(next(numbers)), name, {}, "fine", "ok", step)
                    for step, names in enumerate(steps, start=1)
                    for name in names
                )
                + ((Message("assistant", "There you are."),) if place < len(turns) - 1 else ()),
            )
            for place, (query, steps) in enumerate(turns)
        )
    )


def steps_of(turn):
    """The names called by each answer of a turn."""
    groups = itertools.groupby(turn.calls, key=lambda call: call.step)
    return [tuple(call.tool for call in calls) for _, calls in groups]


def outline(conversation):
    """``(query, steps)`` of each turn: what ``conversation_of`` takes."""
    return [(turn.query, steps_of(turn)) for turn in conversation.turns]


turns = st.tuples(
    st.sampled_from(["Mail Ann", "Weather in Rome", "搜索 it"]), st.lists(steps, max_size=3)
)
transcripts = st.lists(turns, min_size=1, max_size=3).map(lambda turns: conversation_of(*turns))
