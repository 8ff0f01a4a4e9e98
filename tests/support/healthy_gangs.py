"""Seeded gangs, second by second, of which the agents' own decisions judge whether they hang.

`python -m tests.support.healthy_gangs --jobs 10000` counts false alarms. `--silence` counts what a
limit of silence alone would have ended.

A job is a list of phases. In each one every member prints, computes and moves bytes as such a phase
does, or waits for another member. Sources of the figures:
docs/decisions/events-and-restarts.md#decision-143.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from trainmaster.agent.control.stillness import SAMPLE_S, Sample, Stillness
from trainmaster.agent.program.process_table import ProcessUse

LEAST_S = 600.0
MINUTE, HOUR = 60.0, 3600.0
ASK_AGAIN_S = 60.0
MEMBERS_MAX = 4


@dataclass(frozen=True)
class Phase:
    """What one member, or all of them, do for a while, and at which rates."""

    seconds: float
    every_s: float | None = None
    """Time between two lines of output; None: it prints nothing."""
    cpu: float = 0.0
    """Share of a core."""
    burst: tuple[float, float, int] | None = None
    """A poll: its interval in seconds, and the CPU seconds and bytes that each one takes."""
    bytes_s: float = 0.0
    network_s: float = 0.0
    gpu: bool = False
    only: int | None = None
    """Number of the member that works; the others wait for it in a collective. None: all work."""


def _train(rng: random.Random) -> Phase:
    seconds = rng.uniform(5, 40) * MINUTE
    kind = rng.random()
    if kind < 0.4:  # the host feeds GPUs, and waits for them in between
        return Phase(
            seconds,
            rng.choice((1, 10, 60, 300)),
            rng.uniform(0.05, 1.0),
            burst=None,
            bytes_s=1e5,
            network_s=1e6,
            gpu=True,
        )
    if kind < 0.7:
        return Phase(
            seconds,
            rng.choice((0.5, 5, 30, 120)),
            rng.uniform(0.5, 8.0),
            burst=None,
            bytes_s=1e4,
            network_s=1e5,
        )
    # A line per epoch.
    return Phase(
        seconds,
        rng.choice((None, 600, 1800)),
        rng.uniform(0.3, 4.0),
        burst=None,
        bytes_s=1e3,
        network_s=1e5,
    )


def _start(rng: random.Random) -> Phase:
    return Phase(
        rng.uniform(5, 120), rng.choice((None, 10)), rng.uniform(0.3, 1.0), burst=None, bytes_s=1e6
    )


def _kind(kind: str, rng: random.Random) -> Phase:  # noqa: PLR0911 - one of each kind
    """Return the long, silent phase that this kind of job has. One member may do it alone."""
    seconds = rng.lognormvariate(3.2, 1.0) * MINUTE  # median 25 minutes, p95 two hours
    seconds = min(seconds, 8 * HOUR)
    one = rng.choice((None, 0))
    if kind == "evaluation":  # on one member or on all, with a line at its end
        return Phase(
            seconds,
            every_s=None,
            cpu=rng.uniform(0.03, 4.0),
            burst=None,
            bytes_s=rng.uniform(0, 1e6),
            network_s=0.0,
            gpu=rng.random() < 0.5,
            only=one,
        )
    if kind == "evaluation on the GPU":  # the host only waits for the device
        return Phase(
            seconds,
            every_s=None,
            cpu=rng.uniform(0.001, 0.02),
            burst=None,
            bytes_s=0.0,
            network_s=0.0,
            gpu=True,
            only=one,
        )
    # To a disk, or through a FUSE file system to Cloud Storage; one writer, or shards.
    if kind == "save":
        return Phase(
            seconds / 2,
            every_s=None,
            cpu=rng.uniform(0.01, 0.3),
            burst=None,
            bytes_s=rng.uniform(2e5, 2e8),
            network_s=0.0,
            gpu=False,
            only=one,
        )
    # Of a library in C that uses send(), so that the kernel counts no bytes for the process.
    if kind == "slow upload":
        return Phase(
            seconds / 2,
            every_s=None,
            cpu=rng.uniform(0.002, 0.05),
            burst=None,
            bytes_s=0.0,
            network_s=rng.uniform(4e4, 5e7),
            gpu=False,
            only=one,
        )
    if kind == "data loading":  # tokenising, shuffling, copying a data set
        return Phase(
            seconds,
            every_s=None,
            cpu=rng.uniform(0.01, 16.0),
            burst=None,
            bytes_s=rng.uniform(5e4, 1e8),
            network_s=rng.uniform(0, 1e7),
            gpu=False,
            only=one,
        )
    # XLA, torch.compile, CUDA extensions: one core or more, hardly any bytes.
    if kind == "compilation":
        return Phase(
            seconds / 2,
            every_s=None,
            cpu=rng.uniform(0.7, 8.0),
            burst=None,
            bytes_s=rng.uniform(0, 1e4),
            network_s=0.0,
            gpu=False,
            only=one,
        )
    # Polls a query or another job, by HTTPS, with exponential pauses.
    if kind == "waits for a service":
        return Phase(
            seconds,
            every_s=None,
            cpu=0.0,
            burst=(rng.uniform(1, 300), 0.005, rng.randint(2_000, 20_000)),
            only=one,
        )
    raise ValueError(kind)


KINDS = (
    "evaluation",
    "evaluation on the GPU",
    "save",
    "slow upload",
    "data loading",
    "compilation",
    "waits for a service",
)
HANGS = ("one member waits for data", "all wait in a collective", "a member is stopped")


class Member:
    """The kernel's counters of one member's program, and what its agent concludes."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._cpu_s = self._moved = self._traffic = 0.0
        self._printed_at = 0.0
        self._gpu = False
        # Measured: programs of three frameworks in a hung collective.
        self._idle_cpu = rng.uniform(0.0002, 0.006)
        self.stillness = Stillness(LEAST_S)
        self.silent_s = self.longest_s = 0.0

    def spend(self, at: float, seconds: float, phase: Phase | None) -> None:
        """Let time pass in a phase; None: the member waits for another one."""
        self._cpu_s += self._idle_cpu * seconds
        self._moved += self._rng.choice((0, 0, 0, 8, 16)) * seconds / SAMPLE_S
        # Heartbeats of agents and runtimes.
        self._traffic += self._rng.uniform(200, 3_000) * seconds
        self._gpu = phase is not None and phase.gpu
        if phase is None:
            return
        self._cpu_s += phase.cpu * seconds * self._rng.uniform(0.7, 1.3)
        self._moved += phase.bytes_s * seconds * self._rng.uniform(0.5, 1.5)
        self._traffic += phase.network_s * seconds * self._rng.uniform(0.7, 1.3)
        if phase.burst is not None:
            every_s, cpu_s, size = phase.burst
            polls = int((at + seconds) / every_s) - int(at / every_s)
            self._cpu_s += polls * cpu_s
            self._moved += polls * size
        if phase.every_s is not None and at + seconds >= self._printed_at + phase.every_s:
            self._print(at + seconds)

    def _print(self, at: float) -> None:
        self.longest_s = max(self.longest_s, at - self._printed_at)
        self._printed_at = at

    def end_phase(self, at: float) -> None:
        self._print(at)

    def sample(self, at: float) -> None:
        self.silent_s = at - self._printed_at
        use = {7: ProcessUse(self._cpu_s, int(self._moved))}
        self.stillness.observe(
            Sample(at, self._printed_at, use, int(self._traffic)), lambda: self._gpu
        )


