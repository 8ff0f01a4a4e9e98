"""The rules for labels of jobs, which are also labels of their VMs.

Source: Compute Engine "Labels overview".
"""

from __future__ import annotations

import re
from typing import Final

LABELS_MAX: Final = 64
"""Labels of one resource."""
LABEL_CHARS_MAX: Final = 63
"""Characters of a key, and of a value."""
LABEL_KEY: Final = re.compile(rf"[a-z][a-z0-9_-]{{0,{LABEL_CHARS_MAX - 1}}}")
LABEL_VALUE: Final = re.compile(rf"[a-z0-9_-]{{0,{LABEL_CHARS_MAX}}}")
OWN_LABEL_PREFIX: Final = "trainmaster-"
"""Labels that Trainmaster sets itself: they identify the job of a VM, so no job may set them."""


def is_legal_job_label(key: str, value: str) -> bool:
    is_own = key.startswith(OWN_LABEL_PREFIX)
    return (
        not is_own
        and LABEL_KEY.fullmatch(key) is not None
        and LABEL_VALUE.fullmatch(value) is not None
    )
