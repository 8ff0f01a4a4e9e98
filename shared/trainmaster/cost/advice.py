"""Advice about a job from its own figures, as `trainmaster advise` prints it. Without enough data
it names what is missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from trainmaster.cost.checkpoint_interval import advise_interval, waste
from trainmaster.cost.checkpoint_times import Listing
from trainmaster.cost.measured_rates import MeasuredRates
from trainmaster.cost.sku import Unknown

INTERRUPTIONS_MIN: Final = 3
"""Fewer interruptions leave their rate unknown by more than a factor of three."""
CHECKPOINTS_MIN: Final = 3
"""Fewer checkpoints do not show how often the job saves."""
SPOT_HOURS_MIN: Final = 10.0
"""Hours of Spot VMs from which on their losses are counted as evidence, even if there were none."""
WORTH_CHANGING: Final = 0.01
"""Share of the time that a change must save to be advised."""
MINUTE_S: Final = 60
HOUR_S: Final = 3_600
SECONDS_BELOW_S: Final = 90
"""Shorter times read better in seconds than in minutes."""


@dataclass(frozen=True, slots=True)
class Advice:
    """One piece of advice, or what is missing for it. The other text is empty."""

    topic: str
    text: str
    missing: str = ""


def checkpoint_advice(
    rates: MeasuredRates, listing: Listing | Unknown | None, save_s: float | None
) -> Advice:
    """Return advice about the checkpoint interval.

    `save_s`: how long saving takes, if the user knows it.
    """
    topic = "checkpoint interval"
    between_s = rates.mean_time_between_s
    if rates.interruptions < INTERRUPTIONS_MIN or between_s is None:
        return Advice(topic, text="", missing=_too_few(rates))
    saving_s = save_s or rates.save_s
    if not saving_s:
        return Advice(
            topic,
            text="",
            missing="how long saving a checkpoint takes: add --save-time, such as 20s",
        )
    optimum = advise_interval(saving_s, rates.running_s, rates.interruptions)
    text = (
        f"save every {_minutes(optimum.interval_s)} ({_minutes(optimum.shortest_s)} to"
        f" {_minutes(optimum.longest_s)}, because {rates.interruptions} interruptions were seen,"
        f" one per {_minutes(between_s)} of work)"
    )
    if isinstance(listing, Unknown):
        return Advice(topic, f"{text}. How often the job saves now is not known: {listing.reason}")
    if rates.checkpoint_s is None or rates.checkpoints < CHECKPOINTS_MIN:
        return Advice(
            topic,
            f"{text}. How often the job saves now is not known: fewer than {CHECKPOINTS_MIN}"
            " checkpoints were found",
        )
    restart_s = rates.restart_s or 0.0
    now = waste(rates.checkpoint_s, saving_s, between_s, restart_s)
    then = waste(optimum.interval_s, saving_s, between_s, restart_s)
    if now - then < WORTH_CHANGING:
        gain = f"the best interval would save {max(now - then, 0.0):.1%} of the time"
        return Advice(topic, f"keep saving every {_minutes(rates.checkpoint_s)}: {gain}")
    gain = f"saving, lost work and restarts then take {then:.0%} of the time instead of {now:.0%}"
    return Advice(topic, f"{text} instead of every {_minutes(rates.checkpoint_s)}: {gain}")


def spot_rate_problem(rates: MeasuredRates) -> str:
    """Return why the loss rate of Spot VMs is not known; empty if it is."""
    if not rates.spot_hours:
        return "Spot VMs: the job had none, so how often they are lost is not known"
    if rates.spot_losses < INTERRUPTIONS_MIN and rates.spot_hours < SPOT_HOURS_MIN:
        needed = f"{INTERRUPTIONS_MIN} losses or {SPOT_HOURS_MIN:.0f} hours are needed"
        seen = f"{rates.spot_losses} losses in {rates.spot_hours:.1f} hours"
        return f"more hours of Spot VMs: {seen} are too few; {needed}"
    return ""


def _too_few(rates: MeasuredRates) -> str:
    """Return what is missing: more interruptions."""
    hours = f"{rates.running_s / HOUR_S:.1f} hours of work"
    return (
        f"interruptions: {rates.interruptions} in {hours} do not show their rate;"
        f" {INTERRUPTIONS_MIN} are needed"
    )


def _minutes(seconds: float) -> str:
    """Return the time as text, in the unit that suits its length: seconds, minutes or hours."""
    if seconds < SECONDS_BELOW_S:
        return f"{seconds:.0f} s"
    if seconds < HOUR_S:
        return f"{seconds / MINUTE_S:.1f} min"
    return f"{seconds / HOUR_S:.1f} h"
