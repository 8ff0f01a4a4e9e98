"""Jobs of each way of submission, and failures of their programs, for the tests of advice."""

from __future__ import annotations

from tests.support.jobs import a_plan
from trainmaster.core.events import ProgramError, ReplicaExited
from trainmaster.core.model.plan import Plan
from trainmaster.core.model.task_group import Container, Program
from trainmaster.core.rules.remedies import FOLDER_MODULE, remedy_of_exit
from trainmaster.jobspec.catalog.runtimes import RUNTIMES

FOLDER = "folder"

PACKAGE = "package"

CONTAINER = "container"


def a_job_plan(entrance: str = PACKAGE, runtime: str = "2.21") -> Plan:
    """Return the plan of a job that was submitted as a folder, a package or a container."""
    module = {FOLDER: FOLDER_MODULE, PACKAGE: "trainer.task"}.get(entrance, "")
    container = Container("eu-docker.pkg.dev/p/r/i") if entrance == CONTAINER else None
    program = Program(
        ("gs://b/a.whl",), module, ("python", "train.py"), job_dir=None, container=container
    )
    return a_plan(program=program, packages=RUNTIMES[runtime].packages)


def advice(event: ReplicaExited) -> str:
    """Return what users of a package are advised after this exit."""
    return remedy_of_exit(event, a_job_plan())


def error(type_: str, message: str) -> ProgramError:
    """Return an error that a line of the program's own code raised."""
    return ProgramError(
        type_, message, "trainer/task.py:3 in <module>", "trainer/task.py:3 in <module>"
    )
