"""The metadata entries that start and stop the agent on a VM. docs/interfaces.md, section 3."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

_AGENT: Final = Path(__file__).parents[1] / "agent"


@cache
def agent_files(uri: str) -> dict[str, str]:
    """Return metadata values by key; they are the same for all VMs.

    `uri` is the agent's address in Cloud Storage, `gs://BUCKET/agent/SHA256.zip`. Raises ValueError if there is none.
    """
    if not uri:
        raise ValueError("TRAINMASTER_AGENT is not set: set it to the URI of the agent in Cloud Storage")
    return {
        "startup-script": (_AGENT / "startup.sh").read_text(encoding="utf-8"),
        "shutdown-script": (_AGENT / "shutdown.sh").read_text(encoding="utf-8"),
        "trainmaster-agent": uri,
    }
