"""Packages that every runtime of AI Platform Training (the service) had, in today's versions.

Programs import them without declaring them.

The names are those of the service's runtime version list, without the packages that Google or their
authors have retired. Versions are pinned by a prefix, so that the agent sees without pip whether an
image has them. Of cloudml-hypertune there are only pre-releases, which pip before 24 takes only if
they are named in full. XGBoost is the build for CPUs: the other one installs 300 MB of CUDA
libraries. requirements/service-packages.in installs the same packages on the local stack.
"""

from __future__ import annotations

import re
from typing import Final

SERVICE_PACKAGES: Final = {
    "PIL": "pillow==13.*",
    "gcsfs": "gcsfs==2026.*",
    "google.cloud.storage": "google-cloud-storage==3.*",
    "h5py": "h5py==3.*",
    "hypertune": "cloudml-hypertune==0.1.0.dev6",
    "joblib": "joblib==1.*",
    "numpy": "numpy==2.*",
    "pandas": "pandas==3.*",
    "requests": "requests==2.*",
    "scipy": "scipy==1.*",
    "six": "six==1.*",
    "sklearn": "scikit-learn==1.9.*",
    "xgboost": "xgboost-cpu==3.*",
    "yaml": "pyyaml==6.*",
}
"""Module → requirement."""

_PYTHON_310: Final = {
    "PIL": "pillow==12.*",
    "pandas": "pandas==2.*",
    "sklearn": "scikit-learn==1.7.*",
}
"""The newest versions for Python 3.10, where they differ."""

SERVICE_PACKAGES_ON_TPU: Final = tuple((SERVICE_PACKAGES | _PYTHON_310).values())
"""Requirements for Cloud TPU's software versions, which have Python 3.10."""


def package_name(requirement: str) -> str:
    """Return the name in a requirement: `tensorflow[and-cuda]==2.21.*` → `tensorflow`."""
    return re.split(r"[\[<>=!~;@ ]", requirement, maxsplit=1)[0]


def with_service_packages(*own: str) -> tuple[str, ...]:
    """Return a runtime's own requirements, and those service packages that they do not name."""
    names = {package_name(requirement) for requirement in own}
    return (
        *own,
        *(package for package in SERVICE_PACKAGES.values() if package_name(package) not in names),
    )
