"""Package the folder of a notebook, so that a job can run its modules."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from trainmaster.client.package_staging import run_setup
from trainmaster.core.model.package_uri import with_generation
from trainmaster.errors import PermanentError

BUCKET: Final = "TRAINMASTER_BUCKET"
_IGNORED: Final = shutil.ignore_patterns(
    "__pycache__", "*.egg-info", ".*", "*.ipynb", "build", "dist", "venv", "setup.py", "pyproject.toml"
)
_SETUP: Final = """from setuptools import find_packages, setup

setup(name={name!r}, version="0.1", py_modules={modules!r}, packages=find_packages(), install_requires={requirements!r})
"""


def package_folder(
    folder: str | Path = ".", bucket: str | None = None, requirements: Sequence[str] = (), name: str = "notebook"
) -> str:
    """Package the modules and packages of a folder, upload them, and return the URI for `packageUris`.

    `bucket`: where the package goes; default: TRAINMASTER_BUCKET. `requirements`: what pip installs with it. The same
    content has the same URI. Notebooks, hidden files and data files are left out. Raises PermanentError if the folder
    has no module.
    """
    target = bucket or os.environ.get(BUCKET)
    if not target:
        raise PermanentError(f"bucket: is required: package_folder(bucket=…), or set {BUCKET}")
    with tempfile.TemporaryDirectory() as scratch:
        content = build(Path(folder), Path(scratch), requirements, name)
    from trainmaster.wiring.objects import objects

    digest = hashlib.sha256(content).hexdigest()[:16]
    uri = f"gs://{target.removeprefix('gs://').rstrip('/')}/packages/{name}/{digest}/{name}-0.1.tar.gz"
    return with_generation(uri, objects().write(uri, content, content_type="application/gzip"))


def build(folder: Path, scratch: Path, requirements: Sequence[str], name: str) -> bytes:
    """Return the source distribution of a folder. Nothing is written to the folder."""
    root = scratch / "root"
    shutil.copytree(folder, root, ignore=_IGNORED)
    modules = sorted(path.stem for path in root.glob("*.py"))
    packages = sorted(path.parent.name for path in root.glob("*/__init__.py"))
    if not modules and not packages:
        raise PermanentError(f"{folder.resolve()} has no Python module: write one with %%writefile task.py")
    setup = _SETUP.format(name=name, modules=modules, requirements=list(requirements))
    (root / "setup.py").write_text(setup, encoding="utf-8")
    [archive] = run_setup(root, folder.resolve(), scratch / "dist")
    return archive.read_bytes()
