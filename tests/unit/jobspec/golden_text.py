"""Plans as readable text: a line per value that is not its default, nested by indentation.

`python -m tests.unit.jobspec.golden_text` writes the golden files. Review what it changed before
you commit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tests.unit.jobspec.machine_requests import machine_requests
from trainmaster.core.model.plan import Plan
from trainmaster.core.model.task_group import TaskGroup
from trainmaster.jobspec.accept import accept
from trainmaster.jobspec.fields.job_id import job_id_from
from trainmaster.jobspec.problems import InvalidJob
from trainmaster.jobspec.reading.parse_document import parse_document

GOLDEN: Final = Path(__file__).parent / "golden"
MACHINES: Final = GOLDEN / "machines.txt"
JOB_FILES: Final = sorted(path.stem for path in GOLDEN.glob("*.yaml"))


def plan_text(name: str) -> str:
    """Return the plan of the golden job file of this name."""
    data = (GOLDEN / f"{name}.yaml").read_bytes()
    spec = accept(parse_document(data, f"{name}.yaml"), default_job_id=job_id_from(name, ""))
    head = [
        f"job: {spec.job_id}",
        *(f"label: {key}={value}" for key, value in sorted(spec.labels.items())),
    ]
    tuning = [] if spec.tuning is None else ["tuning:", *_lines(spec.tuning, "  ")]
    return "\n".join((*head, *_lines(spec.plan, indent=""), *tuning)) + "\n"


def group_text(group: TaskGroup) -> str:
    """`worker x2 n1-standard-8 + 1 x nvidia-tesla-t4`."""
    machine = group.machine_type
    if group.tpu is not None:
        hosts = f"{group.tpu.hosts} host{'s' if group.tpu.hosts > 1 else ''}"
        shape = f", {group.tpu.topology}" if group.tpu.topology else ""
        machine = f"{group.tpu.type} ({hosts}{shape}, {group.tpu.runtime})"
    if group.accelerator is not None:
        machine += f" + {group.accelerator.count} x {group.accelerator.type}"
    return f"{group.task_type} x{group.count} {machine}"


def groups_text(plan: Plan) -> str:
    notes = "".join(
        f" [{note.requested} -> {note.replacement}]" for note in plan.origin.substitutions
    )
    return ", ".join(map(group_text, plan.groups)) + notes


def machine_line(document: Mapping[str, object]) -> str:
    """Return the machines that a job gets, or the fields at which it is refused."""
    try:
        return groups_text(accept(document, default_job_id=None).plan)
    except InvalidJob as invalid:
        return f"refused at {', '.join(problem.field for problem in invalid.problems)}"


def _lines(value: object, indent: str) -> Iterator[str]:
    if not dataclasses.is_dataclass(value):
        raise TypeError(value)
    for field in dataclasses.fields(value):
        item = getattr(value, field.name)
        default = field.default_factory() if callable(field.default_factory) else field.default
        if item != default and item not in (None, "", ()):
            yield from _entry(field.name, item, indent)


def _entry(name: str, item: object, indent: str) -> Iterator[str]:
    if isinstance(item, tuple) and any(dataclasses.is_dataclass(part) for part in item):
        for part in item:
            yield f"{indent}{name}:"
            yield from _lines(part, f"{indent}  ")
    elif dataclasses.is_dataclass(item):
        kind = getattr(item, "kind", None)
        yield f"{indent}{name}: {kind}" if kind else f"{indent}{name}:"
        yield from _lines(item, f"{indent}  ")
    elif isinstance(item, tuple):
        yield f"{indent}{name}: {' '.join(map(str, item))}"
    else:
        yield f"{indent}{name}: {item}"


if __name__ == "__main__":
    for job_file in JOB_FILES:
        (GOLDEN / f"{job_file}.plan").write_text(plan_text(job_file), encoding="utf-8")
    lines = (
        f"{request} = {machine_line(document)}\n"
        for request, document in machine_requests().items()
    )
    MACHINES.write_text("".join(lines), encoding="utf-8")
