"""The settings of a server."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dtdr.errors import InputError, check_at_least
from dtdr.net.servers import Limits, is_loopback
from dtdr.serve.remote_folder import is_url

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8756

_NAME = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Settings:
    """The settings of a server.

    Attributes:
        models: folders, or URLs of folders, by the name that requests use.
        host: address to listen on; all but loopback needs ``keys``.
        port: 0 takes a free one.
        keys: file of API keys from ``dtdr keys create``; None: requests need no key.
        limits: of requests and connections.
        watch_seconds: between looks at the model folders; 0 does not look.
        feedback_log: of ``dtdr learn``: a file, with ``{model}`` in its name for several models,
            or an address of Redis; None: models learn in memory.
        redact: whether secrets and personal data are removed from logged feedback.
        log_queries: whether logs and spans may have the text of queries.
        log_requests: whether every request is logged, or failures only.
        read_only: whether feedback, reloading and saving are refused.
    """

    models: Mapping[str, Path | str]
    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    keys: Path | None = None
    limits: Limits = field(default_factory=Limits)
    watch_seconds: float = 2.0
    feedback_log: str | None = None
    redact: bool = True
    log_queries: bool = False
    log_requests: bool = True
    read_only: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65_535:
            raise InputError(f"the port is {self.port}; it must be between 0 and 65535")
        check_at_least(0, watch_seconds=self.watch_seconds)
        if self.keys is None and not is_loopback(self.host):
            raise InputError(
                f"{self.host} can be reached from other machines; pass --keys FILE "
                "(made by: dtdr keys create FILE), or listen on 127.0.0.1"
            )


def named_models(texts: Iterable[str]) -> dict[str, Path | str]:
    """Folders by name from ``name=folder``, or ``folder`` with its own name.

    Raises:
        InputError: a name is empty or given twice, or has a character that names may not have.
    """
    models: dict[str, Path | str] = {}
    for item in texts:
        name, equals, folder = item.partition("=")
        if not equals:
            folder = item
            name = Path(item).resolve().name  # of a URL, too
        if not _NAME.fullmatch(name):
            raise InputError(
                f"{name!r} cannot name a model; use letters, digits, '.', '_' and '-', "
                "as in: dtdr serve mail=models/mail"
            )
        if name in models:
            raise InputError(
                f"two models are named {name!r}; name them apart: first=a/model second=b/model"
            )
        if not folder:
            raise InputError(f"model {name!r} has no folder; write {name}=FOLDER")
        models[name] = folder if is_url(folder) else Path(folder)
    return models
