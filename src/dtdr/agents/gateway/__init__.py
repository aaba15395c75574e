"""An MCP gateway that lists only the most likely tools of its servers.

Needs the official SDK: ``pip install 'dtdr[mcp]'``. See ``docs/gateway.md``.
"""

from __future__ import annotations

from importlib.util import find_spec

from dtdr.errors import MissingExtraError

if find_spec("mcp") is None or find_spec("mcp_types") is None:
    raise MissingExtraError("the MCP gateway", "mcp", "mcp")

from dtdr.agents.gateway.config import UpstreamSpec, parse_rest, read_config
from dtdr.agents.gateway.gateway import Gateway
from dtdr.agents.gateway.pins import Pins
from dtdr.agents.gateway.serve import serve_http, serve_stdio
from dtdr.agents.gateway.server import GatewayServer
from dtdr.agents.recording import Recorder

__all__ = [
    "Gateway",
    "GatewayServer",
    "Pins",
    "Recorder",
    "UpstreamSpec",
    "parse_rest",
    "read_config",
    "serve_http",
    "serve_stdio",
]
