"""The IAM of a realistic stack: each service account has its own addresses, which refuse what infra/ does not grant.

`emulators.services.storage_gate` and `emulators.services.grpc_gate` are services of their own. The Compute emulator has
a port for the only account with grants on it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from emulators.realism.compute_access import PROVISION
from emulators.realism.storage_access import ACCOUNTS, WORKER
from emulators.services import grpc_gate, storage_gate
from emulators.stack import processes
from emulators.stack.service import Service
from emulators.stack.state import Endpoints, StackConfig

VARIABLES: Final = ("FIRESTORE_EMULATOR_HOST", "PUBSUB_EMULATOR_HOST")


@dataclass(frozen=True, slots=True)
class Gates:
    """`host:port` for each service account. Empty on an ordinary stack."""

    storage: Mapping[str, str] = field(default_factory=dict)
    """Addresses of Cloud Storage."""
    calls: Mapping[str, str] = field(default_factory=dict)
    """Addresses of Pub/Sub and Firestore, for functions only. One address serves both."""
    compute: str = ""
    """Address of Compute Engine for `provision`."""

    @property
    def vm_storage(self) -> str | None:
        """Return the VMs' address of Cloud Storage; None: the emulator's own."""
        return self.storage.get(WORKER)

    def own_variables(self) -> dict[str, dict[str, str]]:
        """Return the variables of each account that replace those of the stack."""
        own = {account: dict.fromkeys(VARIABLES, address) for account, address in self.calls.items()}
        for account, address in self.storage.items():
            own.setdefault(account, {})["STORAGE_EMULATOR_HOST"] = f"http://{address}"
        if self.compute:
            own[PROVISION]["TRAINMASTER_COMPUTE_ENDPOINT"] = f"http://{self.compute}"
        return own

    def compute_options(self, config: StackConfig) -> list[str]:
        """Return the options of the Compute emulator."""
        port = self.compute.rpartition(":")[2]
        return ["--provision-port", port, "--infra", str(config.infra_dir)] if port else []

    def services(self, config: StackConfig, endpoints: Endpoints) -> list[Service]:
        """Return the processes, one for Cloud Storage and one for Pub/Sub and Firestore."""
        if not self.storage:
            return []
        objects = [sys.executable, "-m", "emulators.services.storage_gate", "--storage", endpoints.storage]
        objects += ["--bucket", config.bucket, "--stage-bucket", config.stage_bucket, *_accounts(self.storage)]
        calls = [sys.executable, "-m", "emulators.services.grpc_gate", "--infra", str(config.infra_dir)]
        calls += ["--firestore", endpoints.firestore, "--pubsub", endpoints.pubsub, *_accounts(self.calls)]
        last = list(self.calls.values())[-1]  # it listens when all others do
        return [
            Service(
                storage_gate.NAME,
                objects,
                address=self.storage[WORKER],
                health=storage_gate.HEALTH,
                restartable=True,
            ),
            Service(grpc_gate.NAME, calls, address=last, health=None, restartable=True),
        ]


def take(config: StackConfig, functions: tuple[str, ...], ports: processes.Ports) -> Gates:
    """Reserve the addresses of a stack with these functions; none unless it is realistic."""
    if config.control_plane or not config.realistic:
        return Gates()
    return Gates(
        {account: ports.take_address() for account in ACCOUNTS},
        {name: ports.take_address() for name in functions},
        ports.take_address() if config.compute and PROVISION in functions else "",
    )


def _accounts(addresses: Mapping[str, str]) -> list[str]:
    pairs = (f"{account}={address.rpartition(':')[2]}" for account, address in addresses.items())
    return [word for pair in pairs for word in ("--account", pair)]
