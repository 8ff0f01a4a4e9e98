"""Fault profiles: which faults a history has, and how often."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final


@dataclass(frozen=True, slots=True)
class Profile:
    """Probabilities, unless the name ends with a unit.

    Faults end after `faults_s`; then the job must end.
    """

    name: str
    # functions and messages
    suspend: float = 0.0
    """Per port call, before and after it: the invocation waits while anything else may run."""
    crash: float = 0.0
    """Per port call, before and after it: the function's instance ends."""
    temporary: float = 0.0
    """Per port call, before and after it: it fails, applied or not."""
    duplicate: float = 0.0
    late: float = 0.0
    """A delivery takes up to 200 s."""
    ack_lost: float = 0.0
    zombie: float = 0.0
    """Per port call, before and after it: the invocation waits for minutes."""
    down: float = 0.0
    """Per minute: no function runs for up to ten minutes."""
    refused: float = 0.0
    """Per message of an agent: Pub/Sub refuses it, and the agent tries again."""
    lost: float = 0.0
    """Requests to provision, tune and sweep that get lost."""
    lost_event: float = 0.0
    """Messages of agents that get lost after Pub/Sub accepted them."""
    function_skew_s: float = 0.0
    agent_skew_s: float = 0.0
    bad_clock: float = 0.0
    """An agent's clock is wrong by half a minute to two minutes."""
    # Compute Engine
    stockout: float = 0.0
    stockout_late: float = 0.0
    slow_create: float = 0.0
    quota: float = 0.0
    internal: float = 0.0
    partial: float = 0.0
    early_loss: float = 0.0
    unreachable: float = 0.0
    """Per minute and zone with VMs: Google cannot reach it for up to 15 minutes. VMs run on."""
    # machines
    loss_per_hour: float = 0.0
    """Per VM: preemption, maintenance, host error, reboot, hang."""
    reboots: float = 0.17
    """Weight of reboots among the losses; all others have 0.83."""
    withdrawn: float = 0.0
    """Weight of maintenance that is announced and then cancelled."""
    long_save: float = 0.0
    """Per save: it takes minutes."""
    slow_metadata: float = 0.0
    """Per change: an agent learns of it up to 90 s late."""
    agent_crash_per_hour: float = 0.0
    full_disk: float = 0.0
    """Per VM: its disk becomes full while it runs."""
    setup_fail: float = 0.0
    unfit: float = 0.0
    """A machine fails the preflight before a start, and so again before each later one."""
    slow_setup: float = 0.0
    """A set-up takes `slow_setup_s`, with heartbeats."""
    slow_setup_s: tuple[float, float] = (300.0, 1800.0)
    unkillable: float = 0.0
    """A program survives SIGKILL until its VM is gone."""
    slow_stop: float = 0.0
    """A program uses its grace of 25 s."""
    # programs
    fail: float = 0.0
    """Per program: it fails by itself."""
    freeze: float = 0.0
    """Per program: it stops making progress, and all its peers with it."""
    reactions: tuple[str, ...] = ("peer", "peer", "bare", "abort", "launcher")
    """What programs do when a peer goes: see `programs.REACTIONS`."""
    noticed_s: tuple[float, float] = (0.5, 5.0)
    work_s: tuple[float, float] = (20.0, 150.0)
    export_s: float = 20.0
    """Longest time that the primary runs on after its peers have completed."""
    # jobs
    kinds: tuple[str, ...] = ("sync", "sync", "sync", "ps", "independent", "evaluator", "partial")
    sizes: tuple[int, ...] = (1, 2, 2, 3, 4)
    jobs: int = 1
    submitted_s: float = 60.0
    """Within which time the jobs after the first are submitted."""
    vcpus: int = 0
    """Limit of all jobs together; 0: none."""
    cap_s: tuple[float, float] | None = None
    """How long all machines of a job can run on demand for its `maxCost`; None: it has none."""
    elastic: bool = False
    """Whether synchronous jobs of several replicas are elastic."""
    alternatives: bool = False
    """Whether jobs have two candidates."""
    options: float = 0.25
    """Exit policies, Spot VMs, and the job's other options."""
    cancel: float = 0.0
    keeps: float = 0.0
    """Per job of several: it keeps its machines, and takes those of others."""
    keep_s: tuple[int, ...] = (0, 120, 600, 600)
    releases: float = 0.0
    """Per job that keeps machines: its user releases them."""
    uploads: float = 0.0
    """Per job: it is submitted as a file."""
    meddling: float = 0.0
    """Per job: its user asks several times to delete it and to change its labels."""
    unpromising: float = 0.0
    restores: bool = False
    """Whether the database is restored to an earlier time once, while VMs go on."""
    faults_s: float = 900.0
    horizon_s: float = 4 * 3600.0
    limits: dict[str, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        if self.vcpus:
            self.limits["vcpus"] = self.vcpus


RACES: Final = Profile(
    "races", suspend=0.25, duplicate=0.3, fail=0.3, loss_per_hour=15, stockout=0.1, cancel=0.1
)
EVERY: Final = Profile(
    "every",
    suspend=0.15,
    crash=0.02,
    temporary=0.02,
    duplicate=0.1,
    late=0.05,
    lost=0.08,
    lost_event=0.02,
    function_skew_s=1,
    agent_skew_s=0.2,
    stockout=0.12,
    stockout_late=0.08,
    slow_create=0.1,
    quota=0.03,
    internal=0.02,
    partial=0.4,
    early_loss=0.05,
    loss_per_hour=20,
    agent_crash_per_hour=6,
    setup_fail=0.03,
    fail=0.3,
    cancel=0.05,
)
_ALL: Final = (
    Profile(
        "notices",
        suspend=0.1,
        duplicate=0.1,
        late=0.05,
        loss_per_hour=40,
        kinds=("sync",),
        sizes=(2, 3, 4),
    ),
    # The eleven profiles of an earlier review of the rules, with programs of today's frameworks.
    RACES,
    EVERY,
    Profile(
        "storm",
        suspend=0.4,
        duplicate=0.2,
        late=0.1,
        ack_lost=0.1,
        fail=0.3,
        loss_per_hour=30,
        stockout=0.15,
        stockout_late=0.1,
        slow_create=0.1,
        sizes=(2, 3, 5, 8),
    ),
    Profile(
        "elastic",
        kinds=("sync",),
        sizes=(2, 3, 4, 5),
        elastic=True,
        stockout=0.5,
        stockout_late=0.1,
        slow_create=0.2,
        partial=0.5,
        early_loss=0.05,
        loss_per_hour=25,
        agent_crash_per_hour=3,
        setup_fail=0.02,
        unfit=0.02,
        fail=0.15,
        cancel=0.05,
        suspend=0.15,
        crash=0.01,
        duplicate=0.15,
        late=0.05,
        lost=0.05,
        lost_event=0.02,
        work_s=(60.0, 600.0),
        options=0.0,
    ),
    Profile(
        "alternatives",
        kinds=("sync",),
        sizes=(3,),
        alternatives=True,
        stockout=0.3,
        stockout_late=0.15,
        slow_create=0.2,
        quota=0.1,
        internal=0.02,
        early_loss=0.08,
        loss_per_hour=30,
        suspend=0.2,
        crash=0.01,
        duplicate=0.15,
        late=0.05,
        lost=0.05,
        lost_event=0.02,
        fail=0.15,
        cancel=0.1,
        options=0.0,
    ),
    Profile(
        "crash", crash=0.04, temporary=0.04, fail=0.3, loss_per_hour=15, suspend=0.05, lost=0.1
    ),
    Profile(
        "cloud",
        stockout=0.3,
        stockout_late=0.2,
        slow_create=0.2,
        quota=0.1,
        internal=0.02,
        early_loss=0.08,
        loss_per_hour=8,
        partial=0.5,
        suspend=0.1,
    ),
    Profile(
        "lost-events", lost_event=0.1, fail=0.3, loss_per_hour=15, agent_crash_per_hour=8, lost=0.1
    ),
    Profile("skew", agent_skew_s=0.2, function_skew_s=1.0, fail=0.4, loss_per_hour=20, suspend=0.1),
    Profile(
        "slices",
        kinds=("slices",),
        fail=0.15,
        loss_per_hour=20,
        suspend=0.1,
        duplicate=0.1,
        agent_crash_per_hour=6,
        lost_event=0.03,
    ),
    Profile(
        "queue",
        jobs=4,
        vcpus=12,
        kinds=("sync",),
        sizes=(1, 1, 2, 3),
        suspend=0.15,
        duplicate=0.1,
        lost=0.1,
        crash=0.02,
        fail=0.1,
        loss_per_hour=6,
        cancel=0.2,
    ),
    Profile(
        "tuning",
        kinds=("tuning",),
        suspend=0.2,
        duplicate=0.25,
        late=0.05,
        lost=0.15,
        crash=0.03,
        temporary=0.03,
        function_skew_s=0.5,
        fail=0.2,
        loss_per_hour=6,
        cancel=0.2,
        unpromising=0.05,
        horizon_s=8 * 3600,
    ),
    replace(
        RACES, name="gang", kinds=("sync",), sizes=(3, 4, 5), options=0.0, suspend=0.3, fail=0.35
    ),
    # Five more: what the frameworks and machines of long runs do.
    Profile(
        "launchers",
        kinds=("sync",),
        sizes=(3, 4, 6),
        reactions=("launcher",),
        noticed_s=(0.05, 60.0),
        fail=0.25,
        loss_per_hour=20,
        suspend=0.1,
        late=0.1,
        options=0.0,
    ),
    Profile(
        "aborts",
        kinds=("sync",),
        sizes=(3, 4, 6),
        reactions=("abort",),
        noticed_s=(2.0, 60.0),
        fail=0.15,
        loss_per_hour=20,
        agent_crash_per_hour=6,
        suspend=0.1,
        options=0.0,
    ),
    Profile(
        "hangs",
        kinds=("sync", "sync", "slices"),
        sizes=(2, 3, 4),
        reactions=("hangs", "hangs", "peer", "abort"),
        fail=0.2,
        freeze=0.1,
        loss_per_hour=15,
        unkillable=0.05,
        slow_stop=0.2,
        suspend=0.1,
        duplicate=0.1,
    ),
    Profile(
        "set-ups",
        kinds=("sync", "sync", "ps", "slices"),
        slow_setup=0.1,
        setup_fail=0.03,
        early_loss=0.05,
        loss_per_hour=10,
        fail=0.15,
        slow_create=0.2,
        lost_event=0.05,
        suspend=0.1,
    ),
    Profile(
        "unfit",
        kinds=("sync", "sync", "independent", "slices", "partial"),
        unfit=0.15,
        loss_per_hour=10,
        fail=0.2,
        slow_create=0.1,
        duplicate=0.1,
        lost_event=0.05,
        suspend=0.1,
    ),
    Profile(
        "completions",
        kinds=("sync",),
        sizes=(2, 3, 4),
        export_s=120.0,
        work_s=(20.0, 60.0),
        fail=0.5,
        loss_per_hour=25,
        suspend=0.2,
        duplicate=0.2,
        late=0.05,
        lost_event=0.05,
        options=0.1,
    ),
    Profile(
        "bad-clocks",
        kinds=("sync", "ps"),
        agent_skew_s=0.2,
        bad_clock=0.2,
        fail=0.3,
        loss_per_hour=20,
        suspend=0.1,
    ),
    Profile(
        "users",
        uploads=0.5,
        meddling=0.9,
        cancel=0.3,
        suspend=0.15,
        crash=0.02,
        temporary=0.02,
        duplicate=0.2,
        late=0.05,
        ack_lost=0.05,
        loss_per_hour=10,
        fail=0.3,
    ),
    Profile(
        "caps",
        cap_s=(700.0, 7200.0),
        kinds=("sync", "sync", "sync", "ps", "independent", "evaluator", "partial", "slices"),
        work_s=(300.0, 7200.0),
        faults_s=10_000,
        horizon_s=24 * 3600,
        elastic=True,
        options=0.8,
        suspend=0.02,
        crash=0.005,
        temporary=0.005,
        duplicate=0.05,
        late=0.02,
        lost=0.01,
        lost_event=0.02,
        stockout=0.2,
        stockout_late=0.1,
        slow_create=0.1,
        partial=0.4,
        early_loss=0.03,
        loss_per_hour=2,
        agent_crash_per_hour=1,
        fail=0.2,
    ),
)
MESSAGES: Final = Profile(
    "messages",
    suspend=0.1,
    crash=0.01,
    temporary=0.01,
    duplicate=0.1,
    late=0.05,
    lost=0.05,
    lost_event=0.02,
)
"""What can happen to messages and invocations in the profiles below."""
_MACHINES: Final = (
    replace(
        MESSAGES,
        name="unreachable",
        kinds=("sync", "sync", "independent", "ps"),
        unreachable=0.05,
        stockout=0.2,
        slow_create=0.3,
        loss_per_hour=12,
        fail=0.15,
        work_s=(60.0, 400.0),
        faults_s=1800.0,
        options=0.1,
    ),
    replace(
        MESSAGES,
        name="agents",
        kinds=("sync",),
        sizes=(2, 3, 4),
        elastic=True,
        loss_per_hour=30,
        reboots=0.5,
        agent_crash_per_hour=20,
        bad_clock=0.05,
        setup_fail=0.02,
        unfit=0.02,
        unkillable=0.02,
        fail=0.15,
        work_s=(60.0, 400.0),
        options=0.0,
    ),
    replace(
        MESSAGES,
        name="full-disk",
        kinds=("sync",),
        sizes=(2, 3, 4),
        elastic=True,
        full_disk=0.25,
        loss_per_hour=30,
        reboots=0.5,
        agent_crash_per_hour=20,
        fail=0.15,
        work_s=(60.0, 400.0),
        options=0.0,
    ),
    replace(
        MESSAGES,
        name="outages",
        kinds=("sync", "sync", "evaluator", "ps"),
        zombie=0.003,
        down=0.05,
        refused=0.1,
        ack_lost=0.05,
        lost=0.15,
        lost_event=0.05,
        withdrawn=0.5,
        long_save=0.3,
        slow_metadata=0.1,
        stockout=0.1,
        loss_per_hour=15,
        fail=0.15,
        work_s=(60.0, 400.0),
        faults_s=1800.0,
        options=0.1,
    ),
)
"""Zones, agents, disks and services that fail more often than machines."""
_KEPT: Final = Profile(
    "kept",
    kinds=("sync", "sync", "independent", "ps"),
    sizes=(1, 1, 1, 2),
    jobs=5,
    submitted_s=900.0,
    keeps=0.9,
    releases=0.3,
    cancel=0.1,
    work_s=(20.0, 90.0),
    suspend=0.1,
    duplicate=0.1,
    late=0.05,
    fail=0.2,
    loss_per_hour=4,
    options=0.1,
    faults_s=1800.0,
)
_KEPT_PROFILES: Final = (
    _KEPT,
    replace(_KEPT, name="kept-takers", jobs=6, submitted_s=240.0, suspend=0.3, duplicate=0.3),
    replace(
        _KEPT,
        name="kept-losses",
        loss_per_hour=30,
        early_loss=0.05,
        agent_crash_per_hour=20,
        unfit=0.03,
        unkillable=0.03,
        slow_metadata=0.1,
    ),
    replace(
        _KEPT,
        name="kept-frozen",
        zombie=0.004,
        crash=0.02,
        temporary=0.02,
        ack_lost=0.05,
        lost=0.15,
        lost_event=0.03,
        down=0.05,
        function_skew_s=1,
    ),
    replace(_KEPT, name="kept-trials", kinds=("tuning",), jobs=2, unpromising=0.05),
    replace(
        _KEPT, name="kept-limits", vcpus=16, stockout=0.15, stockout_late=0.05, slow_create=0.1
    ),
    replace(_KEPT, name="kept-restored", restores=True),
)
"""Jobs that keep their machines and take those of each other."""
PROFILES: Final = {profile.name: profile for profile in (*_ALL, *_MACHINES, *_KEPT_PROFILES)}
