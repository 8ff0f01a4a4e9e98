"""The stack on which `trainmaster local run` runs an example job.

The VMs are processes of this machine in any case. The control plane (functions, Firestore, Pub/Sub)
runs on Google's emulators or, where these cannot run, in this process with adapters in memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from trainmaster.ports import Fleet, Objects, Store
from trainmaster_emulators.process.stack_config import StackConfig
from trainmaster_emulators.process.state import StackState
from trainmaster_emulators.stack import client_configuration, stack


@dataclass(frozen=True, slots=True)
class RunningStack:
    """A stack that is ready, and the adapters that read its state."""

    state: StackState
    store: Store
    fleet: Fleet
    objects: Objects


@contextmanager
def example_stack(
    state_dir: Path, config: StackConfig, *, in_memory: bool
) -> Iterator[RunningStack]:
    """Start a stack; stop it at the end of the `with` block.

    `settings()`, which the adapters use, reads the environment once; so that is set first. Google's
    clients take seconds to import, which `--help` and a wrong argument need not wait for.
    """
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
