"""A catalogue of MCP servers as a user might have connected them all: 70 servers, 527 tools.

**Synthetic**: servers, tools, schemas and queries are made by a seeded generator from the word
lists below, which were written for this; only the numbers are those of LiveMCPBench (Mo et al.,
2025). A query asks for one to three errands of one or several servers. It names what it is about as
the tool does, or by another word; it never names a server and seldom a verb of a description.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

import words
from dtdr.data.demonstrations import Demonstration
from dtdr.data.tools import Parameter, Tool
from dtdr.evaluate.datasets.source import Dataset
from phrasing import Clause, Scene, compose, person, say

SOURCE = "synthetic (benchmarks/mcp_catalogue.py)"
TOOLS = 527

# server | what it is | the thing that is looked for, and said otherwise | the thing that is kept
_SERVERS = """
forge | a code forge | pull request/merge proposal | issue/bug ticket
pipeline | a build server | build/compile job | deployment/rollout
sentinel | an error tracker | crash report/exception | alert rule/alarm setting
registry | a package registry | package/library | release/published version
sandbox | a code runner | script/snippet | environment/runtime
ledgerbook | bookkeeping | invoice/bill | expense/outlay
payroll | wage accounting | payslip/wage statement | bonus/extra pay
stocks | a stock exchange feed | share price/quote | watchlist/list of tickers
coins | a crypto exchange | coin/token price | wallet/purse of coins
bank | a bank | account/balance | standing order/regular payment
taxes | a tax office | tax return/declaration | deduction/write-off
shop | an online shop | product/article | order/purchase
auction | an auction house | lot/item under the hammer | bid/offer
warehouse | a warehouse | stock item/shelf good | shipment/consignment
courier | a parcel service | parcel/package in the post | pickup/collection
crm | customer records | customer/client | deal/sales opportunity
helpdesk | a support desk | support case/complaint | canned answer/reply template
survey | a survey tool | survey/questionnaire | response/filled form
newsletter | a mailing tool | campaign/mail blast | subscriber/reader
ads | an advertising network | advert/banner | budget cap/spending limit
social | a social network | post/status update | follower/fan
forum | a discussion board | thread/discussion | vote/poll
videos | a video site | video/clip | playlist/queue of clips
podcasts | a podcast directory | episode/podcast | subscription/feed
music | a music service | song/track | mixtape/list of songs
lyrics | a lyrics collection | lyrics/song text | chord sheet/guitar tab
movies | a film database | film/movie | review/critique
games | a game library | game/title to play | achievement/trophy
recipes | a cookbook | recipe/dish | shopping list/list of groceries
restaurants | a restaurant guide | restaurant/place to eat | table booking/dinner reservation
nutrition | a food diary | meal/what I ate | calorie goal/diet target
fitness | a training log | workout/training session | training plan/exercise schedule
sleep | a sleep tracker | night/sleep record | bedtime/hour to turn in
clinic | a doctor's practice | appointment/doctor's visit | prescription/medicine slip
pharmacy | a pharmacy | medicine/drug | refill/repeat order
genes | a gene database | gene/stretch of DNA | alignment/sequence comparison
chemistry | a compound database | compound/molecule | reaction/synthesis
papers | a paper archive | paper/article of a journal | citation/reference entry
patents | a patent office | patent/invention | claim/protected point
courts | a law library | ruling/judgment | contract clause/legal passage
census | a statistics office | statistic/population figure | chart/graph
news | a news wire | news story/headline | topic alert/news notice
weather | a weather service | forecast/outlook | storm warning/bad-weather notice
tides | a tide table | tide/high water | harbour/berth
stars | an observatory | star/constellation | observation/telescope slot
maps | a map service | place/spot | route/way there
trains | a railway | train/rail connection | seat/train ticket
flights | an airline search | flight/plane | boarding pass/check-in
hotels | a hotel search | hotel/place to stay | room/overnight stay
rentals | a car rental | car/vehicle | rental/hire
parking | a parking service | car park/space to park | permit/parking permission
charging | a charging network | charging station/plug for the car | charging session/top-up
bikes | a bike share | bicycle/bike | ride/tour by bike
homes | an estate agent | flat/apartment | viewing/look at a flat
lights | a smart home | lamp/light | scene/mood of the room
heating | a thermostat | room temperature/warmth | heating schedule/heating times
cameras | a home camera | recording/footage | motion zone/watched area
garden | a garden planner | plant/shrub | watering/sprinkler run
calendar | a calendar | event/date | invitation/request to join
mailbox | a mailbox | mail/letter in the inbox | filter/sorting rule
chat | a team chat | message/note to the team | channel/group chat
phone | a telephone line | call/ring | voicemail/spoken message
notes | a notebook | note/jotting | tag/keyword
tasks | a to-do list | task/thing to do | reminder/nudge
files | a file store | file/document | share link/way in for others
sheets | a spreadsheet | table/sheet | formula/calculation
slides | a slide editor | slide deck/presentation | speaker note/what I say to a slide
pictures | an image editor | picture/photo | filter effect/look
fonts | a type foundry | font/typeface | licence/right to use
translate | a translation service | translation/version in another language | glossary/word list
"""

# verb of the tool | description | parameters; {a} is the thing looked for, {b} the thing kept
_TOOLS = """
search_a | Search for a {a} by its text. | text limit?
get_a | Read one {a} in full. | id
update_a | Change the fields of a {a}. | id fields
create_b | Create a new {b}. | title details?
list_b | List every {b}, latest first. | limit?
delete_b | Delete a {b} for good. | id
create_a | Create a new {a}. | title details?
export_b | Write a {b} to a file. | id format?
"""

# tools, each with what the one before returned | ways to ask
_FLOWS = """
search_a | is there a {a} about {t} | look whether {t} has a {a}
search_a get_a | what does the {a} about {t} say | show me the {a} on {t}
search_a update_a | correct the {a} about {t} | bring the {a} on {t} up to date
create_b | set up a {b} for {t} | I need a {b} named {t}
list_b | which {b} do we have for {t} | show each {b}, I am after {t}
list_b delete_b | drop the {b} for {t} | get rid of the {b} about {t}
create_a | start a {a} on {t} | add a {a}: {t}
list_b export_b | save the {b} for {t} to disk | give me the {b} on {t} as a file
search_a create_b | take the {a} about {t} and make a {b} from it | turn the {a} on {t} into a {b}
"""


@dataclass(frozen=True)
class Server:
    """One server: its tools by verb, and how queries call its two things."""

    name: str
    tools: dict[str, Tool]
    things: dict[str, tuple[str, ...]]

    @property
    def flows(self) -> list[tuple[list[str], list[str]]]:
        """The chains of calls that it has every tool for, with the ways to ask for them."""
        flows = [(calls.split(), asked) for calls, *asked in map(_cells, _lines(_FLOWS))]
        return [flow for flow in flows if self.tools.keys() >= {*flow[0]}]


def _lines(table: str) -> list[str]:
    return table.strip().splitlines()


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")]


def servers() -> list[Server]:
    """The 70 servers: 37 have eight tools, the others seven."""
    rows = [_cells(line) for line in _lines(_SERVERS)]
    kinds = [_cells(line) for line in _lines(_TOOLS)]
    large = TOOLS - (len(kinds) - 1) * len(rows)
    built = []
    for number, (name, kind, looked_for, kept) in enumerate(rows):
        things = {"a": tuple(looked_for.split("/")), "b": tuple(kept.split("/"))}
        tools = {}
        for verb, about, specification in kinds[: len(kinds) - (number >= large)]:
            action, thing = verb.split("_")
            noun = things[thing][0]
            description = about.format(a=things["a"][0], b=things["b"][0])
            tools[verb] = Tool(
                f"{name}__{action}_{noun.replace(' ', '_').replace(chr(39), '')}",
                f"{description} Part of {kind}.",
                parameters(specification),
            )
        built.append(Server(name, tools, things))
    return built


def catalogue(demonstrations: int, seed: int = 0) -> Dataset:
    """Demonstrations over all servers; the same seed gives the same ones.

    ``group`` names the errands that were combined, so that a split by group tests other
    combinations than it learns.
    """
    offered = servers()
    rng = Random(f"mcp catalogue {seed}")
    return Dataset(
        name="mcp-catalogue",
        title=f"MCP catalogue, {len(offered)} servers (synthetic)",
        demonstrations=[*_demonstrations(rng, offered, demonstrations)],
        tools=tuple(tool for server in offered for tool in server.tools.values()),
        synthetic=True,
        source=SOURCE,
        licence="Apache-2.0",
        note="composed from templates by a seeded generator; no user asked these queries",
    )


def parameters(specification: str) -> tuple[Parameter, ...]:
    """Parameters from ``"to* subject body?"``: ``*`` marks a list, ``?`` an optional one."""
    return tuple(
        Parameter(
            item.rstrip("*?"), "array" if "*" in item else "string", "", not item.endswith("?")
        )
        for item in specification.split()
    )


def _demonstrations(rng: Random, offered: Sequence[Server], count: int) -> Iterator[Demonstration]:
    for number in range(count):
        scene = Scene(rng)
        draw = rng.random()
        clauses = [
            _errand(scene, scene.pick(offered))
            for _ in range(1 if draw < 0.45 else 2 if draw < 0.85 else 3)
        ]
        query = compose(scene, clauses)
        group = " + ".join(sorted(scene.labels))
        yield Demonstration(str(number), query, scene.plan(), SOURCE, group=group)


def _errand(scene: Scene, server: Server) -> Clause:
    calls, asked = scene.pick(server.flows)
    topic = f"{scene.pick(words.TOPICS)} {scene.pick(words.KINDS)}"
    if scene.chance(0.4):
        topic += f" of {person(scene.rng)}"
    value: object = topic
    for verb in calls:
        tool = server.tools[verb]
        first = tool.parameters[0]
        value = scene.call(tool.name, **({first.name: value} if first.required else {}))
    scene.labels.append(f"{server.name}>{calls[-1]}")
    named = {kind: scene.pick(names) for kind, names in server.things.items()}
    clause = say(scene, asked, t=topic, **named)
    return clause._replace(text=re.sub(r"\ba (?=[aeiou])", "an ", clause.text))
