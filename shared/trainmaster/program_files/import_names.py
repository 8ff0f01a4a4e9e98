"""Which packages bring a module, and which modules a runtime has."""

from __future__ import annotations

from typing import Final

from trainmaster.agent.setup.framework_builds import FRAMEWORKS, normalize
from trainmaster.core.rules.module_packages import package_of

_OTHER_BUILDS: Final = {
    "cv2": ("opencv-python-headless", "opencv-contrib-python", "opencv-contrib-python-headless"),
    "faiss": ("faiss-gpu", "faiss-gpu-cu12"),
    "psycopg2": ("psycopg2",),
}
"""Other packages that bring the same module."""
_BROUGHT_BY: Final = {
    "tensorflow": (
        "absl",
        "flatbuffers",
        "h5py",
        "keras",
        "numpy",
        "tensorboard",
        "termcolor",
        "wrapt",
    ),
    "torch": ("filelock", "fsspec", "jinja2", "networkx", "sympy", "functorch", "torchgen"),
    "jax": ("jaxlib", "ml_dtypes", "opt_einsum"),
}
"""Modules of what a framework of the runtime requires.

Source: the lock files of the runtimes in requirements/.
"""
_ALWAYS: Final = {
    "_distutils_hack",
    "certifi",
    "charset_normalizer",
    "dateutil",
    "fsspec",
    "idna",
    "packaging",
    "pip",
    "pkg_resources",
    "pytz",
    "setuptools",
    "threadpoolctl",
    "typing_extensions",
    "tzdata",
    "urllib3",
    "wheel",
}
"""Modules of what the service's packages require, and of the image's own tools.

Source: requirements/runtime-scikit-learn.txt, the smallest of the runtimes.
"""
_NAMESPACES: Final = {"google", "mpl_toolkits", "ruamel", "azure", "nvidia"}
"""Several packages add modules to them. They are not judged."""


def packages_with(module: str) -> frozenset[str]:
    """Return the normalized names of all packages that bring a top-level module."""
    names = {normalize(package_of(module)), normalize(module)}
    names |= set(_OTHER_BUILDS.get(module, ()))
    for builds in FRAMEWORKS:
        if normalize(module) in builds:
            names |= set(builds)
    return frozenset(names)


def is_in_runtime(module: str, runtime_packages: frozenset[str]) -> bool:
    """Return whether the runtime with these packages (normalized names) has a top-level module."""
    if module in _ALWAYS or module in _NAMESPACES:
        return True
    if packages_with(module) & runtime_packages:
        return True
    return any(
        framework in runtime_packages and module in modules
        for framework, modules in _BROUGHT_BY.items()
    )
