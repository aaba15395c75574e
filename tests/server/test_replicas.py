"""Two servers behind one address, of which one is killed: every step gets the right ranking."""

import contextlib
import random
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

import dtdr
from dtdr.data.run import as_run
from dtdr.rankers.selection import Selection
from tests import small_data
from tests.server import serving

THREADS = 4


def make_run(draw):
    """A query and calls with outputs."""
    item = small_data.demonstration(draw.randrange(12))
    names = [tool.name for tool in small_data.TOOLS]
    calls = [
        {"tool": draw.choice(names), "id": str(at), "output": {"n": draw.randrange(99)}}
        for at in range(draw.randrange(1, 9))
    ]
    return item.query, calls


@pytest.mark.parametrize("steps", [200, pytest.param(20_000, marks=pytest.mark.slow)])
def test_no_step_is_lost_or_wrong_when_a_server_is_killed(learner, tmp_path, steps):
    folder = shutil.copytree(learner, tmp_path / "mail")
    models = [dtdr.load(folder)]
    models.append(models[0].update_copy(small_data.dataset(4).demonstrations)[0])
    wrong: list[str] = []
    done = [0] * THREADS

    def ask(number):
        draw = random.Random(number)
        with dtdr.Client(url, timeout=60) as client:
            while done[number] < steps // THREADS:
                query, calls = make_run(draw)
                session = client.session(query)
                for at, call in enumerate(calls, start=1):
                    ranking = session.call(call).rank(top_k=3)
                    whole = models[ranking.generation > 1].rank(as_run(query, calls[:at]))
                    expected = whole.pairs(whole.positions(Selection(top_k=3)))
                    if ranking.top(3) != [(tool, round(p, 6)) for tool, p in expected]:
                        wrong.append(query)
                    done[number] += 1

    with contextlib.ExitStack() as stack:
        watched = (folder, "--watch", "0.2", "--quiet")
        first, second = (stack.enter_context(serving.process(*watched)) for _ in range(2))
        address = serving.nginx(tmp_path, [first.url, second.url], {})
        url = "http://{}:{}".format(*stack.enter_context(address))
        with ThreadPoolExecutor(THREADS) as pool:
            asked = [pool.submit(ask, number) for number in range(THREADS)]
            serving.wait_until(lambda: sum(done) > steps // 3 or asked[0].done(), 600)
            first.process.send_signal(signal.SIGKILL)
            serving.wait_until(lambda: sum(done) > steps // 2 or asked[0].done(), 600)
            models[1].save(folder, force=True)  # as dtdr learn publishes one
            for future in asked:
                future.result(1_200)
        serving.wait_until(lambda: second.get("/v1/models/mail").json()["generation"] == 2)
        # A folder that cannot be loaded: the old model stays, and health checks say so.
        config = folder / "config.json"
        config.write_text(config.read_text().replace('"dtdr-f"', '"dtdr-x"'))
        serving.wait_until(lambda: second.get("/readyz").json()["failing"] == 1)
        assert second.metric('dtdr_failing{task="model mail"}') == 1
        with dtdr.Client(url) as client:
            assert client.rank("Mail Ann").generation == 2
    assert sum(done) >= steps
    assert wrong == []
