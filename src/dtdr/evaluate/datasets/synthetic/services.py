"""More tools than the bundled set has: kinds of service under many invented brands."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from dtdr.data.tools import Parameter, Tool
from dtdr.evaluate.datasets.synthetic import words
from dtdr.evaluate.datasets.synthetic.scene import Clause, Scene
from dtdr.evaluate.datasets.synthetic.words import split

_SYLLABLES = (
    split("ka ve lo mi zu bre ta no qui sa dra pe flo gi hu ja xe ro ci wy"),
    split("l m r n v s d t nd rk lt st mb x p"),
    split("a o i u e ia io ea"),
    split("ra ly no ta zi mo via go ne ko dex sy lin per zen"),
)


class Flow(NamedTuple):
    """Calls that use each other's outputs, and the ways to ask for them."""

    verbs: tuple[str, ...]
    templates: tuple[str, ...]


class _Family(NamedTuple):
    """A kind of service: its tools, what can be asked for, and of what."""

    tools: tuple[tuple[str, str, str], ...]
    flows: tuple[Flow, ...]
    subjects: tuple[str, ...]

    def first_parameter(self, verb: str) -> str:
        """The parameter that takes what is asked for, or what the call before gave."""
        specification = next(names for name, _, names in self.tools if name == verb)
        return specification.partition(" ")[0]


class Service(NamedTuple):
    """A brand, and those of its flows whose tools are all there."""

    brand: str
    family: _Family
    flows: tuple[Flow, ...]


# Families of services, an empty line between two. First tools: name | description | parameters.
# After ">" the calls of a flow, each with what the one before returned, and the ways to ask for it;
# after "=" what is asked for. A line that begins with "|" goes on with the one before.
_FAMILIES_TEXT = """
find_product | Find a product in the online shop {}. | words
add_to_basket | Put a product into the basket of the shop {}. | product
check_out | Pay for the basket of the shop {} and have it delivered. | basket
find_order | Find an earlier order at the shop {}. | words
track_order | Say where an order from the shop {} is. | order
return_order | Send an order back to the shop {}. | order
> find_product | see if {b} sells {s} | check what {s} costs at {b}
> find_product add_to_basket | put {s} into my {b} basket | keep {s} in the basket at {b}
> find_product add_to_basket check_out | order {s} from {b} | buy {s} at {b} | have {b} deliver {s}
> find_order | show me my {b} order of {s} | dig up what I paid {b} for {s}
> find_order track_order | find out where {s} from {b} is | track my {b} order of {s}
> find_order return_order | send {s} back to {b} | return {s}, which {b} delivered
= oat milk | a desk lamp | running shoes | a coffee grinder | printer paper | a rain jacket
= two phone chargers | a tea kettle | hiking socks | a yoga mat

list_accounts | List the accounts at the bank {}. |
get_balance | Give the balance of an account at the bank {}. | account
transfer_money | Transfer money from an account at {}. | account to? amount?
freeze_card | Block a card of the bank {}. | account
list_payments | List the payments of an account at {}. | account
> list_accounts | name my accounts at {b} before I {s}
> list_accounts get_balance | check how much I have at {b} before I {s}
| look up my {b} balance, I want to {s}
> list_accounts get_balance transfer_money | send the rest of my {b} money off so that I can {s}
| transfer what is left at {b}, I have to {s}
> list_accounts freeze_card | block my {b} card, I lost it on the way to {s}
| freeze the card from {b} until I {s}
> list_accounts list_payments | go through my {b} payments, I have to {s}
| list what I paid with {b} so that I can {s}
= water the plants | call the bank | renew my passport | pay the rent | pick up the parcel
= submit the timesheet | charge the camera | return the library books | book the dentist
= order new toner | back up the laptop | sign the lease | feed the cat | send the invoice

list_courses | List the courses of the studio {}. | words
book_course | Book a place in a course of the studio {}. | course
cancel_course | Give back a place in a course of the studio {}. | course
rate_course | Rate a course of the studio {}. | course stars?
> list_courses | look up when {b} has {s} | ask which {s} {b} offers
> list_courses book_course | sign me up for {s} at {b} | get me a place in {s}, {b}
> list_courses cancel_course | give up my place in {s} at {b} | drop {s} at {b}
> list_courses rate_course | give {s} at {b} five stars | rate {s}, the one from {b}
= evening yoga | a pottery class | climbing for beginners | a drawing course | morning pilates
= salsa lessons | a first-aid course | watercolours | boxing | a cooking class

find_parcel | Find a parcel at the courier {}. | words
locate_parcel | Say where a parcel of the courier {} is. | parcel
make_label | Make a shipping label of the courier {}. | content
book_pickup | Have the courier {} pick a parcel up. | label
redirect_parcel | Send a parcel of the courier {} to another place. | parcel
> find_parcel | see if {b} knows a parcel with {s}
> find_parcel locate_parcel | ask {b} where the parcel with {s} is | locate the {b} parcel with {s}
> make_label | make me a {b} label for {s} | prepare {b} postage for {s}
> make_label book_pickup | ship {s} with {b} | let {b} collect {s} | have {s} picked up by {b}
> find_parcel redirect_parcel | have {b} bring {s} to the office instead
| redirect {s}, it comes with {b}
= the signed contracts | a box of samples | my old laptop | the spare keys | the brochures
= the trade fair banners | a birthday present | the camera lens

find_show | Find a show of the ticket office {}. | words
hold_seats | Hold seats with the ticket office {}. | show
pay_tickets | Pay for held seats at the ticket office {}. | seats
refund_tickets | Give tickets back to the ticket office {}. | show
> find_show | see when {b} has {s} | find out from {b} when {s} is on
> find_show hold_seats | hold two seats for {s} at {b} | keep places for {s} free with {b}
> find_show hold_seats pay_tickets | buy tickets for {s} from {b} | get us into {s} through {b}
> find_show refund_tickets | give the {b} tickets for {s} back | get a refund from {b} for {s}
= the jazz night | a puppet play | the ice hockey final | an organ concert | the film festival
= a comedy evening | the opera | a poetry slam | the ballet
"""


