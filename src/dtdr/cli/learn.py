"""``dtdr learn``: feedback of servers in, the next version of their model out."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from dtdr.cli import options
from dtdr.cli.inputs import open_data
from dtdr.cli.output import note, plural, print_json, print_table
from dtdr.errors import InputError, MissingExtraError, OutputError, UnavailableError
from dtdr.serve.feedback import open_log
from dtdr.serve.learning import LearnOptions, Trainer, Versions
from dtdr.serve.learning.versions import checksum_of
from dtdr.serve.remote_folder import RemoteFolder

_PAUSE_SECONDS = 1.0
"""Between two looks at the log."""

_GAUGES = {
    "waiting_demonstrations": "Demonstrations of the log that no version has learned.",
    "lag_seconds": "Age of the oldest waiting demonstration.",
    "unusable_demonstrations": "Entries of the log that cannot be learned from.",
    "mrr": "MRR of the served version on held-out demonstrations.",
}


def learn(
    model: Path,
    log: Annotated[str | None, typer.Argument(envvar="DTDR_FEEDBACK_LOG")] = None,
    *,
    name: str | None = None,
    held_out: Path | None = None,
    settings: Annotated[list[str] | None, typer.Option("--set")] = None,
    publish: str | None = None,
    once: bool = False,
    metrics: str | None = None,
    versions: bool = False,
    roll_back: str | None = None,
    review: Literal["list", "publish", "refuse"] | None = None,
    as_json: options.JSON = False,
) -> None:
    """Learn from logged feedback and publish new models.

    It publishes a new model only if it is not worse on held-out feedback. A model that ranks a tool
    much higher where runs do not call it waits until a person reviews it. Servers that watch the
    folder load the model without dropping a request. Without --once, the command runs until you
    stop it. With --json, it prints one JSON object per change.

    Example: dtdr learn models/mail feedback.jsonl

    Args:
        model (MODEL): The model folder that servers watch.
        log (LOG): The log of dtdr serve --feedback-log: a file or a Redis URL.
        name (NAME): The model's name on the servers.  [default: name of its folder]
        held_out (FILE): Also measure on these demonstrations or logs; the model never learns from
            them.
        settings (KEY=VALUE): Change how it learns; repeatable. Keys with their defaults: share=0.1,
            how much feedback it holds out; tolerance=0.005, how much MRR may fall; sender=0.5,
            the share of MRR that one key's feedback may have; gain=0.1, by how much 1 / rank of a
            tool may rise where no run calls it; batch=32, how
            many demonstrations it learns together; seconds=60, after which it learns from fewer;
            keep=10, how many versions it keeps for a rollback.
        publish (URL): Copy each published model to this URL, such as s3://bucket/mail, from which
            servers load it.
        once: Learn from what is in the log now, and exit.
        metrics ([HOST:]PORT): Serve Prometheus metrics at this address. The default host is
            127.0.0.1.
        versions: List the versions, and exit.
        roll_back (VERSION): Publish this version again, and exit.
        review (ACTION): Show, publish or refuse the version that waits for a person, and exit.
    """
    if versions:
        _list_versions(Versions(model), as_json)
        return
    if roll_back is not None:
        _print(Versions(model).roll_back(roll_back), as_json)
        return
    if review is not None:
        _review(Versions(model), review, as_json)
        return
    if log is None:
        raise InputError("name the feedback log, as dtdr serve --feedback-log does")

    learn_options = options.read_settings(settings, LearnOptions)
    feedback = open_log(log, name or model.resolve().name)
    measured = [] if held_out is None else list(open_data([held_out], bad=None))
    count = _serve_metrics(metrics)
    send = _publisher(model, publish)
    with Versions(model).lock():
        trainer = Trainer(model, feedback, learn_options, measured)
        last, has_learned = "", False
        while True:
            change = None
            try:
                send()
                outcome = trainer.step(flush=once)
                count(outcome)
                change, reason = outcome.change, outcome.reason
            except (UnavailableError, OutputError) as error:
                if once:
                    raise
                reason = str(error)
            if change is not None:
                _print(change, as_json)
                has_learned = True
                continue
            if reason and reason != last:
                note(reason)
            last = reason
            if once:
                if not reason and not has_learned:
                    bad = plural(outcome.unusable, "line")
                    more = f"; {bad} of it cannot be used" if outcome.unusable else ""
                    note(f"the log has no new feedback{more}")
                return
            time.sleep(_PAUSE_SECONDS)


def _publisher(model: Path, url: str | None) -> Callable[[], None]:
    """A function that copies the model to a URL whenever it has changed."""
    if url is None:
        return lambda: None
    target, sent = RemoteFolder(url), ""

    def send() -> None:
        nonlocal sent
        if (checksum := checksum_of(model)) != sent:
            target.publish(model)
            sent = checksum
            note(f"copied {model} to {url}")

    return send


def _review(versions: Versions, action: str, as_json: bool) -> None:
    if action != "list":
        _print(versions.review(publish=action == "publish"), as_json)
        return
    held = versions.held()
    if as_json:
        print_json({"held": held and asdict(held)})
        return
    if held is None:
        note(f"no version of {versions.model} waits for a review")
        return
    _print(held, as_json)
    rows = [(tool, f"{gain:.3f}") for tool, gain in held.gains.items()]
    print_table(("Tool", "Mean gain in 1 / rank where no run calls it"), rows)
    for sender, count in held.senders.items():
        typer.echo(f"key {sender} sent {plural(count, 'demonstration')} of it")
    typer.echo(f"publish or refuse it: dtdr learn {versions.model} --review publish | refuse")


def _print(change: Any, as_json: bool) -> None:
    if as_json:
        print_json(asdict(change))
        return
    measured = (
        f": MRR {change.before:.3f} before and {change.after:.3f} after, on "
        f"{plural(change.held_out, 'held-out demonstration')}"
        if change.before is not None and change.after is not None
        else ""
    )
    match change.outcome:
        case "published":
            more = plural(change.demonstrations, "more demonstration")
            text = f"published {change.version}, with {more}"
        case "held":
            more = plural(change.demonstrations, "more demonstration")
            text = f"held {change.version}, with {more}, for a review"
        case "refused":
            refused = plural(change.demonstrations, "demonstration")
            text = f"kept {change.version} and refused {refused}"
        case _:
            text = f"published {change.version} again; earlier feedback is not learned again"
    typer.echo(text + measured)


def _list_versions(versions: Any, as_json: bool) -> None:
    kept = set(versions.list_names())
    served = checksum_of(versions.model)
    history = versions.history()
    now_served = next((c.version for c in reversed(history) if c.checksum == served), None)
    if as_json:
        print_json({"served": now_served, "history": list(map(asdict, history))})
        return
    columns = {
        "version": "Version",
        "outcome": "Outcome",
        "time": "Time",
        "demonstrations": "Demonstrations",
        "held_out": "Held out",
        "before": "MRR before",
        "after": "after",
    }
    rows = [
        (*(getattr(change, name) for name in columns), "yes" if change.version in kept else "no")
        for change in history
    ]
    print_table((*columns.values(), "Kept"), rows)
    label = f"version {now_served}" if now_served else "none of these versions: it was fitted again"
    typer.echo(f"{versions.model} is {label}")


def _serve_metrics(address: str | None) -> Callable[[Any], None]:
    """Start to answer Prometheus; returns what counts an outcome there.

    Raises:
        InputError: the address cannot be listened on.
        MissingExtraError: prometheus_client is not installed.
    """
    if address is None:
        return lambda _: None
    try:
        from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server
    except ImportError as error:
        raise MissingExtraError("metrics", "server", "prometheus_client") from error
    registry = CollectorRegistry()
    gauges = {
        name: Gauge(f"dtdr_learn_{name}", about, registry=registry)
        for name, about in _GAUGES.items()
    }
    versions = Counter(
        "dtdr_learn_versions", "Versions by outcome.", ["outcome"], registry=registry
    )
    host, _, port = address.rpartition(":")
    try:
        server, _ = start_http_server(int(port), host.strip("[]") or "127.0.0.1", registry)
    except (OSError, ValueError, OverflowError) as error:
        raise InputError(
            f"metrics cannot be served on {address!r}; give a free PORT or HOST:PORT"
        ) from error
    note(f"metrics on http://{server.server_name}:{server.server_port}/metrics")

    def count(outcome: Any) -> None:
        gauges["waiting_demonstrations"].set(outcome.waiting)
        gauges["lag_seconds"].set(outcome.oldest)
        gauges["unusable_demonstrations"].set(outcome.unusable)
        if (change := outcome.change) is not None:
            versions.labels(change.outcome).inc()
            gauges["mrr"].set(change.after if change.outcome == "published" else change.before)

    return count
