"""Web pages in a real browser, which try to use a server that asks for no key."""

import functools
import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.browser import chromium
from tests.server import serving

pytestmark = pytest.mark.browser

PAGE = """<!doctype html><title>hostile</title>
<form id="form" method="post" enctype="text/plain"><input name='{"a":"' value='b"}'></form>
<iframe name="frame"></iframe>
"""
ASK = """
const [url, options, done] = arguments;
fetch(url, options).then(async answer => done([answer.status, await answer.text()]),
                         error => done([0, String(error)]));
"""
FORM = """
const [url, done] = arguments;
const form = document.getElementById("form");
form.action = url; form.target = "frame";
document.querySelector("iframe").onload = () => done(true);
form.submit();
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser for which ``evil.example`` is this machine, as after DNS rebinding."""
    with chromium("--host-resolver-rules=MAP evil.example 127.0.0.1") as started:
        yield started


@contextmanager
def page_of_another_origin(folder: Path) -> Iterator[str]:
    """The address of a page on another port."""
    (folder / "index.html").write_text(PAGE)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    handler.func.log_message = lambda *_: None  # type: ignore[attr-defined]
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            server.shutdown()
            thread.join()


def post(kind: str, **options: Any) -> dict[str, Any]:
    return {"method": "POST", "headers": {"Content-Type": kind}, "body": "{}", **options}


WAYS = {
    "without reading the answer": post("text/plain", mode="no-cors"),
    "as text": post("text/plain"),
    "as JSON": post("application/json"),
    "as a form": post("application/x-www-form-urlencoded", mode="no-cors"),
    "by another method": {"method": "PUT", "body": "{}"},
}


def test_a_page_of_another_origin_changes_and_reads_nothing(browser, model, tmp_path):
    settings = serving.settings(model, feedback_log=str(tmp_path / "feedback.jsonl"))
    with serving.serve(settings) as served, page_of_another_origin(tmp_path) as page:
        browser.get(page)
        for path in ("/v1/models/mail/reload", "/v1/models/mail/save", "/v1/feedback"):
            for name, options in WAYS.items():
                status, text = browser.execute_async_script(ASK, served.url + path, options)
                assert status == 0, f"{path} {name}: the page read {text}"
            browser.execute_async_script(FORM, served.url + path)
        status, text = browser.execute_async_script(ASK, f"{served.url}/v1/models", {})
        assert status == 0, f"the page read {text}"
        assert browser.execute_script(
            "return navigator.sendBeacon(arguments[0], '{}')", f"{served.url}/v1/models/mail/reload"
        )
        described = served.get("/v1/models").json()["models"][0]
        assert (described["generation"], described["unsaved"]) == (1, 0)
        assert (tmp_path / "feedback.jsonl").read_bytes() == b""
        refused = [line for line in served.get("/metrics").text.splitlines() if '="403"' in line]
        assert refused, "nothing that the page sent reached the server, so nothing was tested"


def test_a_name_that_leads_to_this_machine_is_refused(browser, served):
    port = served.url.rsplit(":", 1)[1]
    browser.get(f"http://evil.example:{port}/docs")
    assert "answers to localhost only" in browser.page_source
    status, _ = browser.execute_async_script(ASK, "/v1/models/mail/reload", post("text/plain"))
    assert status == 421
    assert served.get("/v1/models").json()["models"][0]["generation"] == 1


def test_the_page_of_the_server_itself_may_ask_it(browser, served):
    browser.get(f"{served.url}/docs")
    answer = browser.execute_script("return document.querySelectorAll('h2, h3').length")
    assert answer > 5
    # Its policy lets it load nothing; what is refused there never reaches the server.
    status, _ = browser.execute_async_script(ASK, "/v1/models", {})
    assert status == 0
