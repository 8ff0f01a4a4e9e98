"""Which services of a stack are different with `--realistic`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.stack import reserved_ports
from trainmaster_emulators.process.backends import require_backend
from trainmaster_emulators.process.stack_config import FUNCTIONS, StackConfig
from trainmaster_emulators.services import grpc_gate, http_gate
from trainmaster_emulators.stack import service_plan


def planned(folder: Path, config: StackConfig) -> service_plan.Plan:
    folder.mkdir(exist_ok=True)
    for name in ("pubsub", "clients"):
        (folder / name).mkdir(exist_ok=True)
    with reserved_ports() as ports:
        return service_plan.plan(folder, config, require_backend(), "stack", ports)


@pytest.mark.emulator
def test_accounts_have_addresses_of_cloud_storage_only_on_a_realistic_stack(tmp_path: Path) -> None:
    plan = planned(tmp_path, StackConfig(realistic=True, time_scale=0.1))
    services = {service.name: service for service in plan.services}
    addresses = {
        name: services[name].environment.get("STORAGE_EMULATOR_HOST")
        for name in (*FUNCTIONS, "api")
    }
    assert len(set(addresses.values())) == len(addresses)
    assert f"http://{plan.endpoints.storage}" not in addresses.values()
    gate = services[http_gate.NAME].argv
    ports = {f"{name}={str(address).rpartition(':')[2]}" for name, address in addresses.items()}
    assert ports <= set(gate)
    vm_storage = next(
        word for word in services["compute"].argv if word.startswith("STORAGE_EMULATOR_HOST=")
    )
    assert f"worker={vm_storage.rpartition(':')[2]}" in gate
    assert "--push-time-scale" in services["submit"].argv
    assert "--push-time-scale" not in services["api"].argv, "clients call it directly"


@pytest.mark.emulator
def test_each_function_has_an_address_of_pubsub_and_firestore_only_on_a_realistic_stack(
    tmp_path: Path,
) -> None:
    plan = planned(tmp_path, StackConfig(realistic=True, time_scale=0.1))
    services = {service.name: service for service in plan.services}
    functions = (*FUNCTIONS, "api")
    addresses = {name: services[name].environment["FIRESTORE_EMULATOR_HOST"] for name in functions}
    assert addresses == {
        name: services[name].environment["PUBSUB_EMULATOR_HOST"] for name in functions
    }
    assert len(set(addresses.values())) == len(functions)
    gate = services[grpc_gate.NAME].argv
    assert {f"{name}={address.rpartition(':')[2]}" for name, address in addresses.items()} <= set(
        gate
    )
    assert gate[gate.index("--firestore") + 1] == plan.endpoints.firestore
    assert gate[gate.index("--pubsub") + 1] == plan.endpoints.pubsub


@pytest.mark.emulator
def test_functions_and_vms_have_addresses_of_the_json_apis_only_on_a_realistic_stack(
    tmp_path: Path,
) -> None:
    plan = planned(tmp_path, StackConfig(realistic=True, time_scale=0.1))
    services = {service.name: service for service in plan.services}
    gate = services[http_gate.NAME].argv
    assert f"logging={plan.endpoints.logging}" in gate
    ports = dict(word.split("=") for word in gate if word.partition("=")[2].isdigit())
    assert set(ports) == {*FUNCTIONS, "api", "worker", "console", "console_operator"}
    for name in ("LOGGING", "MONITORING", "TPU", "SECRETS", "REGISTRY", "IAM_ACCOUNTS"):
        assert (
            services["submit"].environment[f"TRAINMASTER_{name}_ENDPOINT"]
            == f"http://127.0.0.1:{ports['submit']}"
        )
    vm = dict(word.split("=", 1) for word in services["compute"].argv if "=" in word)
    for name in ("LOGGING", "MONITORING", "TPU", "SECRETS", "PUBSUB"):
        assert vm[f"TRAINMASTER_{name}_ENDPOINT"] == f"http://127.0.0.1:{ports['worker']}"
    assert vm["PUBSUB_EMULATOR_HOST"] in {
        f"127.0.0.1:{port.partition('=')[2]}" for port in services[grpc_gate.NAME].argv
    }


@pytest.mark.emulator
def test_provision_has_an_address_of_compute_engine_only_on_a_realistic_stack(
    tmp_path: Path,
) -> None:
    plan = planned(tmp_path, StackConfig(realistic=True, time_scale=0.1))
    services = {service.name: service for service in plan.services}
    address = services["provision"].environment["TRAINMASTER_COMPUTE_ENDPOINT"]
    assert address != services["submit"].environment["TRAINMASTER_COMPUTE_ENDPOINT"]
    assert f"provision={address.rpartition(':')[2]}" in services[http_gate.NAME].argv


@pytest.mark.emulator
def test_ordinary_stack_has_neither_gate_nor_push_delays(tmp_path: Path) -> None:
    plan = planned(tmp_path, StackConfig())
    assert not {grpc_gate.NAME, http_gate.NAME} & {service.name for service in plan.services}
    assert not any("--push-time-scale" in service.argv for service in plan.services)
