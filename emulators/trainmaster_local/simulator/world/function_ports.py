"""The ports of a simulated function invocation, and the faults that their calls may have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from trainmaster.errors import PermanentError, TemporaryError


class FunctionCrashed(BaseException):
    """The function instance ended in the middle of an invocation.

    Not an Exception, so that no flow catches it.
    """


class InterceptedPort:
    """A port whose calls all go through `intercept(name, call)`, which decides whether and when
    `call` is applied.
    """

    def __init__(self, port: object, intercept: Callable[[str, partial[Any]], Any]) -> None:
        self._port = port
        self._intercept = intercept

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._port, name)
        return lambda *args, **kwargs: self._intercept(name, partial(method, *args, **kwargs))


class SimAddressBook:
    """Adapter of `trainmaster.ports.AddressBook`: names and zones stand for addresses.

    `address`: where a replica's cluster reaches it. `channel_address`: where other agents do.
    """

    def address(self, name: str, zone: str) -> str:
        """Return the `host:port` at which the other replicas reach the VM of this name."""
        return f"{name}.{zone}:2222"

    def channel_address(self, name: str, zone: str) -> str:
        """Return the `host:port`, of UDP, at which the agents of the other replicas reach the agent
        of this VM.
        """
        return f"{name}.{zone}:2221"


def run_sequentially(tasks: Sequence[Callable[[], None]]) -> None:
    """Run all tasks to their end, then raise the first error: what `provision.in_threads` promises,
    without threads.
    """
    first: Exception | None = None
    for task in tasks:
        try:
            task()
        except (TemporaryError, PermanentError) as error:
            first = first or error
    if first:
        raise first
