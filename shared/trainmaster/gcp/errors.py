"""Errors of Google's clients as the two families of `trainmaster.errors`.

    5xx, 429, no connection                  TemporaryError: Pub/Sub redelivers the event
    401, 403, no valid credentials,          passed on unchanged: an operator can repair them, so
    412 of an organisation policy            the event must stay in Pub/Sub, and `explain` says on
                                             the command line what to do
    a missing Firestore index or database    RefusedError with what to do: an index may still be
                                             building, and the event must stay in Pub/Sub
    any other 4xx                            PermanentError: the same call would fail again

The fleets know more: the sweep, every minute, repeats each of their calls, so none of their errors
is permanent (`compute_fleet.errors`, `tpu_fleet.errors`).

The table does not contain lost races. Only commits can lose one, so `gcp.firestore.store`
recognises them there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

# Imported for its exceptions only: Google's REST clients do not translate them.
import requests
from google.api_core import exceptions
from google.auth.exceptions import (
    DefaultCredentialsError,
    GoogleAuthError,
    RefreshError,
    TransportError,
)

from trainmaster.errors import PermanentError, RefusedError, TemporaryError

TIMEOUTS: Final = (requests.Timeout, exceptions.GatewayTimeout)
"""Raised by Google's REST clients if a call takes longer than its deadline."""

NO_CONNECTION: Final = (requests.RequestException, TransportError)
"""Raised by Google's REST clients and sessions if no response arrives."""
USER_ERRORS: Final = (exceptions.ClientError, GoogleAuthError)
"""Types of errors that a user can repair, as Google's clients raise them."""
LOG_IN: Final = "log in with `gcloud auth application-default login`"
_REPAIRABLE: Final = (exceptions.Unauthorized, exceptions.Forbidden)
REPAIRABLE: Final = "Google refuses the call, which an operator can repair"
"""Begins the text of a `RefusedError` whose cause is known to be of this kind."""
_REFUSED: Final = "Google refuses the call"
_POLICY: Final = re.compile(r"\bconstraints/|\bconstraint\b.*\bviolated\b", re.IGNORECASE)
"""Google's sentences about an organisation policy that forbids a call."""
_TRANSIENT: Final = (
    exceptions.ServerError,
    exceptions.TooManyRequests,
    exceptions.Aborted,
    exceptions.Cancelled,
    exceptions.RetryError,
)
REQUEST_TIMEOUT: Final = 408
"""The client library has no class of its own for this status."""
_MISSING_DATABASE: Final = re.compile(
    r"[Dd]atabase .*does not exist|does not contain an active .*database"
)
_CALL: Final = re.compile(r"^(?:GET|POST|PUT|PATCH|DELETE) \S+: ")
"""The text that Google's REST clients put before Google's own sentence."""
_MISSING_INDEX: Final = "requires an index"

Translation = Callable[[exceptions.GoogleAPICallError], Exception | None]
"""Returns the exception to raise in place of one of Google's; None: raise Google's own."""


def translate(error: exceptions.GoogleAPIError) -> Exception | None:
    """Translate as the table of this module says. None: raise the error unchanged."""
    if is_refusal(error):
        return None
    if is_transient(error):
        return TemporaryError(describe(error))
    if is_missing_database(error):
        return RefusedError(
            f"{describe(error)} Create the Firestore database: `terraform apply` in infra/"
        )
    if isinstance(error, exceptions.FailedPrecondition) and _MISSING_INDEX in str(error):
        return RefusedError(
            f"{describe(error)} `terraform apply` in infra/ creates all indexes; a new one is ready"
            " after some minutes"
        )
    return PermanentError(describe(error))


def is_transient(error: BaseException) -> bool:
    """Whether the same call may succeed later."""
    code = getattr(error, "code", None)
    return isinstance(error, (*_TRANSIENT, *NO_CONNECTION)) or code == REQUEST_TIMEOUT


def is_refusal(error: BaseException) -> bool:
    """Whether an operator can repair the error: credentials, a permission, a disabled API,
    billing, an organisation policy.
    """
    if isinstance(error, exceptions.ClientError) and violates_policy(str(error)):
        return True
    return isinstance(error, _REPAIRABLE)


def violates_policy(message: str) -> bool:
    """Whether Google's sentence says that an organisation policy forbids the call.

    Compute Engine reports that with 412, whatever the policy is.
    """
    return _POLICY.search(message) is not None


def refused(error: exceptions.GoogleAPICallError, text: str) -> RefusedError:
    """Return the error of a refused call. `text`: Google's reason and sentence."""
    return RefusedError(f"{REPAIRABLE if is_refusal(error) else _REFUSED}: {text}")


def is_outage(error: Exception) -> bool:
    """Whether a part of Google fails (5xx, no answer in time, repeated or not), unlike a refusal or
    a rate limit.
    """
    cause = error.cause if isinstance(error, exceptions.RetryError) else error
    return isinstance(cause, (exceptions.ServerError, requests.Timeout))


def is_missing_database(error: exceptions.GoogleAPIError) -> bool:
    """Whether the project has no Firestore database, which Google reports as it reports a missing
    document.
    """
    if not isinstance(error, exceptions.NotFound):
        return False
    return _MISSING_DATABASE.search(str(error)) is not None


def describe(error: exceptions.GoogleAPIError) -> str:
    """Return the status and Google's sentence; of a repeated call, those of the last try."""
    if isinstance(error, exceptions.RetryError) and error.cause is not None:
        return str(error.cause)
    return str(error)


@contextmanager
def google_errors(action: str, translation: Translation | None = None) -> Iterator[None]:
    """Raise TemporaryError or PermanentError in place of the errors of Google's clients.

    `action` is what is being done, such as `delete tm-digits-worker-0`, and begins the message.
    """
    try:
        yield
    except exceptions.GoogleAPIError as error:
        if isinstance(error, exceptions.GoogleAPICallError) and translation is not None:
            translated = translation(error)
        else:
            translated = translate(error)
        if translated is None:
            raise
        raise type(translated)(f"{action}: {translated}") from error
    except NO_CONNECTION as error:
        raise TemporaryError(f"{action}: {error}") from error
    except GoogleAuthError as error:
        if not error.retryable:
            raise
        raise TemporaryError(f"{action}: {error}") from error


def explain(error: BaseException) -> str | None:
    """Return one line that says what happened and what to do. None: the user cannot repair it."""
    match error:
        case DefaultCredentialsError():
            return f"no credentials for Google Cloud were found: {LOG_IN}"
        case RefreshError():
            return f"your credentials for Google Cloud have expired: {LOG_IN}"
        case GoogleAuthError():
            return f"your credentials for Google Cloud do not work ({error}): {LOG_IN}"
        case exceptions.ClientError():
            reason = _CALL.sub("", str(error.message)).rstrip(".")
            refusal = f"Google Cloud refused the request: {reason}"
            if isinstance(error, exceptions.BadRequest):  # a value is wrong, not the installation
                return refusal
            return f"{refusal}. Run `trainmaster doctor` to see what to repair"
        case _:
            return None
