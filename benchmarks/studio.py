"""What the studio's page takes in a real browser: first paint, a key press, the map, memory.

    python benchmarks/studio.py [--smoke] [--model FOLDER] [--tools 2000] [--times 7]

Headless Chromium on this machine, by chromedriver. Seconds of a page count from its navigation
until what was asked for is drawn; a key press counts from its event until the list of tools shows
the new ranking. Memory is that of the page's own process (proportional set size).
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import sys
import tempfile
import time
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rich.console import Console

import dtdr
import synthetic_runs
from dtdr.evaluate.tables import Column, Table
from studio_browser import open_browser, studio

QUERY = "Find the phone number of Ann and send her the summary of q3.pdf"
_WATCH = """
const seen = window.seen = {keys: []};
let pressed = 0;
addEventListener('keydown', () => pressed = performance.now(), true);
new MutationObserver((changes) => {
  if (!seen.first && document.querySelector('.ranking li')) seen.first = performance.now();
  if (!seen.map && document.querySelector('.drawing a.node')) {
    requestAnimationFrame(() => setTimeout(() => seen.map ||= performance.now()));
  }
  const isRanking = (change) => (change.target.closest ? change.target
    : change.target.parentElement)?.closest('.ranking .value');
  if (pressed && changes.some(isRanking)) {
    seen.keys.push(performance.now() - pressed);
    pressed = 0;
  }
}).observe(document, {childList: true, subtree: true, characterData: true, attributes: true});
"""


def renderer_megabytes(driver: Any) -> float:
    """Proportional set size of the largest page process that the driver started."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        parents[int(stat.parent.name)] = int(fields[1])
    sizes = []
    for process in parents:
        parent = process
        while parent and parent != driver.service.process.pid:
            parent = parents.get(parent, 0)
        try:
            command = Path(f"/proc/{process}/cmdline").read_bytes()
            if parent and b"--type=renderer" in command:
                text = Path(f"/proc/{process}/smaps_rollup").read_text()
                line = next(line for line in text.splitlines() if line.startswith("Pss:"))
                sizes.append(int(line.split()[1]) / 1024)
        except (OSError, StopIteration):
            continue
    return max(sizes, default=float("nan"))


def wait(driver: Any, script: str, seconds: float = 60) -> Any:
    """Wait until a script returns something."""
    end = time.monotonic() + seconds
    while not (value := driver.execute_script(script)):
        if time.monotonic() > end:
            raise SystemExit(f"the page never had: {script}")
        time.sleep(0.02)
    return value


def seconds_to(driver: Any, url: str, what: str, times: int) -> list[float]:
    """Seconds from navigation until something is drawn, of several loads."""
    found = []
    for _ in range(times):
        driver.get("about:blank")
        driver.get(url)
        found.append(wait(driver, f"return window.seen?.{what}") / 1e3)
    return found


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--smoke", action="store_true", help="little data, once")
    parser.add_argument("--model", type=Path, help="a model for the run view, with its --data")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--tools", type=int, default=2_000)
    parser.add_argument("--times", type=int, default=7)
    given = parser.parse_args()
    times, tools = (1, 60) if given.smoke else (given.times, given.tools)
    driver = open_browser()
    if driver is None:
        sys.stderr.write("selenium, chromium or chromedriver is missing: nothing was measured\n")
        return
    driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": _WATCH})
    rows: list[dict[str, str]] = []

    def add(what: str, values: list[float], unit: str) -> None:
        ordered = sorted(values)
        rows.append(
            {
                "what": what,
                "median": f"{statistics.median(ordered):.3g} {unit}",
                "worst": f"{ordered[-1]:.3g} {unit}",
                "n": str(len(ordered)),
            }
        )

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["DTDR_CACHE"] = str(folder / "cache")  # where places of maps are kept
        data = folder / "many.jsonl"
        runs = synthetic_runs.generate(120 if given.smoke else 3 * tools, tools=tools)
        data.write_text("".join(json.dumps(item.to_dict()) + "\n" for item in runs))
        dtdr.fit(data, synthetic_runs.tools(tools), ranker="dr").save(folder / "many")
        model, own = given.model, given.data
        if model is None:
            model, own = folder / "model", folder / "few.jsonl"
            some = synthetic_runs.generate(60 if given.smoke else 700)
            own.write_text("".join(json.dumps(item.to_dict()) + "\n" for item in some))
            dtdr.fit(own, synthetic_runs.tools()).save(model)
        with studio(model, own) as url:
            address = f"{url}#/run?q={quote(QUERY)}"
            add(
                "a run, from navigation to its ranking",
                seconds_to(driver, address, "first", times),
                "s",
            )
            driver.get("about:blank")
            driver.get(f"{url}#/run")
            wait(driver, "return document.querySelector('#query') !== null")
            box = driver.find_element("css selector", "#query")
            for letter in QUERY[: 8 if given.smoke else None]:
                box.send_keys(letter)
                time.sleep(0.4)  # answers to the key before are in
            add("a key press, to the new ranking", driver.execute_script("return seen.keys"), "ms")
            add("memory of the page, a run", [renderer_megabytes(driver)], "MB")
        with studio(folder / "many", data) as url:
            page = f"{url}#/map"
            add(f"map of {tools:,} tools, the first time", seconds_to(driver, page, "map", 1), "s")
            add(f"map of {tools:,} tools, again", seconds_to(driver, page, "map", times), "s")
            time.sleep(1)
            add(f"memory of the page, {tools:,} tools", [renderer_megabytes(driver)], "MB")
    driver.quit()
    script = resources.files("dtdr.serve.studio").joinpath("static", "studio.js").read_bytes()
    add("the script, gzipped", [len(gzip.compress(script, 9)) / 1e3], "kB")
    columns = [
        Column("What", "what"),
        Column("Median", "median", numeric=True),
        Column("Worst", "worst", numeric=True),
        Column("Times", "n", numeric=True),
    ]
    Console(width=100, highlight=False).print(Table(columns, rows).to_rich())


if __name__ == "__main__":
    main()
