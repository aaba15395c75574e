"""An MCP server over pipes that answers with bytes as they are written here, valid or not.

``python raw_server.py PAGES`` lists pages of tools: a JSON list of lists of definitions, of which
the last is sent again and again, with the same cursor, if the list ends with null. A call of a tool
answers with the bytes of ``ANSWERS``, in which ``ID`` stands for the request's id, or with the name
of the tool.
"""

import json
import sys

TEXT = b'{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":%b}]}}'
DEEP = b"[" * 5_000 + b"]" * 5_000
ANSWERS = {
    "well": TEXT % b'"well"',
    "half": TEXT % rb'"cut \ud83d"',
    "raw_half": TEXT % b'"cut \xed\xa0\xbd \xff"',
    "deep": b'{"jsonrpc":"2.0","id":ID,"result":{"content":[],"structuredContent":%b}}' % DEEP,
    "long_integer": TEXT.replace(b"[", b'[],"structuredContent":{"n":%b},"x":[' % (b"1" * 6_000))
    % b'""',
    "no_result": b'{"jsonrpc":"2.0","id":ID,"result":null}',
    "list_result": b'{"jsonrpc":"2.0","id":ID,"result":[1]}',
    "text_error": b'{"jsonrpc":"2.0","id":ID,"error":"it failed"}',
    "batch": b'[{"jsonrpc":"2.0","method":"notifications/x"},' + TEXT % b'"well"' + b"]",
    "not_json": b'Hello.\n{"jsonrpc":"2.0","id":ID,"result":{',
    "odd_request": b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}\n'
    b'{"jsonrpc":"2.0","id":"q","method":"ping","params":[]}\n' + TEXT % b'"well"',
}
TOOL = {"description": "Answers.", "inputSchema": {"type": "object"}}


def main() -> None:
    pages = json.loads(sys.argv[1])
    ends = pages[-1] is not None
    pages = pages if ends else pages[:-1]
    for line in sys.stdin.buffer:
        message = json.loads(line)
        identity = json.dumps(message.get("id")).encode()
        method, params = message.get("method"), message.get("params") or {}
        if method == "initialize":
            answer = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                      "serverInfo": {"name": "raw", "version": "1"}}  # fmt: skip
        elif method == "tools/list":
            place = int(params.get("cursor") or 0)
            answer = {"tools": pages[place]}
            if place + 1 < len(pages) or not ends:
                answer["nextCursor"] = str(min(place + 1, len(pages) - 1))
        elif method == "tools/call":
            called = TEXT % json.dumps(f"called {params['name']}").encode()
            sent = ANSWERS.get(params["name"], called)
            sys.stdout.buffer.write(sent.replace(b"ID,", identity + b",") + b"\n")
            sys.stdout.buffer.flush()
            continue
        elif "id" in message and method:
            answer = {}
        else:
            continue
        message = {"jsonrpc": "2.0", "id": message["id"], "result": answer}
        sys.stdout.buffer.write(json.dumps(message).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
