"""Fault profiles: which faults may happen in a history, and how often."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final


@dataclass(frozen=True, slots=True)
class Profile:
    """Rates of faults.

    Fields without a unit in their name are probabilities; 0 means that the fault never happens.
    """

    name: str
    duplicate: float = 0.0
    """Per message: delivered twice."""
    late: float = 0.0
    """Per message: delivered after minutes instead of fractions of a second."""
    lost: float = 0.0
    """Per message of `provision` and `sweep`: never delivered.

    Only these are repaired by the next sweep.
    """
    lost_event: float = 0.0
    """Per vm-ready or replica-exit: accepted, and never delivered.

    If set, agents repeat the latest one.
    """
    crash: float = 0.0
    """Per port call of a function: the instance ends, in half of the cases before the call,
    otherwise after it.
    """
    temporary_error: float = 0.0
    """Per port call of a function: it raises TemporaryError, in half of the cases after the call
    was applied.
    """
    suspend: float = 0.0
    """Per port call of a function: other actions run before or after the call."""
    instances_max: int = 4
    """Concurrent invocations of functions.

    Pub/Sub delivers again later when no instance is free.
    """
    skew_s: float = 0.0
    """Largest error of a function instance's clock, in seconds."""
    stockout: float = 0.0
    """Per insert: the zone has no capacity, and the call fails at once."""
    stockout_late: float = 0.0
    """Per insert: the operation fails with a stockout after the call was accepted."""
    partial: float = 0.0
    """Per insert that may create fewer VMs than requested: it does.

    Jobs have optional replicas if it is set.
    """
    slow_create: float = 0.0
    """Per insert: the operation takes minutes."""
    quota: float = 0.0
    """Per insert: the quota is used up."""
    internal: float = 0.0
    """Per insert: an internal error of Compute Engine."""
    denied: float = 0.0
    """Per insert: the service account lacks a permission."""
    lost_at_boot: float = 0.0
    """Per VM: it is lost before its agent reports anything."""
    loss_per_hour: float = 0.0
    """Losses of a running VM, per hour."""
    notice: float = 0.5
    """Per loss: it is announced."""
    reboot: float = 0.3
    """Per loss without notice: the VM reboots instead of ending."""
    fail: float = 0.0
    """Per incarnation of a program: it fails."""
    setup_fail: float = 0.0
    """Per set-up of a VM: it fails."""
    agent_crash_per_hour: float = 0.0
    """Crashes of a VM's agent, per hour."""
    hang_per_hour: float = 0.0
    """Hangs of a VM, per hour: it stays RUNNING, and its agent does nothing more.

    One VM of a job at a time.
    """
    unreachable: float = 0.0
    """Per publish call of an agent: it fails."""
    cancel: float = 0.0
    """Per job: its user cancels it."""
    meddling: float = 0.0
    """Per job: its user submits its id again, labels it, and deletes it."""
    replays_requests: bool = False
    """See `trainmaster_local.simulator.world.fleet.SimFleet`."""

    @property
    def delays_messages(self) -> bool:
        """Whether it may take minutes until a message is handled."""
        return any(
            (
                self.late,
                self.lost_event,
                self.crash,
                self.temporary_error,
                self.suspend,
                self.unreachable,
            )
        )

    def without_faults(self) -> Profile:
        """Return a profile without faults.

        Fields that describe the installation stay as they are.
        """
        return Profile(
            self.name,
            skew_s=self.skew_s,
            instances_max=self.instances_max,
            replays_requests=self.replays_requests,
        )


