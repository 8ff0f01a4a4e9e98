"""Environment variables that a job sets.

They are in `trainmaster.env`, `trainmaster.secrets`, and `env` of Vertex AI.

A secret is named here and read on the VM. Its name is `projects/P/secrets/S/versions/V`, or in
short `S/versions/V` (in the VM's project) or `S` (its latest version). It is stored as written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final

from trainmaster.core.model.plan import Plan, Variable
from trainmaster.jobspec.formats.extension import Extension
from trainmaster.jobspec.formats.vertex import EnvVar
from trainmaster.jobspec.problems import FieldPath, Problems, quoted
from trainmaster.jobspec.reading.document_kinds import EXTENSION, example_at

VARIABLES_MAX: Final = 100
"""Source: Vertex AI's schema, `env`."""
RESERVED_VARIABLES: Final = (
    "TF_CONFIG",
    "CLUSTER_SPEC",
    "TPU_CONFIG",
    "RANK",
    "NODE_RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "CLOUD_ML_*",
    "AIP_*",
    "TRAINMASTER_*",
    "TPU_WORKER_*",
)
"""Names, as glob patterns, that Trainmaster sets or may set."""

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_SECRET: Final = re.compile(
    r"(projects/[a-z0-9][a-z0-9:.-]{0,62}/secrets/)?"
    r"[A-Za-z0-9_-]{1,255}"
    r"(/versions/[A-Za-z0-9_-]{1,63})?"
)


def resolve_common_variables(extension: Extension, problems: Problems) -> tuple[Variable, ...]:
    """Return the variables of every replica: `env`, then `secrets`."""
    env = extension.env
    env_path = (EXTENSION, "env")
    secrets = extension.secrets
    secrets_path = (EXTENSION, "secrets")
    for name in env:
        _check_name(name, (*env_path, name), problems)
    for name, secret in secrets.items():
        path = (*secrets_path, name)
        _check_name(name, path, problems)
        if name in env:
            problems.add_text(
                path, f"is also in {problems.spelled_path(env_path)}", "leave one of them out"
            )
        elif not _SECRET.fullmatch(secret):
            # The value is not quoted: it may be the secret itself.
            rule = (
                "must name a version of a secret (projects/P/secrets/S/versions/V, S/versions/V"
                " or S)"
            )
            problems.add(path, rule, example_at(path))
    variables = (
        *(Variable(name, value) for name, value in env.items()),
        *(Variable(name, secret=secret) for name, secret in secrets.items()),
    )
    _check_number(variables, env_path if env else secrets_path, problems)
    return variables


def resolve_pool_variables(
    listed: Sequence[EnvVar], common: tuple[Variable, ...], path: FieldPath, problems: Problems
) -> tuple[Variable, ...]:
    """Return the common variables, then the pool's own, which override those of the same name."""
    own: dict[str, Variable] = {}
    for index, variable in enumerate(listed):
        name_path = (*path, index, "name")
        if variable.name is None:
            problems.add(name_path, "is required", example_at(name_path))
            continue
        _check_name(variable.name, name_path, problems)
        if variable.name in own:
            problems.add(
                name_path, f"is given twice: {quoted(variable.name)}", f"{variable.name}_2"
            )
        own[variable.name] = Variable(variable.name, variable.value or "")
    variables = (*(variable for variable in common if variable.name not in own), *own.values())
    _check_number(variables, path, problems)
    return variables


def resolve_option_variables(
    env: Mapping[str, str], plan: Plan, path: FieldPath, problems: Problems
) -> tuple[Variable, ...]:
    """Return an alternative's variables; in each program they override those of the same name."""
    own = tuple(Variable(name, value) for name, value in env.items())
    for name in env:
        _check_name(name, (*path, name), problems)
    for program in (plan.program, *(group.program for group in plan.groups if group.program)):
        others = [variable for variable in program.environment if variable.name not in env]
        _check_number((*others, *own), path, problems)
    return own


def _check_name(name: str, path: FieldPath, problems: Problems) -> None:
    if not _NAME.fullmatch(name):
        rule = "must have letters, digits and _ only, and must not begin with a digit"
        problems.add_text(path, f"{rule}; this is {quoted(name)}", "LEVEL")
    elif any(fnmatchcase(name, reserved) for reserved in RESERVED_VARIABLES):
        problems.add_text(path, f"is reserved: Trainmaster sets {name} itself", f"MY_{name}")


def _check_number(variables: Sequence[Variable], path: FieldPath, problems: Problems) -> None:
    if len(variables) > VARIABLES_MAX:
        problem = f"results in {len(variables)} environment variables, more than {VARIABLES_MAX}"
        problems.add_text(path, problem, "put the values into a file in gs://")
