"""The console as a WSGI application: routes, sign-in, security headers and entity tags."""

from __future__ import annotations

import hashlib
import logging
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs

from flask import Blueprint, Flask, Response, current_app, g, redirect, render_template, request
from werkzeug.exceptions import HTTPException

from shared.console import tuning_plots
from shared.console.durations import duration_words
from shared.console.pages.installation_page import read_installation_page
from shared.console.pages.job_list import read_filters, read_job_list
from shared.console.pages.job_page import View, find_job, read_job_page
from shared.console.pages.log_page import SEVERITIES, read_log_filters, read_log_page
from shared.console.pages.replica_page import read_replica_page
from shared.console.pages.service import Console, NotFoundError
from shared.console.sign_in import FormTokens, SignIn, User
from shared.core.model.job import JobState, tuning_of
from shared.errors import PermanentError, TemporaryError
from shared.presentation.job_view import job_view

POLL_JOB_S: Final = 5
POLL_LIST_S: Final = 10
POLL_INSTALLATION_S: Final = 60
STATIC: Final = Path(__file__).parent / "static"
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    # With `no-referrer`, browsers would send `Origin: null` with the console's own forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
FORM_BYTES_MAX: Final = 65_536

_log = logging.getLogger(__name__)
_pages = Blueprint("console", __name__)


def create_app(console: Console, sign_in: SignIn) -> Flask:
    """Return the application. `console` says what it shows, `sign_in` who may see it."""
    app = Flask(__name__, static_folder=None)
    app.config |= {"CONSOLE": console, "SIGN_IN": sign_in, "TOKENS": FormTokens(), "MAX_CONTENT_LENGTH": FORM_BYTES_MAX}
    app.jinja_env.trim_blocks = app.jinja_env.lstrip_blocks = True
    app.jinja_env.filters |= {"moment": moment, "duration": duration_words, "hours": _hours}
    app.jinja_env.globals |= {"asset": asset, "form_token": _form_token}
    app.register_blueprint(_pages)
    app.before_request(_authenticate)
    app.after_request(_add_headers)
    for error_class in (PermanentError, TemporaryError, HTTPException):
        app.register_error_handler(error_class, _error_page)
    return app


