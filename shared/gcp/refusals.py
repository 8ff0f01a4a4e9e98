"""What Google's libraries raise for what a person can put right: credentials that are missing, or may too little."""

from __future__ import annotations

from google.api_core.exceptions import ClientError
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError, RefreshError

LOG_IN = "log in with `gcloud auth application-default login`"


def told(error: BaseException) -> str | None:
    """One line with what to do, or None for what no person has caused."""
    if isinstance(error, DefaultCredentialsError):
        return f"no credentials for Google Cloud were found: {LOG_IN}"
    if isinstance(error, RefreshError):
        return f"your credentials for Google Cloud have ended: {LOG_IN}"
    if isinstance(error, GoogleAuthError):
        return f"your credentials for Google Cloud do not work ({error}): {LOG_IN}"
    if isinstance(error, ClientError):
        return f"Google Cloud refuses: {str(error.message).rstrip('.')}. `trainmaster doctor` says what to repair"
    return None
