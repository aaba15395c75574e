import gzip
import json
import os
import random
import re
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path

import pytest
from examples.hotel.log_formats import Call, Turn, number, openai_chat, otel, write_lines

from dtdr.data import shards
from dtdr.data.calls import ToolCall
from dtdr.data.demonstration_files import read_demonstrations, save_demonstrations
from dtdr.data.demonstrations import Demonstration
from dtdr.data.jsonl import BadRecords
from dtdr.data.plan import Plan
from dtdr.errors import InputError
from dtdr.logs import (
    CutOptions,
    Importer,
    documents,
    find_format,
    import_logs,
    open_demonstrations,
)


def many(count=12, seed=0):
    """Requests of several conversations, interleaved as a busy log has them."""
    chance = random.Random(seed)
    running = []
    for index in range(count):
        batches = [[Call("find", {"n": index}, f"rec-{index:06d}")], [Call("use", {"k": index})]]
        running.append(openai_chat(number([Turn(f"do {index}", batches)], f"c{index}")))
    records = []
    while running:
        chosen = chance.randrange(len(running))
        records.append(running[chosen].pop(0))
        if not running[chosen]:
            running.pop(chosen)
    return records


def importer_of(path, fmt="openai-chat", **more):
    return Importer(find_format(fmt), [path] if not isinstance(path, list) else path, **more)


def run(importer, output, **more):
    import_logs(importer, output, **more)
    return output.read_bytes()


def queries(found):
    return sorted(demonstration.query for demonstration in found)


NUMBER = 123456789012345678901234567890


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999", "-2.5e400"])
def test_a_number_that_json_does_not_have_is_kept_as_a_text(number, tmp_path):
    body = json.dumps(f'{{"rate": {number}, "limit": 1e300, "n": {NUMBER}, "s": "\\ud83d"}}')
    line = (
        '{"messages": [{"role": "user", "content": "hi \\ud800"}, {"role": "assistant", '
        f'"tool_calls": [{{"id": "x", "function": {{"name": "f", "arguments": {body}}}}}]}}, '
        f'{{"role": "tool", "tool_call_id": "x", "content": {body}}}]}}'
    )
    (tmp_path / "log.jsonl").write_text(line + "\n", encoding="utf-8")
    run(importer_of(tmp_path / "log.jsonl"), tmp_path / "out.jsonl")
    (found,) = read_demonstrations(tmp_path / "out.jsonl")
    (call,) = found.plan.calls
    assert found.query == "hi \ud800"
    assert call.arguments == {"rate": number, "limit": 1e300, "n": NUMBER, "s": "\ud83d"}
    assert call.output == call.arguments
    calls = f'[{{"tool": "f", "arguments": {{"x": {number}}}}}]'
    record = f'{{"id": "1", "query": "q", "calls": {calls}}}'
    (tmp_path / "d.jsonl").write_text(record, encoding="utf-8")
    (found,) = read_demonstrations(tmp_path / "d.jsonl")
    assert found.to_dict()["calls"][0]["arguments"] == {"x": number}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_json_does_not_have_are_saved_as_texts(value, tmp_path):
    call = ToolCall("1", "a", {"x": [value, None], "y": "\ud800"}, output={"z": value})
    plain = ToolCall("2", "b", {"x": value})
    saved = Demonstration("1", "go", Plan((call, plain), (), ()))
    save_demonstrations(tmp_path / "out.jsonl", [saved])
    (found,) = read_demonstrations(tmp_path / "out.jsonl")
    text = json.dumps(value)
    assert found.plan.calls[0].arguments == {"x": [text, None], "y": "\ud800"}
    assert found.plan.calls[0].output == {"z": text}
    assert found.plan.calls[1].arguments == {"x": text}


@pytest.mark.parametrize("shape", ["array", "pretty array", "wrapped", "gzip", "gzip array"])
def test_logs_are_read_in_each_container(shape, tmp_path):
    records = many()
    path = tmp_path / "log"
    texts = {
        "array": json.dumps(records),
        "pretty array": json.dumps(records, indent=1),
        "wrapped": json.dumps({"object": "list", "data": records}),
        "gzip": "".join(json.dumps(record) + "\n" for record in records),
        "gzip array": json.dumps(records),
    }
    raw = texts[shape].encode()
    path.write_bytes(gzip.compress(raw) if shape.startswith("gzip") else raw)
    assert len(list(importer_of(path).demonstrations())) == 12


