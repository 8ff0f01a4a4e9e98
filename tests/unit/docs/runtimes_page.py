"""docs/runtimes.md, from the tables of runtimes: `python -m tests.unit.docs.runtimes_page` writes
it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from trainmaster.jobspec.catalog.runtimes import TPU_PYTHON
from trainmaster.presentation.runtime_table import package_rows, past_rows, runtime_rows

PAGE: Final = Path(__file__).parents[3] / "docs" / "runtimes.md"

_HEAD: Final = """# Runtimes

`runtimeVersion` selects the Python and the packages of a job's VMs. `trainmaster runtimes` prints
the same tables. The local stack has the same packages in one environment per runtime, with the
Python of your machine. To add or change a runtime, edit
[runtimes.py](../shared/trainmaster/jobspec/catalog/runtimes.py), and write this page again with
`python -m tests.unit.docs.runtimes_page`.
"""
_PACKAGES: Final = """## Packages of every runtime

The old service's runtimes brought them, and programs import them without declaring them
([decision 85](decisions/0085-packages-of-runtimes.md)). XGBoost is the build for CPUs; a program
that trains it on GPUs declares `xgboost`. On TPU VMs, `pillow`, `pandas` and `scikit-learn` have
the last versions for Python 3.10.
"""
_PAST: Final = """## Past versions

A job that names one of them is accepted. The job lists the replacement as a substitution, and
[migrating.md](migrating.md) says what to change in a program that does not run on it.
"""
_COLUMNS: Final = (
    "`runtimeVersion`",
    "Python",
    "frameworks",
    "with GPUs instead",
    f"on TPU VMs (Python {TPU_PYTHON})",
    "image",
)


def page() -> str:
    """Return the text of the page."""
    runtimes = [
        [
            f"`{row.version}`" + (", the default" if row.is_default else ""),
            row.python,
            _codes(row.frameworks),
            _codes(row.on_gpus) or "the same",
            _codes(row.on_tpus) or "none",
            f"`{row.image}`",
        ]
        for row in runtime_rows()
    ]
    packages = [[f"`{module}`", f"`{requirement}`"] for module, requirement in package_rows()]
    past = [
        [versions, pythons, f"`{replacement}`"] for versions, pythons, replacement in past_rows()
    ]
    return "\n".join(
        (
            _HEAD,
            *_table(_COLUMNS, runtimes),
            "",
            _PACKAGES,
            *_table(["module", "package"], packages),
            "",
            _PAST,
            *_table(["version", "its Python", "gets"], past),
            "",
        )
    )


def _codes(requirements: Iterable[str]) -> str:
    return ", ".join(f"`{requirement}`" for requirement in requirements)


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [columns, ["---"] * len(columns), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.exit(0)
