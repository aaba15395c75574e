import contextlib
import errno
import json
import os
import shutil
import socket
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save, save_file

import dtdr
from dtdr import Tool
from dtdr.errors import DtdrError, ModelError, OutputError
from dtdr.predict import create
from dtdr.rankers import NAMES
from dtdr.rankers.model_folder import FORMAT_VERSION, config_checksum, describe
from tests import crafted, small_data
from tests.helpers import RANKER_ONLY, change_config, sha256_of

DEMONSTRATIONS = [
    ("open the report and mail it", ["open", "mail"]),
    ("what is the weather", ["weather"]),
    ("mail the weather to Ann", ["weather", "mail"]),
    ("open the report", ["open"]),
]


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "model"
    dtdr.fit(DEMONSTRATIONS, [Tool("open", "Opens a file")], ranker="dr", **RANKER_ONLY).save(path)
    return path


def test_a_model_folder_holds_no_other_files(folder):
    assert sorted(item.name for item in folder.iterdir()) == ["config.json", "model.safetensors"]


def test_saving_never_overwrites_without_force(folder):
    before = (folder / "config.json").read_text()
    other = dtdr.fit(DEMONSTRATIONS[:2], ranker="dr")
    with pytest.raises(OutputError, match="exists; pass --force"):
        other.save(folder)
    assert (folder / "config.json").read_text() == before
    other.save(folder, force=True)
    assert dtdr.load(folder).training_.demonstrations == 2
    assert [item.name for item in folder.parent.iterdir()] == ["model"]


@pytest.mark.parametrize("force", [False, True])
def test_what_is_not_a_model_is_never_replaced(folder, force):
    (folder / "notes.txt").write_text("mine")
    for path in (folder, folder / "notes.txt"):
        with pytest.raises(OutputError, match="never replaced"):
            dtdr.fit(DEMONSTRATIONS[:2], ranker="dr", **RANKER_ONLY).save(path, force=force)
    assert (folder / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()]
)
def test_a_save_that_is_cut_off_leaves_the_old_model(folder, monkeypatch, error):
    def interrupted(*_):
        raise error

    monkeypatch.setattr(Path, "write_bytes", interrupted)
    with pytest.raises((OutputError, KeyboardInterrupt)) as caught:
        dtdr.fit(DEMONSTRATIONS[:1], ranker="dr", **RANKER_ONLY).save(folder, force=True)
    if isinstance(error, OSError):
        assert "the disk is full; nothing was replaced" in str(caught.value)
    monkeypatch.undo()
    assert dtdr.load(folder).training_.demonstrations == 4
    assert [item.name for item in folder.parent.iterdir()] == ["model"]


def config_text(change):
    def damage(folder):
        path = folder / "config.json"
        path.write_text(change(path.read_text()))

    return damage


def tensors(content):
    """Other bytes in the place of the arrays, and a checksum that fits them."""

    def damage(folder):
        path = folder / "model.safetensors"
        path.write_bytes(content(path))
        change_config(folder, tensors_sha256=sha256_of(path))

    return damage


def cut_arrays(path):
    return save({name: array[:1] for name, array in load_file(path).items()})


