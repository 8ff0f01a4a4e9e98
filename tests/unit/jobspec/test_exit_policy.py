"""The exit policy of a job, from its document."""

from __future__ import annotations

import pytest

from tests.support.jobs import a_spec
from trainmaster.core.model.exit_policy import ExitAction, ExitPolicy, ExitRule, Preset
from trainmaster.core.model.replica_id import TaskType
from trainmaster.jobspec.accept import accept
from trainmaster.jobspec.fields.exit_policy import read_exit_policy
from trainmaster.jobspec.problems import InvalidJob


def policy_of(spec: object) -> ExitPolicy:
    """Return the policy of a job whose field `exitPolicy` is `spec`."""
    document = {"jobId": "digits_1", **a_spec(), "trainmaster": {"exitPolicy": spec}}
    return accept(document, default_job_id=None).plan.restarts.exit_policy


def test_job_without_exit_policy_has_default_policy() -> None:
    assert (
        accept({"jobId": "digits_1", **a_spec()}, default_job_id=None).plan.restarts.exit_policy
        == ExitPolicy()
    )
    assert policy_of({}) == ExitPolicy()


def test_preset_is_accepted_in_any_case() -> None:
    assert policy_of({"preset": "Restart"}).preset is Preset.RESTART
    assert policy_of({"preset": "service"}).preset is Preset.SERVICE


def test_exit_codes_and_ranges_get_their_action_for_all_or_one_task_type() -> None:
    policy = policy_of({"fail": ["3", "64-80"], "rerun": ["90"], "restart": ["ps:2"]})
    assert policy.rules == (
        ExitRule(first=3, last=3, action=ExitAction.FAIL),
        ExitRule(first=64, last=80, action=ExitAction.FAIL),
        ExitRule(first=90, last=90, action=ExitAction.RERUN),
        ExitRule(first=2, last=2, action=ExitAction.RESTART, task_types=(TaskType.PS,)),
    )
    assert policy.user_action(70, TaskType.WORKER) is ExitAction.FAIL
    assert policy.user_action(2, TaskType.WORKER) is None
    assert policy.user_action(2, TaskType.PS) is ExitAction.RESTART


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"preset": "never"}, "trainmaster.exitPolicy.preset"),
        ({"fail": ["many"]}, "trainmaster.exitPolicy.fail[0]"),
        ({"fail": ["0"]}, "trainmaster.exitPolicy.fail[0]"),
        ({"fail": ["256"]}, "trainmaster.exitPolicy.fail[0]"),
        ({"fail": ["9-3"]}, "trainmaster.exitPolicy.fail[0]"),
        ({"fail": ["driver:3"]}, "trainmaster.exitPolicy.fail[0]"),
        ({"fail": ["3"], "rerun": ["1-10"]}, "trainmaster.exitPolicy.rerun[0]"),
        ({"fail": ["worker:3"], "rerun": ["3"]}, "trainmaster.exitPolicy.rerun[0]"),
        ({"ignore": ["3"]}, "trainmaster.exitPolicy.ignore"),
        ({"fail": [3]}, "trainmaster.exitPolicy.fail[0]"),
    ],
)
def test_wrong_exit_policy_is_refused_at_its_field(spec: object, field: str) -> None:
    with pytest.raises(InvalidJob) as caught:
        policy_of(spec)
    assert [problem.field for problem in caught.value.problems] == [field]


@pytest.mark.parametrize(
    "document",
    [
        {"preset": "service"},
        {"exitPolicy": {"preset": "service"}},
        {"trainmaster": {"exitPolicy": {"preset": "service"}, "spot": "all"}},
        {"jobId": "digits_1", **a_spec(), "trainmaster": {"exitPolicy": {"preset": "service"}}},
    ],
    ids=["block", "with its name", "in the extension", "job file"],
)
def test_policy_outside_a_job_is_read_in_each_form(document: dict[str, object]) -> None:
    assert read_exit_policy(document).preset is Preset.SERVICE


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"exitPolicy": {"exitPolicy": {"preset": "service"}}}, "exitPolicy.exitPolicy"),
        ({"presett": "service"}, "exitPolicy.presett"),
        ({"exitPolicy": ["service"]}, "exitPolicy"),
        ({"trainmaster": "service"}, "exitPolicy"),
    ],
)
def test_wrong_policy_outside_a_job_is_refused_at_its_field(
    document: dict[str, object], field: str
) -> None:
    with pytest.raises(InvalidJob) as caught:
        read_exit_policy(document)
    assert [problem.field for problem in caught.value.problems] == [f"trainmaster.{field}"]


def test_job_file_without_an_exit_policy_has_the_default_one() -> None:
    assert read_exit_policy({"trainmaster": {"spot": "all"}}) == ExitPolicy()


def test_same_exit_code_may_have_different_actions_for_two_task_types() -> None:
    policy = policy_of({"fail": ["worker:3"], "rerun": ["ps:3"]})
    assert policy.user_action(3, TaskType.WORKER) is ExitAction.FAIL
    assert policy.user_action(3, TaskType.PS) is ExitAction.RERUN
