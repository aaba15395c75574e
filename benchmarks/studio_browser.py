"""The studio in a process, and a real browser for its page."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def studio(model: Path, data: Path) -> Iterator[str]:
    """``dtdr studio`` in a separate process; the address of its page."""
    command = [sys.executable, "-m", "dtdr", "studio", str(model), "--data", str(data)]
    process = subprocess.Popen([*command, "--no-open"], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if "the studio is at " in line:
                yield line.split("the studio is at ")[1].split()[0]
                return
        raise SystemExit("the studio did not start")
    finally:
        process.terminate()
        process.wait(60)


def open_browser(*flags: str) -> Any:
    """Headless Chromium, driven by selenium; None where one of them is missing.

    Args:
        flags: further flags of Chromium.
    """
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    chromedriver = shutil.which("chromedriver")
    try:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service
    except ImportError:
        return None
    if chromium is None or chromedriver is None:
        return None
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", *flags):
        options.add_argument(flag)
    return webdriver.Chrome(options=options, service=Service(chromedriver))
