"""The program `gcsfuse` of emulated VMs, which stands for Google's: the agent starts it with the
same options, so that programs find the emulated Cloud Storage as files below `/gcs`.

It mounts a FUSE file system and hands the kernel's requests to `files`, until it is unmounted.
Numbers without another source are those of linux/fuse.h.

Usage: gcsfuse [OPTION]… MOUNT_POINT
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import errno
import os
import shlex
import signal
import struct
import subprocess
import sys
import tempfile
import threading
from datetime import datetime
from pathlib import Path
from typing import Final

from trainmaster_emulators.machines.gcsfuse.bucket import Bucket
from trainmaster_emulators.machines.gcsfuse.files import Files
from trainmaster_emulators.machines.gcsfuse.opcodes import Opcode

MACHINES: Final = Path(__file__).parents[1]
"""Folder of `vm_init`, which gives a VM its namespaces."""
THREADS: Final = 8
NO_REPLY: Final = {Opcode.FORGET, Opcode.INTERRUPT, Opcode.BATCH_FORGET}
HEADER_BYTES: Final = 40
"""Size of a `fuse_in_header`, with which each request begins."""
REQUEST_HEADER: Final = struct.Struct("<4xIQQ")
"""The beginning of a `fuse_in_header`, after its size: opcode, number of the request, node."""
REPLY_HEADER: Final = struct.Struct("<IiQ")
"""A `fuse_out_header`: size of the whole reply, negative errno, number of the request."""
WRITE_BYTES_MAX: Final = 1 << 20
"""Most data of one write."""
REQUEST_BYTES_MAX: Final = WRITE_BYTES_MAX + 4096
"""Largest request: a write with its structures."""
FLAGS: Final = 1 << 3 | 1 << 5 | 1 << 22
"""ATOMIC_O_TRUNC, BIG_WRITES, MAX_PAGES."""
_INIT_FIELDS: Final = (
    7,  # version: major, minor
    31,
    WRITE_BYTES_MAX,  # bytes to read ahead
    FLAGS,
    64,  # requests in the background
    48,  # requests in the background from which on the file system counts as congested
    WRITE_BYTES_MAX,
    1,  # granularity of times, in nanoseconds
    256,  # pages of a request
    0,  # alignment of maps
)
"""Source: `fuse_init_out` in linux/fuse.h."""
INIT_REPLY: Final = struct.pack("<4I2HII2H32x", *_INIT_FIELDS)
NAMES: Final[dict[int, str]] = {Opcode.WRITE: "WriteFile", Opcode.FLUSH: "FlushFile"}
"""Names that gcsfuse's log has for these requests. In a line with an error, they tell the agent
that a file could not be saved (`trainmaster.agent.setup.gcs_mount`).
"""
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


def gcsfuse_program() -> bytes:
    """Return an executable that starts this program with the interpreter of the stack."""
    start = (
        f"import sys; sys.path.insert(0, {str(MACHINES.parents[1])!r}); from {__name__} import"
        " main; main()"
    )
    command = shlex.join([sys.executable, "-I", "-S", "-c", start])
    return f'#!/bin/sh\nexec {command} "$@"\n'.encode()


def find_obstacle() -> str:
    """Return why the VMs of this machine cannot mount gcsfuse; empty if they can."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "this user may not use /dev/fuse, or it is missing"
    build = (
        f"import sys; sys.path.insert(0, {str(MACHINES)!r});"
        " import vm_init, pathlib; vm_init.enter_namespaces();"
        " vm_init.build_root(pathlib.Path(sys.argv[1]))"
    )
    with tempfile.TemporaryDirectory() as folder:
        own_tmp = Path(folder, "tmp")
        own_tmp.mkdir()
        argv = [sys.executable, "-I", "-S", "-c", build, str(own_tmp)]
        done = subprocess.run(argv, capture_output=True, check=False)
    return "this user may not create the mount namespaces of VMs" if done.returncode else ""


def log(severity: str, message: str) -> None:
    now = datetime.now()  # noqa: DTZ005 - gcsfuse writes the local time
    print(f'time="{now:%m/%d/%Y %H:%M:%S.%f}" severity={severity} message="{message}"', flush=True)


def mount(point: str) -> int:
    """Mount, and return the file of the requests. Raises OSError."""
    device = os.open("/dev/fuse", os.O_RDWR)
    options = (
        f"fd={device},rootmode=40000,user_id={os.geteuid()},group_id={os.getegid()},allow_other"
    )
    if _LIBC.mount(b"gcsfuse", os.fsencode(point), b"fuse.gcsfuse", 0, options.encode()) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return device


def serve(device: int, files: Files) -> None:
    """Handle requests until the file system is unmounted. Several threads run it."""
    while True:
        try:
            request = os.read(device, REQUEST_BYTES_MAX)
        except OSError as error:
            if error.errno == errno.ENODEV:
                return
            continue  # the request was interrupted
        opcode, unique, node = REQUEST_HEADER.unpack_from(request)
        if opcode in NO_REPLY:
            continue
        status, reply = handle(files, opcode, node, request[HEADER_BYTES:])
        header = REPLY_HEADER.pack(REPLY_HEADER.size + len(reply), -status, unique)
        with contextlib.suppress(OSError):  # the request was interrupted
            os.write(device, header + reply)


def handle(files: Files, opcode: int, node: int, body: bytes) -> tuple[int, bytes]:
    """Return the number of the error, or 0, and the reply."""
    if opcode == Opcode.INIT:
        return 0, INIT_REPLY
    handler = files.handlers.get(opcode)
    if handler is None:
        return errno.ENOSYS, b""
    try:
        return 0, handler(node, body)
    except OSError as error:
        if error.errno != errno.ENOENT or opcode in NAMES:
            name = NAMES.get(opcode, handler.__name__)
            log("ERROR", f"{name}: {os.strerror(error.errno or 0).lower()}, {error}")
        return error.errno or errno.EIO, b""


def main() -> None:
    parser = argparse.ArgumentParser(prog="gcsfuse")
    for option in ("--foreground", "--implicit-dirs"):
        parser.add_argument(option, action="store_true")
    for option in (
        "-o",
        "--log-format",
        "--file-mode",
        "--dir-mode",
        "--metadata-cache-negative-ttl-secs",
    ):
        parser.add_argument(option)
    parser.add_argument("--metadata-cache-ttl-secs", type=float, default=60)
    parser.add_argument("--rename-dir-limit", type=int, default=0)
    parser.add_argument("point")
    options = parser.parse_args()
    storage = Bucket(os.environ.get("STORAGE_EMULATOR_HOST", ""))
    try:
        device = mount(options.point)
    except OSError as error:
        log("ERROR", f"Error while mounting gcsfuse: {error}")
        sys.exit(1)
    point = os.fsencode(options.point)
    # The kernel refuses to unmount it while it is in use.
    signal.signal(signal.SIGTERM, lambda *_: _LIBC.umount2(point, 0))
    files = Files(storage, options.metadata_cache_ttl_secs, options.rename_dir_limit)
    threads = [threading.Thread(target=serve, args=(device, files)) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    log("INFO", "File system has been successfully mounted.")
    for thread in threads:
        thread.join()
