"""Sign-in behind Identity-Aware Proxy (IAP): a user is signed in if the request has a valid
assertion of IAP.

IAP admits users and groups that have its role in IAM. The console verifies every request itself, so
that a request that reaches it without IAP is refused. IAP passes no credentials of the user: the
console acts with its own, and records the user's e-mail address.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from werkzeug.wrappers import Request

from trainmaster.console.sign_in import SECRET_BYTES, Cookie, User
from trainmaster.errors import PermanentError

ASSERTION: Final = "X-Goog-IAP-JWT-Assertion"
COOKIE: Final = "__Host-trainmaster-console"
"""Browsers accept a cookie with this prefix only from this host, and only over TLS."""

_log = logging.getLogger(__name__)


class AdmittedUser(Protocol):
    """A user in a verified assertion."""

    @property
    def subject(self) -> str: ...

    @property
    def email(self) -> str: ...


@dataclass(frozen=True, slots=True)
class IapSignIn:
    """Sign-in of the users that IAP admits. See `trainmaster.console.sign_in.SignIn`."""

    verify: Callable[[str], AdmittedUser]
    """Returns the user of an assertion. Raises PermanentError for one that is not valid."""
    instructions: str = (
        "Requests reach this console through Identity-Aware Proxy only. Open its address in a"
        " browser."
    )

    def accepts_host(self, host: str) -> bool:  # noqa: ARG002
        # Google's front end has chosen this Cloud Run service by its name.
        return True

    def user(self, request: Request) -> User | None:
        """Return the user of a verified assertion.

        The session is a random cookie, bound to the user.
        """
        try:
            admitted = self.verify(request.headers.get(ASSERTION, ""))
        except PermanentError as error:
            _log.warning("console: %s", error)
            return None
        known = request.cookies.get(COOKIE)
        secret = known or secrets.token_urlsafe(SECRET_BYTES)
        cookie = None if known else Cookie(COOKIE, secret, is_secure=True)
        return User(admitted.email, f"{admitted.subject} {secret}", cookie)

    def exchange(self, token: str) -> Cookie | None:  # noqa: ARG002
        # Addresses of this console have no tokens.
        return None
