"""Features of AI Platform Training and Vertex AI that Trainmaster does not have.

A job that requests one which its result may depend on is refused, with the field's name. A
convenience without influence on the result is listed as a substitution, because launchers request
some in every job.

The check works on the typed job, so that an absent value as these services define it (an
unspecified enum, a zero) does not count as a request. To support a feature, delete its row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from trainmaster.core.model.origin import Substitution
from trainmaster.jobspec.formats.base_model import WireModel
from trainmaster.jobspec.formats.vertex import CUSTOM_TASK
from trainmaster.jobspec.problems import FieldPath, Problems


@dataclass(frozen=True, slots=True)
class UnsupportedFeature:
    """A feature that Trainmaster does not have, and the fields that request it."""

    path: str
    """Glob pattern over canonical paths."""
    feature: str
    """Its name in messages, after "requests"."""
    instead: str
    """What to do instead."""
    example: str = ""
    """A correct value, for a problem's text.

    Empty: the feature does not influence the result, and the job runs.
    """
    is_requested: Callable[[object], bool] = bool
    """Whether a value of the field requests the feature."""

    @property
    def influences_result(self) -> bool:
        return bool(self.example)


_LEAVE_OUT: Final = "leave it out"
_POOL: Final = "jobSpec.workerPoolSpecs.*"
_PARAMETERS: Final = "studySpec.parameters.*"

UNSUPPORTED_FEATURES: Final = (
    UnsupportedFeature(
        "trainingTaskDefinition",
        feature="another task than custom training",
        instead="use a job of the SDK whose name begins with Custom",
        example=f'trainingTaskDefinition: "{CUSTOM_TASK}"',
        is_requested=lambda value: value not in (None, CUSTOM_TASK),
    ),
    UnsupportedFeature(
        "inputDataConfig",
        feature="a managed data set",
        instead="pass its location in Cloud Storage as an argument",
        example=_LEAVE_OUT,
    ),
    UnsupportedFeature(
        "modelToUpload",
        feature="the upload of a model",
        instead=(
            "leave out model_serving_container_image_uri, and read the model below AIP_MODEL_DIR"
        ),
        example=_LEAVE_OUT,
    ),
    UnsupportedFeature(
        "modelId",
        feature="the upload of a model",
        instead="save it below AIP_MODEL_DIR",
        example=_LEAVE_OUT,
    ),
    UnsupportedFeature(
        "parentModel",
        feature="the upload of a model",
        instead="save it below AIP_MODEL_DIR",
        example=_LEAVE_OUT,
    ),
    UnsupportedFeature(
        f"{_PARAMETERS}.conditionalParameterSpecs",
        feature="conditional parameters",
        instead="list all parameters",
        example=_LEAVE_OUT,
    ),
    UnsupportedFeature(
        "studySpec.metrics.*.safetyConfig",
        feature="a safety metric",
        instead="trials are compared by one metric",
        example=_LEAVE_OUT,
    ),
    UnsupportedFeature(
        "studySpec.studyStoppingConfig",
        feature="automatic stopping of the study",
        instead="set maxTrialCount",
        example=_LEAVE_OUT,
    ),
    UnsupportedFeature(
        "*.enableWebAccess",
        feature="an interactive shell in the browser",
        instead="trainmaster ssh, which opens a shell while the job runs",
    ),
    UnsupportedFeature(
        "*.enableDashboardAccess",
        feature="a dashboard in the browser",
        instead="trainmaster ssh, which runs commands on its VM",
    ),
    UnsupportedFeature(
        "jobSpec.reservedIpRanges",
        feature="reserved IP ranges",
        instead="VMs use those of the network",
        example=_LEAVE_OUT,
    ),
    UnsupportedFeature(
        "jobSpec.pscInterfaceConfig",
        feature="a Private Service Connect interface",
        instead="set network",
        example=_LEAVE_OUT,
    ),
    UnsupportedFeature(
        "jobSpec.tensorboard",
        feature="a managed TensorBoard",
        instead="trainmaster tensorboard, which shows AIP_TENSORBOARD_LOG_DIR",
    ),
    UnsupportedFeature(
        "jobSpec.experiment",
        feature="Vertex AI Experiments",
        instead="log to them from the program",
        example=_LEAVE_OUT,
    ),
    UnsupportedFeature(
        "jobSpec.experimentRun",
        feature="Vertex AI Experiments",
        instead="log to them from the program",
        example=_LEAVE_OUT,
    ),
    UnsupportedFeature(
        "jobSpec.models",
        feature="a mapping of models",
        instead="pass their paths as arguments",
        example=_LEAVE_OUT,
    ),
    UnsupportedFeature(
        "jobSpec.protectedArtifactLocationId",
        feature="protected artifacts",
        instead="write to Cloud Storage",
        example=_LEAVE_OUT,
    ),
    UnsupportedFeature(
        f"{_POOL}.nfsMounts",
        feature="an NFS mount",
        instead="read from Cloud Storage",
        example=_LEAVE_OUT,
    ),
    UnsupportedFeature(
        f"{_POOL}.lustreMounts",
        feature="a Lustre mount",
        instead="read from Cloud Storage",
        example=_LEAVE_OUT,
    ),
    UnsupportedFeature(
        f"{_POOL}.machineSpec.gpuPartitionSize",
        feature="a part of a GPU",
        instead="request a smaller GPU",
        example=_LEAVE_OUT,
    ),
)
_ROWS: Final[dict[object, list[UnsupportedFeature]]] = {}
"""Last name of a path → its rows, so that most fields need no pattern."""
for _row in UNSUPPORTED_FEATURES:
    _ROWS.setdefault(_row.path.rpartition(".")[2], []).append(_row)

UNSUPPORTED_DOCUMENTS: Final = {
    "predictionInput": ("batch prediction", 'trainingInput: {region: "us-central1"}'),
}
"""Top-level name that identifies another kind of document → (its feature, example)."""


def check_supported(job: WireModel, problems: Problems) -> list[Substitution]:
    """Refuse the features that a result may depend on; return the substitutions of the others."""
    dumped = job.model_dump(by_alias=True, exclude_none=True)
    substitutions = []
    for path, value in _walk(dumped, path=()):
        *_, name = path
        for row in _ROWS.get(name, ()):
            is_of_field = fnmatchcase(".".join(map(str, path)), row.path)
            if not is_of_field or not row.is_requested(value):
                continue
            if row.influences_result:
                problem = f"requests {row.feature}; this is not supported: {row.instead}"
                problems.add_text(path, problem, advice=row.example)
                continue
            reason = f"Trainmaster does not have {row.feature}; the training does not depend on it."
            requested = str(value).lower() if isinstance(value, bool) else str(value)
            substitutions.append(
                Substitution(problems.spelled_path(path), requested, row.instead, reason)
            )
    return substitutions


def _walk(value: Mapping[str, object], path: FieldPath) -> Iterator[tuple[FieldPath, object]]:
    """Yield every field of a dumped model with its canonical path."""
    for name, item in value.items():
        yield (*path, name), item
        if isinstance(item, Mapping):
            yield from _walk(item, (*path, name))
        elif isinstance(item, tuple):
            for index, entry in enumerate(item):
                if isinstance(entry, Mapping):
                    yield from _walk(entry, (*path, name, index))
