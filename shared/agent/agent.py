"""The agent: keeps one VM doing what its directive says, and reports what happens to the program.

One file, standard library only, Python 3.8 and later, because it has to run on whatever image the user chose. It is
delivered in instance metadata and started by ``startup.sh``; ``docs/interfaces.md`` sections 2 and 3 are its wire
contract. It listens on no port and holds no credential: it asks (metadata, Cloud Storage) and tells (Pub/Sub).

Threads only watch and carry; every decision is taken on the main thread, one at a time, by ``Agent``::

    metadata ── directive ────┐                        ┌──► Program (own session; output forwarded line by line)
    metadata ── maintenance ──┤                        │
    metadata ── preempted ────┼──► inbox ──► Agent ────┼──► Setup (download, pip), once per VM
    Program ended ────────────┤   (main thread)        │
    Setup ended ──────────────┤                        └──► Lane ──► Pub/Sub, in order, again and again until accepted
    SIGTERM ──────────────────┘

What is wanted is a level, not a sequence: ``Agent._reconcile`` compares the latest directive with what is running and
takes the next step, whatever order things arrive in::

    directive run (1,1)       run (1,2)
    ──────┬──────────────────────┬──────────────────────────────────────────►
          │ setup │ vm-ready (1,1)  SIGTERM ≤ grace_s SIGKILL │ vm-ready (1,2)
                  └─ program ────────────────────────────────┘ └─ program ──
                                     (ended on purpose: no replica-exit)

Promises: a (attempt, incarnation) is started at most once in the life of a VM, agent crashes and reboots included
(written to the state file before the program starts); the exit of a program that was not ended on purpose is told
until it is accepted or overtaken by a newer directive; a dead control plane, or a dead Pub/Sub, ends no program.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import http.client
import importlib.util
import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import tarfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections import deque
from dataclasses import asdict, dataclass, field
from http import HTTPStatus
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import IO, Any, NoReturn

VERSION = 1
TAIL_CHARS = 4096
TRACEBACK_BYTES = 64 * 1024  # of each stream, kept to find the traceback in: TensorFlow's are tens of kilobytes long
LINE_MAX = 256 * 1024  # a longer line is broken. Source: Cloud Logging's limit on one entry
MESSAGE_CHARS = 1024
PREFIX_CHARS_MAX = 80  # of what a launcher puts before each line
TRAILING_LINES_MAX = 200  # more output than this after a traceback: the program did not end by it
WAIT_S = 60  # of a metadata long poll, as Google's guest agent does it; the client waits a little longer
TRIES = 5  # of a download before the failure counts as the platform's
SHUTDOWN_NOTICE_S = 0.3  # how far apart a shutdown's signals to the program and to the agent may arrive
FLUSH_S = 5.0  # left for the last words when the VM shuts down
MARK = "TRAINMASTER_WORK"  # in the environment of everything the agent starts, and of nothing else


class Key(NamedTuple):
    """One life of the replica. Later lives compare greater."""

    attempt: int
    incarnation: int


@dataclass(frozen=True)
class Directive:
    """What the stored state tells this VM to do."""

    key: Key
    action: str  # run, hold or stop


@dataclass(frozen=True)
class Vm:
    name: str
    zone: str
    instance_id: str


@dataclass(frozen=True)
class Gang:
    """The metadata key ``trainmaster-gang``: what all VMs of one bulk insert have in common."""

    project: str
    job_id: str
    task_type: str
    vm_names: Sequence[str]
    machine: int
    tf_config: Mapping[str, Any] | None
    cluster_spec: Mapping[str, Any] | None
    rank_base: int | None
    environment: Mapping[str, str]
    package_uris: Sequence[str]
    python_module: str
    args: Sequence[str]
    job_dir: str | None
    grace_s: float
    topics: Mapping[str, str]

    @staticmethod
    def parse(text: str) -> Gang:
        """Raises KeyError, TypeError or ValueError where the text is no gang."""
        stored = json.loads(text)
        return Gang(
            project=stored["project"],
            job_id=stored["job_id"],
            task_type=stored["task_type"],
            vm_names=stored["vm_names"],
            machine=stored["machine"],
            tf_config=stored["tf_config"],
            cluster_spec=stored.get("cluster_spec"),
            rank_base=stored.get("rank_base"),
            environment=stored["environment"],
            package_uris=stored["package_uris"],
            python_module=stored["python_module"],
            args=stored["args"],
            job_dir=stored.get("job_dir"),
            grace_s=float(stored["grace_s"]),
            topics=stored["topics"],
        )


@dataclass(frozen=True)
class Seat:
    """Who this VM is, and of what it is a part."""

    vm: Vm
    gang: Gang

    @property
    def index(self) -> int:
        """The task index: raises ValueError where the gang does not know this VM."""
        return list(self.gang.vm_names).index(self.vm.name)


# --- Pure functions -----------------------------------------------------------------------------------------------


def parse_directive(text: str) -> Directive:
    """Raises KeyError, TypeError or ValueError where the text is no directive."""
    stored = json.loads(text)
    if stored["action"] not in ("run", "hold", "stop"):
        raise ValueError(f"unknown action {stored['action']!r}")
    return Directive(Key(int(stored["attempt"]), int(stored["incarnation"])), stored["action"])


def supersedes(new: Key, old: Key | None) -> bool:
    """Whether what is known about ``old`` no longer matters once ``new`` is wanted."""
    return old is None or new > old


def environment_of(gang: Gang, index: int) -> dict[str, str]:
    """The variables the program sees besides the VM's own: TF_CONFIG, CLUSTER_SPEC, RANK and the gang's."""
    environment = {name: str(value) for name, value in gang.environment.items()}
    for name, spec in (("TF_CONFIG", gang.tf_config), ("CLUSTER_SPEC", gang.cluster_spec)):
        if spec is not None:
            environment[name] = json.dumps({**spec, "task": {**spec.get("task", {}), "index": index}})
    if gang.rank_base is not None:
        environment["RANK"] = str(gang.rank_base + index)
    return environment


def command_of(gang: Gang) -> list[str]:
    """The documented command line; ``--job-dir`` comes last, as two tokens, even where the arguments hold one too."""
    command = ["python3", "-m", gang.python_module, *(str(arg) for arg in gang.args)]
    return [*command, "--job-dir", gang.job_dir] if gang.job_dir else command


def short_path(path: str) -> str:
    """The last two components: the same on every VM and in every reinstalled package."""
    return "/".join(path.split("/")[-2:])


_TRACEBACK = "Traceback (most recent call last):"
_GROUP = "+ Exception Group "
# What launchers put before each line: "[rank0]: ", "(RayTrainWorker pid=7) ", pip's indentation.
_PREFIX = re.compile(r"(?:\s|\[[^\]]*\]:?|\([^)]*\))*")
_FRAME = re.compile(r'\s+File "([^"]+)", line (\d+)(?:, in (.+))?$')
_EXCEPTION = re.compile(r"([A-Za-z_][\w.<>]*)(?::\s(.*)|:)?$")
_LEVELS = ("DEBUG", "INFO", "WARNING", "WARN", "ERROR", "CRITICAL", "FATAL")
_NOISE = re.compile(
    rf"(?:{'|'.join(_LEVELS)})\b|[IWEF]\d\d\d\d |\d\d\d\d-\d\d-\d\d[ T]"  # log lines
    r"|Exception ignored |\s*\+-|\[end of output\]"  # Python's, of an exception group's members, pip's
)
_SYNTAX = re.compile(r"(SyntaxError|IndentationError|TabError): (.*)$")
_NO_MODULE = re.compile(r"\S*python[\d.]*: (?:Error while finding module .*\((\w+): )?(No module named .*?|.*?)\)?$")


def parse_traceback(output: str) -> dict[str, str] | None:
    """The error a program's output ends in: type, message and innermost frame (``trainer/task.py:41 in main``).

    None where the output ends in no Python error. The frame is empty where Python printed none, as for a module that
    does not exist. Of chained exceptions the last one counts, since it is the one that ended the program.
    """
    lines = [line.rstrip("\r") for line in output.rstrip().split("\n")]
    for start in range(len(lines) - 1, -1, -1):
        prefix = _prefix_of(lines[start])
        if prefix is not None and not (start and "Exception ignored" in lines[start - 1]):
            found = _read_traceback(lines, start + 1, prefix)
            if found is not None:
                return found
    return _headless_error(lines)


def _prefix_of(line: str) -> str | None:
    """What stands before each line of the traceback that this line opens; None if it opens none."""
    if not line.rstrip().endswith(_TRACEBACK):
        return None
    prefix = line.rstrip()[: -len(_TRACEBACK)]
    if prefix.endswith(_GROUP):
        return prefix[: -len(_GROUP)] + "| "
    return prefix if len(prefix) <= PREFIX_CHARS_MAX and _PREFIX.fullmatch(prefix) else None


def _read_traceback(lines: list[str], start: int, prefix: str) -> dict[str, str] | None:
    frame = ""
    block = [line[len(prefix) if line.startswith(prefix) else 0 :] for line in lines[start:]]
    for number, line in enumerate(block):
        file = _FRAME.match(line)
        if file:
            frame = _frame(file)
            continue
        error = _EXCEPTION.match(line)
        # Lines of other processes may come between frames: they are skipped as long as frames follow.
        followed = number + 1 < len(block) and _FRAME.match(block[number + 1])
        if not error or error.group(1) in _LEVELS or followed:
            continue
        if len(block) - number > TRAILING_LINES_MAX:
            return None
        message = [error.group(2) or ""]
        for more in block[number + 1 :]:
            if _NOISE.match(more) or _prefix_of(more) is not None:
                break
            message.append(more)
        return {"type": error.group(1), "message": "\n".join(message).strip()[:MESSAGE_CHARS], "frame": frame}
    return None


def _headless_error(lines: list[str]) -> dict[str, str] | None:
    """Errors Python prints without a traceback: a syntax error in the main file, a module that cannot be found."""
    first = max(0, len(lines) - 5)
    for number in range(len(lines) - 1, first - 1, -1):
        error = _SYNTAX.match(lines[number])
        if error:
            files = [file for file in map(_FRAME.match, lines[max(0, number - 4) : number]) if file]
            if files:
                return {"type": error.group(1), "message": error.group(2), "frame": _frame(files[-1])}
        missing = _NO_MODULE.match(lines[number])
        if missing and ("No module named" in lines[number] or missing.group(1)):
            return {"type": missing.group(1) or "ModuleNotFoundError", "message": missing.group(2), "frame": ""}
    return None


def _frame(file: re.Match[str]) -> str:
    path, line, function = file.groups()
    return f"{short_path(path)}:{line}" + (f" in {function}" if function else "")


def utc_now() -> str:
    """RFC 3339 with milliseconds."""
    now = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}Z"


def backoffs(cap_s: float, base_s: float = 0.5) -> Iterator[float]:
    """Waiting times that double up to the cap, each with jitter, so that a thousand VMs do not knock in step."""
    wait = base_s
    while True:
        yield min(wait, cap_s) * random.uniform(0.5, 1.0)  # noqa: S311 - jitter is no secret
        wait = min(wait * 2, cap_s)


# --- Asking and telling -------------------------------------------------------------------------------------------


class HttpError(Exception):
    """A call that was refused (``status``) or did not get through (``status`` 0)."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(f"HTTP {status}: {detail}" if status else detail)
        self.status = status

    @property
    def passing(self) -> bool:
        """Whether the same call may succeed later."""
        return self.status in (0, 408, 429) or self.status >= HTTPStatus.INTERNAL_SERVER_ERROR


