"""Build the package of an example trainer, as `packageUris` of a job wants it: a source distribution (.tar.gz).

    python examples/package.py digits OUT_DIR

Takes any example: some job files run the trainer of another one. Prints where the archive is. Needs setuptools, no
network, and leaves nothing in the tree. The same sources make the same bytes: all times in the archive are fixed, and
no user or machine is named in it.
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
# 2020-01-01T00:00:00Z: any fixed time after 1980, which is where zip files (wheels built from this) begin.
FIXED_TIME_S: Final = 1577836800
PACKAGE: Final = re.compile(r"^ *- gs://[^/]+/packages/(\w+)/", re.MULTILINE)


def main(argv: list[str] | None = None) -> int:
    """Build the package of one example."""
    names = sorted({path.parent.name for name in ("setup.py", "job.yaml") for path in EXAMPLES.glob(f"*/{name}")})
    parser = argparse.ArgumentParser(
        prog="python examples/package.py", description="Build an example trainer's package."
    )
    parser.add_argument("example", choices=names)
    parser.add_argument("out_dir", type=Path)
    options = parser.parse_args(argv)
    print(build(trainer_of(options.example), options.out_dir))
    return 0


def trainer_of(example: str) -> str:
    """Return whose trainer the example runs: its own, or the one its job file names (`…/packages/TRAINER/…`)."""
    folder = EXAMPLES / example
    if (folder / "setup.py").is_file():
        return example
    found = PACKAGE.search((folder / "job.yaml").read_text(encoding="utf-8"))
    if found is None:
        raise RuntimeError(f"{folder / 'job.yaml'} names no package")
    return found.group(1)


def build(trainer: str, out_dir: Path) -> Path:
    """Build the trainer's source distribution into the directory; return the archive's path.

    `RuntimeError` with what setuptools said where it fails.
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
    """Return the archive's name as PEP 625 writes it: older setuptools leave the project's dashes in it."""
    project, _, version = name.rpartition("-")
    return f"{project.replace('-', '_')}-{version}"


def repack(archive: Path, target: Path) -> None:
    """Write the archive again without what differs from one build to the next: times, owners, order."""
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
