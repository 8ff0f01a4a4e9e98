"""Resolve `trainmaster.placement`: the alternatives of a job, and their candidates.

Each alternative is the job with some fields replaced. It is resolved and checked as such a job
would be, and its problems have the paths of the alternative. A candidate is one zone of one
alternative.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from trainmaster.core.model.plan import Candidate, Option, Plan, TaskGroup, Tpu
from trainmaster.core.model.replica_id import TaskType
from trainmaster.jobspec.fields.environment_variables import resolve_option_variables
from trainmaster.jobspec.fields.extension_fields import check_extension
from trainmaster.jobspec.fields.google_resources import check_kms_key
from trainmaster.jobspec.fields.placement import check_zones, resolve_zones
from trainmaster.jobspec.fields.programs import require
from trainmaster.jobspec.formats.extension import Extension
from trainmaster.jobspec.formats.placement import Alternative, PlacementSpec
from trainmaster.jobspec.machines.obtainable import Request, check_machines, with_disks_for_image
from trainmaster.jobspec.machines.role_request import RoleRequest, request_accelerator
from trainmaster.jobspec.machines.task_groups import resolve_task_groups
from trainmaster.jobspec.problems import FieldPath, Problems
from trainmaster.jobspec.reading.document_kinds import EXTENSION
from trainmaster.jobspec.resolve.named_resources import KMS_KEYS
from trainmaster.jobspec.resolve.resolved_spec import ResolvedSpec, is_spot

ALTERNATIVES_MAX: Final = 16
CANDIDATES_MAX: Final = 64
ANY: Final = "any"
PLACEMENT: Final[FieldPath] = (EXTENSION, "placement")


def with_alternatives(
    plan: Plan,
    spec: ResolvedSpec,
    extension: Extension,
    installed: Sequence[str],
    problems: Problems,
) -> Plan:
    """Return the plan with its options and candidates.

    `installed`: the regions that `any` means; empty: not known.
    """
    placement = extension.placement
    listed = None if placement is None else _listed(placement, problems)
    if placement is None or listed is None or len(plan.groups) < len(spec.roles) or not plan.zones:
        return plan
    if placement.data and not re.match("gs://[^/]", placement.data.uri or ""):
        problems.add(
            (*PLACEMENT, "data", "uri"), "must be an address in Cloud Storage", "gs://my-data/set"
        )
    if any(group.tpu and group.tpu.queue for group in plan.groups):
        problem = "cannot be combined with placement: a queued request waits in one zone"
        problems.add_text(
            spec.flex_start_path or (EXTENSION, "queue"), problem, "leave out one of them"
        )
    name, alternatives = listed
    options, candidates, zones = list[Option](), list[Candidate](), list[str]()
    for index, alternative in enumerate(alternatives):
        resolver = _Resolver(
            plan,
            spec,
            extension,
            alternative,
            (*PLACEMENT, name, index),
            tuple(installed),
            problems,
        )
        option = resolver.option()
        found, is_listed = resolver.zones([group.tpu for group in option.groups if group.tpu])
        first_rank = candidates[-1].rank + 1 if candidates else 0
        candidates += [
            Candidate(index, first_rank + position * is_listed) for position in range(len(found))
        ]
        options.append(option)
        zones += found
    for region in dict.fromkeys(zone.rpartition("-")[0] for zone in zones):
        check_kms_key(plan.kms_key, region, KMS_KEYS[plan.dialect], problems)
    path = (*PLACEMENT, name)
    if all(option.after_s for option in options):
        problems.add_text(
            path,
            "has only alternatives with `after`: nothing could be requested at first",
            "one without",
        )
    if len(zones) > CANDIDATES_MAX:
        problem = (
            f"results in {len(zones)} candidates (zones of alternatives); a job has at most"
            f" {CANDIDATES_MAX}"
        )
        problems.add_text(path, problem, "fewer regions, or zones in place of regions")
    hardware = [option.groups for option in options]
    if len({tuple(group.tpu for group in groups) for groups in hardware}) > 1:
        types = ", ".join(
            dict.fromkeys(group.tpu.type for groups in hardware for group in groups if group.tpu)
        )
        problems.substitute(
            path,
            types,
            types,
            "Hosts and ranks follow the slice. Checkpoints must fit all of them.",
        )
    return replace(
        plan,
        zones=tuple(zones) or plan.zones,
        options=tuple(options) if zones else (),
        candidates=tuple(candidates),
        cheapest_first=name == "anyOf",
        has_rounds=len(
            {replace(plan, groups=groups).is_synchronous for groups in (plan.groups, *hardware)}
        )
        > 1,
    )


def _listed(
    placement: PlacementSpec, problems: Problems
) -> tuple[str, tuple[Alternative, ...]] | None:
    """Return the list that the job gives and its name in the document; None if it gives none, both,
    or a wrong one.
    """
    given = placement.lists
    if len(given) != 1:
        problem = (
            "has both anyOf and ordered"
            if given
            else "needs a list of alternatives: anyOf or ordered"
        )
        if not problems.has_any_at(PLACEMENT):
            problems.add_text(
                PLACEMENT, problem, 'ordered: [{"spot": "all"}, {"spot": "none", "after": "1800s"}]'
            )
        return None
    ((name, alternatives),) = given.items()
    if 0 < len(alternatives) <= ALTERNATIVES_MAX:
        return name, alternatives
    problem = (
        f"has {len(alternatives)} alternatives; a job has at most {ALTERNATIVES_MAX}"
        if alternatives
        else "is empty"
    )
    problems.add_text((*PLACEMENT, name), problem, "one alternative, with several regions")
    return None


@dataclass(frozen=True, slots=True)
class _Resolver:
    """Resolves one alternative."""

    plan: Plan
    """The job without alternatives."""
    spec: ResolvedSpec
    extension: Extension
    alternative: Alternative
    path: FieldPath
    installed: tuple[str, ...]
    problems: Problems

    def _sets(self, field: str) -> bool:
        return field in self.alternative.model_fields_set

    def zones(self, tpus: Sequence[Tpu]) -> tuple[Sequence[str], bool]:
        """Return the zones, and whether the user has listed them in this order.

        `tpus`: the alternative's slices.
        """
        alternative, zones_path = self.alternative, (*self.path, "zones")
        for field in ("regions", "zones"):
            if self._sets(field) and not getattr(alternative, field):
                self.problems.add_text(
                    (*self.path, field), "is empty", "leave it out, for those of the job"
                )
        if self._sets("reservation") and not alternative.zones:
            reason = "needs zones in its alternative: a reservation is in one zone"
            self.problems.add_text(
                (*self.path, "reservation"), reason, f'zones: ["{self.plan.zones[0]}"]'
            )
        if alternative.regions and alternative.zones:
            self.problems.add_text(
                zones_path, "cannot be combined with regions", "leave one of them out"
            )
        elif alternative.zones:
            check_zones(alternative.zones, zones_path, self.problems)
            return alternative.zones, True
        elif alternative.regions:
            return self._zones_of_regions(tpus), False
        elif (
            tpus and self.alternative.machine_spec and not self.plan.zones_listed
        ):  # others may offer the slice
            return (
                resolve_zones(self.plan.region, (*self.path, "regions"), (), tpus, self.problems)[
                    1
                ],
                False,
            )
        return self.plan.zones, self.plan.zones_listed

    def _zones_of_regions(self, tpus: Sequence[Tpu]) -> list[str]:
        listed, path = self.alternative.regions, (*self.path, "regions")
        if ANY in listed:
            if len(listed) > 1:
                self.problems.add_text(path, "has any and other regions", f'regions: "{ANY}"')
            listed = tuple(r for r in self.installed if self._is_usable(r, tpus)) or (
                self.plan.region,
            )
        found: list[str] = []
        for index, region in enumerate(listed):
            if region in listed[:index]:
                self.problems.add_text((*path, index), f"repeats {region}", "each region once")
            found += resolve_zones(region, (*path, index), (), tpus, self.problems)[1]
        return found

    def _is_usable(self, region: str, tpus: Sequence[Tpu]) -> bool:
        """Whether `any` means this region, too: it offers what the alternative needs."""
        unusable = Problems()
        resolve_zones(region, self.path, (), tpus, unusable)
        return not tuple(unusable)

    def option(self) -> Option:
        """Return what the alternative's VMs have in place of the job's values."""
        alternative, problems, own_image = (
            self.alternative,
            self.problems,
            self.extension.image is not None,
        )
        own = {
            field: getattr(alternative, field)
            for field in ("spot", "reservation")
            if self._sets(field)
        }
        merged = self.extension.model_copy(update=own)
        if own:
            check_extension(merged, problems, self.path)
        roles, groups = self._machines()
        use = merged.spot.use or self.spec.spot
        groups = tuple(
            replace(group, program=None, spot=is_spot(use, group.task_type)) for group in groups
        )
        if software := self.extension.image:
            groups = tuple(
                replace(group, tpu=group.tpu and replace(group.tpu, runtime=software))
                for group in groups
            )
        image, fallback = self.plan.image, merged.spot.on_demand_after
        request = Request(
            image, own_image, merged.reservation is not None, fallback is not None, self.path
        )
        check_machines(roles, groups, request, problems)
        groups = with_disks_for_image(roles, groups, image, problems)
        variables = resolve_option_variables(
            alternative.env, self.plan, (*self.path, "env"), self.problems
        )
        return Option(groups, fallback, merged.reservation, variables, alternative.after or 0)

    def _machines(self) -> tuple[Sequence[RoleRequest], tuple[TaskGroup, ...]]:
        """Return the roles, with paths of the alternative, and the hardware of each."""
        machine, groups, problems = self.alternative.machine_spec, self.plan.groups, self.problems
        named = self._named_roles()
        if machine is None:
            if self._sets("roles"):
                self.problems.add_text((*self.path, "roles"), "needs a machineSpec", "leave it out")
            at_spot = (*self.path, "spot")
            return [
                replace(role, paths=replace(role.paths, machine=at_spot))
                for role in self.spec.roles
            ], groups
        path = (*self.path, "machineSpec")
        has_tpus = any(group.tpu for group in groups)
        if self.spec.algorithm or (
            has_tpus and not all(self.plan.program_of(name).container for name in named)
        ):
            kind = "a built-in algorithm" if self.spec.algorithm else "TPUs without a container"
            problems.add_text(
                path, f"cannot be set for {kind}", "leave it out: other regions, zones, or Spot use"
            )
            return self.spec.roles, groups
        at_type, at_accelerator = (*path, "machineType"), (*path, "acceleratorType")
        require(machine.machine_type, at_type, problems)
        accelerator = request_accelerator(machine.accelerator_type, machine.accelerator_count)
        own: dict[str, Any] = {
            "machine": machine.machine_type,
            "accelerator": accelerator,
            "tier": None,
        }
        own["topology"] = machine.tpu_topology
        paths = {
            "machine": at_type,
            "accelerator": at_accelerator,
            "accelerator_type": at_accelerator,
        }
        paths |= {
            "accelerator_count": (*path, "acceleratorCount"),
            "topology": (*path, "tpuTopology"),
        }
        roles = [
            (
                replace(role, **own, paths=replace(role.paths, **paths))
                if role.task_type in named
                else role
            )
            for role in self.spec.roles
        ]
        changed = [role for role in roles if role.task_type in named]
        before = {group.task_type: group for group in groups}
        if machine.machine_type and any(
            role.is_tpu is not bool(before[role.task_type].tpu) for role in changed
        ):
            problem = (
                "must be a TPU for roles that have one, and a VM for the others: they start in"
                " different ways"
            )
            problems.add(at_type, problem, "ct6e-standard-4t" if has_tpus else "a2-highgpu-1g")
            return self.spec.roles, groups
        resolved = resolve_task_groups(changed, problems, has_containers=True)
        by_type = before | {group.task_type: group for group in resolved}
        self._check_slices(tuple(by_type.values()))
        return roles, tuple(by_type.values())

    def _check_slices(self, groups: Sequence[TaskGroup]) -> None:
        """Slices that train together stay equal, for `MEGASCALE_*`.

        The job's own TPU software fits one generation.
        """
        now, before = (
            [group.tpu for group in of if group.tpu] for of in (groups, self.plan.groups)
        )
        families, own = ({tpu.type.partition("-")[0] for tpu in tpus} for tpus in (now, before))
        if self.extension.image and families != own:
            problem = (
                f"is of another generation than {', '.join(own)}, for which the job names the TPU"
                " software"
            )
            path = (*self.path, "machineSpec", "machineType")
            self.problems.add_text(
                path, problem, f"leave out {EXTENSION}.image: each generation has its own"
            )
        if len({(tpu.type, tpu.topology) for tpu in now}) > len(
            {(tpu.type, tpu.topology) for tpu in before}
        ):
            problem = f"results in slices of different shapes: {', '.join(tpu.type for tpu in now)}"
            self.problems.add_text(
                (*self.path, "roles"), problem, "leave it out: all roles with TPUs get the machine"
            )

    def _named_roles(self) -> set[TaskType]:
        """Return the task types that get the alternative's machine."""
        groups, roles = self.plan.groups, self.alternative.roles
        known = [group.task_type for group in groups]
        for index, role in enumerate(roles):
            if role not in known:
                problem = f"is {role}, and the job has only {', '.join(known)}"
                self.problems.add((*self.path, "roles", index), problem, str(known[0]))
        named = {*filter(None, roles)}
        return (
            named
            or {group.task_type for group in groups if group.accelerator or group.tpu}
            or set(known)
        )
