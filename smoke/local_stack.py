"""The smoke test on this machine: a realistic local stack takes the place of the installation."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from smoke.opening import opened_world
from smoke.world import StepError, World
from trainmaster_emulators.process.stack_config import StackConfig
from trainmaster_emulators.process.state import StackError
from trainmaster_emulators.stack import client_configuration, stack

REGION: Final = "us-central1"
SECOND_REGION: Final = "us-east1"
IMAGE: Final = "debian:bookworm-slim"


@dataclass(frozen=True, slots=True)
class LocalInstallation:
    """Starts a realistic stack in a folder of its own, and stops it."""

    time_scale: float
    report: Callable[[str], None]
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that replace those of the stack, for example PATH."""

    @contextmanager
    def running(self) -> Iterator[World]:
        config = StackConfig(realistic=True, time_scale=self.time_scale)
        try:
            with tempfile.TemporaryDirectory(prefix="trainmaster-smoke-") as folder:
                state_dir = Path(folder)
                with stack.running_stack(state_dir, config) as state:
                    variables = {
                        **client_configuration.environment(state_dir, state),
                        **self.variables,
                    }
                    with opened_world(
                        variables,
                        REGION,
                        IMAGE,
                        second_region=SECOND_REGION,
                        is_local=True,
                        report=self.report,
                    ) as world:
                        yield world
        except StackError as error:
            raise StepError(str(error)) from error
