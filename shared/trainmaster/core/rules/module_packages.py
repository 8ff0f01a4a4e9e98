"""Packages by the names under which programs import them, where the names differ.

Source: `top_level.txt` or the files of each package's wheel on PyPI. A module that is not here
counts as a package of the same name.
"""

from __future__ import annotations

from typing import Final

_PACKAGES: Final = {
    "absl": "absl-py",
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python",
    "dateutil": "python-dateutil",
    "dotenv": "python-dotenv",
    "faiss": "faiss-cpu",
    "git": "gitpython",
    "google.cloud": "google-cloud-storage",
    "google.cloud.bigquery": "google-cloud-bigquery",
    "google.cloud.storage": "google-cloud-storage",
    "googleapiclient": "google-api-python-client",
    "hydra": "hydra-core",
    "hypertune": "cloudml-hypertune",
    "jwt": "pyjwt",
    "lightning_fabric": "lightning",
    "mpl_toolkits": "matplotlib",
    "PIL": "pillow",
    "pkg_resources": "setuptools<81",  # later ones warn of it, or no longer have it
    "pl_bolts": "lightning-bolts",
    "psycopg2": "psycopg2-binary",
    "pytorch_lightning": "pytorch-lightning",
    "sentence_transformers": "sentence-transformers",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "slugify": "python-slugify",
    "tensorflow_addons": "tensorflow-addons",
    "tensorflow_datasets": "tensorflow-datasets",
    "tensorflow_hub": "tensorflow-hub",
    "tensorflow_probability": "tensorflow-probability",
    "umap": "umap-learn",
    "yaml": "pyyaml",
    "zmq": "pyzmq",
}


def package_of(module: str) -> str:
    """Return the requirement that brings a module: for `PIL.Image` it is `pillow`."""
    parts = module.split(".")
    names = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((_PACKAGES[name] for name in names if name in _PACKAGES), parts[0])
