"""A server that answers for long does not grow."""

import json
import os
import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection

import pytest

from tests import small_data
from tests.server import serving

THREADS = 4


def resident(pid):
    """MB of memory of a process."""
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * 4096 / 1e6


def make_request(draw):
    """A path and a body of any kind, right or wrong, most of them of a run never seen."""
    item = small_data.demonstration(draw.randrange(12))
    query = f"{item.query} {draw.randrange(10**9)}"
    calls = [
        {
            "tool": draw.choice(item.plan.tools),
            "output": {"n": draw.randrange(10**6), "x": "y" * 99},
        }
        for _ in range(draw.randrange(5))
    ]
    step = {"query": query, "history": calls}
    return draw.choice(
        [
            ("/v1/rank", step),
            ("/v1/rank", {"query": query, "history": list(item.plan.tools)}),
            ("/v1/rank/batch", {"steps": [step, step]}),
            ("/v1/search", {**step, "text": item.query}),
            ("/v1/explain", step),
            ("/v1/rank", {"query": "", "history": calls}),
            ("/v1/rank", {"query": query, "nonsense": calls}),
        ]
    )


LONG = [
    pytest.mark.slow,
    pytest.mark.timeout(3_600),
    pytest.mark.skipif("DTDR_SOAK" not in os.environ, reason="takes half an hour: make soak"),
]


@pytest.mark.parametrize("requests", [1_000, pytest.param(200_000, marks=LONG)])
def test_memory_does_not_grow_with_the_number_of_requests(fitted, requests):
    sizes: list[float] = []
    parts = 10
    with serving.process(fitted, "--quiet", "--limit", "connections=100") as served:

        def ask(number):
            draw = random.Random(number)
            # httpx2 takes more time than the server does.
            with closing(HTTPConnection(served.url.removeprefix("http://"), timeout=60)) as http:
                for _ in range(requests // parts // THREADS):
                    path, body = make_request(draw)
                    http.request("POST", path, json.dumps(body), JSON)
                    answer = http.getresponse()
                    answer.read()
                    assert answer.status in (200, 422), path

        for part in range(parts):
            with ThreadPoolExecutor(THREADS) as pool:
                list(pool.map(ask, range(part * THREADS, (part + 1) * THREADS)))
            sizes.append(resident(served.process.pid))
    # Recent queries and runs fill their 32 and 64 MB first.
    assert sizes[-1] - sizes[parts // 2] < 15, sizes


JSON = {"content-type": "application/json"}
