"""Every place at which text of others is read: what it is given, and the errors with which it may
refuse it.

An entrance returns for an input that it accepts. `ACCEPTED` are the documents that the inputs are
made of.
"""

from __future__ import annotations

import base64
import gzip
import hmac
import io
import json
import logging
import math
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from itertools import chain, count
from types import SimpleNamespace
from typing import Any, Final, TypeVar
from urllib.parse import quote
from zlib import crc32

import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from google.auth import crypt
from werkzeug.test import TestResponse

from infra.webhook import main as webhook
from tests.support.archives import sdist, wheel
from tests.support.console_site import Site
from tests.support.jobs import CHIEF, a_spec, a_tuning_spec
from tests.support.world import World
from trainmaster.agent.channel import datagrams
from trainmaster.agent.metric.event_records import CorruptRecordError, parse_records
from trainmaster.agent.metric.trial_metric import parse_measurements
from trainmaster.agent.program.stacks import find_stacks, innermost_frames
from trainmaster.agent.program.tracebacks import parse_traceback
from trainmaster.agent.progress.printed import read_printed
from trainmaster.agent.progress.status_server import parse_status
from trainmaster.agent.reporting.log_entry import entry_of
from trainmaster.agent.reporting.serial_console import Stream
from trainmaster.api import handler
from trainmaster.api.permissions import EQUIVALENT_PERMISSIONS
from trainmaster.api.request import Request, Service
from trainmaster.cli.mcp import CHARS_MAX, MARK, UNTRUSTED, _answer
from trainmaster.core.intake.registry_images import parse_registry_image
from trainmaster.core.model.vm_names import job_hash_in, vm_name
from trainmaster.errors import PermanentError, TemporaryError
from trainmaster.flows import submit
from trainmaster.gcp.iap_assertions import IapAssertions
from trainmaster.gcp.identity_tokens import IdentityTokens
from trainmaster.gcp.project_access import _signed_scopes
from trainmaster.gcp.public_keys import PublicKeys
from trainmaster.gcp.vm_labels import parse_heartbeat
from trainmaster.jobspec.accept import accept
from trainmaster.jobspec.catalog.runtimes import RUNTIMES
from trainmaster.jobspec.fields.job_id import job_id_from
from trainmaster.jobspec.job_document import read_document, with_time_in_job_id
from trainmaster.jobspec.problems import InvalidJob
from trainmaster.messaging import agent_messages, google_events, internal_requests, push
from trainmaster.messaging.reported_metric import decode_reported_metric
from trainmaster.ports.metrics import RESOURCES, Label, Metric
from trainmaster.presentation.log_reader import parse_entry
from trainmaster.presentation.printable import make_visible, printable
from trainmaster.presentation.progress import read_progress
from trainmaster.program_files.archives import open_archive
from trainmaster.program_files.packages import all_files, check_packages, has_module
from trainmaster.program_files.requirements import RuntimePackages
from trainmaster_local.memory.access import MemoryAccess

OWNER: Final = "ya29.token-of-an-owner"
Choice = TypeVar("Choice")
Calls = Callable[[bytes], Mapping[str, Callable[[], int]]]
"""Returns for an input what is called with it: functions that return a status of HTTP, by name."""
AUDIENCE: Final = "/projects/1/x"
"""Whom the tokens are for."""
JWT_DOTS: Final = 2
NOT_SIGNED_IN: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
REFUSED: Final = (PermanentError, TemporaryError, InvalidJob)


@dataclass(frozen=True, slots=True)
class Entrance:
    """One entrance. `read` raises anything but `errors` for a defect."""

    read: Callable[[bytes], object]
    seeds: Sequence[object]
    """What inputs are made of: documents that get beyond the first check."""
    errors: tuple[type[Exception], ...] = REFUSED
    memory_mib: int = 32
    """Memory of one input.

    The functions have 512 MiB, need some 130 themselves, and parse one message at a time.
    """
    calls: Calls | None = None
    """Those of which `read` makes one, if there are several."""


