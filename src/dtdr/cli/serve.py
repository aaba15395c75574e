"""``dtdr serve``: ranking over HTTP; ``dtdr keys``: who may ask."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dtdr.cli import options
from dtdr.cli.output import note, print_json, print_table
from dtdr.cli.signature import CommandGroup
from dtdr.errors import InputError
from dtdr.net.servers import Limits
from dtdr.net.threads import start_daemon
from dtdr.serve.server.settings import DEFAULT_HOST, DEFAULT_PORT, Settings, named_models

if TYPE_CHECKING:
    from dtdr.agents.run_folder import RunFolder

_PAUSE_SECONDS = 2.0
"""Between two looks at the feedback of ``--new``."""

keys = CommandGroup(
    name="keys",
    help="Create, list and revoke the API keys of a server.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

KEY_FILE = Annotated[Path, typer.Argument(metavar="FILE", help="The file of key hashes.")]


def serve(
    models: list[str] | None = None,
    *,
    new: str | None = None,
    tools: options.TOOLS = None,
    host: str = DEFAULT_HOST,
    port: int = DEFAULT_PORT,
    key_file: Annotated[Path | None, typer.Option("--keys")] = None,
    watch: float = 2.0,
    feedback_log: Annotated[str | None, typer.Option(envvar="DTDR_FEEDBACK_LOG")] = None,
    redact: bool = True,
    log_queries: bool = False,
    quiet: bool = False,
    limit: list[str] | None = None,
) -> None:
    """Serve rankings over HTTP.

    The server's page /docs describes every endpoint.

    Example: dtdr serve mail=models/mail home=models/home

    Without a log: dtdr serve --new mail --tools tools.json

    Args:
        models (MODEL): Model folders, each FOLDER or NAME=FOLDER.
        new (NAME): Serve a model that begins with the tools of --tools. The server keeps feedback
            in ~/.local/share/dtdr/NAME, and learns from it while it works.
        host (ADDRESS): Address to listen on. Only loopback addresses work without --keys.
        port (N): Port; 0 picks a free one.
        key_file (FILE): Require a key from this file; dtdr keys create adds one.
        watch (S): Reload a changed model folder within S seconds; 0 never reloads.
        feedback_log (LOG): Append feedback to this file or Redis, for dtdr learn. The server
            replaces {model} with the model's name.
        redact: Remove secrets and personal data from the feedback.
        log_queries: Write the text of queries into logs and spans.
        quiet: Log only failed requests.
        limit (NAME=N): Set a limit, such as body_bytes=2000000; repeatable. docs/server.md lists
            the limits.
    """
    from dtdr.serve.server import serve as run

    served = named_models(models or [])
    if new is None:
        if not served:
            raise InputError("name a model folder, or begin without one: --new NAME --tools FILE")
        if tools is not None:
            raise InputError("--tools needs --new; give --new NAME as well")
    else:
        if served or feedback_log:
            raise InputError("--new serves one model and keeps its feedback; give --new alone")
        runs = _begin(new, tools, redact=redact)
        served, feedback_log = {new: runs.folder / "model"}, str(runs.path)
    settings = Settings(
        models=served,
        host=host,
        port=port,
        keys=key_file,
        limits=options.read_settings(limit, Limits, "--limit"),
        watch_seconds=watch,
        feedback_log=feedback_log,
        redact=redact,
        log_queries=log_queries,
        log_requests=not quiet,
    )
    run(
        settings,
        on_listening=lambda address: note(f"listening on {address} (page: {address}/docs)"),
    )


def _begin(name: str, tools: Path | None, *, redact: bool) -> RunFolder:
    """The folder of a model that learns from its feedback, in a thread of this process."""
    from dtdr.agents.run_folder import RunFolder, default_folder
    from dtdr.data.demonstration_files import read_tools

    named_models([f"{name}=model"])
    runs = RunFolder(default_folder(name), read_tools(tools) if tools else (), redact=redact)
    if runs.load() is None:
        if tools is None:
            raise InputError(f"there is no model in {runs.folder} yet; give --tools FILE")
        runs.start_model().save(runs.folder / "model", force=True)

    def learn() -> None:
        while True:
            time.sleep(_PAUSE_SECONDS)
            runs.learn_if_due()

    start_daemon(learn)
    note(f"feedback is kept in {runs.folder}")
    return runs


@keys.command("create")
def create(
    file: KEY_FILE,
    *,
    role: Literal["rank", "admin"] = "rank",
    about: Annotated[str, typer.Option("--note")] = "",
) -> None:
    """Create a key, print it once, and store its hash.

    Example: dtdr keys create keys.json --role admin --note "nightly refit"

    Args:
        role: rank may rank; admin may also update, save and reload models.
        about (TEXT): A note, such as who uses the key.
    """
    from dtdr.serve.server.keys import create_key

    key, entry = create_key(file, role=role, note=about)
    typer.echo(key)
    note(f"key {entry.id} ({entry.role}) is in {file}, as a hash; it cannot be shown again")


@keys.command("list")
def list_keys(
    file: KEY_FILE,
    *,
    as_json: options.JSON = False,
) -> None:
    """List the ids, roles and notes of the keys in a file."""
    from dtdr.serve.server.keys import read_keys

    fields = ("id", "role", "created", "note")
    rows = [{name: getattr(key, name) for name in fields} for key in read_keys(file)]
    if as_json:
        print_json({"keys": rows})
    else:
        print_table(("Key", "Role", "Created", "Note"), [list(row.values()) for row in rows])


@keys.command("revoke")
def revoke(
    file: KEY_FILE,
    identifier: str,
) -> None:
    """Remove a key from a file; running servers notice within seconds.

    Args:
        identifier (KEY): The key's id, as dtdr keys list shows it.
    """
    from dtdr.serve.server.keys import revoke_key

    if not identifier.strip():
        raise InputError("give the id of a key; see: dtdr keys list FILE")
    revoke_key(file, identifier)
    note(f"key {identifier} is no longer in {file}")