@dataclass(frozen=True)
class Answer:
    headers: Mapping[str, str]
    body: bytes


def call(
    url: str,
    *,
    headers: Mapping[str, str],
    timeout: float,
    body: bytes | None = None,
    proxies: bool = False,
    into: Path | None = None,
) -> Answer:
    """One HTTP call; ``into`` streams the answer to a file. Raises HttpError only."""
    request = urllib.request.Request(url, data=body, headers=dict(headers))  # noqa: S310 - the base is ours
    handlers = [] if proxies else [urllib.request.ProxyHandler({})]
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=timeout) as answer:
            if into is None:
                return Answer(answer.headers, answer.read())
            with into.open("wb") as file:
                while True:
                    piece = answer.read(1 << 20)
                    if not piece:
                        break
                    file.write(piece)
            expected = answer.headers.get("Content-Length")
            if expected is not None and into.stat().st_size != int(expected):
                raise HttpError(0, "the answer was cut short")
            return Answer(answer.headers, b"")
    except urllib.error.HTTPError as error:
        with error:
            detail = error.read(500).decode("utf-8", "replace").strip()
        raise HttpError(error.code, detail or str(error.reason)) from error
    except urllib.error.URLError as error:
        raise HttpError(0, str(error.reason)) from error
    except (OSError, http.client.HTTPException) as error:
        raise HttpError(0, f"{type(error).__name__}: {error}") from error


