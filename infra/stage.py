"""`make stage`: build the agent, and one source archive per function, with its modules and locked
requirements.

    build/stage/submit.zip
    ├── main.py               module in which Cloud Functions looks for the entry point
    ├── requirements.txt      locked, with hashes
    ├── functions/submit.py
    └── trainmaster/…         the modules that it imports, directly and indirectly
    build/stage/agent.zip     the agent, which VMs download
    build/stage/*.whl         the built-in algorithms, which VMs of such jobs install
    build/stage/webhook.zip   infra/webhook/main.py, which posts notifications
                              (`notification_webhooks`)

The same sources give the same bytes, so that Terraform redeploys only functions that have changed.
"""

from __future__ import annotations

import argparse
import sys
import zipfile
from pathlib import Path
from typing import Final

import grimp

from trainmaster.packaging.agent_archive import agent_archive
from trainmaster.packaging.algorithms_archive import WHEEL, algorithms_archive
from trainmaster.packaging.archives import zip_archive

ROOT: Final = Path(__file__).parents[1]
FUNCTIONS: Final = tuple(sorted(path.stem for path in (ROOT / "functions").glob("[a-z]*.py")))
REQUIREMENTS: Final = {
    "api": "api",
    "console": "console",
    "provision": "provision",
    "submit": "upload",
    "tune": "tune",
    "upload": "upload",
}
"""Requirements of functions that need more than `functions.txt`."""
DATA: Final = {
    "console": (
        "trainmaster/console/templates/*.html",
        "trainmaster/console/static/*.*",
        "trainmaster/console/static/vendor/*",
        "trainmaster/presentation/reasons.yaml",
    ),
    "provision": ("trainmaster/agent/startup.sh", "trainmaster/agent/shutdown.sh"),
}
"""Files that a function reads: `provision` gives VMs their scripts, `console` renders templates and
texts.
"""
AGENT: Final = "agent.zip"
PACKAGES: Final = {"functions": ROOT, "trainmaster": ROOT / "shared"}
"""Packages of which an archive may contain modules → the folder that contains the package."""
WEBHOOK: Final = "webhook.zip"
MAIN: Final = """\
import gc

# Imported modules are never freed: collecting during the imports, or among them later, wastes time.
gc.disable()

from {entry} import {function}
from trainmaster.settings import settings

# A wrong setting stops the start and so the deployment; the previous release keeps running.
settings()

gc.freeze()
gc.enable()

__all__ = ["{function}"]
"""


def stage(folder: Path) -> dict[str, Path]:
    """Build the agent and all archives in a folder, replacing older ones; return the archives by
    function.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / AGENT).write_bytes(agent_archive())
    (folder / WHEEL).write_bytes(algorithms_archive())
    (folder / WEBHOOK).write_bytes(zip_archive(webhook_sources()))
    graph = grimp.build_graph(*PACKAGES, cache_dir=None, exclude_type_checking_imports=True)
    archives = {}
    for function in FUNCTIONS:
        archives[function] = folder / f"{function}.zip"
        archives[function].write_bytes(zip_archive(sources(function, graph)))
    return archives


def sources(function: str, graph: grimp.ImportGraph) -> dict[str, bytes]:
    """Return the files of a function's archive: name → content. `graph` holds `PACKAGES`."""
    entry = f"functions.{function}"
    files: set[Path] = set()
    for module in (entry, *graph.find_upstream_modules(entry)):
        files |= _files(module)
    for pattern in DATA.get(function, ()):
        files.update(PACKAGES["trainmaster"].glob(pattern))
    modules_and_data = {_name(path): path.read_bytes() for path in files}
    requirements = ROOT / "requirements" / f"{REQUIREMENTS.get(function, 'functions')}.txt"
    main = MAIN.format(entry=entry, function=function)
    return {
        "main.py": main.encode(),
        "requirements.txt": requirements.read_bytes(),
        **modules_and_data,
    }


def webhook_sources() -> dict[str, bytes]:
    """Return the files of the webhook's archive: one module, which imports nothing of ours."""
    main = ROOT / "infra" / "webhook" / "main.py"
    requirements = ROOT / "requirements" / "functions.txt"
    return {"main.py": main.read_bytes(), "requirements.txt": requirements.read_bytes()}


def _files(module: str) -> set[Path]:
    """Return the module's file and the `__init__.py` files of its packages."""
    root = PACKAGES[module.partition(".")[0]]
    path = root.joinpath(*module.split("."))
    own = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    packages = {parent / "__init__.py" for parent in path.parents if root in parent.parents}
    return {own, *filter(Path.exists, packages)}


def _name(path: Path) -> str:
    """Return the name that a file has in an archive: its path below the folder that contains its
    package.
    """
    root = ROOT / "shared" if ROOT / "shared" in path.parents else ROOT
    return str(path.relative_to(root))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m infra.stage", description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT / "build" / "stage")
    for function, archive in stage(parser.parse_args().folder).items():
        with zipfile.ZipFile(archive) as file:
            size_kib = archive.stat().st_size / 1024
            sys.stdout.write(
                f"{function:14s} {size_kib:6.0f} KiB  {len(file.namelist()):3d} files\n"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