CALM: Final = Profile("calm")
MESSAGES: Final = Profile("messages", duplicate=0.2, late=0.15, lost=0.2, unreachable=0.2, fail=0.3)
FUNCTIONS: Final = Profile("functions", crash=0.06, temporary_error=0.06, fail=0.3, loss_per_hour=6)
RACES: Final = Profile(
    "races", suspend=0.25, duplicate=0.3, fail=0.3, loss_per_hour=15, stockout=0.1, cancel=0.1
)
CAPACITY: Final = Profile(
    "capacity",
    stockout=0.35,
    stockout_late=0.2,
    slow_create=0.2,
    quota=0.1,
    internal=0.03,
    denied=0.01,
    lost_at_boot=0.05,
    loss_per_hour=6,
)
MACHINES: Final = Profile("machines", loss_per_hour=40, lost_at_boot=0.1, agent_crash_per_hour=10)
PROGRAMS: Final = Profile("programs", fail=0.6, setup_fail=0.1)
SKEW: Final = Profile("skew", skew_s=2.0, fail=0.4, loss_per_hour=20)
SLICES: Final = Profile(
    "slices", fail=0.15, loss_per_hour=20, agent_crash_per_hour=6, duplicate=0.1, suspend=0.05
)
"""For jobs on TPU slices with several hosts."""
QUEUE: Final = Profile(
    "queue",
    suspend=0.15,
    duplicate=0.1,
    lost=0.1,
    crash=0.02,
    fail=0.1,
    loss_per_hour=6,
    cancel=0.2,
)
"""For several jobs with a limit that does not fit all of them."""
USERS: Final = Profile(
    "users", duplicate=0.3, late=0.1, suspend=0.15, crash=0.04, cancel=0.5, meddling=1.0
)
"""Users upload job files, and submit, cancel, label and delete the same job at the same time."""
STORM: Final = Profile(
    "storm", suspend=0.35, instances_max=16, duplicate=0.2, fail=0.3, loss_per_hour=15, stockout=0.1
)
"""For gangs of up to a dozen replicas: many concurrent invocations, most of which decide on an
outdated state.
"""
EVERYTHING: Final = Profile(
    "everything",
    duplicate=0.1,
    late=0.05,
    lost=0.08,
    crash=0.02,
    temporary_error=0.02,
    suspend=0.1,
    skew_s=2.0,
    stockout=0.12,
    stockout_late=0.08,
    slow_create=0.1,
    lost_at_boot=0.05,
    loss_per_hour=20,
    fail=0.3,
    setup_fail=0.03,
    agent_crash_per_hour=6,
    unreachable=0.1,
    cancel=0.05,
    quota=0.03,
    internal=0.02,
    denied=0.005,
    meddling=0.1,
)

LOST_EVENTS: Final = replace(
    MESSAGES,
    name="lost-events",
    lost_event=0.1,
    agent_crash_per_hour=10,
    loss_per_hour=10,
    notice=0.0,
    reboot=0.7,
    replays_requests=True,
)
"""Only the repeated reports of agents let these jobs end, also those that an agent repeats after
its VM rebooted.

Compute Engine remembers request ids: that is how the loss of a VM is found from which no report was
handled.
"""
REPLAYS: Final = replace(MACHINES, name="replays", replays_requests=True)
HANGS: Final = Profile(
    "hangs", hang_per_hour=10, fail=0.2, loss_per_hour=5, suspend=0.1, duplicate=0.1, crash=0.02
)
"""Only the heartbeats of agents let these jobs end."""

PARTIAL: Final = Profile(
    "partial",
    partial=0.6,
    stockout=0.3,
    slow_create=0.1,
    loss_per_hour=15,
    lost_at_boot=0.05,
    fail=0.2,
    suspend=0.1,
    duplicate=0.1,
    crash=0.02,
)
"""For jobs that start before all of their VMs exist."""

KEPT: Final = Profile(
    "kept",
    duplicate=0.2,
    late=0.1,
    lost=0.1,
    crash=0.04,
    suspend=0.2,
    fail=0.15,
    loss_per_hour=15,
    agent_crash_per_hour=10,
    stockout=0.05,
    cancel=0.15,
    unreachable=0.05,
)
"""For several jobs of one user that keep their machines and take those of each other."""

_ALL: Final = (
    CALM, MESSAGES, FUNCTIONS, RACES, STORM, CAPACITY, MACHINES,
    PROGRAMS, SKEW, SLICES, QUEUE, USERS, EVERYTHING, REPLAYS, LOST_EVENTS, HANGS, PARTIAL, KEPT,
)  # fmt: skip
PROFILES: Final = {profile.name: profile for profile in _ALL}


def preemptions(per_hour: float) -> Profile:
    """Return a profile whose only fault is the loss of VMs, in half of the cases with notice."""
    return replace(CALM, name="preemptions", loss_per_hour=per_hour, reboot=0.0)
