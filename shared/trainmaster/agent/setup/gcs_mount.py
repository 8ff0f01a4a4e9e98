"""Cloud Storage as files below /gcs, as Vertex AI has it: gcsfuse runs as a child of the agent, for
one incarnation, which is one execution of the program.

    cover /gcs ── start gcsfuse ── program ── unmount ── gcsfuse ends ── report the exit

The exit status 0 of a program counts only if all that it wrote below /gcs is in its bucket. To this
end:

- An empty read-only file system is at /gcs before gcsfuse is mounted, after it has ended, and in
  jobs without it. No write reaches the disk of the VM, which is deleted with the VM.
- The unmount waits for uploads: the kernel refuses it while any process has a file open, or while a
  close is uploading one. Processes that left the program's session may outlive it.
- gcsfuse reports a failed upload to the program, which may ignore it, and in its log, which the
  agent reads.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path, PurePosixPath

from trainmaster.agent.google_http.metadata_server import MetadataServer
from trainmaster.agent.model.results import ProgramExit
from trainmaster.agent.model.vm_config import VmConfig
from trainmaster.agent.program.process_table import MARK, kill_marked
from trainmaster.agent.setup.cancellable_runner import CancellableRunner
from trainmaster.agent.setup.cloud_storage import StorageReader
from trainmaster.agent.setup.engine_installation import install_package
from trainmaster.agent.setup.setup_errors import Retrier, new_setup_error
from trainmaster.agent.workspace import EMULATED_VM, Workspace

POINT = Path("/gcs")
"""Where programs find all buckets."""
KEY = "instance/attributes/trainmaster-gcsfuse"
"""Metadata with the address of the program gcsfuse, `gs://BUCKET/tools/SHA256/gcsfuse`."""
OPTIONS = (
    "--foreground",
    "--log-format=text",
    "--implicit-dirs",
    "-o",
    "allow_other",
    "--file-mode=666",
    "--dir-mode=777",
    "--rename-dir-limit=100000",
    # gcsfuse caches metadata for ever on large machines: workers would not see the chief's next
    # checkpoint. Source: gcsfuse's docs/semantics.md, "Stat-cache TTL".
    "--metadata-cache-ttl-secs=60",
    "--metadata-cache-negative-ttl-secs=0",
)
MOUNT_S = 60.0  # longest time until gcsfuse has mounted
UPLOAD_S = 900.0  # from the program's end to the end of its last upload
LOG_LINES_KEPT = 3  # for the message of a mount that fails
MS_RDONLY = 1  # Source: linux/mount.h
MNT_DETACH = 2  # Source: sys/mount.h
_LIBC = ctypes.CDLL(None, use_errno=True)
_UPLOAD_FAILED = re.compile(r"severity=ERROR .*\b(Write|Flush|Sync|Release)File(Handle)?(Op)?\b")
"""Source: gcsfuse's internal/fs/wrappers/error_mapping.go, and the error log of
github.com/jacobsa/fuse.
"""
_DELETED = re.compile(r"(?<![^\s\"(])unlinked(?![^\s\".,:;)])")
"""The word in a message of gcsfuse, and no part of a path."""


def is_lost_upload(line: str) -> bool:
    """Return whether a line of gcsfuse's log says that a file could not be saved.

    A file that the program has deleted has nothing to save.
    """
    return bool(_UPLOAD_FAILED.search(line)) and not _DELETED.search(line)


class GcsMount:
    """The mount at /gcs of this VM, which its programs use one after the other.

    Call `mount` before a program starts, `on_death` while it runs, and `settle` after its end. Used
    by one thread at a time: that of the setup, then the one that waits for the program.
    """

    def __init__(
        self,
        config: VmConfig,
        workspace: Workspace,
        metadata: MetadataServer,
        storage: StorageReader,
        runner: CancellableRunner,
        point: Path = POINT,
    ) -> None:
        self._config = config
        self._workspace = workspace
        self._metadata = metadata
        self._storage = storage
        self._retrier = Retrier(workspace.console)
        self._runner = runner
        self._point = point
        self._is_emulated = EMULATED_VM in workspace.environ
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._ending: subprocess.Popen[str] | None = None
        """The gcsfuse that `settle` ends, so that its end is no surprise."""
        self._errors: list[str] = []
        """Lines of gcsfuse's log about uploads that failed."""

    @property
    def is_mounted(self) -> bool:
        """Whether the program finds all buckets below /gcs."""
        return self._process is not None

    def container_option(self) -> str:
        """Return the value of `--mount` for a container: what this VM has at /gcs, or an empty
        read-only folder.
        """
        if self._process is not None:
            return f"type=bind,source={self._point},target={POINT}"
        empty = self._workspace.work / "no-gcs"
        empty.mkdir(exist_ok=True)
        return f"type=bind,source={empty},target={POINT},readonly"

    def mount(self) -> None:
        """Mount all buckets below /gcs if the job has them there; make /gcs read-only otherwise.

        Raises SetupError.
        """
        self.clean_up()
        if not self._is_emulated:  # the emulator has covered the folder of its VM
            self._cover()
        uri = None
        if self._config.gcs:
            uri = self._retrier.call(
                "read the address of gcsfuse", "MountError", lambda: self._metadata.find(KEY)
            )
        # An emulated VM shares the machine's container engine, which does not see the VM's mounts.
        is_unseen = self._is_emulated and self._config.container is not None
        if uri and not is_unseen:
            self._start(self._download(uri))
            self._workspace.log(f"All buckets that this VM may read are below {POINT}.")

    def on_death(self, end: Callable[[], None]) -> None:
        """Call `end` if gcsfuse ends while the program runs, which then can save nothing."""
        process = self._process
        if process is None:
            return

        def watch() -> None:
            status = process.wait()
            if process is not self._ending:
                self._workspace.log(f"gcsfuse ended with status {status}: ending the program.")
                end()

        threading.Thread(target=watch, daemon=True).start()

    def settle(self, program_exit: ProgramExit) -> ProgramExit:
        """Wait for the last upload of a program that has ended, and unmount.

        Return the program's exit: as it is if all files are in their buckets, or if the program
        failed because of a file that is not; otherwise the platform's failure.
        """
        process = self._process
        if process is None:
            return program_exit
        self._ending = process
        problem = self._end_gcsfuse(process)
        if not problem and self._errors and program_exit.exit_status == 0:
            problem = (
                "the program ended with status 0, but gcsfuse could not save a file:"
                f" {self._errors[-1]}"
            )
        self.clean_up()
        if not problem:
            return program_exit
        message = f"what the program wrote below {POINT} may be lost: {problem}"
        self._workspace.log(f"Warning: {message}.")
        error = {"type": "MountError", "message": message, "frame": ""}
        return replace(
            program_exit, exit_status=None, signal=None, error=error, tail=message, cause="setup"
        )

    def _end_gcsfuse(self, process: subprocess.Popen[str]) -> str:
        """Unmount, and wait until gcsfuse and its log have ended. Return what went wrong, or ""."""
        if process.poll() is None:
            problem = self._unmount(process)
        else:
            problem = "gcsfuse ended before the program"
        if process.poll() is None:
            process.kill()
        if process.wait() != 0:
            problem = problem or f"gcsfuse ended with status {process.returncode}"
        if self._reader is not None:
            self._reader.join()
        return problem

    def clean_up(self) -> None:
        """End gcsfuse, also that of an earlier agent, and remove its mount.

        Its open files are lost.
        """
        self._process = None
        self._errors = []
        if not self._config.gcs:
            return
        kill_marked(self._workspace.work / "gcsfuse")
        while is_fuse(self._point):  # several mounts may cover each other
            if _LIBC.umount2(os.fsencode(self._point), MNT_DETACH) != 0:
                return

    def _cover(self) -> None:
        """Mount an empty read-only file system, unless the image has mounted one of its own.

        Raises SetupError.
        """
        try:
            self._point.mkdir(exist_ok=True)
        except OSError:
            return  # then no program can create the folder either, or it is a file
        if os.path.ismount(self._point):
            return
        source = kind = b"tmpfs"
        target = os.fsencode(self._point)
        if _LIBC.mount(source, target, kind, MS_RDONLY, b"mode=755,size=4k") != 0:
            reason = os.strerror(ctypes.get_errno())
            problem = f"cannot mount an empty file system at {self._point}: {reason}"
            raise new_setup_error("MountError", problem, transient=True)

    def _download(self, uri: str) -> Path:
        """Return gcsfuse, verified; install the package that it needs."""
        program = self._workspace.work / "gcsfuse"
        sha256 = PurePosixPath(uri).parent.name
        if not program.exists() or _sha256(program) != sha256:
            self._storage.download(uri, program)
            if _sha256(program) != sha256:
                problem = (
                    f"{uri} does not have the SHA-256 hash in its name: its content was replaced"
                )
                raise new_setup_error("MountError", problem, transient=False)
        program.chmod(0o755)
        if not self._is_emulated and not self._has_fusermount():
            install_package("fuse3", "MountError", self._runner, self._workspace)
        return program

    def _has_fusermount(self) -> bool:
        path = self._workspace.environ.get("PATH")
        return any(shutil.which(name, path=path) for name in ("fusermount3", "fusermount"))

    def _start(self, program: Path) -> None:
        """Start gcsfuse, and wait until it has mounted. Raises SetupError."""
        environ = {**self._workspace.environ, MARK: str(self._workspace.work / "gcsfuse")}
        command = [str(program), *OPTIONS, str(self._point)]
        lines: list[str] = []
        family = self._workspace.family

        def start() -> subprocess.Popen[str]:
            return subprocess.Popen(
                command,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
            )

        try:
            process = start() if family is None else family.start(start)
        except OSError as error:  # a file for another processor, for example
            problem = f"cannot start gcsfuse: {error}"
            raise new_setup_error("MountError", problem, transient=False) from error
        self._reader = threading.Thread(target=self._read_log, args=(process, lines), daemon=True)
        self._reader.start()
        until = time.monotonic() + MOUNT_S
        while not is_fuse(self._point):
            if process.poll() is not None or time.monotonic() > until:
                process.kill()
                self._reader.join()
                last = " ".join(lines[-LOG_LINES_KEPT:]) or f"no message after {MOUNT_S:.0f} s"
                problem = f"gcsfuse cannot mount {self._point}: {last}"
                raise new_setup_error("MountError", problem, transient=True)
            time.sleep(0.02)
        self._process = process

    def _read_log(self, process: subprocess.Popen[str], lines: list[str]) -> None:
        """Read gcsfuse's log until its end. `lines` gets the last lines of it."""
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        for line in process.stdout:
            del lines[:-LOG_LINES_KEPT]
            lines.append(line.strip())
            if "severity=ERROR" in line or "severity=WARNING" in line:
                self._workspace.log(f"gcsfuse: {line.strip()}")
            if is_lost_upload(line):
                self._errors.append(line.strip())

    def _unmount(self, process: subprocess.Popen[str]) -> str:
        """Unmount when all files are closed and flushed, and wait for gcsfuse's end; return what
        went wrong, or "".
        """
        until = time.monotonic() + UPLOAD_S
        pause_s = 0.01
        while _LIBC.umount2(os.fsencode(self._point), 0) != 0:
            error = ctypes.get_errno()
            if error != errno.EBUSY:
                return f"cannot unmount {self._point}: {os.strerror(error)}"
            if time.monotonic() > until:
                return (
                    f"files below {self._point} are still open {UPLOAD_S:.0f} s after the"
                    " program's end"
                )
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 1.0)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(UPLOAD_S)
            return ""
        return f"gcsfuse has not ended {UPLOAD_S:.0f} s after the unmount"


def is_fuse(point: Path, mounts: Path = Path("/proc/self/mounts")) -> bool:
    """Return whether a FUSE file system is mounted there.

    Ask the kernel's table and not the file system, which may not answer. Names of other mounts may
    have any bytes but spaces and ends of lines.
    """
    for mount in mounts.read_bytes().split(b"\n"):
        _source, target, kind = (mount.split(b" ") + [b""] * 3)[:3]
        if target == os.fsencode(point) and kind.startswith(b"fuse"):
            return True
    return False


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
