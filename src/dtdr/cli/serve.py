"""``dtdr serve``: ranking over HTTP; ``dtdr keys``: who may ask."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from dtdr.cli import options
from dtdr.cli.output import console, note, print_json
from dtdr.cli.studio import DATA, LAB, studio_endpoints
from dtdr.errors import InputError
from dtdr.server.settings import DEFAULT_HOST, DEFAULT_PORT, Limits, Settings, named_models

keys = typer.Typer(
    name="keys",
    help="Make, list and revoke the keys of a server.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

KEY_FILE = Annotated[Path, typer.Argument(metavar="FILE", help="The file of keys.")]


def serve(
    models: Annotated[
        list[str],
        typer.Argument(metavar="MODEL", help="Model folders, each FOLDER or NAME=FOLDER."),
    ],
    host: Annotated[
        str,
        typer.Option(
            "--host", metavar="ADDRESS", help="Where to listen; all but loopback needs --keys."
        ),
    ] = DEFAULT_HOST,
    port: Annotated[
        int, typer.Option("--port", metavar="N", help="Port; 0 takes a free one.")
    ] = DEFAULT_PORT,
    key_file: Annotated[
        Path | None,
        typer.Option("--keys", metavar="FILE", help="Ask for a key of this file."),
    ] = None,
    sessions: Annotated[
        str | None,
        typer.Option(
            "--sessions",
            metavar="URL",
            envvar="DTDR_SESSIONS",
            help="Keep sessions in this Redis or Valkey, for several servers.",
        ),
    ] = None,
    watch: Annotated[
        float,
        typer.Option(
            "--watch", metavar="S", help="Reload a changed model folder within S seconds; 0: never."
        ),
    ] = 2.0,
    feedback_log: Annotated[
        str | None,
        typer.Option(
            "--feedback-log",
            metavar="LOG",
            envvar="DTDR_FEEDBACK_LOG",
            help="Append feedback to this file, or in this Redis, for dtdr learn; {model} stands "
            "for the model's name.",
        ),
    ] = None,
    redact: Annotated[
        bool,
        typer.Option("--redact/--no-redact", help="Scrub secrets and personal data from it."),
    ] = True,
    log_queries: Annotated[
        bool, typer.Option("--log-queries", help="Let logs and spans hold the text of queries.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Log failures only, not every request.")
    ] = False,
    input_price: Annotated[
        float,
        typer.Option(
            "--input-price",
            metavar="USD",
            help="What a million tokens of your LLM's input cost, for the money saved in /metrics.",
            min=0,
        ),
    ] = 0.0,
    max_body: Annotated[
        int, typer.Option("--max-body", metavar="BYTES", help="Largest body of a request.")
    ] = Limits.body_bytes,
    max_tools: Annotated[
        int, typer.Option("--max-tools", metavar="N", help="Most tools in a request for a mask.")
    ] = Limits.tools,
    max_history: Annotated[
        int, typer.Option("--max-history", metavar="N", help="Most calls in a history.")
    ] = Limits.history,
    max_sessions: Annotated[
        int, typer.Option("--max-sessions", metavar="N", help="Most open sessions.")
    ] = Limits.sessions,
    max_connections: Annotated[
        int, typer.Option("--max-connections", metavar="N", help="Most open connections.")
    ] = Limits.connections,
    max_session_bytes: Annotated[
        int,
        typer.Option(
            "--max-session-bytes", metavar="BYTES", help="Most memory of all sessions' texts."
        ),
    ] = Limits.session_bytes,
    max_key_session_bytes: Annotated[
        int,
        typer.Option(
            "--max-key-session-bytes", metavar="BYTES", help="The same for those of one API key."
        ),
    ] = Limits.key_session_bytes,
    session_seconds: Annotated[
        float,
        typer.Option(
            "--session-seconds", metavar="S", help="Drop a session after S seconds without use."
        ),
    ] = Limits.session_seconds,
    ranking_seconds: Annotated[
        float,
        typer.Option(
            "--ranking-seconds", metavar="S", help="Give up a ranking that waits S seconds."
        ),
    ] = Limits.ranking_seconds,
    with_studio: Annotated[
        bool, typer.Option("--studio", help="Also serve the page /studio; see dtdr studio.")
    ] = False,
    data: DATA = None,
    lab: LAB = None,
    check: Annotated[
        bool, typer.Option("--check", help="Load everything, say what would be served, and exit.")
    ] = False,
    allow_endpoint: options.ALLOW_ENDPOINT = None,
) -> None:
    """Rank over HTTP; the page /docs describes every endpoint.

    Example: dtdr serve mail=models/mail home=models/home
    """
    from dtdr.server import create_app, require_server
    from dtdr.server import serve as run

    settings = Settings(
        models=named_models(models),
        host=host,
        port=port,
        keys=key_file,
        limits=Limits(
            body_bytes=max_body,
            tools=max_tools,
            history=max_history,
            sessions=max_sessions,
            session_seconds=session_seconds,
            connections=max_connections,
            session_bytes=max_session_bytes,
            key_session_bytes=max_key_session_bytes,
            ranking_seconds=ranking_seconds,
        ),
        session_store=sessions,
        watch_seconds=watch,
        feedback_log=feedback_log,
        redact=redact,
        log_queries=log_queries,
        log_requests=not quiet,
        input_price=input_price,
    )
    require_server()
    if not with_studio and (data or lab):
        raise InputError("--data and --lab are shown by the studio; give --studio too")
    more = studio_endpoints(data, lab) if with_studio else ()
    if check:
        create_app(settings, more=more)
        note(f"ready to serve {', '.join(settings.models)} on {host} port {port}")
        return
    page = "studio" if with_studio else "docs"
    run(
        settings,
        more=more,
        on_listening=lambda address: note(f"listening on {address} (page: {address}/{page})"),
    )


@keys.command("create")
def create(
    file: KEY_FILE,
    role: Annotated[
        Literal["rank", "admin"],
        typer.Option("--role", help="admin may also update, save and reload models."),
    ] = "rank",
    about: Annotated[str, typer.Option("--note", metavar="TEXT", help="Whose key this is.")] = "",
) -> None:
    """Make a key, print it once, and keep its hash.

    Example: dtdr keys create keys.json --role admin --note "nightly refit"
    """
    from dtdr.server.keys import create_key

    key, entry = create_key(file, role=role, note=about)
    typer.echo(key)
    note(f"key {entry.id} ({entry.role}) is in {file}, as a hash; it cannot be shown again")


@keys.command("list")
def list_keys(file: KEY_FILE, as_json: options.JSON = False) -> None:
    """List the keys of a file, without the keys themselves."""
    from dtdr.evaluation.tables import Column, Table
    from dtdr.server.keys import read_keys

    rows = [
        {"id": key.id, "role": key.role, "created": key.created, "note": key.note}
        for key in read_keys(file)
    ]
    if as_json:
        print_json({"keys": rows})
        return
    columns = [
        Column("Key", "id"),
        Column("Role", "role"),
        Column("Created", "created"),
        Column("Note", "note"),
    ]
    console().print(Table(columns, rows).to_rich())


@keys.command("revoke")
def revoke(
    file: KEY_FILE, identifier: Annotated[str, typer.Argument(metavar="KEY", help="Its id.")]
) -> None:
    """Take a key out of a file; a running server notices within seconds."""
    from dtdr.server.keys import revoke_key

    if not identifier.strip():
        raise InputError("give the id of a key; see: dtdr keys list FILE")
    revoke_key(file, identifier)
    note(f"key {identifier} is no longer in {file}")
