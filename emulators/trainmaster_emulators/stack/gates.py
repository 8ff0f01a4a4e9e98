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
from trainmaster_emulators.process.state import Endpoints, StackConfig
from trainmaster_emulators.realism.http_access import Api
from trainmaster_emulators.realism.storage_access import WORKER
from trainmaster_emulators.services import grpc_gate, http_gate

CONSOLES: Final = ("console", "console_operator")
GRPC_VARIABLES: Final = ("FIRESTORE_EMULATOR_HOST", "PUBSUB_EMULATOR_HOST")
HTTP_VARIABLES: Final = (
    "STORAGE_EMULATOR_HOST",
    *(
        f"TRAINMASTER_{name}_ENDPOINT"
        for name in (
            "LOGGING",
            "MONITORING",
            "COMPUTE",
            "TPU",
            "IAM_ACCOUNTS",
            "SECRETS",
            "REGISTRY",
        )
    ),
)


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
        """Return the VMs' variables for programs that call Pub/Sub and Firestore by gRPC."""
        return dict.fromkeys(GRPC_VARIABLES[1:], self.calls[WORKER]) if self.calls else {}

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
        calls = [
            sys.executable,
            "-m",
            "trainmaster_emulators.services.grpc_gate",
            "--infra",
            str(config.infra_dir),
        ]
        calls += [
            "--firestore",
            endpoints.firestore,
            "--pubsub",
            endpoints.pubsub,
            *_accounts(self.calls),
        ]
        others = [
            sys.executable,
            "-m",
            "trainmaster_emulators.services.http_gate",
            "--infra",
            str(config.infra_dir),
        ]
        others += [
            "--project",
            config.project,
            "--bucket",
            config.bucket,
            "--stage-bucket",
            config.stage_bucket,
        ]
        others += _accounts(self.http)
        for api in Api:
            if address := getattr(endpoints, api):
                others += ["--upstream", f"{api}={address}"]
        return [
            # The last address accepts connections when all others do.
            Service(
                grpc_gate.NAME,
                calls,
                address=list(self.calls.values())[-1],
                health=None,
                restartable=True,
            ),
            Service(
                http_gate.NAME,
                others,
                address=list(self.http.values())[-1],
                health=None,
                restartable=True,
            ),
        ]


def reserve(config: StackConfig, functions: tuple[str, ...], ports: processes.Ports) -> Gates:
    """Reserve the addresses of the gates for these functions. An ordinary stack has no gates."""
    if config.control_plane or not config.realistic:
        return Gates()
    accounts = (*functions, *CONSOLES, WORKER)
    return Gates(*({name: ports.take_address() for name in accounts} for _ in range(2)))


def _accounts(addresses: Mapping[str, str]) -> list[str]:
    pairs = (f"{account}={address.rpartition(':')[2]}" for account, address in addresses.items())
    return [word for pair in pairs for word in ("--account", pair)]
