"""Starting the user's program, waiting for its end, and removing what an earlier agent left
running.

`control/agent.py` decides when; this module knows how. A program is a child process of the agent:
a Python module, or the command line of a container engine. What depends on neither (environment
variables, /gcs, the metric of a trial, progress) is added here.
"""

from __future__ import annotations

import os
import shlex
import signal
import site
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from trainmaster.agent.google_http.http_call import HttpError
from trainmaster.agent.metric.trial_metric import (
    FILE_NAME,
    FILE_VARIABLE,
    FOLDER_IN_CONTAINER,
    TrialMetric,
)
from trainmaster.agent.model.results import ProgramExit
from trainmaster.agent.model.vm_config import (
    AgentIdentity,
    ContainerCommand,
    IncarnationKey,
    VmConfig,
)
from trainmaster.agent.program import jax_cluster
from trainmaster.agent.program.container_engine import ContainerEngine
from trainmaster.agent.program.container_program import ContainerProgram, bind_option
from trainmaster.agent.program.conventions import log_folder_variables
from trainmaster.agent.program.devices import gpu_count
from trainmaster.agent.program.environment import (
    arguments_of,
    command_of,
    environment_of,
    platform_variables,
    program_package,
)
from trainmaster.agent.program.family import survivors
from trainmaster.agent.program.process_table import ProcessUse, kill_all, process_uses
from trainmaster.agent.program.program import Program
from trainmaster.agent.program.save_request import FOLDER_IN_CONTAINER as NOTICE_FOLDER
from trainmaster.agent.program.save_request import SaveRequest
from trainmaster.agent.program.signal_receivers import is_catcher
from trainmaster.agent.program.stacks import print_stacks
from trainmaster.agent.program.variable_references import resolve_references
from trainmaster.agent.progress.collector import PROGRESS_FOLDER, ProgressCollector
from trainmaster.agent.setup import machine_state
from trainmaster.agent.setup.gcs_mount import GcsMount
from trainmaster.agent.setup.package_layers import HIDE_PACKAGES, program_folders, user_base
from trainmaster.agent.workspace import Workspace

STACK_GRACE_S = 2.0
"""Time between SIGTERM and SIGKILL for a program that has printed its stacks."""
COMPILER_LOCKS = ".cache/torch_extensions/*/*/lock"
"""Below the home directory.

While such a file exists, PyTorch waits for the end of a compilation, also of a killed one. Source:
torch/utils/file_baton.py.
"""
STUCK_S = 60.0
"""Time after SIGKILL from which a process counts as one that the kernel cannot end. It ends others
in a fraction of a second.
"""
REMOVAL_POLL_S = 1.0
"""Time between two looks whether a container was removed."""


