"""The world of ``clients.py``: tools, scripted runs, MCP servers, and a scripted model server.

    python benchmarks/clients_world.py tools 90              # an MCP server of 90 scripted tools
    python benchmarks/clients_world.py proxy servers.json    # passes all tools of all servers on

Ten kinds of work use some 60 of the tools. A run opens its work, repeats a part of it, and closes
it; which steps it leaves out is drawn. Every fourth held-out run goes on with another kind of work,
as no run to learn from does; held-out runs can also be reworded, with wordings that share few words
with those learned from.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import dtdr

FILE_STEPS: dict[str, dict[str, Any]] = {
    "list_directory": {"path": "."},
    "search_files": {"path": ".", "pattern": "*.txt"},
    "read_text_file": {"path": "notes.txt"},
    "get_file_info": {"path": "notes.txt"},
    "write_file": {"path": "summary.txt", "content": "A summary."},
    "create_directory": {"path": "old"},
    "get-sum": {"a": 2, "b": 3},
    "echo": {"message": "done"},
}
"""Arguments of the real servers' tools; the scripted tools take an id."""


@dataclass(frozen=True)
class Kind:
    """One kind of work: what users say, in runs to learn from and in others, and its calls."""

    learned: tuple[str, ...]
    reworded: tuple[str, ...]
    opening: tuple[str, ...]
    repeated: tuple[str, ...]
    closing: tuple[str, ...]


KINDS = (
    Kind(
        (
            "Remind everyone whose invoice is overdue",
            "Send payment reminders for unpaid invoices",
            "Chase the overdue invoices of {month}",
            "Which invoices are late? Remind the customers",
        ),
        ("Some customers have not paid us in {month}, please follow up", "Go after late payers"),
        ("find_invoices",),
        ("get_invoice", "get_customer", "send_reminder"),
        ("get-sum", "update_ledger", "post_message"),
    ),
    Kind(
        (
            "Ship the open orders of {month}",
            "Get the waiting orders out of the warehouse",
            "Pack and ship everything that was ordered",
            "Create shipments for orders that are paid",
        ),
        ("Orders are piling up, bring them on their way", "Dispatch what was ordered in {month}"),
        ("find_orders", "get_warehouse"),
        ("get_order", "check_stock", "create_shipment", "print_label"),
        ("update_order", "notify_carrier"),
    ),
    Kind(
        (
            "The service {name} is down, find out why",
            "Look into the alert of {name} and bring it back",
            "Resolve the incident on {name}",
            "Why does {name} answer with errors? Repair it",
        ),
        ("{name} is broken again since this morning", "Customers see errors on {name}, act on it"),
        ("list_alerts", "get_incident"),
        ("search_logs", "get_metrics", "restart_service"),
        ("update_incident", "post_message", "write_postmortem"),
    ),
    Kind(
        (
            "Set up interviews with the candidates for {name}",
            "Invite applicants for the job {name}",
            "Schedule interviews for the opening {name}",
            "Plan talks with the people who applied as {name}",
        ),
        ("We want to meet those who applied for {name}",
         "Arrange dates with the applicants of {month}"),
        ("find_candidates", "get_job_opening"),
        ("get_candidate", "find_free_slots", "create_event", "send_invitation"),
        ("update_candidate", "book_room"),
    ),
    Kind(
        (
            "Book a trip to {name} in {month}",
            "I need flights and a hotel for {name}",
            "Plan my journey to the customer in {name}",
            "Arrange travel to {name} with a hotel",
        ),
        ("I have to be in {name} for two days in {month}", "Get me to {name} and back"),
        ("search_flights", "get_travel_policy"),
        ("get_flight", "search_hotels", "get_hotel"),
        ("book_flight", "book_hotel", "create_event", "submit_expense"),
    ),
    Kind(
        (
            "Release the new version of {name}",
            "Cut a release of {name} and deploy it",
            "Ship version 2 of {name} to production",
            "Deploy the latest build of {name}",
        ),
        ("Bring {name} with this week's changes to production", "Roll out {name} now"),
        ("list_commits", "get_build"),
        ("run_tests", "get_test_report", "create_release"),
        ("deploy_service", "get_metrics", "post_message"),
    ),
    Kind(
        (
            "Get the contract with {name} signed",
            "Prepare the contract of {name} for signature",
            "Send the agreement with {name} out to be signed",
            "Renew the contract with {name}",
        ),
        ("{name} should sign the agreement by the end of {month}",
         "Finish the paperwork with {name}"),
        ("find_contracts", "get_contract"),
        ("compare_versions", "add_comment", "get_clause"),
        ("request_signature", "store_document", "set_deadline"),
    ),
    Kind(
        (
            "Answer the open support tickets",
            "Work through the tickets about {name}",
            "Reply to the customers who wrote to support",
            "Close the tickets of {month} that can be answered",
        ),
        ("Support is behind, help people who wrote about {name}", "Clear the help desk queue"),
        ("list_tickets",),
        ("get_ticket", "get_customer", "search_articles", "reply_to_ticket"),
        ("close_ticket", "post_message"),
    ),
    Kind(
        (
            "Summarize the notes in this folder",
            "Read the text files here and write a summary",
            "Make a summary file of my notes",
            "Collect what the notes of {month} say in one file",
        ),
        ("What do the texts in my folder say? Write it down", "Condense my notes about {name}"),
        ("list_directory", "search_files"),
        ("get_file_info", "read_text_file"),
        ("write_file", "create_directory", "echo"),
    ),
    Kind(
        (
            "Plan the newsletter for {month}",
            "Send a campaign to the customers of {name}",
            "Prepare the mailing about {name}",
            "Schedule a newsletter on {name}",
        ),
        ("Tell our subscribers about {name}", "We announce {name} in {month}, mail everyone"),
        ("find_segments", "get_brand_guide"),
        ("list_contacts", "create_campaign", "render_preview"),
        ("schedule_campaign", "get_statistics", "get-sum"),
    ),
)  # fmt: skip

