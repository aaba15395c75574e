"""``dtdr studio``: the tools as a map, a run step by step, and why, in a browser."""

from __future__ import annotations

import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dtdr.cli.output import note
from dtdr.data.demonstration_files import read_demonstrations
from dtdr.errors import InputError
from dtdr.serve.server.settings import Settings, named_models

if TYPE_CHECKING:
    from dtdr.serve.server.endpoints import Endpoint

DATA = Annotated[
    Path | None,
    typer.Option("--data", metavar="FILE", help="Show the runs of this file in the studio."),
]


def studio(
    models: Annotated[list[str] | None, typer.Argument(metavar="MODEL")] = None,
    *,
    data: DATA = None,
    port: int = 0,
    learn: bool = False,
    open_browser: Annotated[bool, typer.Option("--open/--no-open")] = True,
) -> None:
    """Explore runs and a model in a browser.

    The page shows where the model is wrong, and why. Without --data, it shows the plans that a
    dtdr-f model learned from. Without a model, drop a log on the page, and the studio learns from
    it. Only this machine can open the page.

    Example: dtdr studio model --data demonstrations.jsonl

    Args:
        models (MODEL): Model folders, each FOLDER or NAME=FOLDER.
        port (N): Port; 0 picks a free one.
        learn: Let the page update the model; by default it only reads.
        open_browser: Open the page in a browser.
    """
    from dtdr.serve.server import require_server, serve

    require_server()
    settings = Settings(
        models=named_models(models or ()), port=port, log_requests=False, read_only=not learn
    )

    def show_page(address: str) -> None:
        page = f"{address}/studio"
        note(f"the studio is at {page} (Ctrl-C ends it)")
        if open_browser:
            webbrowser.open(page)

    serve(settings, more=studio_endpoints(data, takes_logs=True), on_listening=show_page)


def studio_endpoints(data: Path | None, *, takes_logs: bool = False) -> Sequence[Endpoint]:
    """What the studio adds to a server.

    Raises:
        InputError: the runs cannot be read.
    """
    from dtdr.serve.studio.routes import Studio
    from dtdr.serve.studio.runs import Runs

    runs = None
    if data is not None:
        demonstrations = list(read_demonstrations(data))
        if not demonstrations:
            raise InputError(f"{data} has no run to show; give at least one demonstration")
        runs = Runs(demonstrations)
    name = "" if data is None else data.name
    return Studio(runs, name, takes_logs=takes_logs).endpoints
