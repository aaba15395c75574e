"""Every published set reads from its real file, and says what is wrong with a bad one."""

import json
import shutil
import subprocess
import sys
from functools import cache, partial
from pathlib import Path

import pytest

from dtdr.data.calls import find_references
from dtdr.data.jsonl import BadRecords
from dtdr.errors import InputError
from dtdr.evaluate import datasets
from dtdr.evaluate.datasets import t_eval, tinyagent, traject_bench, ultratool
from dtdr.evaluate.datasets.splits import default_split


@cache
def loaded(name, folder):
    """A real set, read once: the tests that follow only look at it."""
    return datasets.load(name, data_dir=folder)


COUNTS = {  # records, groups, tools, described tools, called tools, calls
    "tinyagent": (1512, 1, 16, 16, 16, 7961),
    "t_eval": (553, 1, 50, 50, 50, 2660),
    "ultratool": (3527, 1, 260, 260, 260, 8564),
    "traject_bench": (1670, 287, 381, 381, 381, 10695),
    "tau_airline": (362, 35, 14, 0, 14, 733),
    "tau_retail": (566, 70, 16, 0, 16, 1181),
    "livemcp": (65, 65, 511, 492, 84, 381),
}
PARAMETERS = {"open_note": ("name", "folder"), "send_sms": ("recipients", "text")}


