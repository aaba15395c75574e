"""A real headless Chromium on the page of a studio."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

AXE = Path(__file__).parents[2] / "studio" / "node_modules" / "axe-core" / "axe.min.js"
MARKS = {
    "runs": ".runs-table tbody tr",
    "run": ".ranking li",
    "misses": "section[aria-label='Confused tools'] tbody tr",
    "tools": ".panel tbody tr",
    "map": ".drawing a.node",
    "why": ".verdict",
}
"""What each view shows when it is there."""


class Browser:
    """One window, on the page of one server at a time."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self.url = ""
        self.resize(1280)

    def resize(self, width: int, height: int = 900, *, dark: bool = False) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})

    def open(self, view: str, mark: str = "", **parameters: Any) -> None:
        """Load the page anew at a view, and wait for what it shows, or for another mark.

        Parameters that are not text are written as JSON.
        """
        texts = {
            name: value if isinstance(value, str) else json.dumps(value)
            for name, value in parameters.items()
        }
        self.driver.get("about:blank")
        query = urlencode(texts, quote_via=quote)
        self.driver.get(f"{self.url}/studio#/{view}" + (f"?{query}" if query else ""))
        # Misses of 2,000 tools rank thousands of steps first, and say how far that is.
        self.wait(lambda: self.count(mark or MARKS[view]), seconds=180)

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def wait(self, condition: Callable[[], Any], seconds: float = 60) -> Any:
        end = time.monotonic() + seconds
        while not (value := condition()):
            if time.monotonic() > end:
                raise AssertionError(
                    f"it did not happen; the page says: {self.text('body')[:1500]}"
                )
            time.sleep(0.03)
        return value

    def text(self, selector: str) -> str:
        found = self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector)
        return str(found)

    def count(self, selector: str) -> int:
        return int(self.run("return document.querySelectorAll(arguments[0]).length", selector))

    def find(self, selector: str) -> Any:
        return self.driver.find_element("css selector", selector)

    def button(self, text: str) -> Any:
        xpath = f"//main//*[self::button or self::a][starts-with(normalize-space(), '{text}')]"
        return self.driver.find_element("xpath", xpath)

    def press(self, *keys: str) -> None:
        """Press keys wherever the focus is."""
        from selenium.webdriver.common.action_chains import ActionChains
        from selenium.webdriver.common.keys import Keys

        chain = ActionChains(self.driver)
        for key in keys:
            chain.send_keys(getattr(Keys, key) if key.isupper() and len(key) > 1 else key)
        chain.perform()

    def ranking(self, fork: int = 0) -> list[str]:
        """Names of the tools in the list of a fork, best first; the end is an empty name."""
        script = """const lists = document.querySelectorAll('.ranking');
            return [...(lists[arguments[0]]?.children ?? [])].map((item) =>
                item.querySelector('.name')?.textContent ?? '')"""
        return list(self.run(script, fork))

    def calls(self, fork: int = 0) -> list[str]:
        script = """return [...(document.querySelectorAll('.fork')[arguments[0]]
            ?.querySelectorAll('.trace .name') ?? [])].map((item) => item.textContent)"""
        return list(self.run(script, fork))

    def errors(self) -> list[str]:
        """What the page logged as an error since it was asked last."""
        entries = self.driver.get_log("browser")
        return [item["message"] for item in entries if item["level"] == "SEVERE"]

    def violations(self) -> list[str]:
        """What axe-core finds serious or critical, if it is installed."""
        if not AXE.exists():
            return []
        self.run(AXE.read_text(encoding="utf-8"))
        script = """const done = arguments[0];
            axe.run(document, {resultTypes: ['violations']}).then((found) => done(found.violations
              .filter((item) => ['serious', 'critical'].includes(item.impact))
              .map((item) => `${item.id}: ${item.nodes[0].html.slice(0, 200)} ` +
                item.nodes[0].failureSummary.slice(0, 300))))"""
        return list(self.driver.execute_async_script(script))

    def overflow(self) -> int:
        """By how many pixels the page is wider than the window."""
        return int(self.run("return document.documentElement.scrollWidth - innerWidth"))
