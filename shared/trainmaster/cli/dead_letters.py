"""`trainmaster dead-letters`: list, replay or delete the messages that no function could handle."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from trainmaster.cli.installation import choose_installation
from trainmaster.cli.options import OutputFormat
from trainmaster.cli.output import Format, complain, print_json, print_result, say
from trainmaster.errors import PermanentError
from trainmaster.messaging.authenticate import IDENTITY_ATTRIBUTE
from trainmaster.settings import settings

if TYPE_CHECKING:
    from trainmaster.gcp.tools.dead_letter_box import DeadLetter, DeadLetterBox

app = typer.Typer(
    help="Messages that no function could handle: list, replay, or drop them.",
    no_args_is_help=True,
    add_completion=False,
)

Ids = Annotated[
    list[str] | None, typer.Argument(metavar="[ID]...", help="Message ids, as `list` shows them.")
]
All = Annotated[bool, typer.Option("--all", help="Select all messages.")]


@app.command("list")
def list_(form: OutputFormat = Format.TABLE) -> None:
    """List the messages, the oldest first."""
    letters = _open_box().list_letters()
    if not letters:
        _complain_of_none()
    rows = [(letter.id, _time(letter.at), letter.topic or "-", letter.reason) for letter in letters]
    print_result(form, map(_describe, letters), ("id", "since", "topic", "reason"), rows)


@app.command()
def show(
    message_id: Annotated[
        str, typer.Argument(metavar="ID", help="Message id, as `list` shows it.")
    ],
) -> None:
    """Show one message in full."""
    for letter in _open_box().list_letters():
        if letter.id == message_id:
            print_json(_describe(letter))
            return
    raise PermanentError(
        f"no dead letter has the id {message_id}. `trainmaster dead-letters list` shows all ids"
    )


@app.command()
def replay(ids: Ids = None, everything: All = False) -> None:
    """Handle messages again. Repeating it is safe: an event is recorded only once."""
    from trainmaster.cli.dead_letter_replay import replay_agent_event

    # The others are published again. An agent's event would be rejected then: its identity token
    # has expired.
    replayed = _open_box().replay(_selected(ids, everything), replay_agent_event)
    _report("replayed", replayed.done)
    for letter, reason in replayed.kept:
        say(f"kept {letter.id} ({letter.topic}): {reason}")
    raise typer.Exit(int(bool(replayed.kept)))


@app.command()
def drop(ids: Ids = None, everything: All = False) -> None:
    """Delete messages. This cannot be undone."""
    _report("dropped", _open_box().drop(_selected(ids, everything)))


def _open_box() -> DeadLetterBox:
    from trainmaster.gcp.tools.dead_letter_box import DeadLetterBox

    choose_installation()
    return DeadLetterBox(settings().project)


def _selected(ids: Sequence[str] | None, everything: bool) -> Sequence[str] | None:
    """Return the ids; None selects all messages.

    Raises PermanentError unless exactly one of the two is given.
    """
    if bool(ids) is everything:
        raise PermanentError("no messages selected: give their ids, or --all, but not both")
    return None if everything else ids


def _report(action: str, letters: Sequence[DeadLetter]) -> None:
    for letter in letters:
        say(f"{action} {letter.id} ({letter.topic or 'unknown topic'})")
    if not letters:
        _complain_of_none()


def _complain_of_none() -> None:
    from trainmaster.gcp.tools.dead_letter_box import PULL_S

    complain(
        f"No dead letters arrived within {PULL_S:.0f} seconds. If your connection is slow, one of"
        " many megabytes may be on its way: repeat the command after a minute."
    )


def _describe(letter: DeadLetter) -> dict[str, object]:
    text = letter.data.decode("utf-8", "replace")
    try:
        data: object = json.loads(text)
    except (ValueError, RecursionError):
        data = text
    return {
        "id": letter.id,
        "since": _time(letter.at),
        "topic": letter.topic,
        "reason": letter.reason,
        "data": data,
        "attributes": {
            name: _without_token(name, value) for name, value in letter.attributes.items()
        },
    }


def _without_token(name: str, value: str) -> str:
    """Hide the parts of an identity token."""
    return "(token hidden)" if name.startswith(IDENTITY_ATTRIBUTE) else value


def _time(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
