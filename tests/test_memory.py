"""A fit within a bound of memory."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from dtdr.cli import run
from dtdr.data.demonstration_files import save_demonstrations, save_tools
from dtdr.errors import InputError
from dtdr.predict.counting.memory import SAMPLE, parse_size, plan_memory
from synthetic_runs import generate, tools


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4GB", 4 * 10**9),
        ("512 mb", 512 * 10**6),
        ("1.5G", 1_500_000_000),
        ("900000000", 9 * 10**8),
    ],
)
def test_sizes_are_read(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GB", "4 apples", "-1GB", "1e3"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(InputError, match="write it as 4GB"):
        parse_size(text)


def test_less_memory_means_fewer_workers_and_a_smaller_sample():
    assert plan_memory(None, None, None, 8) == plan_memory(None, SAMPLE, None, 2)
    assert plan_memory(None, None, 3, 8).workers == 3
    plans = [plan_memory(gigabytes * 10**9, None, None, 64) for gigabytes in (1, 2, 4, 64)]
    for field in ("sample", "workers"):
        chosen = [getattr(plan, field) for plan in plans]
        assert chosen == sorted(chosen)
        assert chosen[0] < chosen[-1]
    assert (plans[-1].sample, plans[-1].workers) == (SAMPLE, 64)


def test_a_sample_that_is_held_out_as_a_whole_needs_more_for_each():
    samples = {gb: plan_memory(int(gb * 1e9), None, None, 2).sample for gb in (1, 2, 3.4, 3.5, 4)}
    assert samples == {1: 2_692, 2: 6_538, 3.4: 11_923, 3.5: 40_909, 4: 48_484}
    assert plan_memory(3_500_000_000, 12_000, None, 2).sample == 12_000
    with pytest.raises(InputError, match=r"a sample of 12,000 takes about 3\.4GB"):
        plan_memory(3_400_000_000, 12_000, None, 2)


def test_what_does_not_go_together_is_said():
    for memory, sample, workers, said in (
        (10**8, None, None, "must be [0-9]+MB or more"),
        (10**9, 90_000, None, "--sample [0-9]+"),
        (10**9, None, 30, "--workers [0-9]+"),
        (10**9, 0, None, "--sample 0 learns from all"),
    ):
        with pytest.raises(InputError, match=said):
            plan_memory(memory, sample, workers, 4)
    assert run(["fit", "x.jsonl", "-o", "m", "--set", "memory=lots"]) == 2


def resident(parent):
    """Bytes of memory of a process and of those that it started."""
    total, family = 0, {parent}
    for folder in sorted(Path("/proc").glob("[0-9]*"), key=lambda path: int(path.name)):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(folder.name) in family or int(fields[1]) in family:
            family.add(int(folder.name))
            total += int(fields[21]) * 4096
    return total


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_fit_stays_within_its_memory(tmp_path):
    save_demonstrations(tmp_path / "d.parquet", generate(4_000, 60, seed=2))
    save_tools(tmp_path / "tools.json", tools(60))
    command = [sys.executable, "-m", "dtdr", "fit", str(tmp_path / "d.parquet"), "--no-plans"]
    command += ["--no-arguments"]
    command += ["-o", str(tmp_path / "m"), "--set", "memory=1GB"]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    peak = 0
    try:
        while started.poll() is None:
            peak = max(peak, resident(started.pid))
            time.sleep(0.05)
        said = started.communicate()[0]
    finally:
        started.kill()
    assert started.returncode == 0
    assert "counted all, learned from a sample of" in said
    assert 10**8 < peak < 10**9
