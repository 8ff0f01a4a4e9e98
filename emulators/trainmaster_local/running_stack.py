"""The local stack that runs now, for the commands of `trainmaster`, which import nothing else here.

Its interface is `trainmaster.cli.local_distribution.RunningStack`.
"""

from __future__ import annotations

from trainmaster.errors import PermanentError
from trainmaster_emulators.process import state_dirs
from trainmaster_emulators.services.fault_client import FaultClient
from trainmaster_emulators.stack import stack


def environment(*, must_be_named: bool) -> dict[str, str]:
    """Return the environment variables of the running stack.

    `must_be_named`: it does not count if only the working directory names it. Raises PermanentError
    if none runs.
    """
    state_dir = state_dirs.find_state_dir(given=None)
    if must_be_named and not state_dirs.is_named_by_user(state_dir):
        raise PermanentError(f"{state_dir} is not the state of the last `trainmaster local up`")
    running = stack.find(state_dir)
    # Imports the emulators' servers: where no stack runs, commands need none of that.
    from trainmaster_emulators.stack import client_configuration

    return client_configuration.environment(state_dir, running, creates_vms=False)


def init_process(vm: str, host: int) -> int:
    """Return the process id of the first process of a VM, or of a host of a TPU node."""
    client = FaultClient(stack.find(state_dirs.find_state_dir(given=None)))
    return int(client.processes(vm, host)["init"])
