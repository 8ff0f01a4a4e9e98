"""Events about one incarnation of one replica: one execution of its program.

In a synchronous job the incarnations of all members are a round (`core.model.round`). A held round
waits until every member is ready for it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, Literal

from trainmaster.core.events.reads import Reads
from trainmaster.core.model.last_progress import LastProgress
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.model.tuning import Measurement
from trainmaster.core.model.vm import LossCause

_INTRODUCTION: Final = re.compile(r":$|^Exception encountered when calling ")
"""A first line that says where something is wrong, not what."""
_NAMED_ERROR: Final = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Warning)\b: ")
"""The line of an error within the message of another one."""
_LONG_MESSAGES: Final = {
    # PyYAML: what it read, perhaps where that began, what is wrong, and where.
    r"while [^\n]+\n(?:  in [^\n]+\n)?"
    r"(?P<problem>\S[^\n]*)\n  (?P<place>in [^\n]+, line \d+[^\n]*)": "{problem} {place}",
    # pydantic: how many fields are wrong; for each one its name, and indented what is wrong.
    r"(?P<begin>\d+ validation errors? for [^\n]+)\n(?P<field>\S[^\n]*)\n +(?P<problem>[^\n]+?)"
    r"(?: \[type=| \(type=|\n|$)": "{begin}: {field}: {problem}",
    # torch.compile: the error with which it failed is at the end of an explanation.
    r"(?P<begin>[^\n]+)\n+ *Explanation: [^\n]*?"
    r"\bgot (?P<problem>\w+\([^\n]+\))": "{begin}: {problem}",
}
"""Message of a library → its headline, with the named groups of the pattern."""


@dataclass(frozen=True, slots=True)
class VmRef:
    """A VM, by its name, zone and Google's numeric id."""

    name: str
    zone: str
    instance_id: str


@dataclass(frozen=True, slots=True)
class IncarnationRef:
    """One incarnation of one replica on one VM: the subject of an event."""

    job_id: str
    attempt: int
    """The job's attempt."""
    replica_id: ReplicaId
    incarnation: int
    """Incarnation within the attempt."""
    vm_generation: int
    """VM generation of the replica."""
    vm: VmRef
    host: int | None = None
    """Host of the TPU slice that reports the event; None for a VM."""

    @property
    def key(self) -> str:
        return f"{self.attempt}-{self.replica_id}-{self.incarnation}-vm-{self.vm_generation}"

    @property
    def host_key(self) -> str:
        """Suffix of the keys of events that every host of a slice reports for itself."""
        return "" if self.host is None else f"-host-{self.host}"


class _ReplicaEvent:
    """An event about one incarnation of one replica."""

    __slots__ = ()
    subject: IncarnationRef

    @property
    def job_id(self) -> str:
        return self.subject.job_id

    @property
    def reads(self) -> Reads:
        """What is loaded to judge the event: the job, and the replica of the subject's attempt."""
        return Reads(self.subject.replica_id, self.subject.attempt)


class ExitCause(StrEnum):
    """Cause of the end of an incarnation, as the agent observed it."""

    PROCESS = "process"  # the program ended by itself or by a signal
    INSTALL = "install"  # a package cannot be downloaded or installed, permanently
    SETUP = "setup"  # the agent could not set up, for a transient reason
    VM_STOPPING = (
        "vm_stopping"  # the VM was shutting down under the program, whatever the exit status
    )
    VM_RESTARTED = "vm_restarted"  # the VM rebooted, or the agent died, under the program
    # The program ended after it, or all members, were asked to save, because a VM goes, or the job
    # ends.
    SAVED = "saved"
    UNFIT = "unfit"  # the preflight found a fault of the machine, before the program started
    STALLED = "stalled"  # the program printed nothing for its stall timeout: the agent ended it


