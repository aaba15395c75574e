"""A client's hook: tells the gateways of this client what the user wrote.

    python -I -S hook.py CLIENT_PID < prompt.json

Run before every prompt, so it imports next to nothing, not even ``dtdr``. It prints nothing and
ends with 0 whatever happens: a prompt must not wait for a gateway that is not there.
"""

import os
import sys

LONGEST = 1 << 20
"""Bytes of what a client hands its hook; a longer prompt is not passed on."""

SECONDS = 3.0
"""How long the prompt may wait at most for a gateway, which answers in milliseconds unless the
machine is very busy: once the client has listed its tools again."""


def folder() -> str:
    """Where the gateways of this user keep their sockets, and the secret of each."""
    return os.path.expanduser("~/.cache/dtdr/gateways")


def main() -> None:
    """Hand standard input to every gateway that this client has started."""
    # Not ``socket``: importing it takes longer than all the rest.
    import _socket

    client = sys.argv[1] if sys.argv[1:] and sys.argv[1].isdigit() else str(os.getppid())
    prompt = sys.stdin.buffer.read(LONGEST + 1)
    if len(prompt) > LONGEST:
        return
    for name in os.listdir(folder()):
        if not (name.startswith(f"{client}-") and name.endswith(".key")):
            continue
        path = os.path.join(folder(), name)
        try:
            with open(path, "rb") as file:
                secret = file.read()
            connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
            connection.settimeout(SECONDS)
            connection.connect(path.removesuffix(".key") + ".sock")
            message = memoryview(secret + b"\n" + prompt + b"\0")
            while message:
                message = message[connection.send(message) :]
            connection.recv(1)
            connection.close()
        except OSError:
            continue  # a gateway that was killed leaves its files


if __name__ == "__main__":
    try:
        main()
    except Exception:  # noqa: BLE001  # whatever it is, it is not the prompt's trouble
        sys.exit(0)
