"""The file system that the emulator mounts in place of gcsfuse: replies to the kernel's requests.

`server` reads the requests from /dev/fuse and calls `Files.handlers`. `bucket` has the objects.
Files that are open for writing are drafts on the local disk, which `flush` uploads.

Source of the structures: linux/fuse.h, version 7.31. Each method says which one it unpacks; a name
follows its structure, and ends with a zero byte.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO, Final

from trainmaster_emulators.machines.gcsfuse.bucket import Bucket, Entry
from trainmaster_emulators.machines.gcsfuse.opcodes import Opcode

CHUNK_BYTES: Final = 1 << 24
"""Bytes of an object that are read at a time into a new draft."""
BLOCK_BYTES: Final = 512
"""Size of the blocks in which `stat` counts a file. Source: stat(2), st_blocks."""
WRITE_IN_BYTES: Final = 40
"""Size of a `fuse_write_in`, after which the data follow."""
TYPE_SHIFT: Final = 12
"""Bits of permissions in a mode, below the bits of the type."""
DIRECT_IO: Final = 1
"""FOPEN_DIRECT_IO: the kernel caches no content, and sends each read and write."""
SIZE_IS_SET: Final = 1 << 3
"""FATTR_SIZE: a request of `set_attributes` changes the size."""
NO_GENERATION: Final = "0"
"""Generation that stands for an object which does not exist. Source: Cloud Storage's
`ifGenerationMatch`.
"""
STATISTICS: Final = struct.pack("<5Q3I28x", *(1 << 40,) * 5, 4096, 255, 4096)
"""Reply to `statfs`: 2⁴⁰ blocks and files, total and free; sizes of a block, a name, a fragment."""
NO_HANDLE: Final = bytes(16)
"""A `fuse_open_out` with handle 0: the file, or folder, is only read."""
ROOT: Final = 1
"""Number of the folder at the mount point, which has an entry for each bucket."""


@dataclass
class Draft:
    """A file that is open for writing. All its handles share it."""

    content: IO[bytes]
    generation: str
    """Generation of the object that an upload replaces, or `NO_GENERATION`."""
    is_dirty: bool = False
    """Whether it has content that is not uploaded."""
    is_deleted: bool = False
    """Whether its path was deleted: it is never uploaded."""
    handles: int = 0
    """Number of open handles."""
    lock: threading.Lock = field(default_factory=threading.Lock)


def temporary_file() -> IO[bytes]:
    """Return an empty file. It is closed when the last handle of its draft is released."""
    return tempfile.TemporaryFile(buffering=0)


class Files:
    """The file system.

    Each public method handles requests of one kind: the number of the node (file or folder) and the
    bytes after the header → the reply. It raises OSError with the errno that the program gets.

    Nodes are numbered by path, for ever. A renamed file keeps its number.

    `ttl_s`: seconds for which the attributes of an object are cached. `rename_max`: most objects
    that the rename of a folder moves.
    """

    def __init__(self, bucket: Bucket, ttl_s: float, rename_max: int) -> None:
        self._bucket = bucket
        self._ttl_s = ttl_s
        self._rename_max = rename_max
        self._lock = threading.Lock()
        self._paths: dict[int, str] = {ROOT: ""}
        """Number of a node → its path, `BUCKET/OBJECT`."""
        self._numbers: dict[str, int] = {"": ROOT}
        """Path of a node → its number."""
        self._drafts: dict[int, Draft] = {}
        """By the number of the node."""
        self._folders: set[str] = set()
        """Folders that programs made."""
        self._cache: dict[str, tuple[float, Entry]] = {}
        """Path → until when its attributes are valid, by the monotonic clock; the attributes."""
        self.handlers: dict[int, Callable[[int, bytes], bytes]] = {
            Opcode.LOOKUP: self.look_up,
            Opcode.GETATTR: self.get_attributes,
            Opcode.SETATTR: self.set_attributes,
            Opcode.MKDIR: self.make_folder,
            Opcode.UNLINK: self.unlink,
            Opcode.RMDIR: self.remove_folder,
            Opcode.RENAME: self.rename,
            Opcode.OPEN: self.open,
            Opcode.READ: self.read,
            Opcode.WRITE: self.write,
            Opcode.STATFS: lambda *_: STATISTICS,
            Opcode.RELEASE: self.release,
            Opcode.FSYNC: lambda *_: b"",  # with streaming writes, only `close` makes an object
            Opcode.FLUSH: self.flush,
            Opcode.OPENDIR: lambda *_: NO_HANDLE,
            Opcode.READDIR: self.read_folder,
            Opcode.RELEASEDIR: lambda *_: b"",
            Opcode.CREATE: self.create,
            Opcode.RENAME2: self.rename2,
        }
        """Kind of the request → its method."""

    def look_up(self, node: int, body: bytes) -> bytes:
        return self._reply_entry(self._child(node, body))

    def get_attributes(self, node: int, _: bytes) -> bytes:
        """Return a `fuse_attr_out`: 16 bytes with a time of validity, 0, and a `fuse_attr`."""
        return bytes(16) + self._attributes(node, self._stat(node))

    def set_attributes(self, node: int, body: bytes) -> bytes:
        valid, size = struct.unpack_from("<I12xQ", body)  # fuse_setattr_in
        if valid & SIZE_IS_SET:
            draft = self._drafts.get(node)
            if draft is None:
                raise OSError(errno.ENOTSUP, "truncating a file that is not open for writing")
            with draft.lock:
                draft.content.truncate(size)
                draft.is_dirty = True
        return self.get_attributes(node, body)

    def make_folder(self, node: int, body: bytes) -> bytes:
        path = self._child(node, body[8:])  # after fuse_mkdir_in
        self._folders.add(path)
        return self._reply_entry(path)

    def unlink(self, node: int, body: bytes) -> bytes:
        path = self._child(node, body)
        draft = self._drafts.get(self._number(path))
        if draft is not None:
            draft.is_deleted = True
        is_uploaded = draft is None or draft.generation != NO_GENERATION
        if is_uploaded:
            self._bucket.delete(path)
        self._forget(path)
        return b""

    def remove_folder(self, node: int, body: bytes) -> bytes:
        path = self._child(node, body)
        if self._names(path):
            raise OSError(errno.ENOTEMPTY, path)
        self._folders.discard(path)
        self._forget(path)
        return b""

    def rename2(self, node: int, body: bytes) -> bytes:
        # fuse_rename2_in is fuse_rename_in, followed by flags and padding.
        new_folder, flags, names = body[:8], body[8:12], body[16:]
        if any(flags):
            raise OSError(errno.EINVAL, "flags of renameat2")
        return self.rename(node, new_folder + names)

    def rename(self, node: int, body: bytes) -> bytes:
        (new_node,) = struct.unpack_from("<Q", body)  # fuse_rename_in, then both names
        name, _, new_name = body[8:].partition(b"\0")
        old = self._child(node, name)
        new = self._child(new_node, new_name)
        number = self._number(old)
        if number in self._drafts:
            self.flush(number, b"")
        if self._stat(number).is_folder:
            if self._names(new):
                raise OSError(errno.ENOTEMPTY, new)
            moved = self._objects_below(old)
            if len(moved) > self._rename_max:
                raise OSError(errno.EMFILE, f"{old} has {len(moved)} objects")
        else:
            moved = [old]
        for path in moved:
            self._bucket.move(path, new + path.removeprefix(old))
        self._forget(new)
        self._rename_known(old, new)
        return b""

    def _objects_below(self, folder: str) -> list[str]:
        bucket, _, _ = folder.partition("/")
        paths = []
        for objects, _ in self._bucket.pages(folder):
            paths += [f"{bucket}/{item['name']}" for item in objects]
        return paths

    def _rename_known(self, old: str, new: str) -> None:
        """Give the nodes of a renamed file or folder, and of all below it, their new paths."""

        def is_renamed(path: str) -> bool:
            return path == old or path.startswith(f"{old}/")

        with self._lock:
            for path in filter(is_renamed, list(self._numbers)):
                number = self._numbers.pop(path)
                new_path = new + path.removeprefix(old)
                self._paths[number] = new_path
                self._numbers[new_path] = number
            renamed_folders = set(filter(is_renamed, self._folders))
            self._folders -= renamed_folders
            self._folders |= {new + path.removeprefix(old) for path in renamed_folders}
            self._cache.clear()

    def open(self, node: int, body: bytes) -> bytes:
        (flags,) = struct.unpack_from("<I", body)  # fuse_open_in
        if flags & os.O_ACCMODE == os.O_RDONLY:
            return NO_HANDLE
        truncates = bool(flags & os.O_TRUNC)
        with self._lock:
            draft = self._drafts.get(node)
        if draft is None:
            draft = self._new_draft(node, is_empty=truncates)
        elif truncates:
            draft.content.truncate(0)
        if truncates:
            draft.is_dirty = True
        return self._reply_handle(node, draft)

    def _new_draft(self, node: int, *, is_empty: bool) -> Draft:
        """Return a draft with the object's content, unless it is to be empty."""
        entry = self._stat(node)
        path = self._paths[node]
        draft = Draft(temporary_file(), entry.generation)
        if not is_empty:
            for offset in range(0, entry.size, CHUNK_BYTES):
                draft.content.write(self._bucket.read(path, offset, CHUNK_BYTES))
        return draft

    def create(self, node: int, body: bytes) -> bytes:
        path = self._child(node, body[16:])  # after fuse_create_in
        draft = Draft(temporary_file(), NO_GENERATION, is_dirty=True)
        handle = self._reply_handle(self._number(path), draft)
        return self._reply_entry(path) + handle

    def read(self, node: int, body: bytes) -> bytes:
        offset, size = struct.unpack_from("<8xQI", body)  # fuse_read_in
        draft = self._drafts.get(node)
        if draft is not None:
            return os.pread(draft.content.fileno(), size, offset)
        size = min(size, self._stat(node).size - offset)
        return self._bucket.read(self._paths[node], offset, size) if size > 0 else b""

    def write(self, node: int, body: bytes) -> bytes:
        offset, size = struct.unpack_from("<8xQI", body)  # fuse_write_in
        data = body[WRITE_IN_BYTES : WRITE_IN_BYTES + size]
        draft = self._drafts[node]
        with draft.lock:
            draft.is_dirty = True
            written = os.pwrite(draft.content.fileno(), data, offset)
        return struct.pack("<II", written, 0)  # fuse_write_out

    def flush(self, node: int, _: bytes) -> bytes:
        draft = self._drafts.get(node)
        if draft is None:
            return b""
        with draft.lock:
            if draft.is_dirty and not draft.is_deleted:
                path = self._paths[node]
                entry = self._bucket.write(path, draft.content, draft.generation)
                draft.generation = entry.generation
                draft.is_dirty = False
                self._cache[path] = (time.monotonic() + self._ttl_s, entry)
        return b""

    def release(self, node: int, body: bytes) -> bytes:
        with self._lock:
            draft = self._drafts.get(node)
            # `open` gives handle 1 to drafts, and 0 to files that are only read.
            if draft is not None and body[0]:
                draft.handles -= 1
                if not draft.handles:
                    del self._drafts[node]
                    draft.content.close()
        return b""

    def read_folder(self, node: int, body: bytes) -> bytes:
        # fuse_read_in. The offset is the number of the last entry that the kernel has.
        offset, room = struct.unpack_from("<8xQI", body)
        path = self._paths[node]
        reply = b""
        if not path:
            raise OSError(errno.ENOTSUP, "the list of buckets cannot be read")
        for number, (name, kind) in enumerate(sorted(self._names(path).items()), 1):
            encoded = name.encode()
            # fuse_dirent: any node number, the next offset, the name's length, its type as DT_…,
            # which is the type in the mode without the bits of permissions.
            type_ = kind >> TYPE_SHIFT
            record = struct.pack("<QQII", number + 1, number, len(encoded), type_) + encoded
            record += bytes(-len(record) % 8)  # each begins at a multiple of eight bytes
            if number > offset:
                if len(reply) + len(record) > room:
                    break
                reply += record
        return reply

    def _names(self, path: str) -> dict[str, int]:
        """Return the files and folders in a folder, also files that are not saved yet: name → type
        bits of a mode (S_IFREG or S_IFDIR).
        """
        with self._lock:
            own = {
                self._paths[number]: stat.S_IFREG
                for number, draft in self._drafts.items()
                if not draft.is_deleted
            }
            own |= dict.fromkeys(self._folders, stat.S_IFDIR)
        names: dict[str, int] = {}
        for known, kind in own.items():
            folder, _, name = known.rpartition("/")
            if folder == path:
                names[name] = kind
        for items, prefixes in self._bucket.pages(path, "/"):
            names |= {item["name"].rpartition("/")[2]: stat.S_IFREG for item in items}
            names |= {prefix.split("/")[-2]: stat.S_IFDIR for prefix in prefixes}
        names.pop("", None)  # the object of the folder itself
        return names

    def _child(self, node: int, name: bytes) -> str:
        """Return the path of an entry of a folder. `name` ends at its first zero byte."""
        return f"{self._paths[node]}/{name.partition(bytes(1))[0].decode()}".lstrip("/")

    def _number(self, path: str) -> int:
        """Return the path's node, which is a new one if the path has none."""
        with self._lock:
            number = self._numbers.setdefault(path, len(self._paths) + 1)
            self._paths[number] = path
        return number

    def _forget(self, path: str) -> None:
        """Give the path another node from now on. What is open keeps the old one."""
        with self._lock:
            self._numbers.pop(path, None)
            self._cache.pop(path, None)

    def _stat(self, node: int) -> Entry:
        path = self._paths[node]
        draft = self._drafts.get(node)
        if draft is not None:
            return Entry(
                is_folder=False,
                size=os.fstat(draft.content.fileno()).st_size,
                generation=draft.generation,
                modified=time.time(),
            )
        until, entry = self._cache.get(path, (0.0, Entry(is_folder=True)))
        if path and until < time.monotonic():
            entry = Entry(is_folder=True) if path in self._folders else self._bucket.stat(path)
            self._cache[path] = (time.monotonic() + self._ttl_s, entry)
        return entry

    def _attributes(self, node: int, entry: Entry) -> bytes:
        """Return a `fuse_attr`."""
        mode = stat.S_IFDIR | 0o777 if entry.is_folder else stat.S_IFREG | 0o666
        at = int(entry.modified)
        times = (at, at, at)
        nanoseconds = (0, 0, 0)
        fields = (
            node,
            entry.size,
            -(-entry.size // BLOCK_BYTES),  # blocks, rounded up
            *times,
            *nanoseconds,
            mode,
            1,  # links
            os.getuid(),
            os.getgid(),
            0,  # device
            4096,  # block size
            0,  # flags
        )
        return struct.pack("<6Q10I", *fields)

    def _reply_entry(self, path: str) -> bytes:
        """Return a `fuse_entry_out`, whose times of validity are 0: the kernel asks each time."""
        number = self._number(path)
        return struct.pack("<Q32x", number) + self._attributes(number, self._stat(number))

    def _reply_handle(self, node: int, draft: Draft) -> bytes:
        """Return a `fuse_open_out` with handle 1, and count the handle of the draft."""
        with self._lock:
            self._drafts.setdefault(node, draft).handles += 1
        return struct.pack("<QII", 1, DIRECT_IO, 0)
