"""Forms that other sites' pages cannot send (cross-site request forgery).

A form carries a token that only its session's pages contain. The token is derived from the session,
so that every instance of the console accepts it.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final
from urllib.parse import urlsplit

from werkzeug.wrappers import Request

from trainmaster.console.sign_in import User

_PURPOSE: Final = b"form"


def form_token(user: User) -> str:
    """Return the token of the user's forms. The session cannot be derived from it."""
    return hmac.new(user.session.encode(), _PURPOSE, hashlib.sha256).hexdigest()


def forgery(request: Request, user: User) -> str | None:
    """Return why a POST request may have been made by another site's page; None: it was made by
    ours.
    """
    if request.headers.get("Sec-Fetch-Site") != "same-origin":
        return "Sec-Fetch-Site is not same-origin"
    if urlsplit(request.headers.get("Origin", "")).netloc != request.host:
        return "Origin is another site"
    if not hmac.compare_digest(request.form.get("token", "").encode(), form_token(user).encode()):
        return "the form's token is missing or outdated: reload the page"
    return None
