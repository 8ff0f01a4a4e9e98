"""The tables of docs/runtimes.md, from the tables of runtimes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from trainmaster.jobspec.catalog.runtimes import TPU_PYTHON
from trainmaster.presentation.runtime_table import package_rows, past_rows, runtime_rows

_PACKAGES: Final = """## Packages of every runtime

The old service's runtimes brought them, and programs import them without declaring them
([decision 85](decisions/jobs-and-entrances.md#decision-85)). XGBoost is the build for CPUs; a
program that trains it on GPUs declares `xgboost`. On TPU VMs, `pillow`, `pandas` and `scikit-learn`
have the last versions for Python 3.10.
"""
_PAST: Final = """## Past versions

A job that names one of them is accepted. The job lists the replacement as a substitution, and
[programs of the past](migrating.md#programs-of-the-past) says what to change in a program that does
not run on it.
"""
_COLUMNS: Final = (
    "`runtimeVersion`",
    "Python",
    "frameworks",
    "with GPUs instead",
    f"on TPU VMs (Python {TPU_PYTHON})",
    "image",
)


def tables() -> str:
    """Return the tables of runtimes, packages and past versions."""
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
