"""The studio's page as people use it: in a real browser, on a real model and on 2,000 tools."""

import json
from pathlib import Path

import pytest

import dtdr
import synthetic_runs
from dtdr.data.calls import ToolCall
from dtdr.data.demonstrations import Demonstration
from dtdr.data.plan import Plan
from dtdr.data.tools import Tool
from dtdr.evaluate import datasets
from dtdr.serve.server import Settings
from dtdr.serve.studio.routes import Studio
from tests.browser import chromium
from tests.server import serving
from tests.studio.browser import MARKS, Browser

pytestmark = pytest.mark.browser

QUERY = "Send an email to Ann with the summary of q3.pdf"
HOTEL = Path(__file__).parents[2] / "examples" / "hotel" / "openai-chat.jsonl"
ODD = (
    "<img src=x onerror=\"document.title='hit'\">",
    "\"quotes\" and 'more' & <b>bold</b>",
    "שליחת_הודעה",
    "</script><script>document.title='hit'</script>",
    "long_" + "x" * 295,
    "tool\u202egnirts",
)
DIGEST = "0f3a91c2b7d84e65"
"""A group as imports name it."""


def write_runs(folder, demonstrations, tools):
    path = folder / "demonstrations.jsonl"
    path.write_text("".join(json.dumps(item.to_dict()) + "\n" for item in demonstrations))
    (folder / "tools.json").write_text(json.dumps([tool.to_dict() for tool in tools]))
    return path


@pytest.fixture(scope="module")
def browser():
    with chromium() as driver:
        yield Browser(driver)


@pytest.fixture(scope="module")
def tinyagent(tmp_path_factory, data_dir):
    """A studio of a real model."""
    folder = tmp_path_factory.mktemp("tinyagent")
    dataset = datasets.load("tinyagent", data_dir=data_dir)
    runs = write_runs(folder, dataset.demonstrations[:400], dataset.tools)
    dtdr.fit(runs, arguments=True).save(folder / "f")
    dtdr.fit(runs, ranker="dtdr-c").save(folder / "c")
    settings = serving.settings(
        folder, models={"f": folder / "f", "c": folder / "c"}, read_only=True
    )
    with serving.serve(settings, more=Studio(runs).endpoints) as served:
        yield served


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """A studio of 2,000 generated tools."""
    folder = tmp_path_factory.mktemp("many")
    demonstrations = synthetic_runs.generate(1_000, tools=2_000)
    runs = write_runs(folder, demonstrations, synthetic_runs.tools(2_000))
    dtdr.fit(runs, ranker="dr").save(folder / "model")
    settings = serving.settings(folder / "model", read_only=True)
    with serving.serve(settings, more=Studio(runs).endpoints) as served:
        yield served


def odd_runs():
    return [
        Demonstration(
            str(number),
            f"Do <i>{number % 6}</i> things",
            Plan(
                tuple(
                    ToolCall(str(at + 1), ODD[(number + at) % 6], {ODD[at]: ODD[number % 6]},
                             "<u>out</u>")
                    for at in range(3)
                )
            ),
            outcome="failure" if number % 7 == 0 else "success",
            group=DIGEST if number % 3 == 2 else f"<s>{number % 3}</s>",
        )
        for number in range(42)
    ]  # fmt: skip


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """A studio whose tools have names that would be markup, were they not text."""
    folder = tmp_path_factory.mktemp("odd")
    tools = [Tool(name, f"<b>{name}</b>") for name in ODD]
    runs = write_runs(folder, odd_runs(), tools)
    dtdr.fit(runs, arguments=True).save(folder / "model")
    endpoints = Studio(runs).endpoints
    with serving.serve(serving.settings(folder / "model"), more=endpoints) as served:
        yield served


def visit(browser, served):
    browser.url = served.url
    browser.resize(1280)
    browser.errors()


def settle(browser):
    """Wait until nothing is loading, and an answer is there."""
    browser.wait(lambda: "Loading…" not in browser.text("main") and browser.text("main"))


PARAMETERS = {
    "run": {"q": QUERY, "calls": ["get_email_address"]},
    "why": {"q": QUERY, "calls": ["get_email_address"]},
}


# -- every view --------------------------------------------------------------------------------


@pytest.mark.parametrize("view", MARKS)
def test_each_view_on_a_real_model_fits_is_accessible_and_logs_no_error(browser, tinyagent, view):
    visit(browser, tinyagent)
    for width, dark in ((1440, False), (1024, True), (390, False)):
        browser.resize(width, dark=dark)
        browser.open(view, **PARAMETERS.get(view, {}))
        settle(browser)
        assert browser.overflow() <= 0
        assert browser.violations() == []
    assert browser.errors() == []
    assert "Loading the studio" not in browser.text("body")
    assert browser.driver.title.lower().startswith(view)


