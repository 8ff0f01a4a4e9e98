"""`trainmaster dead-letters`: what could never be handled, and what to do with it once the cause is repaired."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from cli.installation import choose
from cli.jobs import Form
from cli.output import Format, print_json, print_table, say
from shared.errors import PermanentError
from shared.flows import sender_identity
from shared.settings import settings

if TYPE_CHECKING:
    from shared.gcp.dead_letter_box import DeadLetter, DeadLetterBox

app = typer.Typer(help="Messages that could never be handled: see them, replay them, drop them.", no_args_is_help=True)

Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Of messages, as list shows them.")]
All = Annotated[bool, typer.Option("--all", help="All of them.")]


@app.command("list")
def list_(form: Form = Format.TABLE) -> None:
    """List them, the oldest first."""
    letters = _open().look()
    if form is Format.JSON:
        print_json([_shown(letter) for letter in letters])
        return
    rows = [(each.id, _time(each.at), each.topic or "-", each.reason) for each in letters]
    print_table(("id", "since", "topic", "reason"), rows)


@app.command()
def show(message_id: Annotated[str, typer.Argument(metavar="ID", help="Of a message, as list shows it.")]) -> None:
    """Show one message, whole."""
    for letter in _open().look():
        if letter.id == message_id:
            print_json(_shown(letter))
            return
    raise PermanentError(f"no dead letter {message_id}: `trainmaster dead-letters list` shows them")


@app.command()
def replay(ids: Ids = None, everything: All = False) -> None:
    """Try messages again. Safe to repeat: an event that was judged is judged once."""
    from cli.dead_letter_replay import judged_here

    replayed = _open().replay(_wanted(ids, everything), judged_here)
    _report("replayed", replayed.done)
    for letter, why in replayed.kept:
        say(f"kept {letter.id} ({letter.topic}): {why}")
    raise typer.Exit(int(bool(replayed.kept)))


@app.command()
def drop(ids: Ids = None, everything: All = False) -> None:
    """Throw messages away, for good."""
    _report("dropped", _open().drop(_wanted(ids, everything)))


def _open() -> DeadLetterBox:
    from shared.gcp.dead_letter_box import DeadLetterBox

    choose()
    return DeadLetterBox(settings().project)


def _wanted(ids: Sequence[str] | None, everything: bool) -> Sequence[str] | None:
    if bool(ids) is everything:
        raise PermanentError("which ones? Name them by their ids, or say --all")
    return None if everything else ids


def _report(done: str, letters: Sequence[DeadLetter]) -> None:
    for letter in letters:
        say(f"{done} {letter.id} ({letter.topic or 'of no known topic'})")
    if not letters:
        say("nothing is there")


def _shown(letter: DeadLetter) -> dict[str, object]:
    text = letter.data.decode("utf-8", "replace")
    try:
        said: object = json.loads(text)
    except ValueError:
        said = text
    return {
        "id": letter.id,
        "since": _time(letter.at),
        "topic": letter.topic,
        "reason": letter.reason,
        "data": said,
        "attributes": {name: _seen(name, value) for name, value in letter.attributes.items()},
    }


def _seen(name: str, value: str) -> str:
    return "(of a token)" if name.startswith(sender_identity.ATTRIBUTE) else value


def _time(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