def agent_message() -> dict[str, Any]:
    world = World()
    world.submit()
    world.deliver()
    error = {"type": "E", "message": "m", "frame": "f", "causes": ["c"]}
    metric = {"value": 1.0, "step": 3, "earlier": [{"value": 0.5, "step": 1}]}
    return {
        **world.message_fields(CHIEF),
        "cause": "process",
        "exit_status": 1,
        "error": error,
        "metric": metric,
        "tail": "t",
    }


def served(world: World) -> Callable[[bytes], None]:
    """Serve a push request.

    Its dead letter must fit Pub/Sub's limits, which the bus in memory has.
    """

    def read(body: bytes) -> None:
        request = SimpleNamespace(stream=SimpleNamespace(read=lambda size: body[:size]))
        push.serve(request, "replica_exit", _handle_exit, lambda: world.bus)  # type: ignore[arg-type]

    return read


def _handle_exit(message: push.Message) -> None:
    agent_messages.decode_subject(message.data)
    agent_messages.decode_replica_exit(message.data)


def submitted(world: World) -> Callable[[bytes], None]:
    def read(data: bytes) -> None:
        submit.handle(data, None, world.deps, world.now)

    return read


def api_calls(world: World) -> Calls:
    """Return the requests of the API with an input in one of their parts, by name."""
    numbers = count()
    permissions = frozenset(EQUIVALENT_PERMISSIONS.values())
    service = Service(
        "my-project",
        world.deps,
        MemoryAccess({OWNER: permissions}),
        lambda: f"r{next(numbers)}",
        "",
        0,
    )
    headers = {"authorization": f"Bearer {OWNER}"}
    jobs = "/v1/projects/my-project/jobs"
    custom = "/v1/projects/my-project/locations/us-central1/customJobs"
    only = {"validateOnly": "true"}

    def call(request: Request) -> Callable[[], int]:
        return lambda: handler.serve(request, service).status

    def calls(data: bytes) -> Mapping[str, Callable[[], int]]:
        text = data.decode(errors="replace")[:5000]
        bearer = {"authorization": f"Bearer {text}"}
        requests = {
            "validated job": Request("POST", jobs, only, headers, data),
            "job": Request("POST", jobs, {}, headers, data),
            "validated custom job": Request("POST", custom, only, headers, data),
            "custom job": Request("POST", custom, {}, headers, data),
            "change": Request("PATCH", f"{jobs}/digits_1", {"updateMask": "labels"}, headers, data),
            "mask": Request("PATCH", f"{jobs}/digits_1", {"updateMask": text}, headers, b"{}"),
            "filter": Request("GET", jobs, {"filter": text}, headers),
            "page token": Request("GET", jobs, {"pageToken": text}, headers),
            "page size": Request("GET", jobs, {"pageSize": text}, headers),
            "custom jobs' filter": Request("GET", custom, {"filter": text}, headers),
            "custom jobs' mask": Request("GET", custom, {"readMask": text}, headers),
            "path": Request("GET", f"{jobs}/{quote(text[:200])}", {}, headers),
            "token": Request("GET", f"{jobs}/digits_1", {}, bearer),
        }
        return {name: call(request) for name, request in requests.items()}

    return calls


def answered(calls: Calls, seeds: Sequence[object]) -> Entrance:
    """Make one of the calls: which one follows from the input, because each takes milliseconds.

    An answer that refuses the input counts as PermanentError.
    """

    def read(data: bytes) -> None:
        name, call = chosen([*calls(data).items()], data)
        status = call()
        assert status != HTTPStatus.INTERNAL_SERVER_ERROR, name
        if status >= HTTPStatus.BAD_REQUEST:
            raise PermanentError(f"{name}: {status}")

    return Entrance(read, seeds, calls=calls)


def chosen(choices: Sequence[Choice], data: bytes) -> Choice:
    """Return one of the choices: the same one for the same input."""
    return choices[crc32(data) % len(choices)]