_NAMES = ("Lisbon", "Atlas", "Nordwind", "Checkout", "Payments", "Harbour", "Data Engineer", "Oslo")
_MONTHS = ("March", "May", "July", "October", "November")
_OBJECTS = (
    "asset", "badge", "budget", "certificate", "coupon", "dashboard", "domain", "feature_flag",
    "feedback_form", "forecast", "insurance_claim", "license", "lead", "meeting_minutes", "mission",
    "parking_space", "payslip", "price_list", "purchase_order", "refund", "sprint", "survey",
    "timesheet", "training", "vendor", "vehicle",
)  # fmt: skip
_VERBS = ("create", "list", "archive", "export")


@dataclass
class ScriptedRun:
    """What the user says, and the calls that the scripted model makes."""

    query: str
    steps: list[str]


def make_runs(
    seed: int, count: int, *, held_out: bool = False, reworded: bool = False
) -> list[ScriptedRun]:
    """Runs of all kinds in turns, each of at least ten calls."""
    draw = random.Random(seed)
    runs = []
    for number in range(count):
        kind = KINDS[number % len(KINDS)]
        run = _draw_run(draw, kind, 10, reworded=reworded)
        if held_out and number % 4 == 3:
            other = KINDS[(number + 4) % len(KINDS)]
            more = _draw_run(draw, other, 4, reworded=reworded)
            run = ScriptedRun(f"{run.query}. After that: {more.query}", run.steps + more.steps)
        runs.append(run)
    return runs


def _draw_run(draw: random.Random, kind: Kind, at_least: int, *, reworded: bool) -> ScriptedRun:
    wordings = kind.reworded if reworded else kind.learned
    words = {"name": draw.choice(_NAMES), "month": draw.choice(_MONTHS)}
    closing = [step for step in kind.closing if draw.random() < 0.75]
    steps = list(kind.opening)
    while len(steps) + len(closing) < at_least:
        steps += [step for step in kind.repeated if draw.random() < 0.85]
    return ScriptedRun(draw.choice(wordings).format(**words), steps + closing)


