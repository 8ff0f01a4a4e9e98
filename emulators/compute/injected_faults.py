"""What the emulated cloud is short of: switched on and off as a whole through `POST /emulator/v1/faults`."""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from emulators.compute.api_errors import ApiError, Json, rate_limited


@dataclass(frozen=True, slots=True)
class InjectedFaults:
    """`stockout_zones` have no capacity; in `quota_regions` the project's quota is used up; `slow_s` is added to every
    change of state; the next `rate_limited` calls of the Compute API are answered with 403 rateLimitExceeded."""

    stockout_zones: tuple[str, ...] = ()
    quota_regions: tuple[str, ...] = ()
    slow_s: float = 0.0
    rate_limited: int = 0


def parse_injected_faults(body: Json) -> InjectedFaults:
    """All faults anew: what is not named is off."""
    unknown = set(body) - {each.name for each in fields(InjectedFaults)}
    if unknown:
        raise ApiError(400, "invalid", f"Unknown faults: {', '.join(sorted(unknown))}")
    try:
        return InjectedFaults(
            stockout_zones=_names(body.get("stockout_zones", ())),
            quota_regions=_names(body.get("quota_regions", ())),
            slow_s=float(body.get("slow_s", 0)),
            rate_limited=int(body.get("rate_limited", 0)),
        )
    except (TypeError, ValueError) as error:
        raise ApiError(400, "invalid", f"InjectedFaults are lists of names and numbers: {error}") from error


def _names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(name, str) for name in value):
        raise ValueError(f"{value!r} is no list of names")
    return tuple(value)


class FaultInjector:
    """The current faults, shared by all threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = InjectedFaults()

    @property
    def now(self) -> InjectedFaults:
        with self._lock:
            return self._now

    def post(self, faults: InjectedFaults) -> None:
        with self._lock:
            self._now = faults

    def admit_call(self) -> None:
        """Every call of the Compute API passes here: raises while calls are rate limited, and counts them down."""
        with self._lock:
            if self._now.rate_limited <= 0:
                return
            self._now = replace(self._now, rate_limited=self._now.rate_limited - 1)
        raise rate_limited()

    def as_json(self) -> Json:
        return asdict(self.now)