@pytest.fixture
def no_sets(tmp_path, monkeypatch):
    monkeypatch.setenv("DTDR_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("DTDR_DATA_DIR", raising=False)
    return tmp_path


def bank(lines: str, query: str = "Question: Do it.") -> dict[str, object]:
    return {"tools": [], "text": f"{query}\n{lines}\n"}


def t_eval_record(nodes, user="Find it"):
    return {"ground_truth": nodes, "origin_prompt": [{"role": "user", "content": user}]}


def ultratool_record(names, links, identifier="1"):
    return {
        "id": identifier,
        "user_request": "Do it\n",
        "task_nodes": [{"task": name} for name in names],
        "task_links": [{"source": source, "target": target} for source, target in links],
    }


BAD_RECORDS = {
    partial(tinyagent.convert, "x"): [
        ([], "a JSON object is needed"),
        ({"tools": []}, "'text' is missing"),
        ({"text": 3}, "'text' is int, expected str"),
        ({"text": "Question: What?"}, "has no plan"),
        (bank("1. open_note(__import__('os').getcwd())"), "not positional Python literals"),
        (bank('1. open_note("a"'), "not positional Python literals"),
        (bank('1. open_note("a")\nand then?'), "'and then\\?' is not a line of a plan"),
        (bank('1. open_note("$2")\n2. open_note("a")'), "depends on the later call '2'"),
        (bank('1. open_note("$5")'), "refers to '5', which is not a call"),
        ({"input": "x", "output": [{"type": "join"}]}, "no 'output' is of type 'plan'"),
        ({"input": "x", "output": "y"}, "'output' is str, expected list"),
    ],
    partial(t_eval.convert, "x"): [
        ({"ground_truth": [], "origin_prompt": []}, "no message of the user"),
        (t_eval_record([{"id": 0}]), "'name' is missing"),
        (t_eval_record([{"id": 0, "name": "a", "args": [], "prev": []}]), "'args' is list"),
        (t_eval_record([{"id": 0, "name": "a", "args": {}, "prev": [4]}]), "names '4'"),
        (t_eval_record([{"id": 0, "name": "a", "args": {}, "prev": [0]}]), "in a cycle"),
    ],
    ultratool.convert: [
        (ultratool_record("ab", ["ax"]), "a link names 'x', which is not a node"),
        (ultratool_record("a", ["aa"]), "'a', which appears once, to itself"),
        (ultratool_record("ab", ["ab", "ba"]), "in a cycle"),
        (ultratool_record(["end"], []), "reserved for the end of the plan"),
        ({**ultratool_record("a", []), "task_nodes": [1]}, "a JSON object is needed, not int"),
    ],
}


@pytest.mark.parametrize(
    ("convert", "record", "reason"),
    [(convert, *row) for convert, rows in BAD_RECORDS.items() for row in rows],
)
def test_bad_record_says_what_is_wrong(convert, record, reason):
    with pytest.raises(InputError, match=reason):
        convert(record)


@pytest.mark.parametrize("name", COUNTS)
def test_real_file_has_all_its_records_tools_and_calls(name, data_dir):
    dataset = loaded(name, data_dir)
    called = [tool for item in dataset.demonstrations for tool in item.plan.tools]
    assert COUNTS[name] == (
        len(dataset),
        len({item.group for item in dataset.demonstrations}),
        len(dataset.tools),
        sum(bool(tool.description) for tool in dataset.tools),
        len(set(called)),
        len(called),
    )
    assert {*called} <= {tool.name for tool in dataset.tools}
    assert all(item.query == item.query.strip() != "" for item in dataset.demonstrations)
    assert not dataset.synthetic


def test_missing_set_says_where_it_looked_and_what_to_do(no_sets):
    with pytest.raises(InputError) as error:
        datasets.load("taskbench_multimedia", data_dir=no_sets / "mine")
    message = str(error.value)
    assert str(no_sets / "mine") in message
    assert str(no_sets / "cache" / "datasets") in message
    assert "dtdr data download taskbench_multimedia" in message
    assert "DTDR_DATA_DIR" in message
    with pytest.raises(InputError, match=r"get it from https://github\.com/open-compass/T-Eval"):
        datasets.load("t_eval", data_dir=no_sets)


def test_downloaded_set_is_not_hidden_by_the_example_bank(no_sets, monkeypatch):
    bank_folder, hub_folder = no_sets / "data" / "tinyagent", no_sets / "cache/datasets/tinyagent"
    for folder in (bank_folder, hub_folder):
        folder.mkdir(parents=True)
    (bank_folder / "examples.json").write_text(json.dumps({"b": bank('1. open_note("a")')}))
    assert datasets.load("tinyagent", data_dir=no_sets / "data").title == "TinyAgent example bank"
    (hub_folder / "training_data.json").write_text(json.dumps({"q": HUB_RECORD}))
    dataset = datasets.load("tinyagent", data_dir=no_sets / "data")
    assert (dataset.title, dataset.demonstrations[0].id) == ("TinyAgent", "q")


def read_tinyagent(folder, **files):
    """The set, where a data folder has these records of the hub's files."""
    (folder / "tinyagent").mkdir(parents=True)
    for name, records in files.items():
        (folder / "tinyagent" / f"{name}_data.json").write_text(json.dumps(records))
    return datasets.load("tinyagent", data_dir=folder)


def test_testing_data_is_the_test_side(no_sets):
    training = {"1": HUB_RECORD, "2": HUB_RECORD}
    dataset = read_tinyagent(no_sets, training=training, testing={"1": HUB_RECORD})
    assert [item.id for item in dataset.demonstrations] == ["1", "2", "test-1"]
    split = default_split(dataset)
    assert (split.name, split.train, split.test) == ("published", (0, 1), (2,))


def test_tinyagent_of_the_hub_has_signatures_and_descriptions(no_sets, data_dir):
    dataset = read_tinyagent(no_sets, training={"q": HUB_RECORD})
    assert len(dataset.tools) == 16
    assert all(tool.description for tool in dataset.tools)
    assert dataset.demonstrations[0].plan.calls[1].arguments == {
        "recipients": [{"$ref": "1"}],
        "message": "Hi",
    }
    # The signatures are those of the example bank, and no sentence is.
    named = {tool.name: tool for tool in loaded("tinyagent", data_dir).tools}
    for tool in dataset.tools:
        theirs = named[tool.name]
        assert [(p.name, p.type) for p in tool.parameters] == [
            (p.name, p.type) for p in theirs.parameters
        ]
        assert tool.description != theirs.description


# -- TinyAgent ---------------------------------------------------------------------------------

HUB_RECORD = {
    "input": "Text Lee",
    "output": [
        {"type": "join", "parsed_output": []},
        {
            "type": "plan",
            "parsed_output": [
                {"tool_name": "get_phone_number", "tool_args": ["Lee"]},
                {"tool_name": "send_sms", "tool_args": [["$1"], "Hi"]},
                {"tool_name": "join", "tool_args": []},
            ],
        },
        {"type": "plan", "parsed_output": [{"tool_name": "open_note", "tool_args": ["x"]}]},
    ],
}


def test_tinyagent_bank_record_becomes_named_arguments_and_references(data_dir):
    dataset = loaded("tinyagent", data_dir)
    demonstration = dataset.demonstrations[2]
    assert demonstration.id == "38e8552f175f4f7ab57e7743c46d592b"
    assert demonstration.query.startswith('Summarize the "Product Catalog.pdf"')
    assert demonstration.plan.tools == (
        "open_and_get_file_path",
        "summarize_pdf",
        "create_note",
        "maps_show_directions",
    )
    assert demonstration.plan.calls[1].arguments == {"pdf_path": {"$ref": "1"}}
    assert list(demonstration.plan.edges()) == [(0, 1), (1, 2)]


def test_tinyagent_reference_inside_a_text_is_a_join():
    demonstration = tinyagent.convert(
        "x", bank('1. open_note("a", "b")\n2. send_sms(["$1"], "See $1, it was $20\\n")\n3. join()')
    )
    assert demonstration.plan.calls[1].arguments == {
        "arg0": [{"$ref": "1"}],
        "arg1": {"$join": ["See ", {"$ref": "1"}, ", it was $20\n"]},
    }


def test_tinyagent_thoughts_and_comments_are_no_calls():
    lines = '1. open_note("a")  # "quoted", (odd)\nThought: done.\n2. join()<END_OF_PLAN>'
    plan = tinyagent.convert("x", bank(lines), PARAMETERS).plan
    assert [(call.tool, dict(call.arguments)) for call in plan.calls] == [
        ("open_note", {"name": "a"})
    ]


def test_bad_record_of_an_object_file_is_named_by_key_and_can_be_skipped(tmp_path):
    path = tmp_path / "examples.json"
    path.write_text(
        json.dumps({"good": bank('1. open_note("a")'), "odd": {}, "empty": bank("1. a()", "")})
    )
    with pytest.raises(InputError, match=r"examples.json, record 1 \(id 'odd'\): 'text' is"):
        list(datasets.find_source("tinyagent").read(path, None))
    bad = BadRecords()
    kept = list(datasets.find_source("tinyagent").read(path, bad))
    assert [item.id for item in kept] == ["good"]
    assert bad.count == 2
    assert "the query is empty" in bad.first[1]


def test_arguments_nested_too_deeply_are_a_bad_record(tmp_path):
    deep = json.loads("[" * 900 + "]" * 900)
    plan = [{"tool_name": "open_note", "tool_args": [deep]}]
    record = {"input": "x", "output": [{"type": "plan", "parsed_output": plan}]}
    path = tmp_path / "training_data.json"
    path.write_text(json.dumps({"deep": record, "flat": HUB_RECORD}))
    bad = BadRecords()
    assert [item.id for item in datasets.find_source("tinyagent").read(path, bad)] == ["flat"]
    assert bad.first == [f"{path}, record 0 (id 'deep'): nested too deeply"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is not JSON"),
        (b"{}", "has no demonstration"),
        (b"[1]", "must contain one JSON object"),
        (b'{"a": 1', "is not JSON"),
        (b'{"a": {}} 1', "is not JSON"),
        (b'{"a": {} "b": {}}', "is not JSON"),
        (b'{"a": "\xff"}', "invalid UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a": {}, "a": {}}', "'a' appears twice"),
    ],
)
def test_broken_object_file_is_named(content, reason, tmp_path):
    path = tmp_path / "examples.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=reason) as error:
        list(datasets.find_source("t_eval").read(path, BadRecords()))
    assert str(path) in str(error.value)


