"""A LangGraph agent that reuses whole plans: one request to the LLM in place of one a call.

    python examples/langgraph_plan_cache.py

The graph asks a cache of plans first. Where it has one, the LLM is asked once, for what is not
known of its calls, and the calls are made; otherwise the LLM goes step by step, and what it called
is put into the cache. A plan that was given says nothing about whether it was right: put its run
once somebody knows, such as the guest at the desk. Tools that spend money deserve a question before
they are called, from a cache or not. A scripted model stands in for an LLM, so that no key is
needed: put ``ChatOpenAI(…)`` there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, TypedDict

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.graph import END, START, StateGraph

import dtdr
from dtdr import ToolCall
from dtdr.llm.backends import LLM, Completion, Decoding
from dtdr.llm.planning import Filler, PlanCache
from dtdr.llm.prompting import Prompt
from dtdr.predict.arguments.values import resolve_references
from dtdr.predict.plans.prediction import PlanPrediction

LOG = Path(__file__).parent / "hotel" / "openai-chat.jsonl"
BROKEN = "The shower in room 204 is broken"
QUERIES = ("Emi Patel is checking out, send the invoice.", BROKEN, BROKEN)


class ScriptedModel(BaseChatModel):
    """Writes the mail of a plan where it is asked to fill one; else reports what is broken."""

    asked: ClassVar[list[str]] = []

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(self, messages: list[BaseMessage], *args: Any, **options: Any) -> ChatResult:
        self.asked.append(messages[0].text)
        answer = AIMessage("out_5: body='Dear Emi, your invoice is attached.'")
        if "Planned calls:" not in messages[0].text:
            step = sum(isinstance(message, AIMessage) for message in messages)
            script = ({"name": "create_ticket", "args": {"room": "204"}, "id": "1"},)
            answer = AIMessage("", tool_calls=list(script[step:][:1]))
        return ChatResult(generations=[ChatGeneration(message=answer)])


class ChatModel(LLM):
    """A LangChain chat model as dtdr asks LLMs."""

    kind = "langchain"
    name = "langchain:chat"
    counts_exactly = False

    def __init__(self, model: BaseChatModel) -> None:
        self.model = model

    def _complete(self, prompt: Prompt, decoding: Decoding) -> Completion:
        return Completion(self.model.invoke(prompt.text).text)

    def count_tokens(self, text: str) -> int:
        """About four characters a token."""
        return len(text) // 4


class State(TypedDict, total=False):
    """What the nodes pass on."""

    query: str
    plan: PlanPrediction | None
    messages: list[BaseMessage]
    calls: list[ToolCall]


def make_call(call: ToolCall, calls: list[ToolCall]) -> ToolCall:
    """The hotel's answer to a call: every field that later calls ask for."""
    outputs = {one.id: one for one in calls}
    arguments = resolve_references(call.arguments, outputs)
    output = {
        "guest_id": "G1",
        "email": "emi@example.org",
        "invoice_id": "I7",
        "bookings": [{"booking_id": "B3"}],
    }
    return ToolCall(call.id, call.tool, arguments, output, "ok")


def build_graph(cache: PlanCache, filler: Filler, model: BaseChatModel) -> Any:
    """Recall → fill → act, or recall → step (until it is done) → remember."""

    def recall(state: State) -> State:
        return {"plan": cache.get(state["query"]), "calls": []}

    def fill(state: State) -> State:
        plan = state["plan"]
        assert plan is not None
        planned = list(zip(plan.ids, plan.calls, strict=True))
        filled = filler.fill_plan(state["query"], [], planned)
        return {
            "calls": [
                ToolCall(id, call.tool, made.arguments)
                for (id, call), made in zip(planned, filled, strict=True)
            ]
        }

    def act(state: State) -> State:
        made: list[ToolCall] = []
        for call in state["calls"]:
            made.append(make_call(call, made))
        return {"calls": made}

    def step(state: State) -> State:
        messages = state.get("messages") or [HumanMessage(state["query"])]
        answer = model.invoke(messages)
        assert isinstance(answer, AIMessage)
        calls = list(state["calls"])
        for one in answer.tool_calls:
            made = ToolCall(str(len(calls) + 1), one["name"], one["args"])
            calls.append(make_call(made, calls))
        return {"messages": [*messages, answer], "calls": calls}

    def remember(state: State) -> State:
        cache.put(dtdr.Run(state["query"], calls=state["calls"]))
        return {}

    def is_done(state: State) -> str:
        last = state["messages"][-1]
        return "step" if isinstance(last, AIMessage) and last.tool_calls else "remember"

    graph = StateGraph(State)
    for node in (recall, fill, act, step, remember):
        graph.add_node(node.__name__, node)
    graph.add_edge(START, "recall")
    graph.add_conditional_edges(
        "recall", lambda state: "step" if state["plan"] is None else "fill", ["step", "fill"]
    )
    graph.add_edge("fill", "act")
    graph.add_edge("act", END)
    graph.add_conditional_edges("step", is_done, ["step", "remember"])
    graph.add_edge("remember", END)
    return graph.compile()


def main() -> None:
    """Learn from the log, then answer three requests, the last one again."""
    retriever = dtdr.fit(LOG, arguments=True, plans=True)
    model = ScriptedModel()
    cache = PlanCache(retriever)
    filler = Filler(retriever.tools_, "both", llm=ChatModel(model), is_learned=True)
    graph = build_graph(cache, filler, model)
    for query in QUERIES:
        model.asked.clear()
        state = graph.invoke({"query": query})
        plan = state["plan"]
        found = "miss" if plan is None else f"hit ({plan.probability:.2f})"
        tools = ", ".join(call.tool for call in state["calls"])
        print(f"{found}, {len(model.asked)} requests to the LLM: {query} {tools}")
    counts = cache.statistics
    print(f"{counts.hits} of {counts.asked} requests had a plan")


if __name__ == "__main__":
    main()
