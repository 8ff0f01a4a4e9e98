"""Entrances of the console: each page and form with an input in one of its fields."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

import yaml
from werkzeug.test import TestResponse

from tests.fuzz.entrance import Entrance, Entrances, RefusedError, text_of
from tests.fuzz.submissions import YAML_JOB
from tests.support.console_site import Site
from tests.support.jobs import a_spec

_NOT_SIGNED_IN: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_KEY: Final = "k" * 16
_CLONE: Final = "/jobs/digits_1/clone"
_LABELS: Final = "/jobs/digits_1/labels"
_SPEC: Final = yaml.safe_dump(a_spec())
_ERROR: Final = re.compile(r"</code> ([^<]{1,200})|</h1>\s*<p>([^<]{1,200})")

Visit = Callable[[Site, bytes], TestResponse]


def _address(data: bytes) -> str:
    return quote(text_of(data, 4000), safe="/?=&")


def _page(path: str) -> Visit:
    """Return the visit of a page: `{}` is where the input is."""
    return lambda site, data: site.get(path.format(_address(data)))


def _form(path: str, fields_of: Callable[[Site, bytes], Mapping[str, str]]) -> Visit:
    def send(site: Site, data: bytes) -> TestResponse:
        form = {"token": site.form_token(_LABELS), "key": _KEY}
        return site.send(path, {**form, **fields_of(site, data)})

    return send


def _labels_version(site: Site) -> str:
    return str(site.world.job.labels_version)


def _entrance(visit: Visit, seeds: Sequence[object]) -> Entrance:
    """Return the entrance of a console with one running job and a signed-in user."""
    site = Site()
    site.world.start_running()
    site.open()

    def read(data: bytes) -> None:
        answer = visit(site, data)
        assert answer.status_code not in _NOT_SIGNED_IN, "the input reaches no page and no form"
        assert answer.status_code != HTTPStatus.INTERNAL_SERVER_ERROR
        if answer.status_code >= HTTPStatus.BAD_REQUEST:
            error = _ERROR.search(answer.text)
            raise RefusedError(str(answer.status_code), (error[1] or error[2]) if error else "")

    return Entrance(read, seeds)


_VISITS: Final[Mapping[str, tuple[Visit, Sequence[object]]]] = {
    "list": (
        _page("/jobs?{}"),
        [
            b"state=RUNNING&label=a=b&user=anna&q=digits",
            b"sort=created&order=asc&start=50&size=20",
            b"after=2026-11-21T03:00:00Z/digits_1",
        ],
    ),
    "job": (_page("/jobs/{}"), [b"digits_1", b"digits_1.json", b"digits_1/replicas/worker-0"]),
    "view of a job": (
        _page("/jobs/digits_1?{}"),
        [
            b"replica=worker-0&all=1&x=step&table=1",
            b"from=2026-11-21T03:00:00Z&to=2026-11-22T03:00:00Z&gaps=1&replicas=1",
        ],
    ),
    "log": (
        _page("/jobs/digits_1/logs?{}"),
        [b"replica=worker-0&severity=ERROR&q=x", b"from=2026-11-21T03:00:00Z&attempt=1"],
    ),
    "resources": (_page("/jobs/digits_1/resources?replica={}"), [b"chief-0", b"worker-1&range=1h"]),
    "comparison": (_page("/compare?job=digits_1&job={}"), [b"digits_1", b"digits_1&x=step"]),
    "cancellation": (_page("/cancel?job={}"), [b"digits_1"]),
    "submission": (_page(f"/submissions/{{}}/{_KEY}?at=1764000000"), [b"again_1"]),
    "job file": (
        _form(
            _CLONE,
            lambda _, data: {"spec": text_of(data, 200_000), "job_id": "clone_1"},
        ),
        [YAML_JOB, a_spec()],
    ),
    "id": (
        _form(_CLONE, lambda _, data: {"spec": _SPEC, "job_id": text_of(data, 200)}),
        [b"again_1", b"digits_2026"],
    ),
    "labels": (
        _form(
            _LABELS,
            lambda site, data: {"labels": text_of(data, 4000), "seen": _labels_version(site)},
        ),
        [b"team=vision\nstage=2", b"", b"a=b"],
    ),
    "seen labels": (
        _form(_LABELS, lambda _, data: {"labels": "", "seen": text_of(data, 4000)}),
        [b"1"],
    ),
    "cancelled": (_form("/cancel", lambda _, data: {"job": text_of(data, 4000)}), [b"digits_1"]),
}
CONSOLE: Final[Entrances] = {
    f"console: {name}": partial(_entrance, *visit) for name, visit in _VISITS.items()
}
