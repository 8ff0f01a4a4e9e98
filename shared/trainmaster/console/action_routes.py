"""Routes of the actions.

Each action has a page with its consequences and a form, which is sent by POST only.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final

from flask import Blueprint, Response, g, redirect, request

from trainmaster.console.pages.cancellation import read_cancellation
from trainmaster.console.pages.job_page import find_job, read_job_page
from trainmaster.console.pages.kept_rows import kept_row
from trainmaster.console.pages.labels_form import LabelsForm, new_labels_form, parse_labels
from trainmaster.console.pages.submission import (
    SubmissionForm,
    check_submission,
    new_form,
    read_status,
)
from trainmaster.console.pages.view import View
from trainmaster.console.rendering import console_of_app, render_page
from trainmaster.errors import PermanentError
from trainmaster.jobspec.problems import InvalidJob

POLL_SUBMISSION_S: Final = 2
"""Seconds after which the browser asks again what became of a submission."""
CANCEL_MAX: Final = 100
"""Jobs that one form cancels: each takes a commit, and a request may last a minute."""
KEY_BYTES: Final = 16
"""Number of random bytes in the key of a form. The key cannot be guessed."""
_KEY: Final = re.compile(r"[A-Za-z0-9_-]{16,64}")
_NUMBER: Final = re.compile(r"[0-9]{1,10}", re.ASCII)
"""Longer ones are neither times in seconds nor versions, and Python refuses to read very long ones.
"""

routes = Blueprint("actions", __name__)


def _new_key() -> str:
    """Return what identifies a form, so that sending it twice has one effect."""
    return secrets.token_urlsafe(KEY_BYTES)


def _sent_key() -> str:
    key = request.form.get("key", "")
    if not _KEY.fullmatch(key):
        raise PermanentError(
            "key: must be that of the form. Reload the page and send its form again"
        )
    return key


@routes.get("/jobs/<job_id>/cancel")
def confirm_cancel(job_id: str) -> Response:
    page = read_job_page(console_of_app(), job_id, View())
    return render_page("cancel.html", page=page, job=page.job)


@routes.post("/jobs/<job_id>/cancel")
def cancel(job_id: str) -> Any:
    """Cancel the job as the signed-in user.

    Repeating it changes nothing: a job is cancelled once.
    """
    console = console_of_app()
    console.actions.cancel(find_job(console, job_id).job_id, g.user.name)
    return redirect(f"/jobs/{job_id}", HTTPStatus.SEE_OTHER)


@routes.get("/cancel")
def confirm_cancel_several() -> Response:
    """Not below `/jobs`, where it would hide a job of this id."""
    console = console_of_app()
    jobs = [find_job(console, job_id) for job_id in _chosen(request.args.getlist("job"))]
    return render_page("cancel_several.html", page=read_cancellation(console, jobs))


@routes.post("/cancel")
def cancel_several() -> Any:
    """Cancel the jobs as the signed-in user. Those that have ended stay as they are."""
    console = console_of_app()
    jobs = [find_job(console, job_id) for job_id in _chosen(request.form.getlist("job"))]
    for job in jobs:
        console.actions.cancel(job.job_id, g.user.name)
    return redirect("/jobs", HTTPStatus.SEE_OTHER)


def _chosen(job_ids: Sequence[str]) -> tuple[str, ...]:
    """Return the ids that are selected in the list, each once.

    Raises PermanentError if there are none, or too many.
    """
    chosen = tuple(dict.fromkeys(job_ids))
    if not 1 <= len(chosen) <= CANCEL_MAX:
        raise PermanentError(
            f"1 to {CANCEL_MAX} jobs can be cancelled at once; {len(chosen)} are selected"
        )
    return chosen


@routes.get("/jobs/<job_id>/clone")
def edit_clone(job_id: str) -> Response:
    console = console_of_app()
    return _clone_page(new_form(console, find_job(console, job_id)), _new_key())


@routes.post("/jobs/<job_id>/clone")
def clone(job_id: str) -> Any:
    """Submit the job file of the editor, or show it again with all of its problems."""
    return _submit(job_id, _clone_page, text=request.form.get("spec", ""))


@routes.get("/jobs/<job_id>/resubmit")
def confirm_resubmit(job_id: str) -> Response:
    console = console_of_app()
    return _resubmit_page(new_form(console, find_job(console, job_id)), _new_key())


@routes.post("/jobs/<job_id>/resubmit")
def resubmit(job_id: str) -> Any:
    """Submit the job's own spec under a new id."""
    return _submit(job_id, _resubmit_page)


