"""The stack of `trainmaster local run`: on the emulators, or with in-memory adapters."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from trainmaster.ports import Fleet, Objects, Store
from trainmaster_emulators.process.state import StackConfig, StackState
from trainmaster_emulators.stack import client_configuration, stack


@dataclass(frozen=True, slots=True)
class RunningStack:
    """A stack that is ready, and its adapters."""

    state: StackState
    store: Store
    fleet: Fleet
    objects: Objects


@contextmanager
def example_stack(
    state_dir: Path, config: StackConfig, *, in_memory: bool
) -> Iterator[RunningStack]:
    with ExitStack() as ended:
        control = None
        if in_memory:
            from trainmaster_emulators.stack.memory_control_plane import MemoryControlPlane

            control = ended.enter_context(closing(MemoryControlPlane()))
            config = config.model_copy(update={"control_plane": control.address})
        ready = ended.enter_context(stack.running_stack(state_dir, config))
        os.environ.update(client_configuration.environment(state_dir, ready))
        from trainmaster.wiring.core_services import job_log, store
        from trainmaster.wiring.fleet import fleet_deps
        from trainmaster.wiring.objects import objects

        if control:
            control.connect(
                objects(), fleet_deps(), job_log(), ready.endpoints.storage, ready.config.bucket
            )
        yield RunningStack(
            ready, control.store if control else store(), fleet_deps().fleet, objects()
        )
