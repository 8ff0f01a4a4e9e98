"""Where replicas find each other: Compute Engine's own DNS, or, on one machine, ports the emulator gives out."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Final

from shared.errors import TemporaryError

PORT: Final = 2222
"""Source: the TF_CONFIG of AI Platform Training, whose replicas all listened on it."""
TIMEOUT_S: Final = 10.0


class DnsAddresses:
    """See `shared.ports.AddressBook`. Zonal DNS names, which every VPC network resolves without further set-up.
    Source: https://cloud.google.com/compute/docs/internal-dns."""

    def __init__(self, project: str) -> None:
        # The id of a project in a domain (`example.com:project`) is turned round in DNS names.
        domain, _, name = project.rpartition(":")
        self._domain = f"{name}.{domain}" if domain else name

    def address(self, name: str, zone: str) -> str:
        return f"{name}.{zone}.c.{self._domain}.internal:{PORT}"


class EmulatorAddresses:
    """See `shared.ports.AddressBook`. The emulator keeps a name's port for as long as it runs, whatever the zone."""

    def __init__(self, endpoint: str) -> None:
        self._url = f"{endpoint.rstrip('/')}/emulator/v1/address"
        self._known: dict[str, str] = {}

    def address(self, name: str, zone: str) -> str:  # noqa: ARG002 - the port's signature
        if name not in self._known:
            self._known[name] = self._ask(name)
        return self._known[name]

    def _ask(self, name: str) -> str:
        url = f"{self._url}?{urllib.parse.urlencode({'name': name})}"
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT_S) as response:  # noqa: S310 - the emulator's address
                return str(json.load(response)["address"])
        except (OSError, ValueError, urllib.error.URLError) as error:
            raise TemporaryError(f"the Compute emulator gives no address for {name}: {error}") from error