def _submit(
    job_id: str, page: Callable[[SubmissionForm, str, int], Response], text: str | None = None
) -> Any:
    """Submit a job again, or show its form again on its page with all of its problems.

    `text`: another job file.
    """
    console = console_of_app()
    key = _sent_key()
    form = new_form(console, find_job(console, job_id))
    form = replace(
        form,
        job_id=request.form.get("job_id", "").strip(),
        text=form.text if text is None else text,
    )
    source = f"console:{key}/{g.user.name}"
    try:
        console.actions.submit(check_submission(console, form, source), source)
    except InvalidJob as invalid:
        return page(replace(form, problems=invalid.problems), key, HTTPStatus.UNPROCESSABLE_ENTITY)
    at = int(console.clock().timestamp())
    return redirect(f"/submissions/{form.job_id}/{key}?at={at}", HTTPStatus.SEE_OTHER)


def _clone_page(form: SubmissionForm, key: str, status: int = HTTPStatus.OK) -> Response:
    return render_page("clone.html", status=status, form=form, job=form.job, key=key)


def _resubmit_page(form: SubmissionForm, key: str, status: int = HTTPStatus.OK) -> Response:
    page = read_job_page(console_of_app(), form.job.job_id, View())
    return render_page("resubmit.html", status=status, form=form, job=form.job, key=key, page=page)


@routes.get("/submissions/<job_id>/<key>")
def submission(job_id: str, key: str) -> Response:
    """Show what became of a submission of the signed-in user."""
    published = request.args.get("at", "")
    if not _NUMBER.fullmatch(published):
        raise PermanentError("at: must be the time of the submission, in seconds since 1970")
    published_at = datetime.fromtimestamp(int(published), UTC)
    status = read_status(console_of_app(), job_id, f"console:{key}/{g.user.name}", published_at)
    may_change = status.is_pending and not status.is_late
    poll_s = POLL_SUBMISSION_S if may_change else None
    return render_page("submission.html", poll_s, submission=status)


@routes.get("/jobs/<job_id>/labels")
def edit_labels(job_id: str) -> Response:
    return _labels_page(new_labels_form(find_job(console_of_app(), job_id)), _new_key())


@routes.post("/jobs/<job_id>/labels")
def change_labels(job_id: str) -> Any:
    """Replace the labels, unless another user changed them since the form was shown."""
    console = console_of_app()
    key = _sent_key()
    seen = request.form.get("seen", "")
    if not _NUMBER.fullmatch(seen):
        raise PermanentError(
            "seen: must be the version of the labels. Reload the page and send its form again"
        )
    form = replace(
        new_labels_form(find_job(console, job_id)),
        text=request.form.get("labels", ""),
        seen=int(seen),
    )
    try:
        labels = parse_labels(form.text)
    except InvalidJob as invalid:
        return _labels_page(
            replace(form, problems=invalid.problems), key, HTTPStatus.UNPROCESSABLE_ENTITY
        )
    if not console.actions.change_labels(job_id, labels, key, form.seen, g.user.name):
        return _labels_page(form, key, HTTPStatus.CONFLICT)
    return redirect(f"/jobs/{job_id}", HTTPStatus.SEE_OTHER)


def _labels_page(form: LabelsForm, key: str, status: int = HTTPStatus.OK) -> Response:
    is_outdated = status == HTTPStatus.CONFLICT
    return render_page(
        "labels.html", status=status, form=form, job=form.job, key=key, is_outdated=is_outdated
    )


@routes.get("/jobs/<job_id>/delete")
def confirm_delete(job_id: str) -> Response:
    return render_page("delete.html", job=find_job(console_of_app(), job_id), key=_new_key())


@routes.post("/jobs/<job_id>/delete")
def delete(job_id: str) -> Any:
    """Remove an ended job from lists. A second click finds it deleted, which is not an error."""
    console = console_of_app()
    key = _sent_key()
    loaded = console.store.load(job_id)
    if loaded is None or loaded.state.job.deleted_at is None:
        job = find_job(console, job_id)
        if not console.actions.delete(job.job_id, key, g.user.name):
            raise PermanentError(f"{job_id} has not ended: cancel it first")
    return redirect("/jobs", HTTPStatus.SEE_OTHER)


@routes.get("/jobs/<job_id>/release")
def confirm_release(job_id: str) -> Response:
    console = console_of_app()
    job = find_job(console, job_id)
    return render_page("release.html", job=job, kept=kept_row(console, job))


@routes.post("/jobs/<job_id>/release")
def release(job_id: str) -> Any:
    """Release the machines that the job keeps.

    A second click, and one after another job has taken them, change nothing.
    """
    console = console_of_app()
    console.actions.release(find_job(console, job_id).job_id, g.user.name)
    return redirect(f"/jobs/{job_id}", HTTPStatus.SEE_OTHER)