@pytest.mark.parametrize("wrapped", [False, True])
def test_large_documents_are_streamed_and_give_the_same(wrapped, tmp_path, monkeypatch):
    batches = otel(number([Turn("go", [[Call("a", {"x": 1.5})], [Call("b", {})]])]))
    if wrapped:
        spans = [b["resourceSpans"][0] for b in batches]
        path, fmt, value = tmp_path / "log.json", "otel", {"resourceSpans": spans}
    else:
        path, fmt, value = tmp_path / "log.json", "openai-chat", many()
    path.write_text(json.dumps(value), encoding="utf-8")
    small = [found.to_dict() for found in importer_of(path, fmt).demonstrations()]
    monkeypatch.setattr(documents, "CHUNK", 7)
    large = [found.to_dict() for found in importer_of(path, fmt).demonstrations()]
    assert large == small
    assert small


def test_a_document_that_is_cut_off_is_named(tmp_path, monkeypatch):
    path = tmp_path / "log.json"
    monkeypatch.setattr(documents, "CHUNK", 50)
    path.write_text(json.dumps(many())[:-200], encoding="utf-8")
    with pytest.raises(InputError, match=r"log\.json is not JSON"):
        list(importer_of(path).demonstrations())


def test_bad_lines_are_named_with_file_and_line_or_counted(tmp_path):
    records = many()
    path = write_lines(tmp_path / "log.jsonl", records)
    lines = path.read_text(encoding="utf-8").splitlines()
    lines[1:1] = ["{broken", "", '"text"', "[" * 100_000]
    path.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(InputError, match=r"log\.jsonl:2: not a line of JSON .*--skip-bad"):
        run(importer_of(path), tmp_path / "out.jsonl")
    assert [item.name for item in tmp_path.iterdir()] == ["log.jsonl"]
    bad = BadRecords()
    run(importer_of(path, bad=bad), tmp_path / "out.jsonl")
    assert bad.count == 3
    assert [reason.split(":")[1] for reason in bad.first] == ["2", "4", "5"]
    assert len(list(read_demonstrations(tmp_path / "out.jsonl"))) == 12


def write_packed(path, lines):
    path.write_bytes(gzip.compress(lines))


def write_pipe(path, lines):
    os.mkfifo(path)
    threading.Thread(target=path.write_bytes, args=(lines,), daemon=True).start()


@pytest.mark.parametrize("write", [Path.write_bytes, write_packed, write_pipe])
@pytest.mark.parametrize("place", [0, 4, 12])
def test_a_line_that_is_too_long_is_named_or_counted(write, place, tmp_path, monkeypatch):
    monkeypatch.setenv("DTDR_MAX_LINE", "5000")
    lines = [json.dumps(record).encode() for record in many()]
    lines.insert(place, b'{"messages": "' + b"x" * 20_000 + b'"}')
    content = b"\n".join(lines) + b"\n"
    first, second = tmp_path / "log.jsonl", tmp_path / "again.jsonl"
    write(first, content)
    with pytest.raises(InputError, match=rf":{place + 1}: it has more than 5,000 bytes; set DTDR_"):
        list(importer_of(first).demonstrations())
    write(second, content)
    bad = BadRecords()
    assert len(list(importer_of(second, bad=bad).demonstrations())) == 12
    assert bad.count == 1
    monkeypatch.setenv("DTDR_MAX_LINE", "many")
    with pytest.raises(InputError, match="DTDR_MAX_LINE is 'many'; it must be"):
        list(importer_of(write_lines(tmp_path / "third", [])).demonstrations())


@pytest.mark.parametrize("value", [["x" * 3_000_000], {"data": [{"y": "x" * 3_000_000}]}])
def test_a_record_of_a_document_that_is_too_large_is_named(value, tmp_path, monkeypatch):
    monkeypatch.setenv("DTDR_MAX_LINE", "1000000")
    path = tmp_path / "log.json"
    path.write_text(json.dumps(value))
    said = "a record is too large: it has more than 1,000,000 bytes; .* export the log as JSON"
    with pytest.raises(InputError, match=said):
        list(importer_of(path).demonstrations())


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
@pytest.mark.parametrize("begin", [b'{"messages": "', b'["'])
def test_a_line_that_unfolds_to_a_gigabyte_takes_little_memory(begin, tmp_path):
    path = tmp_path / "log.gz"
    with gzip.open(path, "wb", compresslevel=1) as stream:
        stream.write(begin)
        for _ in range(1_000):
            stream.write(b"x" * 1_000_000)
    program = (  # ru_maxrss would begin with what this process takes
        "import re, sys; from dtdr.cli import run; code = run(sys.argv[1:]);"
        "print(code, re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])"
    )
    found = subprocess.run(
        [sys.executable, "-c", program, "import", "openai-chat", path, "-o", tmp_path / "out"],
        capture_output=True,
        text=True,
        check=True,
    )
    code, kilobytes = map(int, found.stdout.split())
    assert code == 2
    assert "more than 32,000,000 bytes" in found.stderr
    assert kilobytes < 400_000


