"""Hours in minutes: server and gateway under rankings, feedback, reloads, nonsense and kills.

    python benchmarks/soak.py                    # 30 minutes; ends with 1 where something is wrong
    python benchmarks/soak.py --minutes 120
    python benchmarks/soak.py --smoke            # 12 s

Each minute is a line of the table: memory of both processes, what was asked, and what went wrong.
Beside the two, another server is killed (SIGKILL) while it takes feedback and the gateway's
upstream while it works. At the end, every demonstration that was acknowledged must be in the log of
feedback, once and whole, and memory must not have grown by more than 5 % since the first five
minutes.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
from rich.console import Console

import dtdr
from dtdr.data.demonstration_files import read_demonstrations
from dtdr.evaluate.tables import Column, Table, count
from stalls import find_free_port
from synthetic_runs import generate, tools

WARM_MINUTES = 5
GROWTH = 0.05
JSON = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
NONSENSE = [
    b"",
    b"{",
    b"[" * 5_000,
    b'{"query": 5}',
    b'{"query": "' + b"x" * 100_000 + b'"}',
    b'{"query": "x", "history": [' + b'"a",' * 900 + b'"a"]}',
    b"\xff" * 500,
    b'{"query": "x", "history": [{"tool": "a", "output": ' + b"[" * 500 + b"]" * 500 + b"}]}",
]


class Process:
    """A process that is started again after it was killed."""

    def __init__(self, *command: str | Path, ready: str) -> None:
        self._command = [sys.executable, *map(str, command)]
        self._ready = ready
        self.url = ""
        self.start()

    def start(self) -> None:
        """Start it, and wait until it says that it is ready, where it says so."""
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  # read while it is written
        self.process = subprocess.Popen(
            self._command,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            self._errors.seek(0)
            text = self._errors.read()
            if "listening on " in text:
                self.url = text.split("listening on ")[1].split()[0]
                return
            if self._ready and is_open(self._ready):
                self.url = self._ready
                return
            if self.process.poll() is not None:
                raise SystemExit(text)
            time.sleep(0.05)
        raise SystemExit(f"{self._command} did not start")

    def kill(self) -> None:
        """Kill it as a crash would."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        """End it as an operator would; its exit code."""
        self.process.terminate()
        return self.process.wait(60)

    @property
    def megabytes(self) -> float:
        """Memory that it holds."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        return float("nan")


def is_open(url: str) -> bool:
    """Whether something listens there."""
    parts = urlsplit(url)
    with socket.socket() as probe:
        return probe.connect_ex((str(parts.hostname), int(parts.port or 80))) == 0


