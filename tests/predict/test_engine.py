"""Counting and sampling on real local clusters of Dask and Ray."""

import os
import signal
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from examples.hotel.log_formats import write_lines

import dtdr
from dtdr.cli import run
from dtdr.data.demonstration_files import read_demonstrations, save_demonstrations, save_tools
from dtdr.errors import DtdrError, InputError
from dtdr.logs import CutOptions, find_format
from dtdr.logs.file_tasks import import_file
from dtdr.predict.counting import draw_sample, engine
from tests import small_data

SOME = small_data.dataset(300).demonstrations


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs")
    for number in range(6):
        suffix = "parquet" if number % 2 else "jsonl"
        save_demonstrations(path / f"part-{number}.{suffix}", SOME[number::6])
    save_tools(path / "tools.json", [dtdr.Tool("send_mail", "Send a message")])
    return path


@contextmanager
def dask_cluster(workers=2):
    distributed = pytest.importorskip("distributed", reason="the extra dask is not installed")
    with distributed.LocalCluster(
        n_workers=workers, threads_per_worker=1, dashboard_address=None, processes=True
    ) as cluster:
        yield cluster.scheduler_address.replace("tcp", "dask")


@contextmanager
def ray_cluster():
    ray = pytest.importorskip("ray", reason="the extra ray is not installed")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    cluster.add_node(num_cpus=1)
    ray.init(cluster.address, log_to_driver=False)
    yield "ray://auto"
    ray.shutdown()
    cluster.shutdown()


CLUSTERS = {"dask": dask_cluster, "ray": ray_cluster}


@pytest.fixture(params=CLUSTERS)
def address(request, monkeypatch):
    """The address of a cluster of two workers, for one test, since it may lose killed ones."""
    monkeypatch.setattr(engine, "_NO_WORKER_SECONDS", 60)
    with CLUSTERS[request.param]() as address:
        yield address


def kill_once(part, marker):
    """Kills the worker that it runs on the first time, as a lack of memory would.

    One worker at a time: a cluster of two goes on with the other.
    """
    with suppress(FileExistsError):
        open(marker, "x").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return str(part)


def kill_always(part):
    os.kill(os.getpid(), signal.SIGKILL)


def read_or_die(path):
    """A format whose first reader kills its worker, and each one if the file says so."""
    query = Path(path).read_text()
    if query == "always":
        kill_always(path)
    kill_once(path, str(Path(path).with_name("killed")))
    call = {"id": "1", "function": {"name": "find", "arguments": "{}"}}
    yield [{"role": "user", "content": query}, {"role": "assistant", "tool_calls": [call]}]


@pytest.mark.slow
def test_an_import_on_a_cluster_writes_what_one_machine_writes_or_names_the_file(
    address, tmp_path, cli
):
    folder = tmp_path / "logs"
    folder.mkdir()
    for number in range(5):
        items = [item.to_dict() for item in SOME[number::5]] + [SOME[0].to_dict()]
        write_lines(folder / f"{number}.jsonl", items)
    paths = sorted(folder.iterdir())
    for order in (paths, paths[::-1]):
        for name, more in (("here", ()), ("there", ("--engine", address))):
            output = tmp_path / f"{name}.parquet"
            done = cli("import", *order, "-o", output, "--redact", "--force", *more)
            assert done.code == 0, done.err
        contents = [(tmp_path / f"{n}.parquet").read_bytes() for n in ("here", "there")]
        assert contents[0] == contents[1]
    (folder / "5.jsonl").write_text("{broken\n")
    done = cli("import", folder / "5.jsonl", *paths, "-o", output, "--force", "--engine", address)
    assert done.code == 2
    done = cli("import", "dtdr", folder / "5.jsonl", "-o", output, "--force", "--engine", address)
    assert (done.code, "5.jsonl is not JSON" in done.err) == (2, True)
    cluster = engine.connect(address)
    arguments = (find_format("dtdr"), CutOptions(), None, False)
    try:
        tasks = engine.run_tasks(
            import_file, [folder / "gone.jsonl"], *arguments, label="Importing", engine=cluster
        )
        with pytest.raises(InputError, match=r"cannot read \S+gone\.jsonl: no such file"):
            list(tasks)
    finally:
        cluster.close()
    own = "tests.predict.test_engine:read_or_die"
    for number, query in enumerate(("one", "two", "always")):
        (folder / f"{number}.txt").write_text(query)
    first = [folder / "0.txt", folder / "1.txt"]
    done = cli("import", "--format", own, *first, "-o", output, "--force", "--engine", address)
    assert done.code == 0, done.err
    assert [item.query for item in read_demonstrations(output)] == ["one", "two"]
    last = folder / "2.txt"
    done = cli("import", "--format", own, last, "-o", output, "--force", "--engine", address)
    assert done.code == 1
    assert f"no worker could read {last}" in done.err
    assert [item.query for item in read_demonstrations(output)] == ["one", "two"]


