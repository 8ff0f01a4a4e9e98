"""Advice of Compute Engine about the capacity for Spot VMs: `advice.capacity`.

A response scores all that its request selects, so each zone and role is a request of its own.
Source of the scores: "View the availability of Spot VMs". Advice is optional: no error of these
calls fails a job.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Final

from google.cloud import compute_v1

from trainmaster.core.model.capacity import machine_kind
from trainmaster.core.model.plan import TaskGroup
from trainmaster.core.timeouts import ADVICE_KEPT, ADVICE_REFUSED
from trainmaster.errors import PermanentError, RefusedError, TemporaryError
from trainmaster.gcp import clients
from trainmaster.gcp.compute_fleet.errors import compute_errors
from trainmaster.gcp.compute_fleet.hardware import accelerators

AT_ONCE: Final = 24
CALL_S: Final = 5.0
"""Deadline of one call. It is not repeated: a job waits for it."""
SHORT_UPTIME: Final = "60s"
"""Most VMs are expected to be preempted within ten minutes: the next value is 600 s."""
SHORT_UPTIME_CHANCE: Final = 0.1

_log = logging.getLogger(__name__)


class CapacityAdvisor:
    """See `trainmaster.ports.Advisor`. `endpoint` empty: Google's.

    This process keeps all answers, also that there is none: waiting jobs ask the same each minute.
    """

    def __init__(self, project: str, *, endpoint: str = "") -> None:
        self._advice = clients.rest_client(compute_v1.AdviceClient, endpoint)
        self._project = project
        self._kept: dict[tuple[str, str, int], tuple[datetime, float | None]] = {}
        """Zone, kind and number of VMs → until when the answer is kept, and the chance."""

    def advise(
        self, requests: Sequence[tuple[str, TaskGroup]], now: datetime
    ) -> dict[tuple[str, str], float]:
        """Several roles of one kind have the chance of the largest."""
        wanted = {
            (zone, machine_kind(group, spot=True), group.count): group for zone, group in requests
        }
        kept = {key: answer for key, answer in self._kept.items() if answer[0] > now}
        asked = wanted.keys() - kept.keys()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            kept |= zip(
                asked, pool.map(lambda key: self._ask(key[0], wanted[key], now), asked), strict=True
            )
        self._kept = kept
        by_count = sorted(wanted, key=lambda key: key[2])
        return {key[:2]: chance for key in by_count if (chance := kept[key][1]) is not None}

    def _ask(self, zone: str, group: TaskGroup, now: datetime) -> tuple[datetime, float | None]:
        selection = {
            "machine_types": [group.machine_type],
            "guest_accelerators": accelerators(group),
        }
        question = {
            "size": group.count,
            "distribution_policy": {
                "target_shape": "ANY_SINGLE_ZONE",
                "zones": [{"zone": f"zones/{zone}"}],
            },
            "instance_flexibility_policy": {"instance_selections": {"replicas": selection}},
            "instance_properties": {"scheduling": {"provisioning_model": "SPOT"}},
        }
        request = {
            "project": self._project,
            "region": zone.rpartition("-")[0],
            "capacity_advice_request_resource": question,
        }
        try:
            with compute_errors(f"ask for advice on capacity in {zone}"):
                response = self._advice.capacity(request, retry=None, timeout=CALL_S)
        except (TemporaryError, PermanentError) as error:
            kept = (
                ADVICE_REFUSED if isinstance(error, (PermanentError, RefusedError)) else ADVICE_KEPT
            )
            _log.info("not again for %s: %s", kept, error)
            return now + kept, None
        scores = [one.scores for one in response.recommendations if "obtainability" in one.scores]
        return now + ADVICE_KEPT, max(map(_chance, scores), default=None)


def _chance(scores: compute_v1.CapacityAdviceResponseRecommendationScores) -> float:
    return (
        SHORT_UPTIME_CHANCE
        if scores.estimated_uptime == SHORT_UPTIME
        else min(max(scores.obtainability, 0.0), 1.0)
    )
