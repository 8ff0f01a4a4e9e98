"""Injected faults of the whole project, set through `POST /emulator/v1/faults`."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from enum import Enum, auto
from typing import Any, Final

from trainmaster.simulator.weather import Climate, Weather
from trainmaster_emulators.machines.api_errors import ApiError, Json, rate_limited

ALL_ZONES: Final = "-"


@dataclass(frozen=True, slots=True)
class InjectedFaults:
    """The faults in effect."""

    stockout_zones: tuple[str, ...] = ()
    """Zones without capacity."""
    quota_regions: tuple[str, ...] = ()
    """Regions in which the project's quota is exhausted."""
    machine_limits: Mapping[str, int] = field(default_factory=dict)
    """Machine type → number of VMs for which each zone has capacity."""
    slow_s: float = 0.0
    """Delay added to every change of state."""
    rate_limited: int = 0
    """How many of the next API calls get a rate-limit error."""
    unfit_zones: tuple[str, ...] = ()
    """Zones in which new VMs with GPUs have lost one: the VM's kernel log has an Xid."""
    unreachable_zones: tuple[str, ...] = ()
    """Zones that Google's services cannot reach. Their VMs run, but calls about them fail, and lists lack them."""
    strict_lists: bool = False
    """Whether a list of all zones fails while a zone is unreachable, instead of naming the zone."""
    refused_calls: tuple[str, ...] = ()
    """Calls without permission, by their names in `compute.server` and `tpu.server`, such as `bulk_insert`."""
    disabled_apis: tuple[str, ...] = ()
    """`compute`, `tpu`."""
    weather: Mapping[str, Any] | None = None
    """Seed and climate of `trainmaster.simulator.weather`, which begins when it is set; None: no weather."""


class Trouble(Enum):
    """Why an injected fault fails a call."""

    DISABLED = auto()
    REFUSED = auto()
    UNREACHABLE = auto()


def parse_injected_faults(body: Json) -> InjectedFaults:
    """Return the requested faults. Faults that the body does not contain are off. Raises ApiError (400)."""
    unknown = set(body) - {known.name for known in fields(InjectedFaults)}
    if unknown:
        raise ApiError(400, "invalid", f"Unknown faults: {', '.join(sorted(unknown))}")
    try:
        return InjectedFaults(
            stockout_zones=_names(body.get("stockout_zones", ())),
            quota_regions=_names(body.get("quota_regions", ())),
            machine_limits=_limits(body.get("machine_limits", {})),
            slow_s=float(body.get("slow_s", 0)),
            rate_limited=int(body.get("rate_limited", 0)),
            unfit_zones=_names(body.get("unfit_zones", ())),
            unreachable_zones=_names(body.get("unreachable_zones", ())),
            strict_lists=bool(body.get("strict_lists", False)),
            refused_calls=_names(body.get("refused_calls", ())),
            disabled_apis=_names(body.get("disabled_apis", ())),
            weather=_weather(body.get("weather")),
        )
    except (TypeError, ValueError) as error:
        raise ApiError(400, "invalid", f"Invalid fault value: {error}") from error


def _names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(name, str) for name in value):
        raise ValueError(f"{value!r} must be a list of names")
    return tuple(value)


def _limits(value: Any) -> dict[str, int]:
    if not isinstance(value, dict) or not all(type(limit) is int and limit >= 0 for limit in value.values()):
        raise ValueError(f"{value!r} must be a table from machine types to numbers of VMs")
    return dict(value)


def _weather(value: Any) -> dict[str, Any] | None:
    if value is None:
        return None
    is_known = isinstance(value, dict) and set(value) == {"seed", "climate"} and type(value["seed"]) is int
    if not is_known or value["climate"] not in list(Climate):
        raise ValueError(f'weather: {value!r} must be {{"seed": NUMBER, "climate": one of {", ".join(Climate)}}}')
    return dict(value)


class FaultInjector:
    """Holds the faults in effect. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = InjectedFaults()
        self.weather: Weather | None = None
        self._began = 0.0

    @property
    def now(self) -> InjectedFaults:
        with self._lock:
            return self._now

    def set(self, faults: InjectedFaults) -> None:
        with self._lock:
            if faults.weather != self._now.weather:
                self.weather = Weather(**faults.weather) if faults.weather else None
                self._began = time.monotonic()
            self._now = faults

    @property
    def weather_s(self) -> float:
        return time.monotonic() - self._began

    def admit_call(self) -> None:
        """Count an API call. Raises ApiError while calls are rate limited."""
        with self._lock:
            if self._now.rate_limited <= 0:
                return
            self._now = replace(self._now, rate_limited=self._now.rate_limited - 1)
        raise rate_limited()

    def trouble(self, api: str, call: str, zone: str | None) -> Trouble | None:
        """Return why the call fails; None: it does not. The zone `-` means all zones; None: the call has no zone."""
        faults = self.now
        if api in faults.disabled_apis:
            return Trouble.DISABLED
        if call in faults.refused_calls:
            return Trouble.REFUSED
        is_failing = zone in faults.unreachable_zones or (
            zone == ALL_ZONES and faults.strict_lists and bool(faults.unreachable_zones)
        )
        return Trouble.UNREACHABLE if is_failing else None

    def as_json(self) -> Json:
        return asdict(self.now)
