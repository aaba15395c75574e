"""A real browser without a window, or a skip where there is none."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def chromium(*options: str) -> Iterator[Any]:
    """Headless Chromium, driven by selenium.

    Args:
        options: more of Chromium's own.
    """
    webdriver = pytest.importorskip("selenium.webdriver", reason="browsers are driven by selenium")
    program = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)
    driver = shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("chromium and chromedriver are not installed")
    chosen = webdriver.ChromeOptions()
    chosen.binary_location = program
    for option in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", *options):
        chosen.add_argument(option)
    chosen.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(chosen, webdriver.ChromeService(driver))
    browser.set_page_load_timeout(60)
    browser.set_script_timeout(60)
    try:
        yield browser
    finally:
        browser.quit()