def console_visits(site: Site) -> Calls:
    """Return the pages and the forms of the console with an input in one of their fields."""
    form = {"token": site.form_token("/jobs/digits_1/labels"), "key": "k" * 16}
    spec = yaml.safe_dump(a_spec())

    def status_of(answer: TestResponse) -> int:
        assert answer.status_code not in NOT_SIGNED_IN, "the input reaches no page and no form"
        return answer.status_code

    def calls(data: bytes) -> Mapping[str, Callable[[], int]]:
        text = data.decode(errors="replace")[:4000]
        address = quote(text, safe="/?=&")
        pages = {
            "list": f"/jobs?{address}",
            "job": f"/jobs/{address}",
            "view of a job": f"/jobs/digits_1?{address}",
            "log": f"/jobs/digits_1/logs?{address}",
            "resources": f"/jobs/digits_1/resources?replica={address}",
            "comparison": f"/compare?job=digits_1&job={address}",
            "cancellation": f"/cancel?job={address}",
            "submission": f"/submissions/{address}/{'k' * 16}?at=1764000000",
        }
        document = data[:200_000].decode(errors="replace")
        forms = {
            "job file": ("/jobs/digits_1/clone", {"spec": document, "job_id": "clone_1"}),
            "id": ("/jobs/digits_1/clone", {"spec": spec, "job_id": text[:200]}),
            "labels": (
                "/jobs/digits_1/labels",
                {"labels": text, "seen": str(site.world.job.labels_version)},
            ),
            "seen labels": ("/jobs/digits_1/labels", {"labels": "", "seen": text}),
            "cancelled": ("/cancel", {"job": text}),
        }

        def visit(path: str) -> Callable[[], int]:
            return lambda: status_of(site.get(path))

        def send(path: str, fields: dict[str, str]) -> Callable[[], int]:
            return lambda: status_of(site.send(path, {**form, **fields}))

        return {
            **{name: visit(path) for name, path in pages.items()},
            **{name: send(*sent) for name, sent in forms.items()},
        }

    return calls


def packaged(data: bytes) -> None:
    """Read a package of a job: the bytes, or an archive of the members that a JSON list describes,
    so that most inputs have headers that are in order.
    """
    archive = open_archive(_archive_of(data), 64 << 20, 1 << 20)
    if archive is None:
        raise PermanentError("not judged")
    runtime = RuntimePackages("2.21", "3.12", RUNTIMES["2.21"].packages)
    for module in ("trainer.task", "trainer.tsak"):
        for finding in check_packages(module, [archive], runtime, 1 << 20):
            assert str(finding).isprintable()
    has_module("trainer.tsak", all_files([archive]))


def _archive_of(data: bytes) -> bytes:
    try:
        members = json.loads(data[: 64 << 10])
    except (ValueError, RecursionError):
        return data[: 1 << 20]  # larger packages are not opened
    content, size = io.BytesIO(), 0
    for member in members if isinstance(members, list) else []:
        if not isinstance(member, dict) or size > 80 << 20:
            continue
        inside = str(member.get("content", ""))[:100_000].encode(errors="replace")
        header = tarfile.TarInfo(str(member.get("name", "x"))[:90])
        header.type, header.size = str(member.get("kind", "0"))[:1].encode(), len(inside)
        block = header.tobuf(tarfile.PAX_FORMAT) + inside + bytes(-len(inside) % 512)
        times = member.get("times")
        block *= min(times, 3000) if isinstance(times, int) and times > 0 else 1
        size += content.write(block)
    return gzip.compress(content.getvalue()[: 80 << 20] + bytes(1024), 1)


