"""A replica is ready to start its program.

If it is the last one of the attempt, the job is running.
"""

from __future__ import annotations

from trainmaster.core.events import VmReady
from trainmaster.flows.commit.readiness import start_if_all_ready
from trainmaster.flows.commit.record import Deps, record
from trainmaster.messaging import topics
from trainmaster.messaging.internal_requests import ProvisionRequest, encode_provision
from trainmaster.ports import Loaded


def handle(event: VmReady, deps: Deps, loaded: Loaded | None = None) -> None:
    recorded = record(event, deps, loaded=loaded)
    job = recorded.job
    start_if_all_ready(job, deps, may_go_without=True)
    if (
        job is not None and event.subject.replica_id in job.round.without and not job.round.is_held
    ):  # it can join
        deps.bus.publish(topics.PROVISION, encode_provision(ProvisionRequest(job.job_id)), {})
