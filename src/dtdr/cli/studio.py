"""``dtdr studio``: the tools as a map, a run step by step, and why, in a browser."""

from __future__ import annotations

import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dtdr.cli import options
from dtdr.cli.output import note
from dtdr.errors import InputError
from dtdr.server.settings import Settings, named_models

if TYPE_CHECKING:
    from dtdr.server.endpoints import Endpoint

DATA = Annotated[
    Path | None,
    typer.Option("--data", metavar="FILE", help="Runs to show: a demonstrations.jsonl."),
]
LAB = Annotated[
    Path | None,
    typer.Option("--lab", metavar="FOLDER", help="Labs to show: the --cache of dtdr lab run."),
]


def studio(
    models: Annotated[
        list[str],
        typer.Argument(metavar="MODEL", help="Model folders, each FOLDER or NAME=FOLDER."),
    ],
    data: DATA = None,
    lab: LAB = None,
    port: Annotated[int, typer.Option("--port", metavar="N", help="Port; 0 takes a free one.")] = 0,
    learn: Annotated[
        bool, typer.Option("--learn", help="Let the page teach the model; else it only reads.")
    ] = False,
    open_browser: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in a browser.")
    ] = True,
    allow_endpoint: options.ALLOW_ENDPOINT = None,
) -> None:
    """Look at a model in a browser: its tools as a map, a run step by step, and why.

    Without --data, the map shows the plans that a dtdr-f model kept. Listens on this machine only.

    Example: dtdr studio model --data demonstrations.jsonl
    """
    from dtdr.server import require_server, serve

    require_server()
    settings = Settings(
        models=named_models(models), port=port, log_requests=False, read_only=not learn
    )

    def show_page(address: str) -> None:
        page = f"{address}/studio"
        note(f"the studio is at {page} (Ctrl-C ends it)")
        if open_browser:
            webbrowser.open(page)

    serve(settings, more=studio_endpoints(data, lab), on_listening=show_page)


def studio_endpoints(data: Path | None, lab: Path | None) -> Sequence[Endpoint]:
    """What the studio adds to a server.

    Raises:
        InputError: the runs cannot be read, or the folder holds no lab.
    """
    from dtdr.demonstration_files import read_demonstrations
    from dtdr.lab.store import Store
    from dtdr.studio.lab import Lab
    from dtdr.studio.routes import Studio
    from dtdr.studio.runs import Runs

    runs = None
    if data is not None:
        demonstrations = list(read_demonstrations(data))
        if not demonstrations:
            raise InputError(f"{data} holds no run to show")
        runs = Runs(demonstrations, has_queries=True)
    labs = None
    if lab is not None:
        labs = Lab(Store(lab))
        labs.name(None)
    return Studio(runs, "" if data is None else data.name, labs).endpoints
