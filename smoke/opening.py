"""Open the ports of an installation that environment variables describe."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from unittest import mock

from smoke.world import ProcessCommands, World
from trainmaster.gcp import clients
from trainmaster.gcp.compute_fleet import ComputeFleet
from trainmaster.gcp.compute_fleet.advice import CapacityAdvisor
from trainmaster.gcp.firestore.store import FirestoreStore
from trainmaster.gcp.monitoring_metrics import MonitoringMetrics
from trainmaster.gcp.storage_objects import StorageObjects
from trainmaster.gcp.vm_defaults import VmDefaults

OPERATION_S: Final = 5.0


@contextmanager
def opened_world(
    variables: Mapping[str, str],
    region: str,
    image: str,
    *,
    second_region: str,
    is_local: bool,
    report: Callable[[str], None],
) -> Iterator[World]:
    """Yield the world of the installation that the variables describe.

    They are set while the block runs.
    """
    with mock.patch.dict(os.environ, variables), tempfile.TemporaryDirectory() as packages:
        project = variables["TRAINMASTER_PROJECT"]
        store = FirestoreStore(clients.firestore_client(project))
        objects = StorageObjects(clients.storage_client())
        endpoint = variables.get("TRAINMASTER_COMPUTE_ENDPOINT", "")
        metrics = MonitoringMetrics(project, variables.get("TRAINMASTER_MONITORING_ENDPOINT", ""))
        fleet = ComputeFleet(VmDefaults(project), endpoint=endpoint, wait_s=OPERATION_S)
        try:
            yield World(
                project=project,
                region=region,
                bucket=variables["TRAINMASTER_BUCKET"],
                run=ProcessCommands(variables),
                store=store,
                fleet=fleet,
                advisor=CapacityAdvisor(project, endpoint=endpoint),
                objects=objects,
                metrics=metrics,
                packages=Path(packages),
                container_image=image,
                api=variables["TRAINMASTER_API_ENDPOINT"],
                second_region=second_region,
                is_local=is_local,
                report=report,
            )
        finally:
            metrics.close()
            fleet.close()
            store.close()
            objects.close()
