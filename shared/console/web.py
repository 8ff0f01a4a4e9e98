"""The console as a WSGI application: routes, sign-in, security headers and entity tags."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qs

from flask import Blueprint, Flask, Response, current_app, g, redirect, render_template, request
from werkzeug.exceptions import HTTPException

from shared.console import action_routes, tuning_plots
from shared.console.actions import ActionDeniedError
from shared.console.durations import duration_words
from shared.console.forgery import forgery
from shared.console.pages.installation_page import read_installation_page
from shared.console.pages.job_filters import read_filters
from shared.console.pages.job_list import read_job_list
from shared.console.pages.job_page import find_job, read_job_page
from shared.console.pages.log_download import read_log_file
from shared.console.pages.log_page import SEVERITIES, read_log_filters, read_log_page
from shared.console.pages.replica_page import read_replica_page
from shared.console.pages.resources_page import RANGES, read_resource_filters, read_resources_page
from shared.console.pages.service import Console, NotFoundError
from shared.console.pages.view import View
from shared.console.printable import finalize
from shared.console.rendering import (
    ASSETS,
    STATIC,
    asset,
    current_form_token,
    machine_hours,
    moment,
    page_context,
)
from shared.console.rendering import console_of_app as _console
from shared.console.rendering import render_page as _page
from shared.console.sign_in import Cookie, SignIn
from shared.console.tuning_brush import read_brushes, selected_trials
from shared.console.tuning_order import read_order, sorted_trials
from shared.core.model.job import tuning_of
from shared.errors import PermanentError, TemporaryError
from shared.presentation.job_view import job_view

POLL_JOB_S: Final = 5
POLL_LIST_S: Final = 10
POLL_SCANNED_LIST_S: Final = 60
"""The interval for lists whose filter needs the newest `job_counts.JOBS_READ_MAX` jobs."""
POLL_INSTALLATION_S: Final = 60
POLL_RESOURCES_S: Final = 60
TRIALS_MAX: Final = 200
"""Rows of trials, the first in the chosen order, unless the user asks for all."""
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    # With `no-referrer`, browsers would send `Origin: null` with the console's own forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
FORM_BYTES_MAX: Final = 262_144
"""A job file of 64 KiB, encoded as a form."""

_CODES: Final[dict[type[Exception], HTTPStatus]] = {
    NotFoundError: HTTPStatus.NOT_FOUND,
    ActionDeniedError: HTTPStatus.FORBIDDEN,
}
_log = logging.getLogger(__name__)
_pages = Blueprint("console", __name__)


def create_app(console: Console, sign_in: SignIn) -> Flask:
    """Return the application. `console` has the data that it shows; `sign_in` admits its users."""
    app = Flask(__name__, static_folder=None)
    app.config |= {"CONSOLE": console, "SIGN_IN": sign_in, "MAX_CONTENT_LENGTH": FORM_BYTES_MAX}
    app.jinja_env.trim_blocks = app.jinja_env.lstrip_blocks = True
    app.jinja_env.finalize = finalize
    app.jinja_env.filters |= {"moment": moment, "duration": duration_words, "hours": machine_hours}
    app.jinja_env.globals |= {"asset": asset, "form_token": current_form_token}
    app.register_blueprint(_pages)
    app.register_blueprint(action_routes.routes)
    app.before_request(_authenticate)
    app.after_request(_add_headers)
    for error_class in (PermanentError, TemporaryError, HTTPException):
        app.register_error_handler(error_class, _error_page)
    return app


def _authenticate() -> Response | None:
    """Refuse foreign hosts, exchange the one-time token, and require a session for everything else."""
    sign_in: SignIn = current_app.config["SIGN_IN"]
    g.user = None
    if not sign_in.accepts_host(request.host):
        return Response("This console does not have the name in the request's Host header.\n", 403)
    if request.path == "/" and "token" in request.args:
        cookie = sign_in.exchange(request.args["token"])
        if cookie is None:
            return _unauthorized(f"This address was used already. {sign_in.instructions}")
        g.cookie = cookie
        return Response(status=303, headers={"Location": "/jobs"})
    user = sign_in.user(request)
    if user is None:
        return _unauthorized(f"Nobody is signed in. {sign_in.instructions}")
    g.user, g.cookie = user, user.cookie
    if request.method not in ("GET", "HEAD") and (problem := forgery(request, user)):
        return Response(f"Refused: {problem}.\n", 403)
    return None


def _unauthorized(text: str) -> Response:
    return Response(f"{text}\n", 401, content_type="text/plain; charset=utf-8")


def _add_headers(response: Response) -> Response:
    """Add the security headers; let browsers keep static files, and ask again for everything else."""
    for name, value in HEADERS.items():
        response.headers[name] = value
    cookie: Cookie | None = g.get("cookie")
    if cookie:
        response.set_cookie(
            cookie.name, cookie.value, httponly=True, samesite=cookie.same_site, secure=cookie.is_secure, path="/"
        )
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
        code, text = _CODES.get(type(error), HTTPStatus.BAD_REQUEST), f"{error}."
    return render_template("error.html", **page_context(), text=text, code=int(code)), code


def _flag(name: str) -> bool:
    return request.args.get(name) == "1"


@_pages.get(f"{ASSETS}/<path:name>")
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
    poll_s = POLL_SCANNED_LIST_S if filters.needs_scan else POLL_LIST_S
    return _page("jobs.html", None if filters.after else poll_s, page=read_job_list(_console(), filters))


@_pages.get("/jobs.json")
def jobs_json() -> dict[str, Any]:
    console = _console()
    page = read_job_list(console, read_filters(parse_qs(request.query_string.decode(errors="replace"))))
    return {
        "jobs": [job_view(row.job, project=console.project) for row in page.rows],
        "nextPage": page.next_page,
        "total": page.total,
        "states": page.counts.by_state,
        "countedNewest": page.counts.newest,
    }


@_pages.get("/jobs/<job_id>")
def job(job_id: str) -> Response:
    view = View(
        request.args.get("replica", ""),
        _flag("all"),
        _flag("replicas"),
        _flag("table"),
        _flag("gaps"),
        request.args.get("from", ""),
        request.args.get("to", ""),
    )
    page = read_job_page(_console(), job_id, view)
    poll_s = None if page.job.state.is_terminal else POLL_JOB_S
    if page.job.tuning is None:
        return _page("job.html", poll_s, page=page, job=page.job)
    tuning = tuning_of(page.job)
    brushes = read_brushes(request.args.getlist("brush"), tuning)
    selected = selected_trials(tuning, brushes)
    order = read_order(request.args.get("sort", ""), request.args.get("order", ""), tuning)
    rows = [trial for trial in sorted_trials(tuning, order) if trial.number in selected]
    return _page(
        "tuning.html",
        poll_s,
        page=page,
        job=page.job,
        tuning=tuning,
        objective=tuning_plots.objective_plot(tuning),
        parallel=tuning_plots.parallel_coordinates(tuning),
        brushes=brushes,
        selected=selected,
        order=order,
        rows=rows if view.with_whole_table else rows[:TRIALS_MAX],
    )


@_pages.get("/jobs/<job_id>.json")
def job_json(job_id: str) -> dict[str, Any]:
    console = _console()
    found = find_job(console, job_id)
    loaded = console.store.load_attempt(job_id)
    return job_view(found, loaded.state.replicas if loaded else (), console.project)


@_pages.get("/jobs/<job_id>/logs")
def logs(job_id: str) -> Response:
    page = read_log_page(_console(), job_id, read_log_filters(request.args.to_dict()))
    is_live = not page.job.state.is_terminal and page.filters.is_newest
    return _page("logs.html", POLL_JOB_S if is_live else None, page=page, job=page.job, severities=SEVERITIES)


@_pages.get("/jobs/<job_id>/logs.txt")
def log_file(job_id: str) -> Response:
    lines = read_log_file(_console(), job_id, read_log_filters(request.args.to_dict()))
    headers = {"Content-Disposition": f'attachment; filename="{job_id}.log"'}
    return Response(lines, content_type="text/plain; charset=utf-8", headers=headers)


@_pages.get("/jobs/<job_id>/resources")
def resources(job_id: str) -> Response:
    page = read_resources_page(_console(), job_id, read_resource_filters(request.args.to_dict()))
    poll_s = None if page.job.state.is_terminal else POLL_RESOURCES_S
    return _page("resources.html", poll_s, page=page, job=page.job, ranges=RANGES)


@_pages.get("/jobs/<job_id>/replicas/<replica>")
def replica(job_id: str, replica: str) -> Response:
    page = read_replica_page(_console(), job_id, replica)
    return _page("replica.html", page=page, job=page.job)


@_pages.get("/installation")
def installation() -> Response:
    return _page("installation.html", POLL_INSTALLATION_S, page=read_installation_page(_console()))


@_pages.get("/help")
def keys() -> Response:
    return _page("help.html")
