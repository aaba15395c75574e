"""Clients of Redis or Valkey: addresses, short limits of time, errors as one sentence."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from dtdr.errors import InputError, MissingExtraError, UnavailableError

SCHEMES = ("redis", "rediss", "valkey", "valkeys", "unix")

_SECONDS = 1.0
"""For connecting, and for each answer, which takes less than a millisecond."""


def is_redis_url(address: str) -> bool:
    """Whether an address is one of Redis or Valkey, and not a file."""
    return address.partition("://")[0] in SCHEMES and "://" in address


def connect(url: str) -> Any:
    """A client with short limits of time, which connects when it is first used.

    Args:
        url: ``redis://[[user]:password@]host[:port][/number]``, ``rediss://`` with TLS, or
            ``unix://path``; ``valkey://`` and ``valkeys://`` are the same.

    Raises:
        InputError: the address is not one of Redis.
        MissingExtraError: the package redis is not installed.
    """
    try:
        import redis
        from redis.backoff import ConstantBackoff
        from redis.retry import Retry
    except ImportError as error:
        raise MissingExtraError("Redis", "redis", str(error.name)) from error
    try:
        if not is_redis_url(url):
            raise ValueError(url)
        return redis.Redis.from_url(
            url.replace("valkey", "redis", 1) if url.startswith("valkey") else url,
            socket_timeout=_SECONDS,
            socket_connect_timeout=_SECONDS,
            retry=Retry(ConstantBackoff(0.02), 1),
        )
    except (ValueError, TypeError) as error:
        raise InputError(
            f"{describe_address(url)!r} is not an address of Redis; write redis://HOST:PORT/0, "
            "rediss:// for TLS, or unix://PATH"
        ) from error


def describe_address(url: str) -> str:
    """The address without user, password and parameters."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "this address"
    return f"{parts.hostname or ''}{port}{parts.path}" or "this address"


@contextlib.contextmanager
def explain_errors(what: str, address: str) -> Iterator[None]:
    """Turn errors of Redis into one sentence.

    Args:
        what: is unavailable, in the plural.
        address: of Redis, without a password.

    Raises:
        UnavailableError: Redis failed.
    """
    from redis.exceptions import RedisError

    try:
        yield
    except (RedisError, OSError) as error:
        raise UnavailableError(
            f"{what} are unavailable: Redis at {address} {_reason(error)}; try again later"
        ) from error


def _reason(error: Exception) -> str:
    from redis import exceptions

    reasons: dict[Any, str] = {
        exceptions.OutOfMemoryError: "is full (maxmemory)",
        exceptions.AuthenticationError: "refused the user or password",
        exceptions.NoPermissionError: "does not permit this user what is needed",
        exceptions.BusyLoadingError: "is still loading its data",
        (exceptions.AskError, exceptions.ClusterError, exceptions.ClusterCrossSlotError): (
            "is a node of a Redis Cluster, which is not supported"
        ),
        (exceptions.ConnectionError, exceptions.TimeoutError, OSError): "cannot be reached",
    }
    matches = (reason for kind, reason in reasons.items() if isinstance(error, kind))
    return next(matches, f"failed ({type(error).__name__})")
