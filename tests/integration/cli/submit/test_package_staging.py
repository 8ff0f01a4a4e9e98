"""Local packages of a job: what is built of them, and where it is uploaded."""

from __future__ import annotations

import hashlib
import re
import zipfile
from pathlib import Path

import pytest

from tests.integration.cli.conftest import Installation
from tests.integration.cli.submit.local_package import make_package
from trainmaster.client import package_staging
from trainmaster.errors import PermanentError


def test_package_without_setup_py_is_built_without_changing_its_folder(tmp_path: Path) -> None:
    package = make_package(tmp_path / "root")
    (tmp_path / "root" / "unrelated.bin").write_bytes(b"x")
    before = sorted(tmp_path.rglob("*"))
    out = tmp_path / "out"
    (archive,) = package_staging.build(package, out)
    assert archive.name == "trainer-1.0-py3-none-any.whl"
    with zipfile.ZipFile(archive) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert names == {"trainer/__init__.py", "trainer/task.py", "trainer/inner/__init__.py"}
    assert (
        sorted(path for path in tmp_path.rglob("*") if out not in (path, *path.parents)) == before
    )


def test_package_with_setup_py_is_built_with_it(tmp_path: Path) -> None:
    package = make_package(tmp_path)
    (tmp_path / "setup.py").write_text(
        "from setuptools import setup\nsetup(name='mine', version='7', packages=['trainer'])"
    )
    before = sorted(tmp_path.rglob("*"))
    (archive,) = package_staging.build(package, tmp_path.parent / f"{tmp_path.name}-out")
    assert archive.name == "mine-7.tar.gz"
    assert sorted(tmp_path.rglob("*")) == before


def test_folder_without_init_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match=r"no __init__\.py"):
        package_staging.build(tmp_path, tmp_path / "out")


def test_packages_have_gclouds_order_and_folders(
    installation: Installation, tmp_path: Path
) -> None:
    wheel = tmp_path / "extra.whl"
    wheel.write_bytes(b"wheel")
    folder = package_staging.folder_for("digits_1", None, "gs://b/dir/", "")
    uris = package_staging.stage(
        [str(wheel), "gs://b/first.tar.gz"], make_package(tmp_path), folder, installation.objects
    )
    assert uris[0] == "gs://b/first.tar.gz"
    digest = uris[1].split("/")[-2]
    for uri, name in zip(uris[1:], ("extra.whl", "trainer-1.0-py3-none-any.whl"), strict=True):
        address, _, version = uri.partition("#")
        assert address == f"gs://b/dir/packages/{digest}/{name}"
        content = installation.objects.read(address, max_bytes=1 << 20)
        assert content
        assert version == f"sha256={hashlib.sha256(content).hexdigest()}"
    assert package_staging.folder_for("digits_1", "gs://s/", "gs://b/dir", "x") == "gs://s/digits_1"
    assert package_staging.folder_for("digits_1", None, None, "x") == "gs://x/packages/digits_1"
    with pytest.raises(PermanentError, match="--staging-bucket"):
        package_staging.folder_for("digits_1", None, None, "")
    with pytest.raises(PermanentError, match="same filename"):
        package_staging.stage([str(wheel), str(wheel)], None, folder, installation.objects)


def test_upload_names_files_and_bytes_of_each_package(
    installation: Installation, tmp_path: Path
) -> None:
    package = make_package(tmp_path)
    (tmp_path / "setup.py").write_text("from setuptools import setup\nsetup(name='mine')\n")
    other = tmp_path / "notes.txt"
    other.write_bytes(b"x" * 2048)
    descriptions: list[str] = []
    package_staging.stage(
        [str(other)], package, "gs://b/p", installation.objects, descriptions.append
    )
    notes, trainer = descriptions
    assert notes == "notes.txt, 2.0 KiB"
    assert re.fullmatch(r"mine-0\.0\.0\.tar\.gz, \d+ files, \d+\.\d KiB", trainer)
    wheel = package_staging.build(make_package(tmp_path / "other"), tmp_path / "out")[0]
    description = package_staging.describe_archive(wheel.name, wheel.read_bytes())
    assert re.search(r"whl, [1-9] files, 0\.\d KiB", description)
