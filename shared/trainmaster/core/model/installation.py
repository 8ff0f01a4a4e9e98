"""The names of the resources of an installation: no two installations of a project share one.

One without a name owns `trainmaster-upload` and VMs `tm-…`; one with a name owns `tmNAME-upload`
and VMs `tmNAME-…`. A name has no hyphen, so that no such prefix is the beginning of another one.
Like the project, it is the same as long as a process runs: it is read here, and not passed through
all decisions (decision 179).
"""

from __future__ import annotations

import os
import re
from typing import Final

INSTALLATION_VARIABLE: Final = "TRAINMASTER_INSTALLATION"
LOG_ID: Final = "trainmaster"
"""Name of the log of all jobs in Cloud Logging, for `name_in_installation`."""


def checked(name: str) -> str:
    """Return the name of an installation; empty: it has none. Raises ValueError for a wrong one.

    Source of the lengths: a service account has at most 30 characters, and a database at least 4.
    As in variables.tf.
    """
    if not re.fullmatch(r"([a-z0-9]{2,11})?", name):
        raise ValueError(
            "installation must have 2 to 11 lower-case letters and digits, such as staging."
        )
    return name


def name_in_installation(name: str, chosen: str | None = None) -> str:
    """Return the name that a resource has in an installation: `trainmaster-upload`, or
    `tmstaging-upload` in the installation `staging`.

    `name`: its name in an installation without a name. `chosen`: the installation; None: this
    process's.
    """
    chosen = os.environ.get(INSTALLATION_VARIABLE, "") if chosen is None else chosen
    _, hyphen, rest = name.partition("-")
    return f"tm{chosen}{hyphen}{rest}" if chosen else name
