"""Rules that both APIs have in common: tuned parameters, and tuning jobs that resume another."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from trainmaster.core.model.job import CUSTOM_JOB_PREFIX
from trainmaster.core.model.search_space import Parameter, ParameterKind, Scale, format_number
from trainmaster.jobspec.fields.job_id import JOB_ID
from trainmaster.jobspec.formats.ai_platform import ScaleType
from trainmaster.jobspec.formats.extension import Extension
from trainmaster.jobspec.problems import FieldPath, Problems, quoted
from trainmaster.jobspec.reading.field_names import EXTENSION

TRIALS_BYTES_MAX: Final = 400_000
"""Size of all stored trials.

Together with the results of an earlier tuning job, they fit one Firestore document of 1 MiB.
"""
TRIAL_BYTES: Final = 200
"""Size of one stored trial without its values; mostly the names of its fields."""
NUMBER_BYTES: Final = 25
"""Size of a stored number, at most: numbers are stored as text."""
VALUES_MAX: Final = 1000
"""Source: the API's schema, `discreteValues`."""
INTEGER_MAX: Final = 2**53
"""Beyond this, a double (the API's type for the limits) cannot represent every integer."""
DOUBLE_MAX: Final = 1e300
"""Low enough that the sum and the difference of two limits are finite."""

EXAMPLES_MAX: Final = 20
"""Values of a list that an example repeats."""
NAME_CHARS_MAX: Final = 128

RESUMED: Final[FieldPath] = (EXTENSION, "resumePreviousJobId")
"""Vertex AI has no field for the job that is resumed."""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,127}")
_SCALES: Final = {
    ScaleType.UNIT_LOG_SCALE: Scale.LOG,
    ScaleType.UNIT_REVERSE_LOG_SCALE: Scale.REVERSE_LOG,
}


@dataclass(frozen=True, slots=True)
class ParameterPaths:
    """Paths of the fields of a parameter, whether given or not."""

    name: FieldPath
    low: FieldPath
    high: FieldPath
    values: FieldPath
    scale: FieldPath


@dataclass(frozen=True, slots=True)
class ParameterRequest:
    """A parameter as the document describes it, independent of the API."""

    name: str | None
    kind: ParameterKind | None
    """None: unknown, which is already reported as a problem."""
    paths: ParameterPaths
    low: float | None = None
    high: float | None = None
    categories: tuple[str, ...] = ()
    numbers: tuple[float, ...] = ()
    scale: ScaleType | None = None

    @property
    def is_log(self) -> bool:
        return self.scale in _SCALES


def resolve_parameters(
    requests: Sequence[ParameterRequest], problems: Problems
) -> tuple[Parameter, ...]:
    """Return the parameters; those with a problem are incomplete."""
    first_with_name: dict[str, int] = {}
    for index, request in enumerate(requests):
        _check_name(request, first_with_name, index, problems)
        match request.kind:
            case ParameterKind.CATEGORICAL:
                _check_categories(request, problems)
            case ParameterKind.DISCRETE:
                _check_discrete(request, problems)
            case ParameterKind.DOUBLE | ParameterKind.INTEGER:
                _check_range(request, problems)
    return tuple(
        _parameter(request, request.kind) for request in requests if request.kind is not None
    )


def check_size(
    parameters: Sequence[Parameter], trials: int, path: FieldPath, problems: Problems
) -> None:
    """Check that all trials fit the document in which they are stored.

    `path`: the field with their number.
    """
    values_bytes = sum(_value_bytes_max(parameter) for parameter in parameters)
    most = TRIALS_BYTES_MAX // (TRIAL_BYTES + values_bytes)
    if trials > most:
        problem = (
            f"must be at most {most}, not {trials}: more trials with values of this size cannot be"
            " stored"
        )
        problems.add(path, problem, example=most)


def _value_bytes_max(parameter: Parameter) -> int:
    return max((len(text.encode()) for text in parameter.choices), default=NUMBER_BYTES)


def _check_name(
    request: ParameterRequest, first_with_name: dict[str, int], index: int, problems: Problems
) -> None:
    name = request.name
    path = request.paths.name
    if name is None:
        problems.add(path, "is required", example="learning-rate")
    elif not _NAME.fullmatch(name):
        rule = (
            "must have letters, digits, _, - and . only, a letter or _ first, at most 128: it"
            " becomes the flag --NAME"
        )
        example = re.sub(r"[^A-Za-z0-9_.-]+", "_", name.lstrip("-"))[:NAME_CHARS_MAX] or "x"
        problems.add(path, f"{rule}; this is {quoted(name)}", example=example)
    elif name in first_with_name:
        *_, list_name, _, _ = path  # as in `params[1].parameterName`
        problems.add(
            path,
            f"is already the name of {list_name}[{first_with_name[name]}]",
            example=f"{name}_2",
        )
    first_with_name.setdefault(name or "", index)


