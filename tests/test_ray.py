"""The same work on Ray: the same bytes, also when nodes die in the middle of it."""

import json

import pytest

import dtdr
from dtdr.cli import run
from dtdr.data.demonstration_files import save_demonstrations, save_tools
from dtdr.data.engines import ProcessEngine, RayEngine
from dtdr.errors import InputError
from dtdr.predict.counting import draw_sample
from synthetic_runs import generate, tools

pytestmark = pytest.mark.slow
ray = pytest.importorskip("ray", reason="needs the extra 'ray'")

SOME = list(generate(600, seed=4))
PARTS = 24


@pytest.fixture
def cluster(monkeypatch):
    """Two nodes of one core, the second of which a test may take away."""
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    small = {"object_store_memory": 100_000_000, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, **small})
    second = cluster.add_node(num_cpus=1, object_store_memory=100_000_000)
    ray.init(cluster.address, log_to_driver=False, logging_level="ERROR")
    cluster.wait_for_nodes()
    yield cluster, second
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture
def shards(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    save_tools(folder / "tools.json", tools())
    for place in range(PARTS):
        suffix = (".parquet", ".jsonl")[place % 2]
        save_demonstrations(folder / f"part-{place:02}{suffix}", SOME[place::PARTS])
    return folder


class DyingEngine(RayEngine):
    """Takes a node away after some results of a pass."""

    def __init__(self, cluster, label):
        super().__init__()
        (self.cluster, self.node), self.label = cluster, label

    def map(self, function, items, *arguments, label):
        for place, result in enumerate(super().map(function, items, *arguments, label=label)):
            if self.label == label and place == 2:
                self.cluster.remove_node(self.node, allow_graceful=False)
                self.label = None
            yield result


def test_a_node_that_dies_while_it_counts_changes_nothing(cluster, shards):
    expected = draw_sample([shards], 100, engine=ProcessEngine(1))
    engine = DyingEngine(cluster, "Counting")
    drawn = draw_sample([shards], 100, engine=engine)
    assert engine.label is None
    assert len(cluster[0].list_all_nodes()) == 1
    assert drawn.counts.to_bytes() == expected.counts.to_bytes()
    assert drawn.counts.total == len(SOME)
    assert drawn.demonstrations == expected.demonstrations


def test_a_lab_runs_on_ray(tmp_path, capsys):
    save_demonstrations(tmp_path / "d.jsonl", SOME[:60])
    found = {}
    for engine in ("processes", "ray"):
        lab = [
            "lab",
            "run",
            "--data",
            str(tmp_path / "d.jsonl"),
            "--retriever",
            "dtdr-c",
            "--seeds",
        ]
        lab += ["1", "-o", str(tmp_path / engine), "--cache", str(tmp_path / f"cache-{engine}")]
        assert run([*lab, "--engine", engine, "--workers", "2", "--json"]) == 0
        found[engine] = json.loads(capsys.readouterr().out)
    for key in ("runs", "computed", "failed", "results"):
        assert found["ray"].get(key) == found["processes"].get(key), key


def test_fit_gives_the_same_model_on_ray(tmp_path, shards, capsys):
    for name, more in (("here", ["--workers", "1"]), ("ray", ["--engine", "ray"])):
        fit = ["fit", str(shards), "-o", str(tmp_path / name), "--sample", "80", "--no-plans"]
        assert run([*fit, "--retriever", "dtdr-l", "--no-arguments", *more]) == 0
        assert not ray.is_initialized()
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "here" / name).read_bytes() == (tmp_path / "ray" / name).read_bytes()
    assert dtdr.load(tmp_path / "ray").training_.demonstrations == len(SOME)


def test_what_cannot_be_used_is_the_same_sentence_on_ray(shards, capsys):
    record = json.loads((shards / "part-03.jsonl").read_text().splitlines()[0])
    with (shards / "part-05.jsonl").open("a") as stream:
        stream.write(json.dumps({**record, "id": ""}) + "\n")
    said = []
    for engine in ("processes", "ray"):
        fit = ["fit", str(shards), "-o", str(shards.parent / "m"), "--sample", "80"]
        assert run([*fit, "--engine", engine, "--workers", "2"]) == 2
        said.append(capsys.readouterr().err)
    assert said[0] == said[1]
    assert "part-05.jsonl:26: the demonstration has no 'id'" in said[0]


def test_a_cluster_that_is_not_there_is_one_sentence(shards, capsys):
    with pytest.raises(InputError, match=r"cannot reach Ray at 127\.0\.0\.1:1: "):
        RayEngine("127.0.0.1:1")
    fit = ["fit", str(shards), "-o", str(shards.parent / "m"), "--sample", "80"]
    assert run([*fit, "--engine", "ray:127.0.0.1:1"]) == 2
    assert "ray start --head" in capsys.readouterr().err
    assert run([*fit, "--engine", "spark"]) == 2
    assert "choose one of processes, ray" in capsys.readouterr().err
