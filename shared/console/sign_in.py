"""Who may open the console: on loopback, whoever has the token that the command line printed, once.

Other users and web pages on the same machine reach the port, too. The address with the token works once and sets a
cookie that no script and no other site's page can use. Requests with a foreign `Host` are refused, so that a page
cannot reach the console under its own name (DNS rebinding).
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlsplit

from werkzeug.wrappers import Request


@dataclass(frozen=True, slots=True)
class User:
    name: str
    """Recorded in the ledger with what the user does."""
    session: str
    """Identifies the session, for tokens of forms."""


class SignIn(Protocol):
    """How users sign in."""

    def accepts_host(self, host: str) -> bool:
        """Whether the console has this name (and port)."""
        ...

    def user(self, request: Request) -> User | None:
        """Return the signed-in user of the request; None: nobody is signed in."""
        ...

    def exchange(self, token: str) -> tuple[str, str] | None:
        """Return the name and value of a session cookie for a one-time token; None: the token is wrong or was used."""
        ...


@dataclass
class LoopbackSignIn:
    """One user on one machine."""

    user_name: str
    hosts: tuple[str, ...] = ()
    """Names of the console with its port, once it listens; before, every request is refused."""
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    _session: str = ""
    _is_used: bool = False

    @property
    def cookie(self) -> str:
        """Name of the cookie. All ports of a host share their cookies, so the name has the port."""
        return f"trainmaster_console_{self.hosts[0].rpartition(':')[2]}"

    def accepts_host(self, host: str) -> bool:
        return host in self.hosts

    def user(self, request: Request) -> User | None:
        value = request.cookies.get(self.cookie, "")
        if not self._session or not hmac.compare_digest(value.encode(), self._session.encode()):
            return None
        return User(self.user_name, self._session)

    def exchange(self, token: str) -> tuple[str, str] | None:
        if self._is_used or not hmac.compare_digest(token.encode(), self.token.encode()):
            return None
        self._is_used = True
        self._session = secrets.token_urlsafe(32)
        return self.cookie, self._session


class FormTokens:
    """Tokens that prove that a form was rendered for its session. Another instance's tokens are not accepted."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def token(self, user: User) -> str:
        return hmac.new(self._key, user.session.encode(), hashlib.sha256).hexdigest()

    def forgery(self, request: Request, user: User) -> str | None:
        """Return why a POST request may have been made by another site's page; None: it was made by ours."""
        if request.headers.get("Sec-Fetch-Site") != "same-origin":
            return "Sec-Fetch-Site is not same-origin"
        if urlsplit(request.headers.get("Origin", "")).netloc != request.host:
            return "Origin is another site"
        if not hmac.compare_digest(request.form.get("token", "").encode(), self.token(user).encode()):
            return "the form's token is missing or outdated: reload the page"
        return None
