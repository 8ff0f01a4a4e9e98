"""Checks of organisation policies: which ones block the installation or its jobs.

Source: "Organization policy constraints" of the Resource Manager documentation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from trainmaster.cli.doctor.findings import Finding, limit, not_checked, ok, problem, unknown
from trainmaster.gcp.tools.inspected_resources import Policy
from trainmaster.gcp.tools.inspection import Inspection, InspectionError
from trainmaster.jobspec.catalog.runtimes import RUNTIMES

SERVICES: Final = (
    "aiplatform",
    "artifactregistry",
    "cloudbuild",
    "cloudfunctions",
    "cloudresourcemanager",
    "cloudscheduler",
    "compute",
    "firestore",
    "iam",
    "logging",
    "monitoring",
    "pubsub",
    "run",
    "secretmanager",
    "storage",
    "tpu",
)
"""APIs that infra/ enables and the installation needs.

Those of the budget and of these checks may be missing.
"""
_WITHOUT_CUSTOMER_KEYS: Final = (
    "artifactregistry",
    "compute",
    "firestore",
    "logging",
    "pubsub",
    "storage",
)
"""APIs whose resources in infra/ are encrypted with Google's keys, not with customer-managed ones.
"""
_UNNAMED: Final = ""
"""Value of a resource that names no pool or policy: a list of allowed values does not have it."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where Trainmaster is, or will be, installed."""

    project: str
    region: str | None
    """None: not known."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One constraint and the value that it must allow."""

    constraint: str
    refused: Callable[[Policy, Place], str]
    """Returns what the policy refuses; empty: nothing."""
    alternative: str = ""
    """What to do instead of lifting the policy."""
    some_jobs_only: bool = False
    """Whether the installation and most jobs work under the policy."""
    only_at_installation: bool = False
    """Whether the constraint matters only until infra/ is applied."""


def _when_enforced(text: str) -> Callable[[Policy, Place], str]:
    return lambda policy, _: text if policy.is_enforced else ""


def _each_allowed(what: str, *names: tuple[str, ...]) -> Callable[[Policy, Place], str]:
    """Return a rule's function `refused`: it names what the policy does not allow, after `what`.

    Each item of `names` has the alternative names of one value.
    """

    def refused(policy: Policy, _: Place) -> str:
        missing = [name for name, *others in names if not policy.allows(name, *others)]
        return f"{what} {', '.join(missing)}" if missing else ""

    return refused


def _image_projects() -> list[tuple[str, ...]]:
    """Return `projects/PROJECT` of each image."""
    projects = {"/".join(runtime.image.split("/")[:2]) for runtime in RUNTIMES.values()}
    return [(project,) for project in sorted(projects)]


def _location(policy: Policy, place: Place) -> str:
    if place.region is None:
        return ""
    continent = place.region.partition("-")[0]
    names = [place.region, f"in:{place.region}-locations", f"in:{continent}-locations"]
    if continent == "europe":
        names.append("in:eu-locations")
    return "" if policy.allows(*names) else f"resources in {place.region}"


def _nat(policy: Policy, place: Place) -> str:
    return "" if policy.allows(f"under:projects/{place.project}") else "Cloud NAT"


def _builds(policy: Policy, _: Place) -> str:
    if policy.allows(_UNNAMED):
        return ""
    return "builds in Cloud Build's default pool, in which functions are built"


def _binary_authorization(policy: Policy, _: Place) -> str:
    return "" if policy.allows(_UNNAMED) else "services that name no policy of Binary Authorization"


