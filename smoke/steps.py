"""The steps of the smoke test, in their order.

Each is a function over a `World`; `run` runs them all.

A step notes facts with `World.saw`. It raises StepError if something does not work at all, which is
a failure of the smoke test; that a fact differs from an assumption is found later (`findings`). A
step runs only if the steps that it needs have succeeded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from smoke import client_steps, fault_steps, gang_steps, job_steps
from smoke.world import SkippedError, StepError, World
from trainmaster.errors import PermanentError, TemporaryError


class Outcome(StrEnum):
    OK = "ok"
    FAILED = "FAILED"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    run: Callable[[World], None]
    needs: tuple[str, ...] = ()
    """Names of the steps without which this one cannot run."""


@dataclass(frozen=True, slots=True)
class Result:
    """How a step ended."""

    name: str
    outcome: Outcome
    text: str = ""
    """The problem, or the reason why the step was skipped."""


STEPS: Final = (
    Step("doctor", client_steps.run_doctor),
    Step("digits", job_steps.train_digits),
    Step("container", job_steps.run_container),
    Step("gcs", job_steps.save_below_gcs),
    Step("kept machine", job_steps.take_kept_machine),
    Step("second region", job_steps.run_in_second_region),
    Step("probe", fault_steps.start_probe),
    Step("kill", fault_steps.await_restart_after_kill, ("probe",)),
    Step("maintenance", fault_steps.simulate_maintenance, ("kill",)),
    Step("deletion", fault_steps.delete_vm_by_hand, ("kill",)),
    Step("finish", fault_steps.finish_probe, ("probe",)),
    Step("gang", gang_steps.start_gang),
    Step("save together", gang_steps.preempt_member, ("gang",)),
    Step("alive series", gang_steps.watch_alive_series, ("gang",)),
    Step("hung VM", gang_steps.hang_vm, ("alive series",)),
    Step("end of the gang", gang_steps.finish_gang, ("gang",)),
    Step("logs", client_steps.read_log_entries, ("finish",)),
    Step("gcloud", client_steps.call_gcloud, ("finish",)),
    Step("sdk", client_steps.call_python_client, ("finish",)),
    Step("disabled API", client_steps.look_up_disabled_api),
    Step("field mask", client_steps.list_vms_with_field_mask),
    Step("advice", client_steps.ask_for_advice),
    Step("Cloud TPU", client_steps.list_tpus),
    Step("dead letters", client_steps.count_dead_letters, ("finish",)),
)


def run(world: World, steps: Sequence[Step] = STEPS) -> Iterator[Result]:
    """Run the steps and yield the result of each. Only an interruption stops the others."""
    results: list[Result] = []
    for step in steps:
        ended = {result.name: result.outcome for result in results}
        missing = [name for name in step.needs if ended.get(name) is not Outcome.OK]
        world.report(f"step {step.name}")
        result = (
            Result(step.name, Outcome.SKIPPED, f"it needs {', '.join(missing)}")
            if missing
            else run_step(world, step)
        )
        world.report(
            f"step {step.name}: {result.outcome}" + (f", {result.text}" if result.text else "")
        )
        results.append(result)
        yield result


def run_step(world: World, step: Step) -> Result:
    try:
        step.run(world)
    except SkippedError as reason:
        return Result(step.name, Outcome.SKIPPED, str(reason))
    except (StepError, PermanentError, TemporaryError) as error:
        return Result(step.name, Outcome.FAILED, str(error))
    return Result(step.name, Outcome.OK)
