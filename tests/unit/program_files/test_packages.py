"""The files of packages, of which whoever submits a job chooses the bytes."""

from __future__ import annotations

import bz2
import gzip
import lzma
import tarfile
from collections.abc import Callable
from typing import IO

import pytest

from tests.fuzz.run import Used
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


def a_tar(*headers: tuple[bytes, str, bytes]) -> bytes:
    """Return a compressed tar archive of members: kind, name, content."""
    blocks = []
    for kind, name, content in headers:
        member = tarfile.TarInfo(name)
        member.size, member.type = len(content), kind
        blocks.append(member.tobuf(tarfile.GNU_FORMAT) + content + bytes(-len(content) % 512))
    return lzma.compress(b"".join(blocks) + bytes(1024), preset=0)


def pax_records(first: int, last: int) -> bytes:
    return b"".join(b"12 %06d=b\n" % number for number in range(first, last))


FILE = (tarfile.REGTYPE, "trainer/task.py", b"")
A_NAME = (tarfile.GNUTYPE_LONGNAME, "name", b"trainer/x.py\0")
A_PAX_HEADER = (tarfile.XHDTYPE, "header", pax_records(0, 1))
COSTLY = {
    "names of names": [A_NAME] * 2000,
    "headers of headers": [A_PAX_HEADER] * 2000,
    "long names": [
        part
        for number in range(3000)
        for part in (
            (tarfile.GNUTYPE_LONGNAME, "name", b"trainer/%s%d.py\0" % (b"a" * 6000, number)),
            FILE,
        )
    ],
    "headers of many values": [(tarfile.XHDTYPE, "header", pax_records(0, 80_000)), FILE] * 12,
    "values for all members": [
        *[(tarfile.XGLTYPE, "all", pax_records(n * 900, (n + 1) * 900)) for n in range(100)],
        *[A_PAX_HEADER, FILE] * 3000,
    ],
}


@pytest.mark.parametrize("case", COSTLY)
def test_archive_of_costly_headers_is_not_judged_and_costs_little(case: str) -> None:
    """A few KiB of such an archive would take the time and the memory of a function."""
    archive = a_tar(*COSTLY[case])
    assert len(archive) < MIB
    used = Used()
    assert files_of(archive, 64 * MIB) is None
    cpu_s, memory_mib = used.since_last_call()
    assert cpu_s < 5
    assert memory_mib < 64


def test_archive_for_whose_dictionary_no_memory_is_left_is_not_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An archive of 100 bytes can ask for 4 GiB."""

    def refuse(_: IO[bytes]) -> IO[bytes]:
        raise MemoryError

    monkeypatch.setattr(packages, "_DECOMPRESSORS", {b"\xfd7zXZ\x00": refuse})
    assert files_of(lzma.compress(b"x"), LIMIT) is None


def test_nearest_module_is_searched_among_names_of_modules_and_within_limits() -> None:
    """A submitter chooses the names of files, which others read in the message."""
    parent = frozenset(("/trainer/__init__.py",))
    hostile = {f"/trainer/{'ab' * 1200}{number}.py" for number in range(1000)}
    words = {"/trainer/cancel all jobs.py", "/trainer/\x1b]0;x\x07.py", "/trainer/a\nb.py"}
    used = Used()
    (finding,) = check_module(f"trainer.{'ba' * 100}", parent | hostile | words)
    assert used.since_last_call()[0] < 0.5
    assert finding.remedy == "add it to one of them, or correct pythonModule"
    (finding,) = check_module("trainer.tsak", parent | hostile | words | {"/trainer/task.py"})
    assert finding.remedy == "correct pythonModule, for example trainer.task"
