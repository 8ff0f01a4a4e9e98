"""Ending a program that hangs, because no exit would ever be reported.

`agent.py` starts and stops the watch with each program. The members of a job are the replicas that
train together; each one has a number, from 0.

The job's `stallTimeout` says when a program counts as hung:

    a time   it has printed nothing for this time
    auto     it and the programs of all other members have been still for ten minutes or longer:
             they print nothing, move no bytes and compute nothing (`stillness.py`)

With `auto`, the agents agree over their peer channel, which sends datagrams from VM to VM:

    member 0 is still ──► `still` to all members ──► each one that is still, too, answers
                          └── all have answered ──► `stalled` ──► all end their programs

A member that does not answer is no evidence: it works, or its VM hangs, which is found elsewhere.
With a time, the agent that finds a silent program also sends `stalled`. All programs print their
stacks before they end, so that users see where each of them hung.

Parameter servers print nothing, so their configuration has no limit. Among the hosts of a TPU
slice, only the first one is watched, because programs usually print on the first process only.
docs/decisions/0142-hung-programs.md.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from trainmaster.agent.channel.datagrams import Datagram
from trainmaster.agent.channel.peer_channel import PeerChannel
from trainmaster.agent.control.launcher import Launcher
from trainmaster.agent.control.stillness import SAMPLE_S, Sample, Stillness
from trainmaster.agent.model.inbox import Inbox
from trainmaster.agent.model.results import ProgramExit
from trainmaster.agent.model.vm_config import AgentIdentity, IncarnationKey
from trainmaster.agent.program.environment import program_package
from trainmaster.agent.program.program import Program
from trainmaster.agent.program.stacks import innermost_frames
from trainmaster.agent.reporting.serial_console import Console

# Names of the datagrams
STILL = "still"
STALLED = "stalled"
ASK_S = 2.0
"""How long peers may take to answer."""
ASK_AGAIN_S = 60.0
"""Shortest time between two questions of member 0."""
ALSO_SILENT = 0.9
"""Share of the timeout for which a program must have printed nothing, when another member's has
reached the timeout, to count as silent itself.

Members in lockstep print their last lines at about the same time, whichever of them hangs.
"""
NOTICE_S = 120.0
"""Quiet time from which users see that the program will be ended."""
QUIET_SHARE = 0.5
"""Share of the limit after which users see it, where the limit is shorter than twice `NOTICE_S`."""
SAMPLES_MIN = 4  # samples, at least, before a program counts as still
IN = "in"
"""Name, in a datagram `stalled`, of the seconds until the programs are ended."""
MOMENT_S = 1.0
"""From the decision to the first end: until then all members have stopped their programs, and none
notices the end of another, which would change its stacks.
"""
PRINTED_CHARS = 240
"""How much is quoted of the message of an error that the program had printed."""


class Surroundings(NamedTuple):
    """Readings of the machine's activity outside the program's processes."""

    traffic: Callable[[], int | None] = lambda: None
    """Bytes that the machine has sent and received; None if its traffic is not its own."""
    has_busy_gpu: Callable[[], bool] = lambda: False
    """Whether a GPU works, or may work."""


class Reason(NamedTuple):
    """Why a program was ended as hung: type and message of the error that its exit carries."""

    kind: str
    """`Silent`, `Still`, or `PeerSilent` if only another member's program printed nothing."""
    message: str


class Quiet(NamedTuple):
    """A program that the agent will end as hung, unless it becomes active."""

    for_s: float
    """How long it has printed nothing, or has been still."""
    left_s: float
    """Until it is ended if that goes on."""


