"""What a job may say in the services' languages and Trainmaster does not do. Deleting a row serves the feature.

Checked on the typed job, so that what is absent in the services' sense (an unspecified enum, a zero) is no request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from shared.jobspec.formats.base_model import Wire
from shared.jobspec.reading.problems import Findings, Loc


@dataclass(frozen=True, slots=True)
class NotYet:
    """`place` is a glob over canonical paths; `asks` whether a value there asks for the feature."""

    place: str
    what: str
    instead: str
    example: str
    asks: Callable[[object], bool] = bool


_LEAVE_OUT: Final = "leave it out"
_POOL: Final = "jobSpec.workerPoolSpecs.*"
_AFFINITY: Final = f"{_POOL}.machineSpec.reservationAffinity.reservationAffinityType"

NOT_YET: Final = (
    NotYet("studySpec.parameters.*.conditionalParameterSpecs", "conditional parameters", "list them all", _LEAVE_OUT),
    NotYet("studySpec.metrics.*.safetyConfig", "a safety metric", "trials are compared by one metric", _LEAVE_OUT),
    NotYet("studySpec.studyStoppingConfig", "a study that stops itself", "set maxTrialCount", _LEAVE_OUT),
    NotYet("*.enableWebAccess", "an interactive shell", "use gcloud compute ssh", "enableWebAccess: false"),
    NotYet("*.enableDashboardAccess", "a dashboard", "use gcloud compute ssh with a port", _LEAVE_OUT),
    NotYet("jobSpec.persistentResourceId", "a persistent resource", "every job has its own VMs", _LEAVE_OUT),
    NotYet("jobSpec.reservedIpRanges", "reserved IP ranges", "VMs have addresses of their network", _LEAVE_OUT),
    NotYet("jobSpec.pscInterfaceConfig", "a Private Service Connect interface", "name the network", _LEAVE_OUT),
    NotYet(
        "jobSpec.tensorboard",
        "a managed TensorBoard",
        "point TensorBoard at the logs in Cloud Storage",
        'baseOutputDirectory: {outputUriPrefix: "gs://my-bucket/digits"}',
    ),
    NotYet("jobSpec.experiment*", "Vertex AI Experiments", "log to them from the program", _LEAVE_OUT),
    NotYet("jobSpec.models", "a mapping of models", "pass their paths as arguments", _LEAVE_OUT),
    NotYet("jobSpec.protectedArtifactLocationId", "protected artifacts", _LEAVE_OUT, _LEAVE_OUT),
    NotYet(f"{_POOL}.nfsMounts", "an NFS mount", "read from Cloud Storage", _LEAVE_OUT),
    NotYet(f"{_POOL}.lustreMounts", "a Lustre mount", "read from Cloud Storage", _LEAVE_OUT),
    NotYet(f"{_POOL}.machineSpec.gpuPartitionSize", "a part of a GPU", "ask for a smaller GPU", _LEAVE_OUT),
    NotYet(
        _AFFINITY,
        "a reservation of this pool's own",
        "name the job's",
        'trainmaster: {reservation: "my-reservation"}',
        lambda value: value not in (None, "ANY_RESERVATION"),
    ),
)

NOT_YET_DOCUMENTS: Final = {
    "predictionInput": ("batch prediction", 'trainingInput: {region: "us-central1"}'),
    "trainingTaskDefinition": ("a Vertex AI TrainingPipeline", "its inputs as jobSpec"),
}
"""Documents of another kind, by the top-level name that gives them away."""


def check_supported(job: Wire, found: Findings) -> None:
    dumped = job.model_dump(by_alias=True, exclude_none=True)
    for loc, value in _places(dumped, ()):
        path = ".".join(map(str, loc))
        for row in NOT_YET:
            if fnmatchcase(path, row.place) and row.asks(value):
                found.add_text(loc, f"asks for {row.what}, which is not supported: {row.instead}", row.example)


def _places(value: Mapping[str, object], loc: Loc) -> Iterator[tuple[Loc, object]]:
    for name, item in value.items():
        yield (*loc, name), item
        if isinstance(item, Mapping):
            yield from _places(item, (*loc, name))
        elif isinstance(item, tuple):
            for index, each in enumerate(item):
                if isinstance(each, Mapping):
                    yield from _places(each, (*loc, name, index))