class Metadata:
    """The VM's metadata server: identity, attributes, tokens, and long polls."""

    def __init__(self, host: str) -> None:
        self._base = f"http://{host}/computeMetadata/v1/"
        self._lock = threading.Lock()
        self._token: str | None = None
        self._token_until = 0.0

    def get(self, path: str, timeout: float = 10.0) -> str:
        return self._ask(path, timeout).body.decode()

    def wait(self, path: str, etag: str | None) -> tuple[str, str | None]:
        """The value and its etag: at once without an etag, else when it differs from that etag or WAIT_S passed."""
        if etag is None:
            answer = self._ask(path, 10.0)
        else:
            query = {"wait_for_change": "true", "timeout_sec": str(WAIT_S), "last_etag": etag}
            answer = self._ask(f"{path}?{urllib.parse.urlencode(query)}", WAIT_S + 10.0)
        return answer.body.decode(), answer.headers.get("ETag")

    def access_token(self) -> str | None:
        """The VM's OAuth token, from memory until a minute before it ends; None where the VM has no account."""
        with self._lock:
            if self._token is None or time.monotonic() >= self._token_until:
                try:
                    stored = json.loads(self.get("instance/service-accounts/default/token"))
                    token, lasts_s = str(stored["access_token"]), float(stored["expires_in"])
                except HttpError as error:
                    if error.passing:
                        raise
                    return None
                except (ValueError, KeyError, TypeError) as error:
                    raise HttpError(0, "the metadata server's token cannot be read") from error
                self._token = token
                self._token_until = time.monotonic() + lasts_s - 60
            return self._token

    def forget_token(self) -> None:
        with self._lock:
            self._token = None

    def identity_token(self, audience: str) -> str | None:
        """A signed statement of who this VM is; None where the metadata server refuses one."""
        query = urllib.parse.urlencode({"audience": audience, "format": "full"})
        try:
            return self.get(f"instance/service-accounts/default/identity?{query}").strip()
        except HttpError as error:
            if error.passing:
                raise
            return None

    def _ask(self, path: str, timeout: float) -> Answer:
        return call(self._base + path, headers={"Metadata-Flavor": "Google"}, timeout=timeout)


class Google:
    """Calls to a Google API as this VM, or to its emulator where the environment names one."""

    def __init__(self, emulator: str | None, real: str, metadata: Metadata) -> None:
        self._metadata = metadata
        self._emulated = bool(emulator)
        base = emulator or real
        self._base = (base if "://" in base else f"http://{base}").rstrip("/")

    def call(self, path: str, *, timeout: float, body: bytes | None = None, into: Path | None = None) -> Answer:
        token = None if self._emulated else self._metadata.access_token()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            return call(
                self._base + path, headers=headers, timeout=timeout, body=body, proxies=not self._emulated, into=into
            )
        except HttpError as error:
            if error.status == HTTPStatus.UNAUTHORIZED:
                self._metadata.forget_token()
            raise


@dataclass(frozen=True)
class Event:
    """A fact to be told. ``key`` is the life it speaks of."""

    topic: str
    key: Key
    body: Mapping[str, object]
    audience: str
    accepted: Callable[[], None]


class Publisher:
    """Tells Pub/Sub one event, signed with the VM's identity where there is one."""

    def __init__(self, pubsub: Google, metadata: Metadata, console: Console) -> None:
        self._pubsub = pubsub
        self._metadata = metadata
        self._console = console
        self._unsigned = False

    def publish(self, event: Event) -> None:
        """Raises HttpError."""
        identity = self._metadata.identity_token(event.audience)
        if identity is None and not self._unsigned:
            self._unsigned = True
            self._console.say("The metadata server refuses an identity token: publishing without one.")
        message = {
            "data": base64.b64encode(json.dumps(event.body).encode()).decode(),
            "attributes": {"identity": identity} if identity else {},
        }
        body = json.dumps({"messages": [message]}).encode()
        self._pubsub.call(f"/v1/{event.topic}:publish", timeout=10.0, body=body)


