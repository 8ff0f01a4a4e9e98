"""Choosing the parameter values of a tuning job's trials."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from trainmaster.core.model.tuning import Tuning


class Suggester(Protocol):
    """The search algorithm of a tuning job. Both methods are deterministic."""

    def suggest(self, tuning: Tuning, seed: str) -> tuple[str, ...]:
        """Return the values of the next trial: one per parameter, in the order of `tuning.parameters`.

        Every value is within the range or list of its parameter. The same tuning job and seed give the same values.
        In a finite search space no combination repeats, neither of a past trial nor of a running one.
        """
        ...

    def find_unpromising(self, tuning: Tuning) -> Mapping[int, str]:
        """Return the running trials to stop by the rule `tuning.stopping`: their numbers, each with the values that
        were compared, in words. Empty without such a rule.
        """
        ...