class Launcher:
    """Runs the program of one incarnation at a time: a Python module, or a container."""

    def __init__(  # noqa: PLR0913 - the parts that it uses
        self,
        identity: AgentIdentity,
        workspace: Workspace,
        find_engine: Callable[[], ContainerEngine | None],
        metric: TrialMetric,
        gcs: GcsMount,
        progress: ProgressCollector | None = None,
        on_program_end: Sequence[Callable[[], None]] = (),
        *,
        store: Callable[[str, bytes], None] | None = None,
        is_empty: Callable[[str], bool] | None = None,
    ) -> None:
        """`find_engine` is called when it is needed, because the setup may install an engine after
        the agent has started.

        `progress`: None unless this is the primary, the replica whose exit 0 ends the job.
        `on_program_end` are called on the thread that waits for the program, before its exit is
        reported. `store` writes an object to Cloud Storage, by its URI. `is_empty` returns whether
        no object is below a URI, and raises HttpError; None unless this is the primary.
        """
        self._identity = identity
        self._find_engine = find_engine
        self._workspace = workspace
        self._metric = metric
        self._gcs = gcs
        self._progress = progress
        self._on_program_end = on_program_end
        self._store = store
        self._is_empty = is_empty
        config = identity.config
        self._save_request = SaveRequest(
            workspace.work, identity.instance.instance_id, config.checkpoint_signal
        )
        self.command: Sequence[str] = ()
        """The command line of the module that was started last, for messages; empty for a
        container.
        """
        self._program: Program | None = None
        self._killed_at: float | None = None
        """When SIGKILL was sent to processes that programs had left behind, while such processes
        run.
        """

    @property
    def is_stuck(self) -> bool:
        """Whether something survives SIGKILL for `STUCK_S`, as with a hung device.

        May be read from any thread.
        """
        program = self._program
        since = self._killed_at if program is None else program.killed_at
        return since is not None and time.monotonic() - since > STUCK_S

    def clean_up(self) -> None:
        """End everything that an earlier agent on this VM started."""
        count = kill_all(self._survivors)
        if count:
            self._workspace.log(
                f"Killed {count} processes that an earlier run of the agent left behind."
            )
        engine = self._find_engine()
        count = engine.remove_all() if engine is not None else 0
        if count:
            self._workspace.log(
                f"Removed {count} containers that an earlier run of the agent left behind."
            )

    def await_end(self) -> None:
        """Kill what agents on this VM started, and return when none of it runs any more.

        That may take long, so call it on a thread.
        """
        while self._survivors() or self._has_containers():
            self._killed_at = self._killed_at or time.monotonic()
            if not kill_all(self._survivors):
                time.sleep(REMOVAL_POLL_S)  # a container is left, which is being removed
        self._killed_at = None
        machine_state.remove(self._temporary_folder)

    @property
    def _temporary_folder(self) -> Path:
        """Where programs have their temporary files, until the next one starts.

        Its path is short, because those of sockets below it are limited to 108 bytes.
        """
        work = str(self._workspace.work).encode()
        base = self._workspace.environ.get("TMPDIR") or tempfile.gettempdir()
        return Path(base) / f"tm-{zlib.crc32(work):08x}"

    def _survivors(self) -> list[int]:
        return survivors(self._workspace.work, self._workspace.family)

    def _has_containers(self) -> bool:
        """Return whether containers of earlier programs are left, and remove them.

        An engine that does not answer may still run some.
        """
        engine = self._find_engine()
        return engine is not None and engine.remove_all() != 0

    def start(
        self,
        key: IncarnationKey,
        secrets: Mapping[str, str],
        slices: Sequence[str],
        without: Sequence[int] = (),
    ) -> Program:
        """Start the program of an incarnation.

        `secrets`: values by variable. `slices`: addresses of the job's TPU slices. `without`: ranks
        of the members that this incarnation goes without. Raises OSError or ValueError if the
        program cannot be started.
        """
        identity = replace(self._identity, config=self._identity.config.without(without))
        config = resolve_references(
            identity.config, platform_variables(identity, slices, gpu_count())
        )
        env = environment_of(replace(identity, config=config), secrets, slices, gpu_count())
        if self._gcs.is_mounted:
            env = {**log_folder_variables(config.environment, config.job_dir), **env}
        env.update(self._save_request.variables(in_container=config.container is not None))
        self._save_request.reset()
        metric_folder = self._metric.create_folder(key)
        if config.container is not None:
            self._program = self._start_container(key, config, config.container, env, metric_folder)
        else:
            variables = env
            if metric_folder is not None:
                variables = {**env, FILE_VARIABLE: str(metric_folder / FILE_NAME)}
            if self._progress is not None:
                variables = {**self._progress.variables(str(self._progress.folder)), **variables}
            self._program = self._start_module(config, variables)
        if self._progress is not None:
            self._progress.begin(key, self._program.last_lines)
        return self._program

    def wait(self, key: IncarnationKey, program: Program) -> ProgramExit:
        """Wait for the end of this incarnation and of its uploads below /gcs; return its exit, with
        its last progress and the metric that it reported.
        """
        self._gcs.on_death(lambda: program.end(self._identity.config.grace_s))
        program_exit = program.wait()
        self._program = None
        last = self._progress.last() if self._progress is not None else None
        for act in self._on_program_end:
            act()
        program_exit = replace(self._gcs.settle(program_exit), progress=last)
        return replace(
            program_exit,
            measurement=self._metric.read_last(key, has_completed=program_exit.exit_status == 0),
            left_nothing=program_exit.exit_status == 0 and self._has_empty_job_dir(),
        )

    def _has_empty_job_dir(self) -> bool:
        """Return whether nothing is below `jobDir`; False if there is none, or if it is unknown."""
        job_dir = self._identity.config.job_dir or ""
        if self._is_empty is None or not job_dir.startswith("gs://"):
            return False
        try:
            return self._is_empty(job_dir)
        except (HttpError, ValueError) as error:
            self._workspace.log(f"It is not known what the program left below jobDir: {error}")
            return False

    def process_uses(self) -> dict[int, ProcessUse]:
        """Return what each process of the program has used; empty: it is not known.

        May be called from any thread.
        """
        return process_uses(self.processes())

    def processes(self) -> list[int]:
        """Return the processes of the program; empty: none runs, or they are not known.

        May be called from any thread.
        """
        program = self._program
        return program.processes() if program is not None else []

    def end_stalled(
        self, key: IncarnationKey, program: Program, grace_s: float, in_s: float
    ) -> None:
        """End a program that hangs, in `in_s` seconds. It takes seconds, so call it on a thread.

        Its Python processes print their stacks first, and then get no time to save: they would not
        use it.
        """
        has_stacks = print_stacks(
            program.processes(), lambda pid: is_catcher(pid, signal.SIGABRT), in_s
        )
        program.end(STACK_GRACE_S if has_stacks else grace_s)
        job_dir = self._identity.config.job_dir or ""
        if has_stacks and job_dir.startswith("gs://") and self._store is not None:
            time.sleep(STACK_GRACE_S)
            name = f"stacks/{key.attempt}-{key.incarnation}-{self._identity.instance.name}.txt"
            try:
                self._store(f"{job_dir.rstrip('/')}/{name}", program.stacks().encode())
            except HttpError as error:
                self._workspace.log(f"The stacks cannot be written below jobDir: {error}")

    @property
    def is_running(self) -> bool:
        """Whether a program was started and has not ended."""
        return self._program is not None

    def show_notice(self) -> None:
        """Create the file that tells programs of the notice."""
        self._save_request.create_file()

    def prepare_save(self) -> bool:
        """Prepare `request_save`, so that it takes little time; return whether a process catches
        the signal.
        """
        program = self._program
        return program is not None and self._save_request.find_catchers(program)

    def request_save(self) -> str:
        """Ask the program to save; return a clause that says what was done, for the log."""
        self.show_notice()
        program = self._program
        count = self._save_request.signal_catchers(program) if program is not None else 0
        name = self._identity.config.checkpoint_signal.name
        if not count:
            return f"no process catches {name}, so none gets it"
        return f"{name} was sent to {count} {'process' if count == 1 else 'processes'}"

    def cancel(self) -> None:
        """Give up reading the metric of a program that has ended. May be called from any thread."""
        self._metric.cancel()

    def _start_module(self, config: VmConfig, env: Mapping[str, str]) -> Program:
        command = command_of(config)
        self.command = tuple(command)
        self._workspace.log(f"Running command: {shlex.join(command)}")
        # Python puts this folder first in sys.path, so it must hold none of the agent's files.
        folder = self._workspace.work / "run"
        folder.mkdir(exist_ok=True)
        inherited = dict(self._workspace.environ)
        # Where pip installs the commands of the job's packages, such as `ray` and `accelerate`.
        inherited["PATH"] = os.pathsep.join([*program_folders(), inherited.get("PATH", os.defpath)])
        # The agent's own interpreter, which is the `python3` that the startup script found.
        command[0] = sys.executable
        for lock in Path.home().glob(COMPILER_LOCKS):
            lock.unlink(missing_ok=True)
        temporary = self._temporary_folder
        temporary.mkdir(mode=0o700, exist_ok=True)
        variables = {**inherited, "TMPDIR": str(temporary), **env}
        for name in HIDE_PACKAGES:
            if name in env:
                self._workspace.log(f"{name} is not set: it would hide the job's packages.")
            variables.pop(name, None)
        variables.update(user_base())
        if jax_cluster.COUNT in env:
            jax_cluster.install(Path(site.getusersitepackages()))
        return Program(
            command, self._workspace, env=variables, cwd=folder, package=program_package(config)
        )

    def _start_container(
        self,
        key: IncarnationKey,
        config: VmConfig,
        container: ContainerCommand,
        env: Mapping[str, str],
        metric_folder: Path | None,
    ) -> ContainerProgram:
        engine = self._find_engine()
        if engine is None:
            raise OSError("the container engine is gone")
        arguments = arguments_of(config)
        self._workspace.log(
            f"Running image {shlex.join([container.image, *container.command, *arguments])}"
        )
        mounts = [bind_option(self._save_request.folder, NOTICE_FOLDER)]
        if metric_folder is not None:
            mounts.append(bind_option(metric_folder, FOLDER_IN_CONTAINER))
            env = {**env, FILE_VARIABLE: f"{FOLDER_IN_CONTAINER}/{FILE_NAME}"}
        if self._progress is not None and self._progress.folder is not None:
            mounts.append(bind_option(self._progress.folder, PROGRESS_FOLDER))
            env = {**self._progress.variables(PROGRESS_FOLDER), **env}
        mounts.append(self._gcs.container_option())
        return ContainerProgram(
            engine,
            f"{self._identity.instance.name}-{key.attempt}-{key.incarnation}",
            container,
            arguments,
            env=env,
            mounts=mounts,
            workspace=self._workspace,
        )
