"""Errors of a setup, and retrying the calls that failed temporarily."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import TypeVar

from trainmaster.agent.google_http.http_call import HttpError, backoffs
from trainmaster.agent.model.results import TAIL_CHARS, SetupFailure
from trainmaster.agent.program.traceback_reader import MESSAGE_CHARS
from trainmaster.agent.reporting.serial_console import Console
from trainmaster.agent.workspace import Workspace

TRIES = 5  # after the last one, a transient failure is reported as the platform's
RETRY_MAX_S = 8.0  # longest wait between two tries

T = TypeVar("T")


class SetupError(Exception):
    """The VM could not be set up; `failure` goes into the replica-exit."""

    def __init__(self, failure: SetupFailure) -> None:
        super().__init__(failure.error["message"])
        self.failure = failure


def new_setup_error(
    error_type: str,
    message: str,
    *,
    transient: bool,
    exit_status: int | None = None,
    tail: str = "",
) -> SetupError:
    """Return the error of a failed setup.

    `transient`: whether another try may succeed. `exit_status`: of pip or the container engine.
    `tail`: the end of their output; the message, if it is empty.
    """
    error = {"type": error_type, "message": message[:MESSAGE_CHARS], "frame": ""}
    cause = "setup" if transient else "install"
    return SetupError(SetupFailure(cause, exit_status, error, tail or message[-TAIL_CHARS:]))


def retry_setup(
    step: Callable[[], None], workspace: Workspace, pause: Callable[[float], object]
) -> None:
    """Run a step up to TRIES times while its errors are transient. Raises the last SetupError."""
    waits = backoffs(RETRY_MAX_S)
    for tries in itertools.count(1):
        try:
            step()
        except SetupError as error:
            if error.failure.cause == "install" or tries == TRIES:
                raise
            workspace.log(f"{error}; trying again.")
            pause(next(waits))
        else:
            return


class Retrier:
    """Retries calls that failed temporarily, or because the access token had expired."""

    def __init__(self, console: Console, pause: Callable[[float], object] = time.sleep) -> None:
        self._console = console
        self._pause = pause

    def call(self, action: str, error_type: str, function: Callable[[], T]) -> T:
        """Call `function` up to TRIES times.

        Raises SetupError ``cannot ACTION: …`` of this type.
        """
        waits = backoffs(RETRY_MAX_S)
        tries = 0
        while True:
            tries += 1
            try:
                return function()
            except (HttpError, OSError) as error:
                is_transient = not isinstance(error, HttpError) or error.transient
                # After a 401 the next try uses a new token.
                may_retry = is_transient or is_unauthorized(error)
                if tries == TRIES or not may_retry:
                    raise new_setup_error(
                        error_type, f"cannot {action}: {error}", transient=is_transient
                    ) from error
                self._console.log(f"Cannot {action} ({error}); trying again.")
                self._pause(next(waits))


def is_unauthorized(error: Exception) -> bool:
    """Return whether Google has rejected the access token."""
    return isinstance(error, HttpError) and error.status == HTTPStatus.UNAUTHORIZED
