"""Names and labels of VMs."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.support.jobs import CHIEF, WORKER_0
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.model.vm_names import (
    HASH_DIGITS,
    job_hash,
    job_hash_in,
    job_label,
    replica_id_from_vm_name,
    slug,
    vm_name,
)


@pytest.mark.parametrize("job_id", ["digits_1", "A" * 128, "Z_", "x__y"])
@pytest.mark.parametrize("replica_id", [CHIEF, replace(WORKER_0, index=99_999)])
def test_vm_name_is_legal_and_contains_replica_and_job_hash(
    job_id: str, replica_id: ReplicaId
) -> None:
    name = vm_name(job_id, replica_id)
    assert re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", name), name
    assert replica_id_from_vm_name(name) == replica_id
    assert job_hash_in(name) == job_hash(job_id)


def test_names_and_labels_of_similar_job_ids_differ() -> None:
    ids = ["digits_1", "Digits_1", "digits__1", "DIGITS_1", "d" * 100, "d" * 101]
    assert len({vm_name(job_id, CHIEF) for job_id in ids}) == len(ids)
    assert len({job_label(job_id) for job_id in ids}) == len(ids)


@pytest.mark.parametrize(
    ("victim", "attacker"),
    [
        ("nightly_digits_train_1", "niGhtlY_dIGIts_TRain_1___________________________"),
        ("nightly_digits_train_2", "niGHTLY_DigItS_TRAin_2_______"),
        ("niGhtLY______________________________TRaiN", "niGHTlY____________________train"),
    ],
)
def test_job_ids_that_were_found_to_share_a_short_hash_have_other_names_and_labels(
    victim: str, attacker: str
) -> None:
    """A search of seconds found these ids: their hashes begin with the same 24 bits, in the last
    pair with 32.
    """
    assert slug(victim, 60) == slug(attacker, 60)
    assert vm_name(victim, CHIEF) != vm_name(attacker, CHIEF)
    assert job_label(victim) != job_label(attacker)
    assert HASH_DIGITS * 4 >= 64


def test_label_is_the_job_id_where_that_is_legal() -> None:
    assert job_label("digits_1") == "digits_1"
    assert re.fullmatch(r"[a-z][a-z0-9_-]{0,62}", job_label("Digits" * 20))
