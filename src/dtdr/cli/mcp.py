"""``dtdr mcp``: between an MCP client and its servers, shows the tools that are needed next."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dtdr.cli.options import ALLOW_ENDPOINT
from dtdr.errors import InputError
from dtdr.traces.cut_options import Outputs

if TYPE_CHECKING:
    from dtdr.gateway import Gateway

KEY_VARIABLE = "DTDR_MCP_KEY"


def mcp(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder.")],
    rest: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="-- UPSTREAM",
            help="After --: a command with its arguments, or URLs; another -- begins the next one.",
            show_default=False,
        ),
    ] = None,
    upstream: Annotated[
        list[str] | None,
        typer.Option(
            "--upstream",
            metavar="NAME=SERVER",
            help="A server by name: NAME='command arguments' or NAME=https://host/mcp; repeatable.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", metavar="FILE", help="JSON with mcpServers or servers, as clients have."
        ),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(
            "--http",
            metavar="[HOST:]PORT",
            help="Serve streamable HTTP at /mcp instead of standard input and output.",
        ),
    ] = None,
    top: Annotated[
        int, typer.Option("--top", metavar="K", help="Ranked tools to show at most.", min=1)
    ] = 10,
    coverage: Annotated[
        float | None,
        typer.Option(
            "--coverage",
            metavar="C",
            help="Of these, the fewest that hold the right one this often (dtdr-f).",
        ),
    ] = None,
    sticky: Annotated[
        str,
        typer.Option(
            "--sticky",
            metavar="HOW",
            help="grow: a shown tool stays until the run ends; confidence: the set changes only "
            "for a clearly better one; none: it follows the ranking.",
        ),
    ] = "grow",
    always: Annotated[
        list[str] | None,
        typer.Option("--always", metavar="TOOL", help="Always show this tool; repeatable."),
    ] = None,
    query: Annotated[
        str | None,
        typer.Option(
            "--query",
            metavar="TEXT",
            help="What to rank for until the client says what the user wants.",
        ),
    ] = None,
    learn: Annotated[
        Path | None,
        typer.Option(
            "--learn",
            metavar="FILE",
            help="Append the calls passed on to this demonstrations.jsonl, and update the model "
            "in memory where it can.",
        ),
    ] = None,
    redact: Annotated[
        bool,
        typer.Option("--redact/--no-redact", help="Scrub secrets and personal data from it."),
    ] = True,
    outputs: Annotated[
        Outputs,
        typer.Option("--outputs", help="What it keeps of the calls' outputs."),
    ] = Outputs.TEXT,
    prefetch: Annotated[
        bool,
        typer.Option(
            "--prefetch",
            help="Make predicted calls while the LLM is thinking, to tools that a server's "
            '"prefetch" in the config lists, or else that the server marks as read-only.',
        ),
    ] = False,
    prefetch_probability: Annotated[
        float,
        typer.Option(
            "--prefetch-probability",
            metavar="P",
            help="How probable a call must be for that.",
            min=0.01,
            max=1,
        ),
    ] = 0.8,
    pin: Annotated[
        Path | None,
        typer.Option(
            "--pin",
            metavar="FILE",
            help="Refuse tools whose definition is not the one first seen, which is kept here.",
        ),
    ] = None,
    odd_calls: Annotated[
        str,
        typer.Option(
            "--odd-calls",
            metavar="HOW",
            help="Judge calls while the client's intent is known: log writes a line for those "
            "unlike earlier runs, refuse does not make them, ignore judges none.",
        ),
    ] = "ignore",
    input_price: Annotated[
        float,
        typer.Option(
            "--input-price",
            metavar="USD",
            help="What a million tokens of the client's LLM cost, for the money saved in /metrics.",
            min=0,
        ),
    ] = 0.0,
    wait: Annotated[
        float,
        typer.Option(
            "--wait",
            metavar="SECONDS",
            help="How long a call waits for a server that is away before it fails.",
            min=0,
        ),
    ] = 5.0,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Say on standard error what happens.")
    ] = False,
    allow_endpoint: ALLOW_ENDPOINT = None,
) -> None:
    """Stand between an MCP client and its servers, and show the tools it needs next.

    Example: dtdr mcp model -- npx -y @modelcontextprotocol/server-filesystem .
    """
    from dtdr.api import load
    from dtdr.gateway import Gateway, GatewayOptions, parse_rest, parse_upstream, read_config
    from dtdr.integrations.early_calls import PrefetchBounds
    from dtdr.integrations.policy import ToolPolicy

    specs = [
        *(read_config(config) if config is not None else ()),
        *map(parse_upstream, upstream or ()),
        *parse_rest(rest or ()),
    ]
    policy = ToolPolicy(
        top_k=top,
        coverage=coverage,
        always_include=tuple(always or ()),
        # The gateway's search finds what an unfamiliar query needs; a coverage means nothing there.
        fallback=coverage is not None,
        sticky=sticky,  # type: ignore[arg-type]  # checked by ToolPolicy
    )
    options = GatewayOptions(
        policy=policy,
        learn=learn,
        redact=redact,
        outputs=outputs,
        prefetch=PrefetchBounds(prefetch_probability) if prefetch else None,
        pin=pin,
        odd_calls=odd_calls,  # type: ignore[arg-type]  # checked by Gateway
        wait_seconds=wait,
        input_price=input_price,
    )
    if query is not None:
        options = replace(options, query=query)
    _log_to_standard_error(verbose=verbose)
    _serve(Gateway(load(model), specs, options), http)


def _serve(gateway: Gateway, http: str | None) -> None:
    import anyio

    from dtdr.gateway import serve_http, serve_stdio
    from dtdr.gateway.http import LIMITS
    from dtdr.server.process import tune_process

    tune_process(LIMITS.connections)
    if http is None:
        anyio.run(serve_stdio, gateway)
        return
    host, port = _address(http)
    key = os.environ.get(KEY_VARIABLE, "")
    anyio.run(lambda: serve_http(gateway, host, port, key=key))


def _log_to_standard_error(*, verbose: bool) -> None:
    """Standard output belongs to the protocol."""
    from dtdr.gateway.terminal import PrintableFormatter

    handler = logging.StreamHandler()
    handler.setFormatter(PrintableFormatter("dtdr: %(message)s"))
    logger = logging.getLogger("dtdr.mcp")
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.INFO if verbose else logging.WARNING)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise InputError(f"--http {text!r} must be a port, or HOST:PORT")
    return host or "127.0.0.1", int(port)
