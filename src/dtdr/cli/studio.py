"""``dtdr studio``: the tools as a map, a run step by step, and why, in a browser."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from dtdr.cli.output import note
from dtdr.serve.server.settings import Settings, named_models


def studio(
    models: list[str] | None = None,
    *,
    data: Path | None = None,
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
        data (FILE): Show the runs of this file: demonstrations, or a log of any known format.
        port (N): Port; 0 picks a free one.
        learn: Let the page update the model; by default it only reads.
        open_browser: Open the page in a browser.
    """
    from dtdr.serve.server import require_server, serve

    require_server()
    from dtdr.serve.studio.routes import Studio

    settings = Settings(
        models=named_models(models or ()), port=port, log_requests=False, read_only=not learn
    )

    def show_page(address: str) -> None:
        page = f"{address}/studio"
        note(f"the studio is at {page} (Ctrl-C ends it)")
        if open_browser:
            webbrowser.open(page)

    serve(settings, more=Studio(data).endpoints, on_listening=show_page)
