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

from trainmaster.core.model.plan import Plan
from trainmaster.core.model.task_group import Variable
from trainmaster.jobspec.formats.extension import Extension
from trainmaster.jobspec.formats.vertex import EnvVar
from trainmaster.jobspec.problems import FieldPath, Problems, quoted
from trainmaster.jobspec.reading.document_kinds import example_at
from trainmaster.jobspec.reading.field_names import EXTENSION

VARIABLES_MAX: Final = 100
"""Source: Vertex AI's schema, `env`."""
RANK_VARIABLES: Final = (
    "RANK",
    "NODE_RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
)
"""A job with one rank gets those that it asks for, by `RANK: $(RANK)`: `agent.program.environment`.
"""
RESERVED_VARIABLES: Final = (
    *RANK_VARIABLES,
    "TF_CONFIG",
    "CLUSTER_SPEC",
    "TPU_CONFIG",
    "CLOUD_ML_*",
    "AIP_*",
    "TRAINMASTER_*",
    "TPU_WORKER_*",
)
"""Names, as glob patterns, that Trainmaster sets or may set."""

ENGINE_VARIABLES: Final = re.compile(
    r"(DOCKER_|PODMAN_|_?CONTAINERS?_|BUILDKIT_|OTEL_|XDG_|LD_|SSL_CERT_)\w*"
    r"|STORAGE_(DRIVER|OPTS|CONF)|REGISTRY_AUTH_FILE|GLIBC_TUNABLES"
    r"|GO(DEBUG|GC|MAXPROCS|MEMLIMIT|TRACEBACK)|PATH|HOME|TMPDIR|(HTTPS?|NO|ALL)_PROXY",
    re.IGNORECASE,
)
"""Names that the command of a container engine reads itself. Their values reach a container through
a file with one line for each. Source: shared/trainmaster/agent/program/container_program.py.
"""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
"""Name of a variable."""
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
    for name, value in env.items():
        _check_name(name, (*env_path, name), problems, value)
    for name, secret in secrets.items():
        path = (*secrets_path, name)
        _check_name(name, path, problems)
        if name in env:
            problems.add_text(
                path,
                f"is also in {problems.spelled_path(env_path)}",
                advice="leave one of them out",
            )
        elif not _SECRET.fullmatch(secret):
            # The value is not quoted: it may be the secret itself.
            rule = (
                "must name a version of a secret (projects/P/secrets/S/versions/V, S/versions/V"
                " or S)"
            )
            problems.add(path, rule, example=example_at(path))
    variables = (
        *(Variable(name, value) for name, value in env.items()),
        *(Variable(name, secret=secret) for name, secret in secrets.items()),
    )
    _check_number(variables, env_path if env else secrets_path, problems)
    return variables


def resolve_pool_variables(
    listed: Sequence[EnvVar],
    common: tuple[Variable, ...],
    path: FieldPath,
    problems: Problems,
    *,
    in_container: bool = False,
) -> tuple[Variable, ...]:
    """Return the common variables, then the pool's own, which override those of the same name.

    `in_container`: the pool's program runs in a container.
    """
    own: dict[str, Variable] = {}
    for index, variable in enumerate(listed):
        name_path = (*path, index, "name")
        if variable.name is None:
            problems.add(name_path, "is required", example=example_at(name_path))
            continue
        _check_name(variable.name, name_path, problems, variable.value or "")
        if variable.name in own:
            problems.add(
                name_path, f"is given twice: {quoted(variable.name)}", example=f"{variable.name}_2"
            )
        own[variable.name] = Variable(variable.name, variable.value or "")
        if in_container:
            _check_line(variable.name, variable.value or "", (*path, index, "value"), problems)
    variables = (*(variable for variable in common if variable.name not in own), *own.values())
    _check_number(variables, path, problems)
    return variables


def resolve_option_variables(
    env: Mapping[str, str], plan: Plan, path: FieldPath, problems: Problems
) -> tuple[Variable, ...]:
    """Return an alternative's variables; in each program they override those of the same name."""
    own = tuple(Variable(name, value) for name, value in env.items())
    if plan.has_containers:
        check_lines(env, path, problems)
    for name, value in env.items():
        _check_name(name, (*path, name), problems, value)
    for program in (plan.program, *(group.program for group in plan.groups if group.program)):
        others = [variable for variable in program.environment if variable.name not in env]
        _check_number((*others, *own), path, problems)
    return own


def check_lines(env: Mapping[str, str], path: FieldPath, problems: Problems) -> None:
    """Check that the values of variables can be passed to a container."""
    for name, value in env.items():
        _check_line(name, value, (*path, name), problems)


def _check_line(name: str, value: str, path: FieldPath, problems: Problems) -> None:
    """Check that a value which must be one line is one."""
    if ENGINE_VARIABLES.fullmatch(name) and ("\n" in value or "\r" in value):
        rule = f"must be a single line: container engines read {name} themselves"
        problems.add_text(path, rule, advice=f"MY_{name}, a name that they do not read")


def _check_name(name: str, path: FieldPath, problems: Problems, value: str = "") -> None:
    if not _NAME.fullmatch(name):
        rule = "must have letters, digits and _ only, and must not begin with a digit"
        problems.add_text(path, f"{rule}; this is {quoted(name)}", advice="LEVEL")
    elif name in RANK_VARIABLES and value == f"$({name})":
        return  # asks for Trainmaster's value
    elif any(fnmatchcase(name, reserved) for reserved in RESERVED_VARIABLES):
        asks = f"; {name}: $({name}) asks for its value" if name in RANK_VARIABLES else ""
        problems.add_text(
            path, f"is reserved: Trainmaster sets {name} itself{asks}", advice=f"MY_{name}"
        )


def _check_number(variables: Sequence[Variable], path: FieldPath, problems: Problems) -> None:
    if len(variables) > VARIABLES_MAX:
        problem = f"results in {len(variables)} environment variables, more than {VARIABLES_MAX}"
        problems.add_text(path, problem, advice="put the values into a file in gs://")
