"""Job ids of files that name none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.jobspec.fields.job_id import JOB_ID, job_id_from, job_id_of_display_name
from trainmaster.jobspec.job_document import NAME_CHARS_MAX, with_id_from_file


@pytest.mark.parametrize(
    ("name", "suffix", "job_id"),
    [
        ("jobs/digits.yaml", "20261121T030000", "digits_20261121T030000"),
        ("jobs/team/My digits-v2.YML", "1763690400123456", "My_digits_v2_1763690400123456"),
        ("jobs/2024.json", "1", "job_2024_1"),
        ("jobs/résumé.yaml", "1", "resume_1"),
        ("jobs/学習.yaml", "1", "job_1"),
        ("jobs/.yaml", "1", "job_1"),
        ("digits", "", "digits"),
        ("jobs/" + "a" * 300 + ".yaml", "42", "a" * 125 + "_42"),
    ],
)
def test_job_id_is_made_of_file_name_and_suffix(name: str, suffix: str, job_id: str) -> None:
    assert job_id_from(name, suffix) == job_id


@pytest.mark.parametrize(
    ("name", "job_id"),
    [
        ("nightly train-1", "nightly_train_1"),
        ("Größe v2", "Grosse_v2"),
        ("été", "ete"),
        ("📈 digits", "digits"),
    ],
)
def test_display_name_becomes_an_id_that_reads_like_it(name: str, job_id: str) -> None:
    assert job_id_of_display_name(name) == job_id


def test_display_names_in_other_scripts_have_ids_of_their_own() -> None:
    names = ["学習ジョブ", "推論ジョブ", "api_世界", "api_你好", "обучение", "a" * 300 + "世"]
    ids = [job_id_of_display_name(name) for name in names]
    assert len(set(ids)) == len(names)
    assert all(map(JOB_ID.fullmatch, ids))
    assert [job_id[:4] for job_id in ids] == ["job_", "job_", "api_", "api_", "job_", "aaaa"]
    assert ids == [job_id_of_display_name(name) for name in names]


def test_files_named_in_other_scripts_have_different_ids_at_the_same_time() -> None:
    names = ["jobs/学習.yaml", "jobs/推論.yaml", "a" * 300 + "世.yaml", "a" * 300 + "界.yaml"]
    ids = [with_id_from_file({}, name, time_format="%Y")["jobId"] for name in names]
    assert len(set(ids)) == len(names)
    assert [job_id[:4] for job_id in ids] == ["job_", "job_", "aaaa", "aaaa"]
    heads = [job_id.removesuffix("_{time:%Y}") for job_id in ids]
    assert all(len(head) <= NAME_CHARS_MAX for head in heads)


@given(st.text(), st.text())
def test_job_id_from_any_name_and_suffix_is_legal(name: str, suffix: str) -> None:
    assert JOB_ID.fullmatch(job_id_from(name, suffix))


@given(st.text(min_size=1))
def test_job_id_of_any_display_name_is_legal(name: str) -> None:
    assert JOB_ID.fullmatch(job_id_of_display_name(name))
