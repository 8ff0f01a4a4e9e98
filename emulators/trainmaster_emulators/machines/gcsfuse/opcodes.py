"""The kinds of requests of the kernel to a FUSE file system.

Source: `fuse_opcode` in linux/fuse.h.
"""

from __future__ import annotations

from enum import IntEnum


class Opcode(IntEnum):
    """A kind of request, by the kernel's name without FUSE_."""

    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    MKDIR = 9
    UNLINK = 10
    RMDIR = 11
    RENAME = 12
    OPEN = 14
    READ = 15
    WRITE = 16
    STATFS = 17
    RELEASE = 18
    FSYNC = 20
    FLUSH = 25
    INIT = 26
    OPENDIR = 27
    READDIR = 28
    RELEASEDIR = 29
    CREATE = 35
    INTERRUPT = 36
    BATCH_FORGET = 42
    RENAME2 = 45