class Soak:
    """The processes, and what is done to them in threads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.counts: Counter[str] = Counter()
        self.wrong: Counter[str] = Counter()
        self.kept: dict[str, set[str]] = {"mail": set(), "victim": set()}
        self.is_over = threading.Event()
        self.demonstrations = list(generate(400))
        self.model = dtdr.fit(self.demonstrations[:200], list(tools()), ranker="dtdr-f")
        for name in ("mail", "home", "victim"):
            self.model.save(folder / name)
        serve = ("-m", "dtdr", "serve", "--port", "0", "--quiet", "--watch", "1")
        self.server = Process(
            *serve, folder / "mail", folder / "home",
            "--feedback-log", folder / "{model}.jsonl", ready="",
        )  # fmt: skip
        victim = ("--feedback-log", folder / "victim.jsonl")
        self.victim = Process(*serve, folder / "victim", *victim, ready="")
        port, own = find_free_port(), find_free_port()
        upstream = f"http://127.0.0.1:{port}/mcp"
        self.upstream = Process(
            Path(__file__).with_name("gateway.py"), "--serve", "50", "s0", str(port), ready=upstream
        )
        self.gateway = Process(
            "-m", "dtdr", "mcp", folder / "home", "--http", str(own), "--learn",
            folder / "learned.jsonl", "--", upstream, ready=f"http://127.0.0.1:{own}/mcp",
        )  # fmt: skip

    # -- what is done, again and again ---------------------------------------------------------

    def repeat(self, name: str, pause: float, work: Callable[[httpx2.Client], None]) -> None:
        """Do something until the end; what it raises is counted as wrong."""
        draw = random.Random(name)
        with httpx2.Client(timeout=60) as http:
            while not self.is_over.wait(pause * draw.uniform(0.5, 1.5)):
                try:
                    work(http)
                except Exception as error:  # noqa: BLE001  # it is what the table is about
                    self.wrong[f"{name}: {type(error).__name__} {error}"[:90]] += 1

    def post(self, http: httpx2.Client, path: str, body: Any, *expected: int) -> Any:
        """Ask the server; another status is wrong."""
        answer = http.post(self.server.url + path, json=body)
        self.counts["requests"] += 1
        if answer.status_code not in (expected or (200,)):
            raise ValueError(f"{path} {answer.status_code}")
        return answer.json() if answer.content else None

    def rank(self, http: httpx2.Client) -> None:
        """Rank a step, half of the time of a query that was never asked."""
        item = random.choice(self.demonstrations)
        query = item.query + (f" {random.random()}" if random.random() < 0.5 else "")
        history = list(item.plan.tools[: random.randrange(3)])
        model = random.choice(["mail", "home"])
        self.post(http, "/v1/rank", {"query": query, "history": history, "model": model})

    def converse(self, http: httpx2.Client) -> None:
        """The steps of a run, each sent with all calls before it."""
        item = random.choice(self.demonstrations)
        calls: list[dict[str, Any]] = []
        for tool in item.plan.tools[:4]:
            calls.append({"tool": tool, "output": "x" * random.randrange(3_000)})
            self.post(http, "/v1/rank", {"query": item.query, "history": calls, "model": "mail"})

    def teach(self, http: httpx2.Client) -> None:
        """Feedback to the server that goes on."""
        self._teach(http, self.server, "mail")

    def teach_victim(self, http: httpx2.Client) -> None:
        """Feedback to the server that is killed; what is not acknowledged does not count."""
        try:
            self._teach(http, self.victim, "victim")
        except (httpx2.HTTPError, ValueError):
            time.sleep(0.2)

    def _teach(self, http: httpx2.Client, server: Process, model: str) -> None:
        item = random.choice(self.demonstrations[200:])
        name = f"{time.time_ns()}"
        calls = list(item.plan.tools)
        demonstration = {"id": name, "query": item.query, "calls": calls}
        body = {"model": model, "demonstrations": [demonstration]}
        if http.post(f"{server.url}/v1/feedback", json=body).status_code != 202:
            raise ValueError("feedback was refused")
        self.kept[model].add(name)
        self.counts["feedback"] += 1

    def disturb(self, http: httpx2.Client) -> None:
        """Nonsense, whole and cut off, in connections that are left open or closed."""
        for url in (self.server.url, self.gateway.url):
            parts = urlsplit(url)
            path = parts.path or random.choice(["/v1/rank", "/v1/plans", "/v1/feedback"])
            content = random.choice(NONSENSE)
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            raw = f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content
            with socket.create_connection((str(parts.hostname), int(parts.port or 80)), 30) as one:
                one.sendall(raw[: random.randrange(len(raw))] if random.random() < 0.5 else raw)
                if random.random() < 0.5:
                    one.settimeout(0.5)
                    try:
                        status = one.recv(100)[9:12]
                    except TimeoutError:
                        status = b"408"
                    if status.startswith(b"5"):
                        raise ValueError(f"nonsense gave {status.decode()}")
        self.counts["nonsense"] += 2

    def reload(self, http: httpx2.Client) -> None:
        """Another model in place of one; what was learned is dropped with it."""
        self.model.save(self.folder / "home", force=True)
        self.post(http, "/v1/models/mail/reload", None)
        self.counts["reloads"] += 2

    def kill(self, http: httpx2.Client) -> None:
        """Kill what may be killed."""
        self.victim.kill()
        self.victim.start()
        if random.random() < 0.3:
            self.upstream.kill()
            self.upstream.start()
        self.counts["kills"] += 1

    def call_tools(self, http: httpx2.Client) -> None:
        """One run of an agent through the gateway, in a session of its own."""
        about = {"protocolVersion": "2025-06-18", "capabilities": {},
                 "clientInfo": {"name": "soak", "version": "1"}}  # fmt: skip
        answer = http.post(self.gateway.url, json=_message("initialize", about), headers=JSON)
        headers = {**JSON, "Mcp-Session-Id": answer.headers["mcp-session-id"],
                   "Mcp-Protocol-Version": "2025-06-18"}  # fmt: skip
        note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        http.post(self.gateway.url, json=note, headers=headers)
        http.post(self.gateway.url, json=_message("tools/list", {}), headers=headers)
        for _ in range(3):
            params = {
                "name": f"s0_tool_{random.randrange(50)}",
                "arguments": {"id": "x" * random.randrange(2_000)},
                "_meta": {"dtdr/intent": random.choice(self.demonstrations).query},
            }
            message = _message("tools/call", params)
            if http.post(self.gateway.url, json=message, headers=headers).status_code != 200:
                raise ValueError("a call was refused")
            self.counts["calls"] += 1
        http.delete(self.gateway.url, headers=headers)

    # -- the whole -----------------------------------------------------------------------------

    def run(self, seconds: float, minute: float) -> list[dict[str, Any]]:
        """Go on for so many seconds; a row for each minute."""
        every = minute / 60
        work = [
            ("rank", 0.03, self.rank), ("converse", 0.2, self.converse), ("teach", 0.5, self.teach),
            ("victim", 0.1, self.teach_victim), ("disturb", 0.2, self.disturb),
            ("reload", 20 * every, self.reload), ("kill", 20 * every, self.kill),
            ("call", 0.3, self.call_tools), ("call too", 0.3, self.call_tools),
        ]  # fmt: skip
        threads = [threading.Thread(target=self.repeat, args=item) for item in work]
        for thread in threads:
            thread.start()
        rows: list[dict[str, Any]] = []
        begin = time.monotonic()
        while time.monotonic() - begin < seconds:
            held: list[tuple[float, float]] = []
            end = begin + minute * (len(rows) + 1)
            while time.monotonic() < end:
                time.sleep(min(1.0, minute / 5))
                held.append((self.server.megabytes, self.gateway.megabytes))
            server, gateway = (statistics.median(column) for column in zip(*held, strict=True))
            rows.append({"minute": len(rows) + 1, "server": server, "gateway": gateway,
                         "wrong": self.wrong.total(), **self.counts})  # fmt: skip
            print(f"minute {len(rows)}: {rows[-1]}", file=sys.stderr, flush=True)
        self.is_over.set()
        for thread in threads:
            thread.join()
        return rows

    def finish(self) -> list[str]:
        """End every process, and say what is wrong with what they leave behind."""
        problems = [f"{number} x {what}" for what, number in self.wrong.most_common(5)]
        for name in ("gateway", "server", "victim"):
            if code := getattr(self, name).stop():
                problems.append(f"the {name} ended with {code}")
        self.upstream.kill()
        for name, acknowledged in self.kept.items():
            found = [item.id for item in read_demonstrations(self.folder / f"{name}.jsonl")]
            if lost := acknowledged - set(found):
                problems.append(f"{len(lost)} acknowledged demonstrations are not in {name}.jsonl")
            print(f"{name}.jsonl: {len(acknowledged):,} acknowledged, {len(found):,} there")
        return problems


def _message(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def growth(rows: list[dict[str, Any]], process: str) -> float:
    """By which share memory grew from the end of the warm-up to the end."""
    return float(rows[-1][process] / rows[WARM_MINUTES][process] - 1)


def main() -> None:
    """Soak, print the table, and end with 1 where something went wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--smoke", action="store_true", help="seconds instead of minutes")
    given = parser.parse_args()
    minute = 2.0 if given.smoke else 60.0
    with tempfile.TemporaryDirectory() as folder:
        soak = Soak(Path(folder))
        rows = soak.run(6 * minute if given.smoke else given.minutes * 60, minute)
        problems = soak.finish()
    columns = [Column(name.capitalize(), name, count, numeric=True) for name in (
        "minute", "server", "gateway", "requests", "feedback", "calls", "nonsense", "reloads",
        "kills", "wrong")]  # fmt: skip
    title = "Memory (MB) and what was done, added up"
    Console(width=100).print(Table(columns, rows, title).to_rich())
    if len(rows) > WARM_MINUTES:
        for process in ("server", "gateway"):
            share = growth(rows, process)
            print(f"{process}: {share:+.1%} since minute {WARM_MINUTES + 1}")
            if share > GROWTH and not given.smoke:
                problems.append(f"the memory of the {process} grew by more than {GROWTH:.0%}")
    for problem in problems:
        print(problem, file=sys.stderr)
    raise SystemExit(bool(problems))


if __name__ == "__main__":
    main()
