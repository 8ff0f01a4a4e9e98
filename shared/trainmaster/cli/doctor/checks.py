"""Checks of `trainmaster doctor`, one function per subject. Each yields its findings."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Final

from trainmaster.api.permissions import REQUIRED_PERMISSIONS
from trainmaster.cli.doctor.findings import (
    CREATE_IT,
    Finding,
    Status,
    limit,
    not_checked,
    ok,
    permissions,
    problem,
)
from trainmaster.cli.doctor.first_day_checks import (
    check_accounts,
    check_database,
    check_images,
    check_installation_place,
    check_listings,
    check_project,
)
from trainmaster.cli.doctor.function_checks import check_functions
from trainmaster.cli.doctor.inspecting import Check, open_inspection, run_check
from trainmaster.cli.doctor.policy_checks import check_policies
from trainmaster.cli.doctor.quota_checks import check_quotas
from trainmaster.cli.doctor.remedies import ASK_FOR_API, Remedies
from trainmaster.cli.doctor.sample_events import SAMPLE_EVENTS
from trainmaster.cli.doctor.topic_checks import (
    EVENT_TOPICS,
    check_dead_letter,
    check_delivery,
    check_notifications,
    check_retries,
    check_schema,
)
from trainmaster.cli.installation import open_store
from trainmaster.core.model.installation import name_in_installation
from trainmaster.core.model.job import JobState, Label
from trainmaster.gcp.tools.inspection import Inspection
from trainmaster.messaging import topics
from trainmaster.ports import JobFilter
from trainmaster.settings import Settings
from trainmaster.wiring.installation import BUCKET, WORKER_SERVICE_ACCOUNT

CLOCK_ERROR_MAX_S: Final = 60.0
"""A larger error makes ages and times left, which commands show, wrong by minutes."""
JOB_FILES: Final = "jobs/"
PERMISSIONS: Final = (
    "resourcemanager.projects.get",
    *(f"datastore.entities.{verb}" for verb in ("get", "list", "create", "update")),
    "logging.logEntries.list",
    "monitoring.timeSeries.list",
)
"""Permissions on the project that a user of this command line needs."""
ROLES: Final = "roles/datastore.user, roles/logging.viewer, roles/monitoring.viewer, roles/browser"


def run_checks(values: Settings, region: str | None, *, before_install: bool) -> Iterator[Finding]:
    """Run all checks.

    `region` is that of the jobs, or None. `before_install`: only what `terraform apply` needs.
    """
    inspection = open_inspection(values)
    remedies = Remedies(inspection.project, before_install)
    if before_install:
        findings = list(run_check("project", partial(check_project, inspection), remedies))
        yield from findings
        if any(finding.status is Status.FIX for finding in findings):
            return  # every other check would fail, for the same reason
    checks: list[tuple[str, Check]] = [
        ("clock", partial(_check_clock, inspection)),
        (
            "organisation policies",
            partial(check_policies, inspection, region, before_install=before_install),
        ),
        ("Compute Engine", partial(_check_compute, inspection, region)),
        ("boot images", partial(check_images, inspection)),
        ("listings", partial(check_listings, inspection)),
    ]
    if before_install:
        checks += [
            ("installation", partial(check_installation_place, inspection, region)),
            ("database", partial(check_database, inspection)),
            ("accounts", partial(check_accounts, inspection)),
        ]
    else:
        checks += _checks_of_the_installation(inspection, values, region)
    for name, check in checks:
        yield from run_check(name, check, remedies)


def _checks_of_the_installation(
    inspection: Inspection, values: Settings, region: str | None
) -> list[tuple[str, Check]]:
    return [
        ("permissions", partial(_check_permissions, inspection)),
        ("Firestore", partial(_check_state, inspection)),
        ("indexes of Firestore", _check_indexes),
        *(
            (f"topic {topic}", partial(check_delivery, inspection, name_in_installation(topic)))
            for topic in EVENT_TOPICS
        ),
        ("retry policies", partial(check_retries, inspection)),
        (f"topic {topics.JOB_STATE}", partial(check_notifications, inspection)),
        *(
            (
                f"schema of {topic}",
                partial(check_schema, inspection, name_in_installation(topic), event),
            )
            for topic, event in SAMPLE_EVENTS.items()
        ),
        ("dead letter topic", partial(check_dead_letter, inspection)),
        ("bucket", partial(_check_bucket, inspection, values.bucket)),
        ("regions", partial(_check_regions, inspection, values.bucket, region)),
        (
            "service account of the VMs",
            partial(_check_worker_account, inspection, values.worker_service_account),
        ),
        ("functions", partial(check_functions, inspection)),
    ]


def _check_clock(inspection: Inspection) -> Iterator[Finding]:
    error_s = (datetime.now(UTC) - inspection.google_time()).total_seconds()
    if abs(error_s) <= CLOCK_ERROR_MAX_S:
        yield ok(f"the local clock is within {CLOCK_ERROR_MAX_S:.0f} s of Google's")
    else:
        direction = "ahead" if error_s > 0 else "behind"
        yield problem(
            f"the local clock is {abs(error_s):.0f} s {direction}",
            "set it: `timedatectl set-ntp true`",
        )


def _check_permissions(inspection: Inspection) -> Iterator[Finding]:
    fix = f"on the project, get the roles that contain them: {ROLES}"
    yield permissions(
        PERMISSIONS, inspection.permissions(PERMISSIONS), "your permissions on the project", fix
    )
    yield permissions(
        REQUIRED_PERMISSIONS,
        inspection.api_permissions(REQUIRED_PERMISSIONS),
        "your permissions to call the API",
        ASK_FOR_API,
    )


def _check_state(inspection: Inspection) -> Iterator[Finding]:
    inspection.read_state()
    store = open_store()
    live = store.live_jobs()
    orphans = store.orphans()
    yield ok(f"Firestore; live jobs: {len(live.job_ids)}")
    for job_id in live.unreadable:
        yield problem(
            f"job {job_id} cannot be read by this release, and is left as it is",
            "install the release that wrote it; see docs/runbooks.md#unreadable-job",
        )
    if orphans:
        text = f"VMs or TPU nodes without a job: {len(orphans)}"
        yield problem(text, "run `trainmaster orphans`; see docs/runbooks.md#orphans")
    else:
        yield ok("no VM or TPU node without a job")


def _check_indexes() -> Iterator[Finding]:
    """Run the functions' queries: Firestore rejects a query whose index is missing.

    What they find does not matter: `doctor` stands for job, name, user and label.
    """
    store = open_store()
    store.jobs_with_pending()
    store.open_notifications(limit=1)
    store.count_ready("doctor", attempt=1, floor=0)
    store.count_ready_for("doctor", "1-1", floor=0)
    store.failing_replicas(store.recent_jobs(limit=1))
    store.count_by_state()
    store.count_created_since(datetime.now(UTC), through_api=True)
    store.round_ends("doctor", "1-1")
    store.losses_after("doctor", "1-1", "doctor")
    lists = (
        JobFilter(name="doctor"),
        JobFilter(user="doctor"),
        JobFilter(labels=(Label("doctor", "1"),)),
        JobFilter(states=(JobState.RUNNING,)),
    )
    for only in lists:
        store.recent_jobs(limit=1, only=only)
    yield ok("indexes of Firestore")


def _check_bucket(inspection: Inspection, bucket: str) -> Iterator[Finding]:
    if not bucket:
        yield problem(
            f"{BUCKET} is not set",
            f"set {BUCKET} to the bucket of infra/: `terraform output bucket`",
        )
        return
    if inspection.bucket_location(bucket) is None:
        yield problem(
            f"there is no bucket gs://{bucket}", f"{CREATE_IT}, or set {BUCKET} to another bucket"
        )
        return
    yield ok(f"bucket gs://{bucket}")
    if inspection.endpoints.storage:
        yield not_checked("notification of the bucket", "the local stack does not use one")
    elif any(
        notification.covers(name_in_installation(topics.UPLOAD), JOB_FILES)
        for notification in inspection.notifications(bucket)
    ):
        yield ok(f"gs://{bucket}/{JOB_FILES} notifies {name_in_installation(topics.UPLOAD)}")
    else:
        yield problem(
            f"gs://{bucket}/{JOB_FILES} does not notify {name_in_installation(topics.UPLOAD)}"
            " of new files",
            CREATE_IT,
        )


def _check_regions(inspection: Inspection, bucket: str, region: str | None) -> Iterator[Finding]:
    """Check that jobs run where their data is. A location such as `eu` has several regions."""
    if inspection.endpoints.is_local_stack or not bucket:
        return
    if region is None:
        yield not_checked("regions of jobs and data", "--region is not given")
        return
    places = {
        f"the bucket {bucket}": inspection.bucket_location(bucket),
        "the database": inspection.database_location(name_in_installation("(default)")),
    }
    elsewhere = {
        what: location
        for what, location in places.items()
        if location and "-" in location and location != region
    }
    if not elsewhere:
        yield ok(f"jobs in {region} are where their data is")
        return
    named = " and ".join(f"{what} is in {location}" for what, location in elsewhere.items())
    yield limit(
        f"jobs run in {region}, but {named}: data crosses regions, which is slower and charged",
        "run jobs there (`worker_regions` of infra/), or install in the region of the jobs",
    )


def _check_worker_account(inspection: Inspection, account: str) -> Iterator[Finding]:
    if not account:
        fix = f"set {WORKER_SERVICE_ACCOUNT}: without it the senders of events are not verified"
        yield problem(f"{WORKER_SERVICE_ACCOUNT} is not set", fix)
    elif inspection.endpoints.is_local_stack:
        yield not_checked(
            f"service account of the VMs, {account}", "the local stack does not need it to exist"
        )
    elif inspection.has_account(account):
        yield ok(f"service account of the VMs, {account}")
    else:
        fix = f"{CREATE_IT}, or set {WORKER_SERVICE_ACCOUNT} to another account"
        yield problem(f"there is no service account {account}", fix)


def _check_compute(inspection: Inspection, region: str | None) -> Iterator[Finding]:
    inspection.reach_compute()
    yield ok("Compute Engine answers")
    yield from check_quotas(inspection, region)