# -- T-Eval ------------------------------------------------------------------------------------


def test_t_eval_finish_action_is_no_call_and_prev_are_links(data_dir):
    demonstration = loaded("t_eval", data_dir).demonstrations[1]
    checkout = "AirbnbSearch.get_property_checkout_price"
    assert demonstration.plan.tools == (
        "AirbnbSearch.search_property_by_place",
        *(checkout,) * 3,
        "ArxivSearch.get_arxiv_article_information",
    )
    assert list(demonstration.plan.edges()) == [(0, 1), (0, 2), (0, 3), (3, 4)]
    assert demonstration.plan.acceptable_next([0]) == {checkout}


def test_t_eval_parameters_are_read_from_the_system_message(data_dir):
    tools = {tool.name: tool for tool in loaded("t_eval", data_dir).tools}
    checkout = tools["AirbnbSearch.get_property_checkout_price"]
    assert checkout.description.startswith("This function retrieves the checkout cost")
    assert [(item.name, item.type, item.required) for item in checkout.parameters] == [
        ("propertyId", "number", True),
        ("checkIn", "string", True),
        ("checkOut", "string", True),
    ]


# -- UltraTool ---------------------------------------------------------------------------------


def test_ultratool_is_recorded_as_chains(data_dir):
    for demonstration in loaded("ultratool", data_dir).demonstrations:
        size = len(demonstration.plan)
        chain = [(index, index + 1) for index in range(size - 1)]
        assert list(demonstration.plan.edges()) == chain


