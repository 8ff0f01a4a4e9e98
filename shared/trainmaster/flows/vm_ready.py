"""An agent reports that its VM is ready to start the program of its replica.

If it is the last one of the attempt, the job is running. In an elastic job, the replica may be one
that the others run without; provisioning then decides when it joins them.
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
    """Record the event and what begins with it. `loaded`: what it reads, if it was read before."""
    recorded = record(event, deps, loaded=loaded)
    job = recorded.job
    # An elastic job may go without members whose VMs do not come: this report may be the last one
    # that it waits for.
    start_if_all_ready(job, deps, may_go_without=True)
    if job is None:
        return
    is_left_out = event.subject.replica_id in job.round.without
    if is_left_out and not job.round.is_held:
        deps.bus.publish(
            topics.PROVISION, encode_provision(ProvisionRequest(job.job_id)), attributes={}
        )


def on_message(message: Message, deps: Deps, auth_deps: AuthDeps | None) -> None:
    """Authenticate the sender before the rest of the message is decoded."""
    subject = agent_messages.decode_subject(message.data)
    authenticated = authenticate(subject, message, auth_deps)
    event = agent_messages.decode_vm_ready(message.data, message.published_at)
    handle(replace(event, host_vm=authenticated.machine), deps, authenticated.loaded)
