"""The configuration (StackConfig), the published state (StackState) and the state directory of a
local stack.

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

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from trainmaster.errors import PermanentError
from trainmaster.settings import Settings, read_settings, variable_of
from trainmaster_emulators import checkout
from trainmaster_emulators.process import processes
from trainmaster_emulators.realism.call_access import INFRA

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
SETTINGS_OF_SHELL: Final = (
    "allowed_resources",
    "jobs_per_minute",
    "limits",
    "messages_per_minute",
    "ml_unit_price",
    "package_index",
    "regions",
    "requests_per_minute",
)
"""Settings that a stack takes from the shell that starts it. The stack chooses the others itself: a
shell may have those of an installation on Google Cloud.
"""
SETTINGS: Final = frozenset(map(variable_of, Settings.model_fields))
"""Variables that a stack's file may set. All others belong to the user: PATH, BROWSER, proxies."""
STATE_HOME_VARIABLE: Final = "XDG_STATE_HOME"
"""Folder of programs' state, by default ~/.local/state.

Source: XDG Base Directory Specification.
"""
DEFAULT_STATE_DIR: Final = Path(".state/local")
STATE_DIR_VARIABLE: Final = "TRAINMASTER_STATE_DIR"
EMULATORS_VARIABLE: Final = "TRAINMASTER_EMULATORS"

FUNCTIONS: Final = (
    "upload",
    "submit",
    "vm_ready",
    "replica_exit",
    "maintenance",
    "provision",
    "tune",
    "sweep",
)
ROOT: Final = checkout.ROOT
_CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
IMAGES: Final = (
    _CACHE.expanduser() / "trainmaster" / "images" if checkout.IS_INSTALLED else ROOT / ".images"
)
"""Folder of the runtime images.

An installed package has it in the user's cache, which outlives an upgrade.
"""


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


class _StateModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class StackConfig(_StateModel):
    """The configuration of a stack. The defaults are those of `trainmaster local up`."""

    project: str = "trainmaster-local"
    bucket: str = "trainmaster-local"
    """Name of the bucket of job files, packages and job directories."""
    stage_bucket: str = "trainmaster-local-stage"
    """Name of the bucket from which VMs download the agent."""
    functions_dir: Path = ROOT / "functions"
    settings: dict[str, str] = {}
    """More settings of the functions; see docs/settings.md."""
    functions: tuple[str, ...] = FUNCTIONS
    """Functions that Pub/Sub delivers to."""
    public_buckets: dict[str, Path] = {}
    """Bucket name → folder whose files the bucket contains at the start of the stack, in place of a
    public bucket.
    """
    images_dir: Path = IMAGES
    """Python environments that replace VM images; see `runtime_images`."""
    sweep_every_s: float = 60.0
    realistic: bool = False
    """Whether VMs and API are as slow and unreliable as on Google Cloud
    (`trainmaster_emulators.realism`).
    """
    time_scale: float = 1.0
    """With `realistic`: factor of all durations."""
    infra_dir: Path = INFRA
    """With `realistic`: folder with the IAM grants of the functions (grants.csv), and their
    roles.
    """
    metrics: str = "30"
    """Seconds between two reports of a VM to Cloud Monitoring, or `off`.

    Local jobs take minutes at most.
    """
    compute: bool = True
    """Run the Compute emulator, and the googleapis proxy, which only VMs need."""
    emulators: str = Field(default_factory=lambda: os.environ.get(EMULATORS_VARIABLE, ""))
    """Backend of Google's emulators: a BackendKind; empty: the best that this machine has."""
    gcs: bool | None = None
    """Whether VMs can mount gcsfuse; None: find out at the start."""
    control_plane: str = ""
    """`host:port` of a control plane in memory.

    If set, Firestore, Pub/Sub and the functions are not started.
    """
    ready_within_s: float = 180.0

    @field_validator("settings")
    @classmethod
    def _check_settings(cls, given: dict[str, str]) -> dict[str, str]:
        unknown = sorted(given.keys() - SETTINGS)
        if unknown:
            raise ValueError(f"no settings of Trainmaster: {', '.join(unknown)}")
        return given


def settings_of_shell(project: str) -> dict[str, str]:
    """Return the settings that `trainmaster local up` passes on: limits, for example.

    Raises pydantic's ValidationError for a wrong value, which would stop the functions.
    """
    read_settings(project=project)
    names = map(variable_of, SETTINGS_OF_SHELL)
    return {name: os.environ[name] for name in names if name in os.environ}


class ServiceState(_StateModel):
    """The process of one service."""

    pid: int
    started_at: float
    """Seconds since the epoch; identifies the process together with the pid."""
    address: str
    """`host:port`; empty where the service listens on no port."""
    restarts: int
    log: str
    """Path of its log file."""


class Endpoints(_StateModel):
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


class StackState(_StateModel):
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
    services: dict[str, ServiceState] = {}


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


def resolve_state_dir(given: Path | None) -> Path:
    """Return the given directory, else the environment's (`trainmaster local env`), else the
    working directory's.
    """
    return (given or Path(os.environ.get(STATE_DIR_VARIABLE) or DEFAULT_STATE_DIR)).absolute()


def find_state_dir(given: Path | None) -> Path:
    """Return the directory as `resolve_state_dir` does, but without a running stack there, that of
    the last `up`.
    """
    folder = resolve_state_dir(given)
    if given or os.environ.get(STATE_DIR_VARIABLE) or is_up(folder):
        return folder
    last = last_state_dir()
    return last if last is not None and is_up(last) else folder


def is_named_by_user(state_dir: Path) -> bool:
    """Return whether the environment or the user's home names this directory.

    The working directory alone may be anyone's.
    """
    return bool(os.environ.get(STATE_DIR_VARIABLE)) or state_dir == last_state_dir()


def last_state_dir() -> Path | None:
    """Return the directory of the last `up`; None: there was none."""
    try:
        return Path(_last_stack_file().read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


def remember_state_dir(state_dir: Path) -> None:
    """Let `find_state_dir` find this directory's stack from any folder, while it runs."""
    file = _last_stack_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(str(state_dir), encoding="utf-8")


def _last_stack_file() -> Path:
    return (
        Path(os.environ.get(STATE_HOME_VARIABLE) or Path.home() / ".local" / "state")
        / "trainmaster"
        / "last-stack"
    )
