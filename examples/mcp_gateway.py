"""A gateway in front of two MCP servers, and what its client sees.

    python examples/mcp_gateway.py

This file is also the two servers (``mcp_gateway.py --serve desk``). One has the tools of the
hotel's front desk, the other those of its house.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import dtdr
from examples.hotel.tools import TOOLS

LOG = Path(__file__).parent / "hotel" / "openai-chat.jsonl"
HALF = 16


def serve(name: str) -> None:
    """One of the two servers, on standard input and output."""
    from mcp.server.mcpserver import MCPServer

    server = MCPServer(name)
    for tool in TOOLS[:HALF] if name == "desk" else TOOLS[HALF:]:
        function = tool["function"]
        server.add_tool(lambda: "done", name=function["name"], description=function["description"])
    server.run("stdio")


async def use(model: str) -> None:
    """Be a client of the gateway: list the tools, call two, list again."""
    from mcp import Client, StdioServerParameters

    servers = [
        argument
        for name in ("desk", "house")
        for argument in ("--", sys.executable, __file__, "--serve", name)
    ]
    arguments = ["-m", "dtdr", "mcp", model, "--top-k", "3", *servers]
    async with Client(StdioServerParameters(command=sys.executable, args=arguments)) as client:
        listed = [tool.name for tool in (await client.list_tools()).tools]
        print(f"before a call: {', '.join(listed)}")
        for name in ("find_guest", "search_bookings"):
            await client.call_tool(name, {})
            listed = [tool.name for tool in (await client.list_tools()).tools]
            print(f"after {name}: {', '.join(listed)}")


def main() -> None:
    """Learn from the log, then start the gateway and use it."""
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2])
        return
    with tempfile.TemporaryDirectory() as folder:
        model = str(Path(folder) / "model")
        dtdr.fit(LOG).save(model)
        asyncio.run(use(model))


if __name__ == "__main__":
    main()