def _check_categories(request: ParameterRequest, problems: Problems) -> None:
    values = request.categories
    path = request.paths.values
    if not values and not problems.has_any_at(path):
        problems.add(path, "is required", example=["adam", "sgd"])
    elif len(values) > VALUES_MAX:
        problems.add_text(
            path, f"has {len(values)} values, more than {VALUES_MAX}", advice="fewer values"
        )
    for index, value in enumerate(values):
        if value in values[:index]:
            problems.add_text((*path, index), f"repeats {quoted(value)}", advice="each value once")


def _check_discrete(request: ParameterRequest, problems: Problems) -> None:
    values = request.numbers
    path = request.paths.values
    if not values:
        if not problems.has_any_at(path):
            problems.add(path, "is required", example=[16, 32, 64])
    elif len(values) > VALUES_MAX:
        problems.add_text(
            path, f"has {len(values)} values, more than {VALUES_MAX}", advice="fewer values"
        )
    elif list(values) != sorted(set(values)):
        example = [_shortest(value) for value in sorted(set(values))][:EXAMPLES_MAX]
        problems.add(path, "must be strictly increasing", example=example)
    elif request.is_log and values[0] <= 0:
        problem = f"requires values above 0, and the first value is {format_number(values[0])}"
        problems.add(request.paths.scale, problem, example="UNIT_LINEAR_SCALE")


def _check_range(request: ParameterRequest, problems: Problems) -> None:
    low = request.low
    high = request.high
    paths = request.paths
    for path, value, example in ((paths.low, low, 1), (paths.high, high, 100)):
        if value is None:
            problems.add(path, f"is required for {request.kind}", example=example)
        elif request.kind is ParameterKind.INTEGER and not _is_integer(value):
            problem = f"must be a whole number for INTEGER, not {quoted(value)}"
            problems.add(path, problem, example=round(value))
        elif abs(value) > DOUBLE_MAX:
            problem = f"must be from -{DOUBLE_MAX} to {DOUBLE_MAX}, not {quoted(value)}"
            problems.add(path, problem, example=example)
    if low is None or high is None or problems.has_any_at(paths.low, paths.high):
        return
    if low > high:
        problems.add(
            paths.high,
            f"must be at least minValue, which is {format_number(low)}",
            example=_shortest(low),
        )
    elif request.is_log and low <= 0:
        problem = f"requires values above 0, and minValue is {format_number(low)}"
        problems.add(paths.scale, problem, example="UNIT_LINEAR_SCALE")


def _is_integer(value: float) -> bool:
    return value == int(value) and abs(value) <= INTEGER_MAX


def _shortest(value: float) -> float:
    """Return a whole number as an int, so that examples show it without a decimal point."""
    return int(value) if value == int(value) else value


def _parameter(request: ParameterRequest, kind: ParameterKind) -> Parameter:
    return Parameter(
        name=request.name or "",
        kind=kind,
        low=request.low or 0.0,
        high=request.high or 0.0,
        choices=request.categories or tuple(format_number(value) for value in request.numbers),
        scale=Scale.LINEAR if request.scale is None else _SCALES.get(request.scale, Scale.LINEAR),
    )


def resolve_resumed_job(job_id: str | None, path: FieldPath, problems: Problems) -> str | None:
    """Return the stored id of the tuning job that is resumed; None if none is named.

    Jobs that Vertex AI's API created are named by their number, or by the resource name that ends
    with it.
    """
    if job_id is None:
        return None
    name = job_id.rpartition("/")[2]
    if name.isdecimal():
        return CUSTOM_JOB_PREFIX + name
    if not JOB_ID.fullmatch(name):
        problems.add(
            path, f"must be the id of a tuning job, not {quoted(job_id)}", example="digits_tuning_1"
        )
    return name


def refuse_resumed_job(extension: Extension, instead: str, problems: Problems) -> None:
    """Refuse `trainmaster.resumePreviousJobId` outside a HyperparameterTuningJob.

    `instead`: why it does not apply to this document.
    """
    if extension.resume_previous_job_id is not None:
        problem = f"can be set for a HyperparameterTuningJob only; {instead}"
        problems.add_text(RESUMED, problem, advice="leave it out")
