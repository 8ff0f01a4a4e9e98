"""Remedies fit the error, the runtime and the way of submission."""

from __future__ import annotations

import pytest

from tests.support.jobs import CHIEF, a_plan, exited
from trainmaster.core.decisions import Reason
from trainmaster.core.events import ExitCause, ProgramError, ReplicaExited
from trainmaster.core.model.plan import Plan, Program
from trainmaster.jobspec.catalog.runtimes import RUNTIMES
from trainmaster.presentation.reasons import help_on, without_links
from trainmaster.presentation.remedies import advice, remedy
from trainmaster.wiring.folders import MODULE

FOLDER = "folder"
PACKAGE = "package"


def a_job_plan(entrance: str, runtime: str = "2.21") -> Plan:
    module = MODULE if entrance == FOLDER else "trainer.task"
    program = Program(("gs://b/a.whl",), module, ("python", "train.py"), None)
    return a_plan(program=program, packages=RUNTIMES[runtime].packages)


def an_exit(error_type: str, message: str) -> ReplicaExited:
    return exited(CHIEF, 1, error=ProgramError(error_type, message, "train.py:3 in <module>"))


@pytest.mark.parametrize(
    ("entrance", "error_type", "message", "expected"),
    [
        (
            FOLDER,
            "ModuleNotFoundError",
            "No module named 'einops'",
            "Add einops to requirements.txt",
        ),
        (
            FOLDER,
            "ModuleNotFoundError",
            "No module named 'cv2'",
            "opencv-python to requirements.txt",
        ),
        (
            FOLDER,
            "ModuleNotFoundError",
            "No module named 'torch'",
            "`--runtime-version pytorch-2.13`",
        ),
        (
            PACKAGE,
            "ModuleNotFoundError",
            "No module named 'torch.nn'",
            "torch to `install_requires`",
        ),
        (
            PACKAGE,
            "ModuleNotFoundError",
            "No module named 'trainer.task.py'",
            "write trainer.task.",
        ),
        (FOLDER, "SyntaxError", "invalid syntax (train.py, line 3)", "Correct the line"),
        (
            PACKAGE,
            "ModuleNotFoundError",
            "No module named 'einops'",
            "einops to `install_requires`",
        ),
        (PACKAGE, "IndentationError", "unexpected indent (train.py, line 3)", "Correct the line"),
    ],
)
def test_remedy_names_the_file_or_the_runtime_to_change(
    entrance: str, error_type: str, message: str, expected: str
) -> None:
    event = an_exit(error_type, message)
    text = remedy(Reason.INSTALL_FAILED, event, a_job_plan(entrance))
    assert expected in text
    assert ("install_requires" in text) == ("install_requires" in expected)


def test_remedy_of_a_folders_installation_names_requirements_txt() -> None:
    event = exited(CHIEF, 1, cause=ExitCause.INSTALL)
    text = remedy(Reason.INSTALL_FAILED, event, a_job_plan(FOLDER))
    assert text.startswith("Correct requirements.txt in your folder")


@pytest.mark.parametrize(
    ("status", "tail", "expected"),
    [
        (2, "train.py: error: unrecognized arguments: --epoch-count 3\n", "--epoch-count 3"),
        (2, "python: can't open file '/run/trian.py': [Errno 2] No such file", "/run/trian.py"),
        (127, "nosuchprog cannot be started: No such file or directory\n", "nosuchprog"),
    ],
)
def test_remedy_of_wrong_usage_names_the_argument_or_the_file(
    status: int, tail: str, expected: str
) -> None:
    event = exited(CHIEF, status, tail=tail)
    assert expected in remedy(Reason.COMMON_ERROR, event, a_job_plan(FOLDER))


def test_remedy_of_any_other_end_is_that_of_its_reason() -> None:
    event = an_exit("ValueError", "No module named 'x'")
    text = remedy(Reason.SAME_FAILURE_AGAIN, event, a_job_plan(FOLDER))
    assert text == without_links(help_on(Reason.SAME_FAILURE_AGAIN).do)


def test_advice_ends_with_a_command_that_explains_the_reason() -> None:
    event = exited(CHIEF, 1, tail="")
    text = advice(Reason.CANCELLED_BY_USER, event, a_job_plan(FOLDER))
    assert text.startswith("Someone cancelled the job.")
    assert text.endswith("More: `trainmaster why --reason cancelled_by_user`")
