"""Background tasks: reload changed models and keys, drop expired sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from starlette.exceptions import HTTPException

from dtdr.errors import DtdrError
from dtdr.net.server_logs import log
from dtdr.serve.server.keys import KeyFile, read_keys
from dtdr.serve.server.models import ServedModel
from dtdr.serve.server.service import Service

_SECONDS = 2.0
"""Between two looks at keys and sessions."""


async def watch(service: Service) -> None:
    """Run a task for each folder, the keys and the sessions until cancelled.

    So a task that fails or is slow delays no other.
    """
    seconds = service.settings.watch_seconds
    async with asyncio.TaskGroup() as tasks:

        def repeat(task: str, pause: float, work: Callable[[], Awaitable[None]]) -> None:
            tasks.create_task(_repeat(service, task, pause, work))

        repeat("sessions", _SECONDS, service.sessions.expire)
        if service.keys is not None:
            repeat("keys", min(seconds or _SECONDS, _SECONDS), partial(_refresh_keys, service.keys))
        for model in service.models.values() if seconds else ():
            repeat(f"model {model.name}", seconds, partial(_follow, service, model))


async def _repeat(
    service: Service, task: str, pause: float, work: Callable[[], Awaitable[None]]
) -> None:
    while True:
        await asyncio.sleep(pause)
        failure = None
        try:
            await work()
        except HTTPException as error:
            failure = error.detail
        except DtdrError as error:
            failure = str(error)
        except Exception as error:  # noqa: BLE001  # its text may be private
            failure = type(error).__name__
        service.show_failure(task, failure)


async def _follow(service: Service, model: ServedModel) -> None:
    """Reload a model whose folder changed; a failure lasts until the folder changes again."""
    if model.changed:
        await service.reload(model)
    elif model.reload_error is not None:
        raise DtdrError(model.reload_error)


async def _refresh_keys(file: KeyFile) -> None:
    """Read the keys again; those of a damaged file stay as they were."""
    former, file.keys = file.keys, read_keys(file.path)
    if file.keys != former:
        log("keys changed", keys=len(file.keys))