@pytest.mark.parametrize("view", MARKS)
def test_each_view_on_2000_tools(browser, many, view):
    visit(browser, many)
    browser.open(view, **PARAMETERS.get(view, {}))
    settle(browser)
    assert browser.errors() == []
    if view == "map":
        assert "1,000 runs call" in browser.text("main")
        assert 50 <= browser.count(".drawing a.node") <= 60


# -- tools -------------------------------------------------------------------------------------


def test_tools_and_the_map_lead_to_a_tools_neighbours_arguments_and_runs(browser, tinyagent):
    visit(browser, tinyagent)
    panel = "section[aria-label='Tool']"
    browser.open("tools")
    assert browser.count(".panel tbody tr") == 16
    browser.find("input[type=search]").send_keys("zoom")
    browser.wait(lambda: browser.count(".panel tbody tr") == 1)
    browser.find(".panel tbody a").click()
    browser.wait(lambda: "Before it" in browser.text(panel))
    browser.open("map", ".empty", text="no query holds this")
    browser.wait(lambda: "No run matches" in browser.text("main"))
    browser.open("map", text="zoom")
    assert "400 runs" not in browser.text("main")
    browser.open("map")
    browser.wait(lambda: "400 runs" in browser.text("main"))
    browser.find("a.node[aria-label^='get_email_address:']").click()
    browser.wait(lambda: "Before it" in browser.text(panel))
    assert "get_email_address" in browser.driver.current_url
    assert "the query" in browser.text(panel)
    browser.button("Runs that call it").click()
    browser.wait(lambda: browser.count(MARKS["runs"]))
    browser.find(".runs-table tbody a").click()
    browser.wait(lambda: browser.ranking())
    assert browser.run("return document.querySelector('#query').value")
    browser.driver.back()
    browser.driver.back()
    browser.wait(lambda: browser.count(panel))


# -- a story -----------------------------------------------------------------------------------


def test_a_story_from_a_query_to_a_shared_address(browser, tinyagent):
    visit(browser, tinyagent)
    browser.open("run", "#query")
    browser.find("#query").send_keys(QUERY)
    rank = tinyagent.service.models["f"].current.model.rank
    calls: list[str] = []
    for _ in range(3):
        best = rank(QUERY, calls).best
        browser.wait(lambda best=best: browser.ranking()[:1] == [best])
        browser.button("Accept").click()
        calls.append(best)
        browser.wait(lambda: browser.calls() == calls)
    settle(browser)
    browser.button("Fork").click()
    browser.wait(lambda: browser.count(".fork") == 2)
    browser.wait(lambda: len(browser.ranking(1)) > 2)
    browser.find(".fork.is-active .ranking li:nth-child(3)").click()
    browser.button("Undo")  # of the first fork: still there
    browser.find(".fork.is-active .actions button").click()
    browser.wait(lambda: len(browser.calls(1)) == 4)
    assert browser.calls(0) == calls
    browser.wait(lambda: browser.count("section[aria-label='What the forks differ in'] tbody tr"))
    browser.find(".fork.is-active .actions a").click()
    browser.wait(lambda: browser.count("section[aria-label='Evidence'] tbody tr") >= 2)
    address = browser.driver.current_url
    verdict = browser.text(".verdict")
    assert verdict
    browser.driver.get("about:blank")
    browser.driver.get(address)
    browser.wait(lambda: browser.text(".verdict") == verdict)
    browser.run("location.hash = location.hash.replace('/why', '/run')")
    browser.wait(lambda: len(browser.calls(1)) == 4)
    assert browser.calls(0) == calls
    assert browser.errors() == []


def test_an_output_counts_and_stays_as_it_is_typed_and_a_run_is_taught(browser, odd):
    visit(browser, odd)
    browser.open("run", q="Do 3 things", calls=[ODD[3]])
    browser.find(".trace summary").click()
    fields = browser.driver.find_elements("css selector", ".trace textarea")
    fields[1].send_keys('{"rooms":[]}')
    browser.wait(lambda: "rooms" in browser.driver.current_url)
    assert fields[1].get_property("value") == '{"rooms":[]}'
    browser.find("h1").click()
    browser.wait(lambda: "returned something" in browser.text(".trace"))
    facts = browser.wait(lambda: browser.text(".cost .facts"))
    assert facts.endswith(("the set changed once", "the set never changed"))
    fields = browser.driver.find_elements("css selector", ".trace textarea")
    fields[0].send_keys("[1]")
    browser.find("h1").click()
    browser.wait(lambda: "JSON object" in browser.text(".trace"))
    generation = odd.service.models["mail"].current.generation
    browser.open("run", q="Do 3 things", calls=[ODD[3], ODD[4]])
    browser.button("Teach the model").click()
    browser.wait(lambda: "is learning it" in browser.text("main"))
    browser.wait(lambda: odd.service.models["mail"].current.generation == generation + 1)


