"""What may go wrong, and how often."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final


@dataclass(frozen=True, slots=True)
class Profile:
    """Probabilities, unless a unit says otherwise. All zero: nothing ever goes wrong.

    Per message: `duplicate`, `late` (minutes instead of moments), `lost` (provision and sweep only: of those nobody
    but the next sweep would know). Per port call of a function: `crash` (the instance dies before or after the call),
    `trouble` (TemporaryError, the call applied or not), `suspend` (others run in the middle of it).
    Per insert: `stockout` at the call, `stockout_late` in the operation, `slow_create`; `quota`, `internal`, `denied`.
    Per VM: `mute` (gone before its agent speaks), `loss_per_hour`; of the losses `notice` are announced, and `reboot`
    of the others leave the VM there. Per incarnation of a program: `fail`. Per VM: `setup_fail`, `agent_crash_per_hour`.
    Per publish of an agent: `unreachable`. Per job: `cancel`; `meddling`: its user submits again, labels and deletes.
    `replays_requests`: see `simulator.world.fleet.SimFleet`.
    """

    name: str
    duplicate: float = 0.0
    late: float = 0.0
    lost: float = 0.0
    crash: float = 0.0
    trouble: float = 0.0
    suspend: float = 0.0
    skew_s: float = 0.0
    stockout: float = 0.0
    stockout_late: float = 0.0
    slow_create: float = 0.0
    quota: float = 0.0
    internal: float = 0.0
    denied: float = 0.0
    mute: float = 0.0
    loss_per_hour: float = 0.0
    notice: float = 0.5
    reboot: float = 0.3
    fail: float = 0.0
    setup_fail: float = 0.0
    agent_crash_per_hour: float = 0.0
    unreachable: float = 0.0
    cancel: float = 0.0
    meddling: float = 0.0
    replays_requests: bool = False

    @property
    def delay(self) -> bool:
        """Whether a message may take longer than a moment to be handled."""
        return any((self.late, self.crash, self.trouble, self.suspend, self.unreachable))

    def without_faults(self) -> Profile:
        """The clocks stay as wrong as they are."""
        return Profile(self.name, skew_s=self.skew_s, replays_requests=self.replays_requests)


CALM: Final = Profile("calm")
MESSAGES: Final = Profile("messages", duplicate=0.2, late=0.15, lost=0.2, unreachable=0.2, fail=0.3)
FUNCTIONS: Final = Profile("functions", crash=0.06, trouble=0.06, fail=0.3, loss_per_hour=6)
RACES: Final = Profile("races", suspend=0.25, duplicate=0.3, fail=0.3, loss_per_hour=15, stockout=0.1, cancel=0.1)
CAPACITY: Final = Profile(
    "capacity",
    stockout=0.35,
    stockout_late=0.2,
    slow_create=0.2,
    quota=0.1,
    internal=0.03,
    denied=0.01,
    mute=0.05,
    loss_per_hour=6,
)
MACHINES: Final = Profile("machines", loss_per_hour=40, mute=0.1, agent_crash_per_hour=10)
PROGRAMS: Final = Profile("programs", fail=0.6, setup_fail=0.1)
SKEW: Final = Profile("skew", skew_s=2.0, fail=0.4, loss_per_hour=20)
SLICES: Final = Profile("slices", fail=0.15, loss_per_hour=20, agent_crash_per_hour=6, duplicate=0.1, suspend=0.05)
"""Jobs on slices of several hosts."""
LINE: Final = Profile("line", suspend=0.15, duplicate=0.1, lost=0.1, crash=0.02, fail=0.1, loss_per_hour=6, cancel=0.2)
"""Several jobs, and not room for all."""
HANDS: Final = Profile("hands", duplicate=0.3, late=0.1, suspend=0.15, crash=0.04, cancel=0.5, meddling=1.0)
"""Users do everything at once, and submit files."""
EVERYTHING: Final = Profile(
    "everything",
    duplicate=0.1,
    late=0.05,
    lost=0.08,
    crash=0.02,
    trouble=0.02,
    suspend=0.1,
    skew_s=2.0,
    stockout=0.12,
    stockout_late=0.08,
    slow_create=0.1,
    mute=0.05,
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

REPLAYS: Final = replace(MACHINES, name="replays", replays_requests=True)

_ALL: Final = (
    CALM, MESSAGES, FUNCTIONS, RACES, CAPACITY, MACHINES, PROGRAMS, SKEW, SLICES, LINE, HANDS, EVERYTHING, REPLAYS,
)  # fmt: skip
PROFILES: Final = {profile.name: profile for profile in _ALL}


def preempted(per_hour: float) -> Profile:
    """A user's question: nothing goes wrong but that VMs are taken away, half of them with notice."""
    return replace(CALM, name="preemptions", loss_per_hour=per_hour, reboot=0.0)
