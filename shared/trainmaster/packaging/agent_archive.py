"""The agent as one zip application, and its address in Cloud Storage.

`make stage` builds it, and infra/ stores it as `agent/SHA256.zip`. A VM downloads it, and runs it only if its content
has that hash. The zip keeps the package name `trainmaster.agent`, so that imports are the same there and here.
docs/decisions/0038-agent-by-hash.md.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from functools import cache
from pathlib import Path
from typing import Final

AGENT: Final = Path(__file__).parents[1] / "agent"
"""The agent's sources and its two scripts."""
_MAIN: Final = "import os, sys\n\nfrom trainmaster.agent.main import main\n\nsys.exit(main(sys.argv, os.environ))\n"
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip file can store; it is the time of every entry."""


@cache
def agent_archive() -> bytes:
    """Return the zip application. The same sources give the same bytes with the same zlib."""
    sources = {"__main__.py": _MAIN, "trainmaster/__init__.py": ""}
    sources.update(
        (f"trainmaster/agent/{path.relative_to(AGENT)}", path.read_text(encoding="utf-8"))
        for path in sorted(AGENT.rglob("*.py"))
    )
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, source in sources.items():
            entry = zipfile.ZipInfo(name, _EPOCH)
            archive.writestr(entry, source, zipfile.ZIP_DEFLATED, compresslevel=9)
    return buffer.getvalue()


def agent_uri(bucket: str, archive: bytes) -> str:
    """Return the `gs://` URI under which the bucket holds this archive."""
    return f"gs://{bucket}/{agent_object(archive)}"


def agent_object(archive: bytes) -> str:
    """Return the name of the object. It contains the hash of the content, so no object is ever replaced."""
    return f"agent/{hashlib.sha256(archive).hexdigest()}.zip"
