"""A replica is ready to start its program.

If it is the last one of the attempt, the job is running.
"""

from __future__ import annotations

from dataclasses import replace

from trainmaster.core.events import VmReady
from trainmaster.flows.commit.readiness import start_if_all_ready
from trainmaster.flows.commit.record import Deps, record
from trainmaster.messaging import agent_messages, topics
from trainmaster.messaging.authenticate import AuthDeps, authenticate
from trainmaster.messaging.internal_requests import ProvisionRequest, encode_provision
from trainmaster.messaging.push import Message
from trainmaster.ports import Loaded


def handle(event: VmReady, deps: Deps, loaded: Loaded | None = None) -> None:
    recorded = record(event, deps, loaded=loaded)
    job = recorded.job
    start_if_all_ready(job, deps, may_go_without=True)
    if (
        job is not None and event.subject.replica_id in job.round.without and not job.round.is_held
    ):  # it can join
        deps.bus.publish(topics.PROVISION, encode_provision(ProvisionRequest(job.job_id)), {})


def on_message(message: Message, deps: Deps, auth_deps: AuthDeps | None) -> None:
    """Authenticate the sender before the rest of the message is decoded."""
    subject = agent_messages.decode_subject(message.data)
    authenticated = authenticate(subject, message, auth_deps)
    event = agent_messages.decode_vm_ready(message.data, message.published_at)
    handle(replace(event, host_vm=authenticated.machine), deps, authenticated.loaded)