class Lane:
    """Events that must arrive in order: the head is told again and again until it is accepted or dropped."""

    def __init__(self, publisher: Publisher, console: Console) -> None:
        self._publisher = publisher
        self._console = console
        self._changed = threading.Condition()
        self._events: deque[Event] = deque()

    def put(self, event: Event) -> None:
        with self._changed:
            self._events.append(event)
            self._changed.notify_all()

    def drop_before(self, key: Key) -> None:
        """Forgets what is not told yet about lives before this one."""
        with self._changed:
            kept = [event for event in self._events if event.key >= key]
            self._events = deque(kept)
            self._changed.notify_all()

    def flush(self, timeout: float) -> bool:
        """Tries at once whatever is waiting; whether all of it was accepted in time."""
        with self._changed:
            self._changed.notify_all()
            return self._changed.wait_for(lambda: not self._events, timeout)

    def carry(self) -> NoReturn:
        """Runs in a thread of its own, for ever."""
        waits = backoffs(30.0)
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._events))
                head = self._events[0]
            try:
                self._publisher.publish(head)
            except HttpError as error:
                wait = next(waits)
                self._console.say(f"Publishing to {head.topic} failed ({error}); again in {wait:.1f} s.")
                with self._changed:
                    if self._events and self._events[0] is head:
                        self._changed.wait(wait)
                continue
            waits = backoffs(30.0)
            head.accepted()  # before it is gone from here: who has flushed has also heard of it
            with self._changed:
                if self._events and self._events[0] is head:
                    self._events.popleft()
                self._changed.notify_all()


class Console:
    """The agent's stdout, which is the VM's serial console: whole lines, whoever writes them."""

    def __init__(self, file: int = 1) -> None:
        self._file = file
        self._lock = threading.Lock()

    def say(self, text: str) -> None:
        """A line of the agent's own."""
        self.write(f"[trainmaster] {text}\n".encode("utf-8", "backslashreplace"))

    def write(self, lines: bytes) -> None:
        # A console that is gone must not end the training.
        with self._lock, contextlib.suppress(OSError):
            view = memoryview(lines)
            while view:
                view = view[os.write(self._file, view) :]


# --- Programs -----------------------------------------------------------------------------------------------------