class StallWatch:
    """Watches the agent's program, one incarnation after the other.

    Use it on the main thread only, but for `quiet`. The inbox runs its handlers on the main thread;
    a thread of its own takes the samples.
    """

    def __init__(
        self,
        identity: AgentIdentity,
        inbox: Inbox,
        console: Console,
        launcher: Launcher,
        channel: PeerChannel | None = None,
        surroundings: Surroundings | None = None,
    ) -> None:
        """`channel`: None if the job has no peer channel, so that the agent decides alone."""
        is_watched = identity.host is None or identity.host.number == 0
        self._timeout_s = identity.config.stall_timeout_s if is_watched else None
        self._still_s = identity.config.still_s
        self._package = program_package(identity.config)
        self._grace_s = identity.config.grace_s
        self._inbox = inbox
        self._console = console
        self._launcher = launcher
        self._channel = channel
        self._surroundings = surroundings or Surroundings()
        self._clock = inbox.clock.monotonic_s
        self._watched: IncarnationKey | None = None
        """The incarnation whose program is watched; None: there is none."""
        self._program: Program | None = None
        self._stillness: Stillness | None = None
        self._asked_at = -ASK_AGAIN_S
        """When member 0 asked the others last."""
        self._stalled: IncarnationKey | None = None
        """The incarnation whose program was ended as hung; None: none was."""
        self._reason = Reason(kind="", message="")
        """Why `_stalled` was ended."""
        if channel is not None:
            channel.on(STILL, lambda _: self._is_still)
            channel.on(STALLED, self._on_stalled)

    def start(self, key: IncarnationKey, program: Program) -> None:
        """Watch the program of this incarnation (one execution of it) from now on."""
        self._watched = key
        self._program = program
        self._stillness = None
        if self._timeout_s is not None:
            self._inbox.post_later(
                self._timeout_s, functools.partial(self._check_output, key, program)
            )
        elif self._still_s is not None:
            self._stillness = Stillness(self._still_s)
            self._asked_at = -ASK_AGAIN_S
            self._inbox.start_thread(
                functools.partial(self._watch_stillness, key, program, self._stillness)
            )

    def stop(self) -> None:
        """Stop watching, because the program has ended or is being ended."""
        self._watched = None

    def has_stalled(self, key: IncarnationKey) -> bool:
        """Return whether the program of this incarnation was ended because it had stalled."""
        return key == self._stalled

    def quiet(self) -> Quiet | None:
        """Return how long the program has been quiet; None unless that is worth a notice.

        It may be called on any thread.
        """
        program, stillness = self._program, self._stillness
        if self._watched is None or program is None:
            return None
        if self._timeout_s is not None:
            quiet_s, limit_s = self._clock() - program.printed_at, self._timeout_s
        elif stillness is not None:
            quiet_s, limit_s = stillness.still_s, stillness.limit_s
        else:
            return None
        if quiet_s < min(NOTICE_S, QUIET_SHARE * limit_s):
            return None
        return Quiet(quiet_s, max(limit_s - quiet_s, 0.0))

    def explain(self, program_exit: ProgramExit) -> ProgramExit:
        """Return the exit of the program that had stalled, with where it hung.

        The second line of the message is the error that it had printed last, if it was one.
        """
        stacks = self._program.stacks() if self._program is not None else ""
        printed = self._program.error_before_stacks() if self._program is not None else None
        frame, own_frame = innermost_frames(stacks, self._package)
        error = {
            "type": self._reason.kind,
            "message": self._reason.message + (f"\n{_in_one_line(printed)}" if printed else ""),
            "frame": frame,
            "own_frame": own_frame,
        }
        return replace(program_exit, cause="stalled", error=error)

    @property
    def _is_still(self) -> bool:
        return (
            self._watched is not None and self._stillness is not None and self._stillness.is_still
        )

    def _check_output(self, key: IncarnationKey, program: Program) -> None:
        """End the program if it has been silent for long enough; otherwise check again at the
        earliest useful time.
        """
        if key != self._watched or self._timeout_s is None:
            return
        left_s = self._timeout_s - (self._clock() - program.printed_at)
        if left_s > 0:
            self._inbox.post_later(left_s, functools.partial(self._check_output, key, program))
            return
        message = f"printed nothing for {self._timeout_s:.0f} s (stallTimeout)"
        self._end_all(key, "Silent", message)

    def _watch_stillness(self, key: IncarnationKey, program: Program, stillness: Stillness) -> None:
        """Observe the program until it ends, in a thread of its own."""
        while key == self._watched:
            uses = self._launcher.process_uses()
            traffic = self._surroundings.traffic()
            stillness.observe(
                Sample(self._clock(), program.printed_at, uses, traffic),
                self._surroundings.has_busy_gpu,
            )
            if stillness.is_still:
                self._inbox.post(self._on_still, key)
            self._inbox.clock.sleep(min(SAMPLE_S, stillness.limit_s / SAMPLES_MIN))

    def _on_still(self, key: IncarnationKey) -> None:
        """Ask the others, if this is member 0.

        If member 0 is not still, the answers of others make no difference, so it is enough that it
        asks.
        """
        if key != self._watched or not self._is_still:
            return
        if self._channel is None:
            self._end_if_all_still(key, unanswered=())
        elif self._channel.number == 0 and self._clock() - self._asked_at >= ASK_AGAIN_S:
            self._asked_at = self._clock()
            self._channel.ask(
                STILL, key, dict, ASK_S, functools.partial(self._end_if_all_still, key)
            )

    def _end_if_all_still(self, key: IncarnationKey, unanswered: Sequence[int]) -> None:
        """End the programs of all members, unless a member has not answered that it is still."""
        are_all_still = self._is_still and not unanswered
        if key == self._watched and are_all_still and self._stillness is not None:
            self._end_all(key, "Still", _describe(self._stillness))

    def _on_stalled(self, datagram: Datagram) -> None:
        """End the program at the same moment as those of the others.

        With `auto`, only if it is still by this agent's own samples.
        """
        key = datagram.key
        in_s = min(max(datagram.seconds.get(IN, 0.0), 0.0), MOMENT_S)
        if key != self._watched:
            return
        if self._stillness is not None and self._is_still:
            self._end(key, "Still", _describe(self._stillness), in_s=in_s)
        elif self._timeout_s is not None and self._program is not None:
            silent_s = self._clock() - self._program.printed_at
            if silent_s >= ALSO_SILENT * self._timeout_s:
                message = f"printed nothing for {silent_s:.0f} s (stallTimeout)"
                self._end(key, "Silent", message, in_s=in_s)
            else:
                message = "another member printed nothing (stallTimeout)"
                self._end(key, "PeerSilent", message, in_s=in_s)

    def _end_all(self, key: IncarnationKey, kind: str, message: str) -> None:
        """End the programs of all members. `kind`, `message`: of this program's error."""
        if self._channel is not None:
            moment = self._clock() + MOMENT_S
            self._channel.ask(
                STALLED,
                key,
                lambda: {IN: max(0.0, moment - self._clock())},
                ASK_S,
                lambda _: None,
            )
        self._end(key, kind, message, in_s=0.0 if self._channel is None else MOMENT_S)

    def _end(self, key: IncarnationKey, kind: str, message: str, *, in_s: float) -> None:
        """End this agent's program in `in_s` seconds. `kind`, `message`: of its error."""
        self._watched = None
        self._stalled = key
        self._reason = Reason(kind, message)
        self._console.log(f"The program has stalled: {message}. Its stacks follow, then its end.")
        if self._program is not None:
            end = functools.partial(
                self._launcher.end_stalled, key, self._program, self._grace_s, in_s
            )
            self._inbox.start_thread(end)


def _in_one_line(error: Mapping[str, Any]) -> str:
    """Return type, first line of the message, and place of an error, if it has one."""
    first = str(error["message"]).partition("\n")[0][:PRINTED_CHARS]
    place = f" ({error['own_frame']})" if error["own_frame"] else ""
    return f"{error['type']}: {first}{place}"


def _describe(stillness: Stillness) -> str:
    """Return the message of the error of a program that was ended because it was still."""
    return f"still for {stillness.still_s / 60:.0f} minutes"
