"""The local requirements agree with the tables of runtimes, which have no gap."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainmaster.core.rules.module_packages import package_of
from trainmaster.jobspec.catalog.runtimes import PAST_RUNTIMES, RUNTIMES, Runtime
from trainmaster.jobspec.catalog.service_packages import SERVICE_PACKAGES, package_name
from trainmaster.presentation.runtime_table import past_rows

REQUIREMENTS = Path(__file__).parents[3] / "requirements"
LOCAL = sorted(REQUIREMENTS.glob("runtime-*.in"))


def test_local_stack_installs_the_same_packages() -> None:
    lines = (REQUIREMENTS / "service-packages.in").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == sorted(SERVICE_PACKAGES.values())


@pytest.mark.parametrize("name", ["tensorflow", "pytorch", "scikit-learn", "jax"])
def test_local_environment_includes_the_services_packages(name: str) -> None:
    assert (
        "-r service-packages.in" in (REQUIREMENTS / f"runtime-{name}.in").read_text().splitlines()
    )
    locked = (REQUIREMENTS / f"runtime-{name}.txt").read_text()
    for requirement in SERVICE_PACKAGES.values():
        assert f"\n{package_name(requirement)}==" in f"\n{locked}"


@pytest.mark.parametrize("runtime", RUNTIMES.values(), ids=RUNTIMES)
def test_every_runtime_names_each_package_once_and_pinned(runtime: Runtime) -> None:
    """The agent runs pip for a requirement that is not pinned, even if the image has
    the package.
    """
    for packages in (runtime.packages, runtime.gpu_packages, runtime.tpu_packages):
        names = [package_name(package) for package in packages]
        assert len(names) == len(set(names))
        assert not packages or {
            package_name(package) for package in SERVICE_PACKAGES.values()
        } <= set(names)
        assert all("==" in package for package in packages)


def test_missing_module_of_the_past_is_answered_for_every_package() -> None:
    """A boot image or a container of the user's own may lack them."""
    builds = {"xgboost": "xgboost-cpu"}
    for module, requirement in SERVICE_PACKAGES.items():
        package = package_of(module)
        assert builds.get(package, package) == package_name(requirement)


def test_past_versions_are_listed_without_a_gap() -> None:
    assert past_rows()[0][0].startswith("1.0 to")
    assert past_rows()[-1][0].endswith(f"to {list(PAST_RUNTIMES)[-1]}")