@dataclass(frozen=True, slots=True)
class ProgramError:
    """The last Python traceback in the program's output."""

    type: str
    """Type of the exception, as printed."""
    message: str
    frame: str
    """Innermost frame: `file:line in function`."""
    own_frame: str = ""
    """Innermost frame in the job's own code, in the same form; empty if there is none."""
    causes: tuple[str, ...] = ()
    """Types of the exceptions that it was raised from, or that were being handled when it was
    raised.
    """

    @property
    def headline(self) -> str:
        """Return the message in one line.

        A first line that ends with a colon only introduces what is wrong, as TensorFlow's `in user
        code:` does, and so does that of Keras about a layer. The line that names an error follows
        it then, or else the next line. Other libraries have forms of their own.
        """
        for pattern, form in _LONG_MESSAGES.items():
            match = re.match(pattern, self.message)
            if match:
                return form.format(**match.groupdict())
        first, *others = [line.strip() for line in self.message.splitlines() if line.strip()] or [
            ""
        ]
        if not _INTRODUCTION.search(first) or not others:
            return first.rstrip(": ")
        named = next((line for line in others if _NAMED_ERROR.match(line)), others[0])
        return f"{first} {named}".rstrip(": ")


@dataclass(frozen=True, slots=True)
class ReplicaExited(_ReplicaEvent):
    """An incarnation ended.

    A program has either an exit status or a signal; other causes may have neither. The exit of the
    first host that fails is the exit of the whole slice; each host reports its own exit 0.
    """

    subject: IncarnationRef
    at: datetime
    cause: ExitCause = ExitCause.PROCESS
    exit_status: int | None = None
    """Exit status of the program, if it ended with one."""
    signal: int | None = None
    """Number of the signal that ended the program, if one did."""
    out_of_memory: bool = False
    """Whether the kernel ended the program because memory ran out."""
    error: ProgramError | None = None
    """The Python error that the output ends with; None: there is none."""
    tail: str = ""
    """End of the program's output."""
    measurement: Measurement | None = None
    """In a trial, the last measurement that the program reported."""
    ran_s: float | None = None
    """How long the program ran, in seconds; None if the agent does not know it."""
    stderr_line: str = ""
    """Last words of the program on its standard error (`program_errors.last_words`); empty: it
    printed none, or the agent is of a release that does not report them.
    """
    progress: LastProgress | None = None
    """How far the program was, for the primary; None: the program did not report it, or the agent
    does not report it.
    """
    left_nothing: bool = False
    """Whether the primary's program exited 0 with nothing below the job's `jobDir`."""
    unlogged_lines: int = 0
    """Lines that were missing in Cloud Logging when the exit was published, and that no entry there
    counts as missing.
    """
    log_problem: str = ""
    """Why Cloud Logging did not accept them; empty: it did."""
    ended: ReplicaExited | None = None
    """If this incarnation could not be started: how the previous program on this VM ended; None as
    in `VmReady`.
    """
    kind: Literal["replica_exited"] = "replica_exited"

    @property
    def key(self) -> str:
        return f"{self.subject.key}-exit{self.subject.host_key if self.succeeded else ''}"

    @property
    def reads(self) -> Reads:
        """If the job was rerun, an exit 0 may be success for the current attempt, too: that
        attempt's replica is loaded.
        """
        return Reads(
            self.subject.replica_id, self.subject.attempt, of_current_attempt=self.succeeded
        )

    @property
    def succeeded(self) -> bool:
        return self.cause is ExitCause.PROCESS and self.exit_status == 0


@dataclass(frozen=True, slots=True)
class VmReady(_ReplicaEvent):
    """The agent is about to start this incarnation's program or, in a held round, waits to start
    it. Nothing older runs on its VM.
    """

    subject: IncarnationRef
    at: datetime
    host_vm: str = ""
    """For a host of a slice: its machine, as `PROJECT/INSTANCE_ID` of its identity token."""
    agent_started_at: datetime | None = None
    """When the agent started on this VM, by the VM's clock; None: it is not known."""
    finding: str = ""
    """What the preflight found, if the job only wants it reported."""
    ended: ReplicaExited | None = None
    """How the previous program on this VM ended; None if none ran in this job, or if a directive
    ended it.
    """
    left_peers: bool = False
    """Whether a directive ended a launcher whose ranks had exited 0, and which waited for those of
    other machines.
    """
    kind: Literal["vm_ready"] = "vm_ready"

    @property
    def key(self) -> str:
        return f"{self.subject.key}-ready{self.subject.host_key}"


