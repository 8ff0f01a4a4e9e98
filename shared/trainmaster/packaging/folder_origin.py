"""Which folder and commit a job's program was packed from, so that users can tell runs apart.

The repository may be a stranger's, and its configuration may name filters that git runs over files
before it compares them. So git only lists what it knows, and files are compared here.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from trainmaster.packaging.untrusted_git import git_output

NAME_CHARS_MAX: Final = 100
SHA1_CHARS: Final = 40
CHUNK: Final = 1 << 20
LINK: Final = b"120000"
SUBMODULE: Final = b"160000"
CONVERTED: Final = (b"filter", b"text", b"eol", b"working-tree-encoding", b"ident")
"""Attributes of files that are stored in another form than the folder has them."""
_git: Final = partial(git_output, timeout_s=20.0)


def folder_origin(folder: Path) -> dict[str, str | bool]:
    """Return the name of the folder and, in a git repository, its commit and whether files differ.

    The fields are those of `trainmaster.packedFrom`. Without git, or in a repository without a
    commit, only the name is known.
    """
    origin: dict[str, str | bool] = {"folder": folder.resolve().name[:NAME_CHARS_MAX] or "/"}
    commit = _git(folder, "rev-parse", "--verify", "HEAD").decode(errors="replace").strip()
    if not commit:
        return origin
    has_changed = (
        bool(_git(folder, "diff-index", "--cached", "--name-only", "HEAD", "--", "."))
        or bool(_git(folder, "ls-files", "--others", "--exclude-standard", "--", "."))
        or any(_changed_files(folder))
    )
    return {**origin, "commit": commit, **({"changed": True} if has_changed else {})}


def _changed_files(folder: Path) -> Iterator[bytes]:
    """Yield the tracked files that are not as in the index, and can be compared."""
    entries = [
        entry for entry in _git(folder, "ls-files", "-s", "-z", "--", ".").split(b"\0") if entry
    ]
    names = {entry.partition(b"\t")[2]: entry.split() for entry in entries}
    attributes = _git(
        folder, "check-attr", "-z", "--stdin", *map(os.fsdecode, CONVERTED), known=b"\0".join(names)
    ).split(b"\0")
    converted = {
        name
        for name, value in zip(attributes[::3], attributes[2::3], strict=False)
        if value not in (b"unspecified", b"unset")
    }
    for name, (mode, blob, *_) in names.items():
        if mode != SUBMODULE and name not in converted and _blob(folder, name, mode, blob) != blob:
            yield name


def _blob(folder: Path, name: bytes, mode: bytes, blob: bytes) -> bytes:
    """Return the id of a file's content, by the same hash as `blob`.

    Empty: it cannot be read, or is no file any more.
    """
    path = folder / os.fsdecode(name)
    # Git's name of the content, and no protection against anybody.
    new_hash = hashlib.sha1 if len(blob) == SHA1_CHARS else hashlib.sha256
    try:
        if mode == LINK:
            target = os.fsencode(path.readlink())
            return new_hash(b"blob %d\0" % len(target) + target).hexdigest().encode()
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode):
            return b""  # a pipe has no end
        digest = new_hash(b"blob %d\0" % found.st_size)
        with path.open("rb") as file:
            while chunk := file.read(CHUNK):
                digest.update(chunk)
    except OSError:
        return b""
    return digest.hexdigest().encode()
