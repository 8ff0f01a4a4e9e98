"""Names under which packages are imported, where they differ from the name that pip installs.

Source: `top_level.txt` or the files of each package's wheel on PyPI. An import name that is not
here counts as a package of the same name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from trainmaster.agent.setup.framework_builds import FRAMEWORKS, normalize
from trainmaster.jobspec.catalog.service_packages import SERVICE_PACKAGES, package_name

_PACKAGES: Final = {
    "absl": "absl-py",
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python",
    "dateutil": "python-dateutil",
    "dotenv": "python-dotenv",
    "git": "gitpython",
    "hydra": "hydra-core",
    "jwt": "pyjwt",
    "lightning_fabric": "lightning",
    "faiss": "faiss-cpu",
    "mpl_toolkits": "matplotlib",
    "pl_bolts": "lightning-bolts",
    "psycopg2": "psycopg2-binary",
    "pkg_resources": "setuptools",
    "pytorch_lightning": "pytorch-lightning",
    "sentence_transformers": "sentence-transformers",
    "skimage": "scikit-image",
    "slugify": "python-slugify",
    "tensorflow_addons": "tensorflow-addons",
    "tensorflow_datasets": "tensorflow-datasets",
    "tensorflow_hub": "tensorflow-hub",
    "umap": "umap-learn",
    "zmq": "pyzmq",
}
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


def package_of(module: str) -> str:
    """Return the package to install for a top-level module."""
    for service_module, requirement in SERVICE_PACKAGES.items():
        if module == service_module:
            return package_name(requirement)
    return _PACKAGES.get(module, module)


def packages_with(module: str) -> frozenset[str]:
    """Return the normalized names of all packages that bring a top-level module."""
    names = {normalize(package_of(module)), normalize(module)}
    names |= set(_OTHER_BUILDS.get(module, ()))
    for builds in FRAMEWORKS:
        if normalize(module) in builds:
            names |= set(builds)
    return frozenset(names)


def is_module_of(module: str, requirements: Iterable[str]) -> bool:
    """Return whether one of the requirements (`torch==2.13.*`) names the module's package."""
    names = {normalize(package_name(requirement)) for requirement in requirements}
    return bool(packages_with(module) & names)


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
