"""Optuna: only `tune` chooses hyperparameters."""

from __future__ import annotations

from functools import cache

from trainmaster.ports import Suggester
from trainmaster.suggesters.optuna_suggester import OptunaSuggester


@cache
def suggester() -> Suggester:
    return OptunaSuggester()
