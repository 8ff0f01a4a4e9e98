"""The launchers that the agent knows: programs that start the user's program once per process.

A row per launcher. What reads its fields:

| fields                         | read by               | to                           |
| ------------------------------ | --------------------- | ---------------------------- |
| commands, executables, modules | `signal_receivers.py` | send it no request to save   |
| package                        | `environment.py`      | find the program behind `-m` |
| commands, error_types,         | `launcher_reports.py` | find the worker's error, not |
| failing_function, failures,    |                       | the launcher's own           |
| child_signals, deaths          |                       |                              |
| kill                           | `process_table.py`    | see that memory ran out      |
| variables                      | `conventions.py`      | give it its peers' addresses |
| waits                          | `signal_receivers.py` | see that its own processes   |
|                                |                       | have exited, and others not  |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

RAY_WAIT_S = 600
"""Ray's own 30 s are shorter than the start of a VM."""


class Cluster(NamedTuple):
    """The machines of the job, as launchers see them. Texts are values of environment variables."""

    rank: str
    """Number of this machine, from 0."""
    size: str
    """Number of machines."""
    address: str
    """Host name or address of the machine with rank 0."""
    port: str
    gpus: int
    """Number of GPUs of this machine."""


def _no_variables(_cluster: Cluster) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True)
class Launcher:
    """The properties of one launcher that the agent uses. Patterns are regular expressions."""

    commands: tuple[str, ...] = ()
    """Names by which users and other launchers call it."""
    executables: tuple[str, ...] = ()
    """Further names that its process may have."""
    modules: tuple[str, ...] = ()
    """Modules for `python -m` that are the launcher. A name that ends with a dot: all modules of
    this package.
    """
    package: str = ""
    """The package of those modules whose own option `-m` names the user's module."""
    error_types: tuple[str, ...] = ()
    """Errors that report the failure of a worker, and not its cause."""
    failing_function: str = ""
    """End of the names of the functions that raise a general error because a worker failed."""
    failures: tuple[str, ...] = ()
    """How the message of a general error begins that only says that a worker failed."""
    child_signals: tuple[str, ...] = ()
    """What stands before the name of the signal that ended a worker, in an error's message."""
    deaths: tuple[str, ...] = ()
    """Lines that report a worker's death without an error of Python. The group `signal`, if there
    is one, is the signal's number.
    """
    kill: tuple[str, ...] = ()
    """Words for a worker that was killed, in a message that does not name SIGKILL."""
    variables: Callable[[Cluster], Mapping[str, str]] = _no_variables
    """The environment variables with which it finds its peers."""
    waits: bool = False
    """Whether it stays until the processes of other machines have exited, too, when its own ones
    have exited 0.
    """


def _torchrun_variables(cluster: Cluster) -> Mapping[str, str]:
    """Source: torch/distributed/argparse_util.py."""
    return {
        "PET_NNODES": cluster.size,
        "PET_NODE_RANK": cluster.rank,
        "PET_MASTER_ADDR": cluster.address,
        "PET_MASTER_PORT": cluster.port,
        "PET_NPROC_PER_NODE": str(max(cluster.gpus, 1)),
    }


def _accelerate_variables(cluster: Cluster) -> Mapping[str, str]:
    """Without GPUs, its processes ignore each other unless this is set.

    Source: accelerate/state.py.
    """
    return {} if cluster.gpus else {"ACCELERATE_USE_CPU": "true"}


def _ray_variables(_cluster: Cluster) -> Mapping[str, str]:
    """Source: `ray symmetric-run`."""
    return {"RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT": str(RAY_WAIT_S)}


LAUNCHERS = (
    # torchrun and torch.multiprocessing.
    Launcher(
        commands=("torchrun",),
        modules=("torch.distributed.run", "torch.distributed.launch"),
        package="torch",
        error_types=("ChildFailedError", "ProcessExitedException", "ProcessRaisedException"),
        child_signals=(r"Signal \d+ \(", "terminated with signal "),
        variables=_torchrun_variables,
        waits=True,  # source: _exit_barrier in torch/distributed/elastic/agent/server/api.py
    ),
    # Its functions that run a command other than torchrun are called multi_gpu_launcher and so on.
    Launcher(
        commands=("accelerate",),
        modules=("accelerate.commands.launch",),
        package="accelerate",
        failing_function="_launcher",
        variables=_accelerate_variables,
        waits=True,  # it runs torchrun in its own process
    ),
    # It prints deaths on stdout. After SIGABRT, the process itself has printed why; SIGTERM and
    # SIGINT are what the launcher sends to the other workers.
    Launcher(
        commands=("deepspeed",),
        modules=("deepspeed.launcher.",),
        package="deepspeed",
        deaths=(r"exits with return code = -(?P<signal>4|7|8|9|11)$",),
    ),
    # horovod.runner.run_task, beside these modules, is a worker. Source: horovod/runner/launch.py.
    Launcher(
        commands=("horovodrun",),
        modules=("horovod.runner", "horovod.runner.launch"),
        package="horovod",
        failures=(
            "Horovod detected that one or more processes exited",
            "mpirun failed with exit code",
        ),
    ),
    # Open MPI: its commands are links to the executables, which differ between its versions.
    Launcher(commands=("mpirun", "mpiexec"), executables=("orterun", "prterun", "prun")),
    # Its command is not listed: "ray" also stands in command lines of workers, as an option's
    # value.
    Launcher(
        modules=("ray.scripts.scripts",),
        package="ray",
        error_types=(
            "TrainingFailedError",
            "WorkerGroupError",
            "TuneError",
            "RayActorError",
            "ActorDiedError",
            "WorkerCrashedError",
        ),
        deaths=("^The actor is dead because its worker process has died",),
        kill=("process has died",),
        variables=_ray_variables,
    ),
)


def gather(field: Callable[[Launcher], Iterable[str]]) -> list[str]:
    """Return the words of one field, such as `commands`, in all rows, in their order."""
    words: list[str] = []
    for launcher in LAUNCHERS:
        words += field(launcher)
    return words


def is_launcher_word(word: str) -> bool:
    """Return whether a word of a command line, such as a path or a module, names a launcher."""
    return find_launcher(word) is not None


def find_launcher(word: str) -> Launcher | None:
    """Return the launcher that a word of a command line names; None: it names none."""
    name = word.rpartition("/")[2]
    for launcher in LAUNCHERS:
        if name in launcher.commands or name in launcher.executables:
            return launcher
        if any(_is_of(word, module) for module in launcher.modules):
            return launcher
    return None


def _is_of(word: str, module: str) -> bool:
    """Return whether the word is the module; if `module` ends with a dot, one of this package."""
    return word.startswith(module) if module.endswith(".") else word == module
