"""The job file that a task of another tool means, with the command that submits it.

tool_of → read_task or read_configuration → Task → job file, command, notes
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from trainmaster.core.model.label_rules import is_legal_job_label
from trainmaster.jobspec.fields.job_id import job_id_of_display_name
from trainmaster.jobspec.foreign.commands import program_of
from trainmaster.jobspec.foreign.dstack import read_configuration
from trainmaster.jobspec.foreign.skypilot import read_task
from trainmaster.jobspec.foreign.task import (
    NO_COUNTERPART,
    TPU_MACHINE,
    Node,
    Note,
    Notes,
    Task,
)
from trainmaster.jobspec.problems import ROOT, InvalidJob, Problem
from trainmaster.jobspec.reading.foreign_files import SKYPILOT, TITLES

NAME_CHARS_MAX: Final = 100
"""Most characters of the task's name that the job id takes over; the time follows them."""
_MACHINE: Final = "n1-standard-4"
"""Stands in place of a machine that does not exist."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The counterpart of a task of another tool."""

    tool: str
    job_file: dict[str, Any]
    command: str
    """Submits the job file, stored as job.yaml."""
    notes: tuple[Note, ...]
    """Notes about what the job file does not contain."""


class ForeignFile(InvalidJob):
    """The document is a task of another tool.

    The problem quotes nothing of the document: problems are logged, and a task may have secrets.
    """

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        convert = "trainmaster convert task.yaml > job.yaml"
        problem = f"this is {TITLES[answer.tool]}, and no job file"
        super().__init__([Problem(ROOT, problem, example=f"{convert} && {answer.command}")])


def answer_of(tool: str, document: Mapping[str, Any]) -> Answer:
    """Return the answer to a file that `tool_of` has recognised."""
    notes = Notes()
    read = read_task if tool == SKYPILOT else read_configuration
    task = read(document, notes)
    job_file = _job_file(task, notes)
    command = "trainmaster submit job.yaml"
    if not task.image:
        command += f" --folder {_shell_word(task.folder)}"
    return Answer(tool, job_file, command, tuple(notes.items))


def _shell_word(folder: str) -> str:
    """Return the folder as one word of a shell: users copy the command, and the file may be of
    strangers. Only the user's home folder, `~/`, is left to the shell.
    """
    home = "~/" if folder.startswith("~/") else ""
    rest = folder.removeprefix(home)
    return home + shlex.quote(rest) if rest else home


def _job_file(task: Task, notes: Notes) -> dict[str, Any]:
    document: dict[str, Any] = {
        "jobId": f"{job_id_of_display_name(task.name, NAME_CHARS_MAX)}_{{time}}",
        "labels": _labels(task, notes),
        "trainingInput": _training_input(task, notes),
        "trainmaster": _extension(task),
    }
    return {name: value for name, value in document.items() if value}


def _training_input(task: Task, notes: Notes) -> dict[str, Any]:
    """Return the fields with the first alternative; `placement` has the others."""
    first, *_ = task.alternatives
    machine = first.machine()
    if machine is None:
        notes.add("resources", f"no machine type has them: {_MACHINE} stands in its place")
    name, attached = machine or (_MACHINE, {})
    config: dict[str, Any] = {"acceleratorConfig": attached} if attached else {}
    if first.disk_gib and name != TPU_MACHINE:
        config["diskConfig"] = {"bootDiskSizeGb": first.disk_gib}
    program = program_of(task.commands, task.nodes, first.gpus, notes)
    image = {"imageUri": task.image, "containerCommand": program} if task.image else {}
    has_workers = task.nodes > 1
    has_region = first.regions and not _differ(task, "regions")
    fields: dict[str, Any] = {
        "region": first.regions[0] if has_region else None,
        "scaleTier": "CUSTOM",
        "masterType": name,
        "masterConfig": {**image, **config},
        "workerType": name if has_workers else None,
        "workerCount": task.nodes - 1,
        "workerConfig": config if has_workers else None,
        "args": None if task.image else program,
        "scheduling": {"maxRunningTime": f"{task.duration_s}s"} if task.duration_s else None,
    }
    return {field: value for field, value in fields.items() if value}


def _extension(task: Task) -> dict[str, Any]:
    """Return the fields of `trainmaster`."""
    first, *others = task.alternatives
    fields: dict[str, Any] = {}
    if first.zones and not _differ(task, "zones"):
        fields["zones"] = list(first.zones)
    placement_sets_spot = bool(others) and _is_spot_or_not(task)
    if first.spot == "all" and not placement_sets_spot:
        fields["spot"] = "all"
    if task.env:
        fields["env"] = dict(task.env)
    if task.reads_buckets:
        fields["gcs"] = True
    if others:
        key = "ordered" if task.is_ordered else "anyOf"
        fields["placement"] = {key: [_alternative(node, task) for node in task.alternatives]}
    elif len(first.regions) > 1:
        fields["placement"] = {"ordered": [{"regions": list(first.regions)}]}
    return fields


def _alternative(node: Node, task: Task) -> dict[str, Any]:
    """Return an alternative of `placement`, without what all alternatives have in common."""
    fields: dict[str, Any] = {}
    if node.zones and _differ(task, "zones"):
        fields["zones"] = list(node.zones)
    elif node.regions and _differ(task, "regions"):
        fields["regions"] = list(node.regions)
    machine = node.machine()
    if machine and any(other.machine() != machine for other in task.alternatives):
        name, attached = machine
        fields["machineSpec"] = {"machineType": name}
        if attached:
            fields["machineSpec"] |= {
                "acceleratorType": attached["type"],
                "acceleratorCount": attached["count"],
            }
    if node.spot and _differ(task, "spot"):
        fields["spot"] = node.spot
    return fields


def _differ(task: Task, name: str) -> bool:
    """Return whether the alternatives have different values of the field `name` of `Node`."""
    return len({getattr(node, name) for node in task.alternatives}) > 1


def _is_spot_or_not(task: Task) -> bool:
    """Return whether the alternatives are the same machine, on Spot VMs and on demand."""
    return _differ(task, "spot") and not any(
        _differ(task, name) for name in ("regions", "zones", "accelerator", "machine_type")
    )


def _labels(task: Task, notes: Notes) -> dict[str, str]:
    labels = {}
    for key, value in task.labels.items():
        if is_legal_job_label(key, value):
            labels[key] = value
        else:
            notes.add(f"resources.labels.{key}", NO_COUNTERPART)
    return labels
