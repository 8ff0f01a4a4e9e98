"""Which packages bring a module, and which modules a runtime has.

A *module* is what a program imports, such as `cv2`. A *package* is what pip installs, such as
`opencv-python`. Several packages may bring the same module: other builds of it.
"""

from __future__ import annotations

from typing import Final

from trainmaster.agent.setup.framework_builds import FRAMEWORKS, normalize
from trainmaster.core.rules.module_packages import package_of
from trainmaster.jobspec.catalog.service_packages import package_name

_OTHER_BUILDS: Final = {
    "cv2": ("opencv-python-headless", "opencv-contrib-python", "opencv-contrib-python-headless"),
    "faiss": ("faiss-gpu", "faiss-gpu-cu12"),
    "psycopg2": ("psycopg2",),
}
"""Packages that bring a module besides the usual one, which `package_of` returns.

For psycopg2 the usual one is psycopg2-binary.
"""
BROUGHT_BY: Final = {
    "tensorflow": (
        "absl",
        "astunparse",
        "clang",
        "flatbuffers",
        "gast",
        "keras",
        "markdown",
        "markdown_it",
        "markupsafe",
        "mdurl",
        "ml_dtypes",
        "namex",
        "opt_einsum",
        "optree",
        "pasta",
        "pygments",
        "rich",
        "tensorboard",
        "tensorboard_data_server",
        "termcolor",
        "werkzeug",
        "wrapt",
    ),
    "torch": (
        "filelock",
        "functorch",
        "isympy",
        "jinja2",
        "markupsafe",
        "mpmath",
        "networkx",
        "sympy",
        "torchgen",
    ),
    "jax": (
        "jaxlib",
        "libtpu",
        "ml_dtypes",
        "opt_einsum",
    ),
}
"""Modules of what a framework of the runtime requires, and of the framework's own packages.

Source: the runtime images, which a test compares with them
(`tests/integration/runtimes/test_local_packages.py`).
"""
ALWAYS: Final = {
    "aiohappyeyeballs",
    "aiohttp",
    "aiosignal",
    "attr",
    "attrs",
    "certifi",
    "cffi",
    "charset_normalizer",
    "cloudpickle",
    "cryptography",
    "dateutil",
    "decorator",
    "frozenlist",
    "fsspec",
    "google_auth_oauthlib",
    "google_crc32c",
    "grpc",
    "grpc_status",
    "idna",
    "multidict",
    "narwhals",
    "oauthlib",
    "opentelemetry",
    "packaging",
    "pip",
    "propcache",
    "proto",
    "pyasn1",
    "pyasn1_modules",
    "pycparser",
    "requests_oauthlib",
    "setuptools",
    "threadpoolctl",
    "typing_extensions",
    "tzdata",
    "urllib3",
    "wheel",
    "yarl",
}
"""Modules of what the packages of AI Platform Training's runtimes require, and of the image's own
tools.

Source: the image `scikit-learn`, the smallest of the runtimes.
"""
_NAMESPACES: Final = {"google", "mpl_toolkits", "ruamel", "azure", "nvidia"}
"""Several packages add modules to them. They are not judged."""


def packages_with(module: str) -> frozenset[str]:
    """Return the normalized names of all packages that bring a top-level module."""
    usual_requirement = package_of(module)  # may limit the version: setuptools<81
    names = {normalize(package_name(usual_requirement)), normalize(module)}
    names |= set(_OTHER_BUILDS.get(module, ()))
    for builds in FRAMEWORKS:
        if normalize(module) in builds:
            names |= set(builds)
    return frozenset(names)


def is_in_runtime(module: str, runtime_packages: frozenset[str]) -> bool:
    """Return whether the runtime with these packages (normalized names) has a top-level module."""
    if module in ALWAYS or module in _NAMESPACES:
        return True
    if packages_with(module) & runtime_packages:
        return True
    return any(
        framework in runtime_packages and module in modules
        for framework, modules in BROUGHT_BY.items()
    )
