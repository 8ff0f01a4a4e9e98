"""Why a replica could not be set up, and trying again what may pass."""

from __future__ import annotations

import time
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, TypeVar

from shared.agent.http.calls import HttpError, backoffs
from shared.agent.program.program import TAIL_CHARS
from shared.agent.program.tracebacks import MESSAGE_CHARS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shared.agent.reporting.serial_console import Console

TRIES = 5  # before a transient failure counts as the platform's

T = TypeVar("T")


@dataclass(frozen=True)
class Failure:
    """``cause``: ``install`` (for good) or ``setup`` (this time)."""

    cause: str
    exit_status: int | None
    error: Mapping[str, str]
    tail: str


class SetupError(Exception):
    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.error["message"])
        self.failure = failure


def failed(kind: str, message: str, *, transient: bool, exit_status: int | None = None, tail: str = "") -> SetupError:
    error = {"type": kind, "message": message[:MESSAGE_CHARS], "frame": ""}
    return SetupError(Failure("setup" if transient else "install", exit_status, error, tail or message[-TAIL_CHARS:]))


class Patience:
    """Tries again what may pass: calls that did not get through, and those that were refused for an old token."""

    def __init__(self, console: Console, pause: Callable[[float], object] = time.sleep) -> None:
        self._console = console
        self._pause = pause

    def ask(self, what: str, kind: str, call: Callable[[], T]) -> T:
        """Raises SetupError: ``cannot WHAT: …`` of this kind."""
        waits = backoffs(8.0)
        left = TRIES
        while True:
            left -= 1
            try:
                return call()
            except (HttpError, OSError) as error:
                # 401: the token was no longer good, the next try asks for another one.
                refused = (
                    isinstance(error, HttpError)
                    and not error.transient
                    and (error.status != HTTPStatus.UNAUTHORIZED or not left)
                )
                if refused or not left:
                    raise failed(kind, f"cannot {what}: {error}", transient=not refused) from error
                self._console.say(f"Cannot {what} ({error}); trying again.")
                self._pause(next(waits))
