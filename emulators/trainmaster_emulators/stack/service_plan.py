"""Plan a stack: its services, their ports, and the addresses each service gets. Starts nothing."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from trainmaster_emulators.process import processes
from trainmaster_emulators.process.backends import Backend
from trainmaster_emulators.process.service import Service
from trainmaster_emulators.process.stack_config import StackConfig
from trainmaster_emulators.process.state import Endpoints
from trainmaster_emulators.rest import HEALTH
from trainmaster_emulators.services import firestore, functions_host, iam, pubsub, storage
from trainmaster_emulators.stack import client_configuration, gates, runtime_images
from trainmaster_emulators.stack.gates import Gates

API: Final = "api"
BILLING: Final = "billing"
COMPUTE: Final = "compute"
LOGGING: Final = "logging"
MONITORING: Final = "monitoring"
PROXY: Final = "proxy"
IMAGES_FILE: Final = "images.json"
SCHEDULER: Final = "scheduler"
SWEEP: Final = "sweep"
MAINTENANCE: Final = "maintenance"
UPLOAD_TOPIC: Final = pubsub.topic_of("upload")


@dataclass(frozen=True, slots=True)
class Plan:
    """The services of a stack. Starts nothing by itself."""

    endpoints: Endpoints
    services: list[Service]
    """In starting order: services that need the longest to become ready come first."""
    function_ports: dict[str, int]
    """Port of each function that Pub/Sub delivers to, by function name."""


def plan(
    state_dir: Path, config: StackConfig, backend: Backend, stack_id: str, ports: processes.Ports
) -> Plan:
    """Plan the services of a stack, and write the image table, which the Compute emulator reads.

    Raises StackError where a program or a function's file is missing.
    """
    firestore_addresses = (
        [] if config.control_plane else ports.take_blocked_addresses(firestore.ADDRESSES)
    )
    pubsub_address, storage_address, storage_tls_address = ports.take_blocked_addresses(3)
    has_api = not config.control_plane and (config.functions_dir / f"{API}.py").is_file()
    endpoints = Endpoints(
        firestore=next(iter(firestore_addresses), ""),
        pubsub=config.control_plane or pubsub_address,
        storage=storage_address,
        storage_tls=storage_tls_address,
        compute=ports.take_address() if config.compute else None,
        proxy=ports.take_address() if config.compute else None,
        logging=ports.take_address(),
        monitoring=ports.take_address(),
        iam=ports.take_address() if has_api else None,
        api=ports.take_address() if has_api else None,
        scheduler=None if config.control_plane else ports.take_address(),
        billing=None if config.control_plane else ports.take_address(),
    )
    functions = (*config.functions, API) if has_api else config.functions
    iam_gates = gates.reserve(config, functions, ports)
    vm_services = _vm_services(state_dir, config, endpoints, stack_id, iam_gates)
    if config.control_plane:
        objects = storage.service(
            backend, state_dir / storage.NAME, endpoints.storage, endpoints.storage_tls
        )
        return Plan(
            endpoints,
            [objects, *_observation_services(state_dir, endpoints), *vm_services],
            function_ports={},
        )
    function_ports = {name: ports.take() for name in config.functions}
    variables = client_configuration.application_environment(config, endpoints)
    services = [
        firestore.service(backend, firestore_addresses),
        pubsub.service(backend, endpoints.pubsub, state_dir / pubsub.NAME),
        storage.service(
            backend,
            state_dir / storage.NAME,
            endpoints.storage,
            endpoints.storage_tls,
            pubsub=endpoints.pubsub,
            project=config.project,
            topic=UPLOAD_TOPIC,
        ),
        *iam_gates.services(config, endpoints),
        *functions_host.services(
            config.functions_dir,
            function_ports,
            variables,
            iam_gates.own_variables(),
            push_time_scale=config.time_scale if config.realistic else None,
        ),
        *_api_services(state_dir, config, endpoints, variables, iam_gates),
        *_observation_services(state_dir, endpoints),
        *vm_services,
    ]
    if endpoints.scheduler:
        services.append(_scheduler_service(state_dir, config, endpoints, endpoints.scheduler))
    if endpoints.billing:
        services.append(_emulator(BILLING, endpoints.billing))
    return Plan(endpoints, services, function_ports)


def _api_services(
    state_dir: Path,
    config: StackConfig,
    endpoints: Endpoints,
    variables: Mapping[str, str],
    iam_gates: Gates,
) -> list[Service]:
    """Return the `api` function, which clients call directly, and the IAM emulator that it asks for
    permissions.
    """
    if endpoints.iam is None or endpoints.api is None:
        return []
    token_file = str(client_configuration.token_file(state_dir))
    options = ("--project", config.project, "--token-file", token_file)
    iam_service = _emulator(iam.NAME, endpoints.iam, *options, module="services.iam", health="/")
    ports = {API: int(_port(endpoints.api))}
    return [
        iam_service,
        *functions_host.services(config.functions_dir, ports, variables, iam_gates.own_variables()),
    ]


def _vm_services(
    state_dir: Path, config: StackConfig, endpoints: Endpoints, stack_id: str, iam_gates: Gates
) -> list[Service]:
    """Return the Compute emulator, and the proxy through which programs on its VMs
    reach `gs://`.
    """
    if endpoints.compute is None or endpoints.proxy is None:
        return []
    (state_dir / IMAGES_FILE).write_text(
        json.dumps(runtime_images.image_table(config.images_dir)), encoding="utf-8"
    )
    vm_endpoints = iam_gates.vm_endpoints(endpoints)
    variables = (
        client_configuration.vm_environment(state_dir, config, vm_endpoints)
        | iam_gates.vm_variables()
    )
    variables[processes.STACK_ID] = stack_id
    compute = ["--host", processes.LOOPBACK]
    compute += ["--state-dir", str(state_dir / COMPUTE)]
    compute += ["--project", config.project]
    compute += ["--project-number", iam.PROJECT_NUMBER]
    compute += ["--images", str(state_dir / IMAGES_FILE)]
    for name, value in variables.items():
        compute += ["--vm-env", f"{name}={value}"]
    if config.realistic:
        compute += ["--realistic", "--time-scale", str(config.time_scale)]
    if MAINTENANCE in config.functions:
        topic = f"projects/{config.project}/topics/{pubsub.SYSTEM_EVENTS}"
        compute += ["--system-events-topic", topic]
    proxy = ["--storage", f"http://{vm_endpoints.storage}"]
    proxy += ["--logging", vm_endpoints.logging]
    proxy += ["--state-dir", str(state_dir / client_configuration.PROXY_DIR)]
    emulator = _emulator(COMPUTE, endpoints.compute, *compute, restartable=False)
    return [
        replace(emulator, environment={"PUBSUB_EMULATOR_HOST": endpoints.pubsub}, stop_first=True),
        # A restarted proxy uses the same certificate authority, so VMs keep trusting it.
        _emulator(PROXY, endpoints.proxy, *proxy, module="services.googleapis_proxy", health=None),
    ]


def _observation_services(state_dir: Path, endpoints: Endpoints) -> list[Service]:
    """Return the emulators of Cloud Logging and Cloud Monitoring.

    Their data are in files, so they may be restarted.
    """
    addresses = {LOGGING: endpoints.logging, MONITORING: endpoints.monitoring}
    return [
        _emulator(name, address, "--state-dir", str(state_dir / name))
        for name, address in addresses.items()
    ]


def _scheduler_service(
    state_dir: Path, config: StackConfig, endpoints: Endpoints, address: str
) -> Service:
    """Return the Cloud Scheduler emulator, which also calls `sweep`.

    Its jobs are in a file, so it may be restarted.
    """
    options = ["--state-dir", str(state_dir / SCHEDULER)]
    options += ["--project", config.project]
    options += ["--pubsub", endpoints.pubsub]
    options += ["--token-file", str(client_configuration.token_file(state_dir))]
    if SWEEP in config.functions:
        options += ["--topic", pubsub.topic_of(SWEEP)]
        options += ["--every", f"{config.sweep_every_s:g}"]
    return _emulator(SCHEDULER, address, *options)


def _emulator(
    name: str,
    address: str,
    *options: str,
    module: str = "",
    health: str | None = HEALTH,
    restartable: bool = True,
) -> Service:
    """Return an emulator of this package.

    `module`: its module, if it does not have the service's name.
    """
    argv = [sys.executable, "-P", "-m", f"trainmaster_emulators.{module or name}"]
    argv += ["--port", _port(address)]
    argv += options
    return Service(name, argv, address=address, health=health, restartable=restartable)


def _port(address: str) -> str:
    return address.rpartition(":")[2]
