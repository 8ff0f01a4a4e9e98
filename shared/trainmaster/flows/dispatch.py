"""The flow of every topic, for a process that handles the messages of a whole installation:
simulations, local stacks, and commands.

Functions do not use this table: each imports its own flow, because its archive contains all modules
that it imports.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from trainmaster.flows import (
    maintenance,
    provision,
    replica_exit,
    submit,
    sweep,
    tune,
    upload,
    vm_ready,
)
from trainmaster.messaging import topics

if TYPE_CHECKING:
    from trainmaster.flows.commit.record import Deps
    from trainmaster.flows.job_creation.deps import CreationDeps
    from trainmaster.flows.provisioning.fleet_deps import FleetDeps
    from trainmaster.messaging.authenticate import AuthDeps
    from trainmaster.messaging.push import Message
    from trainmaster.ports import Objects, Suggester

Handler = Callable[["Message"], None]
EventFlow = Callable[["Message", "Deps", "AuthDeps | None"], None]
"""A flow that authenticates the sender of its message."""

AGENT_EVENTS: Final[Mapping[str, EventFlow]] = {
    topics.VM_READY: vm_ready.on_message,
    topics.REPLICA_EXIT: replica_exit.on_message,
    topics.MAINTENANCE: maintenance.on_message,
}
"""The flows of the topics to which the agents publish."""


def handlers_by_topic(
    deps: Callable[[], CreationDeps],
    *,
    auth_deps: AuthDeps | None,
    fleet_deps: Callable[[], FleetDeps] | None = None,
    objects: Callable[[], Objects] | None = None,
    suggester: Callable[[], Suggester] | None = None,
) -> dict[str, Handler]:
    """Return what handles the messages of each topic.

    A callable is called once for every message whose flow needs its result. Topics whose flow needs
    an argument that is None are left out. Without `auth_deps`, senders are not authenticated.
    """

    def authenticating(flow: EventFlow) -> Handler:
        return lambda message: flow(message, deps(), auth_deps)

    handlers = {topic: authenticating(flow) for topic, flow in AGENT_EVENTS.items()}
    handlers[topics.SYSTEM_EVENTS] = authenticating(maintenance.on_message)
    handlers[topics.SUBMIT] = lambda message: submit.on_message(message, deps())
    handlers[topics.SWEEP] = lambda message: sweep.on_message(message, deps())
    if fleet_deps is not None:
        handlers[topics.PROVISION] = lambda message: provision.on_message(
            message, deps(), fleet_deps()
        )
    if objects is not None:
        handlers[topics.UPLOAD] = lambda message: upload.on_message(message, deps(), objects())
    if suggester is not None:
        handlers[topics.TUNE] = lambda message: tune.on_message(message, deps(), suggester())
    return handlers
