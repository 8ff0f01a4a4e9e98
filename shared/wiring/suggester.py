"""Optuna: only `tune` chooses hyperparameters."""

from __future__ import annotations

from functools import cache

from shared.ports import Suggester
from shared.suggesters.optuna_suggester import OptunaSuggester


@cache
def suggester() -> Suggester:
    return OptunaSuggester()