def _family(text: str) -> _Family:
    tools: list[tuple[str, str, str]] = []
    flows: list[Flow] = []
    subjects: list[str] = []
    for line in text.replace("\n|", " |").splitlines():
        cells = [cell.strip() for cell in line.lstrip(">= ").split("|")]
        if line.startswith(">"):
            flows.append(Flow(tuple(cells[0].split()), tuple(cells[1:])))
        elif line.startswith("="):
            subjects += cells
        else:
            tools.append((cells[0], cells[1], cells[2]))
    return _Family(tuple(tools), tuple(flows), tuple(subjects))


_FAMILIES = tuple(map(_family, _FAMILIES_TEXT.strip().split("\n\n")))


def parameters(specification: str) -> tuple[Parameter, ...]:
    """Parameters from ``"to* subject body?"``: ``*`` marks a list, ``?`` an optional one."""
    return tuple(
        Parameter(
            item.rstrip("*?"), "array" if "*" in item else "string", "", not item.endswith("?")
        )
        for item in specification.split()
    )


def services(count: int, seed: int) -> Iterator[tuple[Service, tuple[Tool, ...]]]:
    """Brands and their tools, ``count`` tools in all; the last brand may have fewer than its kind.

    The same seed gives the same brands in the same order, whatever the count.
    """
    rng = Random(f"brands {seed}")
    taken: set[str] = set()
    number = 0
    while count > 0:
        brand = "".join(part[int(rng.random() * len(part))] for part in _SYLLABLES)
        if brand in taken:
            continue
        taken.add(brand)
        family = _FAMILIES[number % len(_FAMILIES)]
        number += 1
        kept = family.tools[:count]
        count -= len(kept)
        verbs = {verb for verb, _, _ in kept}
        flows = tuple(flow for flow in family.flows if verbs.issuperset(flow.verbs))
        title = brand.capitalize()
        yield (
            Service(title, family, flows),
            tuple(
                Tool(f"{brand}_{verb}", about.format(title), parameters(specification))
                for verb, about, specification in kept
            ),
        )


def errand(scene: Scene, service: Service, flow: Flow) -> Clause:
    """Ask something of a service; the first call gets the subject, each later one what came out."""
    subject = f"{scene.pick(service.family.subjects)}{_detail(scene)}"
    prefix = service.brand.lower()
    value: object = subject
    for verb in flow.verbs:
        first = service.family.first_parameter(verb)
        value = scene.call(f"{prefix}_{verb}", **({first: value} if first else {}))
    scene.labels.append(f"{prefix}>{flow.verbs[-1]}")
    return scene.say(flow.templates, b=service.brand, s=subject)


def _detail(scene: Scene) -> str:
    draw = scene.rng.random()
    if draw < 0.45:
        return f" for {words.person(scene.rng)}"
    if draw < 0.75:
        return f" for {words.person(scene.rng)} by {words.day(scene.rng)}"
    if draw < 0.9:
        return f" by {words.day(scene.rng)} {words.clock(scene.rng)}"
    return ""
