"""Write the golden files of this folder again. Read their difference before you commit it."""

from __future__ import annotations

from pathlib import Path

from tests.unit.jobspec.test_manifests import (
    FOLDER,
    MANIFESTS,
    REFUSED,
    job_file_text,
    problems_text,
)

if __name__ == "__main__":
    for name in MANIFESTS:
        Path(FOLDER / f"{name}.job").write_text(job_file_text(name), encoding="utf-8")
    for name in REFUSED:
        Path(FOLDER / "refused" / f"{name}.problems").write_text(
            problems_text(name), encoding="utf-8"
        )
