"""The metadata entries that start and stop the agent on a VM: two scripts, and the agent as one zip application.

The zip keeps the package name `shared.agent`, so that imports are the same there and here. The same sources always
give the same bytes. docs/interfaces.md section 3; docs/decisions/0007-the-agent-is-a-zip-application.md.
"""

from __future__ import annotations

import base64
import io
import zipfile
from functools import cache
from pathlib import Path
from typing import Final

_AGENT: Final = Path(__file__).parents[1] / "agent"
_MAIN: Final = "import os, sys\n\nfrom shared.agent.main import main\n\nsys.exit(main(sys.argv, os.environ))\n"
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip file can store; it is the time of every entry."""


@cache
def agent_files() -> dict[str, str]:
    """Return metadata values by key; they are the same for all VMs."""
    archive = base64.encodebytes(_zip_application()).decode()
    return {
        "startup-script": (_AGENT / "startup.sh").read_text(),
        "shutdown-script": (_AGENT / "shutdown.sh").read_text(),
        "trainmaster-agent": archive,
    }


def _zip_application() -> bytes:
    sources = {"__main__.py": _MAIN, "shared/__init__.py": ""}
    sources.update(
        (f"shared/agent/{path.relative_to(_AGENT)}", path.read_text()) for path in sorted(_AGENT.rglob("*.py"))
    )
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, source in sources.items():
            entry = zipfile.ZipInfo(name, _EPOCH)
            archive.writestr(entry, source, zipfile.ZIP_DEFLATED, compresslevel=9)
    return buffer.getvalue()