RULES: Final = (
    Rule(
        "run.managed.requireInvokerIam",
        _when_enforced(
            "turning off Cloud Run's check of the function api, which Google's clients cannot pass"
        ),
        'set `api_access = "none"` in infra/ if only clients with identity tokens call the API',
    ),
    Rule(
        "cloudfunctions.restrictAllowedGenerations",
        _each_allowed("functions of the generation", ("2ndGen",)),
    ),
    Rule("run.allowedBinaryAuthorizationPolicies", _binary_authorization),
    Rule(
        "cloudfunctions.allowedIngressSettings",
        _each_allowed("functions with the ingress", ("ALLOW_ALL",), ("ALLOW_INTERNAL_ONLY",)),
    ),
    Rule("run.allowedIngress", _each_allowed("services with the ingress", ("all",), ("internal",))),
    Rule(
        "run.allowedVPCEgress",
        _each_allowed("services with the VPC egress", ("private-ranges-only",)),
    ),
    Rule("cloudfunctions.requireVPCConnector", _when_enforced("functions without a VPC connector")),
    Rule("cloudbuild.allowedWorkerPools", _builds),
    Rule("gcp.resourceLocations", _location, "choose another region"),
    Rule(
        "gcp.restrictServiceUsage",
        _each_allowed("the use of", *((f"{name}.googleapis.com",) for name in SERVICES)),
    ),
    Rule(
        "gcp.restrictNonCmekServices",
        _each_allowed(
            "resources without a customer-managed key in",
            *((f"{name}.googleapis.com",) for name in _WITHOUT_CUSTOMER_KEYS),
        ),
    ),
    Rule(
        "compute.restrictNonConfidentialComputing",
        _each_allowed("ordinary VMs of", ("compute.googleapis.com",)),
    ),
    Rule(
        "compute.trustedImageProjects",
        _each_allowed("VMs with the images of", *_image_projects()),
        "specify an image of your own in each job (`trainmaster.image`)",
    ),
    Rule(
        "compute.restrictCloudNATUsage",
        _nat,
        "set `nat = false` in infra/; then VMs cannot install packages",
    ),
    Rule(
        "compute.requireShieldedVm",
        _when_enforced(
            "VMs with GPUs, which are created without Secure Boot: the drivers of their images need"
            " that"
        ),
        some_jobs_only=True,
    ),
    Rule(
        "compute.disableGuestAttributesAccess",
        _when_enforced(
            "reads of guest attributes: a VM that hangs is replaced after 15 minutes in place of"
            " two, and only with `metrics` on; early stopping of tuning jobs stops no trial"
        ),
        some_jobs_only=True,
    ),
    Rule(
        "iam.managed.allowedPolicyMembers",
        _when_enforced(
            "grants to members that it does not list, as `clients`, `api_users` or `ssh_users` of"
            " another organisation; without the principal set of this organisation also grants to"
            " the service accounts and agents of the project, and with them the first apply"
        ),
        "name only members that it lists",
        some_jobs_only=True,
    ),
    *(
        Rule(
            constraint,
            _when_enforced("the service accounts that infra/ creates"),
            only_at_installation=True,
        )
        for constraint in (
            "iam.disableServiceAccountCreation",
            "iam.managed.disableServiceAccountCreation",
        )
    ),
)


def check_policies(
    inspection: Inspection, region: str | None, *, before_install: bool
) -> Iterator[Finding]:
    """Check all constraints that can block the installation or its jobs."""
    if inspection.endpoints.is_local_stack:
        yield not_checked("organisation policies", "the local stack has none")
        return
    place = Place(inspection.project, region)
    findings = []
    for rule in RULES:
        if rule.only_at_installation and not before_install:
            continue
        try:
            policy = inspection.policy(rule.constraint)
        except InspectionError as error:
            if error.status != HTTPStatus.FORBIDDEN:
                raise
            if error.disabled_api:
                fix = f"`gcloud services enable {error.disabled_api} --project {place.project}`"
            else:
                fix = "get roles/orgpolicy.policyViewer on the project or its organisation"
            yield unknown("organisation policies", f"reading them is refused ({error})", fix)
            return
        refused = rule.refused(policy, place)
        if refused:
            findings.append(_finding(rule, refused, place))
    yield from findings or [ok("organisation policies")]


def _finding(rule: Rule, refused: str, place: Place) -> Finding:
    lift = (
        "ask an administrator of the organisation (roles/orgpolicy.policyAdmin) to lift it for the"
        f" project: `gcloud org-policies reset {rule.constraint} --project {place.project}`"
    )
    text = f"the organisation policy {rule.constraint} refuses {refused}"
    fix = f"{lift}; or {rule.alternative}" if rule.alternative else lift
    return limit(text, fix) if rule.some_jobs_only else problem(text, fix)
