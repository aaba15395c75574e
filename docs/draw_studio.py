"""Takes the pictures of studio.md: ``python docs/draw_studio.py``.

Needs the extras ``studio`` and ``browser``, Chromium and chromedriver. The runs are those of the
hotel's agent in ``examples``: a model learns from four fifths of them, and the studio shows the
others; the map shows all.
"""

from __future__ import annotations

import argparse
import base64
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import dtdr
import dtdr.logs

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "benchmarks"))

from studio_browser import open_browser, studio  # noqa: E402 - on the path from here on

LOG = HERE.parent / "examples" / "hotel" / "openai-chat.jsonl"
FOLDS = 5
WAIT = 120
"""Seconds for a page: the figures of misses rank each step first."""

QUERY = "Please bill Ann Ruiz and mail the invoice."
BEFORE = ["find_guest", "search_bookings"]
OTHER = [*BEFORE, "get_invoice", "charge_card"]
PICTURES: dict[str, tuple[str, str, dict[str, Any], int]] = {
    "runs": ("runs", ".runs-table tbody tr", {}, 800),
    "misses": ("misses", "section[aria-label='Confused tools'] tbody tr", {}, 800),
    "run": (
        "run",
        ".fork:nth-of-type(2) .ranking li",
        {"q": QUERY, "calls": BEFORE, "fork": OTHER},
        800,
    ),
    "why": ("why", ".verdict", {"q": QUERY, "calls": BEFORE}, 800),
    "map": ("map", ".drawing a.node", {}, 760),
}
"""By picture: the view, what it shows when it is there, its parameters, and its height."""


def resize(driver: Any, width: int, height: int) -> None:
    """Give the page a size in pixels."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def take(driver: Any, page: str, name: str, width: int, target: Path) -> None:
    """Open a view and write its picture."""
    view, mark, parameters, height = PICTURES[name]
    texts = {
        key: value if isinstance(value, str) else json.dumps(value)
        for key, value in parameters.items()
    }
    resize(driver, width, height)
    driver.get("about:blank")
    driver.get(f"{page}#/{view}?{urlencode(texts, quote_via=quote)}")
    end = time.monotonic() + WAIT
    ready = f"""return document.querySelector({mark!r}) !== null
        && !/Loading…|is ranking/.test(document.querySelector('main').innerText)"""
    while not driver.execute_script(ready):
        if time.monotonic() > end:
            raise SystemExit(f"{page}#/{view} never showed {mark}")
        time.sleep(0.2)
    time.sleep(1)  # until bars have grown
    driver.execute_script("document.activeElement.blur()")
    picture = driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})["data"]
    target.write_bytes(base64.b64decode(picture))


def main() -> None:
    """Fit a model, open the studio and take every picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", type=Path, default=HERE / "_static" / "studio")
    parser.add_argument("--width", type=int, default=1280, help="of the page, in pixels")
    parser.add_argument("--model", type=Path, help="a model to show, instead of the hotel's")
    parser.add_argument("--data", type=Path, help="its runs")
    given = parser.parse_args()
    given.to.mkdir(parents=True, exist_ok=True)
    demonstrations = list(dtdr.logs.open_demonstrations([LOG]))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sides = {
            "all": demonstrations,
            "learned": [item for at, item in enumerate(demonstrations) if at % FOLDS],
            "held-out": demonstrations[::FOLDS],
        }
        for side, items in sides.items():
            lines = "".join(json.dumps(item.to_dict()) + "\n" for item in items)
            (folder / f"{side}.jsonl").write_text(lines, encoding="utf-8")
        if given.model is None:
            dtdr.fit(folder / "learned.jsonl").save(folder / "hotel")
        driver = open_browser("--hide-scrollbars")
        if driver is None:
            raise SystemExit("selenium, chromium or chromedriver is missing")
        light = {"name": "prefers-color-scheme", "value": "light"}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [light]})
        try:
            for side, pictures in (
                ("held-out", [name for name in PICTURES if name != "map"]),
                ("all", ["map"]),
            ):
                data = given.data or folder / f"{side}.jsonl"
                with studio(given.model or folder / "hotel", data) as page:
                    for picture in pictures:
                        take(driver, page, picture, given.width, given.to / f"{picture}.png")
        finally:
            driver.quit()


if __name__ == "__main__":
    main()
