"""The arguments of a built-in algorithm.

`algorithms.arguments` has the tables, which the program itself uses, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from trainmaster.algorithms.arguments.argument import STORAGE, Argument, Values
from trainmaster.algorithms.arguments.parse import InvalidArgumentsError, parse_arguments
from trainmaster.algorithms.arguments.tables import TABLES, metric_tags
from trainmaster.core.model.search_space import format_number
from trainmaster.jobspec.catalog.algorithms import Algorithm
from trainmaster.jobspec.formats.ai_platform import ParameterSpec, TrainingInput
from trainmaster.jobspec.problems import FieldPath, Problems, quoted
from trainmaster.jobspec.reading.field_names import TRAINING_INPUT

_ARGS_PATH: Final[FieldPath] = (TRAINING_INPUT, "args")
_TUNING_PATH: Final[FieldPath] = (TRAINING_INPUT, "hyperparameters")
_DATA: Final = ("training_data_path", "validation_data_path", "test_data_path")


def check_arguments(
    algorithm: Algorithm, args: tuple[str, ...], training: TrainingInput, problems: Problems
) -> None:
    """Check the arguments.

    Those that have another effect than on AI Platform Training become substitutions of the job.
    """
    if problems.has_any_at(_ARGS_PATH):
        return
    tuned = _check_tuned(algorithm, training, problems)
    job_dir = training.job_dir or f"{STORAGE}unknown"  # its absence is another problem
    try:
        parsed = parse_arguments(TABLES[algorithm.name], (*args, "--job-dir", job_dir), tuned)
    except InvalidArgumentsError as invalid:
        texts = [
            f"--{problem.name} {problem.text}" if problem.name else problem.text
            for problem in invalid.problems
        ]
        text = f"of {algorithm.name}: {'; '.join(texts)}"
        problems.add_text(_ARGS_PATH, text, advice=invalid.problems[0].example)
        return
    for name in _DATA:
        path = parsed.values[name]
        if path is not None and not str(path).startswith(STORAGE):
            problem = (
                f"of {algorithm.name}: --{name} must be a path in Cloud Storage, not {quoted(path)}"
            )
            problems.add_text(
                _ARGS_PATH, problem, advice=f"--{name}=gs://my-bucket/data/training.csv"
            )
    _check_metric(algorithm, parsed.values, training, problems)
    for note in parsed.notes:
        requested = f"--{note.name} {note.requested}"
        replacement = _replacement(note.name, note.replacement)
        problems.substitute(_ARGS_PATH, requested, replacement, note.reason)


def _replacement(name: str, replacement: str) -> str:
    return replacement if replacement == "no effect" else f"--{name} {replacement}"


def _check_tuned(
    algorithm: Algorithm, training: TrainingInput, problems: Problems
) -> frozenset[str]:
    """Return the names of the tuned arguments.

    Check that the algorithm has them and accepts their values.
    """
    if training.hyperparameters is None:
        return frozenset()
    table = TABLES[algorithm.name]
    names = set()
    for index, param in enumerate(training.hyperparameters.params):
        path: FieldPath = (*_TUNING_PATH, "params", index)
        name = (param.parameter_name or "").replace("-", "_")
        argument = table.find(name)
        if argument is None:
            problem = f"is not an argument of {algorithm.name}: {quoted(param.parameter_name)}"
            problems.add((*path, "parameterName"), problem, example=table.nearest(name))
            continue
        names.add(name)
        for field, text in _tuned_values(param):
            if not _is_allowed(argument, text):
                problem = f"has the value {text} of --{name}, which must be {argument.allowed}"
                problems.add_text(
                    (*path, field), problem, advice="use values that the algorithm accepts"
                )
    return frozenset(names)


def _tuned_values(param: ParameterSpec) -> Iterator[tuple[str, str]]:
    """Yield field and text of each value that the tuning may choose; of a range its bounds."""
    for field, bound in (("minValue", param.min_value), ("maxValue", param.max_value)):
        if bound is not None:
            yield field, format_number(bound)
    yield from (("categoricalValues", text) for text in param.categorical_values)
    yield from (("discreteValues", format_number(number)) for number in param.discrete_values)


def _is_allowed(argument: Argument, text: str) -> bool:
    try:
        return argument.read(text) is not None
    except ValueError:
        return False


def _check_metric(
    algorithm: Algorithm, values: Values, training: TrainingInput, problems: Problems
) -> None:
    """Refuse a metric that the algorithm never reports: trials could not be compared by it."""
    if training.hyperparameters is None:
        return
    tags = metric_tags(algorithm.name, values)
    tag = training.hyperparameters.hyperparameter_metric_tag
    if tag not in tags:
        problem = (
            f"must be a metric that {algorithm.name} reports: {', '.join(tags)}; not {quoted(tag)}"
        )
        problems.add((*_TUNING_PATH, "hyperparameterMetricTag"), problem, example=tags[0])