class Tail:
    """The last bytes of an output."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._bytes = bytearray()

    def add(self, data: bytes) -> None:
        with self._lock:
            self._bytes += data
            if len(self._bytes) > 2 * self._size:
                del self._bytes[: -self._size]

    def text(self) -> str:
        with self._lock:
            return bytes(self._bytes[-self._size :]).decode("utf-8", "replace")


def whole_lines(read: Callable[[], bytes]) -> Iterator[bytes]:
    """Cuts what ``read`` returns (empty at the end) into pieces of whole lines, as soon as they are whole.

    Nothing is changed but two things: a line longer than LINE_MAX is broken, a missing last line end is added.
    """
    rest = b""
    while True:
        data = read()
        if not data:
            break
        end = data.rfind(b"\n") + 1
        if end:
            yield rest + data[:end]
            rest = data[end:]
        else:
            rest += data
        while len(rest) >= LINE_MAX:
            yield rest[:LINE_MAX] + b"\n"
            rest = rest[LINE_MAX:]
    if rest:
        yield rest + b"\n"


def oom_kills() -> dict[str, int]:
    """How many processes the kernel has killed for memory, by each counter that can be read: cgroup v2, v1, machine."""
    sources = {"/proc/vmstat"}
    try:
        for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                sources.add(f"/sys/fs/cgroup{path.rstrip('/')}/memory.events")
            elif "memory" in controllers.split(","):
                sources.add(f"/sys/fs/cgroup/memory{path.rstrip('/')}/memory.oom_control")
    except (OSError, ValueError):
        pass
    counters = {}
    for source in sources:
        try:
            for line in Path(source).read_text(encoding="utf-8").splitlines():
                if line.startswith("oom_kill "):
                    counters[source] = int(line.split()[1])
        except (OSError, ValueError):
            continue
    return counters


def out_of_memory(returncode: int, before: Mapping[str, int], after: Mapping[str, int]) -> bool:
    """SIGKILL alone proves nothing (it may be ours): the kernel must also have counted a kill meanwhile.

    137 is how a shell or a launcher passes on that its child was killed.
    """
    killed = returncode in (-signal.SIGKILL, 128 + signal.SIGKILL)
    return killed and any(count > before.get(source, count) for source, count in after.items())


def kill_marked(work: Path) -> int:
    """Kills everything this VM's agents ever started and that still lives, in whatever session; how many there were.

    Found by its environment, not by a remembered process id: nothing slips through between a start and a note of it.
    """
    mark = f"{MARK}={work}".encode()
    killed = set()
    for _ in range(40):
        alive = [pid for pid in processes() if _is_marked(pid, mark)]
        if not alive:
            break
        for pid in alive:
            killed.add(pid)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.025)  # the kernel needs a moment; what it cannot kill (a hung device) is not waited for longer
    return len(killed)


def processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _is_marked(pid: int, mark: bytes) -> bool:
    if pid == os.getpid():
        return False
    try:
        return mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


@dataclass(frozen=True)
class Ended:
    """How a program ended: exactly one of exit_status and signal."""

    exit_status: int | None
    signal: int | None
    out_of_memory: bool
    error: Mapping[str, str] | None
    tail: str


class Program:
    """A child process in a session of its own, its output forwarded line by line. Starts when constructed (OSError)."""

    def __init__(self, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, work: Path, console: Console) -> None:
        self._work = work
        self._console = console
        self._oom_before = oom_kills()
        self._tail = Tail(4 * TAIL_CHARS)  # a character takes up to four bytes
        self._lock = threading.Lock()
        self._reaped = False
        self._killer: threading.Timer | None = None
        # The interpreter of the agent: `python3` as the startup script found it.
        self._process = subprocess.Popen(
            [sys.executable, *argv[1:]],
            env={**env, "PYTHONUNBUFFERED": "1", MARK: str(work)},
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._streams: list[tuple[threading.Thread, Tail]] = []
        for stream in filter(None, (self._process.stderr, self._process.stdout)):
            tail = Tail(TRACEBACK_BYTES)
            pump = threading.Thread(target=self._pump, args=(stream, tail), daemon=True)
            self._streams.append((pump, tail))
            pump.start()

    def end(self, grace_s: float) -> None:
        """SIGTERM to the whole group, SIGKILL after the grace. Returns at once; may be repeated."""
        with self._lock:
            if self._reaped or self._killer is not None:
                return
            self._signal(signal.SIGTERM)
            self._killer = threading.Timer(grace_s, self.kill)
            self._killer.daemon = True
            self._killer.start()

    def kill(self) -> None:
        with self._lock:
            if not self._reaped:
                self._signal(signal.SIGKILL)

    def wait(self) -> Ended:
        """Waits for the end of the program and of everything it started."""
        # Not reaped yet, so that its process group still is its own and can be cleaned safely.
        os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        with self._lock:
            self._signal(signal.SIGKILL)
            self._reaped = True
            returncode = self._process.wait()
            if self._killer is not None:
                self._killer.cancel()
        kill_marked(self._work)
        oom = out_of_memory(returncode, self._oom_before, oom_kills())
        for pump, _ in self._streams:
            pump.join(5.0)
        errors = [parse_traceback(tail.text()) for _, tail in self._streams] if returncode else []
        return Ended(
            exit_status=returncode if returncode >= 0 else None,
            signal=-returncode if returncode < 0 else None,
            out_of_memory=oom,
            error=next((error for error in errors if error), None),
            tail=self._tail.text()[-TAIL_CHARS:],
        )

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def _pump(self, stream: IO[bytes], tail: Tail) -> None:
        with stream:
            for lines in whole_lines(functools.partial(os.read, stream.fileno(), 1 << 16)):
                tail.add(lines)
                self._tail.add(lines)
                self._console.write(lines)


# --- Setting up ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Failure:
    """Why a package could not be set up: ``install`` (for good) or ``setup`` (this time)."""

    cause: str
    exit_status: int | None
    error: Mapping[str, str]
    tail: str


class SetupError(Exception):
    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.error["message"])
        self.failure = failure


class Setup:
    """Downloads and installs the packages, in order, with the calls the old service documented."""

    def __init__(
        self,
        storage: Google,
        console: Console,
        work: Path,
        environ: Mapping[str, str],
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self._storage = storage
        self._console = console
        self._work = work
        self._pause = pause
        self._lock = threading.Lock()
        self._cancelled = False
        self._pip: Program | None = None
        self._env = {
            **{name: value for name, value in environ.items() if name != "PYTHONNOUSERSITE"},
            "PIP_BREAK_SYSTEM_PACKAGES": "1",  # the VM is the job's: newer distributions refuse --user without it
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_NO_INPUT": "1",
            "PIP_ROOT_USER_ACTION": "ignore",
        }

    def install(self, uris: Sequence[str]) -> Failure | None:
        """None: all packages are installed. May be repeated."""
        try:
            for position, uri in enumerate(uris):
                self._install(uri, self._work / "packages" / str(position))
        except SetupError as error:
            return error.failure
        return None

    def cancel(self) -> None:
        """Ends pip if it runs, from another thread."""
        with self._lock:
            self._cancelled = True
            if self._pip is not None:
                self._pip.kill()

    def _install(self, uri: str, folder: Path) -> None:
        bucket, _, name = uri[len("gs://") :].partition("/")
        package = folder / name.rsplit("/", 1)[-1]
        if not uri.startswith("gs://") or not bucket or package == folder:
            raise SetupError(_failure("install", None, "PackageError", f"{uri} is no package in Cloud Storage"))
        self._download(uri, bucket, name, package)
        first = ["--upgrade", "--force-reinstall", "--no-deps"]
        extra = ["--no-build-isolation"] if builds_without_isolation(package) else []
        ended = self._run_pip(package, first, extra)
        if ended.exit_status != 0 and not extra and package.suffix != ".whl" and has_setuptools():
            # Where there is no network an isolated build cannot fetch its build tools; the VM's may be good enough.
            self._console.say("Trying again with the build tools of this VM.")
            extra = ["--no-build-isolation", "--check-build-dependencies"]
            again = self._run_pip(package, first, extra)
            ended = again if again.exit_status == 0 else ended
        if ended.exit_status == 0:
            ended = self._run_pip(package, [], extra)
        if ended.exit_status != 0:
            raise SetupError(self._pip_failure(package.name, ended))

    def _download(self, uri: str, bucket: str, name: str, package: Path) -> None:
        self._console.say(f"Downloading the package: {uri}")
        path = f"/storage/v1/b/{urllib.parse.quote(bucket, safe='')}/o/{urllib.parse.quote(name, safe='')}?alt=media"
        waits = backoffs(8.0)
        for left in range(TRIES - 1, -1, -1):
            try:
                package.parent.mkdir(parents=True, exist_ok=True)
                self._storage.call(path, timeout=60.0, into=package)
            except (HttpError, OSError) as error:
                # 401: the token was no longer good, the next try asks for another one.
                refused = (
                    isinstance(error, HttpError)
                    and not error.passing
                    and (error.status != HTTPStatus.UNAUTHORIZED or not left)
                )
                if refused or not left:
                    kind = "install" if refused else "setup"
                    problem = f"cannot download {uri}: {error}"
                    raise SetupError(_failure(kind, None, "DownloadError", problem)) from error
                self._console.say(f"Downloading {uri} failed ({error}); trying again.")
                self._pause(next(waits))
            else:
                return

    def _run_pip(self, package: Path, options: list[str], extra: list[str]) -> Ended:
        name = package.name if not package.name.startswith("-") else f"./{package.name}"
        self._console.say(f"Running command: {shlex.join(['pip3', 'install', '--user', *options, name])}")
        command = ["python3", "-m", "pip", "install", "--user", *options, *extra, name]
        with self._lock:
            if self._cancelled:
                raise SetupError(_failure("setup", None, "Cancelled", "the VM is shutting down"))
            pip = Program(command, env=self._env, cwd=package.parent, work=self._work, console=self._console)
            self._pip = pip
        return pip.wait()

    @staticmethod
    def _pip_failure(name: str, ended: Ended) -> Failure:
        # pip says so where it was the network; everything else is about the package.
        passing = ended.signal is not None or "connection broken by" in ended.tail
        said = [line.strip() for line in ended.tail.splitlines() if line.lstrip().startswith(("ERROR:", "error:"))]
        said = [line for line in said if "subprocess-exited" not in line]  # pip's headline: says nothing
        how = f"status {ended.exit_status}" if ended.signal is None else f"signal {ended.signal}"
        message = f"cannot install {name}: pip ended with {how}" + (f": {said[-1]}" if said else "")
        failure = _failure("setup" if passing else "install", ended.exit_status, "PackageError", message, ended.tail)
        return failure if ended.error is None else Failure(failure.cause, ended.exit_status, ended.error, ended.tail)


def _failure(cause: str, exit_status: int | None, kind: str, message: str, tail: str = "") -> Failure:
    error = {"type": kind, "message": message[:MESSAGE_CHARS], "frame": ""}
    return Failure(cause, exit_status, error, tail or message[-TAIL_CHARS:])


def has_setuptools() -> bool:
    """Whether this Python can build a wheel without fetching anything."""
    setuptools = importlib.util.find_spec("setuptools")
    if setuptools is None or setuptools.origin is None:
        return False
    builds_wheels = (Path(setuptools.origin).parent / "command" / "bdist_wheel.py").exists()  # setuptools 70.1
    return builds_wheels or importlib.util.find_spec("wheel") is not None


def builds_without_isolation(package: Path) -> bool:
    """Whether to build with the VM's own setuptools: for a package with a ``setup.py`` only, as ``gcloud`` makes them.

    The service's pip did so always, and so does today's before version 25.3; later ones would fetch setuptools first.
    """
    try:
        if package.name.endswith(".zip"):
            with zipfile.ZipFile(package) as archive:
                names = archive.namelist()
        elif package.name.endswith((".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar")):
            with tarfile.open(package) as tar:
                names = tar.getnames()
        else:
            return False
    except (OSError, tarfile.TarError, zipfile.BadZipFile, EOFError):
        return False  # pip says what is wrong with it
    return has_setuptools() and not any(re.fullmatch(r"(\./)?([^/]+/)?pyproject\.toml", name) for name in names)


# --- The agent ----------------------------------------------------------------------------------------------------


@dataclass
class State:
    """What the agent must not forget when it or the VM dies. One small file, replaced atomically."""

    instance_id: str
    setup_done: bool = False
    started: Key | None = None  # the last life begun, or used up by a failed setup
    closed: bool = True  # nothing is left to tell about it
    exit: dict[str, Any] | None = None  # how it ended, where that is known and not yet accepted
    wanted: Directive | None = None
    announced: list[str] = field(default_factory=list)  # maintenance causes that were accepted

    @staticmethod
    def load(path: Path, instance_id: str) -> State:
        """Empty for another VM's file, as a disk may outlive its VM, and for one that cannot be read."""
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            if stored["instance_id"] != instance_id:
                return State(instance_id)
            wanted = stored["wanted"]
            return State(
                instance_id,
                setup_done=stored["setup_done"],
                started=Key(*stored["started"]) if stored["started"] else None,
                closed=stored["closed"],
                exit=stored["exit"],
                wanted=Directive(Key(*wanted["key"]), wanted["action"]) if wanted else None,
                announced=list(stored["announced"]),
            )
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return State(instance_id)

    def save(self, path: Path) -> None:
        new = path.with_suffix(".new")
        with new.open("w", encoding="utf-8") as file:
            json.dump(asdict(self), file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)