@pytest.mark.parametrize(
    ("names", "links", "edges"),
    [
        ("aba", ["ab", "ba"], [(0, 1), (1, 2)]),
        ("abab", ["ab", "ba", "ab"], [(0, 1), (1, 2), (2, 3)]),
        ("aab", ["aa", "ab"], [(0, 1), (1, 2)]),
        ("aaa", ["aa", "aa"], [(0, 1), (1, 2)]),
        ("abc", ["ac"], [(0, 2)]),
        ("ba", ["ab"], [(0, 1)]),  # nodes follow their links
    ],
)
def test_links_by_name_mean_the_nearest_earlier_node(names, links, edges):
    plan = ultratool.convert(ultratool_record(names, links)).plan
    assert list(plan.edges()) == edges


def test_json_lines_errors_name_file_and_line_and_skipping_counts_them(tmp_path):
    path = tmp_path / "data.json"
    lines = [
        json.dumps(ultratool_record("ab", ["ab"])),
        "{broken",
        json.dumps(ultratool_record("ab", ["ab"])),
        json.dumps(ultratool_record("ab", ["ax"], "2")),
        json.dumps(ultratool_record("b", [], "3")),
    ]
    path.write_text("\n".join(lines))
    with pytest.raises(InputError, match=r"data.json:2: not a line of JSON"):
        list(ultratool.read(path))
    bad = BadRecords()
    assert [item.id for item in ultratool.read(path, bad)] == ["1", "3"]
    assert bad.count == 3
    assert "data.json:3: the id '1' was used before" in bad.first[1]
    assert "data.json:4: a link names 'x'" in bad.first[2]


# -- TRAJECT-Bench -----------------------------------------------------------------------------


def test_traject_bench_is_a_chain_with_arguments_and_its_sequence_as_group(data_dir):
    dataset = loaded("traject_bench", data_dir)
    demonstration = dataset.demonstrations[0]
    assert demonstration.group == "Kanji Meaning → Radical Info → Related Kanji by Radical"
    assert list(demonstration.plan.edges()) == [(0, 1), (1, 2)]
    assert demonstration.plan.calls[0].arguments == {"kem": "parent"}


def test_traject_bench_has_what_its_calls_returned_where_that_is_known(data_dir, tmp_path):
    calls = loaded("traject_bench", data_dir).demonstrations[0].plan.calls
    assert [call.status for call in calls] == ["ok", "error", "ok"]
    assert calls[0].output[0]["kanji"] == {"character": "親", "stroke": 16}
    assert calls[1].output == "ERROR: Failed after 5 attempts"
    alone = tmp_path / "sequential.jsonl"
    shutil.copy(data_dir / "traject_bench" / "sequential.jsonl", alone)
    assert next(traject_bench.read(alone)).plan.calls[0].output is None
    (tmp_path / "outputs.jsonl").write_text('[{"status": "success", "output": "x"}]\n')
    with pytest.raises(InputError, match=r"jsonl:1: outputs\.jsonl has not one output a call"):
        next(traject_bench.read(alone))


# -- real runs of agents ------------------------------------------------------------------------


def test_tau_airline_has_runs_of_several_turns_with_their_outputs(data_dir):
    dataset = loaded("tau_airline", data_dir)
    runs = {item.id.rpartition("-")[0]: item.outcome for item in dataset.demonstrations}
    calls = [call for item in dataset.demonstrations for call in item.plan.calls]
    assert all(call.status != "unknown" and call.step for call in calls)
    assert len(runs) <= 140
    assert set(runs.values()) == {"success", "failure"}
    later = next(item for item in dataset.demonstrations if item.plan.earlier)
    assert later.before[0].role == "user"
    used = [path for call in calls for _, path in find_references(call.arguments)]
    assert any(path and path.startswith("/reservations/") for path in used)
    split = default_split(dataset)
    groups = [
        {dataset.demonstrations[index].group for index in side}
        for side in (split.train, split.test)
    ]
    assert not groups[0] & groups[1]


def test_tau_airline_says_what_is_wrong_with_a_record(tmp_path):
    path = tmp_path / "gpt-4o.jsonl"
    path.write_text('{"messages": [], "metadata": {"task": 1}}\n')
    with pytest.raises(InputError, match=r"gpt-4o\.jsonl:1: 'trial' is missing"):
        list(datasets.find_source("tau-airline").read(path, None))


@pytest.mark.slow
def test_a_file_as_large_as_the_hubs_is_read_in_less_than_a_gigabyte():
    script = Path(__file__).parents[2] / "benchmarks" / "reading.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    megabytes, plans, _, _, peak = (
        float(cell.replace(",", "")) for cell in done.stdout.splitlines()[-1].strip("| ").split("|")
    )
    assert (plans, megabytes > 650) == (39_874, True)
    assert peak < 1_000
