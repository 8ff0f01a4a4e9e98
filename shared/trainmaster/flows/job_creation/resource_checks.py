"""Look at the resources that a job names before VMs are paid for: buckets, images, service account,
secrets.

    bucket, image in Google's registries,   missing             the job is refused, with the field
    service account, secret version         may not be seen     the job is accepted, with a note
    bucket                                  in another region   the job is accepted, with a note
    program, in the packages                must fail           the job is refused, with the field
                                            may fail            the job is accepted, with a note

A program must fail if its module is missing, or if a file that it always imports is not valid
Python; see `trainmaster.program_files.packages`. A package that is large, damaged or cannot be read
now is not judged: `pip` has the last word.
Notes are substitutions whose replacement is the requested value. Packages are looked up in
`trainmaster.flows.job_creation.package_versions`. docs/decisions/0056-resources-before-vms.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from trainmaster.core.intake.document_fields import field_with
from trainmaster.core.intake.registry_images import parse_registry_image
from trainmaster.core.model.origin import Substitution
from trainmaster.core.model.package_uri import has_generation, is_built_in, parse_version
from trainmaster.core.model.plan import Plan
from trainmaster.core.model.task_group import Program
from trainmaster.cost.job_cost import transfer_price
from trainmaster.cost.price_list import PriceList
from trainmaster.cost.sku import Unknown
from trainmaster.errors import PermanentError, TemporaryError
from trainmaster.flows.job_creation.package_versions import programs_of, with_generations
from trainmaster.jobspec.accept import AcceptedSpec
from trainmaster.jobspec.problems import InvalidJob, Problem
from trainmaster.ports import BucketForbiddenError, Existence, Objects, Resources

if TYPE_CHECKING:
    from trainmaster.program_files.archives import Archive

LOOKUPS_AT_ONCE: Final = 8
"""A job may name a hundred secrets. One look-up takes about 50 ms."""
PACKAGE_BYTES_MAX: Final = 1 << 20
"""Larger packages are not opened. An instance of the function `api` checks sixteen jobs at once."""
UNPACKED_BYTES_MAX: Final = 64 << 20
SOURCE_BYTES_MAX: Final = 1 << 20
"""Most bytes of source that are read and parsed, in all packages of a program together. That takes
about a second.
"""
FINDINGS_MAX: Final = 5
"""Most problems, or most notes, that are reported about one program."""
FINDING_MAX: Final = 300
"""Characters of a problem or a note: a package may have names of any length."""
PACKAGES_MAX: Final = 8
"""A program with more packages is not judged."""

_SECRET: Final = "secret version"  # noqa: S105 - a word
_NOT_SEEN: Final = "It was not checked whether"
"""Beginning of the note about a resource that the installation may not see."""

ObjectsOf = Callable[[], Objects] | None


class _ImageDigest(NamedTuple):
    image: str
    """Container image as requested."""
    digest: str


_Result = Problem | Substitution | _ImageDigest | None
_Lookup = Callable[[], _Result | list[Problem | Substitution]]
"""Returns problems, notes, or an image with its digest; None if nothing is wrong."""


@dataclass(frozen=True, slots=True)
class Findings:
    """The results of the look-ups of one job."""

    problems: list[Problem] = field(default_factory=list)
    notes: list[Substitution] = field(default_factory=list)
    images: dict[str, str] = field(default_factory=dict)
    """Container image as requested → with its digest."""

    def add(self, result: _Result) -> None:
        if isinstance(result, Problem):
            self.problems.append(result)
        elif isinstance(result, _ImageDigest):
            self.images[result.image] = f"{result.image}@{result.digest}"
        elif result is not None:
            self.notes.append(result)


def with_resources(
    spec: AcceptedSpec,
    objects: ObjectsOf,
    resources: Callable[[], Resources] | None,
    *,
    opens_packages: bool = True,
) -> AcceptedSpec:
    """Return the spec with its packages and images pinned, and with notes about its resources.

    Raises InvalidJob with every resource that is missing. `objects`, `resources`: None looks
    nothing up, as in an installation that does not run on Google Cloud. `opens_packages`: whether
    the packages that the job names without a version are opened, to judge the program.
    """
    submitted = spec.plan
    problems: list[Problem] = []
    try:
        spec = with_generations(spec, objects)
    except InvalidJob as invalid:
        problems.extend(invalid.problems)
    programs = _program_lookups(submitted, spec, objects) if objects and opens_packages else ()
    findings = check_resources(spec, objects, resources, programs)
    if problems or findings.problems:
        raise InvalidJob([*problems, *findings.problems])
    notes = (*spec.plan.origin.substitutions, *findings.notes)
    plan = spec.plan.with_versions(findings.images)
    return replace(spec, plan=replace(plan, origin=replace(plan.origin, substitutions=notes)))


def found_resources(spec: AcceptedSpec, notes: Iterable[Substitution]) -> list[str]:
    """Return what `with_resources` has found, in words: `bucket gs://b`, `2 secret versions`.

    `notes`: those of its result. What the installation may not see is in a note, and not here.
    """
    unseen = Counter(note.requested for note in notes if note.reason.startswith(_NOT_SEEN))
    programs = programs_of(spec.plan)
    uris = dict.fromkeys(
        uri for program in programs for uri in program.package_uris if not has_generation(uri)
    )
    buckets: dict[str, str] = {}
    for uri, is_directory in _storage_uris(spec):
        if is_directory:
            buckets.setdefault(_bucket_of(uri), uri)
    images = dict.fromkeys(program.container.image for program in programs if program.container)
    found = [f"package {uri}" for uri in uris]
    found += [f"bucket gs://{bucket}" for bucket, uri in buckets.items() if uri not in unseen]
    found += [
        f"image {image}" for image in images if parse_registry_image(image) and image not in unseen
    ]
    account = spec.plan.access.service_account
    if account and account not in unseen:
        found.append(f"service account {account}")
    secrets = len(_secrets(programs)) - unseen[f"a {_SECRET}"]
    if secrets:
        found.append(f"1 {_SECRET}" if secrets == 1 else f"{secrets} {_SECRET}s")
    return found


def check_resources(
    spec: AcceptedSpec,
    objects: ObjectsOf,
    resources: Callable[[], Resources] | None,
    more: Iterable[_Lookup] = (),
) -> Findings:
    """Look up all resources, several at once. Each problem and note names its field.

    `more`: further look-ups.
    """
    findings = Findings()
    lookups = list(more)
    if objects is not None:
        lookups.extend(_bucket_lookups(spec, objects))
    if resources is not None:
        lookups.extend(_resource_lookups(spec, resources))
    if not lookups:
        return findings
    with ThreadPoolExecutor(min(len(lookups), LOOKUPS_AT_ONCE)) as pool:
        for found in pool.map(lambda lookup: lookup(), lookups):
            results = found if isinstance(found, list) else [found]
            for result in results:
                findings.add(result)
    return findings


def _bucket_lookups(spec: AcceptedSpec, objects: Callable[[], Objects]) -> Iterator[_Lookup]:
    """Yield one look-up per bucket.

    The bucket of packages is only compared with the region: `package_versions` looks up the
    packages themselves.
    """
    seen: set[str] = set()
    for uri, is_directory in _storage_uris(spec):
        bucket = _bucket_of(uri)
        if bucket not in seen:
            seen.add(bucket)
            yield partial(_look_at_bucket, spec, uri, bucket, objects, is_directory=is_directory)


def _program_lookups(
    submitted: Plan, spec: AcceptedSpec, objects: Callable[[], Objects]
) -> Iterator[_Lookup]:
    """Yield one look-up per program that is a module of packages.

    `submitted`: the plan before `with_generations` pinned its packages. A program is judged only if
    none of its packages had a generation (an object's version in Cloud Storage) by then.
    Trainmaster's own clients name generations, and have judged the program themselves; the
    installation may also be unable to read a version that a submitter names.
    """
    pairs = zip(programs_of(submitted), programs_of(spec.plan), strict=True)
    for before, program in pairs:
        are_pinned_here = not any(map(has_generation, before.package_uris))
        if program.python_module and are_pinned_here and len(program.package_uris) <= PACKAGES_MAX:
            uris = program.package_uris
            yield partial(_look_at_program, spec, program.python_module, uris, objects)


def _look_at_program(
    spec: AcceptedSpec, module: str, uris: Sequence[str], objects: Callable[[], Objects]
) -> list[Problem | Substitution]:
    # Few requests name packages, and the readers of their metadata delay each cold start.
    from trainmaster.program_files.packages import check_packages
    from trainmaster.program_files.requirements import runtime_of

    archives: list[Archive] = []
    bytes_left = SOURCE_BYTES_MAX
    for uri in uris:
        archive = _open_package(uri, objects(), bytes_left)
        if archive is None:
            return []
        bytes_left -= archive.bytes_read
        archives.append(archive)
    runtime = runtime_of(spec.plan)
    found = list(check_packages(module, archives, runtime, SOURCE_BYTES_MAX))
    name = field_with(module, spec.spec_json, "pythonModule")
    failures = [finding for finding in found if finding.must_fail][:FINDINGS_MAX]
    if failures:
        reasons = "; ".join(_short(finding.problem) for finding in failures)
        return [Problem(name, f"is {module}, but {reasons}", example=_short(failures[0].remedy))]
    return [
        Substitution(name, module, module, _short(str(finding))) for finding in found[:FINDINGS_MAX]
    ]


def _short(text: str) -> str:
    return text if len(text) <= FINDING_MAX else f"{text[:FINDING_MAX]}…"


def _open_package(uri: str, objects: Objects, bytes_left: int) -> Archive | None:
    """Return a package, of whose sources at most `bytes_left` bytes are read; None: it cannot be
    judged.

    An error of the read does not refuse the job: it may be able to run.
    """
    from trainmaster.program_files.archives import open_archive

    name, generation = parse_version(uri)
    try:
        content = objects.read(name, generation=generation, max_bytes=PACKAGE_BYTES_MAX + 1)
    except (TemporaryError, PermanentError):
        return None
    if content is None or len(content) > PACKAGE_BYTES_MAX:
        return None
    return open_archive(content, UNPACKED_BYTES_MAX, bytes_left)


def transfers(
    spec: AcceptedSpec, objects: ObjectsOf, prices: PriceList | Unknown
) -> dict[str, Decimal | Unknown]:
    """Return region → price of the transfer of the job's data at each start; empty if it names
    none.
    """
    if spec.data is None or isinstance(prices, Unknown):
        return {}
    try:
        place = objects().bucket_place(_bucket_of(str(spec.data.uri))) if objects else None
    except BucketForbiddenError:
        place = None
    return {
        region: transfer_price(spec.data.gib, place, region, prices)
        for region in spec.plan.where.regions
    }


def _bucket_of(uri: str) -> str:
    """Return the bucket of a URI such as `gs://BUCKET/PATH`."""
    return uri.removeprefix("gs://").partition("/")[0]


def _storage_uris(spec: AcceptedSpec) -> Iterator[tuple[str, bool]]:
    """Yield the job's directories, its data, and then its packages; True for a directory."""
    plan = spec.plan
    if spec.data:
        yield str(spec.data.uri), True
    if plan.origin.output_directory:
        yield plan.origin.output_directory, True
    programs = programs_of(plan)
    for program in programs:
        if program.job_dir:
            yield program.job_dir, True
    for program in programs:
        for uri in program.package_uris:
            if not is_built_in(uri):
                yield uri.partition("#")[0], False


def _look_at_bucket(
    spec: AcceptedSpec, uri: str, bucket: str, objects: Callable[[], Objects], *, is_directory: bool
) -> Problem | Substitution | None:
    name = field_with(uri, spec.spec_json, "jobDir" if is_directory else "packageUris")
    try:
        place = objects().bucket_place(bucket)
    except BucketForbiddenError:
        return _unknown(name, uri, f"the bucket gs://{bucket}") if is_directory else None
    if place is None:
        problem = f"names the bucket {bucket}, which does not exist"
        return (
            Problem(name, problem, example="create the bucket first, in the job's region")
            if is_directory
            else None
        )
    far = [region for region in spec.plan.where.regions if not place.serves(region)]
    if not far:
        return None
    where = "+".join(place.data_locations) or place.location
    reason = (
        f"The bucket gs://{bucket} is in {where}, and the job's VMs are in {' or '.join(far)}: its"
        " objects are read and written more slowly, and the network traffic between the two is"
        " charged."
    )
    return Substitution(name, uri, uri, reason)


def _resource_lookups(spec: AcceptedSpec, resources: Callable[[], Resources]) -> Iterator[_Lookup]:
    """Yield one look-up for the service account, for each image of Google's registries, and for
    each secret.
    """
    port = resources()
    programs = programs_of(spec.plan)
    if account := spec.plan.access.service_account:
        yield partial(
            _look_up, spec, account, "service account", partial(port.service_account, account)
        )
    for image in dict.fromkeys(
        program.container.image for program in programs if program.container
    ):
        if parsed := parse_registry_image(image):
            yield partial(_look_up_image, spec, image, partial(port.image, parsed))
    for secret in _secrets(programs):
        yield partial(_look_up_secret, spec, secret, partial(port.secret_version, secret))


def _secrets(programs: Sequence[Program]) -> dict[str, None]:
    """Return the names of all secrets, once each, in the order of the programs."""
    return dict.fromkeys(
        variable.secret
        for program in programs
        for variable in program.environment
        if variable.secret
    )


def _look_up_image(
    spec: AcceptedSpec, image: str, find: Callable[[], tuple[Existence, str]]
) -> _Result:
    """Return the image with its digest: VMs that start later then run the same image, even if its
    tag has moved.
    """
    existence, digest = find()
    return (
        _ImageDigest(image, digest)
        if digest and "@" not in image
        else _look_up(spec, image, "image", lambda: existence)
    )


def _look_up(
    spec: AcceptedSpec, value: str, kind: str, find: Callable[[], Existence]
) -> Problem | Substitution | None:
    name = field_with(value, spec.spec_json, kind)
    match find():
        case Existence.MISSING:
            problem = f"names the {kind} {value}, which does not exist"
            return Problem(name, problem, example=f"create the {kind} first")
        case Existence.UNKNOWN:
            return _unknown(name, value, f"the {kind} {value}")
        case Existence.EXISTS:
            return None


def _look_up_secret(
    spec: AcceptedSpec, secret: str, find: Callable[[], Existence]
) -> Problem | Substitution | None:
    """Look up a version of a secret. Its name is not quoted: it may be the secret itself."""
    kind = _SECRET
    name = field_with(secret, spec.spec_json, kind)
    match find():
        case Existence.MISSING:
            return Problem(
                name,
                f"names a {kind} that does not exist or is not enabled",
                example="the name of a secret of Secret Manager, and not its value",
            )
        case Existence.UNKNOWN:
            return _unknown(name, f"a {kind}", f"the {kind}")
        case Existence.EXISTS:
            return None


def _unknown(name: str, value: str, resource: str) -> Substitution:
    reason = f"{_NOT_SEEN} {resource} exists, because this installation may not see it."
    return Substitution(name, value, value, reason)