class Agent:
    """Decides. Everything here runs on the main thread, except where a docstring says otherwise."""

    def __init__(
        self,
        *,
        seat: Seat,
        metadata: Metadata,
        publisher: Publisher,
        setup: Setup,
        console: Console,
        work: Path,
        environ: Mapping[str, str],
    ) -> None:
        self._vm = seat.vm
        self._gang = seat.gang
        self._index = seat.index
        self._metadata = metadata
        self._setup = setup
        self._console = console
        self._work = work
        self._environ = environ
        self._inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._life = Lane(publisher, console)  # vm-ready and replica-exit, in order
        self._faults = Lane(publisher, console)  # maintenance: waits for nobody
        self._state_file = work / "state.json"
        self._state = State.load(self._state_file, seat.vm.instance_id)
        self._past_settled = False
        self._program: Program | None = None
        self._running: Key | None = None
        self._unwanted = False  # what runs is being ended on purpose: its exit is nobody's news
        self._setting_up = False
        self._seen_faults = list(self._state.announced)
        self._waiting_faults: list[str] = []  # seen before the first directive said whom to speak for
        self._stopping = False
        self._over = False

    def run(self) -> None:
        """Until the VM shuts down."""
        self._thread(functools.partial(self._wait_for_signal, signalled()))
        left = kill_marked(self._work)
        if left:
            self._console.say(f"Killed {left} processes of an earlier life of the agent.")
        self._watch("instance/attributes/trainmaster-directive", self._on_directive)
        self._watch("instance/maintenance-event", self._on_maintenance)
        self._watch("instance/preempted", self._on_preempted)
        self._thread(self._life.carry)
        self._thread(self._faults.carry)
        self._console.say("Waiting for a directive.")
        while not self._over or not self._inbox.empty():
            self._inbox.get()()

    # What arrives.

    def _on_directive(self, text: str) -> None:
        try:
            directive = parse_directive(text)
        except (KeyError, TypeError, ValueError) as error:
            self._console.say(f"Ignoring a directive that cannot be read ({error}): {text[:200]!r}")
            return
        known = self._state.wanted
        if known is not None and supersedes(known.key, directive.key):
            self._console.say(f"Ignoring a late directive: {directive.action} {tuple(directive.key)}.")
            return
        if directive != known:
            attempt, incarnation = directive.key
            self._console.say(f"Directive: {directive.action} attempt {attempt}, incarnation {incarnation}.")
            self._state.wanted = directive
            self._life.drop_before(directive.key)
            if supersedes(directive.key, self._state.started) or (self._program and directive.action != "run"):
                self._close()
            self._save()
        self._settle_past(directive)
        while self._waiting_faults:
            self._tell_fault(directive.key, self._waiting_faults.pop(0))
        self._reconcile()

    def _on_maintenance(self, text: str) -> None:
        if text.startswith("TERMINATE"):
            self._on_fault("maintenance")
        elif text != "NONE":
            self._console.say(f"Maintenance event: {text}.")

    def _on_preempted(self, text: str) -> None:
        if text == "TRUE":
            self._on_fault("preemption")

    def _on_fault(self, cause: str) -> None:
        if cause in self._seen_faults:
            return
        self._seen_faults.append(cause)
        self._console.say(f"This VM is about to go: {cause}.")
        if self._state.wanted is None:
            self._waiting_faults.append(cause)
        else:
            self._tell_fault(self._state.wanted.key, cause)

    def _on_setup_ended(self, failure: Failure | None) -> None:
        self._setting_up = False
        if self._stopping:
            return
        if failure is None:
            self._state.setup_done = True
            self._save()
        else:
            self._console.say(f"Setting up failed ({failure.cause}): {failure.error['message']}")
            wanted = self._state.wanted
            if wanted is None or wanted.action != "run":
                return  # tried again when something is wanted
            self._begin(wanted.key)
            self._tell_exit(
                wanted.key,
                cause=failure.cause,
                exit_status=failure.exit_status,
                error=failure.error,
                tail=failure.tail,
            )
        self._reconcile()

    def _on_program_ended(self, key: Key, ended: Ended) -> None:
        self._program = None
        self._running = None
        how = f"exit status {ended.exit_status}" if ended.signal is None else f"signal {ended.signal}"
        if self._unwanted:
            self._console.say(f"Module ended on purpose with {how}.")
        else:
            if ended.exit_status == 0:
                self._console.say("Module completed; cleaning up.")
                self._console.say("Clean up finished.")
                self._console.say("Task completed successfully.")
            else:
                self._console.say(f"Module ended with {how}{', out of memory' if ended.out_of_memory else ''}.")
            self._tell_exit(
                key,
                cause="vm_stopping" if self._stopping else "process",
                exit_status=ended.exit_status,
                signal=ended.signal,
                out_of_memory=ended.out_of_memory,
                error=ended.error,
                tail=ended.tail,
            )
        self._reconcile()

    def _on_shutdown(self) -> None:
        if not self._stopping:
            self._console.say("The VM is shutting down.")
            self._stopping = True
            self._setup.cancel()
        self._reconcile()

    # What follows.

    def _reconcile(self) -> None:
        """Takes the next step from what runs to what is wanted. Repeated after everything that happens."""
        wanted = self._state.wanted
        if self._program is not None:
            self._unwanted |= wanted is None or wanted.action != "run" or wanted.key != self._running
            if self._unwanted or self._stopping:
                self._program.end(self._gang.grace_s)
        elif self._stopping:
            self._life.flush(FLUSH_S)
            self._over = True
        elif wanted is None or wanted.action != "run" or not supersedes(wanted.key, self._state.started):
            pass  # nothing to start: a life is lived once
        elif self._state.setup_done:
            self._start(wanted.key)
        elif not self._setting_up:
            self._setting_up = True
            self._thread(self._set_up)

    def _start(self, key: Key) -> None:
        self._begin(key)
        gang = self._gang
        self._life.put(self._event("vm_ready", key, {}, lambda: None))
        self._console.say(f"Running module {gang.python_module}.")
        command = command_of(gang)
        self._console.say(f"Running command: {shlex.join(command)}")
        folder = self._work / "run"  # stands first in the program's sys.path: nothing of ours may be in it
        env = {name: value for name, value in self._environ.items() if name != "PYTHONNOUSERSITE"}
        env.update(environment_of(gang, self._index))
        self._unwanted = False
        try:
            folder.mkdir(exist_ok=True)
            program = Program(command, env=env, cwd=folder, work=self._work, console=self._console)
        except (OSError, ValueError) as error:  # arguments too long, a null character in them
            problem = {"type": type(error).__name__, "message": str(error), "frame": ""}
            self._tell_exit(key, cause="process", exit_status=126, error=problem, tail=str(error))
            return
        self._program = program
        self._running = key
        self._thread(functools.partial(self._await_end, key, program))

    def _begin(self, key: Key) -> None:
        """Written down before it happens: after a crash this life is known to be used up."""
        self._state.started = key
        self._state.closed = False
        self._state.exit = None
        self._save()

    def _close(self) -> None:
        self._state.closed = True
        self._state.exit = None

    def _settle_past(self, directive: Directive) -> None:
        """Once, at the first directive: tells how the life ended that an earlier agent, or boot, left unfinished."""
        if self._past_settled:
            return
        self._past_settled = True
        key = self._state.started
        if key is None or self._state.closed or supersedes(directive.key, key):
            return
        if self._state.exit is not None:
            self._put_exit(key, self._state.exit)
        elif directive.action == "run":
            self._console.say("The VM or its agent was restarted under the program.")
            self._tell_exit(key, cause="vm_restarted")
        else:
            self._close()
            self._save()

    def _tell_exit(
        self,
        key: Key,
        *,
        cause: str,
        exit_status: int | None = None,
        signal: int | None = None,
        out_of_memory: bool = False,
        error: Mapping[str, str] | None = None,
        tail: str = "",
    ) -> None:
        self._state.exit = {
            "at": utc_now(),
            "cause": cause,
            "exit_status": exit_status,
            "signal": signal,
            "out_of_memory": out_of_memory,
            "error": error,
            "tail": tail,
        }
        self._save()
        self._put_exit(key, self._state.exit)

    def _put_exit(self, key: Key, fact: Mapping[str, object]) -> None:
        self._life.put(self._event("replica_exit", key, fact, lambda: self._post(self._on_exit_accepted, key)))

    def _on_exit_accepted(self, key: Key) -> None:
        if key == self._state.started:
            self._close()
            self._save()
        self._console.say("The exit is reported.")

    def _tell_fault(self, key: Key, cause: str) -> None:
        accepted = functools.partial(self._post, self._on_fault_accepted, cause)
        self._faults.put(self._event("maintenance", key, {"cause": cause}, accepted))

    def _on_fault_accepted(self, cause: str) -> None:
        self._state.announced.append(cause)
        self._save()
        self._console.say(f"The {cause} is reported.")

    def _event(self, topic: str, key: Key, fact: Mapping[str, object], accepted: Callable[[], None]) -> Event:
        gang = self._gang
        body: dict[str, object] = {
            "version": VERSION,
            "job_id": gang.job_id,
            "attempt": key.attempt,
            "task_type": gang.task_type,
            "task_index": self._index,
            "incarnation": key.incarnation,
            "machine": gang.machine,
            "vm": asdict(self._vm),
            "at": utc_now(),
        }
        path = (gang.project, gang.job_id, key.attempt, gang.task_type, self._index, key.incarnation)
        audience = "/".join(["trainmaster", *map(str, path)])
        return Event(gang.topics[topic], key, {**body, **fact}, audience, accepted)

    def _save(self) -> None:
        try:
            self._state.save(self._state_file)
        except OSError as error:  # a full disk must not end the training, nor hide its exit
            self._console.say(f"The state cannot be written: {error}")

    # Other threads.

    def _wait_for_signal(self, pipe: int) -> None:
        """In a thread of its own."""
        while os.read(pipe, 1):
            self._post(self._on_shutdown)

    def _await_end(self, key: Key, program: Program) -> None:
        """In a thread of its own. A shutdown may signal the program and this agent at once: an end that SIGTERM
        explains waits for the agent's own signal, or it would be taken for the program's doing."""
        ended = program.wait()
        if ended.signal == signal.SIGTERM or ended.exit_status in (0, 128 + signal.SIGTERM):
            time.sleep(SHUTDOWN_NOTICE_S)
        self._post(self._on_program_ended, key, ended)

    def _set_up(self) -> None:
        """In a thread of its own."""
        self._post(self._on_setup_ended, self._setup.install(self._gang.package_uris))

    def _watch(self, path: str, changed: Callable[[str], None]) -> None:
        """Posts each new value of a metadata entry, the current one first."""
        self._thread(functools.partial(self._watch_for_ever, path, changed))

    def _watch_for_ever(self, path: str, changed: Callable[[str], None]) -> None:
        """In a thread of its own."""
        last: str | None = None
        etag: str | None = None
        waits = backoffs(5.0)
        while True:
            try:
                value, etag = self._metadata.wait(path, etag)
            except HttpError:
                etag = None
                time.sleep(next(waits))
                continue
            waits = backoffs(5.0)
            if value != last:
                last = value
                self._post(changed, value.strip())
            if etag is None:  # a server that cannot be waited for
                time.sleep(1.0)

    def _post(self, handler: Callable[..., None], *arguments: object) -> None:
        """From any thread."""
        self._inbox.put(functools.partial(handler, *arguments))

    def _thread(self, work: Callable[[], None]) -> None:
        """A failing thread is a bug: it ends the agent, which is started again, rather than make it deaf."""

        def guarded() -> None:
            try:
                work()
            except Exception as error:  # noqa: BLE001 - handed over, not swallowed
                self._post(_raise, error)

        threading.Thread(target=guarded, daemon=True).start()


