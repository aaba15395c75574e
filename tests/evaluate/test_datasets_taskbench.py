"""TaskBench in each of the styles in which it is published, on records written here."""

import json
from collections import Counter

import pytest

from dtdr.data.jsonl import BadRecords
from dtdr.errors import InputError
from dtdr.evaluate import datasets
from dtdr.evaluate.datasets import taskbench

NODES = [
    {"task": "Image-to-Text", "arguments": ["photo.jpg"]},
    {"task": "Translation", "arguments": ["<node-0>"]},
    {"task": "Text-to-Speech", "arguments": ["Say: <node-1>!"]},
]
LINKS = [
    {"source": "Image-to-Text", "target": "Translation"},
    {"source": "Translation", "target": "Text-to-Speech"},
]
NEW = {
    "id": "1",
    "type": "chain",
    "n_tools": 3,
    "user_request": "Read my photo.jpg out in French",
    "task_steps": ["a", "b", "c"],
    "task_nodes": NODES,
    "task_links": LINKS,
}
OLD = {
    "id": "1",
    "type": "chain",
    "n_tools": 3,
    "instruction": NEW["user_request"],
    "tool_steps": NEW["task_steps"],
    "tool_nodes": NODES,
    "tool_links": LINKS,
}


def in_strings(record):
    return {
        key: json.dumps(value) if isinstance(value, list) else value
        for key, value in record.items()
    }


def nodes_only(nodes, links=()):
    return {**NEW, "task_nodes": nodes, "task_links": list(links)}


def convert(*nodes, links=(), **options):
    """The plan of nodes, each a task and its arguments, and of links, each two tasks."""
    named = [{"task": task, "arguments": arguments} for task, *arguments in nodes]
    linked = [{"source": source, "target": target} for source, target in links]
    return taskbench.convert(nodes_only(named, linked), **options).plan


@pytest.mark.parametrize("record", [NEW, OLD, in_strings(NEW), in_strings(OLD)])
def test_every_key_style_gives_the_same_demonstration(record):
    demonstration = taskbench.convert(record)
    assert demonstration == taskbench.convert(NEW)
    assert demonstration.query == "Read my photo.jpg out in French"
    assert demonstration.plan.tools == ("Image-to-Text", "Translation", "Text-to-Speech")
    assert demonstration.plan.calls[1].arguments == {"arg0": {"$ref": "0"}}
    assert demonstration.plan.calls[2].arguments == {
        "arg0": {"$join": ["Say: ", {"$ref": "1"}, "!"]}
    }
    assert list(demonstration.plan.edges()) == [(0, 1), (1, 2)]
    assert demonstration.plan.links == ()


def test_daily_life_links_only_order_the_calls_and_are_no_dependencies():
    location, content = {"name": "location", "value": "Oslo"}, {"name": "content", "value": "Hi"}
    nodes, links = [("weather", location), ("sms", content)], [("weather", "sms")]
    plan = convert(*nodes, links=links, links_are_dependencies=False)
    assert list(plan.edges()) == []
    assert plan.calls[0].arguments == {"location": "Oslo"}
    assert plan.acceptable_next([]) == {"weather", "sms"}


def test_link_counts_only_where_arguments_show_no_dependency():
    plan = convert(("a", "x"), ("b", "y"), ("c", "<node-0>"), links=["ab", "bc"])
    assert list(plan.edges()) == [(0, 1), (0, 2)]
    assert plan.links == (("0", "1"),)


def test_nodes_that_are_not_in_topological_order_are_put_in_order():
    plan = convert(("b", "<node-1>"), ("a", "x"), links=["ab"])
    assert plan.tools == ("a", "b")
    assert [call.id for call in plan.calls] == ["1", "0"]


@pytest.mark.parametrize(
    "written",
    [
        "<output_of_Image-to-Text>",
        "<output of Image-to-Text>",
        "<output-of-image_to_text>",
        "<Image-to-Text>",
        "<Image-to-Text output>",
        "<Image-to-Text_output>",
        "output of Image-to-Text",
        "The output of the Image-to-Text",
        "Image-to-Text's output",
        "Image-to-Text",
        "<result_from_Image-to-Text>",
    ],
)
def test_output_that_is_named_by_its_tool_is_a_reference(written):
    repairs: Counter[str] = Counter()
    nodes = [NODES[0], {"task": "Translation", "arguments": [written]}]
    plan = taskbench.convert(nodes_only(nodes, LINKS[:1]), repairs=repairs).plan
    assert plan.calls[1].arguments == {"arg0": {"$ref": "0"}}
    assert plan.links == ()  # the argument shows it, so the link adds no second edge
    assert list(plan.edges()) == [(0, 1)]
    assert repairs == {taskbench.NAMED_OUTPUTS: 1}
    # The same plan as one with a number, so a predicted plan can be isomorphic to it.
    assert plan == taskbench.convert(nodes_only(NODES[:2], LINKS[:1])).plan


def test_named_output_inside_a_longer_text_is_a_join():
    plan = convert(("read", "x"), ("say", "Say <output_of_read> now"))
    assert plan.calls[1].arguments == {"arg0": {"$join": ["Say ", {"$ref": "0"}, " now"]}}


def test_named_output_is_of_the_linked_call_and_else_of_the_nearest_earlier_one():
    plan = convert(("a", "x"), ("b", "<output_of_a>"), ("a", "y"), ("c", "<output_of_a>"))
    assert list(plan.edges()) == [(0, 1), (2, 3)]


