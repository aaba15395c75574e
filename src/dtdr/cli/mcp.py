"""``dtdr mcp``: between an MCP client and its servers, shows the tools that are needed next."""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dtdr.cli import options
from dtdr.cli.output import note, plural
from dtdr.data.files import explain_os_errors
from dtdr.errors import InputError, OutputError

if TYPE_CHECKING:
    from dtdr.agents.gateway import Gateway, UpstreamSpec
    from dtdr.agents.run_folder import RunFolder
    from dtdr.predict.model import Model

KEY_VARIABLE = "DTDR_MCP_KEY"

TOP = 15
"""Tools of a list that is chosen for a whole run, unless ``--top-k`` says how many."""


def mcp(
    model: Path | None = None,
    rest: list[str] | None = None,
    *,
    config: Path | None = None,
    http: str | None = None,
    top_k: Annotated[int, typer.Option(*options.TOP_K_NAMES, min=1)] = 10,
    coverage: float | None = None,
    sticky: str = "grow",
    whole_run: bool = False,
    always: list[str] | None = None,
    learn: Path | None = None,
    redact: bool = True,
    outputs: bool = True,
    prefetch: bool = False,
    pin: Path | None = None,
    name: str | None = None,
    keep: bool = True,
    status: bool = False,
    accept: bool = False,
    setup: str | None = None,
    write: bool = False,
) -> None:
    """Run an MCP gateway that lists only the most likely tools.

    Without MODEL, it ranks the tools by their names and descriptions, keeps the runs in
    ~/.local/share/dtdr/NAME, and learns from them while it works.

    Example: dtdr mcp -- npx -y @modelcontextprotocol/server-filesystem .

    Args:
        model (MODEL): A model folder that dtdr fit wrote.
        rest (-- UPSTREAM): The servers behind the gateway: a command with its arguments, or a URL.
            Write -- before each server.
        config (FILE): JSON file with mcpServers or servers, as for MCP clients.
        http ([HOST:]PORT): Serve streamable HTTP at /mcp instead of standard input and output.
            The environment variable DTDR_MCP_KEY has the key that clients must send.
        top_k (K): List at most K ranked tools.
        coverage (C): List as many tools as needed to show a right one at this share of the steps,
            such as 0.95, and at most K. Needs a dtdr-f model.
        sticky (HOW): When a tool may leave the list. grow: when the run ends. confidence: when
            another tool is clearly better. none: at every step.
        whole_run: Choose one list for the whole run, for clients that load tools once. The gateway
            changes it only if that is worth losing the prompt cache.
        always (TOOL): Always list this tool; repeatable.
        learn (FILE): Append the forwarded calls to this demonstrations.jsonl.
        redact: Remove secrets and personal data from what --learn writes.
        outputs: With --learn: write the outputs of calls, too.
        prefetch: While the LLM thinks, make predicted calls of the tools that the config lists
            under "prefetch".
        pin (FILE): Record tool definitions in FILE, and refuse a tool whose definition changed.
        name (NAME): Without MODEL: the folder of the runs.  [default: names of the servers]
        keep: Without MODEL: keep the runs and learn from them.
        status: Say in five lines what was learned, what is listed and what that saved, and exit.
        accept: Learn from the runs now, although a tool would rise at many steps, and exit. For a
            model that was held back, once you have looked at the runs.
        setup (CLIENT): Print the configuration and hook of this gateway for claude-code, codex or
            opencode, and exit.
        write: With --setup, write the files instead of printing them. Codex reads them from
            ~/.codex, the other clients from the current folder.
    """
    # The first "--" stands for no model.
    rest = rest or []
    if model == Path("--"):
        model = None
    elif model is not None and rest[:1] == ["--"]:
        rest = rest[1:]
    if write and setup is None:
        raise InputError("--write needs --setup; give --setup CLIENT as well")
    if setup is not None:
        _set_up(setup, write=write)
        if model is not None or learn is not None or not keep:
            return
    gc.disable()  # else the SDK's classes take a third longer to make
    try:
        from dtdr.agents.gateway import Gateway, Pins, Recorder, parse_rest, read_config
    finally:
        gc.enable()
    from dtdr.agents.policy import ToolPolicy
    from dtdr.agents.prefetch import MIN_PROBABILITY
    from dtdr.api import load

    specs = [*(read_config(config) if config is not None else ()), *parse_rest(rest)]
    if setup is not None:
        _take_transcripts(setup, name, specs, write=write, redact=redact, outputs=outputs)
        return
    if status or accept:
        for folder in _folders_of_runs(name, specs):
            if accept:
                _accept(folder)
            else:
                typer.echo(f"{folder.folder.name}\n{folder.status()}")
        return
    policy = ToolPolicy(
        top_k=top_k,
        coverage=coverage,
        always_include=tuple(always or ()),
        # The gateway's search finds what an unfamiliar query needs; a coverage means nothing there.
        fallback=coverage is not None,
        sticky=sticky,  # type: ignore[arg-type]  # checked by ToolPolicy
    )
    fitted = None if model is None else load(model)
    recorder = Recorder(learn, redact=redact, outputs=outputs) if learn else None
    if fitted is None and recorder is None and keep:
        recorder, fitted = _open_runs(name, specs, redact=redact, outputs=outputs)
    gateway = Gateway(
        fitted,
        specs,
        policy,
        whole_run=whole_run,
        recorder=recorder,
        prefetch=MIN_PROBABILITY if prefetch else None,
        pins=Pins(pin),
    )
    # Servers print other lines, too; the SDK would write a traceback for each.
    logging.getLogger("mcp.client.stdio").setLevel(logging.CRITICAL)
    _serve(gateway, http)