def signalled() -> int:
    """A pipe that gets a byte for each SIGTERM or SIGINT from now on.

    A Python handler alone would be late: one that arrives just before the main thread blocks runs only after it.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(writer)
    return reader


def _raise(error: Exception) -> NoReturn:
    raise error


def ask_who_i_am(metadata: Metadata, console: Console) -> Seat:
    """Asks until the metadata server answers. Raises where the gang cannot be read."""
    for wait in backoffs(10.0):
        try:
            vm = Vm(
                name=metadata.get("instance/name").strip(),
                zone=metadata.get("instance/zone").strip().rsplit("/", 1)[-1],
                instance_id=metadata.get("instance/id").strip(),
            )
            gang = Gang.parse(metadata.get("instance/attributes/trainmaster-gang"))
        except HttpError as error:
            console.say(f"The metadata server does not answer yet ({error}).")
            time.sleep(wait)
            continue
        return Seat(vm, gang)
    raise AssertionError("backoffs never end")


def main(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """``agent.py WORK_DIRECTORY``. 0: over, do not start it again."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # until there is something to end
    work = Path(argv[1]).resolve()
    work.mkdir(parents=True, exist_ok=True)
    console = Console()
    metadata = Metadata(environ.get("GCE_METADATA_HOST") or "metadata.google.internal")
    seat = ask_who_i_am(metadata, console)
    pubsub = Google(environ.get("PUBSUB_EMULATOR_HOST"), "https://pubsub.googleapis.com", metadata)
    storage = Google(environ.get("STORAGE_EMULATOR_HOST"), "https://storage.googleapis.com", metadata)
    Agent(
        seat=seat,
        metadata=metadata,
        publisher=Publisher(pubsub, metadata, console),
        setup=Setup(storage, console, work, environ),
        console=console,
        work=work,
        environ=environ,
    ).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv, os.environ))
