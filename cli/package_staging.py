"""Packages on their way to Cloud Storage, as `gcloud ai-platform jobs submit training` brings them there.

    --package-path DIR ──► sdist of DIR's parent ──┐
    --packages a.whl,gs://…  ──────────────────────┴──► gs://BUCKET/…/SHA256 OF ALL FILES/NAME ──► packageUris

Same content, same place: what is there already is the same. Source: googlecloudsdk/command_lib/ml_engine/jobs_prep.py.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from shared.errors import PermanentError
from shared.ports import Objects

GS: Final = "gs://"
SETUP: Final = """from setuptools import find_packages, setup

setup(name={name!r}, packages=find_packages(include=[{name!r}, {name!r} + ".*"]))
"""
IGNORED: Final = shutil.ignore_patterns("__pycache__", "*.egg-info")


def build(package_path: Path, out_dir: Path) -> list[Path]:
    """The source distribution of the package's parent folder, by its setup.py, or one made for the package alone.

    Nothing is left beside the sources. Raises PermanentError with what setuptools said.
    """
    package = package_path.resolve()
    if not (package / "__init__.py").is_file():
        raise PermanentError(f"[{package}] is not a Python package: it has no __init__.py. Add an empty one")
    with tempfile.TemporaryDirectory() as scratch:
        root = package.parent
        if not (root / "setup.py").is_file():
            root = Path(scratch, "root")
            shutil.copytree(package, root / package.name, ignore=IGNORED)
            (root / "setup.py").write_text(SETUP.format(name=package.name), encoding="utf-8")
        eggs = Path(scratch, "eggs")
        eggs.mkdir()
        command = [sys.executable, "setup.py", "--quiet", "egg_info", "--egg-base", str(eggs)]
        command += ["sdist", "--formats=gztar", "--dist-dir", str(out_dir)]
        ran = subprocess.run(command, cwd=root, check=False, capture_output=True, text=True)
    if ran.returncode != 0:
        raise PermanentError(f"setuptools could not package {package}:\n{ran.stderr.strip()}")
    return sorted(out_dir.glob("*.tar.gz"))


def folder_for(job_id: str, staging_bucket: str | None, job_dir: str | None, default_bucket: str) -> str:
    """Where a job's packages go, without the hash: gcloud's places, and the installation's bucket where it has none."""
    if staging_bucket:
        return f"{_gs(staging_bucket)}/{job_id}"
    if job_dir:
        return f"{job_dir.rstrip('/')}/packages"
    if default_bucket:
        return f"{GS}{default_bucket}/packages/{job_id}"
    raise PermanentError("local packages need a place: give --staging-bucket or --job-dir, or set TRAINMASTER_BUCKET")


def stage(packages: Sequence[str], package_path: Path | None, folder: str, objects: Objects) -> list[str]:
    """Their URIs in the order in which they are installed: those that were there, local files, the trainer last."""
    there = [package for package in packages if package.startswith(GS)]
    with tempfile.TemporaryDirectory() as scratch:
        files = [Path(package) for package in packages if not package.startswith(GS)]
        if missing := [str(file) for file in files if not file.is_file()]:
            raise PermanentError(f"there is no file {', '.join(missing)} (--packages)")
        files += build(package_path, Path(scratch)) if package_path else []
        names = [file.name for file in files]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise PermanentError(f"Cannot upload multiple packages with the same filename: [{', '.join(twice)}]")
        contents = [file.read_bytes() for file in files]
        digest = hashlib.sha256(b"".join(contents)).hexdigest()
        uris = [f"{folder}/{digest}/{name}" for name in names]
        for uri, content in zip(uris, contents, strict=True):
            objects.write(uri, content, content_type="application/gzip")
    return [*there, *uris]


def _gs(bucket: str) -> str:
    return GS + bucket.removeprefix(GS).rstrip("/")
