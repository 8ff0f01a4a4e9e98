"""Signing in to the console on loopback, with the token that the command line printed.

It works once.

Other users and web pages on the same machine reach the port, too. The address with the token works
once and sets a cookie that no script and no form or frame of another site can use. The console has
a random name. Other servers of the machine have other names, so that they do not get the cookie.
Requests with another `Host` are refused, so that a page cannot reach the console under its own name
(DNS rebinding). docs/decisions/console-and-local-stack.md#decision-120
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass, field
from typing import Final, Protocol

from werkzeug.wrappers import Request

SECRET_BYTES: Final = 32
"""Random bytes of a token or a session: they cannot be guessed."""


@dataclass(frozen=True, slots=True)
class Cookie:
    """A cookie of a session, which scripts cannot read.

    It is sent with links from other sites, but not with their forms: users come from a sign-in at
    another site, or from a file.
    """

    name: str
    value: str
    is_secure: bool = False
    """Whether browsers send it over TLS only."""


@dataclass(frozen=True, slots=True)
class User:
    """A signed-in user."""

    name: str
    """Recorded in the ledger with what the user does."""
    session: str
    """Secret of the session, from which tokens of forms are derived."""
    cookie: Cookie | None = None
    """Cookie that the response sets; None: the browser has it."""


class SignIn(Protocol):
    """A way to sign in to the console."""

    @property
    def instructions(self) -> str:
        """Instructions for a visitor who is not signed in."""
        ...

    def accepts_host(self, host: str) -> bool:
        """Return whether the console has this name (and port)."""
        ...

    def user(self, request: Request) -> User | None:
        """Return the signed-in user of the request. None: the request has no valid session."""
        ...

    def exchange(self, token: str) -> Cookie | None:
        """Return a session cookie for a one-time token; None: the token is wrong or was used."""
        ...


@dataclass
class LoopbackSignIn:
    """One user on one machine."""

    user_name: str
    hosts: tuple[str, ...] = ()
    """Names of the console with its port, once it listens; before, every request is refused."""
    token: str = field(default_factory=lambda: secrets.token_urlsafe(SECRET_BYTES))
    _session: str = ""
    _is_used: bool = False
    instructions: str = "Run `trainmaster console` and open the address that it prints."

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

    def exchange(self, token: str) -> Cookie | None:
        if self._is_used or not hmac.compare_digest(token.encode(), self.token.encode()):
            return None
        self._is_used = True
        self._session = secrets.token_urlsafe(SECRET_BYTES)
        return Cookie(self.cookie, self._session)