def test_bare_name_of_a_tool_is_a_value_in_daily_life():
    names = {"search": "book", "book": "search", "send": "<output_of_search>"}
    nodes = [(task, {"name": "x", "value": value}) for task, value in names.items()]
    plan = convert(*nodes, links_are_dependencies=False)
    assert plan.calls[1].arguments == {"x": "search"}
    assert plan.calls[2].arguments == {"x": {"$ref": "0"}}


@pytest.mark.parametrize("written", ["<node-1>", "<output_of_b>", "b"])
def test_node_that_names_itself_means_the_node_that_is_linked_to_it(written):
    plan = convert(("a", "x"), ("b", written), links=["ab"])
    assert plan.calls[1].arguments == {"arg0": {"$ref": "0"}}
    assert list(plan.edges()) == [(0, 1)]
    assert convert(("a", "x"), ("b", written)).calls[1].arguments == {"arg0": written}


def test_links_and_references_to_no_node_are_dropped_and_counted():
    repairs: Counter[str] = Counter()
    plan = convert(("a", "x"), ("b", "<node-7>"), links=["cb", "bb", "ab"], repairs=repairs)
    assert plan.calls[1].arguments == {"arg0": "<node-7>"}
    assert list(plan.edges()) == [(0, 1)]
    assert repairs == {taskbench.DROPPED_LINKS: 2, taskbench.NO_OUTPUTS: 1}


def test_what_was_repaired_is_among_the_remarks_of_the_set(full_copy):
    path = full_copy / "taskbench" / "data_multimedia" / "data.json"
    bad_link = {"source": "nowhere", "target": "a"}
    path.write_text(json.dumps(nodes_only([{"task": "a", "arguments": []}], [bad_link])) + "\n{}\n")
    remarks = datasets.load("taskbench_multimedia", data_dir=full_copy, bad=BadRecords()).remarks
    assert remarks == (
        "records left out that cannot be used: 1",
        f"{taskbench.DROPPED_LINKS}: 1",
    )
    with pytest.raises(InputError, match=r"data.json:2: .* is missing"):
        datasets.load("taskbench_multimedia", data_dir=full_copy)


@pytest.mark.parametrize(
    ("written", "arguments"),
    [
        ([{"name": "place", "value": "Oslo"}], {"place": "Oslo"}),
        ("x", {"arg0": "x"}),
        ({"in": ["x"]}, {"in": ["x"]}),
        (["Image-to-Text is fun", "<b>"], {"arg0": "Image-to-Text is fun", "arg1": "<b>"}),
    ],
)
def test_arguments_are_lists_objects_or_texts(written, arguments):
    plan = taskbench.convert(nodes_only([NODES[0], {"task": "get", "arguments": written}])).plan
    assert plan.calls[1].arguments == arguments


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"id": "1", "user_request": "x"}, "'task_nodes' or 'tool_nodes' is missing"),
        ({**NEW, "task_nodes": "[{"}, "'task_nodes' is text that is not JSON"),
        ({**NEW, "task_nodes": "{}"}, "'task_nodes' is dict, expected list"),
        ({**NEW, "task_nodes": [7]}, "a JSON object is needed, not int"),
        ({**NEW, "id": None}, "'id' is NoneType"),
        (nodes_only([{"arguments": []}]), "'task' is missing"),
        (
            nodes_only(
                [{"task": "a", "arguments": ["<node-1>"]}, {"task": "b", "arguments": ["<node-0>"]}]
            ),
            "in a cycle",
        ),
        ({key: value for key, value in NEW.items() if key != "user_request"}, "'instruction' is"),
    ],
)
def test_bad_record_says_what_is_wrong(record, reason):
    with pytest.raises(InputError, match=reason):
        taskbench.convert(record)


@pytest.fixture
def full_copy(tmp_path, data_dir):
    """A data folder as a user has it: real tool descriptions and a few plans."""
    for domain in ("dailylifeapis", "huggingface", "multimedia"):
        folder = tmp_path / "taskbench" / f"data_{domain}"
        folder.mkdir(parents=True)
        source = data_dir / "taskbench" / folder.name / "tool_desc.json"
        folder.joinpath("tool_desc.json").write_bytes(source.read_bytes())
        name = json.loads(source.read_bytes())["nodes"][0]["id"]
        record = nodes_only([{"task": name, "arguments": []}])
        folder.joinpath("data.json").write_text(json.dumps(record) + "\n\n{}\n")
    return tmp_path


@pytest.mark.parametrize(("domain", "tools"), [("dailylife", 40), ("huggingface", 23)])
def test_domain_is_read_with_its_tool_descriptions(domain, tools, full_copy):
    bad = BadRecords()
    dataset = datasets.load(f"taskbench-{domain}", data_dir=full_copy, bad=bad)
    assert len(dataset) == 1
    assert len(dataset.tools) == tools
    assert all(tool.description for tool in dataset.tools)
    assert bad.first == [
        f"{full_copy}/taskbench/"
        f"{'data_dailylifeapis' if domain == 'dailylife' else 'data_huggingface'}/data.json:3: "
        "'task_nodes' or 'tool_nodes' is missing"
    ]


def test_input_types_are_the_parameters_of_a_tool_without_names(full_copy):
    tools = datasets.load("taskbench_multimedia", data_dir=full_copy, bad=BadRecords()).tools
    downloader = next(tool for tool in tools if tool.name == "Image Downloader")
    assert [(item.name, item.type) for item in downloader.parameters] == [("arg0", "url")]


def test_damaged_tool_descriptions_are_named(full_copy):
    path = full_copy / "taskbench" / "data_multimedia" / "tool_desc.json"
    path.write_text('{"nodes": [{"desc": "x"}]}')
    with pytest.raises(InputError, match=r"tool_desc.json: 'id' is missing"):
        datasets.load("taskbench_multimedia", data_dir=full_copy, bad=BadRecords())