def signed() -> Callable[[bytes], None]:
    """Read a token of a stranger, and the same bytes as claims of a token that Google signed."""
    key = ec.generate_private_key(ec.SECP256R1())
    signer = crypt.ES256Signer(key, "1")
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    identity = IdentityTokens("https://keys.invalid")
    assertions = IapAssertions(AUDIENCE, "https://keys.invalid")
    for keys in (identity._keys, assertions._keys):
        setattr(keys, PublicKeys.with_key.__name__, lambda _: {"1": public.decode()})
    header = base64.urlsafe_b64encode(b'{"alg":"ES256","kid":"1"}')

    def read(data: bytes) -> None:
        text = data.decode(errors="replace")
        _signed_scopes(text)
        for refuse in (identity.claims, assertions.user):
            with pytest.raises(PermanentError) as refused:
                refuse(text)
            assert len(str(refused.value)) < 1000, "it quotes the token"
        if text.count(".") == JWT_DOTS:
            return  # no claims, but a whole token
        message = header + b"." + base64.urlsafe_b64encode(data)
        signature = base64.urlsafe_b64encode(signer.sign(message))
        verify: Callable[[str], object] = identity.claims
        if "/iap" in text:
            verify = assertions.user
        verify((message + b"." + signature).decode())

    return read


def shown(data: bytes) -> None:
    """Read what programs print, and what they write to Cloud Logging, Cloud Monitoring and guest
    attributes.
    """
    text = data[: 256 << 10].decode(errors="replace")  # Cloud Logging's limit of an entry
    list(parse_measurements(text, "loss"))
    decode_reported_metric(text)
    parse_heartbeat(text)
    assert not set(make_visible(printable(text))) & set("\x07\x9b\u202e")
    for line in text.split("\n")[:50]:
        entry = entry_of(line, Stream.STDOUT)
        parse_entry({"timestamp": "2026-11-21T03:00:00Z", "labels": {}, **entry})
    job_hash_in(text), parse_registry_image(text), job_id_from(text[:5000], "1")


def trained(data: bytes) -> None:
    """Read what a program prints of its progress and its errors, and what it reports by HTTP."""
    text = data[: 64 << 10].decode(errors="replace")  # what an agent keeps of a stream
    readings = [read_printed(text)]
    with suppress(KeyError, TypeError, AttributeError, ValueError, RecursionError):
        readings.append(parse_status(json.loads(text)))  # `StatusServer.answer` refuses for these
    for reading in readings:
        assert all(map(math.isfinite, reading.metrics.values()))
        assert all(map(str.isprintable, reading.metrics))
        assert reading.share is None or 0 <= reading.share <= 1
    parse_traceback(text, "trainer")
    innermost_frames(find_stacks(text), "trainer")


def received(data: bytes) -> None:
    """Read a datagram of a stranger, and the same bytes as the body of a member's."""
    key = b"k" * 32
    body = data[: datagrams.BYTES_MAX]
    assert datagrams.decode(data, "digits_1", key) is None, "nobody has the key"
    signed = datagrams.MAGIC + hmac.digest(key, body, "sha256") + body
    found = datagrams.decode(signed, "digits_1", key)
    if found:
        assert all(math.isfinite(value) for value in found.seconds.values())


def told(data: bytes) -> None:
    """Show text to an agent that uses the tools of `trainmaster mcp`, and to a chat."""
    text = data[: 256 << 10].decode(errors="replace")
    answer = _answer([text], len(data) % 3, MARK)
    assert len(answer) <= CHARS_MAX
    head, *marked = answer.split("\n")
    assert head in (UNTRUSTED, "Nothing.")
    assert all(line.startswith((MARK, "There is more: continuation ")) for line in marked)
    shown = {"text": "", "error_message": text, "attempt": 1, "job_id": "j"}
    message = webhook.text_of({**shown, "transition": "failed", "state": "FAILED"}, "")
    _, why = message.split("\n", 1)
    assert not any(markup in why for markup in (*webhook.MARKUP, "\n"))


def charted(site: Site) -> Callable[[bytes], None]:
    """Show series of a job that a program wrote: lists of numbers under any labels.

    Views compute with differences: each number comes with its neighbours, or, in a series that is
    `alone`, without them.
    """

    def read(data: bytes) -> None:
        site.metrics.series.clear()
        for metric, labels, numbers in _series(data):
            begin = site.world.now - timedelta(minutes=len(numbers))
            site.metrics.add(metric, labels.get(Label.TASK_ID, "chief-0"), begin, numbers, "0")
            site.metrics.add(metric, "chief-0", begin, numbers, more=labels)
        progress = read_progress(site.metrics, site.world.job, site.world.now)
        if progress is not None:
            progress.words(site.world.now)
            json.dumps(progress.view(), allow_nan=False)
        pages = ("/jobs/digits_1", "/compare?job=digits_1", "/jobs/digits_1/resources")
        path = chosen(pages, data)
        assert site.get(path).status_code != HTTPStatus.INTERNAL_SERVER_ERROR, path

    return read


