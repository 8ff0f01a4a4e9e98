"""The fuse of a TPU node. A VM has one from Compute Engine, Cloud TPU knows none: so its hosts delete it themselves.

It burns once the job can no longer need the node, whether there is a control plane then or not. The moment is counted
from the first start of the agent and kept on the disk: a reboot does not put it off.
docs/decisions/0012-tpu-nodes.md.
"""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import TYPE_CHECKING

from shared.agent.http.calls import HttpError, backoffs

if TYPE_CHECKING:
    from collections.abc import Callable

    from shared.agent.control.workspace import Place
    from shared.agent.http.metadata_server import Google

CALL_S = 30.0
RETRY_FIRST_S = 5.0
RETRY_MAX_S = 600.0


class Fuse:
    """``node``: its full resource name. ``sleep`` and ``now`` in seconds."""

    def __init__(
        self,
        node: str,
        after_s: float,
        tpu: Google,
        place: Place,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._node = node
        self._after_s = after_s
        self._tpu = tpu
        self._place = place
        self._sleep = sleep
        self._now = now

    def burn(self) -> None:
        """Blocks until the moment, then until the node is gone, and this host with it."""
        self._sleep(max(0.0, self._moment() - self._now()))
        self._place.say(f"The job can no longer need {self._node}: deleting it.")
        for wait in backoffs(RETRY_MAX_S, RETRY_FIRST_S):
            try:
                self._tpu.call(f"/v2/{self._node}", timeout=CALL_S, method="DELETE")
            except HttpError as error:
                if error.status == HTTPStatus.NOT_FOUND:
                    return
                self._place.say(f"It is not being deleted ({error}); trying again in {wait:.0f} s.")
            self._sleep(wait)

    def _moment(self) -> float:
        file = self._place.work / "fuse"
        try:
            return float(file.read_text())
        except (OSError, ValueError):  # the first start, or one that ended while it wrote
            moment = self._now() + self._after_s
            file.write_text(str(moment))
            return moment
