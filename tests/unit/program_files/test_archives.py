"""The files of packages, of which whoever submits a job chooses the bytes."""

from __future__ import annotations

import bz2
import gzip
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from typing import IO

import pytest

from tests.fuzz.run import Used
from tests.support.archives import sdist, sdist_of, wheel, wheel_of
from trainmaster.program_files import archives
from trainmaster.program_files.archives import NAME_MAX, Archive, open_archive
from trainmaster.program_files.source_files import FILE_BYTES_MAX

MIB = 1 << 20
LIMIT = MIB
SOURCES = {"trainer/__init__.py": b"", "trainer/task.py": b"import os\n", "data.csv": b"1,2\n"}


def opened(content: bytes, contents_max: int = LIMIT) -> Archive:
    archive = open_archive(content, LIMIT, contents_max)
    assert archive is not None
    return archive


@pytest.mark.parametrize("form", ["", "gz", "bz2", "xz"])
def test_files_of_every_form_are_listed(form: str) -> None:
    archive = opened(sdist("setup.py", "trainer/task.py", form=form))
    assert archive.files == frozenset(("trainer-0.1/setup.py", "trainer-0.1/trainer/task.py"))
    assert (archive.is_source, archive.top) == (True, "trainer-0.1/")


def test_files_of_a_wheel_are_listed() -> None:
    archive = opened(wheel("trainer/task.py"))
    assert archive.files == frozenset(("trainer/task.py",))
    assert (archive.is_source, archive.top) == (False, "")


def test_zip_with_a_setup_file_is_a_source_distribution() -> None:
    archive = opened(wheel("trainer-0.1/setup.py", "trainer-0.1/trainer/task.py"))
    assert (archive.is_source, archive.top) == (True, "trainer-0.1/")


@pytest.mark.parametrize(
    "content",
    [
        sdist_of(SOURCES, top=""),
        sdist_of(SOURCES, form="", top="./"),
        wheel_of(SOURCES),
        wheel_of(SOURCES, zipfile.ZIP_DEFLATED),
    ],
)
def test_sources_are_read_and_data_is_not(content: bytes) -> None:
    assert opened(content).contents == {name: SOURCES[name] for name in list(SOURCES)[:2]}


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_sources_that_cannot_be_unpacked_piece_by_piece_are_not_read(method: int) -> None:
    archive = opened(wheel_of(SOURCES, method))
    assert "trainer/task.py" in archive.files
    assert archive.contents == {}


def test_encrypted_sources_are_not_read() -> None:
    content = bytearray(wheel_of(SOURCES))
    for magic, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        position = content.find(magic)
        while position >= 0:
            content[position + offset] |= 1
            position = content.find(magic, position + 1)
    assert opened(bytes(content)).contents == {}


@pytest.mark.parametrize("build", [sdist_of, wheel_of])
def test_no_more_than_the_limits_is_read(build: Callable[..., bytes]) -> None:
    files = {"a.py": bytes(600), "b.py": bytes(600), "c.py": bytes(FILE_BYTES_MAX + 1)}
    contents = opened(build(files), contents_max=1000).contents
    assert [len(text) for text in contents.values()] == [600]
    assert opened(build(files), contents_max=1000).bytes_read == 600
    assert all("c.py" not in name for name in opened(build(files)).contents)


def test_links_and_long_names_are_not_read() -> None:
    files = {"n" * (NAME_MAX + 1): b""}
    assert opened(wheel_of(files)).files == frozenset()
    link = tarfile.TarInfo("trainer/task.py")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    assert opened(link.tobuf() + bytes(1024)).contents == {}


@pytest.mark.parametrize(
    "archive", [b"", b"code", sdist("trainer/task.py")[:30]], ids=["empty", "text", "cut off"]
)
def test_files_of_what_is_no_archive_are_not_known(archive: bytes) -> None:
    assert open_archive(archive, LIMIT, LIMIT) is None


def test_zip_archive_with_a_file_without_a_name_is_not_known() -> None:
    """`zipfile` ends a name at a null byte, and then looks at its last character."""
    archive = wheel_of({"trainer/task.py": b""}).replace(b"trainer/task.py", b"\0rainer/task.py")
    assert open_archive(archive, LIMIT, LIMIT) is None


def test_files_of_an_archive_with_a_damaged_source_are_not_known() -> None:
    assert open_archive(wheel_of(SOURCES).replace(b"import", b"IMPORT"), LIMIT, LIMIT) is None


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

    openers = {magic: opening(opener) for magic, opener in archives._DECOMPRESSORS.items()}
    monkeypatch.setattr(archives, "_DECOMPRESSORS", openers)
    assert open_archive(bomb, LIMIT, LIMIT) is None
    assert opened[0].tell() <= LIMIT


@pytest.mark.parametrize("build", [sdist, wheel])
def test_archive_with_too_many_files_is_not_judged(
    build: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "FILES_MAX", 3)
    assert open_archive(build("1.py", "2.py", "3.py"), LIMIT, LIMIT) is not None
    assert open_archive(build("1.py", "2.py", "3.py", "4.py"), LIMIT, LIMIT) is None


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
    assert open_archive(archive, 64 * MIB, LIMIT) is None
    cpu_s, memory_mib = used.since_last_call()
    assert cpu_s < 5
    assert memory_mib < 64


def test_archive_for_whose_dictionary_no_memory_is_left_is_not_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An archive of 100 bytes can ask for 4 GiB."""

    def refuse(_: IO[bytes]) -> IO[bytes]:
        raise MemoryError

    monkeypatch.setattr(archives, "_DECOMPRESSORS", {b"\xfd7zXZ\x00": refuse})
    assert open_archive(lzma.compress(b"x"), LIMIT, LIMIT) is None
