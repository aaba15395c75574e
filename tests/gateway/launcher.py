"""``python launcher.py SOCKET OPTIONS``: starts a test server that need not import anything.

Importing the SDK takes a second of processor time, so one process has ``server.py`` ready and forks
a server for each launcher, with the launcher's standard streams. Both end together.
"""

import socket
import sys

if __name__ == "__main__":
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(sys.argv[1])
        socket.send_fds(connection, [sys.argv[2].encode()], [0, 1, 2])
        connection.recv(1)  # nothing comes but the end
