"""Which lines of gcsfuse's log say that a save was lost."""

from __future__ import annotations

import pytest

from trainmaster.agent.setup.gcs_mount import is_lost_upload

FAILED = 'time="01:02" severity=ERROR message="FlushFile: {}"'


@pytest.mark.parametrize(
    "what",
    [
        "googleapi: Error 403: bucket/unlinked/model.pt",
        "googleapi: Error 403: unlinked/model.pt",
        "googleapi: Error 403: models/unlinked",
        "googleapi: Error 403: models/unlinked.pt",
        "googleapi: Error 503: model.pt",
    ],
)
def test_failed_upload_is_a_lost_save_whatever_the_file_is_called(what: str) -> None:
    assert is_lost_upload(FAILED.format(what))


@pytest.mark.parametrize(
    "line",
    [
        FAILED.format("model.pt: file was unlinked"),
        FAILED.format("unlinked file model.pt"),
        'severity=WARNING message="FlushFile: 503"',
        'severity=ERROR message="ReadFile: 503"',
    ],
)
def test_deleted_file_and_other_calls_are_no_lost_save(line: str) -> None:
    assert not is_lost_upload(line)
