"""``$(NAME)`` in a job of Vertex AI: in its arguments, its command, and the values of its
variables.

The rules are those of Kubernetes: a reference to an undefined variable stays as it is, and ``$$``
is a dollar sign, so ``$$(NAME)`` is not a reference. A variable's value may refer to variables
before it and to the platform's. Secrets cannot be referenced: they would appear on a command line
and in the log. Source: EnvVar in Vertex AI's API; for arguments, Google's own samples of custom
training (``--model-dir=$(AIP_MODEL_DIR)``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from trainmaster.agent.model.vm_config import VmConfig

_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")


def resolve_references(config: VmConfig, platform_variables: Mapping[str, str]) -> VmConfig:
    """Return the config with its references replaced.

    The platform's variables win over the job's of the same name.
    """
    if not config.expands:
        return config
    defined = dict(platform_variables)
    variables = {}
    for name, text in config.variables.items():
        variables[name] = expand(text, defined)
        defined.setdefault(name, variables[name])
    container = config.container
    if container is not None:
        container = replace(
            container, command=[expand(word, defined) for word in container.command]
        )
    arguments = [expand(str(argument), defined) for argument in config.args]
    return replace(config, variables=variables, args=arguments, container=container)


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace the references in one text.

    Values are inserted as they are: references in them are not replaced.
    """
    return _REFERENCE.sub(lambda match: _value_of(match, variables), text)


def _value_of(match: re.Match[str], variables: Mapping[str, str]) -> str:
    name = match.group(1)
    return "$" if name is None else variables.get(name, match.group())
