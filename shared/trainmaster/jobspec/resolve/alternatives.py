"""Resolve `trainmaster.placement`: the alternatives of a job, and their candidates.

Each alternative is the job with some fields replaced. It is resolved and checked as such a job
would be, and its problems have the paths of the alternative. A candidate is one zone of one
alternative. Candidates are requested in the order of their ranks, which are replaced for `anyOf`
where prices are known. `accept` calls `with_alternatives` with the plan of the job without them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from trainmaster.core.model.plan import Plan
from trainmaster.core.model.replica_id import TaskType
from trainmaster.core.model.task_group import TaskGroup, Tpu
from trainmaster.core.model.where import Candidate, Option
from trainmaster.jobspec.fields.environment_variables import resolve_option_variables
from trainmaster.jobspec.fields.extension_fields import check_extension
from trainmaster.jobspec.fields.google_resources import check_kms_key
from trainmaster.jobspec.fields.placement import check_zones, resolve_zones
from trainmaster.jobspec.fields.programs import require
from trainmaster.jobspec.formats.extension import Extension
from trainmaster.jobspec.formats.placement import Alternative, AlternativeMachine, PlacementSpec
from trainmaster.jobspec.machines.obtainable import Request, check_machines, with_disks_for_image
from trainmaster.jobspec.machines.role_request import RoleRequest, request_accelerator
from trainmaster.jobspec.machines.task_groups import resolve_task_groups
from trainmaster.jobspec.problems import FieldPath, Problems
from trainmaster.jobspec.reading.field_names import EXTENSION
from trainmaster.jobspec.resolve.named_resources import KMS_KEYS
from trainmaster.jobspec.resolve.purchases import with_purchases
from trainmaster.jobspec.resolve.resolved_spec import ResolvedSpec

ALTERNATIVES_MAX: Final = 16
CANDIDATES_MAX: Final = 64
"""Candidates are stored with the job, and one after another is requested."""
ANY: Final = "any"
"""Value of `regions` that stands for all regions of the installation."""
ANY_OF: Final = "anyOf"
"""Name of a list whose candidates are requested by price; the other one, `ordered`, by order."""
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
    listed = None if placement is None else _read_list(placement, problems)
    # Roles without hardware, and jobs without zones, have problems that are noted already.
    is_incomplete = len(plan.groups) < len(spec.roles) or not plan.where.zones
    if placement is None or listed is None or is_incomplete:
        return plan
    _check_combinations(plan, spec, placement, problems)
    name, alternatives = listed
    options: list[Option] = []
    candidates: list[Candidate] = []
    zones: list[str] = []
    for index, alternative in enumerate(alternatives):
        path: FieldPath = (*PLACEMENT, name, index)
        resolver = _Resolver(plan, spec, extension, alternative, path, tuple(installed), problems)
        option = resolver.option()
        options.append(option)
        own_zones, is_ordered = resolver.zones(_tpus(option.groups))
        zones += own_zones
        # After all candidates of the alternatives before; zones without an order share one rank.
        rank = candidates[-1].rank + 1 if candidates else 0
        for _ in own_zones:
            candidates.append(Candidate(index, rank))
            if is_ordered:
                rank += 1
    for region in dict.fromkeys(zone.rpartition("-")[0] for zone in zones):
        check_kms_key(plan.access.kms_key, region, KMS_KEYS[plan.origin.dialect], problems)
    _check_options(options, len(zones), (*PLACEMENT, name), problems)
    where = replace(
        plan.where,
        zones=tuple(zones) or plan.where.zones,
        options=tuple(options) if zones else (),
        candidates=tuple(candidates),
        cheapest_first=name == ANY_OF,
        has_rounds=_changes_synchrony(plan, options),
    )
    return replace(plan, where=where)


def _check_combinations(
    plan: Plan, spec: ResolvedSpec, placement: PlacementSpec, problems: Problems
) -> None:
    """Check what does not depend on a single alternative: the data, and queued requests."""
    has_wrong_data = placement.data and not re.match("gs://[^/]", placement.data.uri or "")
    if has_wrong_data:
        problems.add(
            (*PLACEMENT, "data", "uri"),
            "must be an address in Cloud Storage",
            example="gs://my-data/set",
        )
    if any(group.purchase.is_queued for group in plan.groups):
        queue_path: FieldPath = spec.queue_path or (EXTENSION, "queue")
        problem = "cannot be combined with placement: a queued request waits in one zone"
        problems.add_text(queue_path, problem, advice="leave out one of them")


def _check_options(
    options: Sequence[Option], candidates: int, path: FieldPath, problems: Problems
) -> None:
    """Check the alternatives together. `candidates`: their number. `path`: that of the list."""
    if all(option.after_s for option in options):
        problem = "has only alternatives with `after`: nothing could be requested at first"
        problems.add_text(path, problem, advice="one without")
    if candidates > CANDIDATES_MAX:
        problem = (
            f"results in {candidates} candidates (zones of alternatives); a job has at most"
            f" {CANDIDATES_MAX}"
        )
        problems.add_text(path, problem, advice="fewer regions, or zones in place of regions")
    slices_differ = len({tuple(group.tpu for group in option.groups) for option in options}) > 1
    if slices_differ:
        slices: list[str] = []
        for option in options:
            slices += [tpu.type for tpu in _tpus(option.groups)]
        types = ", ".join(dict.fromkeys(slices))
        reason = "Hosts and ranks follow the slice. Checkpoints must fit all of them."
        # Replaced by itself: a note, which substitutes nothing.
        problems.substitute(path, types, types, reason)


def _changes_synchrony(plan: Plan, options: Sequence[Option]) -> bool:
    """Return whether the job is synchronous with the hardware of some alternatives only.

    The replicas of a synchronous job train together, and start together in rounds. A job with both
    kinds of alternatives runs in rounds with all of them.
    """
    plans = [plan, *(replace(plan, groups=option.groups) for option in options)]
    return len({variant.is_synchronous for variant in plans}) > 1


def _tpus(groups: Sequence[TaskGroup]) -> list[Tpu]:
    return [group.tpu for group in groups if group.tpu]


def _read_list(
    placement: PlacementSpec, problems: Problems
) -> tuple[str, tuple[Alternative, ...]] | None:
    """Return the list of alternatives and its name in the document.

    None: the job gives no list, both lists, or one of a wrong length, which is then a problem.
    """
    given = placement.lists
    if len(given) != 1:
        problem = "needs a list of alternatives: anyOf or ordered"
        if given:
            problem = "has both anyOf and ordered"
        if not problems.has_any_at(PLACEMENT):
            problems.add_text(
                PLACEMENT,
                problem,
                advice='ordered: [{"spot": "all"}, {"spot": "none", "after": "1800s"}]',
            )
        return None
    ((name, alternatives),) = given.items()
    if 0 < len(alternatives) <= ALTERNATIVES_MAX:
        return name, alternatives
    problem = "is empty"
    if alternatives:
        problem = f"has {len(alternatives)} alternatives; a job has at most {ALTERNATIVES_MAX}"
    problems.add_text((*PLACEMENT, name), problem, advice="one alternative, with several regions")
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
    """Path of the alternative."""
    installed: tuple[str, ...]
    """The regions that `any` means; empty: not known."""
    problems: Problems

    def _sets(self, field: str) -> bool:
        """Return whether the alternative has the field, even with an empty value."""
        return field in self.alternative.model_fields_set

    def zones(self, tpus: Sequence[Tpu]) -> tuple[Sequence[str], bool]:
        """Return the zones, and whether the user has listed them in this order.

        `tpus`: the alternative's slices.
        """
        alternative = self.alternative
        zones_path = (*self.path, "zones")
        regions_path = (*self.path, "regions")
        for field in ("regions", "zones"):
            if self._sets(field) and not getattr(alternative, field):
                self.problems.add_text(
                    (*self.path, field), "is empty", advice="leave it out, for those of the job"
                )
        if self._sets("reservation") and not alternative.zones:
            reason = "needs zones in its alternative: a reservation is in one zone"
            self.problems.add_text(
                (*self.path, "reservation"), reason, advice=f'zones: ["{self.plan.where.zones[0]}"]'
            )
        if alternative.regions and alternative.zones:
            self.problems.add_text(
                zones_path, "cannot be combined with regions", advice="leave one of them out"
            )
        elif alternative.zones:
            check_zones(alternative.zones, zones_path, self.problems)
            return alternative.zones, True
        elif alternative.regions:
            return self._zones_of_regions(tpus), False
        elif tpus and alternative.machine_spec and not self.plan.where.zones_listed:
            # Other zones of the region may offer the slice than those that offer the job's own.
            _, zones = resolve_zones(
                self.plan.where.region,
                regions_path,
                requested=(),
                tpus=tpus,
                problems=self.problems,
            )
            return zones, False
        return self.plan.where.zones, self.plan.where.zones_listed

    def _zones_of_regions(self, tpus: Sequence[Tpu]) -> list[str]:
        """Return the zones of the alternative's regions that offer its machines."""
        regions = self.alternative.regions
        path = (*self.path, "regions")
        if ANY in regions:
            if len(regions) > 1:
                self.problems.add_text(
                    path, "has any and other regions", advice=f'regions: "{ANY}"'
                )
            usable = tuple(region for region in self.installed if self._is_usable(region, tpus))
            regions = usable or (self.plan.where.region,)
        all_zones: list[str] = []
        for index, region in enumerate(regions):
            if region in regions[:index]:
                self.problems.add_text(
                    (*path, index), f"repeats {region}", advice="each region once"
                )
            _, zones = resolve_zones(
                region, (*path, index), requested=(), tpus=tpus, problems=self.problems
            )
            all_zones += zones
        return all_zones

    def _is_usable(self, region: str, tpus: Sequence[Tpu]) -> bool:
        """Return whether `any` means this region, too: it offers what the alternative needs."""
        unusable = Problems()
        resolve_zones(region, self.path, requested=(), tpus=tpus, problems=unusable)
        return not tuple(unusable)

    def option(self) -> Option:
        """Return what the alternative's VMs have in place of the job's values."""
        alternative = self.alternative
        own = {
            field: getattr(alternative, field)
            for field in ("spot", "reservation")
            if self._sets(field)
        }
        merged = self.extension.model_copy(update=own)
        if own:
            check_extension(merged, self.problems, self.path)
        roles, groups = self._machines()
        # Programs are the job's: an option has only what its VMs have in place of the job's values.
        groups = tuple(replace(group, program=None) for group in groups)
        groups = with_purchases(groups, merged.spot, self.spec.spot, merged.reservation)
        tpu_software = self.extension.image
        if tpu_software:
            groups = tuple(
                replace(group, tpu=group.tpu and replace(group.tpu, runtime=tpu_software))
                for group in groups
            )
        request = Request(
            self.plan.image.source,
            is_own_image=self.extension.image is not None,
            path=self.path,
        )
        check_machines(roles, groups, request, self.problems)
        groups = with_disks_for_image(roles, groups, self.plan.image.source, self.problems)
        variables = resolve_option_variables(
            alternative.env, self.plan, (*self.path, "env"), self.problems
        )
        return Option(groups, variables, alternative.after or 0)

    def _machines(self) -> tuple[Sequence[RoleRequest], tuple[TaskGroup, ...]]:
        """Return the roles, with paths of the alternative, and the hardware of each."""
        machine = self.alternative.machine_spec
        groups = self.plan.groups
        named = self._named_roles()
        if machine is None:
            if self._sets("roles"):
                self.problems.add_text(
                    (*self.path, "roles"), "needs a machineSpec", advice="leave it out"
                )
            return self._roles_with_machine_at_spot(), groups
        path = (*self.path, "machineSpec")
        type_path = (*path, "machineType")
        has_tpus = any(group.tpu for group in groups)
        bound_to_machine = None
        if self.spec.algorithm:
            bound_to_machine = "a built-in algorithm"
        elif has_tpus and not all(self.plan.program_of(name).container for name in named):
            # The packages of such a program are made for one kind of TPU software.
            bound_to_machine = "TPUs without a container"
        if bound_to_machine is not None:
            problem = f"cannot be set for {bound_to_machine}"
            self.problems.add_text(
                path,
                problem,
                advice="leave it out: its alternatives can differ in regions, zones and spot",
            )
            return self.spec.roles, groups
        require(machine.machine_type, type_path, self.problems)
        changed = [
            self._with_machine(role, machine, path)
            for role in self.spec.roles
            if role.task_type in named
        ]
        groups_before = {group.task_type: group for group in groups}
        if machine.machine_type and any(
            role.is_tpu is not bool(groups_before[role.task_type].tpu) for role in changed
        ):
            problem = (
                "must be a TPU for roles that have one, and a VM for the others: they start in"
                " different ways"
            )
            example = "ct6e-standard-4t" if has_tpus else "a2-highgpu-1g"
            self.problems.add(type_path, problem, example=example)
            return self.spec.roles, groups
        resolved = resolve_task_groups(changed, self.problems, has_containers=True)
        by_type = groups_before | {group.task_type: group for group in resolved}
        self._check_slices(tuple(by_type.values()))
        changed_by_type = {role.task_type: role for role in changed}
        roles = [changed_by_type.get(role.task_type, role) for role in self.spec.roles]
        return roles, tuple(by_type.values())

    def _roles_with_machine_at_spot(self) -> list[RoleRequest]:
        """Return the job's roles; problems of their machines are those of the use of Spot VMs."""
        spot_path = (*self.path, "spot")
        return [
            replace(role, paths=replace(role.paths, machine=spot_path)) for role in self.spec.roles
        ]

    def _with_machine(
        self, role: RoleRequest, machine: AlternativeMachine, path: FieldPath
    ) -> RoleRequest:
        """Return the role with the alternative's machine. `path`: that of the machine."""
        return replace(
            role,
            machine=machine.machine_type,
            accelerator=request_accelerator(machine.accelerator_type, machine.accelerator_count),
            topology=machine.tpu_topology,
            tier=None,
            paths=replace(
                role.paths,
                machine=(*path, "machineType"),
                accelerator=(*path, "acceleratorType"),
                accelerator_type=(*path, "acceleratorType"),
                accelerator_count=(*path, "acceleratorCount"),
                topology=(*path, "tpuTopology"),
            ),
        )

    def _check_slices(self, groups: Sequence[TaskGroup]) -> None:
        """Check the slices of the alternative against those of the job.

        The job's own TPU software fits one generation. Slices that train together stay equal,
        because `MEGASCALE_*` describes one shape.
        """
        slices = _tpus(groups)
        job_slices = _tpus(self.plan.groups)
        job_generations = _generations(job_slices)
        if self.extension.image and _generations(slices) != job_generations:
            problem = (
                f"is of another generation than {', '.join(job_generations)}, for which the job"
                " names the TPU software"
            )
            path = (*self.path, "machineSpec", "machineType")
            self.problems.add_text(
                path, problem, advice=f"leave out {EXTENSION}.image: each generation has its own"
            )
        if len(_shapes(slices)) > len(_shapes(job_slices)):
            types = ", ".join(tpu.type for tpu in slices)
            problem = f"results in slices of different shapes: {types}"
            self.problems.add_text(
                (*self.path, "roles"),
                problem,
                advice="leave it out: all roles with TPUs get the machine",
            )

    def _named_roles(self) -> set[TaskType]:
        """Return the task types that get the alternative's machine.

        They are those that it names; else those with accelerators; else all.
        """
        groups = self.plan.groups
        known = [group.task_type for group in groups]
        for index, role in enumerate(self.alternative.roles):
            if role not in known:
                problem = f"is {role}, and the job has only {', '.join(known)}"
                self.problems.add((*self.path, "roles", index), problem, example=str(known[0]))
        named = {role for role in self.alternative.roles if role is not None}
        accelerated = {group.task_type for group in groups if group.accelerator or group.tpu}
        return named or accelerated or set(known)


def _generations(tpus: Sequence[Tpu]) -> set[str]:
    """Return the generations of slices: `v6e` for the type `v6e-16`."""
    return {tpu.type.partition("-")[0] for tpu in tpus}


def _shapes(tpus: Sequence[Tpu]) -> set[tuple[str, str | None]]:
    return {(tpu.type, tpu.topology) for tpu in tpus}
