"""Who uses the command line, and gcloud's configuration, without a call to Google."""

from __future__ import annotations

import configparser
import getpass
import os
from pathlib import Path


def user_name() -> str:
    """Return gcloud's account, or else the name on this machine. Nothing has verified it."""
    return gcloud_property("account") or getpass.getuser()


def gcloud_property(name: str) -> str:
    """Return a property of gcloud's section `core`; empty: it is not set.

    Source: `gcloud topic configurations`: the environment comes before the active configuration.
    """
    if value := os.environ.get(f"CLOUDSDK_CORE_{name.upper()}"):
        return value
    folder = Path(os.environ.get("CLOUDSDK_CONFIG") or Path.home() / ".config" / "gcloud")
    parser = configparser.ConfigParser(interpolation=None)
    try:
        active = os.environ.get("CLOUDSDK_ACTIVE_CONFIG_NAME") or (folder / "active_config").read_text().strip()
        parser.read(folder / "configurations" / f"config_{active}")
    except (OSError, ValueError, configparser.Error):
        return ""
    return parser.get("core", name, fallback="")
