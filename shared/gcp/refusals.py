"""What Google says that a person can put right: credentials that are missing, or may too little."""

from __future__ import annotations

from google.api_core.exceptions import ClientError
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError, RefreshError

from shared.gcp.rest import RestError

LOG_IN = "log in with `gcloud auth application-default login`"


def told(error: BaseException) -> str | None:
    """One line with what to do, or None for what no person has caused."""
    match error:
        case DefaultCredentialsError():
            return f"no credentials for Google Cloud were found: {LOG_IN}"
        case RefreshError():
            return f"your credentials for Google Cloud have ended: {LOG_IN}"
        case GoogleAuthError():
            return f"your credentials for Google Cloud do not work ({error}): {LOG_IN}"
        case RestError() | ClientError():
            said = error.said if isinstance(error, RestError) else str(error.message)
            return f"Google Cloud refuses: {said.rstrip('.')}. `trainmaster doctor` says what to repair"
        case _:
            return None
