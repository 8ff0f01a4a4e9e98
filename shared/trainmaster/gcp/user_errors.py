"""Errors of Google Cloud that a user can repair: missing or expired credentials, and missing permissions."""

from __future__ import annotations

from typing import Final

from google.api_core.exceptions import ClientError
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError, RefreshError

USER_ERRORS: Final = (ClientError, GoogleAuthError)
"""Types of such errors, as Google's clients raise them."""
LOG_IN: Final = "log in with `gcloud auth application-default login`"


def explain(error: BaseException) -> str | None:
    """Return one line that says what happened and what to do. None: the user cannot repair it."""
    match error:
        case DefaultCredentialsError():
            return f"no credentials for Google Cloud were found: {LOG_IN}"
        case RefreshError():
            return f"your credentials for Google Cloud have expired: {LOG_IN}"
        case GoogleAuthError():
            return f"your credentials for Google Cloud do not work ({error}): {LOG_IN}"
        case ClientError():
            reason = str(error.message).rstrip(".")
            return f"Google Cloud refused the request: {reason}. Run `trainmaster doctor` to see what to repair"
        case _:
            return None
