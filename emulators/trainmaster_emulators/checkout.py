"""Find the files of the checkout that a stack reads.

These names are not in the `__init__` of this package: the emulated gcsfuse imports the package
without the interpreter's site packages, where `trainmaster` may be.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import trainmaster

_PACKAGE: Final = Path(trainmaster.__file__).resolve().parent
_INSTALLED: Final = _PACKAGE / "_checkout"
IS_INSTALLED: Final = _INSTALLED.is_dir()
ROOT: Final = _INSTALLED if IS_INSTALLED else _PACKAGE.parents[1]
"""The checkout; beside an installed package, a folder with the files of the checkout that a stack
reads (`pyproject.toml`).
"""
