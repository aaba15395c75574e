"""Where a thing can go: by mail, as a text, into a note, onto paper, or just onto the screen."""

from __future__ import annotations

from typing import Any

from dtdr.datasets.synthetic import things, words
from dtdr.datasets.synthetic.scene import Clause, Scene, Thing


def _value(scene: Scene, thing: Thing) -> Any:
    if isinstance(thing.value, dict) and scene.chance(0.3):
        return {"$join": [scene.pick(("Here it is: ", "As promised: ", "For you: ")), thing.value]}
    return thing.value


def mail(scene: Scene, thing: Thing) -> Clause:
    """Send it by mail."""
    who, to = scene.recipients("find_email_address")
    arguments: dict[str, Any] = {"to": to, "subject": thing.text}
    arguments.update(attachments=[thing.value]) if thing.is_file else arguments.update(
        body=_value(scene, thing)
    )
    scene.call("send_email", **arguments)
    return scene.say(
        (
            "mail {who} {what}",
            "email {what} to {who}",
            "write to {who} with {what}",
            "put {what} in an email to {who}",
            "drop {who} an email with {what}",
            "send {what} to the inbox of {who}",
            "{who} should get {what} by mail",
            "{who} asked for {what}, so send an email",
        ),
        who=who,
        what=thing.text,
    )


def text_message(scene: Scene, thing: Thing) -> Clause:
    """Send it as a text message."""
    who, to = scene.recipients("find_phone_number")
    scene.call("send_sms", to=to, text=_value(scene, thing))
    return scene.say(
        (
            "text {who} {what}",
            "send {what} to {who} by SMS",
            "message {who} on the phone with {what}",
            "shoot {who} a text saying {what}",
            "ping {what} to the phone of {who}",
            "{who} should have {what} on the phone, as a text",
        ),
        who=who,
        what=thing.text,
    )


def let_know(scene: Scene, thing: Thing) -> Clause:
    """Tell somebody, in whichever way: the query does not say."""
    by_mail = scene.chance(0.65)
    who, to = scene.recipients("find_email_address" if by_mail else "find_phone_number", most=2)
    if by_mail:
        scene.call("send_email", to=to, subject=thing.text, body=_value(scene, thing))
    else:
        scene.call("send_sms", to=to, text=_value(scene, thing))
    return scene.say(
        ("let {who} know {what}", "tell {who} {what}", "{who} should know {what}"),
        who=who,
        what=thing.text,
    )


def note(scene: Scene, thing: Thing) -> Clause:
    """Write it into a new note, or to the end of one there is."""
    title = f"{scene.pick(words.TOPICS)} {scene.pick(words.KINDS)}"
    if scene.chance(0.5):
        scene.call("create_note", title=title, text=_value(scene, thing))
        return scene.say(
            (
                "jot {what} down in a new note called {title}",
                "start a note {title} with {what}",
                "write {what} into a fresh note, {title}",
                "make a note of {what} under {title}",
            ),
            what=thing.text,
            title=title,
        )
    scene.call("append_to_note", note=title, text=_value(scene, thing))
    return scene.say(
        (
            "add {what} to my {title} note",
            "put {what} at the end of the note {title}",
            "append {what} to what I have in {title}",
            "extend my note {title} by {what}",
        ),
        what=thing.text,
        title=title,
    )


def row(scene: Scene, thing: Thing) -> Clause:
    """Add it to a spreadsheet."""
    name, path = things.file(scene, things.SHEETS)
    scene.call("append_row", file=path, values=thing.value)
    return scene.say(
        (
            "add {what} as a row to {name}",
            "record {what} in {name}",
            "put {what} on the last line of {name}",
        ),
        what=thing.text,
        name=name,
    )


def print_out(scene: Scene, thing: Thing) -> Clause:
    """Print it."""
    scene.call("print_document", file=thing.value)
    return scene.say(
        (
            "print {what}",
            "give me a hard copy of {what}",
            "put {what} on paper",
            "I need {what} on paper",
            "run {what} off on the printer",
        ),
        what=thing.text,
    )


def share(scene: Scene, thing: Thing) -> Clause:
    """Give people access to a file."""
    who, to = scene.recipients("find_email_address")
    scene.call("share_file", file=thing.value, people=to)
    return scene.say(
        (
            "share {what} with {who}",
            "give {who} access to {what}",
            "open {what} up for {who}",
            "{who} should be able to open {what}",
        ),
        who=who,
        what=thing.text,
    )


def show(scene: Scene, thing: Thing) -> Clause:
    """Only show it: no further tool."""
    if thing.is_file:
        return scene.say(
            (
                "open {what}",
                "get me {what}",
                "show me {what}",
                "let me have {what}",
                "I need {what}",
            ),
            what=thing.text,
        )
    return scene.say(
        (
            "tell me {what}",
            "find out {what}",
            "look up {what}",
            "let me know {what}",
            "give me {what}",
            "I want to know {what}",
            "I would like {what} here on the screen",
        ),
        what=thing.text,
    )
