"""The directive of a VM on Compute Engine: the order of the control plane to the VM's agent, to
hold, run, save or stop an incarnation (one execution) of the program. It is written twice:

metadata    for the agent, which receives it by long polling
label       for the listings, which have no metadata (`trainmaster.gcp.compute_fleet.listing`)

A fingerprint is Compute Engine's version of a VM's metadata or labels: a write with an older one
fails, so no writer overwrites what it has not read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from google.api_core import exceptions
from google.cloud import compute_v1

from trainmaster.core.model.job import Job
from trainmaster.core.model.vm import Directive, Vm
from trainmaster.core.reconcile.steps import HandOver
from trainmaster.gcp.compute_fleet.errors import FLEET_CHANGE, by_id, compute_errors
from trainmaster.gcp.compute_fleet.operations import Operations
from trainmaster.gcp.compute_fleet.properties import items
from trainmaster.gcp.errors import violates_policy
from trainmaster.gcp.retries import FLEET_READ
from trainmaster.gcp.vm_labels import (
    DIRECTIVE_KEY,
    LABEL_DIRECTIVE,
    directive_json,
    directive_label,
    labels,
    parse_directive,
)

SETTLE_S: Final = 3.0
"""Longest wait for one of the two changes."""


class Directives:
    """Writes directives, for `ComputeFleet`. Thread-safe.

    Methods return whether the directive is written. False: the VM has changed since it was listed,
    or is gone; the next reconciliation decides again. They raise TemporaryError for an error of
    Compute Engine that may go away by itself, and RefusedError for any other.
    """

    def __init__(
        self, project: str, instances: compute_v1.InstancesClient, operations: Operations
    ) -> None:
        self._instances = instances
        self._operations = operations
        self._by_id = partial(by_id, instances, project)

    def write(self, vm: Vm, directive: Directive) -> bool:
        """Write the metadata, and the label when the metadata is known to be written.

        If this call ends in between, the label is behind, so the next reconciliation directs the
        VM again, finds the directive in the metadata, and writes the label. If the metadata has a
        later directive than this one, whose label is not written yet, nothing is changed.
        """
        label = {LABEL_DIRECTIVE: directive_label(directive)}
        return self._write_both(
            vm,
            directive,
            {DIRECTIVE_KEY: directive_json(directive)},
            lambda labels: {**labels, **label},
        )

    def hand_over(self, job: Job, hand_over: HandOver, metadata: Mapping[str, str]) -> bool:
        """Give a kept VM to the next job: write its metadata, and then its labels.

        All metadata are written at once, so that no agent sees the directive of one job with the
        configuration of another. The labels of the job before are dropped.
        """
        create = hand_over.create
        own_labels = labels(job, create)
        return self._write_both(hand_over.vm, create.directive, metadata, lambda _: own_labels)

    def _write_both(
        self,
        vm: Vm,
        directive: Directive,
        changes: Mapping[str, str],
        change_labels: Callable[[Mapping[str, str]], Mapping[str, str]],
    ) -> bool:
        """Write the directive, first to the metadata, then to the labels.

        `changes`: metadata to write, the directive among them. `change_labels` returns the new
        labels for the current ones.
        """
        with compute_errors(f"direct {vm.name}"):
            try:
                instance = self._by_id(vm, self._instances.get, **FLEET_READ)
                if instance.metadata.fingerprint != vm.fingerprint:
                    return False
                values = {item.key: item.value for item in instance.metadata.items}
                written = parse_directive(values.get(DIRECTIVE_KEY))
                if written is not None and written.order > directive.order:
                    return False
                if written != directive and not self._write_metadata(vm, {**values, **changes}):
                    return False
                return self._write_labels(vm, instance, change_labels(instance.labels))
            except exceptions.NotFound:
                return False
            except exceptions.PreconditionFailed as error:
                # Compute Engine answers 412 in two cases.
                is_forbidden = violates_policy(str(error))
                if is_forbidden:
                    raise
                return False  # another writer has changed the VM since it was read

    def _write_metadata(self, vm: Vm, values: Mapping[str, str]) -> bool:
        """Write all metadata: the call replaces it.

        The fingerprint makes the call fail if the metadata has changed meanwhile.
        """
        metadata = compute_v1.Metadata(fingerprint=vm.fingerprint, items=items(values))
        return self._change(vm, self._instances.set_metadata_unary, metadata_resource=metadata)

    def _write_labels(
        self, vm: Vm, instance: compute_v1.Instance, changed: Mapping[str, str]
    ) -> bool:
        request = compute_v1.InstancesSetLabelsRequest(
            label_fingerprint=instance.label_fingerprint, labels=dict(changed)
        )
        return self._change(
            vm, self._instances.set_labels_unary, instances_set_labels_request_resource=request
        )

    def _change(self, vm: Vm, call: Callable[..., compute_v1.Operation], **options: object) -> bool:
        """Change the VM with this call. Return whether the change has succeeded."""
        operation = self._by_id(vm, call, **options, **FLEET_CHANGE)
        finished = self._operations.in_zone(vm.zone, operation, SETTLE_S)
        return finished is not None and not finished.error.errors