def test_a_recorded_run_can_be_taken_call_by_call(browser, tinyagent):
    visit(browser, tinyagent)
    record = tinyagent.post("/v1/studio/run", {"position": 3, "model": "f"}).json()
    tools = [made["tool"] for made in record["calls"]]
    button = ("xpath", "//button[contains(., 'recorded')]")
    browser.open("run", run="3")
    browser.wait(lambda: browser.driver.find_elements(*button))
    assert browser.run("return document.activeElement.id") != "query"  # so quick keys work
    for number in range(len(tools)):
        browser.wait(lambda: browser.driver.find_elements(*button))
        browser.button("Take the recorded call").click()
        browser.wait(lambda number=number: browser.calls() == tools[: number + 1])
    browser.wait(lambda: not browser.driver.find_elements(*button))
    browser.open("run", "[role=alert]", run="99999")


def test_rankings_are_the_librarys_with_policies_and_arguments(browser, tinyagent):
    visit(browser, tinyagent)
    browser.open("run", q=QUERY, calls=["get_email_address"])
    model = tinyagent.service.models["f"].current.model
    expected = model.rank(QUERY, ["get_email_address"]).tools[:12]
    assert browser.ranking() == ["" if name == "end" else name for name in expected]
    assert "Teach" not in browser.text("main"), "this studio only reads"
    browser.open("run", q=QUERY, rule="top_k", bound="2")
    browser.wait(lambda: "of 16 tools are shown" in browser.text("div.cost"))
    browser.wait(lambda: browser.count(".ranking li.is-hidden") >= 8)
    assert "tokens" in browser.text("div.cost")
    panel = "section[aria-label='Predicted call']"
    query = 'Find the email address of "Jennifer Park" and open the note "Plans"'
    browser.open("run", f"{panel} tbody tr", q=query)
    assert browser.count(f"{panel} mark")
    browser.button("Accept").click()
    browser.wait(lambda: "arguments known" in browser.text(".trace"))


# -- runs, predicted beside actual -------------------------------------------------------------


def test_the_studio_opens_on_runs_and_a_miss_leads_to_its_step(browser, tinyagent):
    visit(browser, tinyagent)
    browser.driver.get("about:blank")
    browser.driver.get(f"{browser.url}/studio")
    browser.wait(lambda: "1 to 50 of 400 runs" in browser.text("main"))
    browser.wait(lambda: " of " in browser.text(".runs-table tbody tr td:nth-child(4)"))
    browser.driver.find_element("xpath", "//label[contains(., 'Only runs')]/input").click()
    browser.wait(lambda: "of 400 runs" not in browser.text("main"))
    misses = tinyagent.post("/v1/studio/runs", {"misses": True, "model": "f"}).json()
    browser.wait(lambda: f"of {misses['total']} runs" in browser.text("main"))
    browser.find(".runs-table tbody a").click()
    steps = "section[aria-label='Called and predicted'] tbody tr"
    browser.wait(lambda: browser.count(steps))
    assert browser.count(f"{steps} td.bad")
    browser.find(f"{steps}:last-child a").click()
    browser.wait(lambda: len(browser.calls()) == browser.count(steps) - 1)
    browser.find(f"{steps} a[href^='#/why']").click()
    browser.wait(lambda: browser.text(".verdict"))
    assert browser.errors() == []


def test_runs_are_filtered_sorted_and_paged(browser, many):
    visit(browser, many)
    browser.open("runs", sort="calls")
    assert browser.count(MARKS["runs"]) == 50
    most = int(browser.text(".runs-table tbody tr td:nth-child(2)"))
    browser.button("Next").click()
    browser.wait(lambda: "51 to 100 of 1,000 runs" in browser.text("main"))
    assert int(browser.text(".runs-table tbody tr td:nth-child(2)")) <= most
    browser.open("runs", ".empty", text="no query holds this")
    browser.wait(lambda: "No run matches" in browser.text("main"))


