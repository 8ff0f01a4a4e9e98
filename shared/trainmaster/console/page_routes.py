"""Routes of the pages that show something, their JSON forms, and the static files."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qs

from flask import Blueprint, Response, redirect, request

from trainmaster.console import tuning_plots
from trainmaster.console.pages.compare_page import read_compare_page
from trainmaster.console.pages.installation_page import read_installation_page
from trainmaster.console.pages.job_filters import Filters, read_filters
from trainmaster.console.pages.job_list import read_job_list
from trainmaster.console.pages.job_page import JobPage, find_job, read_job_page
from trainmaster.console.pages.log_download import read_log_file
from trainmaster.console.pages.log_page import (
    SEVERITIES,
    read_log_filters,
    read_log_page,
    read_log_tail,
)
from trainmaster.console.pages.progress_section import read_progress_section
from trainmaster.console.pages.replica_page import read_replica_page
from trainmaster.console.pages.resources_page import (
    RANGES,
    read_resource_filters,
    read_resources_page,
)
from trainmaster.console.pages.service import NotFoundError
from trainmaster.console.pages.view import View
from trainmaster.console.rendering import ASSETS, STATIC, console_of_app, render_page
from trainmaster.console.tuning_brush import read_brushes, selected_trials
from trainmaster.console.tuning_order import read_order, sorted_trials
from trainmaster.core.model.job import tuning_of
from trainmaster.presentation.durations import DAY_S
from trainmaster.presentation.failing import failing_of, with_failing
from trainmaster.presentation.job_view import job_view
from trainmaster.presentation.quiet import with_quiet
from trainmaster.presentation.reasons import reasons_by_topic, without_links

# How often the browser asks for a page again whose content can change.
POLL_JOB_S: Final = 5
POLL_LIST_S: Final = 10
POLL_SCANNED_LIST_S: Final = 60
"""The interval for lists whose filter needs the newest `job_counts.JOBS_READ_MAX` jobs."""
POLL_UNCOUNTED_LIST_S: Final = 2
"""The interval while the jobs are being counted."""
POLL_INSTALLATION_S: Final = 60
POLL_RESOURCES_S: Final = 60
TRIALS_MAX: Final = 200
"""Rows of trials, the first in the chosen order, unless the user asks for all."""

ASSET_KEPT_S: Final = 365 * DAY_S
"""Time for which browsers keep a static file, whose address has a hash of its content."""
SERVED: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
"""Type of the files that pages use. Others, such as licences, are for readers of the sources."""

routes = Blueprint("console", __name__)


def _flag(name: str) -> bool:
    return request.args.get(name) == "1"


def _job_filters() -> Filters:
    return read_filters(parse_qs(request.query_string.decode(errors="replace")))


@routes.get(f"{ASSETS}/<path:name>")
def static_file(name: str) -> Response:
    """Return a file that pages use. Raises NotFoundError for any other file."""
    path = (STATIC / name).resolve()
    kind = SERVED.get(path.suffix)
    if kind is None or not path.is_relative_to(STATIC) or not path.is_file():
        raise NotFoundError(f"there is no file {name}")
    headers = {"Cache-Control": f"private, max-age={ASSET_KEPT_S}, immutable"}
    return Response(path.read_bytes(), headers=headers, content_type=f"{kind}; charset=utf-8")


@routes.get("/")
def start() -> Any:
    return redirect("/jobs", HTTPStatus.FOUND)


@routes.get("/jobs")
def jobs() -> Response:
    filters = _job_filters()
    page = read_job_list(console_of_app(), filters)
    poll_s = POLL_SCANNED_LIST_S if filters.needs_scan else POLL_LIST_S
    if page.total is None:
        poll_s = POLL_UNCOUNTED_LIST_S
    # The rows of later pages hardly change, but their numbers may be missing.
    is_polled = filters.is_first_page or page.total is None
    return render_page("jobs.html", poll_s if is_polled else None, page=page)


@routes.get("/jobs.json")
def jobs_json() -> dict[str, Any]:
    console = console_of_app()
    page = read_job_list(console, _job_filters(), waits_for_counts=True)
    return {
        "jobs": [
            with_quiet(
                with_failing(job_view(row.job, project=console.log_project), row.failing), row.quiet
            )
            for row in page.rows
        ],
        "nextPage": page.next_page,
        "total": page.total,
        "states": page.counts.by_state,
        "countedNewest": page.counts.newest,
    }


@routes.get("/jobs/<job_id>")
def job(job_id: str) -> Response:
    view = View(
        replica=request.args.get("replica", ""),
        with_ignored=_flag("all"),
        with_all_replicas=_flag("replicas"),
        with_whole_table=_flag("table"),
        with_gaps=_flag("gaps"),
        over_steps=request.args.get("x") == "step",
        start=request.args.get("from", ""),
        end=request.args.get("to", ""),
    )
    page = read_job_page(console_of_app(), job_id, view)
    poll_s = None if page.job.state.is_terminal else POLL_JOB_S
    if page.job.tuning is not None:
        return _tuning_page(page, poll_s)
    with ThreadPoolExecutor(1) as pool:  # reads the log while the metrics are read
        tail = pool.submit(read_log_tail, console_of_app(), page)
        progress = read_progress_section(console_of_app(), page.job, over_steps=view.over_steps)
    return render_page(
        "job.html", poll_s, page=page, job=page.job, progress=progress, tail=tail.result()
    )


def _tuning_page(page: JobPage, poll_s: int | None) -> Response:
    """Return the page of a tuning job. The address has the order and the ranges of its trials."""
    tuning = tuning_of(page.job)
    brushes = read_brushes(request.args.getlist("brush"), tuning)
    selected = selected_trials(tuning, brushes)
    order = read_order(request.args.get("sort", ""), request.args.get("order", ""), tuning)
    rows = [trial for trial in sorted_trials(tuning, order) if trial.number in selected]
    return render_page(
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
        rows=rows if page.view.with_whole_table else rows[:TRIALS_MAX],
    )


@routes.get("/compare")
def compare() -> Response:
    """Not below `/jobs`, where it would hide a job of this id."""
    page = read_compare_page(
        console_of_app(),
        request.args.getlist("job"),
        over_steps=request.args.get("x") == "step",
    )
    has_live = any(not job.state.is_terminal for job in page.jobs)
    return render_page("compare.html", POLL_RESOURCES_S if has_live else None, page=page)


@routes.get("/jobs/<job_id>.json")
def job_json(job_id: str) -> dict[str, Any]:
    console = console_of_app()
    found = find_job(console, job_id)
    loaded = console.store.load_attempt(job_id)
    replicas = loaded.state.replicas if loaded else ()
    failing = failing_of(found, replicas, console.now)
    return with_failing(job_view(found, replicas, console.log_project), failing)


@routes.get("/jobs/<job_id>/logs")
def logs(job_id: str) -> Response:
    page = read_log_page(console_of_app(), job_id, read_log_filters(request.args.to_dict()))
    is_live = not page.job.state.is_terminal and page.filters.is_newest
    return render_page(
        "logs.html", POLL_JOB_S if is_live else None, page=page, job=page.job, severities=SEVERITIES
    )


@routes.get("/jobs/<job_id>/logs.txt")
def log_file(job_id: str) -> Response:
    lines = read_log_file(console_of_app(), job_id, read_log_filters(request.args.to_dict()))
    headers = {"Content-Disposition": f'attachment; filename="{job_id}.log"'}
    return Response(lines, content_type="text/plain; charset=utf-8", headers=headers)


@routes.get("/jobs/<job_id>/resources")
def resources(job_id: str) -> Response:
    page = read_resources_page(
        console_of_app(), job_id, read_resource_filters(request.args.to_dict())
    )
    poll_s = None if page.job.state.is_terminal else POLL_RESOURCES_S
    return render_page("resources.html", poll_s, page=page, job=page.job, ranges=RANGES)


@routes.get("/jobs/<job_id>/replicas/<replica>")
def replica(job_id: str, replica: str) -> Response:
    page = read_replica_page(console_of_app(), job_id, replica)
    return render_page("replica.html", page=page, job=page.job)


@routes.get("/installation")
def installation() -> Response:
    return render_page(
        "installation.html", POLL_INSTALLATION_S, page=read_installation_page(console_of_app())
    )


@routes.get("/reasons")
def reasons() -> Response:
    return render_page("reasons.html", topics=reasons_by_topic(), without_links=without_links)


@routes.get("/help")
def keys() -> Response:
    return render_page("help.html")