def moment(at: datetime | None) -> str:
    """Format a time for people: UTC, to the second."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S") if at else ""


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.2f}"


@cache
def asset(name: str) -> str:
    """Return the address of a static file, with its hash, so that browsers may keep it for ever."""
    return f"/static/{name}?{hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:16]}"


def _console() -> Console:
    console: Console = current_app.config["CONSOLE"]
    return console


def _form_token() -> str:
    tokens: FormTokens = current_app.config["TOKENS"]
    return tokens.token(g.user)


def _authenticate() -> Response | None:
    """Refuse foreign hosts, exchange the one-time token, and require a session for everything else."""
    sign_in: SignIn = current_app.config["SIGN_IN"]
    g.user = None
    if not sign_in.accepts_host(request.host):
        return Response("This console does not have the name in the request's Host header.\n", 403)
    if request.path == "/" and "token" in request.args:
        cookie = sign_in.exchange(request.args["token"])
        if cookie is None:
            return _unauthorized("This address was used already. Run `trainmaster console` again for a new one.")
        response = Response(status=303, headers={"Location": "/jobs"})
        response.set_cookie(*cookie, httponly=True, samesite="Strict", path="/")
        return response
    user = sign_in.user(request)
    if user is None:
        return _unauthorized("Nobody is signed in. Run `trainmaster console` and open the address that it prints.")
    g.user = user
    tokens: FormTokens = current_app.config["TOKENS"]
    if request.method not in ("GET", "HEAD") and (problem := tokens.forgery(request, user)):
        return Response(f"Refused: {problem}.\n", 403)
    return None


def _unauthorized(text: str) -> Response:
    return Response(f"{text}\n", 401, content_type="text/plain; charset=utf-8")


def _add_headers(response: Response) -> Response:
    """Add the security headers; let browsers keep static files, and ask again for everything else."""
    for name, value in HEADERS.items():
        response.headers[name] = value
    if "Cache-Control" not in response.headers:
        response.headers["Cache-Control"] = "private, no-cache"
    return response


def _error_page(error: Exception) -> tuple[str, int]:
    if isinstance(error, HTTPException):
        code, text = error.code or 500, error.description or ""
    elif isinstance(error, TemporaryError):
        code, text = 503, f"{error}. Reload the page in a moment."
        _log.warning("console: %s", error)
    else:
        code, text = 404 if isinstance(error, NotFoundError) else 400, f"{error}."
    return render_template("error.html", **_context(), text=text, code=code), code


def _context() -> dict[str, Any]:
    """Return what every page shows."""
    console, user = _console(), g.get("user")
    return {"project": console.project, "user": user, "may_act": console.cancel is not None, "states": tuple(JobState)}


def _page(template: str, poll_s: int | None = None, **values: Any) -> Response:
    """Render a page. The entity tag lets polls of an unchanged page end with status 304.

    The tag covers everything but the time of the page, which every poll would change.
    """
    body = render_template(template, **_context(), poll_s=poll_s, **values)
    response = Response(body, content_type="text/html; charset=utf-8")
    response.set_etag(hashlib.sha256(body.encode()).hexdigest()[:32])
    response.make_conditional(request)
    return response


def _flag(name: str) -> bool:
    return request.args.get(name) == "1"


@_pages.get("/static/<path:name>")
def static_file(name: str) -> Response:
    path = (STATIC / name).resolve()
    if not path.is_relative_to(STATIC) or not path.is_file():
        raise NotFoundError(f"there is no file {name}")
    kind = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}[path.suffix]
    headers = {"Cache-Control": "private, max-age=31536000, immutable"}
    return Response(path.read_bytes(), headers=headers, content_type=f"{kind}; charset=utf-8")


@_pages.get("/")
def start() -> Any:
    return redirect("/jobs", 302)


@_pages.get("/jobs")
def jobs() -> Response:
    filters = read_filters(parse_qs(request.query_string.decode(errors="replace")))
    return _page("jobs.html", None if filters.after else POLL_LIST_S, page=read_job_list(_console(), filters))


@_pages.get("/jobs.json")
def jobs_json() -> dict[str, Any]:
    console = _console()
    page = read_job_list(console, read_filters(parse_qs(request.query_string.decode(errors="replace"))))
    return {"jobs": [job_view(row.job, project=console.project) for row in page.rows], "nextPage": page.next_page}


@_pages.get("/jobs/<job_id>")
def job(job_id: str) -> Response:
    view = View(request.args.get("replica", ""), _flag("all"), _flag("replicas"), _flag("gaps"))
    page = read_job_page(_console(), job_id, view)
    poll_s = None if page.job.state.is_terminal else POLL_JOB_S
    if page.job.tuning is None:
        return _page("job.html", poll_s, page=page, job=page.job)
    tuning = tuning_of(page.job)
    plots = tuning_plots.objective_plot(tuning), tuning_plots.parallel_coordinates(tuning)
    return _page("tuning.html", poll_s, page=page, job=page.job, tuning=tuning, objective=plots[0], parallel=plots[1])


@_pages.get("/jobs/<job_id>.json")
def job_json(job_id: str) -> dict[str, Any]:
    console = _console()
    found = find_job(console, job_id)
    loaded = console.store.load_attempt(job_id)
    return job_view(found, loaded.state.replicas if loaded else (), console.project)


@_pages.get("/jobs/<job_id>/logs")
def logs(job_id: str) -> Response:
    page = read_log_page(_console(), job_id, read_log_filters(request.args.to_dict()))
    is_live = not page.job.state.is_terminal and not page.filters.before and not page.filters.around
    return _page("logs.html", POLL_JOB_S if is_live else None, page=page, job=page.job, severities=SEVERITIES)


@_pages.get("/jobs/<job_id>/replicas/<replica>")
def replica(job_id: str, replica: str) -> Response:
    page = read_replica_page(_console(), job_id, replica)
    return _page("replica.html", page=page, job=page.job)


@_pages.get("/jobs/<job_id>/cancel")
def confirm_cancel(job_id: str) -> Response:
    page = read_job_page(_console(), job_id, View())
    return _page("cancel.html", page=page, job=page.job)


@_pages.post("/jobs/<job_id>/cancel")
def cancel(job_id: str) -> Any:
    """Cancel the job as the signed-in user. Repeating it changes nothing: a job is cancelled once."""
    console, user = _console(), g.user
    if console.cancel is None or not isinstance(user, User):
        return Response("Refused: this console is read-only.\n", 403)
    console.cancel(find_job(console, job_id).job_id, user.name)
    return redirect(f"/jobs/{job_id}", 303)


@_pages.get("/installation")
def installation() -> Response:
    return _page("installation.html", POLL_INSTALLATION_S, page=read_installation_page(_console()))


@_pages.get("/help")
def keys() -> Response:
    return _page("help.html")
