"""One run: install, all steps, remove everything, result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from smoke import report
from smoke.findings import compare
from smoke.steps import STEPS, Outcome, Result, Step, run
from smoke.submissions import wait_until_no_vms
from smoke.world import StepError, World
from trainmaster.core.model.job import JobState
from trainmaster.errors import PermanentError, TemporaryError


class Installation(Protocol):
    """An installation that is created for the smoke test, and removed at its end, whatever happened
    in between.
    """

    def running(self) -> AbstractContextManager[World]:
        """Install, and remove everything at the end.

        Raises StepError if installing or removing fails.
        """
        ...


def smoke(
    installation: Installation, say: Callable[[str], None], steps: Sequence[Step] = STEPS
) -> int:
    """Run the steps on an installation and print the result. Return the exit status.

    Everything is removed also after a failed step, an error or Ctrl-C, and the result shows what
    was seen until then.
    """
    results: list[Result] = []
    facts: dict[str, str] = {}
    is_local = False
    try:
        with installation.running() as world:
            facts = world.facts
            is_local = world.is_local
            results.append(Result("install", Outcome.OK))
            try:
                # `extend` keeps the results of the steps before an interruption.
                results.extend(run(world, steps))
            finally:
                results.append(end_jobs(world))
        results.append(Result("remove", Outcome.OK))
    except StepError as error:
        results.append(Result("remove" if results else "install", Outcome.FAILED, str(error)))
    finally:
        findings = compare(facts, is_local=is_local)
        for line in report.lines(results, findings):
            say(line)
    return report.exit_status(results, findings)


def end_jobs(world: World) -> Result:
    """Cancel the jobs of the run that still run, and wait until they have no VMs."""
    problems = []
    for job_id in world.jobs.values():
        try:
            if not JobState(world.state(job_id).job.state).is_terminal:
                world.check("trainmaster", "jobs", "cancel", job_id)
            wait_until_no_vms(world, job_id)
        except (StepError, PermanentError, TemporaryError) as error:
            problems.append(str(error))
    return Result("end jobs", Outcome.FAILED if problems else Outcome.OK, "; ".join(problems))
