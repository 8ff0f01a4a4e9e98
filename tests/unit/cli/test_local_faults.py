"""`trainmaster local preempt JOB REPLICA` and its siblings name the VM as the job's
replica has it.
"""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.model.vm_names import vm_name
from trainmaster_emulators.process.state import StackError
from trainmaster_local.cli import commands

VM = vm_name("digits_1", ReplicaId(TaskType.WORKER, 0))


class Recorder:
    """Records the faults that a command injects."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        def record(*arguments: object, **changes: object) -> dict[str, object]:
            self.calls.append((name, *arguments, *changes.items()))
            return {}

        return record


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    monkeypatch.setattr(commands, "_fault_client", lambda _: recorder)
    return recorder


@pytest.mark.parametrize(
    ("words", "call"),
    [
        ("preempt digits_1 worker-0 --notice 5", ("preempt", VM, 5.0)),
        (f"preempt {VM}", ("preempt", VM, None)),
        ("maintenance digits_1 worker-0", ("maintenance", VM, None)),
        ("crash digits_1 worker-0", ("crash", VM)),
        ("kill digits_1 worker-0 --signal SIGSTOP", ("kill_program", VM, "STOP")),
        (
            "unreachable us-central1-a us-central1-b",
            ("change", ("unreachable_zones", ["us-central1-a", "us-central1-b"])),
        ),
    ],
)
def test_fault_is_injected_into_the_vm_of_the_replica(
    faults: Recorder, words: str, call: tuple[Any, ...]
) -> None:
    result = CliRunner().invoke(commands.app, words.split())
    assert result.exit_code == 0, result.output
    assert faults.calls == [call]


def test_replica_of_two_words_is_the_same(faults: Recorder) -> None:
    CliRunner().invoke(commands.app, ["crash", "digits_1", "worker 0"])
    assert faults.calls == [("crash", VM)]


@pytest.mark.parametrize("replica", ["worker", "worker-x", "waiter-0", "-"])
def test_wrong_replica_names_a_right_one(faults: Recorder, replica: str) -> None:
    result = CliRunner().invoke(commands.app, ["crash", "digits_1", "--", replica])
    assert isinstance(result.exception, StackError)
    assert (
        str(result.exception)
        == f"there is no replica {replica}: give a task type and a number, such as worker-0"
    )
    assert faults.calls == []
