"""The IAM of a realistic stack: each service account has its own addresses, which refuse what
infra/ does not permit.

`services` has a gate for the gRPC APIs and one for the JSON APIs. Each is a service of its own. The
consoles have addresses for tests, although a stack does not run them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from trainmaster_emulators.process import processes
from trainmaster_emulators.process.service import Service
from trainmaster_emulators.process.stack_config import StackConfig
from trainmaster_emulators.process.state import Endpoints
from trainmaster_emulators.realism.http_access import Api
from trainmaster_emulators.realism.storage_access import WORKER
from trainmaster_emulators.services import grpc_gate, http_gate

CONSOLES: Final = ("console", "console_operator")
"""Accounts of the hosted consoles: one that only reads, and one that may act."""
GRPC_VARIABLES: Final = ("FIRESTORE_EMULATOR_HOST", "PUBSUB_EMULATOR_HOST")
HTTP_VARIABLES: Final = (
    "STORAGE_EMULATOR_HOST",
    "TRAINMASTER_LOGGING_ENDPOINT",
    "TRAINMASTER_MONITORING_ENDPOINT",
    "TRAINMASTER_COMPUTE_ENDPOINT",
    "TRAINMASTER_TPU_ENDPOINT",
    "TRAINMASTER_IAM_ACCOUNTS_ENDPOINT",
    "TRAINMASTER_SECRETS_ENDPOINT",
    "TRAINMASTER_REGISTRY_ENDPOINT",
)
"""Environment variables with the addresses of the JSON APIs; those above are for gRPC."""


@dataclass(frozen=True, slots=True)
class Gates:
    """`host:port` for each service account. Empty on an ordinary stack."""

    calls: Mapping[str, str] = field(default_factory=dict)
    """Addresses of Pub/Sub and Firestore by gRPC. One address serves both."""
    http: Mapping[str, str] = field(default_factory=dict)
    """Addresses of the JSON APIs, and of Pub/Sub for the agents. One address serves all."""

    def vm_endpoints(self, endpoints: Endpoints) -> Endpoints:
        """Return the VMs' addresses of the services."""
        if not self.http:
            return endpoints
        return endpoints.model_copy(
            update={str(api): self.http[WORKER] for api in Api if getattr(endpoints, api)}
        )

    def vm_variables(self) -> dict[str, str]:
        """Return the VMs' variables for programs that call Pub/Sub by gRPC."""
        return {"PUBSUB_EMULATOR_HOST": self.calls[WORKER]} if self.calls else {}

    def own_variables(self) -> dict[str, dict[str, str]]:
        """Return the variables of each account that replace those of the stack."""
        own = {
            account: dict.fromkeys(GRPC_VARIABLES, address)
            for account, address in self.calls.items()
        }
        for account, address in self.http.items():
            own[account] |= dict.fromkeys(HTTP_VARIABLES, f"http://{address}")
        return own

    def services(self, config: StackConfig, endpoints: Endpoints) -> list[Service]:
        """Return the processes, one for each kind of gate."""
        if not self.http:
            return []
        return [
            _gate(grpc_gate.NAME, self._grpc_command(config, endpoints), self.calls),
            _gate(http_gate.NAME, self._http_command(config, endpoints), self.http),
        ]

    def _grpc_command(self, config: StackConfig, endpoints: Endpoints) -> list[str]:
        """Return the command line of the gate for gRPC."""
        command = [sys.executable, "-P", "-m", "trainmaster_emulators.services.grpc_gate"]
        command += ["--infra", str(config.infra_dir)]
        command += ["--firestore", endpoints.firestore]
        command += ["--pubsub", endpoints.pubsub]
        return command + _account_options(self.calls)

    def _http_command(self, config: StackConfig, endpoints: Endpoints) -> list[str]:
        """Return the command line of the gate for the JSON APIs."""
        command = [sys.executable, "-P", "-m", "trainmaster_emulators.services.http_gate"]
        command += ["--infra", str(config.infra_dir)]
        command += ["--project", config.project]
        command += ["--bucket", config.bucket]
        command += ["--stage-bucket", config.stage_bucket]
        for api in Api:
            address = getattr(endpoints, api)
            if address:
                command += ["--upstream", f"{api}={address}"]
        return command + _account_options(self.http)


def reserve(config: StackConfig, functions: tuple[str, ...], ports: processes.Ports) -> Gates:
    """Reserve the addresses of the gates for these functions. An ordinary stack has no gates."""
    if config.control_plane or not config.realistic:
        return Gates()
    accounts = (*functions, *CONSOLES, WORKER)
    return Gates(
        calls={account: ports.take_address() for account in accounts},
        http={account: ports.take_address() for account in accounts},
    )


def _gate(name: str, command: list[str], addresses: Mapping[str, str]) -> Service:
    """Return the process of a gate, which listens at all of these addresses."""
    # The last address accepts connections when all others do.
    last_address = list(addresses.values())[-1]
    return Service(name, command, address=last_address, health=None, restartable=True)


def _account_options(addresses: Mapping[str, str]) -> list[str]:
    """Return the options that name the port of each account."""
    options = []
    for account, address in addresses.items():
        _, port = processes.split_address(address)
        options += ["--account", f"{account}={port}"]
    return options
