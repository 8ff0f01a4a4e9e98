"""The requirements of the job's packages, read from the metadata that pip wrote when it installed
them.
"""

from __future__ import annotations

import json
import os
import re
import site
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

_EXTRA = re.compile(r"(?:^|\band)\s*\(?\s*extra\s*==\s*(?:'[^']*'|\"[^\"]*\")\s*\)?\s*$")
"""End of the marker of a requirement that only an extra has: `… and extra == 'gpu'`."""


def require_nothing(packages: Iterable[Path]) -> bool:
    """Return whether none of these packages requires another package; False if that is unknown.

    pip 20.1 and later record which file a package was installed from (PEP 610). With an older pip
    it is unknown.
    """
    requirements = _requirements_by_file()
    return all(requirements.get(os.path.realpath(package)) == [] for package in packages)


def _requirements_by_file() -> dict[str, list[str]]:
    """Return the requirements of each package in the user site that was installed from a file."""
    from importlib import metadata

    requirements: dict[str, list[str]] = {}
    for distribution in metadata.distributions(path=[site.getusersitepackages()]):
        url = _source(distribution.read_text("direct_url.json") or "null")
        if url.scheme == "file":
            required = [text for text in distribution.requires or () if not _needs_an_extra(text)]
            requirements[os.path.realpath(unquote(url.path))] = required
    return requirements


def _source(record: str) -> SplitResult:
    """Return the URL that a package was installed from; an empty one if the record is not one of
    pip's.
    """
    try:
        return urlsplit(str(json.loads(record)["url"]))
    except (ValueError, TypeError, KeyError):
        return urlsplit("")


def _needs_an_extra(requirement: str) -> bool:
    """Return whether the package has this requirement only with one of its extras.

    The job's packages are installed without extras.
    """
    marker = requirement.partition(";")[2]
    return " or " not in marker and bool(_EXTRA.search(marker))
