"""Job ids of files that name none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.jobspec import job_id_from
from trainmaster.jobspec.fields.job_id import JOB_ID


@pytest.mark.parametrize(
    ("name", "suffix", "job_id"),
    [
        ("jobs/digits.yaml", "20261121T030000", "digits_20261121T030000"),
        ("jobs/team/My digits-v2.YML", "1763690400123456", "My_digits_v2_1763690400123456"),
        ("jobs/2024.json", "1", "job_2024_1"),
        ("jobs/résumé.yaml", "1", "r_sum_1"),
        ("jobs/.yaml", "1", "job_1"),
        ("digits", "", "digits"),
        ("jobs/" + "a" * 300 + ".yaml", "42", "a" * 125 + "_42"),
    ],
)
def test_job_id_is_made_of_file_name_and_suffix(name: str, suffix: str, job_id: str) -> None:
    assert job_id_from(name, suffix) == job_id


@given(st.text(), st.text())
def test_job_id_from_any_name_and_suffix_is_legal(name: str, suffix: str) -> None:
    assert JOB_ID.fullmatch(job_id_from(name, suffix))