def _run(phases: list[Phase], rng: random.Random) -> Iterator[tuple[float, list[Member]]]:
    """Yield the members after each sample."""
    members = [Member(rng) for _ in range(rng.randint(1, MEMBERS_MAX))]
    at = 0.0
    for phase in phases:
        end = at + phase.seconds
        while at < end:
            seconds = min(SAMPLE_S, end - at)
            for number, member in enumerate(members):
                member.spend(at, seconds, phase if phase.only in (None, number) else None)
            at += seconds
            for member in members:
                member.sample(at)
            yield at, members
        for member in members:
            member.end_phase(at)


def _phases(kind: str, rng: random.Random) -> list[Phase]:
    """Return a job: a start, and training with a long silent phase at the begin, in between or at
    the end.
    """
    silent = [_kind(kind, rng) for _ in range(rng.randint(1, 2))]
    training = [_train(rng) for _ in range(rng.randint(0, 2))]
    body = [*silent, *training]
    rng.shuffle(body)
    return [_start(rng), *body]


def false_alarm(kind: str, rng: random.Random) -> bool:
    """Return whether all agents of a healthy job say at some moment that their programs
    are still.
    """
    return any(
        all(member.stillness.is_still for member in members)
        for _, members in _run(_phases(kind, rng), rng)
    )


def silent_alarm(kind: str, rng: random.Random) -> bool:
    """Return whether a limit of silence alone would have ended the job: three times its longest
    quiet time.
    """
    jobs = _run(_phases(kind, rng), rng)
    return any(members[0].silent_s > max(LEAST_S, 3 * members[0].longest_s) for _, members in jobs)


def found_after_s(hang: str, rng: random.Random) -> tuple[float, float]:
    """Return after how many seconds a gang that hangs is found, and the longest limit of its
    members.
    """
    training = [
        _start(rng),
        Phase(
            rng.uniform(5, 60) * MINUTE,
            rng.choice((1, 30, 120)),
            cpu=0.8,
            burst=None,
            bytes_s=1e5,
            network_s=1e5,
        ),
    ]
    begin = sum(phase.seconds for phase in training)
    polls = (40.0, 0.0, 16) if hang == "one member waits for data" else None
    hung = Phase(
        3 * HOUR,
        every_s=None,
        cpu=0.0,
        burst=polls,
        only=None if hang == "all wait in a collective" else 0,
    )
    for at, members in _run([*training, hung], rng):
        if at > begin and all(member.stillness.is_still for member in members):
            return at - begin, max(member.stillness.limit_s for member in members)
    raise AssertionError(f"not found: {hang}")


def seeded(kind: str, seed: int) -> random.Random:
    return random.Random(f"{kind}-{seed}")  # noqa: S311 - a model, no secret


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--silence", action="store_true")
    options = parser.parse_args()
    judge = silent_alarm if options.silence else false_alarm
    alarms: Counter[str] = Counter()
    for seed in range(options.jobs):
        kind = KINDS[seed % len(KINDS)]
        alarms[kind] += judge(kind, seeded(kind, seed // len(KINDS)))
    for kind in KINDS:
        print(f"{kind:24} {alarms[kind]:6}")
    print(f"{alarms.total()} of {options.jobs} healthy jobs would have been ended")
    sys.exit(bool(alarms.total()) and not options.silence)


if __name__ == "__main__":
    main()
