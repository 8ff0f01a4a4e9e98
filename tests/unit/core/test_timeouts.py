"""The values of all windows and thresholds.

Other tests check both edges of each rule, in terms of these constants.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from trainmaster.core import timeouts

SECONDS = {
    "STARTUP_TIMEOUT_S": 1_200,
    "TAKE_TIMEOUT_S": 180,
    "CHAIN_S": 86_400,
    "SETUP_MAX_S": 10_800,
    "AGENT_TIMEOUT": 900,
    "HELD_AGENT_TIMEOUT": 300,
    "ALL_AGENTS_TIMEOUT": 3_600,
    "REFUSED_MAX": 3_600,
    "ADVICE_KEPT": 600,
    "ADVICE_REFUSED": 3_600,
    "ADVICE_DOUBTED": 1_800,
    "USEFUL_LIFE_MIN": 600,
    "EXCUSE_MAX": 120,
    "GROWTH_MIN": 600,
    "PARTIAL_GANG_WAIT_MAX_S": 900,
    "PROVISIONING_MAX_S": 604_800,
    "FAST_RETRIES": 3_600,
    "RETRY_MIN": 50,
    "OLD_POINT": 80,
    "OLD_HEARTBEAT": 75,
    "SERIES_MEMORY": 1_200,
    "BOOT_MAX": 300,
    "RETRY_MAX": 900,
    "CAPACITY_FRESH": 40,
    "CAPACITY_HALF_LIFE": 5_400,
    "HISTORY_KEPT": 2_592_000,
    "FUSE_SLACK_S": 3_600,
    "RELEASE_MAX_S": 90,
    "COST_CHECK_MIN_S": 60,
    "COST_RESERVE_S": 150,
    "COST_SAVE_S": 120,
    "UNPAID_S": 60,
    "SAVE_MAX": 600,
}
NUMBERS: dict[str, object] = {
    "HEARTBEATS_READ_MAX": 500,
    "SILENT_JOBS_MAX": 20,
    "WASTED_PER_ZONE": 3,
    "WASTED_MAX": 30,
    "SETUP_PAUSES": (timedelta(minutes=5), timedelta(hours=1)),
    "LIKELY_BUG_FAILURES": 3,
    "CAPACITY_ERRORS_MIN": 100,
    "RETRY_SHARE": 1 / 30,
    "RETRY_JITTER": 0.1,
    "COST_CHECK_SHARE": 0.8,
}


@pytest.mark.parametrize("name", SECONDS)
def test_window_has_its_expected_length(name: str) -> None:
    value = getattr(timeouts, name)
    assert (value.total_seconds() if isinstance(value, timedelta) else value) == SECONDS[name]


@pytest.mark.parametrize("name", NUMBERS)
def test_threshold_has_its_expected_value(name: str) -> None:
    assert getattr(timeouts, name) == NUMBERS[name]


def test_every_window_and_threshold_has_a_value_here() -> None:
    assert {name for name in vars(timeouts) if name.isupper()} == {*SECONDS, *NUMBERS}
