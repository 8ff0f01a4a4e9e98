"""``$(NAME)`` in a job of Vertex AI: in its arguments, its command, and its variables' values.

As Kubernetes has it: a reference to what is not defined stays as it is, and ``$$`` is a dollar sign, so that
``$$(NAME)`` is none. A variable's value may refer to those before it and to the platform's. A secret is never referred
to: it would be on a command line and in the log. Source: EnvVar of Vertex AI's API; arguments, as in Google's own
samples of custom training (``--model-dir=$(AIP_MODEL_DIR)``).
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.agent.control.vm_config import Gang

_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")


def resolved(gang: Gang, platforms: Mapping[str, str]) -> Gang:
    """The gang with what its references stand for. ``platforms``: the variables that the platform sets, which come
    before the job's of the same name."""
    if not gang.expands:
        return gang
    known = dict(platforms)
    variables = {}
    for name, text in gang.variables.items():
        variables[name] = expanded(text, known)
        known.setdefault(name, variables[name])
    container = gang.container
    if container is not None:
        container = replace(container, command=[expanded(word, known) for word in container.command])
    arguments = [expanded(str(argument), known) for argument in gang.args]
    return replace(gang, variables=variables, args=arguments, container=container)


def expanded(text: str, variables: Mapping[str, str]) -> str:
    return _REFERENCE.sub(lambda found: _of(found, variables), text)


def _of(found: re.Match[str], variables: Mapping[str, str]) -> str:
    name = found.group(1)
    return "$" if name is None else variables.get(name, found.group())
