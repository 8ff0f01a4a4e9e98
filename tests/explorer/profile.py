"""A fault profile: which faults a history has, how often, and which jobs meet them."""

from __future__ import annotations

from dataclasses import dataclass, field


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