def _series(data: bytes) -> Iterator[tuple[Metric, dict[Label, str], list[float]]]:
    """Yield the series of a JSON document. Raises PermanentError where it has none."""
    try:
        document = json.loads(data[: 64 << 10])
    except (ValueError, RecursionError) as error:
        raise PermanentError(str(error)) from None
    if not isinstance(document, list):
        raise PermanentError("no list")
    for series in document[:20]:
        if not isinstance(series, dict) or not isinstance(series.get("values"), list):
            continue
        metric = Metric.PROGRESS
        if series.get("metric") in list(Metric):
            metric = Metric(series["metric"])
        labels: dict[Label, str] = {
            label: str(series[label])[:1000]
            for label in Label
            if label is not Label.JOB
            if label in series
        }
        numbers = [_neighbours(value) for value in series["values"][:20]]
        if "alone" in series:
            numbers = [found[:1] for found in numbers]
        if any(numbers):
            yield metric, labels, [*chain.from_iterable(numbers)]


def _neighbours(value: object) -> list[float]:
    """Return a number of Cloud Monitoring, the next larger one, and the one after that."""
    if not isinstance(value, int | float):
        return []
    try:
        number = float(value)
    except OverflowError:
        return []
    after = math.nextafter(number, math.inf)
    return [number, after, math.nextafter(after, math.inf)]