def demonstrations(runs: list[ScriptedRun]) -> Iterator[dtdr.Demonstration]:
    """The runs as ``dtdr import`` would read them."""
    for number, run in enumerate(runs):
        calls = tuple(
            dtdr.ToolCall(str(step), tool, arguments_of(tool), output=output_of(tool), step=step)
            for step, tool in enumerate(run.steps)
        )
        yield dtdr.Demonstration(f"run-{number}", run.query, dtdr.Plan(calls))


def arguments_of(tool: str) -> dict[str, Any]:
    """What the scripted model calls a tool with."""
    return FILE_STEPS.get(tool, {"id": "A-17", "note": "as agreed"})


def output_of(tool: str) -> dict[str, Any]:
    """What a scripted tool answers."""
    return {"ok": tool, "state": "open", "owner": "Ann"}


def scripted_tools(count: int) -> list[dict[str, Any]]:
    """Definitions of so many scripted tools, those that runs use first."""
    used = [s for kind in KINDS for s in (*kind.opening, *kind.repeated, *kind.closing)]
    names = [name for name in dict.fromkeys(used) if name not in FILE_STEPS]
    names += [f"{verb}_{item}" for verb in _VERBS for item in _OBJECTS]
    return [_definition(name) for name in names[:count]]


def _definition(name: str) -> dict[str, Any]:
    verb, _, item = name.replace("_", " ").partition(" ")
    text = {"type": "string"}
    return {
        "name": name,
        "description": (
            f"{verb.capitalize()} {item} in the company's system. Takes the identifier of the "
            f"{item} and, where it matters, how the result is narrowed down. Returns the {item} "
            "with its state, its owner and the time of its last change."
        ),
        "inputSchema": {
            "type": "object",
            "properties": {
                "id": {**text, "description": f"Identifier of the {item}, such as A-17."},
                "note": {**text, "description": "What is written into the history."},
                "filter": {**text, "description": f"Only what matches, in the terms of {item}."},
                "limit": {"type": "integer", "minimum": 1, "maximum": 200, "default": 20},
            },
            "required": ["id"],
        },
    }  # fmt: skip


# -- MCP servers ---------------------------------------------------------------------------------


async def serve_tools(count: int) -> None:
    """An MCP server of scripted tools over standard input and output."""
    import mcp_types as types
    from mcp.server.lowlevel.server import Server
    from mcp.server.stdio import stdio_server

    tools = [types.Tool.model_validate(tool) for tool in scripted_tools(count)]

    async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools)

    async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        text = json.dumps(output_of(params.name))
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)])

    server: Server[Any] = Server("scripted", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


async def serve_proxy(config: Path) -> None:
    """A plain proxy: every tool of every server, as it is."""
    import mcp_types as types
    from mcp import Client, StdioServerParameters
    from mcp.server.lowlevel.server import Server
    from mcp.server.stdio import stdio_server

    entries = json.loads(config.read_text())["mcpServers"]
    async with contextlib.AsyncExitStack() as stack:
        owners: dict[str, Any] = {}
        tools = []
        for entry in entries.values():
            client = await stack.enter_async_context(Client(StdioServerParameters(**entry)))
            for tool in (await client.list_tools()).tools:
                owners[tool.name] = client
                tools.append(tool)

        async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
            return types.ListToolsResult(tools=tools)

        async def call_tool(context: Any, params: Any) -> types.CallToolResult:
            result: types.CallToolResult = await owners[params.name].call_tool(
                params.name, params.arguments
            )
            return result

        server: Server[Any] = Server("proxy", on_list_tools=list_tools, on_call_tool=call_tool)
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())


# -- the scripted model --------------------------------------------------------------------------


SEARCHES = ("ToolSearch", "tool_search", "search_tools")
"""Tools that find tools: Claude Code's, Codex's, and ``dtdr mcp``'s; asked in turns."""


