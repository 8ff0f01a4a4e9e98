"""The installation's own answer about a job, beside what its user can see.

The functions have settings, limits and accounts of their own. Their API answers without creating
the job.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from trainmaster.cli.doctor.findings import Finding, Status, limit, not_checked, ok, problem
from trainmaster.client.client import Client
from trainmaster.errors import InvalidJobError, PermanentError, TemporaryError
from trainmaster.gcp.errors import USER_ERRORS
from trainmaster.wiring.installation import API, known_variables

ANSWER: Final = "the installation's own answer"


def check_by_api(document: Mapping[str, Any], told: Sequence[Finding]) -> Iterator[Finding]:
    """Yield why the API would refuse the job, or those of its notes that `told` does not have.

    Nothing for an installation whose API's address is not known.
    """
    if API not in known_variables():
        return
    try:
        checked = Client().check(document)
    except InvalidJobError as invalid:
        yield from (problem(f"the API: {line}", "correct the job") for line in _lines(invalid))
        return
    except (PermanentError, TemporaryError, *USER_ERRORS) as error:
        yield not_checked(ANSWER, str(error))
        return
    limits = [finding for finding in told if finding.status is Status.LIMIT]
    new = [note for note in checked.notes if not any(_is_same(note, found) for found in limits)]
    yield from (limit(f"the API: {note}", 'see the page "job-format"') for note in new)
    if not new:
        yield ok(f"{ANSWER}: the API would create the job")


def _lines(error: Exception) -> list[str]:
    return [line for line in str(error).splitlines() if line.strip()]


def _is_same(note: str, finding: Finding) -> bool:
    """Return whether a finding of this computer tells the same as a note of the API.

    Its subject is the note itself; or field and reason, where the note has the value between them;
    or what is wrong with the program, with which the reason begins.
    """
    field, _, reason = finding.what.partition(": ")
    is_note = note.startswith(f"{field}: ") and reason.rstrip(".") in note
    return finding.what.rstrip(".") in note or is_note
