"""The contents of each runtime version, for `trainmaster runtimes` and docs/runtimes.md."""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.jobspec.catalog.runtimes import PAST_RUNTIMES, RUNTIME_DEFAULT, RUNTIMES, Runtime
from trainmaster.jobspec.catalog.service_packages import SERVICE_PACKAGES, package_name


@dataclass(frozen=True, slots=True)
class RuntimeRow:
    """One runtime version."""

    version: str
    """Value of `runtimeVersion`."""
    python: str
    """Python of its VMs."""
    frameworks: tuple[str, ...]
    """Requirements that only this runtime has."""
    on_gpus: tuple[str, ...]
    """Requirements that VMs with GPUs have instead."""
    on_tpus: tuple[str, ...]
    """Requirements of frameworks on TPU VMs, whose Python is 3.10; empty: not for TPUs."""
    image: str
    """Family of the boot image."""
    is_default: bool


def runtime_rows() -> tuple[RuntimeRow, ...]:
    """Return the current runtimes, in the order of `RUNTIMES`: the default is its first."""
    return tuple(_row(version, runtime) for version, runtime in RUNTIMES.items())


def package_rows() -> tuple[tuple[str, str], ...]:
    """Return module and requirement of each package that every runtime has."""
    return tuple(SERVICE_PACKAGES.items())


def past_rows() -> tuple[tuple[str, str, str], ...]:
    """Return rows of past versions: first and last version, Pythons, replacement.

    Versions that follow each other with the same Pythons and replacement have one row.
    """
    rows: list[tuple[str, str, str]] = []
    first = ""
    last: tuple[str, str] | None = None
    for version, past in PAST_RUNTIMES.items():
        content = (", ".join(past.pythons), past.replaced_by)
        if content == last:
            rows[-1] = (f"{first} to {version}", *content)
        else:
            rows.append((version, *content))
            first = version
        last = content
    return tuple(rows)


def _row(version: str, runtime: Runtime) -> RuntimeRow:
    """Return the row of a runtime."""
    on_gpus = tuple(package for package in runtime.gpu_packages if package not in runtime.packages)
    return RuntimeRow(
        version=version,
        python=runtime.python,
        frameworks=_distinctive(runtime.packages),
        on_gpus=on_gpus,
        on_tpus=_distinctive(runtime.tpu_packages),
        image=runtime.image.rpartition("/")[2],
        is_default=version == RUNTIME_DEFAULT,
    )


def _distinctive(packages: tuple[str, ...]) -> tuple[str, ...]:
    """Return the requirements that tell this runtime from the others: not those of all runtimes.

    The runtime of scikit-learn has only packages that all have: its first one names it.
    """
    of_all = {package_name(package) for package in SERVICE_PACKAGES.values()}
    distinctive = tuple(package for package in packages if package_name(package) not in of_all)
    return distinctive or packages[:1]
