"""The environment of a real gcloud that calls emulators."""

from __future__ import annotations

import os
from pathlib import Path

ANY_TOKEN = "not-a-secret"


def gcloud_environment(folder: Path, project: str, endpoints: dict[str, str], token: str = ANY_TOKEN) -> dict[str, str]:
    """Return an environment with a configuration in `folder`, and with nothing of the user's own.

    `endpoints`: API, as gcloud's properties name it, and its address.
    """
    token_file = folder / "token"
    token_file.write_text(token)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("CLOUDSDK_", "GOOGLE_"))}
    return {
        **kept,
        "CLOUDSDK_CONFIG": str(folder / "config"),
        "CLOUDSDK_AUTH_ACCESS_TOKEN_FILE": str(token_file),
        **{f"CLOUDSDK_API_ENDPOINT_OVERRIDES_{api.upper()}": f"{address}/" for api, address in endpoints.items()},
        "CLOUDSDK_CORE_PROJECT": project,
        "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
        "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "1",
        "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "1",
    }
