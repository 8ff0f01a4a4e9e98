"""`trainmaster:` as it travels: what a job can ask for that the services had no word for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final

from pydantic import BeforeValidator, Field

from shared.core.model.exit_policy import Preset
from shared.jobspec.formats.base_model import Wire
from shared.jobspec.formats.scalars import Count, Flag, Item, Text, word

EXIT_PRESETS: Final = tuple(preset.name for preset in Preset)
SPOT_USES: Final = ("NONE", "ALL", "WORKERS")
QUEUES: Final = ("NONE", "STANDARD", "FLEX_START")
CHECKPOINT_SIGNALS: Final = ("SIGTERM", "SIGUSR1", "SIGUSR2", "SIGINT")

ExitPreset = Annotated[str | None, BeforeValidator(lambda value: word(value, EXIT_PRESETS))]
SpotUse = Annotated[str | None, BeforeValidator(lambda value: word(value, SPOT_USES))]
Queue = Annotated[str | None, BeforeValidator(lambda value: word(value, QUEUES))]
CheckpointSignal = Annotated[str | None, BeforeValidator(lambda value: word(value, CHECKPOINT_SIGNALS))]


class ExitPolicySpec(Wire):
    """Exit codes as text: `3`, `64-80`, `worker:137`."""

    preset: ExitPreset = Field(None, examples=["restart"])
    fail: tuple[Item, ...] | None = Field(None, examples=[["3", "64-80"]])
    rerun: tuple[Item, ...] | None = Field(None, examples=[["75"]])
    restart: tuple[Item, ...] | None = Field(None, examples=[["ps:2"]])


class SpotSpec(Wire):
    """`spot: workers` is `spot: {use: workers}`."""

    shorthand: ClassVar[str | None] = "use"

    use: SpotUse = Field(None, examples=["workers"])
    on_demand_after: Count = Field(None, examples=[3])


class Extension(Wire):
    region: Text = Field(None, examples=["us-central1"])
    zones: tuple[Item, ...] | None = Field(None, examples=[["us-central1-a", "us-central1-f"]])
    env: Mapping[str, Item] | None = Field(None, examples=[{"LEVEL": "debug"}])
    secrets: Mapping[str, Item] | None = Field(
        None, examples=[{"API_KEY": "projects/my-project/secrets/api-key/versions/latest"}]
    )
    image: Text = Field(None, examples=["projects/my-project/global/images/family/trainer"])
    spot: SpotSpec | None = Field(None, examples=["workers"])
    queue: Queue = Field(None, examples=["standard"])
    reservation: Text = Field(None, examples=["my-reservation"])
    checkpoint_signal: CheckpointSignal = Field(None, examples=["SIGUSR1"])
    restart_job_on_worker_restart: Flag = Field(default=False, examples=[True])
    disable_retries: Flag = Field(default=False, examples=[True])
    independent_replicas: Flag = Field(default=False, examples=[True])
    exit_policy: ExitPolicySpec | None = Field(None, examples=[{"preset": "restart", "fail": ["3", "64-80"]}])
