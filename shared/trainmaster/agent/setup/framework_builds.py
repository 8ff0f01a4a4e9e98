"""The runtime's builds of frameworks, which drive the VM's accelerator, and which no package may
replace.

A framework has several distributions that contain the same modules: ``tensorflow`` and
``tensorflow-tpu``. pip does not know that, and would install one over the other. Each other name
therefore gets a record of an installed distribution, without files, of the same version. A
constraint then keeps pip from installing another version or build of any of them; it fails with the
requirement and the constraint.
"""

from __future__ import annotations

import re
import site
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

FRAMEWORKS = (
    (
        "tensorflow",
        "tensorflow-tpu",
        "tensorflow-cpu",
        "tensorflow-gpu",
        "tensorflow-intel",
        "tf-nightly",
    ),
    ("xgboost", "xgboost-cpu"),
    ("torch",),
    ("torchvision",),
    ("torchaudio",),
    ("torch-xla",),
    ("jax",),
    ("jaxlib",),
    ("libtpu",),
)
"""Names of each framework's distributions, as PEP 503 normalizes them."""


def normalize(name: str) -> str:
    """Return the normalized name of a distribution. Source: PEP 503."""
    return re.sub(r"[-_.]+", "-", name).lower()


def is_framework(requirement: str) -> bool:
    """Return whether a requirement, such as `torch==2.4.*`, names one of `FRAMEWORKS`."""
    name = re.split(r"[^A-Za-z0-9._-]", requirement.strip(), maxsplit=1)[0]
    return any(normalize(name) in names for names in FRAMEWORKS)


def versions_to_keep(installed: Mapping[str, str]) -> dict[str, str]:
    """Return the version that each name of an installed framework keeps, by normalized name.

    `installed`: versions by normalized name. Another name of a framework has the version of the
    installed one. A build for CPUs alone may be replaced by one for accelerators.
    """
    kept: dict[str, str] = {}
    for names in FRAMEWORKS:
        present = [name for name in names if name in installed and not name.endswith("-cpu")]
        if not present:
            continue
        version = installed[present[0]]
        for name in names:
            kept[name] = installed.get(name, version)
    return kept


def keep_builds(folder: Path) -> Sequence[str]:
    """Record the other names of the installed frameworks, and return the options with which pip
    keeps all of them.

    `folder`: where the file of constraints is written. May be repeated.
    """
    from importlib import metadata

    user_site = site.getusersitepackages()
    installed: dict[str, str] = {}
    # Python has added the user site to its path only if that existed when Python started.
    for distribution in metadata.distributions(path=[user_site, *sys.path]):
        name = distribution.metadata["Name"]
        if name:  # the first of two distributions with one name is the one that is imported
            installed.setdefault(normalize(name), distribution.version)
    kept = versions_to_keep(installed)
    for name in kept.keys() - installed.keys():
        record = Path(user_site) / f"{name.replace('-', '_')}-{kept[name]}.dist-info"
        record.mkdir(parents=True, exist_ok=True)
        text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {kept[name]}\n"
        (record / "METADATA").write_text(text, encoding="utf-8")
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "frameworks.txt"
    constraints = [f"{name}=={version}\n" for name, version in sorted(kept.items())]
    file.write_text("".join(constraints), encoding="utf-8")
    return ["--constraint", str(file)] if kept else []
