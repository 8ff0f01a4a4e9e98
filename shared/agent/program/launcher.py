"""Starting the user's program, waiting for its end, and clearing away what an earlier agent left running."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from shared.agent.program.container_program import ContainerProgram
from shared.agent.program.environment import arguments_of, command_of, environment_of
from shared.agent.program.process_table import kill_marked
from shared.agent.program.program import Program
from shared.agent.program.variable_references import resolved
from shared.agent.reporting.trial_metric import FILE, INSIDE, NAME

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from typing import Union

    from shared.agent.control.vm_config import Container, Gang, Key, ReplicaId
    from shared.agent.control.workspace import Place
    from shared.agent.program.container_engine import Engine
    from shared.agent.program.program import Ended
    from shared.agent.reporting.trial_metric import Metric

    Running = Union[Program, ContainerProgram]


class Launcher:
    def __init__(self, replica_id: ReplicaId, place: Place, engine: Engine | None, metric: Metric) -> None:
        self._seat = replica_id
        self._engine = engine
        self._place = place
        self._metric = metric
        self.command: Sequence[str] = ()  # that was started last, as it is told; of a container, none

    def clean_up(self) -> None:
        """Nothing of an earlier agent runs once this returns."""
        left = kill_marked(self._place.work)
        if left:
            self._place.say(f"Killed {left} processes of an earlier incarnation of the agent.")
        left = self._engine.remove_left() if self._engine is not None else 0
        if left:
            self._place.say(f"Removed {left} containers of an earlier incarnation of the agent.")

    def start(self, key: Key, secrets: Mapping[str, str], slices: Sequence[str]) -> Running:
        """Raises OSError or ValueError where the program cannot be started at all. ``slices``: of the directive."""
        own = replace(self._seat.gang, variables={})
        gang = resolved(self._seat.gang, environment_of(replace(self._seat, gang=own), {}, slices))
        env = environment_of(replace(self._seat, gang=gang), secrets, slices)
        reports = self._metric.folder(key)
        if gang.container is not None:
            return self._start_container(key, gang, gang.container, env, reports)
        return self._start_module(gang, {**env, FILE: str(reports / NAME)} if reports else env)

    def wait(self, key: Key, program: Running) -> Ended:
        """For the end of this incarnation, with what it reported."""
        ended = program.wait()
        return replace(ended, measurement=self._metric.last(key, has_completed=ended.exit_status == 0))

    def cancel(self) -> None:
        """Keeps nobody waiting for what an ended program reported; from another thread."""
        self._metric.cancel()

    def _start_module(self, gang: Gang, env: Mapping[str, str]) -> Program:
        command = command_of(gang)
        self.command = tuple(command)
        self._place.say(f"Running command: {shlex.join(command)}")
        folder = self._place.work / "run"  # stands first in the program's sys.path: nothing of ours may be in it
        folder.mkdir(exist_ok=True)
        vms_own = {name: value for name, value in self._place.environ.items() if name != "PYTHONNOUSERSITE"}
        # The agent's own interpreter: `python3` as the startup script found it.
        command[0] = sys.executable
        return Program(command, self._place, env={**vms_own, **env}, cwd=folder)

    def _start_container(
        self, key: Key, gang: Gang, container: Container, env: Mapping[str, str], reports: Path | None
    ) -> ContainerProgram:
        if self._engine is None:
            raise OSError("the container engine is gone")
        arguments = arguments_of(gang)
        self._place.say(f"Running image {shlex.join([container.image, *container.command, *arguments])}")
        return ContainerProgram(
            self._engine,
            f"{self._seat.instance.name}-{key.attempt}-{key.incarnation}",
            container,
            arguments,
            env={**env, FILE: f"{INSIDE}/{NAME}"} if reports else env,
            mounts={reports: INSIDE} if reports else {},
            place=self._place,
        )
