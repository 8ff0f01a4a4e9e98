"""Rendering of pages: what every page shows, entity tags, and addresses of static files."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from flask import Response, current_app, g, render_template, request

from trainmaster.console.forgery import form_token
from trainmaster.console.pages.service import Console
from trainmaster.core.model.job import JobState
from trainmaster.presentation.durations import HOUR_S

STATIC: Final = Path(__file__).parent / "static"
ASSETS: Final = "/assets"
"""Not `/static`, which functions-framework serves itself."""
_TAG_CHARS: Final = 32
"""Characters of a page's entity tag, the beginning of a hash."""
_ASSET_HASH_CHARS: Final = 16
"""Characters of the hash in the address of a static file."""


def console_of_app() -> Console:
    console: Console = current_app.config["CONSOLE"]
    return console


def current_form_token() -> str:
    return form_token(g.user)


def page_context() -> dict[str, Any]:
    """Return what every page shows."""
    console = console_of_app()
    user = g.get("user")
    denied = console.denied if user else {}
    shown = {
        "project": console.project,
        "bucket_browser": console.bucket_browser,
        "states": tuple(JobState),
    }
    return {**shown, "user": user, "denied": denied}


def render_page(
    template: str, poll_s: int | None = None, *, status: int = HTTPStatus.OK, **values: Any
) -> Response:
    """Render a page. The entity tag lets polls of an unchanged page end with status 304.

    The page contains its tag, because scripts cannot read the headers of the page they belong to.
    """
    body = render_template(template, **page_context(), poll_s=poll_s, **values)
    response = Response(body, status, content_type="text/html; charset=utf-8")
    if status == HTTPStatus.OK:
        tag = hashlib.sha256(body.encode()).hexdigest()[:_TAG_CHARS]
        response.set_data(body.replace("<body", f'<body data-etag="{tag}"', 1))
        response.set_etag(tag)
        response.make_conditional(request)
    return response


@cache
def asset(name: str) -> str:
    """Return the address of a static file, with its hash, so that browsers may keep it."""
    content_hash = hashlib.sha256((STATIC / name).read_bytes()).hexdigest()
    return f"{ASSETS}/{name}?{content_hash[:_ASSET_HASH_CHARS]}"


def moment(at: datetime | None) -> str:
    """Format a time for people: UTC, to the second."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S") if at else ""


def machine_hours(seconds: float) -> str:
    """Format machine-seconds as hours with two decimals."""
    return f"{seconds / HOUR_S:.2f}"