def entrances() -> Mapping[str, Entrance]:
    """Return all entrances by name, with new state."""
    logging.disable()
    world, site = World(), Site()
    world.start_running()
    site.world.start_running()
    site.world.wait(3600)  # so that charts have an hour of values
    site.open()
    message = agent_message()
    envelope = {
        "message": {
            "data": base64.b64encode(json.dumps(message).encode()).decode(),
            "attributes": {"identity": "a.b.c"},
            "messageId": "1",
            "publishTime": "2026-11-21T03:00:00Z",
        },
        "subscription": "s",
    }
    audit = {
        "protoPayload": {
            "methodName": "compute.instances.preempted",
            "resourceName": "projects/p/zones/z/instances/i",
        },
        "resource": {"labels": {"instance_id": "1"}},
        "logName": "l",
        "timestamp": "2026-11-21T03:00:00Z",
    }
    container = {"imageUri": "gcr.io/p/i", "env": [{"name": "A", "value": "b"}]}
    pool = {
        "machineSpec": {"machineType": "n1-standard-4"},
        "replicaCount": 1,
        "containerSpec": container,
    }
    manifest: dict[str, Any] = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "x", "annotations": {"trainmaster": "region: us-central1"}},
        "spec": {
            "pytorchReplicaSpecs": {
                "Master": {
                    "replicas": 1,
                    "template": {
                        "spec": {
                            "containers": [
                                {
                                    "name": "pytorch",
                                    "image": "gcr.io/p/i",
                                    "args": ["1"],
                                    "resources": {"limits": {"cpu": "4", "memory": "8Gi"}},
                                }
                            ]
                        }
                    },
                }
            }
        },
    }
    jobs: list[object] = [
        {
            "jobId": "digits_{time}",
            **a_spec(),
            "trainmaster": {"env": {"A": "b"}},
        },
        {"jobId": "tuning_1", **a_tuning_spec()},
        {
            "jobId": "c1",
            "displayName": "x",
            "jobSpec": {"workerPoolSpecs": [pool]},
            "trainmaster": {"region": "us-central1"},
        },
        {"jobId": "digits_{time:%H%M%S}", **a_spec()},
        manifest,
        yaml.safe_dump({"jobId": "y_1", **a_spec()}).encode(),
        yaml.safe_dump(manifest | {"metadata": manifest["metadata"] | {"name": "z"}}).encode(),
    ]
    secrets = {"jobId": "s_1", **a_spec(), "trainmaster": {"secrets": {"K": "k"}}}
    custom = {"displayName": "x", "jobSpec": {"workerPoolSpecs": [pool]}}
    page_token = base64.urlsafe_b64encode(b'["2026-11-21T03:00:00+00:00", "digits_1"]').rstrip(b"=")
    filters = [b'state="RUNNING" AND (jobId="digits_1" OR labels.a=b)', b'state="JOB_STATE_FAILED"']
    tasks = [
        {"workdir": "~/code", "setup": "pip install torch", "num_nodes": 2, "run": "torchrun x.py"},
        {"type": "task", "working_dir": ".", "commands": ["cd a", "python train.py"], "nodes": 2},
    ]
    datagram = {
        "job": "digits_1",
        "attempt": 1,
        "round": 1,
        "from": 1,
        "kind": "save",
        "serial": 1,
        "answers": False,
        "seconds": {"in": 0.5},
        "number": 1,
    }
    ended = {"attempt": 1, "incarnation": 1, "at": message["at"], "cause": "process"}
    ready = {**message, "incarnation": 2, "ended": {**ended, "exit_status": 1}}
    notice = {**message, "cause": "notice", "unanswered": [1], "save_number": 1}
    running = {"attempt": "1", "incarnation": "1"}
    record = (8).to_bytes(8, "little") + b"\0" * 4 + b"\x09" + b"\0" * 7 + b"\0" * 4
    token = (
        base64.urlsafe_b64encode(b'{"alg":"RS256","kid":"1"}')
        + b"."
        + base64.urlsafe_b64encode(b'{"scope":"x"}')
        + b".c2ln"
    )

    times = {"iat": 1, "exp": 4_102_444_800}
    vm_claims = {
        **times,
        "iss": "https://accounts.google.com",
        "aud": AUDIENCE,
        "email": "a@p.iam",
        "email_verified": True,
        "google": {"compute_engine": {"project_id": "p", "instance_id": "1", "zone": "z"}},
    }
    user_claims = {
        **times,
        "iss": "https://cloud.google.com/iap",
        "aud": AUDIENCE,
        "sub": "s",
        "email": "anna@example.com",
    }

    def read_document_as(name: str) -> Callable[[bytes], object]:
        def read(data: bytes) -> object:
            document = with_time_in_job_id(read_document(data, name), datetime.now(UTC))
            return accept(document, default_job_id="x_1")

        return read

    return {
        # Only Pub/Sub makes envelopes.
        "push request": Entrance(served(World()), [envelope], memory_mib=100),
        "agent message": Entrance(agent_messages.decode_replica_exit, [message]),
        "vm-ready message": Entrance(
            agent_messages.decode_vm_ready, [{**ready, "left_peers": True, "finding": "f"}]
        ),
        "maintenance message": Entrance(google_events.decode_maintenance, [notice, audit]),
        "datagram": Entrance(received, [datagram]),
        "storage notification": Entrance(
            lambda data: google_events.decode_upload(
                {
                    "bucketId": "b",
                    "objectId": "jobs/x",
                    "objectGeneration": data[-9:].decode(errors="replace")
                    if data[:1] == b"9"
                    else "1",
                },
                data,
            ),
            [{"timeCreated": "2026-11-21T03:00:00Z"}, b"99999999999999999"],
        ),
        "internal message": Entrance(
            internal_requests.decode_provision, [{"version": 1, "job_id": "x", "number": 1}]
        ),
        "tuning request": Entrance(
            internal_requests.decode_tune, [{"version": 1, "job_id": "x", "number": 1}]
        ),
        "job file": Entrance(read_document_as("jobs/x.yaml"), [*jobs, secrets, *tasks]),
        "job message": Entrance(submitted(world), jobs),
        "package": Entrance(
            packaged,
            [
                sdist("trainer/__init__.py", "trainer/task.py", form=""),
                wheel("trainer/__init__.py", "trainer/task.py"),
                [
                    {"kind": "g", "content": "12 hello=ab\n", "times": 1},
                    {"kind": "x", "content": "18 path=trainer/a\n"},
                    {"name": "x"},
                    {"kind": "L", "content": "trainer/__init__.py\0"},
                    {"name": "y", "times": 3},
                ],
                [
                    {"name": "a/trainer/__init__.py", "content": "from . import model\n"},
                    {"name": "a/trainer/task.py", "content": "import os, einops\nprint 'a'\n"},
                    {"name": "a/trainer/model.py", "content": "# coding: latin-1\nx = f'{1}'\n"},
                    {"name": "a/setup.py", "content": "setup(install_requires=['torch<2'])\n"},
                ],
                [
                    {"name": "a/trainer/task.py", "content": "import trainer.x.y\n", "times": 2},
                    {"name": "a/x.egg-info/PKG-INFO", "content": "Metadata-Version: 2.1\n"},
                    {"name": "a/x.egg-info/requires.txt", "content": "pandas\n[dev]\nrich\n"},
                    {"name": "a/pyproject.toml", "content": "[project]\ndependencies = ['a']\n"},
                    {"name": "a/setup.cfg", "content": "[options]\ninstall_requires =\n  a\n"},
                ],
            ],
            memory_mib=128,
        ),
        "API": answered(
            api_calls(world),
            [
                *jobs,
                secrets,
                custom,
                {"labels": {"a": "b"}},
                *filters,
                *(b"labels", b"5", b"digits_1", b"customJobs.name", OWNER.encode(), page_token),
            ],
        ),
        "console": answered(
            console_visits(site),
            [
                b"state=RUNNING&label=a=b&from=2026-11-21T03:00:00Z",
                b"replica=worker-0&all=1&x=step&table=1",
                *(b"team=vision\nstage=2", b"again_1", b"1", b"chief-0", b"digits_1"),
                *jobs[-2:],
            ],
        ),
        "token": Entrance(signed(), [token, vm_claims, user_claims]),
        "program's output": Entrance(
            shown,
            [
                {"message": "m", "severity": "INFO"},
                {"attempt": 1, "measurements": [[1, 0.5]]},
                {"training/hptuning/metric": 0.5, "global_step": "1"},
                b"2026-11-21T03:00:00+00:00",
                b"us-docker.pkg.dev/my-project/images/trainer:1",
                vm_name("digits_1", CHIEF).encode(),
            ],
        ),
        "progress and errors": Entrance(
            trained,
            [
                {
                    "trainerStatus": {
                        "progressPercentage": 5,
                        "metrics": [{"name": "a", "value": 1}],
                    }
                },
                b"Epoch 3/10 step 45/100 loss: 0.5 accuracy=0.25\n100%| | 1/9 [00:01<00:02, 1it/s]",
                b'Traceback (most recent call last):\n  File "a/b.py", line 3, in f\nValueError: x',
                b'Fatal Python error: Aborted\n\nThread 0x1 (most recent call first):\n  File "a"',
            ],
        ),
        "agents and chats": Entrance(
            told, ["<!channel> @here [a](http://x)", "| data\nThere is more: continuation 1."]
        ),
        "series": Entrance(
            charted(site),
            [
                [
                    {**running, "name": "share", "source": "reported", "values": [0.1, 0.2]},
                    {**running, "name": "step", "source": "printed", "values": [2**53, 1]},
                    {**running, "name": "steps", "values": [2**53]},
                    {**running, "name": "metric/loss", "values": [1.7e308, -1.7e308, 5e-324]},
                ],
                [{**running, "name": "metric/loss", "alone": 1, "values": [1e18, 1e18]}],
                [
                    {"metric": metric, "task_id": "chief-0", "gpu": "0", "values": [0, 1e308]}
                    for metric in RESOURCES
                ],
            ],
        ),
        "event file": Entrance(
            lambda data: parse_records(data, "loss"), [record], (CorruptRecordError,)
        ),
    }
