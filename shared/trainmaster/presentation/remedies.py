"""What a user does about the failure of a job: by the error, the runtime and the way of submission.

Where nothing more precise is known, it is the advice of the decision's reason.
"""

from __future__ import annotations

import re
from typing import Final

from trainmaster.core.decisions import Reason
from trainmaster.core.events import Event, ExitCause, ReplicaExited
from trainmaster.core.model.plan import Plan
from trainmaster.jobspec.catalog.runtimes import RUNTIMES
from trainmaster.presentation.reasons import help_on, without_links
from trainmaster.program_files.import_names import is_module_of, package_of

FOLDER_MODULE: Final = "trainmaster_folder"
"""The job's `pythonModule` if its program is a folder: see `trainmaster.wiring.folders`."""
_SYNTAX_ERRORS: Final = ("SyntaxError", "IndentationError", "TabError")
_NO_MODULE: Final = re.compile(r"No module named '?([\w.]+)'?")
_NOT_ACCEPTED: Final = re.compile(r"error: unrecognized arguments: (.+)")
_NO_FILE: Final = re.compile(r"can't open file '([^']+)'|^(\S+) cannot be started", re.MULTILINE)
_USAGE_STATUS: Final = 2
"""Exit status of argparse for arguments, and of Python for a file that it cannot open."""
_NOT_FOUND_STATUS: Final = 127


def remedy(reason: Reason, event: Event, plan: Plan) -> str:
    """Return what to do about a job that ended for the reason; empty if nothing is known.

    `event`: the one that ended it.
    """
    exact = _remedy_of_exit(event, plan) if isinstance(event, ReplicaExited) else ""
    return exact or without_links(help_on(reason).do)


def advice(reason: Reason, event: Event, plan: Plan) -> str:
    """Return what to do, and which command explains the reason.

    `trainmaster why` ends with it.
    """
    text = remedy(reason, event, plan) or without_links(help_on(reason).means)
    return f"{text} More: `trainmaster why --reason {reason}`"


def _remedy_of_exit(event: ReplicaExited, plan: Plan) -> str:
    if event.cause is ExitCause.INSTALL:
        return _remedy_of_installation(plan)
    if event.cause is not ExitCause.PROCESS:
        return ""
    if event.error is None:
        return _remedy_of_usage(event)
    if event.error.type in _SYNTAX_ERRORS:
        return "Correct the line that the error names: Python cannot read it."
    missing = _NO_MODULE.search(event.error.message)
    if event.error.type == "ModuleNotFoundError" and missing:
        return _remedy_of_module(missing[1], plan)
    return ""


def _remedy_of_installation(plan: Plan) -> str:
    if not _is_folder(plan):
        return ""
    return (
        "Correct requirements.txt in your folder: the error has the words of pip about the line."
        " `trainmaster submit --check` compares it with the runtime."
    )


def _remedy_of_usage(event: ReplicaExited) -> str:
    if event.exit_status not in (_USAGE_STATUS, _NOT_FOUND_STATUS):
        return ""
    unknown = _NOT_ACCEPTED.search(event.tail)
    if unknown:
        return (
            f"The program does not accept the arguments {unknown[1].strip()}: correct them in the"
            " command or in `args`."
        )
    no_file = _NO_FILE.search(event.tail)
    if no_file:
        name = no_file[1] or no_file[2]
        return f"Correct the command: {name} is not among the files of the job, or no program."
    return ""


def _remedy_of_module(module: str, plan: Plan) -> str:
    name, _, suffix = module.rpartition(".")
    if suffix == "py" and name:
        return f"`pythonModule` is a module, and not a file: write {name}."
    top = module.partition(".")[0]
    package = package_of(top)
    where = (
        "requirements.txt in your folder"
        if _is_folder(plan)
        else "`install_requires` of your package"
    )
    others = [version for version, other in RUNTIMES.items() if is_module_of(top, other.packages)]
    if others and not is_module_of(top, plan.packages):
        return (
            f"Choose the runtime that has {package}: `--runtime-version {others[-1]}`. Or add"
            f" {package} to {where}."
        )
    return f"Add {package} to {where}, or add the file if {top} is a module of your own."


def _is_folder(plan: Plan) -> bool:
    return plan.program.python_module == FOLDER_MODULE
