"""Checks of the deployed functions: each one was built and runs, and clients reach the API."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from typing import Final

from trainmaster.cli.doctor.findings import (
    CREATE_IT,
    REPAIR_IT,
    Finding,
    limit,
    not_checked,
    ok,
    problem,
)
from trainmaster.cli.doctor.topic_checks import EVENT_TOPICS
from trainmaster.core.model.installation import name_in_installation
from trainmaster.gcp.tools.inspection import Inspection
from trainmaster.messaging import topics

API: Final = "trainmaster-api"
FUNCTIONS: Final = (*(topic for topic in EVENT_TOPICS if topic != topics.SYSTEM_EVENTS), API)
"""Names of the functions.

All of them except `api` are named after a topic that they read; `maintenance` reads two.
"""


def check_functions(inspection: Inspection) -> Iterator[Finding]:
    """Check that each function is deployed and runs, and that clients reach the API."""
    if inspection.endpoints.is_local_stack:
        yield not_checked("functions", "the local stack runs them without Cloud Functions")
        return
    functions = {function.name: function for function in inspection.functions()}
    for name in map(name_in_installation, FUNCTIONS):
        function = functions.get(name)
        if function is None:
            yield problem(f"there is no function {name}", CREATE_IT)
        elif function.state != "ACTIVE":
            reason = f": {function.message}" if function.message else ""
            yield problem(f"function {name} is {function.state}{reason}", REPAIR_IT)
        else:
            yield ok(f"function {name}")
    api = functions.get(name_in_installation(API))
    if api is not None and api.state == "ACTIVE":
        yield from _check_reachability(inspection, api.url)


def _check_reachability(inspection: Inspection, url: str) -> Iterator[Finding]:
    """Check that calls reach the function `api`, which answers 401 to a call without a token.

    A 403 comes from Cloud Run's own check, which rejects the call before it reaches the function.
    """
    status = inspection.status_without_token(f"{url}/v1/projects/{inspection.project}/jobs")
    if status == HTTPStatus.UNAUTHORIZED:
        yield ok(f"clients reach the API at {url}")
    elif status == HTTPStatus.FORBIDDEN:
        yield limit(
            f"Cloud Run refuses the clients of AI Platform Training and Vertex AI at {url}",
            'unless you want that (`api_access = "none"`), run `terraform apply` in infra/, which'
            " turns off that check",
        )
    else:
        yield problem(
            f"the API at {url} answers {status} to a call without a token, not 401", REPAIR_IT
        )
