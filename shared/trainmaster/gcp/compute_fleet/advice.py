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
from typing import Final, NamedTuple

from google.cloud import compute_v1

from trainmaster.core.model.capacity import machine_kind
from trainmaster.core.model.task_group import TaskGroup
from trainmaster.core.timeouts import ADVICE_KEPT, ADVICE_REFUSED
from trainmaster.errors import PermanentError, RefusedError, TemporaryError
from trainmaster.gcp import clients
from trainmaster.gcp.compute_fleet.errors import compute_errors
from trainmaster.gcp.compute_fleet.hardware import accelerators
from trainmaster.gcp.compute_fleet.purchase_requests import purchase_request

AT_ONCE: Final = 24
"""Most calls that run at the same time."""
CALL_S: Final = 5.0
"""Deadline of one call. It is not repeated: a job waits for it."""
SHORT_UPTIME: Final = "60s"
"""The shortest estimate of the uptime. The next one is 600 s, so most VMs are expected to be
preempted within ten minutes.
"""
SHORT_UPTIME_CHANCE: Final = 0.1
"""The chance that stands for such an estimate."""

_log = logging.getLogger(__name__)


class _Question(NamedTuple):
    zone: str
    kind: str
    """Type of the machines and their GPUs, in words (`machine_kind`)."""
    vm_count: int


class _Answer(NamedTuple):
    kept_until: datetime
    chance: float | None
    """From 0 to 1; None: there is no advice."""


class CapacityAdvisor:
    """Compute Engine's advice about the capacity for Spot VMs. No error of Google is raised.

    Adapter of `trainmaster.ports.Advisor`. `endpoint` empty: Google's.

    Answers are cached in this process, also the answer that there is no advice: waiting jobs ask
    the same questions each minute.
    """

    def __init__(self, project: str, *, endpoint: str = "") -> None:
        self._advice = clients.rest_client(compute_v1.AdviceClient, endpoint)
        self._project = project
        self._kept: dict[_Question, _Answer] = {}

    def advise(
        self, requests: Sequence[tuple[str, TaskGroup]], now: datetime
    ) -> dict[tuple[str, str], float]:
        """Return the chance, from 0 to 1, that Spot VMs of these roles can be created: by zone and
        kind of machine. Those about which Google gives no advice are missing.

        `requests`: zones and roles. If several roles of a job have the same kind of machines, the
        chance is that of the role with the most VMs.
        """
        questions = {
            _Question(zone, machine_kind(group, group.purchase.price), group.count): group
            for zone, group in requests
        }
        kept = {
            question: answer for question, answer in self._kept.items() if answer.kept_until > now
        }
        new = list(questions.keys() - kept.keys())
        with ThreadPoolExecutor(AT_ONCE) as pool:
            answers = pool.map(lambda question: self._ask(question, questions[question], now), new)
            kept.update(zip(new, answers, strict=True))
        self._kept = kept
        chances: dict[tuple[str, str], float] = {}
        for question in sorted(questions, key=lambda question: question.vm_count):
            chance = kept[question].chance
            if chance is not None:  # a larger role of the same kind replaces it
                chances[question.zone, question.kind] = chance
        return chances

    def _ask(self, question: _Question, group: TaskGroup, now: datetime) -> _Answer:
        """Return Google's advice about the role's VMs; an error counts as no advice."""
        zone = question.zone
        purchase = purchase_request(group.purchase.price, group.machine_type)
        selection = {
            "machine_types": [group.machine_type],
            "guest_accelerators": accelerators(group),
        }
        wanted = {
            "size": question.vm_count,
            "distribution_policy": {
                "target_shape": "ANY_SINGLE_ZONE",
                "zones": [{"zone": f"zones/{zone}"}],
            },
            "instance_flexibility_policy": {"instance_selections": {"replicas": selection}},
            "instance_properties": {
                "scheduling": {"provisioning_model": purchase.provisioning_model}
            },
        }
        request = {
            "project": self._project,
            "region": zone.rpartition("-")[0],
            "capacity_advice_request_resource": wanted,
        }
        try:
            with compute_errors(f"ask for advice on capacity in {zone}"):
                response = self._advice.capacity(request, retry=None, timeout=CALL_S)
        except (TemporaryError, PermanentError) as error:
            is_refused = isinstance(error, (PermanentError, RefusedError))
            kept_for = ADVICE_REFUSED if is_refused else ADVICE_KEPT
            _log.info("not again for %s: %s", kept_for, error)
            return _Answer(now + kept_for, chance=None)
        scores = [recommendation.scores for recommendation in response.recommendations]
        chances = [_chance(score) for score in scores if "obtainability" in score]
        return _Answer(now + ADVICE_KEPT, max(chances, default=None))


def _chance(scores: compute_v1.CapacityAdviceResponseRecommendationScores) -> float:
    """Return the chance, from 0 to 1, that Spot VMs are created and stay for a while."""
    if scores.estimated_uptime == SHORT_UPTIME:
        return SHORT_UPTIME_CHANCE
    return min(max(scores.obtainability, 0.0), 1.0)
