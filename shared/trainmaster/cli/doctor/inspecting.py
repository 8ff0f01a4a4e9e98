"""Opening the installation for checks, and running one check.

`submit --check` imports this module, and not those of all checks: with the Pub/Sub client they take
a fifth of a second.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from trainmaster.cli.doctor.findings import Finding, problem
from trainmaster.cli.doctor.remedies import SEE_WHETHER_IT_EXISTS, Remedies
from trainmaster.errors import PermanentError, TemporaryError
from trainmaster.gcp.errors import USER_ERRORS
from trainmaster.gcp.project_access import ProjectAccess
from trainmaster.gcp.tools.inspection import GOOGLE, Endpoints, Inspection, InspectionError
from trainmaster.settings import Settings

Check = Callable[[], Iterator[Finding]]


def open_inspection(values: Settings) -> Inspection:
    """Return the installation that the settings and the emulators' variables name."""

    def emulator(variable: str) -> str:
        host = os.environ.get(variable, "")
        return host if not host or "://" in host else f"http://{host}"

    # An empty endpoint is Google's own, the only one that is sent credentials.
    endpoints = Endpoints(
        pubsub=emulator("PUBSUB_EMULATOR_HOST"),
        firestore=emulator("FIRESTORE_EMULATOR_HOST"),
        storage=emulator("STORAGE_EMULATOR_HOST"),
        compute=values.compute_endpoint,
        tpu=values.tpu_endpoint,
        cloudresourcemanager=(
            "" if values.iam_endpoint == GOOGLE.cloudresourcemanager else values.iam_endpoint
        ),
    )
    return Inspection(
        values.project,
        endpoints,
        ProjectAccess(
            values.project,
            values.iam_endpoint,
            values.iam_accounts_endpoint,
            people_endpoint=values.iam_people_endpoint,
        ),
    )


def run_check(name: str, check: Check, remedies: Remedies) -> Iterator[Finding]:
    """Run one check. An error that prevents it is a finding, too."""
    try:
        yield from check()
    except InspectionError as error:
        yield problem(f"{name}: {error}", remedies.of(error))
    except USER_ERRORS as error:
        yield problem(f"{name}: {error}", remedies.refused)
    except (PermanentError, TemporaryError) as error:
        yield problem(f"{name}: {error}", SEE_WHETHER_IT_EXISTS)
