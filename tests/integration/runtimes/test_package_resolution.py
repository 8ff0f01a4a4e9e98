"""Each runtime's packages resolve for the Python of its boot image.

Only the package index is read.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainmaster.jobspec.catalog.algorithms import ALGORITHMS, XGBOOST_ON_GPU
from trainmaster.jobspec.catalog.runtimes import RUNTIMES, TPU_PYTHON
from trainmaster.packaging.algorithms_archive import REQUIREMENTS

pytestmark = [
    pytest.mark.heavy(
        fact="packages of each runtime resolve for the Python of its boot image",
        quick="nothing: the versions are those of the package index at the moment",
    ),
    pytest.mark.timeout(900),
]

# Newest wheels that the C library of the image's distribution runs. Source: packages.ubuntu.com,
# packages.debian.org.
PLATFORMS = {
    "ubuntu-2404": "x86_64-manylinux_2_39",
    "ubuntu-2204": "x86_64-manylinux_2_35",
    "debian-12": "x86_64-manylinux_2_36",
}


def platform_of(image: str) -> str:
    return next(platform for distribution, platform in PLATFORMS.items() if distribution in image)


def cases() -> Iterator[tuple[str, str, str, tuple[str, ...]]]:
    """Yield name, Python, platform and packages of each set of packages that one VM installs."""
    for version, runtime in RUNTIMES.items():
        platform = platform_of(runtime.image)
        yield version, runtime.python, platform, runtime.packages
        if runtime.gpu_packages:
            yield f"{version}-gpu", runtime.python, platform, runtime.gpu_packages
        if runtime.tpu_packages:
            yield f"{version}-tpu", TPU_PYTHON, PLATFORMS["ubuntu-2204"], runtime.tpu_packages
    for name, runtime in {
        **{item.name: RUNTIMES[item.runtime] for item in ALGORITHMS.values()},
        "gpu": XGBOOST_ON_GPU,
    }.items():
        packages = (*runtime.packages, *REQUIREMENTS)
        yield f"algorithm-{name}", runtime.python, platform_of(runtime.image), packages


def resolve(
    packages: tuple[str, ...], python: str, platform: str, folder: Path
) -> subprocess.CompletedProcess[str]:
    """Resolve the packages to wheels.

    A package without a wheel for this Python counts as missing.
    """
    (requirements := folder / "packages.in").write_text("\n".join(packages))
    uv = Path(sys.executable).parent / "uv"
    options = (
        "--quiet",
        "--no-header",
        "--only-binary=:all:",
        "--no-binary=cloudml-hypertune",  # pure Python, and its newest version has no wheel
        f"--python-version={python}",
        f"--python-platform={platform}",
    )
    return subprocess.run(
        [str(uv), "pip", "compile", *options, str(requirements)],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("name", "python", "platform", "packages"),
    [pytest.param(*case, id=case[0]) for case in cases()],
)
def test_packages_of_runtime_have_wheels_for_the_python_of_its_image(
    name: str, python: str, platform: str, packages: tuple[str, ...], tmp_path: Path
) -> None:
    resolution = resolve(packages, python, platform, tmp_path)

    assert resolution.returncode == 0, f"{name}: {resolution.stderr}"


def test_packages_without_wheels_for_an_older_python_are_not_resolved(tmp_path: Path) -> None:
    """Ubuntu 22.04 has Python 3.10, for which scikit-learn 1.9 has no wheels."""
    resolution = resolve(RUNTIMES["2.21"].packages, "3.10", PLATFORMS["ubuntu-2204"], tmp_path)

    assert resolution.returncode != 0
    assert "requirements are unsatisfiable" in resolution.stderr


def test_tensorflow_runtime_includes_cuda_libraries_only_on_vms_with_gpus(tmp_path: Path) -> None:
    runtime = RUNTIMES["2.21"]
    platform = platform_of(runtime.image)

    assert "nvidia-" not in resolve(runtime.packages, runtime.python, platform, tmp_path).stdout
    assert (
        "nvidia-cudnn" in resolve(runtime.gpu_packages, runtime.python, platform, tmp_path).stdout
    )
