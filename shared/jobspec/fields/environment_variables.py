"""The job's own part of its program's environment: `trainmaster.env`, `trainmaster.secrets`, Vertex AI's `env`.

A secret is named here and read on the VM: `projects/P/secrets/S/versions/V`, or in short `S` (its latest version, in
the VM's project) or `S/versions/V`; the text is kept as it is written.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final

from shared.core.model.job import Variable
from shared.jobspec.formats.extension import Extension
from shared.jobspec.formats.vertex import EnvVar
from shared.jobspec.reading.document_kinds import EXTENSION, example_of
from shared.jobspec.reading.problems import Findings, Loc, given

VARIABLES_MAX: Final = 100
"""Source: Vertex AI's schema, `env`."""
OWN_VARIABLES: Final = (
    *("TF_CONFIG", "CLUSTER_SPEC", "TPU_CONFIG", "RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
    *("CLOUD_ML_*", "AIP_*", "TRAINMASTER_*", "TPU_WORKER_*"),
)
"""What the platform sets, or may."""

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_SECRET: Final = re.compile(
    r"(projects/[a-z0-9][a-z0-9:.-]{0,62}/secrets/)?[A-Za-z0-9_-]{1,255}(/versions/[A-Za-z0-9_-]{1,63})?"
)


def common_variables(extension: Extension, found: Findings) -> tuple[Variable, ...]:
    """What every replica gets: `env`, then `secrets`."""
    env, secrets = extension.env or {}, extension.secrets or {}
    env_at, secrets_at = (EXTENSION, "env"), (EXTENSION, "secrets")
    for name in env:
        _check_name(name, (*env_at, name), found)
    for name, secret in secrets.items():
        at = (*secrets_at, name)
        _check_name(name, at, found)
        if name in env:
            found.add_text(at, f"is in {found.path(env_at)} as well: one of them would be lost", "leave one out")
        elif not _SECRET.fullmatch(secret):
            # Not quoted: it may be the secret itself.
            rule = "must name a version of a secret (projects/P/secrets/S/versions/V, S/versions/V or S)"
            found.add(at, rule, example_of(at))
    variables = (
        *(Variable(name, value) for name, value in env.items()),
        *(Variable(name, secret=secret) for name, secret in secrets.items()),
    )
    _check_number(variables, env_at if env else secrets_at, found)
    return variables


def pool_variables(
    listed: Sequence[EnvVar], common: tuple[Variable, ...], at: Loc, found: Findings
) -> tuple[Variable, ...]:
    """A worker pool's own ones after the common ones, which they override."""
    own: dict[str, Variable] = {}
    for index, each in enumerate(listed):
        name_at = (*at, index, "name")
        if each.name is None:
            found.add(name_at, "is required", example_of(name_at))
            continue
        _check_name(each.name, name_at, found)
        if each.name in own:
            found.add(name_at, f"is given twice: {given(each.name)}", f"{each.name}_2")
        own[each.name] = Variable(each.name, each.value or "")
    variables = (*(variable for variable in common if variable.name not in own), *own.values())
    _check_number(variables, at, found)
    return variables


def _check_name(name: str, at: Loc, found: Findings) -> None:
    if not _NAME.fullmatch(name):
        found.add_text(at, f"must be a name of letters, digits and _, no digit first, not {given(name)}", "LEVEL")
    elif any(fnmatchcase(name, own) for own in OWN_VARIABLES):
        found.add_text(at, f"is set by the platform itself: {name}", f"MY_{name}")


def _check_number(variables: Sequence[Variable], at: Loc, found: Findings) -> None:
    if len(variables) > VARIABLES_MAX:
        found.add_text(at, f"makes {len(variables)} variables, more than {VARIABLES_MAX}", "a file in gs:// holds more")
