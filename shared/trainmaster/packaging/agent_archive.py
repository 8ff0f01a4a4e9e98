"""The agent as one zip application, and its address in Cloud Storage.

`make stage` builds it, and infra/ stores it as `agent/SHA256.zip`. A VM downloads it, and runs it only if its content
has that hash. The zip keeps the package name `trainmaster.agent`, so that imports are the same there and here.
docs/decisions/0038-agent-by-hash.md.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Final

from trainmaster.packaging.archives import zip_archive

AGENT: Final = Path(__file__).parents[1] / "agent"
"""The agent's sources and its two scripts."""
_MAIN: Final = "import os, sys\n\nfrom trainmaster.agent.main import main\n\nsys.exit(main(sys.argv, os.environ))\n"


@cache
def agent_archive() -> bytes:
    """Return the zip application. The same sources give the same bytes with the same zlib."""
    files = {"__main__.py": _MAIN.encode(), "trainmaster/__init__.py": b""}
    files |= {f"trainmaster/agent/{path.relative_to(AGENT)}": path.read_bytes() for path in AGENT.rglob("*.py")}
    return zip_archive(files)


def agent_object(archive: bytes) -> str:
    """Return the name of the object. It contains the hash of the content, so no object is ever replaced."""
    return f"agent/{hashlib.sha256(archive).hexdigest()}.zip"
