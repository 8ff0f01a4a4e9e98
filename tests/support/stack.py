"""Fixtures that run the local stack, or one emulator without a stack, for a test session.

    stack                the whole stack with the project's own functions (`LocalStack`)
    firestore_emulator   `host:port` of a Firestore emulator
    pubsub_emulator      `host:port` of a Pub/Sub emulator
    storage_emulator     `host:port` of a Cloud Storage emulator (plain HTTP)

Each starts with the first test that uses it and ends with the session. It fails where the emulators
are not installed. The fixtures do not change the environment of the test process: a test that needs
the variables uses monkeypatch.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

import pytest

from tests.support.refusals import read_refusals
from trainmaster_emulators.process import processes, service
from trainmaster_emulators.process import state as states
from trainmaster_emulators.process.backends import require_backend
from trainmaster_emulators.process.loopback import CallError
from trainmaster_emulators.process.stack_config import FUNCTIONS, StackConfig
from trainmaster_emulators.process.state import StackError, StackState
from trainmaster_emulators.services import firestore, grpc_gate, http_gate, pubsub, storage
from trainmaster_emulators.stack import client_configuration
from trainmaster_emulators.stack import stack as stacks

# A function that appends each envelope it receives to NAME.jsonl in its folder.
RECORDING_FUNCTION = """
import pathlib
import functions_framework

@functions_framework.http
def {name}(request):
    with pathlib.Path(__file__).with_suffix(".jsonl").open("a") as file:
        file.write(request.get_data(as_text=True) + "\\n")
    return "", 204
"""

PAUSE_MAX_S = 0.25
"""Longest pause between the checks of `eventually`, of which some take milliseconds of CPU time."""
TAIL_LINES = 40
NOISE = re.compile(
    r"^\tat |orwarding key: |: Detected (non-)?HTTP|(StubMethodHandler handle|channelRead)$"
)
"""Lines of Google's emulators: frames of tracebacks, and what each request writes."""


@dataclass(frozen=True)
class LocalStack:
    """A ready stack."""

    state_dir: Path

    @property
    def state(self) -> StackState:
        return stacks.find(self.state_dir)

    @property
    def environment(self) -> dict[str, str]:
        """The variables that `trainmaster local env` exports."""
        return client_configuration.environment(self.state_dir, self.state)

    @property
    def token(self) -> str:
        """The access token of the account with all permissions."""
        return client_configuration.token_file(self.state_dir).read_text(encoding="utf-8").strip()

    @property
    def pubsub(self) -> pubsub.PubSub:
        return pubsub.PubSub(self.state.endpoints.pubsub, self.state.config.project)

    def refusals(self) -> Counter[str]:
        """Return what the IAM of a realistic stack has refused: message → number of calls, except
        Cloud Storage's.
        """
        return read_refusals("".join(self.log(name) for name in (grpc_gate.NAME, http_gate.NAME)))

    def log(self, service: str) -> str:
        """Return what a service has printed."""
        return Path(self.state.services[service].log).read_text(encoding="utf-8", errors="replace")

    def tails(self) -> str:
        """Return the latest lines of all logs, and the dead letters, for the message of a failed
        test.
        """
        letters = [
            f"{letter['attributes']} {letter['data']!r}"
            for letter in self.pubsub.pull(pubsub.DEAD_LETTER)
        ]
        texts = {"dead letters": letters}
        for log in sorted((self.state_dir / states.LOGS).glob("*.log")):
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
            texts[log.name] = [line for line in lines if not NOISE.search(line)][-TAIL_LINES:]
        return "\n".join(
            f"--- {name}\n" + "\n".join(lines) for name, lines in texts.items() if lines
        )

    def run(
        self, *argv: str, home: Path | None = None, timeout_s: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        """Run a program in the environment that `eval "$(trainmaster local env)"` makes."""
        variables = {**clean_environment(), **self.environment}
        if home is not None:
            variables["HOME"] = str(home)
        return subprocess.run(
            argv, env=variables, capture_output=True, text=True, timeout=timeout_s, check=False
        )


@contextmanager
def local_stack(state_dir: Path, config: StackConfig) -> Iterator[LocalStack]:
    """Run a local stack. An error of the body gets the ends of the stack's logs."""
    with stacks.running_stack(state_dir, config):
        stack = LocalStack(state_dir)
        try:
            yield stack
        except Exception as error:
            error.add_note(stack.tails())
            raise


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the stack's logs to the report of a failed test: they are deleted with the folder of the
    session.
    """
    report = yield
    values = getattr(item, "funcargs", {}).values()
    stack = next(
        (
            found
            for found in (getattr(value, "stack", value) for value in values)
            if is_stack(found)
        ),
        None,
    )
    if report.when == "call" and report.failed and stack is not None:
        try:
            report.sections.append(("the stack", stack.tails()))
        except (OSError, StackError, CallError) as error:
            report.sections.append(("the stack", f"cannot be read: {error}"))
    return report


def is_stack(value: object) -> TypeGuard[LocalStack]:
    return isinstance(value, LocalStack)


def recording_functions(folder: Path) -> Path:
    """Create a folder with a recording function for each real function."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in FUNCTIONS:
        (folder / f"{name}.py").write_text(RECORDING_FUNCTION.format(name=name), encoding="utf-8")
    return folder


def clean_environment() -> dict[str, str]:
    """Return this process's environment without variables of a cloud or another stack, with our
    programs on PATH.
    """
    variables = processes.service_environment("")
    del variables[processes.STACK_ID]
    variables["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), variables["PATH"]])
    return variables


def eventually(condition: Callable[[], object], within_s: float = 60.0) -> None:
    """Wait until `condition` returns a true value. The default limit suits a busy machine."""
    deadline = time.monotonic() + within_s
    pause_s = 0.02
    while not condition():
        assert time.monotonic() < deadline, f"not true within {within_s:g} s: {condition!r}"
        time.sleep(pause_s)
        pause_s = min(1.3 * pause_s, PAUSE_MAX_S)


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    """A local stack for the whole session."""
    # Frequent reports, so that the test of resource metrics does not use a core for long.
    with local_stack(tmp_path_factory.mktemp("stack"), StackConfig(metrics="12")) as running:
        yield running


@pytest.fixture(scope="session")
def firestore_emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of Google's emulator of Firestore."""
    log = tmp_path_factory.mktemp("firestore") / "log"
    with reserved_ports() as ports:
        emulator = firestore.service(
            require_backend(), ports.take_blocked_addresses(firestore.ADDRESSES)
        )
        with service.run_alone(emulator, log) as running:
            yield running.address


@pytest.fixture(scope="session")
def pubsub_emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of Google's emulator of Pub/Sub."""
    folder = tmp_path_factory.mktemp("pubsub")
    with reserved_ports() as ports:
        emulator = pubsub.service(require_backend(), ports.take_blocked_addresses(1)[0], folder)
        with service.run_alone(emulator, folder / "log") as running:
            yield running.address


@pytest.fixture(scope="session")
def storage_emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of the emulator of Cloud Storage."""
    folder = tmp_path_factory.mktemp("storage")
    with reserved_ports() as ports:
        emulator = storage.service(
            require_backend(), folder / "data", *ports.take_blocked_addresses(2)
        )
        with service.run_alone(emulator, folder / "log") as running:
            yield running.address


@contextmanager
def reserved_ports() -> Iterator[processes.Ports]:
    """Reserve ports for the length of the block."""
    ports = processes.Ports()
    try:
        yield ports
    finally:
        ports.close()
