"""Labels of a job: at its submission, and in a later change of the labels alone."""

from __future__ import annotations

import re
from collections.abc import Mapping

from trainmaster.core.model.label_rules import (
    LABEL_CHARS_MAX,
    LABEL_KEY,
    LABEL_VALUE,
    LABELS_MAX,
    OWN_LABEL_PREFIX,
)
from trainmaster.jobspec.problems import Problems, quoted
from trainmaster.jobspec.reading.read_model import read_model


def check_labels(labels: Mapping[str, str], problems: Problems) -> None:
    """Check the labels.

    Source: the documented rules for labels. TFX sends values that begin with a digit
    (`tfx_py_version: 3-7`).
    """
    if len(labels) > LABELS_MAX:
        problems.add(
            ("labels",),
            f"has {len(labels)} labels, more than {LABELS_MAX}",
            example={"team": "vision"},
        )
    for key, value in labels.items():
        path = ("labels", key)
        if key.startswith(OWN_LABEL_PREFIX):
            problems.add_text(
                path,
                f"is reserved: Trainmaster sets {OWN_LABEL_PREFIX}… itself",
                advice="team: vision",
            )
        elif not LABEL_KEY.fullmatch(key):
            rule = (
                f"a label key starts with a lower-case letter and has at most {LABEL_CHARS_MAX} of"
                " a-z, 0-9, _ and -"
            )
            problems.add_text(path, f"is not a label key: {rule}", advice="team: vision")
        elif not LABEL_VALUE.fullmatch(value):
            example = re.sub(r"[^a-z0-9_-]+", "-", value.lower())[:LABEL_CHARS_MAX]
            problems.add(
                path,
                f"must have at most {LABEL_CHARS_MAX} of a-z, 0-9, _ and -, not {quoted(value)}",
                example=example,
            )


def read_labels(document: Mapping[str, object]) -> dict[str, str]:
    """Return the labels of a document; its other fields are ignored.

    Raises InvalidJob with every problem.
    """
    problems = Problems()
    labels = dict(read_model({"labels": document.get("labels")}, problems).labels)
    check_labels(labels, problems)
    problems.raise_if_any()
    return labels
