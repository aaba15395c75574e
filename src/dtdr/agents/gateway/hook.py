"""A client's hook: sends the user's prompt to the gateways of this client.

    python -I -S hook.py CLIENT_PID < prompt.json

It runs before every prompt, so it imports next to nothing, not even ``dtdr``. It prints nothing and
always exits with 0: a prompt must not wait for a gateway that is not there.
"""

import os
import sys

LONGEST = 1 << 20
"""Bytes of a prompt; a longer one is not passed on."""

SECONDS = 3.0
"""How long the prompt waits for a gateway at most. A gateway answers once the client has listed its
tools again, within milliseconds unless the machine is very busy."""


def folder() -> str:
    """The folder with the sockets of this user's gateways."""
    return os.path.expanduser("~/.cache/dtdr/gateways")


def main() -> None:
    """Send standard input to every gateway that this client has started."""
    # Not ``socket``: importing it takes longer than all the rest.
    import _socket

    client = sys.argv[1] if sys.argv[1:] and sys.argv[1].isdigit() else str(os.getppid())
    prompt = sys.stdin.buffer.read(LONGEST + 1)
    if len(prompt) > LONGEST:
        # Else the client would write on into a closed pipe.
        while sys.stdin.buffer.read(LONGEST):
            pass
        return
    for name in os.listdir(folder()):
        if not name.startswith(f"{client}-"):
            continue
        try:
            connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
            connection.settimeout(SECONDS)
            connection.connect(os.path.join(folder(), name))
            message = memoryview(prompt + b"\0")
            while message:
                message = message[connection.send(message) :]
            connection.recv(1)
            connection.close()
        except OSError:
            continue  # a gateway that was killed leaves its socket


if __name__ == "__main__":
    try:
        main()
    except Exception:  # noqa: BLE001  # a prompt must not fail because of it
        sys.exit(0)
