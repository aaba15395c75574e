"""Logs that are imported with one task per file give what an import of all files gives."""

import json
import pickle
from pathlib import Path

import pytest
from examples.hotel.log_formats import write_lines

from dtdr.data.demonstration_files import read_demonstrations
from dtdr.errors import InputError
from dtdr.logs import (
    FORMATS,
    CutOptions,
    FileImporter,
    Importer,
    MixedImporter,
    Redactor,
    find_format,
    import_file_by_file,
    import_logs,
)
from tests.logs.public_forms import FORMS

cloudpickle = pytest.importorskip("cloudpickle")  # comes with joblib; has no types

FILE_BY_FILE = sorted({name for name, fmt in FORMATS.items() if not fmt.spans_files})


def run_tasks(function, items, *arguments):
    """Each task with copies of its arguments, as a worker gets them; and a copy of its result."""
    for item in items:
        task = pickle.loads(cloudpickle.dumps((function, item, *arguments)))
        yield pickle.loads(pickle.dumps(task[0](*task[1:])))


def import_both_ways(fmt, paths, tmp_path, redact=False, **options):
    """Demonstrations, tools, summary and bytes of an import of all files, and of one by one."""
    results = []
    for number, more in enumerate(({}, {"run_tasks": run_tasks})):
        redactor = Redactor() if redact else None
        how = {"redactor": redactor, **options, **more}
        importer = (FileImporter if more else Importer)(fmt, paths, **how)
        output = tmp_path / f"{number}.parquet"
        (import_file_by_file if more else import_logs)(importer, output, force=True)
        tools = importer.tools()
        results.append((output.read_bytes(), tools, importer.summary()))
    return results


def messages(query, *tools, **more):
    calls = [
        {"id": str(n), "function": {"name": t, "arguments": "{}"}} for n, t in enumerate(tools)
    ]
    asked = [
        {"role": "user", "content": query},
        {"role": "assistant", "content": "", "tool_calls": calls},
    ]
    return {"messages": asked, **more}


def test_formats_without_sessions_over_files_are_imported_file_by_file():
    assert {"dtdr", "messages", "tau2", "inspect", "toolbench"} <= set(FILE_BY_FILE)
    assert not {"openai-chat", "otel", "claude-code", "codex", "mcp"} & set(FILE_BY_FILE)


@pytest.mark.parametrize(
    "form", [n for n, (_, name, *_) in FORMS.items() if not find_format(name).spans_files]
)
def test_file_by_file_gives_the_same_bytes_tools_and_counts(form, tmp_path):
    write, name, *_ = FORMS[form]
    paths = []
    for number, city in enumerate(("Oslo", "Rome", "Oslo", "Bern")):  # the third repeats the first
        path = tmp_path / f"{number}.log"
        path.write_text(write().replace("Oslo", city), encoding="utf-8")
        paths.append(path)
    for order in (paths, paths[::-1]):
        whole, by_file = import_both_ways(find_format(name), order, tmp_path)
        assert by_file == whole
    assert whole[2]["kept"] >= 3 or whole[2]["dropped"]


def test_ids_are_unique_over_files_and_references_to_parents_follow(tmp_path):
    def record(query, parent=None):
        calls = [{"id": "1", "tool": "search"}]
        more = {} if parent is None else {"parent": {"id": parent, "call": "1"}}
        return {"id": "a" if parent is None else "b", "query": query, "calls": calls, **more}

    contents = [
        [record("x"), record("inner x", "a")],
        [record("y"), record("inner y", "a")],
        [record("x"), record("z")],
    ]
    paths = [write_lines(tmp_path / f"{n}.jsonl", lines) for n, lines in enumerate(contents)]
    for order in (paths, paths[::-1], paths[1:] + paths[:1]):
        whole, by_file = import_both_ways(find_format("dtdr"), order, tmp_path)
        assert by_file == whole
        kept = list(read_demonstrations(tmp_path / "1.parquet"))
        assert len({item.id for item in kept}) == len(kept) == 5


def test_redaction_counts_groups_and_bad_records_are_the_same(tmp_path):
    tool = {"name": "send", "description": "Mail ann@corp.example"}
    logs = [messages(f"mail ann{n}@corp.example", "send", user="u", tools=[tool]) for n in range(4)]
    paths = [write_lines(tmp_path / f"{n}.log", [log, log]) for n, log in enumerate(logs)]
    fmt = find_format("messages")
    whole, by_file = import_both_ways(
        fmt, paths, tmp_path, redact=True, options=CutOptions(group_by="user")
    )
    assert by_file == whole
    assert whole[2]["redacted"]
    with paths[2].open("a") as stream:
        stream.write("{broken\n")
    with pytest.raises(InputError, match=r"2\.log:3: not a line of JSON"):
        import_both_ways(fmt, paths, tmp_path)


def test_many_small_files_give_the_bytes_of_one_import(tmp_path):
    paths = [
        write_lines(tmp_path / f"{n}.log", [messages(f"do {n} {k}", "find") for k in range(1500)])
        for n in range(4)
    ]
    whole, by_file = import_both_ways(find_format("messages"), paths, tmp_path)
    assert by_file == whole
    assert whole[2]["kept"] == 6000


def test_formats_whose_sessions_span_files_are_refused_with_the_reason(tmp_path):
    path = write_lines(tmp_path / "log.jsonl", [messages("do it", "find")])
    for name, reason in (
        ("openai-chat", "a conversation may continue in another file"),
        ("gemini-cli", "a session may repeat turns of another file"),
        ("mcp", "ids of its runs contain the position of the file"),
    ):
        with pytest.raises(
            InputError, match=f"{name} cannot be imported with --engine, .*{reason}"
        ):
            FileImporter(find_format(name), [path], run_tasks=run_tasks)
    with pytest.raises(InputError, match=r"cannot read the pipe -"):
        FileImporter(find_format("messages"), [Path("-")], run_tasks=run_tasks)


def test_only_parquet_is_written_and_nothing_kept_is_an_error(tmp_path):
    path = write_lines(tmp_path / "log.jsonl", [messages("do it")])
    importer = FileImporter(find_format("messages"), [path], run_tasks=run_tasks)
    with pytest.raises(InputError, match="writes Parquet"):
        import_file_by_file(importer, tmp_path / "runs.jsonl")
    with pytest.raises(InputError, match="no tool was called"):
        import_file_by_file(importer, tmp_path / "runs.parquet")
    assert not (tmp_path / "runs.parquet").exists()


def test_a_folder_of_several_formats_shares_the_ids(tmp_path):
    record = {"id": "a", "query": "x", "calls": [{"id": "1", "tool": "search"}]}
    files = {
        find_format("dtdr"): [write_lines(tmp_path / "runs.jsonl", [record, record])],
        find_format("messages"): [write_lines(tmp_path / "log.jsonl", [messages("x", "find")])],
    }
    outputs = []
    for write, kind in ((import_logs, Importer), (import_file_by_file, by_file_importer)):
        importer = MixedImporter(files, importer=kind)
        output = tmp_path / f"{write.__name__}.parquet"
        write(importer, output)
        outputs.append((output.read_bytes(), json.dumps(importer.summary())))
    assert outputs[0] == outputs[1]


def by_file_importer(*arguments, **options):
    return FileImporter(*arguments, **options, run_tasks=run_tasks)