@pytest.mark.slow
def test_a_cluster_gives_the_same_bytes_and_survives_a_killed_worker(address, folder, tmp_path):
    here = draw_sample([folder], 100, workers=1)
    there = draw_sample([folder], 100, engine=address)
    assert there.counts.to_bytes() == here.counts.to_bytes()
    assert there.demonstrations == here.demonstrations
    assert there.tools == here.tools
    fit = ["fit", str(folder), "--sample", "100", "--retriever", "dr", "--force"]
    for name, more in (("here", ["--workers", "1"]), ("there", ["--engine", address])):
        assert run([*fit, "-o", str(tmp_path / name), *more]) == 0
    contents = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("here", "there")]
    assert contents[0] == contents[1]
    (folder / "broken.jsonl").write_text('{"id": "x"}\n')
    try:
        with pytest.raises(InputError, match=r"broken\.jsonl:1"):
            draw_sample([folder], 100, engine=address)
    finally:
        (folder / "broken.jsonl").unlink()
    cluster = engine.connect(address)
    try:
        marker = str(tmp_path / "killed")
        results = list(
            engine.run_tasks(kill_once, ["a", "b", "c"], marker, label="Reading", engine=cluster)
        )
        assert results == ["a", "b", "c"], "a task is tried again if its worker is killed"
        with pytest.raises(DtdrError, match=r"no worker could read runs/part-1\.jsonl"):
            list(
                engine.run_tasks(
                    kill_always, ["runs/part-1.jsonl"], label="Reading", engine=cluster
                )
            )
    finally:
        cluster.close()


@pytest.mark.slow
def test_a_cluster_without_workers_is_named_instead_of_waited_for(folder, monkeypatch):
    monkeypatch.setattr(engine, "_NO_WORKER_SECONDS", 1)
    monkeypatch.setattr(engine, "_CHECK_SECONDS", 0.5)
    with (
        dask_cluster(workers=0) as address,
        pytest.raises(DtdrError, match=r"the cluster has had none for 1 s; start workers"),
    ):
        draw_sample([folder], 100, engine=address)


@pytest.mark.slow
def test_workers_of_another_version_are_named_before_anything_runs(
    folder, tmp_path, cli, monkeypatch
):
    monkeypatch.setattr(engine, "VERSION", "9.9")
    output = tmp_path / "runs.parquet"
    with dask_cluster() as address:
        with pytest.raises(DtdrError, match=r"here are Python \S+ and dtdr 9\.9; install the same"):
            draw_sample([folder], 100, engine=address)
        done = cli("import", folder / "part-0.jsonl", "-o", output, "--engine", address)
    assert (done.code, "dtdr 9.9; install the same" in done.err) == (1, True)
    assert not output.exists()


@pytest.mark.slow
def test_a_cluster_that_cannot_be_reached_is_one_sentence(folder, tmp_path, cli, monkeypatch):
    pytest.importorskip("distributed", reason="the extra dask is not installed")
    monkeypatch.setattr(engine, "_CONNECT_SECONDS", 1)
    with pytest.raises(DtdrError, match="cannot be reached"):
        draw_sample([folder], 100, engine="dask://127.0.0.1:9")
    log, output = folder / "part-0.jsonl", tmp_path / "runs.parquet"
    done = cli("import", log, "-o", output, "--engine", "dask://127.0.0.1:9")
    assert (done.code, "cannot be reached" in done.err, output.exists()) == (1, True, False)


@pytest.mark.parametrize("address", ["spark://x:1", "dask", "dask://", "localhost:8786"])
def test_an_unknown_engine_is_misuse(address, folder, capsys):
    with pytest.raises(InputError, match="write dask://HOST:8786"):
        engine.connect(address)
    assert run(["fit", str(folder), "-o", "m", "--engine", address]) == 2


def test_an_engine_needs_files(capsys):
    with pytest.raises(InputError, match="an engine reads files"):
        dtdr.fit(SOME, engine="dask://localhost:8786")
    assert run(["fit", "--dataset", "bundled", "-o", "m", "--engine", "dask://h:1"]) == 2


def test_an_import_on_an_engine_says_what_it_cannot_do_before_it_connects(tmp_path, cli):
    log = write_lines(tmp_path / "log.jsonl", [SOME[0].to_dict()])
    for words, *more in (
        ("openai-chat cannot be imported with --engine", "--format", "openai-chat"),
        ("--engine writes Parquet", "--format", "dtdr"),
    ):
        done = cli("import", log, "-o", tmp_path / "o.jsonl", "--engine", "dask://h:1", *more)
        assert (done.code, words in done.err) == (2, True), done.err


@pytest.mark.parametrize(("name", "module"), [("dask", "distributed"), ("ray", "ray")])
def test_a_missing_extra_is_named(name, module, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, module, None)
    with pytest.raises(DtdrError, match=rf"dtdr\[{name}\]"):
        engine.connect(f"{name}://localhost:1")