def config(**changes):
    return lambda folder: change_config(folder, **changes)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (shutil.rmtree, "does not exist"),
        (lambda folder: (folder / "config.json").unlink(), r"no readable config\.json"),
        (config_text(lambda _: '{"model_type": "bert"}'), "another format"),
        (config_text(lambda text: text[: len(text) // 2]), r"config\.json is damaged"),
        (config_text(lambda text: text.replace('"tools"', '"others"')), "'tools' is missing"),
        (config(format_version=99), f"version 99, but this dtdr reads version {FORMAT_VERSION}"),
        (config(ranker="dtdr-x"), "unknown ranker 'dtdr-x'"),
        (config(ranker="dtdr-f", parameters={"order": 1}), "'order' of another version; fit it"),
        (config(tools=5), "has another type; fit the model again"),
        (config(parameters=[]), "has another type; fit the model again"),
        (config(training_data="x"), "has another type; fit the model again"),
        (config(ranker=None), "has another type; fit the model again"),
        (lambda folder: (folder / "model.safetensors").unlink(), "is missing or cannot be read"),
        (tensors(lambda path: path.read_bytes()[:-3]), "damaged: it is truncated"),
        (tensors(lambda _: b"not tensors"), "not a safetensors file"),
        (tensors(cut_arrays), "do not fit|damaged|shape"),
    ],
)
def test_a_damaged_folder_is_refused_with_the_reason(folder, damage, message):
    damage(folder)
    with pytest.raises(DtdrError, match=message):
        dtdr.load(folder)


def test_a_file_that_is_larger_than_its_arrays_is_refused_before_it_is_read(folder):
    path = folder / "model.safetensors"
    with path.open("ab") as stream:
        stream.truncate(200_000_000)  # holes, which take no room on the disk
    change_config(folder, tensors_sha256=sha256_of(path))
    tracemalloc.start()
    try:
        with pytest.raises(ModelError, match="larger than its arrays"):
            dtdr.load(folder)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("path", ["/dev/zero", "../secrets.txt", "C:\\secrets"])
def test_a_text_of_a_folder_that_may_name_a_file_is_refused(tmp_path, path):
    dtdr.fit(DEMONSTRATIONS, ranker="dtdr-f", **RANKER_ONLY).save(tmp_path / "model")
    parameters = json.loads((tmp_path / "model" / "config.json").read_text())["parameters"]
    for name in [name for name, value in parameters.items() if isinstance(value, str)]:
        change_config(tmp_path / "model", parameters={**parameters, name: path})
        with pytest.raises(ModelError, match=f"{name!r} may name a file"):
            dtdr.load(tmp_path / "model")


def test_another_rankers_weights_are_refused(folder, tmp_path):
    other = tmp_path / "other"
    dtdr.fit(DEMONSTRATIONS, ranker="lr").save(other)
    (folder / "model.safetensors").write_bytes((other / "model.safetensors").read_bytes())
    with pytest.raises(ModelError, match="not the file that config"):
        dtdr.load(folder)
    # Even a hash that was made to fit does not let them through.
    change_config(folder, tensors_sha256=sha256_of(folder / "model.safetensors"))
    with pytest.raises(ModelError, match="has no usable model of ranker 'dr'"):
        dtdr.load(folder)


def test_a_folder_with_the_old_key_of_the_ranker_loads(folder):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["retriever"] = config.pop("ranker")
    path.write_text(json.dumps(config | {"config_sha256": config_checksum(config)}))
    assert dtdr.load(folder).name == "dr"
    assert describe(folder)["ranker"] == "dr"


def test_description_of_a_folder_names_its_parts(folder):
    found = describe(folder)
    assert found["ranker"] == "dr"
    assert found["bytes"] == sum(item.stat().st_size for item in folder.iterdir())
    assert found["training_data"]["demonstrations"] == 4
    assert all(tensor["bytes"] >= 0 for tensor in found["tensors"].values())


# -- whole or not at all ---------------------------------------------------------------------------


def test_a_configuration_that_was_changed_is_damaged(folder):
    path = folder / "config.json"
    config = json.loads(path.read_bytes())
    path.write_text(
        json.dumps(config, indent=3, sort_keys=True)
    )  # another form, not other contents
    assert dtdr.load(folder).training_.demonstrations == 4
    for change in ({"seed": 5}, {"more": 1}, {"tools": config["tools"][1:]}):
        path.write_text(json.dumps(config | change))
        with pytest.raises(ModelError, match="changed after it was written"):
            dtdr.load(folder)


@pytest.mark.parametrize("exchange", [True, False], ids=["exchange", "two renames"])
def test_whoever_loads_a_folder_that_is_replaced_gets_one_model_or_the_other(
    folder, monkeypatch, exchange
):
    if not exchange:
        monkeypatch.setattr("dtdr.data.files._exchange", lambda one, other: False)
    models = [
        dtdr.fit(DEMONSTRATIONS[:count], ranker="dr", threshold=count / 10)
        for count in (1, 2, 3, 4)
    ]
    done = Event()

    def load(_):
        seen = []
        while not done.is_set():
            model = dtdr.load(folder)
            seen.append((model.training_.demonstrations, model.ranker.cut))
        return seen

    with ThreadPoolExecutor(4) as pool:
        loads = [pool.submit(load, number) for number in range(4)]
        try:
            for number in range(12):
                models[number % 4].save(folder, force=True)
        finally:
            done.set()
    seen = {pair for task in loads for pair in task.result()}
    assert seen <= {(4, None), (1, 0.1), (2, 0.2), (3, 0.3), (4, 0.4)}
    assert [item.name for item in folder.parent.iterdir()] == ["model"]


def test_a_link_to_a_folder_leads_to_the_new_model(folder, tmp_path):
    link = tmp_path / "current"
    link.symlink_to(folder)
    dtdr.fit(DEMONSTRATIONS[:2], ranker="dr", **RANKER_ONLY).save(link, force=True)
    assert link.is_symlink()
    assert dtdr.load(link).training_.demonstrations == 2
    assert dtdr.load(folder).training_.demonstrations == 2
    assert sorted(item.name for item in tmp_path.iterdir()) == ["current", "model"]


@pytest.mark.parametrize(
    ("strength", "tool"), [(float("inf"), "open"), (8.0, "half a pair \ud800")]
)
def test_what_json_cannot_hold_is_refused_when_a_model_is_saved(tmp_path, strength, tool):
    model = dtdr.fit(DEMONSTRATIONS, [Tool(tool)], ranker="dtdr-c", strength=strength)
    with pytest.raises(OutputError, match="parameters and tools are not JSON"):
        model.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


# -- folders of strangers --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "socket"])
def test_what_is_not_a_regular_file_is_refused_at_once(folder, name, kind):
    path = folder / name
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    else:
        with contextlib.chdir(folder), socket.socket(socket.AF_UNIX) as listener:
            listener.bind(name)
    for read in (dtdr.load, describe):
        with pytest.raises(ModelError, match=r"not a regular file|cannot be read|no readable"):
            read(folder)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_file_of_any_size_is_refused_before_it_is_read(folder, name):
    with (folder / name).open("r+b") as stream:
        stream.truncate(10**13)
    with pytest.raises(ModelError, match="10,000,000,000,000 bytes, more than"):
        dtdr.load(folder)


@pytest.mark.parametrize(
    "content",
    [b"[" * 900_000, b'{"a":' * 900_000, b"[" + b"[]," * 900_000 + b"[]]", b"9" * 15_000_000],
    ids=["nested", "nested objects", "many values", "one number"],
)
def test_a_configuration_that_would_need_much_memory_is_refused(folder, content):
    (folder / "config.json").write_bytes(content)
    tracemalloc.start()
    with pytest.raises(ModelError):
        dtdr.load(folder)
    assert tracemalloc.get_traced_memory()[1] < 200e6
    tracemalloc.stop()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30])