def _folder(name: str | None, specs: Sequence[UpstreamSpec]) -> Path:
    from dtdr.agents.run_folder import default_folder

    return default_folder(name or "+".join(sorted(spec.name for spec in specs)))


def _open_runs(
    name: str | None, specs: Sequence[UpstreamSpec], *, redact: bool, outputs: bool
) -> tuple[RunFolder | None, Model | None]:
    """The folder of the runs, and the model that was learned from them."""
    from dtdr.agents.run_folder import RunFolder

    try:
        runs = RunFolder(_folder(name, specs), redact=redact, outputs=outputs)
    except OutputError as error:
        note(f"{error}; the gateway goes on without learning")
        return None, None
    return runs, runs.load()


def _folders_of_runs(name: str | None, specs: Sequence[UpstreamSpec]) -> list[RunFolder]:
    """The folder that is named, or each that has runs."""
    from dtdr.agents.run_folder import RunFolder, data_home

    folders = [_folder(name, specs)] if name or specs else sorted(data_home().glob("*"))
    folders = [folder for folder in folders if (folder / "demonstrations.jsonl").exists()]
    if not folders:
        where = _folder(name, specs) if name or specs else data_home()
        raise InputError(f"there are no runs in {where}; start: dtdr mcp -- SERVER")
    return [RunFolder(folder) for folder in folders]


def _accept(runs: RunFolder) -> None:
    """Learn from runs that a person has looked at, and say what came of it."""
    learning = runs.learn(accept=True)
    if learning is None:
        raise InputError(f"another process learns from {runs.folder} now; try again later")
    if learning.outcome == "published":
        scores = f"MRR {learning.after:.3f}, {learning.before:.3f} before"
        typer.echo(f"{runs.folder.name}: learned from {plural(learning.runs, 'run')}, {scores}")
    else:
        typer.echo(f"{runs.folder.name}: {learning.reason}")


def _set_up(client: str, *, write: bool) -> None:
    from dtdr.agents.gateway.setup import make_setup

    for path, text in make_setup(client, _gateway_command(sys.argv[1:])).items():
        if not write:
            typer.echo(f"# {path}\n{text}")
            continue
        with explain_os_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        note(f"wrote {path}")


def _take_transcripts(
    client: str,
    name: str | None,
    specs: Sequence[UpstreamSpec],
    *,
    write: bool,
    redact: bool,
    outputs: bool,
) -> None:
    """Put the runs of the client's transcripts into an empty folder of runs, if files are written.

    The gateway learns from them when it starts.
    """
    from dtdr.agents.gateway.transcripts import read_past_runs, transcripts_of
    from dtdr.agents.run_folder import RunFolder

    folder = _folder(name, specs)
    if (folder / "demonstrations.jsonl").exists():
        count = RunFolder(folder).count_runs()
        note(f"the gateway starts from {plural(count, 'run')} in {folder}")
        return
    past = read_past_runs(client, [spec.name for spec in specs])
    source = transcripts_of(client)
    if write and past:
        runs = RunFolder(folder, redact=redact, outputs=outputs, source=f"dtdr mcp, {client}")
        for query, calls in past:
            runs.record([query], calls)
    verb = "starts" if write else "would start"
    note(f"the gateway {verb} from {plural(len(past), 'run')} of these servers in {source}")


def _gateway_command(words: list[str]) -> list[str]:
    """The command that starts this gateway for a client, in whatever folder the client runs."""
    end = words.index("--") if "--" in words else len(words)
    kept: list[str] = []
    for word in words[:end]:
        if kept and kept[-1] == "--setup":
            kept.pop()
        elif word != "--write" and not word.startswith("--setup="):
            is_path = kept[-1:] in (["mcp"], ["--config"], ["--learn"], ["--pin"])
            kept.append(os.path.abspath(word) if is_path and word[0] != "-" else word)
    if not {*options.TOP_K_NAMES} & {*kept}:
        kept += ["--top-k", str(TOP)]
    kept += [] if "--whole-run" in kept else ["--whole-run"]
    return [sys.executable, "-m", "dtdr", *kept, *words[end:]]


def _serve(gateway: Gateway, http: str | None) -> None:
    import anyio

    from dtdr.agents.gateway import serve_http, serve_stdio
    from dtdr.net.servers import tune_process

    tune_process()
    if http is None:
        anyio.run(serve_stdio, gateway)
        return
    host, port = _address(http)
    key = os.environ.get(KEY_VARIABLE, "")
    anyio.run(lambda: serve_http(gateway, host, port, key=key))


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise InputError(f"--http {text!r} is not a port; give PORT or HOST:PORT")
    return host or "127.0.0.1", int(port)
