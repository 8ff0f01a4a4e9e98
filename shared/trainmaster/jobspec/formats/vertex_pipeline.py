"""The TrainingPipeline of Vertex AI: a CustomJob's specification under `trainingTaskInputs`, as its SDK sends it.

Source: the discovery document of `aiplatform` v1 (revision 20261106), and the requests of google-cloud-aiplatform 2.7.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from trainmaster.jobspec.formats.base_model import wire_field
from trainmaster.jobspec.formats.scalars import OptionalString
from trainmaster.jobspec.formats.vertex import VertexCustomJob

CUSTOM_TASK: Final = "gs://google-cloud-aiplatform/schema/trainingjob/definition/custom_task_1.0.0.yaml"
"""The only `trainingTaskDefinition` of custom training. The SDK accepts no other in an answer."""
_UNSUPPORTED: Final = "Not supported."


class VertexPipeline(VertexCustomJob):
    other_names: ClassVar[Mapping[str, str]] = {"trainingTaskInputs": "jobSpec", "training_task_inputs": "jobSpec"}

    training_task_definition: OptionalString = wire_field(CUSTOM_TASK, "Kind of the task: custom training only.")
    input_data_config: Mapping[str, object] | None = wire_field({}, _UNSUPPORTED)
    model_to_upload: Mapping[str, object] | None = wire_field({}, _UNSUPPORTED)
    model_id: OptionalString = wire_field("17", _UNSUPPORTED)
    parent_model: OptionalString = wire_field("projects/1/locations/us-central1/models/2", _UNSUPPORTED)
