"""What `trainmaster doctor` looks at, one function per subject; each yields what it found, and what to do about it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from typing import Final

from cli.doctor.findings import APPLY, Finding, Status, fix
from cli.doctor.sample_events import AGENTS_SAY
from cli.doctor.topic_checks import EVENT_TOPICS, dead_letter, delivery, schema
from cli.jobs import open_store
from shared.api.permissions import CALLED
from shared.errors import ConflictError, PermanentError, TemporaryError
from shared.gcp.inspection import GOOGLE, Endpoints, Inspection, LookError
from shared.gcp.project_access import ProjectAccess
from shared.messaging import topics
from shared.settings import Settings

SKEW_MAX_S: Final = 60.0
JOB_FILES: Final = "jobs/"
METRICS: Final = ("CPUS", "GPUS", "INSTANCES", "DISKS_TOTAL_GB", "SSD_TOTAL_GB")
"""How the names of the quotas end that machines of jobs use."""
STATE: Final = ("get", "list", "create", "update")
WANTED: Final = (
    *sorted(set(CALLED.values())),
    *(f"datastore.entities.{verb}" for verb in STATE),
    "logging.logEntries.list",
)
"""What the API and this command line ask of a person, as far as it is granted on the project."""
ROLES: Final = "roles/aiplatform.user, roles/datastore.user, roles/logging.viewer, roles/browser"


def examine(values: Settings, region: str | None) -> Iterator[Finding]:
    seen = _inspection(values)
    looks: list[tuple[str, Callable[[], Iterator[Finding]]]] = [
        ("clock", partial(_clock, seen)),
        ("permissions", partial(_permissions, seen)),
        ("Firestore", partial(_state, seen)),
        ("indexes of Firestore", _indexes),
        *((f"topic {topic}", partial(delivery, seen, topic)) for topic in EVENT_TOPICS),
        *((f"schema of {topic}", partial(schema, seen, topic, said)) for topic, said in AGENTS_SAY.items()),
        ("dead letter", partial(dead_letter, seen)),
        ("bucket", partial(_bucket, seen, values.bucket)),
        ("worker account", partial(_worker, seen, values.worker_service_account)),
        ("Compute Engine", partial(_compute, seen, region)),
    ]
    for name, look in looks:
        yield from _looked(name, look)


def _looked(name: str, look: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """What keeps us from looking is a finding, too."""
    try:
        yield from look()
    except ConflictError as error:
        yield fix(f"{name}: {error}", f"{APPLY}; a new index is there after some minutes")
    except LookError as error:
        yield fix(f"{name}: {error}", _ADVICE.get(error.status, "see whether it is there, and look again"))
    except (PermanentError, TemporaryError) as error:
        yield fix(f"{name}: {error}", "see whether it is there, and look again")


_ADVICE: Final[dict[int, str]] = {
    HTTPStatus.UNAUTHORIZED: "log in: gcloud auth application-default login",
    HTTPStatus.FORBIDDEN: "have roles/viewer granted on the project; if the API is off, `terraform apply` in infra/",
    HTTPStatus.NOT_FOUND: APPLY,
}


def _clock(seen: Inspection) -> Iterator[Finding]:
    skew_s = (datetime.now(UTC) - seen.google_time()).total_seconds()
    if abs(skew_s) <= SKEW_MAX_S:
        yield Finding(Status.OK, f"clock, within {SKEW_MAX_S:.0f} s of who answers")
    else:
        which = "ahead" if skew_s > 0 else "behind"
        yield fix(f"this machine's clock is {abs(skew_s):.0f} s {which}", "set it: `timedatectl set-ntp true`")


def _permissions(seen: Inspection) -> Iterator[Finding]:
    granted = seen.permissions(WANTED)
    missing = [each for each in WANTED if each not in granted]
    if missing:
        yield fix(f"you may not {', '.join(missing)}", f"have these granted on the project, as you need them: {ROLES}")
    else:
        yield Finding(Status.OK, "what you may do in the project")


def _state(seen: Inspection) -> Iterator[Finding]:
    seen.read_state()
    store = open_store()
    live, orphans = len(store.live_jobs()), store.orphans()
    yield Finding(Status.OK, f"Firestore, with live jobs: {live}")
    if orphans:
        yield fix(f"{len(orphans)} machines without an owner", "docs/runbooks/orphans.md; `trainmaster orphans`")
    else:
        yield Finding(Status.OK, "no machine without an owner")


def _indexes() -> Iterator[Finding]:
    """Asked as the functions ask: a query without its index is refused."""
    store = open_store()
    store.jobs_with_pending()
    store.count_ready("doctor", 1)
    store.recent_jobs(1)
    yield Finding(Status.OK, "indexes of Firestore")


def _bucket(seen: Inspection, bucket: str) -> Iterator[Finding]:
    if not bucket:
        yield fix("no bucket is named", "set TRAINMASTER_BUCKET to infra/'s, `terraform output bucket`")
        return
    if not seen.has_bucket(bucket):
        yield fix(f"no bucket gs://{bucket}", f"{APPLY}, or TRAINMASTER_BUCKET names another one")
        return
    yield Finding(Status.OK, f"bucket gs://{bucket}")
    if seen.endpoints.storage:
        yield Finding(Status.UNSEEN, "the bucket's notification: not looked at: the local stack's notifies otherwise")
        return
    if any(each.tells(topics.UPLOAD, JOB_FILES) for each in seen.notifications(bucket)):
        yield Finding(Status.OK, f"gs://{bucket}/{JOB_FILES} tells {topics.UPLOAD}")
    else:
        yield fix(f"gs://{bucket}/{JOB_FILES} does not tell {topics.UPLOAD} of new files", APPLY)


def _worker(seen: Inspection, account: str) -> Iterator[Finding]:
    if not account:
        how = "set TRAINMASTER_WORKER_SERVICE_ACCOUNT: without it nobody asks who sends an event"
        yield fix("no account of the VMs is named", how)
    elif seen.endpoints.compute:
        yield Finding(Status.OK, f"account of the VMs, {account}")
    elif seen.has_account(account):
        yield Finding(Status.OK, f"account of the VMs, {account}, which exists")
    else:
        yield fix(f"no account {account}", f"{APPLY}, or TRAINMASTER_WORKER_SERVICE_ACCOUNT names another one")


def _compute(seen: Inspection, region: str | None) -> Iterator[Finding]:
    seen.reach_compute()
    yield Finding(Status.OK, "Compute Engine answers")
    if region is None:
        yield Finding(Status.UNSEEN, "quotas: not looked at: --region names the region to look at")
        return
    quotas = seen.quotas(region)
    if quotas is None:
        yield fix(f"no region {region}", "gcloud compute regions list")
        return
    if not quotas:
        yield Finding(Status.UNSEEN, f"quotas of {region}: not looked at: none are told, as on the local stack")
    for quota in quotas:
        if not quota.metric.endswith(METRICS) or not quota.limit:
            continue
        what = f"quota {quota.metric} in {region}: {quota.used:g} of {quota.limit:g}"
        is_full = quota.used >= quota.limit
        yield (
            fix(what, "end jobs there, or ask for more: IAM & Admin > Quotas") if is_full else Finding(Status.OK, what)
        )


def _inspection(values: Settings) -> Inspection:
    def emulator(variable: str) -> str:
        host = os.environ.get(variable, "")
        return host if not host or "://" in host else f"http://{host}"

    endpoints = Endpoints(
        pubsub=emulator("PUBSUB_EMULATOR_HOST"),
        firestore=emulator("FIRESTORE_EMULATOR_HOST"),
        storage=emulator("STORAGE_EMULATOR_HOST"),
        compute=values.compute_endpoint,
        projects="" if values.iam_endpoint == GOOGLE.projects else values.iam_endpoint,
    )
    return Inspection(
        values.project, endpoints, ProjectAccess(values.project, values.iam_endpoint, values.iam_accounts_endpoint)
    )
