"""What programs see of a round that goes without members: everything is numbered without gaps.

An elastic job trains on with fewer members when it gets no VMs for the others. All members of a
round start together; a *rank* is the number of a member of the whole job, from 0.

An incarnation is one execution of a replica's program. A directive is an order to the agent of a
VM: to run the program, to hold, or to stop.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.jobs import a_job, a_plan
from tests.unit.flows.test_vm_metadata import metadata_of
from trainmaster.agent.control.state_file import StoredState
from trainmaster.agent.model.vm_config import (
    AgentIdentity,
    IncarnationKey,
    VmConfig,
    VmRef,
    parse_directive,
)
from trainmaster.agent.program.environment import environment_of
from trainmaster.core.model.origin import Dialect
from trainmaster.core.model.plan import Elastic
from trainmaster.core.model.replica_id import TaskType
from trainmaster.core.model.task_group import TaskGroup
from trainmaster.core.model.vm import Directive, DirectiveAction

WORKERS = (TaskGroup(TaskType.WORKER, 4, "n1-standard-4"),)


def own_addresses(variables: dict[str, str]) -> list[tuple[str, str]]:
    """Return the address that each description of the cluster has for the member itself."""
    addresses = []
    for name in ("TF_CONFIG", "CLUSTER_SPEC"):
        spec = json.loads(variables[name])
        task = spec["task"]
        addresses.append((name, spec["cluster"][task["type"]][task["index"]]))
    return addresses


def environments(plan: Any, without: tuple[int, ...]) -> list[dict[str, str]]:
    """Return the variables of the members that take part, in the order of the whole job.

    `without`: ranks of the members that do not take part.
    """
    job = a_job(plan=plan)
    found = []
    rank = 0
    for group in plan.groups:
        config = VmConfig.parse(metadata_of(job, group.task_type)["trainmaster-vm-config"])
        for name in config.vm_names:
            if rank not in without:
                vm = VmRef(name, "us-central1-a", "1")
                found.append(environment_of(AgentIdentity(vm, config.without(without), vm), {}))
            rank += 1
    return found


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize("without", [(), (1,), (3,), (1, 3), (2, 3), (1, 2, 3)])
@pytest.mark.parametrize("groups", [a_plan(workers=3).groups, WORKERS], ids=["chief", "workers"])
def test_members_of_a_round_have_ranks_and_indexes_without_gaps(
    groups: Any, without: tuple[int, ...], dialect: Dialect
) -> None:
    plan = a_plan(groups=groups, dialect=dialect, elastic=Elastic(1))
    whole, short = environments(plan, without=()), environments(plan, without)
    present = [variables for rank, variables in enumerate(whole) if rank not in without]
    size = len(present)
    expected_size = str(size) if size > 1 else None  # launchers get nothing for one machine
    assert [variables["RANK"] for variables in short] == [str(rank) for rank in range(size)]
    for variables in short:
        assert (variables["WORLD_SIZE"], variables["TRAINMASTER_REPLICAS"]) == (str(size), "4")
        assert variables["MASTER_ADDR"] == whole[0]["MASTER_ADDR"]
        assert variables.get("PET_NNODES") == expected_size
        assert variables.get("JAX_NUM_PROCESSES") == expected_size
        for name in ("TF_CONFIG", "CLUSTER_SPEC"):
            roles = json.loads(variables[name])["cluster"].values()
            assert all(roles), "no role is empty"
            assert sum(len(addresses) for addresses in roles) == size
    assert [own_addresses(variables) for variables in short] == [
        own_addresses(variables) for variables in present
    ], "each one is at its own address"


def test_agent_and_control_plane_compare_directives_in_the_same_way() -> None:
    """A directive is the order to an agent. A later one is greater, in both programs."""
    directives = [
        Directive(attempt, incarnation, action, save_number=number)
        for attempt in (1, 2)
        for incarnation in (1, 2)
        for action in DirectiveAction
        for number in ((1, 2) if action is DirectiveAction.SAVE else (0,))
    ]
    received = [parse_directive(json.dumps(sent.to_metadata())) for sent in directives]
    in_order = sorted(range(len(directives)), key=lambda index: directives[index].order)
    assert in_order == sorted(in_order, key=lambda index: received[index].order)
    assert len({directive.order for directive in received}) == len(received)


def test_directive_names_the_absent_members_and_survives_a_restart_of_the_agent(
    tmp_path: Any,
) -> None:
    directive = Directive(
        attempt=1,
        incarnation=3,
        action=DirectiveAction.SAVE,
        save_number=4,
        until=5,
        asks_peers=True,
        without=(2, 7),
    )
    metadata = json.loads(json.dumps(directive.to_metadata()))
    assert Directive.from_metadata(metadata) == directive
    received = parse_directive(json.dumps(metadata))
    assert (received.key, received.without) == (IncarnationKey(1, 3), (2, 7))
    assert (received.save_number, received.until, received.asks_peers) == (4, 5, True)
    StoredState("4711", desired=received).save(tmp_path / "state")
    loaded = StoredState.load(tmp_path / "state", "4711").desired
    assert loaded == received
    plain = Directive(attempt=1, incarnation=3, action=DirectiveAction.RUN).to_metadata()
    assert plain == {"attempt": 1, "incarnation": 3, "action": "run"}
    assert parse_directive(json.dumps(plain)).without == ()
