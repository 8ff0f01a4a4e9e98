"""Deleting a TPU node when its job can no longer need it, even if the control plane is gone.

Compute Engine deletes a VM after its maximum run duration. Cloud TPU has no such limit, so the
hosts of a node delete it themselves. The deadline counts from the first start of the agent and is
kept on the disk: a reboot does not postpone it. docs/decisions/0012-tpu-nodes.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from http import HTTPStatus

from trainmaster.agent.google_http.google_api import GoogleApi
from trainmaster.agent.google_http.http_call import HttpError, backoffs
from trainmaster.agent.workspace import Workspace

CALL_S = 30.0  # timeout of one call
RETRY_FIRST_S = 5.0  # wait before the second call
RETRY_MAX_S = 600.0  # longest wait between two calls


class SelfDelete:
    """The deletion of the node that this host belongs to. Start `run` in a thread of its own."""

    def __init__(
        self,
        node: str,
        after_s: float,
        tpu: GoogleApi,
        workspace: Workspace,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`node`: full resource name. `after_s`: time from the agent's first start to the deadline.
        `now` returns the seconds since 1970.
        """
        self._node = node
        self._after_s = after_s
        self._tpu = tpu
        self._workspace = workspace
        self._sleep = sleep
        self._now = now

    def run(self) -> None:
        """Wait for the deadline, then delete the node.

        Return when it is gone; this host is gone by then.
        """
        self._sleep(max(0.0, self._deadline() - self._now()))
        self.delete()

    def delete(self) -> None:
        """Delete the node now. Return when it is gone."""
        self._workspace.log(f"The job can no longer need {self._node}: deleting it.")
        for wait in backoffs(RETRY_MAX_S, RETRY_FIRST_S):
            try:
                self._tpu.call(f"/v2/{self._node}", timeout=CALL_S, method="DELETE")
            except HttpError as error:
                if error.status == HTTPStatus.NOT_FOUND:
                    return
                self._workspace.log(
                    f"Deleting {self._node} failed ({error}); trying again in {wait:.0f} s."
                )
            self._sleep(wait)

    def _deadline(self) -> float:
        """Return the stored deadline, in seconds since 1970; choose and store one if there is
        none.
        """
        file = self._workspace.work / "delete_at"
        try:
            return float(file.read_text())
        except (OSError, ValueError):
            # The first start, or an earlier agent was killed while it wrote the file.
            deadline = self._now() + self._after_s
            file.write_text(str(deadline))
            return deadline