@dataclass
class Request:
    """What a client sent for one step.

    Attributes:
        tools: characters of each definition that the model could read, by name.
        wanted: the tool that the script calls next; empty at its end.
        loaded: whether it was among them.
        searched: whether the answer was a search.
    """

    tools: dict[str, int]
    wanted: str
    loaded: bool = False
    searched: bool = False


@dataclass
class Script:
    """A run as the model server plays it: one step an answer, a search where a tool is missing."""

    run: ScriptedRun
    position: int = 0
    tries: int = 0
    requests: list[Request] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    unreached: list[str] = field(default_factory=list)

    def answer(self, tools: dict[str, int]) -> tuple[str, dict[str, Any]] | None:
        """The full name and the arguments of the next call; None at the end."""
        while self.position < len(self.run.steps):
            wanted = self.run.steps[self.position]
            request = Request(tools, wanted)
            full = next((name for name in tools if is_named(name, wanted)), None)
            if full is not None:
                request.loaded, self.tries = True, 0
                self.position += 1
                self.requests.append(request)
                return full, arguments_of(wanted)
            searches = [name for s in SEARCHES for name in tools if is_named(name, s)]
            if self.tries < 2 * len(searches):
                search = searches[self.tries % len(searches)]
                request.searched = True
                self.tries += 1
                self.requests.append(request)
                text = wanted.replace("_", " ").replace("-", " ")
                return search, {"query": f"+{wanted}" if search == "ToolSearch" else text}
            self.requests.append(request)
            self.unreached.append(wanted)
            self.position, self.tries = self.position + 1, 0
        self.requests.append(Request(tools, ""))
        return None


SERVERS = ("everything", "files", "scripted", "tools")
"""Names of servers in clients' configurations; the last is the gateway's, or the proxy's."""


def is_named(full: str, name: str) -> bool:
    """Whether a client's name for a tool is that tool: clients put the server's name before it."""
    known = {"", *(f"{server}_" for server in SERVERS)}
    known |= {f"mcp__{server}__" for server in SERVERS}
    plain, name = full.replace("-", "_"), name.replace("-", "_")
    return plain.endswith(name) and plain.removesuffix(name) in known


def is_of_server(full: str) -> bool:
    """Whether a tool is of an MCP server, by the client's name for it."""
    return full.startswith(("mcp__", *(f"{server}_" for server in SERVERS)))


