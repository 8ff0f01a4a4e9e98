"""Builds and uploads packages to Cloud Storage, as `gcloud ai-platform jobs submit training` does.

    --package-path DIR ─► sdist, or a wheel ─┐
    --packages a.whl ────────────────────────┴─► gs://BUCKET/…/SHA256/NAME#sha256=HASH ─┐
    --packages gs://… ──────────────────────────────────────────────────────────────────┴─► URIs

The URIs become `packageUris`. SHA256 is that of all files, and HASH that of this one.

The agent verifies HASH: the job installs this content, or fails if the object was replaced.

Source: googlecloudsdk/command_lib/ml_engine/jobs_prep.py.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from trainmaster.errors import PermanentError
from trainmaster.packaging.archives import wheel, wheel_name
from trainmaster.packaging.folder_files import KIB, FolderFiles, choose_files
from trainmaster.ports import Objects
from trainmaster.wiring.package_upload import upload_package

GS: Final = "gs://"
"""Beginning of an address in Cloud Storage."""


def build(package_path: Path, out_dir: Path) -> list[Path]:
    """Build a package, and return its files in `out_dir`.

    It is a source distribution if the parent folder has a setup.py, else a wheel of the package
    alone. Nothing is written to the folder of the sources. Raises PermanentError with setuptools'
    output.
    """
    package = package_path.resolve()
    root = package.parent
    if not (package / "__init__.py").is_file():
        raise PermanentError(
            f"[{package}] is not a Python package: it has no __init__.py. Add an empty __init__.py"
        )
    if not (root / "setup.py").is_file():
        out_dir.mkdir(parents=True, exist_ok=True)
        file = out_dir / wheel_name(package.name)
        files = list_modules(package).files
        modules = {f"{package.name}/{name}": path for name, path in files.items()}
        file.write_bytes(wheel(package.name, modules, requirements=()))
        return [file]
    with tempfile.TemporaryDirectory() as eggs, _locked(root):
        python = [sys.executable, "setup.py", "--quiet"]
        egg_info = ["egg_info", "--egg-base", eggs]
        sdist = ["sdist", "--formats=gztar", "--dist-dir", str(out_dir)]
        command = [*python, *egg_info, *sdist]
        result = subprocess.run(command, cwd=root, check=False, capture_output=True, text=True)
    if result.returncode != 0:
        raise PermanentError(f"setuptools could not package {package}:\n{result.stderr.strip()}")
    return sorted(out_dir.glob("*.tar.gz"))


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let builds in one folder wait for each other: sdist collects its files there for a moment."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def list_modules(package_path: Path) -> FolderFiles:
    """Return the modules of a package whose wheel `build` makes.

    A module that git ignores is packed: tools generate such modules, as setuptools-scm does.
    """
    package = package_path.resolve()
    return choose_files(package, package.rglob("*.py"), wanted=("*",))


def folder_for(
    job_id: str, staging_bucket: str | None, job_dir: str | None, default_bucket: str
) -> str:
    """Return the folder for a job's packages, without the hash.

    It is where gcloud puts them, or else a folder in the installation's bucket. Raises
    PermanentError if there is none.
    """
    if staging_bucket:
        return f"{_gs_uri(staging_bucket)}/{job_id}"
    if job_dir:
        return f"{job_dir.rstrip('/')}/packages"
    if default_bucket:
        return f"{GS}{default_bucket}/packages/{job_id}"
    raise PermanentError(
        "no bucket to upload local packages to: give --staging-bucket or --job-dir, or set"
        " TRAINMASTER_BUCKET"
    )


def describe_archive(name: str, content: bytes) -> str:
    """Return `trainer-1.0.tar.gz, 12 files, 30.5 KiB`, with the size of the unpacked files.

    For other files than archives, return their own size.
    """
    file = io.BytesIO(content)
    try:
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as archive:
                sizes = [entry.file_size for entry in archive.infolist() if not entry.is_dir()]
        else:
            with tarfile.open(fileobj=io.BytesIO(content)) as sdist:
                sizes = [member.size for member in sdist.getmembers() if not member.isdir()]
    except (OSError, EOFError, zlib.error, tarfile.TarError, zipfile.BadZipFile):
        return f"{name}, {len(content) / KIB:,.1f} KiB"
    noun = "file" if len(sizes) == 1 else "files"
    return f"{name}, {len(sizes)} {noun}, {sum(sizes) / KIB:,.1f} KiB"


def stage(
    packages: Sequence[str],
    package_path: Path | None,
    folder: str,
    objects: Objects,
    say: Callable[[str], object] = lambda _: None,
) -> list[str]:
    """Upload the local packages, and return the URIs of all in the order of their installation.

    The URIs of uploaded packages have their hash. The order is: packages that are in Cloud
    Storage, local files, the package at `package_path`. `say` is called with what each one has.
    """
    remote = [package for package in packages if package.startswith(GS)]
    with tempfile.TemporaryDirectory() as scratch:
        files = [Path(package) for package in packages if not package.startswith(GS)]
        missing = [str(file) for file in files if not file.is_file()]
        if missing:
            raise PermanentError(f"--packages: there is no file {', '.join(missing)}")
        if package_path is not None:
            files += build(package_path, Path(scratch))
        names = [file.name for file in files]
        duplicates = sorted({name for name in names if names.count(name) > 1})
        if duplicates:
            raise PermanentError(
                f"Cannot upload multiple packages with the same filename: [{', '.join(duplicates)}]"
            )
        contents = [file.read_bytes() for file in files]
        digest = hashlib.sha256(b"".join(contents)).hexdigest()
        staged = []
        for name, content in zip(names, contents, strict=True):
            uri = f"{folder}/{digest}/{name}"
            say(describe_archive(name, content))
            staged.append(upload_package(uri, content, "application/gzip", objects))
    return [*remote, *staged]


def _gs_uri(bucket: str) -> str:
    """Return the URI of a bucket that is named with or without gs://."""
    return GS + bucket.removeprefix(GS).rstrip("/")
