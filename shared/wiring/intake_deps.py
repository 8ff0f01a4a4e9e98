"""The adapters of the functions that accept jobs: they also look up what a job names."""

from __future__ import annotations

from dataclasses import replace

from shared.flows.record import Deps
from shared.ports import Objects, Resources
from shared.wiring import core_services


def intake_deps() -> Deps:
    return replace(core_services.deps(), objects=_objects, resources=_resources)


def _objects() -> Objects:
    from shared.wiring.objects import objects  # a quarter of a second, which only calls that create jobs pay

    return objects()


def _resources() -> Resources:
    from shared.wiring.resources import resources

    return resources()
