"""The published state of a local stack (StackState), and the directory that has it.

`stack.supervisor` starts the stack's processes and writes its state; commands and clients read it.

STATE_DIR/stack.json   the StackState; replaced as a whole on every change
          lock         locked by the supervisor while it runs: a stack is up if and only if this
                       file is locked, and the directory is private (`reason_for_distrust`)
          logs/        one file per process
          clients/     gcloud's and gsutil's configuration for this stack
          storage/     objects, as files: BUCKET/OBJECT
          compute/     disks and serial logs of the Compute emulator's VMs
          logging/     log entries
          monitoring/  time series
          pubsub/      the Pub/Sub emulator's table of hosts
          scheduler/   jobs of Cloud Scheduler
          proxy/       certificate authority of the googleapis proxy
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import stat
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Final

from pydantic import Field, ValidationError

from trainmaster.errors import PermanentError
from trainmaster_emulators.process import processes
from trainmaster_emulators.process.stack_config import StackConfig, StackModel

STATE_FILE: Final = "stack.json"
LOCK_FILE: Final = "lock"
LOGS: Final = "logs"
"""Folder of the log files."""
ALREADY_UP: Final = 75
"""Exit status of a supervisor if another one holds this directory.

Source: EX_TEMPFAIL in <sysexits.h>.
"""
SUPERVISOR_LOG: Final = "supervisor.log"
DATA: Final = (
    "clients",
    "compute",
    "logging",
    "monitoring",
    "proxy",
    "pubsub",
    "scheduler",
    "storage",
)
"""Directories that every start empties, because Firestore and Pub/Sub start empty, too."""
PRIVATE: Final = 0o700
"""Mode of the state directory.

It contains an access token, the key of a certificate authority, and the VMs' disks.
"""
PRIVATE_FILE: Final = 0o600
OTHERS_BITS: Final = 0o077
"""Permission bits of the group and of all other users."""


class StackError(PermanentError):
    """The stack cannot do what the caller requested.

    The message is for the user at the terminal.
    """


class StackStatus(StrEnum):
    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"
    """The start failed, or a service ended whose restart would lose state."""
    STOPPED = "stopped"


class ServiceState(StackModel):
    """The process of one service."""

    pid: int
    started_at: float
    """Seconds since the epoch; identifies the process together with the pid."""
    address: str
    """`host:port`; empty where the service listens on no port."""
    restarts: int
    log: str
    """Path of its log file."""


class Endpoints(StackModel):
    """`host:port` of each emulator; None where the stack runs without it."""

    firestore: str
    """Empty where the control plane runs in memory and needs no Firestore emulator."""
    pubsub: str
    """The Pub/Sub emulator, or the control plane in memory, which accepts the agents' publish
    calls.
    """
    storage: str
    storage_tls: str
    """Cloud Storage over TLS, which gsutil requires."""
    compute: str | None
    proxy: str | None
    logging: str
    monitoring: str
    iam: str | None = None
    """Set together with `api`."""
    api: str | None = None
    scheduler: str | None = None
    """None where the control plane runs in memory."""
    billing: str | None = None
    """Cloud Billing's catalogue; None where the control plane runs in memory."""

    def addresses(self) -> list[str]:
        """Return all addresses that this stack has."""
        return [address for address in self.model_dump().values() if address]


class StackState(StackModel):
    """The published state of a stack: the contents of `stack.json`."""

    id: str
    """128 random bits in hexadecimal; every process of the stack carries them."""
    status: StackStatus
    error: str | None = None
    """Why the stack failed."""
    config: StackConfig
    backend: str
    """The BackendKind that runs Google's emulators."""
    supervisor_pid: int
    supervisor_started_at: float
    started_at: float
    """Seconds since the epoch."""
    ready_after_s: float | None = None
    """Seconds that the start took; None: it has not ended."""
    endpoints: Endpoints
    services: dict[str, ServiceState] = Field(default_factory=dict)


def read(state_dir: Path) -> StackState | None:
    """Return the last state of the directory's stack, whether it is up or not; None if there was no
    stack.

    Raises StackError for a directory with a `reason_for_distrust`, and for a file that cannot be
    read.
    """
    try:
        reason = reason_for_distrust(state_dir)
        if reason:
            raise StackError(reason)
        return StackState.model_validate_json((state_dir / STATE_FILE).read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValidationError as error:
        raise StackError(
            f"{state_dir / STATE_FILE}: cannot read the stack's state ({error.error_count()}"
            " invalid fields). Another version of Trainmaster wrote it. Delete the directory to"
            f" start with an empty one: rm -r {shlex.quote(str(state_dir))}"
        ) from error


def write(state_dir: Path, state: StackState) -> None:
    """Replace the state file in one step: a reader sees the old or the new state."""
    target = state_dir / STATE_FILE
    temporary = target.with_suffix(f".{os.getpid()}")
    temporary.touch(mode=PRIVATE_FILE)
    temporary.write_text(state.model_dump_json(indent=1) + "\n", encoding="utf-8")
    temporary.replace(target)


def reason_for_distrust(state_dir: Path) -> str:
    """Return why the directory is not taken for one that `trainmaster local up` made; empty: it is.

    Its file names programs to stop and addresses to upload to, and the working directory may come
    from anyone: a cloned repository, or a folder that others can write. So the directory, its lock
    and its file must belong to this user, be closed to all others, and be no symbolic links: a link
    borrows the lock of another program. git cannot create a directory or a file of these modes
    under the usual umask.
    """
    kinds = {
        state_dir: stat.S_ISDIR,
        state_dir / LOCK_FILE: stat.S_ISREG,
        state_dir / STATE_FILE: stat.S_ISREG,
    }
    for path, is_expected_kind in kinds.items():
        try:
            found = path.lstat()
        except FileNotFoundError:
            continue
        if not is_expected_kind(found.st_mode):
            return f"{path} is not used: it is a symbolic link, or no file of a local stack"
        if found.st_uid != os.geteuid():
            return f"{path} is not used: it belongs to another user"
        if found.st_mode & OTHERS_BITS:
            return (
                f"{path} is not used: its permissions admit other users, so `trainmaster local up`"
                " did not make it. Start a stack of your own"
            )
    return ""


def is_up(state_dir: Path) -> bool:
    """Return whether a supervisor of this user runs in that directory, whatever the status of its
    stack.
    """
    try:
        if reason_for_distrust(state_dir):
            return False
        with lock(state_dir, create=False):
            return False
    except BlockingIOError:
        return True
    except (FileNotFoundError, NotADirectoryError):
        return False


@contextlib.contextmanager
def lock(state_dir: Path, *, create: bool = True) -> Iterator[None]:
    """Lock the directory for the length of the block, at most until the process ends.

    Raises BlockingIOError where another stack holds the lock.
    """
    flags = os.O_RDWR | os.O_NOFOLLOW | (os.O_CREAT if create else 0)
    descriptor = os.open(state_dir / LOCK_FILE, flags, PRIVATE_FILE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if create:
            os.fchmod(descriptor, PRIVATE_FILE)
        yield
    finally:
        os.close(descriptor)


def is_supervisor_alive(state: StackState) -> bool:
    return processes.is_alive(state.supervisor_pid, state.supervisor_started_at)
