"""Build the package of an example trainer: a source distribution (.tar.gz) for `packageUris` of a job.

    python examples/package.py digits OUT_DIR

Accepts the name of any example; some job files run the trainer of another example. Prints the path of the archive.
It needs no network, and writes nothing into the source tree. The same sources give the same bytes.
"""

import argparse
import gzip
import io
import re
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

EXAMPLES: Final = Path(__file__).resolve().parent
SETUP: Final = re.compile(r'\b(?:name|version)="([^"]+)"')
# 2020-01-01T00:00:00Z. Any fixed time after 1980 would do, the earliest time in a zip file (a wheel built from this).
FIXED_TIME_S: Final = 1577836800
PACKAGE: Final = re.compile(r"^ *- gs://[^/]+/packages/(\w+)/", re.MULTILINE)


def main(argv: list[str] | None = None) -> int:
    """Build the package of one example."""
    folders = {path.parent for name in ("setup.py", "job.yaml") for path in EXAMPLES.glob(f"*/{name}")}
    names = sorted(folder.name for folder in folders if not folder.name.startswith("algorithm_"))  # these have none
    parser = argparse.ArgumentParser(description="Build an example trainer's package.")
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
    (trainer,) = PACKAGE.findall((folder / "job.yaml").read_text(encoding="utf-8"))
    return str(trainer)


def build(trainer: str, out_dir: Path) -> Path:
    """Build the trainer's source distribution in the directory and return the archive's path."""
    out_dir.mkdir(parents=True, exist_ok=True)
    sources = EXAMPLES / trainer
    name, version = SETUP.findall((sources / "setup.py").read_text(encoding="utf-8"))
    root = f"{name.replace('-', '_')}-{version}"
    with (
        tempfile.NamedTemporaryFile(dir=out_dir, prefix=f".{root}.", delete=False) as whole,
        gzip.GzipFile(filename="", fileobj=whole, mode="wb", mtime=FIXED_TIME_S) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in sorted(sources.rglob("*.py")):
            content = path.read_bytes()
            member = tarfile.TarInfo(f"{root}/{path.relative_to(sources).as_posix()}")
            member.size, member.mtime = len(content), FIXED_TIME_S
            archive.addfile(member, io.BytesIO(content))
    Path(whole.name).chmod(0o644)
    return Path(whole.name).replace(out_dir / f"{root}.tar.gz")


if __name__ == "__main__":
    sys.exit(main())
