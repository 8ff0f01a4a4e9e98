"""The console as a WSGI application: sign-in, security headers and error pages around
the routes.
"""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Final

from flask import Flask, Response, current_app, g, render_template, request
from werkzeug.exceptions import HTTPException

from trainmaster.console import action_routes, page_routes
from trainmaster.console.actions import ActionDeniedError
from trainmaster.console.forgery import forgery
from trainmaster.console.pages.service import Console, NotFoundError
from trainmaster.console.rendering import (
    asset,
    current_form_token,
    machine_hours,
    moment,
    page_context,
)
from trainmaster.console.sign_in import Cookie, SignIn
from trainmaster.errors import PermanentError, TemporaryError
from trainmaster.presentation.durations import duration_words
from trainmaster.presentation.printable import finalize

HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    # With `no-referrer`, browsers would send `Origin: null` with the console's own forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    # Other sites may not load an answer, not even as an image or a script.
    "Cross-Origin-Resource-Policy": "same-origin",
}
FORM_BYTES_MAX: Final = 262_144
"""A job file of 64 KiB, encoded as a form."""

_CODES: Final[dict[type[Exception], HTTPStatus]] = {
    NotFoundError: HTTPStatus.NOT_FOUND,
    ActionDeniedError: HTTPStatus.FORBIDDEN,
}
_log = logging.getLogger(__name__)


def create_app(console: Console, sign_in: SignIn) -> Flask:
    """Return the application. `console` has the data that it shows; `sign_in` admits its users."""
    app = Flask(__name__, static_folder=None)
    app.config |= {"CONSOLE": console, "SIGN_IN": sign_in, "MAX_CONTENT_LENGTH": FORM_BYTES_MAX}
    app.jinja_env.trim_blocks = app.jinja_env.lstrip_blocks = True
    app.jinja_env.finalize = finalize
    app.jinja_env.filters |= {"moment": moment, "duration": duration_words, "hours": machine_hours}
    app.jinja_env.globals |= {"asset": asset, "form_token": current_form_token}
    app.register_blueprint(page_routes.routes)
    app.register_blueprint(action_routes.routes)
    app.before_request(_authenticate)
    app.after_request(_add_headers)
    for error_class in (PermanentError, TemporaryError, HTTPException):
        app.register_error_handler(error_class, _error_page)
    return app


def _authenticate() -> Response | None:
    """Refuse foreign hosts, exchange the one-time token, and require a session for
    everything else.
    """
    sign_in: SignIn = current_app.config["SIGN_IN"]
    g.user = None
    if not sign_in.accepts_host(request.host):
        text = "This console does not have the name in the request's Host header.\n"
        return Response(text, HTTPStatus.FORBIDDEN)
    if request.path == "/" and "token" in request.args:
        cookie = sign_in.exchange(request.args["token"])
        if cookie is None:
            return _unauthorized(f"This address has been used already. {sign_in.instructions}")
        g.cookie = cookie
        return Response(status=HTTPStatus.SEE_OTHER, headers={"Location": "/jobs"})
    user = sign_in.user(request)
    if user is None:
        return _unauthorized(f"You are not signed in. {sign_in.instructions}")
    g.user = user
    g.cookie = user.cookie
    if request.method in ("GET", "HEAD"):
        return None
    problem = forgery(request, user)
    return Response(f"Refused: {problem}.\n", HTTPStatus.FORBIDDEN) if problem else None


def _unauthorized(text: str) -> Response:
    return Response(f"{text}\n", HTTPStatus.UNAUTHORIZED, content_type="text/plain; charset=utf-8")


def _add_headers(response: Response) -> Response:
    """Add the security headers; let browsers keep static files, and ask again for
    everything else.
    """
    for name, value in HEADERS.items():
        response.headers[name] = value
    cookie: Cookie | None = g.get("cookie")
    if cookie:
        response.set_cookie(
            cookie.name,
            cookie.value,
            httponly=True,
            samesite="Lax",
            secure=cookie.is_secure,
            path="/",
        )
    if "Cache-Control" not in response.headers:
        response.headers["Cache-Control"] = "private, no-cache"
    return response


def _error_page(error: Exception) -> tuple[str, int]:
    if isinstance(error, HTTPException):
        code = error.code or HTTPStatus.INTERNAL_SERVER_ERROR
        text = error.description or ""
    elif isinstance(error, TemporaryError):
        code = HTTPStatus.SERVICE_UNAVAILABLE
        text = f"{error}. Reload the page in a moment."
        _log.warning("console: %s", error)
    else:
        code = _CODES.get(type(error), HTTPStatus.BAD_REQUEST)
        end = "" if str(error).endswith("?") else "."
        text = f"{error}{end}"
    return render_template("error.html", **page_context(), text=text, code=int(code)), code
