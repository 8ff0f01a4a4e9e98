"""Addresses at which replicas reach each other: Compute Engine's DNS names, or ports of the local
emulator.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Final

from trainmaster.errors import TemporaryError

PORT: Final = 2222
"""Port of every replica. Source: TF_CONFIG of AI Platform Training."""
CHANNEL_PORT: Final = 2221
"""UDP port of every agent of a synchronous job (docs/decisions/0135-peer-channel.md)."""
TIMEOUT_S: Final = 10.0


class DnsAddresses:
    """Zonal DNS names, which every VPC network resolves without configuration: no call is made.

    Adapter of `trainmaster.ports.AddressBook`.

    Source: https://cloud.google.com/compute/docs/internal-dns.
    """

    def __init__(self, project: str) -> None:
        # In DNS names, the id of a project in a domain (`example.com:project`) is
        # `project.example.com`.
        domain, _, name = project.rpartition(":")
        self._domain = f"{name}.{domain}" if domain else name

    def address(self, name: str, zone: str) -> str:
        """Return the `host:port` at which the other replicas reach the VM of this name."""
        return f"{name}.{zone}.c.{self._domain}.internal:{PORT}"

    def channel_address(self, name: str, zone: str) -> str:
        """Return the `host:port`, of UDP, at which the agents of the other replicas reach the agent
        of this VM.
        """
        return f"{name}.{zone}.c.{self._domain}.internal:{CHANNEL_PORT}"


class EmulatorAddresses:
    """The ports that the emulator assigns to a name, in whatever zone, and keeps.

    Adapter of `trainmaster.ports.AddressBook`. Methods raise TemporaryError if the emulator does
    not answer.
    """

    def __init__(self, endpoint: str) -> None:
        self._url = f"{endpoint.rstrip('/')}/emulator/v1/address"
        self._addresses: dict[str, Mapping[str, str]] = {}

    def address(self, name: str, zone: str) -> str:  # noqa: ARG002 - the port's signature
        """Return the `host:port` at which the other replicas reach the VM of this name."""
        return self._of(name)["address"]

    def channel_address(self, name: str, zone: str) -> str:  # noqa: ARG002 - the port's signature
        """Return the `host:port`, of UDP, at which the agents of the other replicas reach the agent
        of this VM.
        """
        return self._of(name)["channel_address"]

    def _of(self, name: str) -> Mapping[str, str]:
        if name not in self._addresses:
            self._addresses[name] = self._request(name)
        return self._addresses[name]

    def _request(self, name: str) -> Mapping[str, str]:
        url = f"{self._url}?{urllib.parse.urlencode({'name': name})}"
        try:
            # The suppressed rule is about schemes like file:, but this is the emulator's address.
            with urllib.request.urlopen(url, timeout=TIMEOUT_S) as response:  # noqa: S310
                answer = json.load(response)
            return {kind: str(answer[kind]) for kind in ("address", "channel_address")}
        except (OSError, ValueError, KeyError, urllib.error.URLError) as error:
            raise TemporaryError(
                f"the Compute emulator returned no address for {name}: {error}"
            ) from error
