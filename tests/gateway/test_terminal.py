import logging
import os
import pty
import sys

import anyio
import pytest

from dtdr.agents.gateway import UpstreamSpec
from dtdr.agents.gateway.terminal import PrintableFormatter, printable
from tests.gateway.helpers import gateway_client

pytestmark = pytest.mark.anyio

ESCAPE = "\x1b]0;owned\x07\x9b2J\u202e"
ESCAPED = r"\x1b]0;owned\x07\x9b2J\u202e"


def test_only_what_a_terminal_does_not_print_is_escaped():
    assert printable("Zürich 東京 ok") == "Zürich 東京 ok"
    assert printable(f"a{ESCAPE}\nb") == rf"a{ESCAPED}\nb"
    assert printable("a\nb", keep="\n") == "a\nb"


def test_a_line_of_the_log_cannot_be_forged():
    formatter = PrintableFormatter("dtdr: %(message)s")
    try:
        raise ValueError(f"bad{ESCAPE}")
    except ValueError:
        failure = sys.exc_info()
    record = logging.LogRecord("x", 30, "", 1, "%s", (f"away\ndtdr: {ESCAPE}",), failure)
    first, *traceback = formatter.format(record).split("\n")

    assert first == rf"dtdr: away\ndtdr: {ESCAPED}"
    assert traceback[-1] == f"ValueError: bad{ESCAPED}"


async def test_what_a_server_writes_to_its_standard_error_cannot_control_the_terminal(
    model, monkeypatch
):
    controller, terminal = pty.openpty()
    script = f"import sys; sys.stderr.write({f'one{ESCAPE}'!r}); sys.stderr.flush()"
    spec = UpstreamSpec("a", command=(sys.executable, "-c", script), inherit_env=True)
    with os.fdopen(terminal, "w", encoding="utf-8") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        async with gateway_client(model, [spec]):
            pass
        written = await anyio.to_thread.run_sync(os.read, controller, 10_000)
    os.close(controller)

    assert f"one{ESCAPED}" in written.decode()
    assert "\x1b" not in written.decode()
