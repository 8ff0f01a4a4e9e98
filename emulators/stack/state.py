"""What a stack is told (StackConfig) and what it tells (StackState), and where both lie.

STATE_DIR/stack.json   this page, rewritten whole on every change
          lock         held by the supervisor while it incarnations: that, not a pid, says whether a stack is up
          logs/        one file per process
          clients/     gcloud's and gsutil's configuration for this stack
          storage/     objects, as files: BUCKET/OBJECT
          compute/     the Compute emulator's VMs
          logging/     what jobs print
          proxy/       the certificate authority of the gs:// proxy
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from emulators.stack import processes

STATE_FILE: Final = "stack.json"
LOCK_FILE: Final = "lock"
LOGS: Final = "logs"
SUPERVISOR_LOG: Final = "supervisor.log"
# Begin empty with every `up`, as Firestore and Pub/Sub do.
DATA: Final = ("clients", "compute", "logging", "proxy", "storage")
DEFAULT_STATE_DIR: Final = Path(".state/local")
STATE_DIR_VARIABLE: Final = "TRAINMASTER_STATE_DIR"
EMULATORS_VARIABLE: Final = "TRAINMASTER_EMULATORS"

FUNCTIONS: Final = ("upload", "submit", "vm_ready", "replica_exit", "maintenance", "provision", "tune", "sweep")
ROOT: Final = Path(__file__).resolve().parents[2]


class StackError(Exception):
    """The stack cannot do what was asked; the message is for the person at the terminal."""


class StackStatus(StrEnum):
    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"  # a part ended that cannot be replaced without losing state, or the start did not succeed
    STOPPED = "stopped"


class _Page(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class StackConfig(_Page):
    """How a stack should be; the defaults are what `trainmaster local up` starts."""

    project: str = "trainmaster-local"
    bucket: str = "trainmaster-local"
    functions_dir: Path = ROOT / "functions"
    functions: tuple[str, ...] = FUNCTIONS
    images_dir: Path = ROOT / ".images"
    sweep_every_s: float = 60.0
    compute: bool = True  # with it goes the gs:// proxy, which only VMs need
    emulators: str = Field(default_factory=lambda: os.environ.get(EMULATORS_VARIABLE, ""))  # a backend; "": the best
    control_plane: str = ""  # `host:port` of one in memory: then neither Firestore, Pub/Sub nor functions are started
    ready_within_s: float = 60.0


class ServiceState(_Page):
    pid: int
    started_at: float
    address: str
    restarts: int
    log: str


class Endpoints(_Page):
    """`host:port` of each emulator; None where the stack runs without it."""

    firestore: str
    pubsub: str
    storage: str
    storage_tls: str
    compute: str | None
    proxy: str | None
    logging: str
    iam: str | None = None  # as the api goes, which only functions have
    api: str | None = None


class StackState(_Page):
    id: str
    status: StackStatus
    error: str | None = None
    config: StackConfig
    backend: str
    supervisor_pid: int
    supervisor_started_at: float
    started_at: float
    ready_after_s: float | None = None
    endpoints: Endpoints
    services: dict[str, ServiceState] = {}


def read(state_dir: Path) -> StackState | None:
    """The last stack of that directory, whether it is up or not; None where there was none."""
    try:
        return StackState.model_validate_json((state_dir / STATE_FILE).read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise StackError(f"{state_dir / STATE_FILE} is not a stack's state ({error.error_count()} errors)") from error


def write(state_dir: Path, state: StackState) -> None:
    """Replace the page in one step: a reader sees the old one or the new one."""
    target = state_dir / STATE_FILE
    temporary = target.with_suffix(f".{os.getpid()}")
    temporary.write_text(state.model_dump_json(indent=1) + "\n", encoding="utf-8")
    temporary.replace(target)


def is_up(state_dir: Path) -> bool:
    """Whether a supervisor incarnations there, whatever its stack's state."""
    try:
        with lock(state_dir, create=False):
            return False
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def lock(state_dir: Path, *, create: bool = True) -> Iterator[None]:
    """Be the only stack of that directory. Raises BlockingIOError where another one is; ends with the process."""
    descriptor = os.open(state_dir / LOCK_FILE, os.O_RDWR | (os.O_CREAT if create else 0), 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def supervisor_lives(state: StackState) -> bool:
    return processes.is_alive(state.supervisor_pid, state.supervisor_started_at)


def find_dir(given: Path | None) -> Path:
    """The state directory that is meant: the one given, the shell's (`trainmaster local env`), or the one here."""
    return (given or Path(os.environ.get(STATE_DIR_VARIABLE) or DEFAULT_STATE_DIR)).absolute()