def test_weights_that_are_not_numbers_are_refused(tmp_path, value):
    dtdr.fit(DEMONSTRATIONS, ranker="lr").save(tmp_path / "model")
    path = tmp_path / "model" / "model.safetensors"
    arrays = {name: array.copy() for name, array in load_file(path).items()}
    arrays["weights_"][0, -1] = value
    save_file(arrays, path)
    change_config(tmp_path / "model", tensors_sha256=sha256_of(path))
    with pytest.raises(ModelError, match="'weights_' has values that are not numbers"):
        dtdr.load(tmp_path / "model")


LLM: dict[str, dict[str, Any]] = {"less-is-more": {"llm": lambda prompt: "Opens a file."}}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A folder of every ranker."""
    place = tmp_path_factory.mktemp("models")
    data = small_data.dataset(12)
    for name in NAMES:
        model = create(name, **LLM.get(name, {})).fit(
            data.demonstrations, data.tools, **RANKER_ONLY
        )
        model.save(place / name)
    return place


@given(data=st.data())
def test_a_crafted_folder_is_one_sentence_or_ranks(models, data):
    load_crafted(models, data)


@pytest.mark.slow
@settings(max_examples=int(os.environ.get("DTDR_TEST_FOLDERS", "3000")))
@given(data=st.data())
def test_none_of_thousands_of_crafted_folders_ends_in_another_error(models, data):
    load_crafted(models, data)


def load_crafted(models, data):
    name = data.draw(st.sampled_from(NAMES))
    with TemporaryDirectory() as place:
        folder = Path(shutil.copytree(models / name, Path(place) / "model"))
        edits = [crafted.edit_config, crafted.edit_array, crafted.edit_bytes]
        data.draw(st.sampled_from(edits))(folder, data.draw)
        started = time.thread_time()
        rankings, message = [], ""
        try:
            describe(folder)
            model = dtdr.load(folder, **LLM.get(name, {}))
            session = model.session("Read the file and mail it")
            rankings = [model.rank("", ["read_file"]), session.rank(), session.call("x").rank()]
        except DtdrError as error:
            message = str(error)
        # A hundred times what it takes: only work that has no bound reaches it.
        assert time.thread_time() - started < 60
        assert len(message) < 1_000
        assert "\n" not in message
        assert all(ranking.probabilities.sum() == pytest.approx(1) for ranking in rankings)
