"""A small MCP server for the tests: ``python server.py '{"tools": 100, …}'``.

Keys of the JSON object on its command line:
    tools: how many tools named ``<prefix>tool_0`` …; each answers with its name and arguments.
    prefix: begins their names.
    names: more tools, ``{name: description}``.
    journal: a file; every call that is carried out appends the value of its ``id`` argument.
    special: adds tools that fail, ask, log and so on.
    handshake: speaks only the protocols before 2026-07-28.
    delay: seconds that every call takes.
    late: seconds before the server answers anything.
    pid: a file that the process writes its number to.
    http: a port; serves streamable HTTP instead of standard input and output.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import uvicorn
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.runner import serve_loop
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.subscriptions import ToolsListChanged

ANY = {"type": "object", "properties": {"id": {"type": "string"}}}
SPECIAL = {
    "slow": "Works until it is cancelled, reporting progress.",
    "fail": "Answers with an error of its own.",
    "refuse": "Answers with a protocol error.",
    "log": "Answers.",
    "ask": "Asks the user for a name, then answers.",
    "think": "Asks the client's LLM, then answers.",
    "where": "Asks for the client's roots, then answers.",
    "grow": "Adds a tool to the server, or describes the tool `describe` anew.",
}
QUESTIONS: dict[str, tuple[Any, Any, Any]] = {
    "ask": (
        types.ElicitRequest(
            params=types.ElicitRequestFormParams(
                message="Who?",
                requested_schema={"type": "object", "properties": {"name": {"type": "string"}}},
            )
        ),
        types.ElicitResult,
        lambda answer: (answer.content or {}).get("name"),
    ),
    "think": (
        types.CreateMessageRequest(
            params=types.CreateMessageRequestParams(
                messages=[
                    types.SamplingMessage(
                        role="user", content=types.TextContent(type="text", text="2 + 2?")
                    )
                ],
                max_tokens=10,
            )
        ),
        types.CreateMessageResult,
        lambda answer: answer.content.text,
    ),
    "where": (
        types.ListRootsRequest(),
        types.ListRootsResult,
        lambda answer: [str(root.uri) for root in answer.roots],
    ),
}
"""By tool: what it asks the client, the type of the answer, and what is read of it."""


def build(options: dict[str, Any]) -> Server[Any]:
    """The server that the options describe."""
    prefix = options.get("prefix", "")
    tools = {
        f"{prefix}tool_{number}": f"Does the work number {number} of {prefix or 'all'}."
        for number in range(options.get("tools", 0))
    }
    tools.update(options.get("names", {}))
    if options.get("special", False):
        tools.update(SPECIAL)
    journal = Path(options["journal"]) if "journal" in options else None
    bus = InMemorySubscriptionBus()

    def note(entry: str) -> None:
        if journal is not None:
            with journal.open("a") as stream:
                stream.write(f"{entry}\n")

    def text(value: object) -> types.CallToolResult:
        return types.CallToolResult(content=[types.TextContent(type="text", text=str(value))])

    async def list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
        definitions = [
            types.Tool(name=name, description=description, input_schema=ANY)
            for name, description in tools.items()
        ]
        # Two pages, so that the gateway has to ask for the second.
        half = len(definitions) // 2
        if params.cursor is None and half:
            return types.ListToolsResult(tools=definitions[:half], next_cursor="second")
        return types.ListToolsResult(tools=definitions[half:] if half else definitions)

    async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> Any:
        name, arguments = params.name, params.arguments or {}
        if name not in tools:
            raise MCPError(types.INVALID_PARAMS, f"this server has no {name}")
        if name != "slow":
            note(str(arguments.get("id")))
        await anyio.sleep(options.get("delay", 0))
        if name == "slow":
            try:
                for step in range(1, 200):
                    await ctx.session.report_progress(step, 200, f"step {step}")
                    await anyio.sleep(0.05)
            except anyio.get_cancelled_exc_class():
                note("cancelled")
                raise
        if name == "fail":
            failed = text("the disk of the server is full")
            failed.is_error = True
            return failed
        if name == "refuse":
            raise MCPError(-32099, "refused by the server", {"why": "test"})
        if name in QUESTIONS:
            return await question(ctx, params, *QUESTIONS[name])
        if name == "grow":
            added = arguments.get("describe", f"{prefix}grown_{len(tools)}")
            tools[added] = "A tool that came later."
            await bus.publish(ToolsListChanged())
            await ctx.session.send_tool_list_changed()
        return text(json.dumps({"tool": name, **arguments}))

    async def question(ctx: Any, params: Any, request: Any, kind: Any, read: Any) -> Any:
        if ctx.protocol_version < "2026":
            related = ServerMessageMetadata(related_request_id=ctx.request_id)
            answer = await ctx.session.send_request(request, kind, metadata=related)
        elif params.input_responses:
            answer = params.input_responses["it"]
        else:
            return types.InputRequiredResult(input_requests={"it": request}, request_state="state")
        return text(read(answer))

    async def roots_changed(ctx: Any, params: Any) -> None:
        note("roots-changed")

    async def list_resources(ctx: Any, params: Any) -> types.ListResourcesResult:
        return types.ListResourcesResult(
            resources=[types.Resource(uri=f"memo://{prefix}note", name="note")]
        )

    async def list_templates(ctx: Any, params: Any) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(
            resource_templates=[
                types.ResourceTemplate(uri_template=f"memo://{prefix}day/{{day}}", name="day")
            ]
        )

    async def read(ctx: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        if not params.uri.startswith(f"memo://{prefix}"):
            raise MCPError(-32002, "Resource not found")
        return types.ReadResourceResult(
            contents=[types.TextResourceContents(uri=params.uri, text=f"{prefix}: {params.uri}")]
        )

    async def list_prompts(ctx: Any, params: Any) -> types.ListPromptsResult:
        prompts = [types.Prompt(name=name) for name in ("greet", f"{prefix}only")]
        return types.ListPromptsResult(prompts=prompts)

    async def get_prompt(ctx: Any, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        message = types.TextContent(type="text", text=f"{prefix} {params.name}")
        return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=message)])

    server: Server[Any] = Server(
        f"test {prefix}",
        instructions=f"Instructions of {prefix}." if prefix else None,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        on_subscriptions_listen=ListenHandler(bus),
    )
    server.add_notification_handler(
        "notifications/roots/list_changed", types.NotificationParams, roots_changed
    )
    return server


async def serve(options: dict[str, Any], streams: Any = None) -> None:
    """Serve until the client leaves: over streams, or standard input and output, or HTTP."""
    if "pid" in options:
        Path(options["pid"]).write_text(str(os.getpid()))
    await anyio.sleep(options.get("late", 0))
    server = build(options)
    if "http" in options:
        app = server.streamable_http_app(host="127.0.0.1")
        config = uvicorn.Config(app, port=options["http"], log_level="error")
        await uvicorn.Server(config).serve()
        return
    changes = NotificationOptions(True, True, True)
    initial = server.create_initialization_options(changes)
    async with nullcontext(streams) if streams else stdio_server() as (read, write):
        if options.get("handshake", False):
            await serve_loop(server, read, write, lifespan_state={}, init_options=initial)
        else:
            await server.run(read, write, initial)


if __name__ == "__main__":
    anyio.run(serve, json.loads(sys.argv[1]))