def test_the_misses_are_those_of_the_library_and_open_in_the_run_view(browser, tinyagent):
    visit(browser, tinyagent)
    mistakes = "section[aria-label='The most confident mistakes'] tbody tr"
    browser.open("misses", mistakes)
    found = tinyagent.post("/v1/studio/misses", {"model": "f"}).json()
    assert browser.count(mistakes) == len(found["mistakes"])
    assert f"MRR {found['metrics']['mrr']:.3f}" in browser.text("main")
    probability = browser.text(f"{mistakes} td:nth-child(4)")
    browser.find(f"{mistakes} a").click()
    browser.wait(lambda: browser.ranking())
    assert browser.calls() == found["mistakes"][0]["history"]
    assert browser.ranking()[0] == found["mistakes"][0]["predicted"]
    assert browser.text(".ranking .value") == probability


# -- keys --------------------------------------------------------------------------------------


def test_a_run_and_the_map_by_keyboard_alone(browser, tinyagent):
    visit(browser, tinyagent)
    browser.open("run", "#query:focus")
    browser.press(*QUERY)
    best, second, *_ = tinyagent.service.models["f"].current.model.rank(QUERY).tools
    browser.wait(lambda: browser.ranking()[:2] == [best, second])
    browser.press("ESCAPE")
    browser.press("ARROW_DOWN")
    browser.wait(lambda: browser.text(".ranking [aria-selected=true] .name") == second)
    browser.press("ENTER")
    browser.wait(lambda: browser.calls() == [second])
    browser.press("u")
    browser.wait(lambda: browser.calls() == [])
    browser.wait(lambda: second in browser.ranking())
    browser.press("f")
    browser.wait(lambda: browser.count(".fork") == 2)
    browser.wait(lambda: browser.ranking(1))
    browser.press("ENTER")
    browser.wait(lambda: len(browser.calls(1)) == 1)
    browser.press("c")
    browser.wait(lambda: browser.count(".fork:first-child.is-active, .fork.is-active:has(~ .fork)"))
    browser.press("w")
    browser.wait(lambda: browser.text(".verdict"))
    browser.open("map")
    for _ in range(40):
        browser.press("TAB")
        if browser.run("return document.activeElement.matches('a.node')"):
            break
    name = browser.run("return document.activeElement.getAttribute('aria-label')").split(":")[0]
    browser.press("ENTER")
    browser.wait(lambda: browser.text("section[aria-label='Tool'] h2") == name)
    assert browser.errors() == []


def test_a_quick_key_acts_on_the_calls_that_the_page_shows(browser, tinyagent):
    visit(browser, tinyagent)
    browser.open("run", q=QUERY, calls=["get_email_address"])
    # Forks as soon as the undone call is gone from the page, before the page is painted.
    browser.run(
        """const press = (key) => document.body.dispatchEvent(
               new KeyboardEvent("keydown", {key, bubbles: true}));
           new MutationObserver((_, observer) => {
               if (document.querySelector(".trace .name")) return;
               observer.disconnect();
               press("f");
           }).observe(document.body, {childList: true, subtree: true});
           press("u");"""
    )
    browser.wait(lambda: browser.count(".fork") == 2)
    assert browser.calls(0) == browser.calls(1) == []


def test_colours_can_be_chosen(browser, tinyagent):
    visit(browser, tinyagent)
    browser.open("run", "#query")
    background = "return getComputedStyle(document.body).backgroundColor"
    light = browser.run(background)
    button = browser.find("header button")
    for name in ("Light", "Dark"):
        button.click()
        browser.wait(lambda chosen=name: browser.text("header button") == chosen)
    assert browser.run(background) != light
    button.click()
    browser.wait(lambda: browser.run(background) == light)


# -- a log of one's own ------------------------------------------------------------------------


def test_a_dropped_log_is_learned_from_and_shown_without_any_model(browser):
    endpoints = Studio().endpoints
    with serving.serve(Settings({}, port=0, read_only=True), more=endpoints) as served:
        visit(browser, served)
        browser.driver.get(f"{served.url}/")
        browser.wait(lambda: "Open a log" in browser.text("main"))
        assert browser.violations() == []
        browser.find("input[type=file]").send_keys(str(HOTEL.resolve()))
        browser.wait(lambda: browser.count(".runs-table tbody tr"), seconds=120)
        browser.wait(lambda: "Learned from" in browser.text(".drop"))
        browser.open("misses", model="openai-chat")
        assert browser.errors() == []


# -- what is not as usual ----------------------------------------------------------------------


