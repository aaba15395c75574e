"""How a gateway chooses and learns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dtdr.integrations.policy import ToolPolicy
from dtdr.traces.mcp import MCP

DEFAULT_POLICY = ToolPolicy(top_k=10, sticky="grow")


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """How the gateway chooses and learns.

    Attributes:
        policy: how many ranked tools are shown and when they may change. ``grow``, the default,
            keeps a tool that was shown until the run ends, so that the list changes less often and
            the client's prompt cache holds longer. ``always_include`` are names as clients see
            them; of tools that the model does not know, too.
        query: what is ranked for while the client has not said what the user wants. The default is
            the text that ``dtdr import mcp`` gives such runs, so that models fitted on MCP logs
            rank as they learned.
        learn: file that the demonstrations of passed calls are appended to; None learns nothing.
        redact: scrub secrets and personal data from it.
        run_gap: seconds without a call that end a run.
        connect_seconds: how long a server may take to connect.
        wait_seconds: how long a call waits for a server that is away before it fails.
        idle_seconds: how long an HTTP client without requests is remembered.
    """

    policy: ToolPolicy = DEFAULT_POLICY
    query: str = MCP.default_query
    learn: Path | None = None
    redact: bool = True
    run_gap: float = 300.0
    connect_seconds: float = 30.0
    wait_seconds: float = 5.0
    idle_seconds: float = 1800.0
