"""Build the package of an example trainer: a source distribution (.tar.gz) for `packageUris` of a job.

    python examples/package.py digits OUT_DIR

Accepts the name of any example; some job files run the trainer of another example. Prints the path of the archive.
Needs setuptools but no network, and writes nothing into the source tree. The same sources give the same bytes: times,
owners and order in the archive are fixed.
"""

import argparse
import gzip
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

EXAMPLES: Final = Path(__file__).resolve().parent
IGNORED: Final = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.yaml")
# 2020-01-01T00:00:00Z. Any fixed time after 1980 would do, the earliest time in a zip file (a wheel built from this).
FIXED_TIME_S: Final = 1577836800
PACKAGE: Final = re.compile(r"^ *- gs://[^/]+/packages/(\w+)/", re.MULTILINE)


def main(argv: list[str] | None = None) -> int:
    """Build the package of one example."""
    folders = {path.parent for name in ("setup.py", "job.yaml") for path in EXAMPLES.glob(f"*/{name}")}
    names = sorted(folder.name for folder in folders if not folder.name.startswith("algorithm_"))  # these have none
    parser = argparse.ArgumentParser(
        prog="python examples/package.py", description="Build an example trainer's package."
    )
    parser.add_argument("example", choices=names)
    parser.add_argument("out_dir", type=Path)
    options = parser.parse_args(argv)
    print(build(trainer_of(options.example), options.out_dir))
    return 0


def trainer_of(example: str) -> str:
    """Return the example that has this example's trainer: itself, or the one in its job file (`packages/TRAINER/`)."""
    folder = EXAMPLES / example
    if (folder / "setup.py").is_file():
        return example
    match = PACKAGE.search((folder / "job.yaml").read_text(encoding="utf-8"))
    if match is None:
        raise RuntimeError(f"{folder / 'job.yaml'}: no entry of packageUris is below gs://BUCKET/packages/TRAINER/")
    return match.group(1)


def build(trainer: str, out_dir: Path) -> Path:
    """Build the trainer's source distribution in the directory and return the archive's path.

    Raises RuntimeError with the output of setuptools if the build fails.
    """
    out_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        sources, built = Path(scratch, "sources"), Path(scratch, "built")
        shutil.copytree(EXAMPLES / trainer, sources, ignore=IGNORED)
        command = [sys.executable, "setup.py", "--quiet", "sdist", "--formats=gztar", "--dist-dir", str(built)]
        ran = subprocess.run(command, cwd=sources, check=False, capture_output=True, text=True)
        if ran.returncode != 0:
            raise RuntimeError(f"setuptools could not package {trainer}:\n{ran.stderr}")
        (archive,) = built.glob("*.tar.gz")
        target = out_dir / normal_name(archive.name)
        with tempfile.NamedTemporaryFile(dir=out_dir, prefix=f".{target.name}.", delete=False) as whole:
            repack(archive, Path(whole.name))
        Path(whole.name).chmod(0o644)
        Path(whole.name).replace(target)
    return target


def normal_name(name: str) -> str:
    """Return the archive's name in the form of PEP 625. Older setuptools versions keep dashes in the project name."""
    project, _, version = name.rpartition("-")
    return f"{project.replace('-', '_')}-{version}"


def repack(archive: Path, target: Path) -> None:
    """Write the archive again with fixed times, owners and order, which differ from one build to the next."""
    with (
        tarfile.open(archive) as source,
        target.open("wb") as raw,
        gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=FIXED_TIME_S) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as sink,
    ):
        for member in sorted(source.getmembers(), key=lambda member: member.name):
            member.pax_headers = {}
            member.mtime = FIXED_TIME_S
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mode = 0o755 if member.isdir() else 0o644
            sink.addfile(member, source.extractfile(member) if member.isfile() else None)


if __name__ == "__main__":
    sys.exit(main())