@pytest.mark.parametrize("view", ["runs", "run", "tools", "map", "why", "tool", "fork"])
def test_odd_names_are_text_and_never_markup(browser, odd, view):
    visit(browser, odd)
    step = {"q": "Do <b>3</b> things", "calls": [ODD[1], ODD[2]]}
    if view == "tool":
        browser.open("map", tool=ODD[0])
        browser.wait(lambda: ODD[0] in browser.text("section[aria-label='Tool']"))
    elif view == "map":
        browser.open("map")
        offered = browser.run(
            "return [...document.querySelectorAll('main option')].map(o => o.text)"
        )
        assert "<s>0</s>" in offered
        assert DIGEST not in offered, "a digest says nothing as a filter"
    elif view == "fork":
        browser.open("run", "table tbody tr", **step, fork=[ODD[4]], side="2")
    else:
        browser.open(view, **step)
    settle(browser)
    for width in (1280, 400):
        browser.resize(width)
        assert browser.overflow() <= 0
    assert browser.count("#app img, #app script, #app s, #app u") == 0
    assert "hit" not in browser.driver.title
    assert browser.errors() == []


def test_addresses_that_hold_nonsense_or_the_end_of_a_run_do_no_harm(browser, odd):
    visit(browser, odd)
    browser.open("run", q="Do 3", calls="{]", fork='[1, null, {"tool": 3}]', side="9", before="x")
    browser.open("nothing", "[role=alert]", model="nobody", q="Do 3")
    browser.open("why", "[role=alert]", q="Do 3", tool="nobody")
    browser.errors()
    browser.open("why", q="Do 1 things", calls=list(ODD[:3]), tool="end")
    assert "nats" not in browser.text("main")
    browser.find("nav a[href^='#/map']").click()
    browser.wait(lambda: browser.count(MARKS["map"]))
    assert browser.count("section[aria-label='Tool']") == 0, "the map shows all tools"
    assert browser.errors() == []


def test_a_server_that_stops_is_told_and_comes_back(browser, odd, tmp_path):
    folder = odd.service.models["mail"].folder
    settings = serving.settings(folder, read_only=True)
    with serving.serve(settings, more=Studio().endpoints) as served:
        visit(browser, served)
        port = int(served.url.rsplit(":", 1)[1])
        browser.open("run", q="Do 3 things")
        browser.button("Accept").click()
        browser.wait(lambda: len(browser.calls()) == 1)
        browser.wait(lambda: browser.ranking() and browser.ranking()[0])
    browser.button("Undo").click()
    browser.wait(lambda: "does not answer" in browser.text("[role=alert]"))
    settings = serving.settings(folder, read_only=True, port=port)
    with serving.serve(settings, more=Studio().endpoints):
        browser.wait(lambda: browser.count(".banner") == 0)
        browser.wait(lambda: browser.ranking())
        browser.button("Accept").click()
        browser.wait(lambda: len(browser.calls()) == 1)
        browser.wait(lambda: browser.ranking() and "Loading" not in browser.text("main"))
    browser.errors()  # requests that failed while it was away


def test_a_phone_shows_the_best_tool_and_the_map_on_its_first_screen(browser, odd):
    visit(browser, odd)
    browser.resize(390, 844)
    for view, mark in (("run", MARKS["run"]), ("map", ".drawing"), ("runs", MARKS["runs"])):
        browser.open(view, q="Do 1 things")
        settle(browser)
        top = "return document.querySelector(arguments[0]).getBoundingClientRect().top"
        assert browser.run(top, mark) < 600, view
    right = "return document.querySelector(arguments[0]).getBoundingClientRect().right"
    assert browser.run(right, ".runs-table tbody td:last-child") < 390


# -- narrow windows ----------------------------------------------------------------------------


@pytest.mark.parametrize("view", ["misses", "map"])
def test_what_is_wider_than_the_window_scrolls_and_has_an_arrow_where_it_goes_on(
    browser, tinyagent, view
):
    visit(browser, tinyagent)
    wide = """return [...document.querySelectorAll('.scroll')].filter((box) =>
        box.scrollWidth > box.clientWidth + 1).map((box) => [box.parentElement.className,
        getComputedStyle(box.parentElement, '::after').content.includes('→'), box.tabIndex])"""
    browser.resize(390)
    browser.open(view)
    settle(browser)
    browser.wait(lambda: browser.run(wide))
    browser.wait(lambda: all(each[1:] == [True, 0] for each in browser.run(wide)))
    frames = "document.querySelectorAll('.scroll-frame.is-cut-right')"
    browser.run(f"{frames}.forEach((frame) => frame.firstElementChild.scrollLeft = 1e5)")
    browser.wait(lambda: browser.count(".is-cut-left") and not browser.count(".is-cut-right"))
    browser.resize(1440)
    browser.wait(lambda: not browser.count(".is-cut-left"))
