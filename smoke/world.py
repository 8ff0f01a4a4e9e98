"""The installation that the steps of the smoke test work with, through ports and command lines."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from trainmaster.core.model.job import State
from trainmaster.core.model.replica import Replica
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.model.vm import Vm
from trainmaster.core.model.vm_names import vm_name
from trainmaster.errors import TemporaryError
from trainmaster.ports import Advisor, Fleet, Objects, Store
from trainmaster.ports.metrics import MetricReader

COMMAND_S: Final = 300.0
"""Longest time of a command, unless its caller says another one."""
INTERRUPT_S: Final = 600.0
"""How long an interrupted program may take to end.

Terraform first waits for the resources that it is creating.
"""
POLL_S: Final = 1.0
"""How often `until` looks whether its condition holds."""


class StepError(Exception):
    """A step did not get the expected result.

    The message names the actual result, and where to look.
    """


class LateError(StepError):
    """What a step waits for has not happened in time."""


class SkippedError(Exception):
    """A step cannot run here. The message is the reason."""


@dataclass(frozen=True, slots=True)
class Output:
    """Exit status and output of a command."""

    status: int
    text: str
    errors: str


class Commands(Protocol):
    def __call__(self, *argv: str, timeout_s: float = COMMAND_S) -> Output:
        """Run a program in the environment of the installation.

        A program that does not end gets the status 124.
        """
        ...


@dataclass(frozen=True, slots=True)
class ProcessCommands:
    """Runs programs of this machine. `variables` are added to the environment of this process."""

    variables: Mapping[str, str]

    def __call__(self, *argv: str, timeout_s: float = COMMAND_S) -> Output:
        environment = {**os.environ, **self.variables}
        environment["PATH"] = os.pathsep.join(
            [str(Path(sys.executable).parent), environment.get("PATH", "")]
        )
        try:
            process = subprocess.Popen(
                argv,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        except FileNotFoundError:
            return Output(status=127, text="", errors=f"{argv[0]} is not installed")
        try:
            text, errors = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            _interrupt(process)
            return Output(
                status=124, text="", errors=f"{argv[0]} did not end within {timeout_s:g} s"
            )
        except BaseException:
            _interrupt(process)
            raise
        return Output(process.returncode, text, errors)


def _interrupt(process: subprocess.Popen[str]) -> None:
    """End a program as Ctrl-C does, and wait: Terraform then stores the state of what it has
    created.
    """
    process.send_signal(signal.SIGINT)
    try:
        process.communicate(timeout=INTERRUPT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


@dataclass(frozen=True)
class World:
    """One installation."""

    project: str
    region: str
    bucket: str
    run: Commands
    store: Store
    fleet: Fleet
    advisor: Advisor
    objects: Objects
    metrics: MetricReader
    packages: Path
    """Folder for the packages that the steps build."""
    container_image: str
    """Image of the container job; it must contain `sh`."""
    api: str
    """Address of the function `api`."""
    second_region: str = ""
    """Another region in which jobs may run; empty: there is none."""
    is_local: bool = False
    report: Callable[[str], None] = print
    facts: dict[str, str] = field(default_factory=dict)
    """Values that the steps saw, by the key of an assumption (`assumptions`)."""
    jobs: dict[str, str] = field(default_factory=dict)
    """Ids of the jobs that were started, by step."""
    vm_generations: dict[ReplicaId, int] = field(default_factory=dict)
    """VM generations before a fault."""

    def saw(self, key: str, value: object) -> None:
        """Note a fact."""
        self.facts[key] = str(value)

    def check(self, *argv: str, timeout_s: float = COMMAND_S) -> str:
        """Run a command and return its output. Raises StepError if it fails."""
        done = self.run(*argv, timeout_s=timeout_s)
        if done.status:
            raise StepError(
                f"{' '.join(argv)} ended with status {done.status}: {last_line(done.errors)}"
            )
        return done.text

    def until(self, condition: Callable[[], object], within_s: float, what: str) -> None:
        """Wait until the condition holds.

        Transient errors count as "not yet". Raises LateError that names `what`.
        """
        deadline = time.monotonic() + within_s
        problem = ""
        while True:
            try:
                if condition():
                    return
            except TemporaryError as error:
                problem = f" ({error})"
            if time.monotonic() > deadline:
                raise LateError(f"not within {within_s:.0f} s: {what}{problem}")
            time.sleep(POLL_S)

    def state(self, job_id: str) -> State:
        """Return the job with its replicas. Raises StepError if it does not exist."""
        loaded = self.store.load_attempt(job_id)
        if loaded is None:
            raise StepError(f"there is no job {job_id}")
        return loaded.state

    def replica(self, job_id: str, replica_id: ReplicaId) -> Replica:
        return next(item for item in self.state(job_id).replicas if item.replica_id == replica_id)

    def vm(self, job_id: str, replica_id: ReplicaId) -> Vm:
        """Return the VM of a replica. Raises StepError if it has none."""
        name = vm_name(job_id, replica_id)
        for vm in self.fleet.list_vms(job_id):
            if vm.name == name:
                return vm
        raise StepError(f"there is no VM {name}")


def last_line(text: str) -> str:
    """Return the last line that is not empty."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no output")