@dataclass(frozen=True, slots=True)
class VmLost(_ReplicaEvent):
    """A VM is about to be lost, or was lost.

    The loss of one VM is one event, however often it is reported.

    A startup timeout and a silent agent concern one incarnation. They have keys of their own, so
    that the later loss of the same VM is not taken for a duplicate. The key of a loss contains the
    id of the VM: an ignored event about another VM must not use up the key, either.
    """

    subject: IncarnationRef
    at: datetime
    cause: LossCause
    round: int = 0
    """The job's placement round."""
    kind: Literal["vm_lost"] = "vm_lost"

    @property
    def is_vm_loss(self) -> bool:
        """Whether the VM itself is lost, whatever incarnation and attempt is on it."""
        return self.cause not in (LossCause.STARTUP_TIMEOUT, LossCause.AGENT_SILENT)

    @property
    def key(self) -> str:
        if self.cause is LossCause.STARTUP_TIMEOUT:
            return f"{self.subject.key}-startup-timeout"
        if self.cause is LossCause.AGENT_SILENT:
            return f"{self.subject.key}-agent-silent"
        vm_id = self.subject.vm.instance_id or "missing"
        return f"{self.subject.replica_id}-vm-{self.subject.vm_generation}-{vm_id}-lost"

    @property
    def reads(self) -> Reads:
        """The VM outlives an attempt: if the job was rerun, the current replica is loaded."""
        return Reads(self.subject.replica_id, self.subject.attempt, of_current_attempt=True)


@dataclass(frozen=True, slots=True)
class VmNoticed(_ReplicaEvent):
    """A member's agent has asked the other members to save, because the end of its VM is announced
    or because a directive told it to ask.
    """

    subject: IncarnationRef
    at: datetime
    gives_up_at: datetime
    """When the save must have ended: the agent will report the loss of its VM at the latest then.
    """
    number: int
    """Number of the request to save in this round."""
    silent: tuple[int, ...] = ()
    """Numbers of the members that did not answer (`core.model.members.channel_members`)."""
    kind: Literal["vm_noticed"] = "vm_noticed"

    @property
    def key(self) -> str:
        return f"{self.subject.key}-notice-{self.number}-{int(self.gives_up_at.timestamp())}"


@dataclass(frozen=True, slots=True)
class MemberMissing:
    """A round runs although a member awaits its VM: the loss of the VM was committed as the round
    began.
    """

    job_id: str
    attempt: int
    round: int
    replica_id: ReplicaId
    at: datetime
    kind: Literal["member_missing"] = "member_missing"

    @property
    def key(self) -> str:
        return f"{self.attempt}-round-{self.round}-member-missing"

    @property
    def reads(self) -> Reads:
        return Reads(self.replica_id, self.attempt)


@dataclass(frozen=True, slots=True)
class SaveOver:
    """The time of a request to save is over, and members wait to join the next round."""

    job_id: str
    attempt: int
    round: int
    number: int
    """The request."""
    replica_id: ReplicaId
    """The primary, whose agent asked the others, if its program can save."""
    at: datetime
    kind: Literal["save_over"] = "save_over"

    @property
    def key(self) -> str:
        return f"{self.attempt}-round-{self.round}-save-{self.number}-over"

    @property
    def reads(self) -> Reads:
        return Reads(self.replica_id, self.attempt)


End = ReplicaExited | VmLost | MemberMissing | SaveOver
"""The end of a member in a round."""
