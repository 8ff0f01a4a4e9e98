"""The files of packages, of which whoever submits a job chooses the bytes."""

from __future__ import annotations

import bz2
import gzip
import lzma
import tarfile
from collections.abc import Callable
from typing import IO

import pytest

from tests.support.archives import sdist, wheel
from trainmaster.program_files import packages
from trainmaster.program_files.packages import check_module, files_of, has_module

MIB = 1 << 20
LIMIT = MIB


@pytest.mark.parametrize("form", ["", "gz", "bz2", "xz"])
def test_files_of_every_form_are_listed(form: str) -> None:
    files = files_of(sdist("setup.py", "trainer/task.py", form=form), LIMIT)
    assert files == frozenset(("/trainer-0.1/setup.py", "/trainer-0.1/trainer/task.py"))


def test_files_of_a_wheel_are_listed() -> None:
    assert files_of(wheel("trainer/task.py"), LIMIT) == frozenset(("/trainer/task.py",))


@pytest.mark.parametrize(
    "archive", [b"", b"code", sdist("trainer/task.py")[:30]], ids=["empty", "text", "cut off"]
)
def test_files_of_what_is_no_archive_are_not_known(archive: bytes) -> None:
    assert files_of(archive, LIMIT) is None


@pytest.mark.parametrize("file", ["task.py", "task.pyc", "task.cpython-311-x86_64-linux-gnu.so"])
def test_module_may_be_of_any_form_that_python_runs(file: str) -> None:
    files = frozenset(("/trainer/__init__.py", "/trainer/model.py", f"/trainer/{file}"))
    assert has_module("trainer.task", files)
    assert list(check_module("trainer.task", files)) == []


def a_member(size: int, kind: bytes) -> bytes:
    member = tarfile.TarInfo("trainer/data.bin")
    member.size = size
    member.type = kind
    return member.tobuf()


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE])
def test_no_more_than_the_limit_is_unpacked(
    compress: Callable[[bytes], bytes], kind: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file, a name or a header of 4 MiB, which has a few KiB in the archive."""
    size = 4 * MIB
    bomb = compress(a_member(size, kind) + bytes(size))
    opened: list[IO[bytes]] = []

    def opening(opener: Callable[[IO[bytes]], IO[bytes]]) -> Callable[[IO[bytes]], IO[bytes]]:
        def opens(content: IO[bytes]) -> IO[bytes]:
            opened.append(opener(content))
            return opened[-1]

        return opens

    openers = {magic: opening(opener) for magic, opener in packages._DECOMPRESSORS.items()}
    monkeypatch.setattr(packages, "_DECOMPRESSORS", openers)
    assert files_of(bomb, LIMIT) is None
    assert opened[0].tell() <= LIMIT


@pytest.mark.parametrize("build", [sdist, wheel])
def test_archive_with_too_many_files_is_not_judged(
    build: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "FILES_MAX", 3)
    assert files_of(build("1.py", "2.py", "3.py"), LIMIT) is not None
    assert files_of(build("1.py", "2.py", "3.py", "4.py"), LIMIT) is None