def test_a_damaged_gzip_file_and_a_missing_file_are_named(tmp_path):
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(json.dumps(many()).encode() * 50)[:2000])
    with pytest.raises(InputError, match=r"log\.gz: the compressed data is damaged or cut off"):
        list(importer_of(path).demonstrations())
    with pytest.raises(InputError, match="no such file or directory"):
        importer_of(tmp_path / "none")
    with pytest.raises(InputError, match="it is a folder"):
        importer_of(tmp_path)


def test_a_log_without_a_run_is_an_error_and_writes_nothing(tmp_path):
    path = write_lines(tmp_path / "log.jsonl", [{"messages": [{"role": "user", "content": "x"}]}])
    said = "nothing was kept: 1 of 1 runs (100%) were dropped (no tool was called: 1); to keep"
    with pytest.raises(InputError, match=re.escape(said)):
        run(importer_of(path), tmp_path / "out.jsonl")
    path.write_text("", encoding="utf-8")
    with pytest.raises(InputError, match="no run was found in 0 records"):
        run(importer_of(path), tmp_path / "out.jsonl")
    assert [item.name for item in tmp_path.iterdir()] == ["log.jsonl"]


def test_a_small_window_gives_the_same_runs_where_conversations_do_not_interleave(tmp_path):
    records = [record for index in range(5) for record in many(1, index)]
    for index, record in enumerate(records):
        record["request"]["messages"][1]["content"] = f"task {index // 3}"
    log = write_lines(tmp_path / "log.jsonl", records)
    wide = importer_of(log)
    narrow = importer_of(log, options=CutOptions(window_bytes=4000))
    assert queries(narrow.demonstrations()) == queries(wide.demonstrations())


def test_a_conversation_that_leaves_the_window_is_told_again_but_not_kept_twice(tmp_path):
    one = openai_chat(number([Turn("first", [[Call("a", {})]]), Turn("second", [[Call("b", {})]])]))
    log = write_lines(tmp_path / "log.jsonl", [*one[:2], *many(20), *one[2:]])
    importer = importer_of(log, options=CutOptions(window_bytes=2000))
    found = queries(importer.demonstrations())
    assert found.count("first") == 1
    assert found.count("second") == 1
    assert importer.summary()["dropped"]["a record with this id was read before"] >= 1


def test_the_window_holds_no_more_than_its_budget(tmp_path):
    log = write_lines(tmp_path / "log.jsonl", many(40))
    largest = max(len(line) for line in log.read_bytes().splitlines())
    importer = importer_of(log, options=CutOptions(window_bytes=10_000))
    for _ in importer.demonstrations():
        assert importer.window.size <= 10_000 + largest
        assert len(importer.format._marks) == len(importer.window._groups)


def test_runs_can_be_read_without_a_file_in_between(tmp_path):
    log = write_lines(tmp_path / "log.jsonl", many())
    assert len(list(open_demonstrations([log], "openai_chat"))) == 12
    with pytest.raises(InputError, match="unknown format 'x'; choose one of ai-sdk"):
        list(open_demonstrations([log], "x"))
    with pytest.raises(InputError, match="at least one"):
        list(open_demonstrations([], "otel"))


def write_compressed(path, *parts):
    """Each part, repeated, as a gzip member of its own."""
    with path.open("wb") as stream:
        for text, times in parts:
            stream.write(gzip.compress(text * 100_000) * (times // 100_000))
    return path


@pytest.mark.parametrize(("text", "times"), [(b"\n", 3_000_000), (b" " * 99 + b"\n", 500_000)])
def test_a_small_file_that_unfolds_to_much_is_refused(text, times, tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "ROOM", 4_000_000)
    path = write_compressed(tmp_path / "log.jsonl.gz", (text, times))
    assert path.stat().st_size < 1_000_000
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match="unfolds to more than 200 times its size"):
            list(importer_of(path).demonstrations())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20_000_000


def test_a_log_that_repeats_itself_may_be_compressed_well(tmp_path):
    line = json.dumps({"messages": [{"role": "user", "content": "x" * 3000}]}).encode() + b"\n"
    path = tmp_path / "log.jsonl.gz"
    path.write_bytes(gzip.compress(line * 5000 + b"\n" * 1000))
    importer = importer_of(path)
    assert list(importer.demonstrations()) == []
    assert importer.reader.records == 5000
