"""Ports, environment and identity of the stack's processes."""

from __future__ import annotations

import os
import socket

import pytest

from trainmaster_emulators.process import processes


@pytest.fixture
def _same_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each stack tries the blocks of ports from the first one on.

    In random order, two stacks would hardly meet at one block.
    """
    monkeypatch.setattr("random.shuffle", lambda _: None)


@pytest.mark.usefixtures("_same_order")
def test_ports_of_two_stacks_are_disjoint() -> None:
    first, second = processes.Ports(), processes.Ports()
    taken = [{ports.take() for _ in range(13)} for ports in (first, second)]
    first.close()
    second.close()
    assert taken[0].isdisjoint(taken[1])


@pytest.mark.usefixtures("_same_order")
def test_blocked_addresses_of_two_stacks_are_disjoint() -> None:
    first, second = processes.Ports(), processes.Ports()
    taken = [ports.take_blocked_addresses(6) for ports in (first, second)]
    first.close()
    second.close()
    assert set(taken[0]).isdisjoint(taken[1])
    addresses = [processes.split_address(address) for address in taken[0] + taken[1]]
    assert all(
        host.startswith("127.") and port in processes.BROWSER_BLOCKED_PORTS
        for host, port in addresses
    )


def test_blocked_address_in_use_is_skipped() -> None:
    ports = processes.Ports()
    host, port = processes.split_address(*ports.take_blocked_addresses(1))
    following = processes.BROWSER_BLOCKED_PORTS[processes.BROWSER_BLOCKED_PORTS.index(port) + 1]
    with socket.create_server((host, following)):
        assert processes.split_address(*ports.take_blocked_addresses(1))[1] not in (port, following)
    ports.close()


def test_too_few_blocked_ports_is_an_error_with_the_address() -> None:
    ports = processes.Ports()
    with pytest.raises(
        RuntimeError, match=r"too few ports that browsers block are free on 127\.84\."
    ):
        ports.take_blocked_addresses(len(processes.BROWSER_BLOCKED_PORTS) + 1)
    ports.close()


def test_port_in_use_is_skipped() -> None:
    ports = processes.Ports()
    port = ports.take()
    with socket.create_server(("127.0.0.1", port + 1)):
        assert ports.take() > port + 1
    ports.close()


def test_block_of_ports_belongs_to_one_stack_until_its_close(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ports = processes.Ports()
    in_block = (ports.take() - processes.PORTS_FIRST) // processes.BLOCK_PORTS
    only_block = processes.PORTS_FIRST + in_block * processes.BLOCK_PORTS
    monkeypatch.setattr(processes, "PORTS_FIRST", only_block)
    monkeypatch.setattr(processes, "PORTS_END", only_block + processes.BLOCK_PORTS + 1)
    with pytest.raises(RuntimeError, match="in use by other stacks"):
        processes.Ports()
    ports.close()
    processes.Ports().close()


def test_service_environment_has_no_credentials_and_projects_of_the_shell() -> None:
    shell = {
        "PATH": "/bin",
        "GOOGLE_APPLICATION_CREDENTIALS": "/home/me/key.json",
        "CLOUDSDK_CORE_PROJECT": "production",
        "PUBSUB_EMULATOR_HOST": "127.0.0.1:1",
        "TRAINMASTER_PROJECT": "production",
        "https_proxy": "http://proxy.example:3128",
        "no_proxy": "intranet.example",
    }
    environment = processes.service_environment(
        "some-id", shell, ["127.84.1.2:6666", "127.0.0.1:80"]
    )
    assert environment["PATH"] == "/bin"
    assert environment["https_proxy"] == "http://proxy.example:3128"
    assert (
        environment["no_proxy"]
        == environment["NO_PROXY"]
        == "intranet.example,127.0.0.1,localhost,127.84.1.2"
    )
    assert environment[processes.STACK_ID] == "some-id"
    assert not {
        "GOOGLE_APPLICATION_CREDENTIALS",
        "CLOUDSDK_CORE_PROJECT",
        "PUBSUB_EMULATOR_HOST",
        "TRAINMASTER_PROJECT",
    } & set(environment)


def test_reused_pid_is_not_the_same_process() -> None:
    started_at = processes.started_at(os.getpid())
    assert started_at is not None
    assert processes.is_alive(os.getpid(), started_at)
    assert not processes.is_alive(os.getpid(), started_at - 60)
