"""The stack of `trainmaster local run`: on the emulators, or with in-memory adapters in this process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
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
def stack_on_emulators(state_dir: Path, config: StackConfig) -> Iterator[RunningStack]:
    with stack.running_stack(state_dir, config) as ready:
        os.environ.update(client_configuration.environment(state_dir, ready))
        from trainmaster.wiring.core_services import store
        from trainmaster.wiring.fleet import fleet_deps
        from trainmaster.wiring.objects import objects

        yield RunningStack(ready, store(), fleet_deps().fleet, objects())


@contextmanager
def stack_in_memory(state_dir: Path, config: StackConfig) -> Iterator[RunningStack]:
    from trainmaster_emulators.stack.memory_control_plane import MemoryControlPlane

    control = MemoryControlPlane()
    try:
        config = config.model_copy(update={"control_plane": control.address})
        with stack.running_stack(state_dir, config) as ready:
            os.environ.update(client_configuration.environment(state_dir, ready))
            from trainmaster.wiring.core_services import job_log
            from trainmaster.wiring.fleet import fleet_deps
            from trainmaster.wiring.objects import objects

            control.connect(objects(), fleet_deps(), job_log(), ready.endpoints.storage, ready.config.bucket)
            yield RunningStack(ready, control.store, fleet_deps().fleet, objects())
    finally:
        control.close()
