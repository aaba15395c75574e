"""What can be asked for: each function adds calls to a scene and returns a clause of the query."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dtdr.datasets.synthetic import things, words
from dtdr.datasets.synthetic.ends import (
    let_know,
    mail,
    note,
    print_out,
    row,
    share,
    show,
    text_message,
)
from dtdr.datasets.synthetic.scene import Clause, Scene, Thing

Errand = Callable[[Scene], Clause]


_FOR_TEXT = (mail, mail, mail, text_message, text_message, let_know, note, note, row, show, show)
_FOR_FILES = (mail, mail, share, share, print_out, print_out, show)


def hand_on(scene: Scene) -> Clause:
    """Produce something and hand it on; sometimes in another language, sometimes to two ends."""
    make = scene.pick(things.THINGS)
    thing = make(scene)
    label = make.__name__
    if not thing.is_file and scene.chance(0.13):
        thing = things.translate(scene, thing)
        label += ">translated"
    consume = scene.pick(_FOR_FILES if thing.is_file else _FOR_TEXT)
    clause = consume(scene, thing)
    label += f">{consume.__name__}"
    if consume is not show and scene.chance(0.22):
        second = scene.pick(_FOR_FILES if thing.is_file else _FOR_TEXT)
        if second not in (consume, show):
            it = Thing(
                scene.pick(("the same", "it as well", "that too")), thing.value, thing.is_file
            )
            more = second(scene, it)
            if more.is_order == clause.is_order:
                joint = (
                    scene.pick((" and also ", " and then ", ", then ")) if more.is_order else "; "
                )
                clause = Clause(f"{clause.text}{joint}{more.text}", clause.is_order)
            else:
                clause = Clause(
                    f"{clause.text}; {'please ' * more.is_order}{more.text}", clause.is_order
                )
            label += f">{second.__name__}"
    scene.labels.append(label)
    return clause


def plain_message(scene: Scene) -> Clause:
    """A message whose text is given."""
    text = f'"{scene.pick(words.MESSAGES)}, {words.day(scene.rng)} {words.clock(scene.rng)}"'
    consume = scene.pick((mail, text_message, let_know))
    scene.labels.append(f"message>{consume.__name__}")
    return consume(scene, Thing(text, text))


def appointment(scene: Scene) -> Clause:
    """Put an appointment into the calendar, with people, a link or at a time that suits all."""
    title = f"{scene.pick(words.TOPICS)} {scene.pick(words.EVENTS)}"
    day, time = words.day(scene.rng), words.clock(scene.rng)
    arguments: dict[str, Any] = {"title": title, "day": day}
    extra = ""
    label = "appointment"
    if scene.chance(0.55):
        who, invitees = scene.recipients("find_email_address")
        arguments["invitees"] = invitees
        extra = scene.pick((" with {}", " and invite {}", ", guests: {}")).format(who)
        label += ">people"
        if scene.chance(0.35):
            arguments["time"] = scene.call("find_free_slot", people=invitees, day=day)
            extra += scene.pick((" whenever everybody is free", " at a time that suits all of us"))
            label += ">slot"
    if "time" not in arguments:
        arguments["time"] = time
        extra += f" at {time}"
    if scene.chance(0.3):
        arguments["link"] = scene.call("create_meeting_link", title=title)
        extra += scene.pick((", online", " as a video call", ", with a link to join remotely"))
        label += ">link"
    elif scene.chance(0.3):
        arguments["location"] = words.street_address(scene.rng)
        extra += f" at {arguments['location']}"
    scene.call("create_event", **arguments)
    scene.labels.append(label)
    return scene.say(
        (
            "schedule a {title} on {day}{extra}",
            "put a {title} into my calendar for {day}{extra}",
            "set up a {title} {day}{extra}",
            "block {day} for the {title}{extra}",
            "We need a {title} on {day}{extra}",
        ),
        title=title,
        day=day,
        extra=extra,
    )


def change_event(scene: Scene) -> Clause:
    """Move or cancel an appointment that must be looked up first."""
    title, day = f"{scene.pick(words.TOPICS)} {scene.pick(words.EVENTS)}", words.day(scene.rng)
    event = scene.call("list_events", day=day)
    if scene.chance(0.5):
        later, time = words.day(scene.rng), words.clock(scene.rng)
        scene.call("move_event", event=event, day=later, time=time)
        scene.labels.append("move_event")
        return scene.say(
            (
                "move the {title} of {day} to {later}, {time}",
                "push {day}'s {title} to {later} {time}",
                "reschedule the {title} on {day} for {later} at {time}",
            ),
            title=title,
            day=day,
            later=later,
            time=time,
        )
    scene.call("cancel_event", event=event)
    scene.labels.append("cancel_event")
    return scene.say(
        (
            "cancel the {title} on {day}",
            "call off {day}'s {title}",
            "take the {title} of {day} off my calendar",
            "The {title} on {day} is not happening, remove it",
        ),
        title=title,
        day=day,
    )


def agenda(scene: Scene) -> Clause:
    """What is in the calendar."""
    day = (
        f"{scene.rng.randrange(1, 29)} {scene.pick(words.MONTHS)} {scene.rng.randrange(2024, 2030)}"
    )
    scene.call("list_events", day=day)
    scene.labels.append("agenda")
    return scene.say(
        (
            "tell me what is on my calendar for {day}",
            "read me my appointments of {day}",
            "check what I have planned on {day}",
        ),
        day=day,
    )


def reminder(scene: Scene) -> Clause:
    """Remind the user of a chore."""
    chore, time = scene.pick(words.CHORES), f"{words.day(scene.rng)} {words.clock(scene.rng)}"
    scene.call("create_reminder", text=chore, time=time)
    scene.labels.append("reminder")
    return scene.say(
        (
            "remind me to {chore} {time}",
            "nudge me {time} to {chore}",
            "make sure I {chore} {time}",
            "I must not forget to {chore} {time}",
            "set a reminder for {time}: {chore}",
        ),
        chore=chore,
        time=time,
    )


def timer(scene: Scene) -> Clause:
    """Start a countdown."""
    minutes, chore = scene.rng.randrange(2, 240), scene.pick(words.CHORES)
    scene.call("set_timer", minutes=minutes)
    scene.labels.append("timer")
    return scene.say(
        (
            "set a timer for {m} minutes so that I can {c}",
            "count down {m} minutes, then I {c}",
            "start a {m}-minute countdown, I have to {c} after it",
        ),
        m=str(minutes),
        c=chore,
    )


def answer_mail(scene: Scene) -> Clause:
    """Reply to or forward a message: the open one, or one that must be found."""
    sender, topic = words.person(scene.rng), scene.pick(words.TOPICS)
    if scene.chance(0.3):
        which: str = scene.pick(("this email", "the mail I have open", "the message on my screen"))
        message: Any = "current"
    else:
        which = scene.pick(("the email from {} about {}", "{}'s mail on {}")).format(sender, topic)
        message = scene.call("search_mail", words=f"{sender} {topic}")
    if scene.chance(0.5):
        text = f'"{scene.pick(words.MESSAGES)}, {words.day(scene.rng)}"'
        scene.call("reply_to_email", message=message, body=text)
        scene.labels.append("reply")
        return scene.say(
            ("reply to {which} with {text}", "answer {which}: {text}", "respond {text} to {which}"),
            which=which,
            text=text,
        )
    who, to = scene.recipients("find_email_address")
    scene.call("forward_email", message=message, to=to)
    scene.labels.append("forward")
    return scene.say(
        (
            "forward {which} to {who}",
            "pass {which} on to {who}",
            "{who} should see {which}, pass it on",
        ),
        which=which,
        who=who,
    )