class ModelServer(ThreadingHTTPServer):
    """Answers as the Messages API and the Responses API do, streamed; the path says which run."""

    daemon_threads = True

    def __init__(self, *, keep_bodies: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.scripts: dict[str, Script] = {}
        self.keep_bodies = keep_bodies
        self.unknown: list[str] = []
        self.lock = threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def url(self, name: str) -> str:
        """The base URL of a run."""
        return f"http://127.0.0.1:{self.server_address[1]}/{name}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ModelServer

    def log_message(self, *_: object) -> None:
        """Says nothing."""

    def do_GET(self) -> None:
        self._json(404, {"error": {"message": "not here"}})

    def do_HEAD(self) -> None:
        self._json(200, {})

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        raw = self.rfile.read(length)
        _, name, *rest = self.path.partition("?")[0].split("/")
        script = self.server.scripts.get(name)
        try:
            body = json.loads(raw or b"{}")
        except ValueError:
            body = {}
        if script is None or rest[-1:] not in (["messages"], ["responses"]):
            self.server.unknown.append(self.path)
            self._json(200 if rest[-1:] == ["count_tokens"] else 404, {"input_tokens": 1_000})
            return
        is_messages = rest[-1] == "messages"
        tools = read_tools(body)
        with self.server.lock:
            if self.server.keep_bodies:
                script.bodies.append(body)
            # A request without tools is the client's own: a title, a summary.
            call = script.answer(tools) if tools else None
        events = _messages_events(call) if is_messages else _responses_events(call, body)
        self._stream(events)

    def _json(self, status: int, value: Any) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _stream(self, events: list[dict[str, Any]]) -> None:
        text = "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events)
        data = text.encode()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def read_tools(body: Mapping[str, Any]) -> dict[str, int]:
    """Characters of each definition that a model reads at this request, by the client's name.

    A deferred definition counts once a search result of the conversation refers to it.
    """
    text = json.dumps([body.get("messages"), body.get("input")])
    tools = {}
    for tool in body.get("tools") or ():
        for name, definition in _each(tool):
            if definition.get("defer_loading") and f'"tool_name": "{name}"' not in text:
                continue
            tools[name] = len(json.dumps(definition, ensure_ascii=False))
    for item in body.get("input") or ():  # what Codex's search found
        if isinstance(item, dict) and item.get("type") == "tool_search_output":
            for tool in item.get("tools") or ():
                for name, definition in _each(tool):
                    tools[name] = len(json.dumps(definition, ensure_ascii=False))
    return tools


def _each(tool: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if tool.get("type") == "namespace":
        for inner in tool.get("tools") or ():
            yield f"{tool['name'].removesuffix('__')}__{inner['name']}", inner
    else:
        yield str(tool.get("name") or tool.get("type")), tool


def _messages_events(call: tuple[str, dict[str, Any]] | None) -> list[dict[str, Any]]:
    usage = {"input_tokens": 1_000, "output_tokens": 20}
    message: dict[str, Any] = {
        "id": f"msg_{random.randrange(1 << 40):x}", "type": "message", "role": "assistant",
        "model": "scripted", "content": [], "stop_reason": None, "usage": usage,
    }  # fmt: skip
    if call is None:
        block: dict[str, Any] = {"type": "text", "text": ""}
        delta = {"type": "text_delta", "text": "Done."}
    else:
        identity = f"toolu_{random.randrange(1 << 40):x}"
        block = {"type": "tool_use", "id": identity, "name": call[0], "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(call[1])}
    reason = "end_turn" if call is None else "tool_use"
    return [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage},
        {"type": "message_stop"},
    ]  # fmt: skip


def _responses_events(
    call: tuple[str, dict[str, Any]] | None, body: Mapping[str, Any]
) -> list[dict[str, Any]]:
    identity = f"{random.randrange(1 << 40):x}"
    response: dict[str, Any] = {
        "id": f"resp_{identity}", "object": "response", "model": "scripted", "output": [],
        "status": "in_progress", "created_at": 0,
    }  # fmt: skip
    if call is None:
        text = {"type": "output_text", "text": "Done.", "annotations": []}
        item: dict[str, Any] = {
            "type": "message", "id": f"msg_{identity}", "role": "assistant", "status": "completed",
            "content": [text],
        }  # fmt: skip
    elif call[0] == "tool_search":
        item = {
            "type": "tool_search_call", "id": f"ts_{identity}", "call_id": f"call_{identity}",
            "execution": "client", "arguments": call[1], "status": "completed",
        }  # fmt: skip
    else:
        item = {
            "type": "function_call", "id": f"fc_{identity}", "call_id": f"call_{identity}",
            "name": call[0], "arguments": json.dumps(call[1]), "status": "completed",
        }  # fmt: skip
        for tool in (*(body.get("tools") or ()), *_found(body)):
            for name, inner in _each(tool) if tool.get("type") == "namespace" else ():
                if name == call[0]:
                    item |= {"name": inner["name"], "namespace": tool["name"]}
    usage = {
        "input_tokens": 1_000, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 20,
        "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 1_020,
    }  # fmt: skip
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": response},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {
            "type": "response.completed",
            "response": {**response, "status": "completed", "output": [item], "usage": usage},
        },
    ]
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def _found(body: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for item in body.get("input") or ():
        if isinstance(item, dict) and item.get("type") == "tool_search_output":
            yield from item.get("tools") or ()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["tools", count]:
            asyncio.run(serve_tools(int(count)))
        case ["proxy", config]:
            asyncio.run(serve_proxy(Path(config)))
