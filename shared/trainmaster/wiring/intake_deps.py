"""The adapters of the functions that accept jobs: they also look up what a job names."""

from __future__ import annotations

from dataclasses import replace

from trainmaster.flows.job_creation.deps import CreationDeps
from trainmaster.ports import Objects, Resources
from trainmaster.wiring import core_services


def intake_deps() -> CreationDeps:
    return replace(core_services.creation_deps(), objects=_objects, resources=_resources)


def _objects() -> Objects:
    from trainmaster.wiring.objects import objects  # a quarter of a second, which only calls that create jobs pay

    return objects()


def _resources() -> Resources:
    from trainmaster.wiring.resources import resources

    return resources()
