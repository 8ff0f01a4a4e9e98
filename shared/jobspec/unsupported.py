"""What a job may say in the service's language and Trainmaster does not do yet. Deleting a row serves the feature.

Checked on the typed job, so that what is absent in the service's sense (an unspecified enum, a zero) is no request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from shared.jobspec.machines import TPU_MACHINE, TPU_TYPES
from shared.jobspec.model import Job
from shared.jobspec.problems import Findings, Loc


@dataclass(frozen=True, slots=True)
class NotYet:
    """`place` is a glob over canonical paths; `asks` whether a value there asks for the feature."""

    place: str
    what: str
    instead: str
    example: str
    asks: Callable[[object], bool] = bool


_USE_PACKAGES: Final = "put the program into a Python package"
_PACKAGES: Final = 'packageUris: ["gs://my-bucket/packages/trainer-0.1.tar.gz"], pythonModule: "trainer.task"'
_USE_GPU: Final = "ask for GPUs"
_GPU: Final = 'acceleratorConfig: {type: "NVIDIA_TESLA_T4", count: 1}'
_LEAVE_OUT: Final = "leave it out"

NOT_YET: Final = (
    NotYet("trainingInput.*Config.imageUri", "a container image", _USE_PACKAGES, _PACKAGES),
    NotYet("trainingInput.*Config.containerCommand", "a container's command", _USE_PACKAGES, _PACKAGES),
    NotYet("trainingInput.*Config.containerArgs", "a container's arguments", "use args", 'args: ["--epochs", "5"]'),
    NotYet("trainingInput.*Config.tpuTfVersion", "a Cloud TPU", _LEAVE_OUT, _LEAVE_OUT),
    NotYet("trainingInput.scaleTier", "a Cloud TPU", _USE_GPU, 'scaleTier: "BASIC_GPU"', lambda it: it == "BASIC_TPU"),
    NotYet("trainingInput.*Type", "a Cloud TPU", _USE_GPU, 'workerType: "n1-standard-8"', lambda it: it == TPU_MACHINE),
    NotYet("trainingInput.*Config.acceleratorConfig.type", "a Cloud TPU", _USE_GPU, _GPU, lambda it: it in TPU_TYPES),
    NotYet(
        "trainingInput.hyperparameters",
        "hyperparameter tuning",
        "submit one job per set of values",
        'args: ["--learning-rate", "0.01"]',
    ),
    NotYet("trainingInput.network", "a peered network", "the project's default network is used", _LEAVE_OUT),
    NotYet("trainingInput.encryptionConfig", "a customer-managed key", "Google's own keys are used", _LEAVE_OUT),
    NotYet("trainingInput.enableWebAccess", "an interactive shell", "use gcloud compute ssh", "enableWebAccess: false"),
    NotYet(
        "trainingInput.scheduling.priority", "a priority", "there is no queue: every job starts at once", _LEAVE_OUT
    ),
)

NOT_YET_DOCUMENTS: Final = {
    "predictionInput": ("batch prediction", 'trainingInput: {region: "us-central1"}'),
    "jobSpec": ("a Vertex AI CustomJob", 'trainingInput: {region: "us-central1"}'),
    "workerPoolSpecs": ("a Vertex AI CustomJob", 'trainingInput: {region: "us-central1"}'),
}
"""Documents of another kind, by the top-level name that gives them away."""


def check_supported(job: Job, found: Findings) -> None:
    dumped = job.model_dump(by_alias=True, exclude_none=True)
    for loc, value in _places(dumped, ()):
        path = ".".join(map(str, loc))
        for row in NOT_YET:
            if fnmatchcase(path, row.place) and row.asks(value):
                found.add_text(loc, f"asks for {row.what}, which is not supported yet: {row.instead}", row.example)


def _places(value: Mapping[str, object], loc: Loc) -> Iterator[tuple[Loc, object]]:
    for name, item in value.items():
        yield (*loc, name), item
        if isinstance(item, Mapping):
            yield from _places(item, (*loc, name))
