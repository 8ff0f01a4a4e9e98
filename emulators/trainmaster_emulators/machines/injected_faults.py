"""Injected faults of the whole project, set through `POST /emulator/v1/faults`."""

from __future__ import annotations

import threading
import time
from enum import Enum, auto
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trainmaster_emulators.machines.compute_errors import ApiError, Json, rate_limited
from trainmaster_local.simulator.weather import Climate, Weather

ALL_ZONES: Final = "-"


class SeededWeather(BaseModel):
    """Seed and climate of a `Weather`: capacity for VMs that varies over time."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: Annotated[int, Field(strict=True)]
    climate: Climate


class InjectedFaults(BaseModel):
    """The faults in effect."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    stockout_zones: tuple[str, ...] = ()
    """Zones without capacity."""
    quota_regions: tuple[str, ...] = ()
    """Regions in which the project's quota is exhausted."""
    machine_limits: dict[str, Annotated[int, Field(ge=0, strict=True)]] = {}
    """Machine type → number of VMs for which each zone has capacity."""
    slow_s: float = 0.0
    """Delay added to every change of state."""
    rate_limited: int = 0
    """Number of the next API calls, all of which get a rate-limit error."""
    unfit_zones: tuple[str, ...] = ()
    """Zones in which new VMs with GPUs have lost one: the VM's kernel log has an Xid."""
    unreachable_zones: tuple[str, ...] = ()
    """Zones that Google's services cannot reach.

    Their VMs run, but calls about them fail, and lists lack them.
    """
    strict_lists: bool = False
    """Whether a list of all zones fails while a zone is unreachable, instead of naming the zone."""
    refused_calls: tuple[str, ...] = ()
    """Calls without permission, by their names in `compute.server` and `tpu.server`, such as
    `bulk_insert`.
    """
    disabled_apis: tuple[str, ...] = ()
    """`compute`, `tpu`."""
    weather: SeededWeather | None = None
    """It begins when it is set, and goes on with the clock."""


class CallFault(Enum):
    """Why an injected fault fails a call."""

    DISABLED = auto()
    REFUSED = auto()
    UNREACHABLE = auto()


def parse_injected_faults(body: Json) -> InjectedFaults:
    """Return the requested faults.

    Faults that the body does not contain are off. Raises ApiError (400).
    """
    try:
        return InjectedFaults.model_validate(body)
    except ValidationError as error:
        problems = (
            f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in error.errors()
        )
        raise ApiError(400, "invalid", f"Invalid faults: {'; '.join(problems)}") from None


class FaultInjector:
    """Holds the faults in effect. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = InjectedFaults()
        self.weather: Weather | None = None
        self._began = 0.0

    @property
    def now(self) -> InjectedFaults:
        """The faults in effect."""
        with self._lock:
            return self._now

    def set(self, faults: InjectedFaults) -> None:
        """Replace the faults in effect.

        Weather that differs from the one in effect starts at its first second.
        """
        with self._lock:
            if faults.weather != self._now.weather:
                self.weather = (
                    Weather(faults.weather.seed, faults.weather.climate) if faults.weather else None
                )
                self._began = time.monotonic()
            self._now = faults

    @property
    def weather_s(self) -> float:
        """Seconds since the weather began."""
        return time.monotonic() - self._began

    def admit_call(self) -> None:
        """Count an API call. Raises ApiError while calls are rate limited."""
        with self._lock:
            if self._now.rate_limited <= 0:
                return
            self._now = self._now.model_copy(update={"rate_limited": self._now.rate_limited - 1})
        raise rate_limited()

    def fault_of(self, api: str, call: str, zone: str | None) -> CallFault | None:
        """Return why the call fails; None: it does not.

        `zone`: `-` means all zones; None: the call has no zone.
        """
        faults = self.now
        if api in faults.disabled_apis:
            return CallFault.DISABLED
        if call in faults.refused_calls:
            return CallFault.REFUSED
        if zone in faults.unreachable_zones:
            return CallFault.UNREACHABLE
        if zone == ALL_ZONES and faults.strict_lists and faults.unreachable_zones:
            return CallFault.UNREACHABLE
        return None

    def as_json(self) -> Json:
        return self.now.model_dump(mode="json")
