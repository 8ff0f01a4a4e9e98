"""Authentication of agents' events, through the functions' HTTP entry points, with tokens of the emulator's issuer."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import functions_framework
import pytest
from flask.testing import FlaskClient
from google.auth import jwt
from google.auth.exceptions import TransportError
from google.pubsub_v1.types import PubsubMessage

from cli.dead_letter_replay import replay_agent_event
from emulators.compute.vm_tokens import TokenIssuer, VmIdentity
from shared.agent.reporting.publisher import ATTRIBUTE_BYTES, split_token
from shared.core.intake.named_resources import AllowedResources
from shared.core.model.replica import HostVm, ReplicaState
from shared.core.model.vm import LossCause
from shared.core.model.vm_names import vm_name
from shared.errors import PermanentError, TemporaryError
from shared.flows.authenticate import read_token
from shared.gcp import dead_letter_box
from shared.gcp.dead_letter_box import DeadLetter
from shared.gcp.identity_tokens import IdentityTokens
from shared.messaging import agent_messages, push, topics
from shared.ports import IdentityError
from shared.settings import settings
from shared.wiring import authentication, core_services
from tests.support.jobs import CHIEF, WORKER_0, WORKER_1
from tests.support.serving import serving
from tests.support.world import World

OWN = "trainer@my-project.iam.gserviceaccount.com"
FUNCTIONS = Path(__file__).parents[3] / "functions"
ACCOUNT = "trainmaster-worker@my-project.iam.gserviceaccount.com"
NOW = datetime.now(UTC).replace(microsecond=0)


@pytest.fixture(scope="module")
def issuer() -> TokenIssuer:
    return TokenIssuer()


@pytest.fixture
def keys(issuer: TokenIssuer) -> Iterator[str]:
    """A server that publishes the issuer's keys as Google does."""

    class Keys(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Cache-Control", "public, max-age=20000, must-revalidate")
            self.end_headers()
            self.wfile.write(json.dumps(issuer.certificates()).encode())

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Keys)
    with serving(server) as address:
        yield f"{address}/certs"


@dataclass
class Sender:
    """Sends events of worker 0 to the functions. The chief and the workers of the job wait for their VMs."""

    world: World
    issuer: TokenIssuer
    name: str = "vm_ready"
    clients: dict[str, FlaskClient] = field(default_factory=dict)

    def token(
        self, *, issuer: TokenIssuer | None = None, at: datetime = NOW, audience: str = "", **identity: object
    ) -> str:
        subject = self.world.message_fields(WORKER_0)
        vm = self.world.vm(WORKER_0)
        assert vm is not None
        vm_identity = VmIdentity(ACCOUNT, "my-project", 1234, vm.zone, int(vm.instance_id), vm.name, NOW)
        own_audience = f"trainmaster/my-project/digits_1/{subject['attempt']}/worker/0/{subject['incarnation']}"
        return (issuer or self.issuer).identity_token(
            replace(vm_identity, **identity),  # type: ignore[arg-type]
            audience or own_audience,
            full=True,
            now=at,
        )

    def send(
        self,
        token: str | None,
        *,
        published_at: datetime = NOW,
        subscription: str = "s",
        attributes: Mapping[str, str] | None = None,
        **body: object,
    ) -> int:
        data = json.dumps({**self.world.message_fields(WORKER_0), **body}).encode()
        return self.post(data, token, published_at, subscription, attributes or {})

    def post(
        self,
        data: bytes,
        token: str | None,
        published_at: datetime,
        subscription: str,
        attributes: Mapping[str, str] | None = None,
    ) -> int:
        if self.name not in self.clients:
            app = functions_framework.create_app(self.name, str(FUNCTIONS / f"{self.name}.py"), "http")
            self.clients[self.name] = app.test_client()
        message = {
            "data": base64.b64encode(data).decode(),
            "attributes": {**(attributes or {}), **split_token(token or "")},
            "messageId": "17",
            "publishTime": published_at.isoformat().replace("+00:00", "Z"),
        }
        envelope = {"message": message, "subscription": f"projects/p/subscriptions/{subscription}"}
        return self.clients[self.name].post("/", json=envelope).status_code

    @property
    def state(self) -> ReplicaState:
        return self.world.replica(WORKER_0).state

    def reasons(self) -> list[str]:
        """Remove all published messages, and return the reasons of the dead letters among them."""
        messages = self.world.bus.drain()
        return [message.attributes["reason"] for message in messages if message.topic == topics.DEAD_LETTER]


@pytest.fixture
def sender(monkeypatch: pytest.MonkeyPatch, issuer: TokenIssuer, keys: str) -> Iterator[Sender]:
    world = World()
    monkeypatch.setattr(core_services, "deps", lambda: world.deps)
    monkeypatch.setattr(core_services, "bus", lambda: world.bus)
    monkeypatch.setenv("TRAINMASTER_PROJECT", "my-project")
    monkeypatch.setenv("TRAINMASTER_WORKER_SERVICE_ACCOUNT", ACCOUNT)
    monkeypatch.setenv("TRAINMASTER_IDENTITY_KEYS", keys)
    settings.cache_clear()
    authentication.tokens.cache_clear()
    world.submit()
    world.deliver()
    world.bus.drain()
    yield Sender(world, issuer)
    settings.cache_clear()
    authentication.tokens.cache_clear()


def test_event_with_the_replicas_own_token_is_handled(sender: Sender) -> None:
    assert sender.send(sender.token()) == 204
    assert (sender.state, sender.reasons()) == (ReplicaState.RUNNING, [])


def test_token_longer_than_one_attribute_is_split_and_read_back(sender: Sender) -> None:
    token = sender.token()
    sent = split_token(token)
    assert len(token) > ATTRIBUTE_BYTES
    assert max(len(value.encode()) for value in sent.values()) <= ATTRIBUTE_BYTES
    assert read_token(sent) == token
    assert split_token("") == {}


def test_token_in_one_attribute_is_read(sender: Sender) -> None:
    assert read_token({"identity": sender.token(), "other": "x"}) == sender.token()


FORGERIES: list[tuple[str, Callable[[Sender], str | None], str]] = [
    ("absent", lambda _: None, "carries no token"),
    ("not a token", lambda _: "eyJhbGciOiJub25lIn0.e30.", "not signed by Google"),
    ("signed with other keys", lambda sender: sender.token(issuer=TokenIssuer()), "not signed by Google"),
    ("expired", lambda sender: sender.token(at=NOW - timedelta(hours=2)), "was valid until"),
    ("not yet valid", lambda sender: sender.token(at=NOW + timedelta(hours=2)), "was valid until"),
    ("of another VM", lambda sender: sender.token(instance_name=vm_name("digits_1", WORKER_1)), "the token is of VM"),
    ("of another VM of that name", lambda sender: sender.token(instance_id=4711), "the token is of VM"),
    ("of a VM in another zone", lambda sender: sender.token(zone="us-central1-f"), "the token is of VM"),
    ("of another project", lambda sender: sender.token(project="your-project"), "the token is of VM"),
    ("of another account", lambda sender: sender.token(email="x@my-project.iam.gserviceaccount.com"), "VMs run as"),
    (
        "for another incarnation",
        lambda sender: sender.token(audience="trainmaster/my-project/digits_1/1/worker/0/2"),
        "the token is for",
    ),
    (
        "for another job",
        lambda sender: sender.token(audience="trainmaster/my-project/j/1/worker/0/1"),
        "the token is for",
    ),
    ("for another audience", lambda sender: sender.token(audience="https://example.com"), "the token is for"),
]


@pytest.mark.parametrize(("forgery", "token", "reason"), FORGERIES, ids=[forgery for forgery, _, _ in FORGERIES])
def test_event_with_a_forged_or_foreign_token_is_dead_lettered_and_changes_nothing(
    sender: Sender, forgery: str, token: Callable[[Sender], str | None], reason: str
) -> None:
    before = sender.world.ledger
    assert sender.send(token(sender)) == 204, forgery
    (dead_letter_reason,) = sender.reasons()
    assert dead_letter_reason.startswith("identity: ")
    assert reason in dead_letter_reason
    assert sender.world.ledger == before


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": "https://accounts.example.com"},
        {"iss": "https://accounts.google.com.example.com"},
        {"email_verified": False},
        {"google": {}},
        {"exp": None},
    ],
    ids=str,
)
def test_signed_token_with_wrong_claims_is_dead_lettered(sender: Sender, changes: dict[str, object]) -> None:
    claims = {**jwt.decode(sender.token(), verify=False), **changes}
    present = {name: value for name, value in claims.items() if value is not None}
    forged: bytes = jwt.encode(sender.issuer._signer, present)
    before = sender.world.ledger
    assert sender.send(forged.decode()) == 204
    (reason,) = sender.reasons()
    assert reason.startswith("identity: ")
    assert sender.world.ledger == before


def test_vm_of_the_replicas_name_cannot_act_for_a_replica_that_reported(sender: Sender) -> None:
    """A job in another zone could have VMs of the same names, if its id had the same hash."""
    sender.send(sender.token())
    before = sender.world.ledger
    vm = {**sender.world.message_fields(WORKER_0)["vm"], "instance_id": "4711"}  # type: ignore[dict-item]
    for name, cause in (("replica_exit", "process"), ("maintenance", "preemption")):
        sender.name = name
        sender.send(sender.token(instance_id=4711), vm=vm, cause=cause, signal=9)
        assert "but the replica runs on VM" in sender.reasons()[-1]
    assert sender.world.ledger == before


def test_vm_in_a_zone_that_the_job_does_not_use_is_refused(sender: Sender) -> None:
    vm = {**sender.world.message_fields(WORKER_0)["vm"], "zone": "europe-west4-a"}  # type: ignore[dict-item]
    sender.send(sender.token(zone="europe-west4-a"), vm=vm)
    assert "the token is of a VM in europe-west4-a" in sender.reasons()[0]
    assert sender.state is ReplicaState.WAITING


def test_token_of_a_past_incarnation_is_dead_lettered(sender: Sender) -> None:
    old = sender.token()
    sender.send(old)
    sender.name = "replica_exit"
    assert sender.send(sender.token(), cause="process", exit_status=1) == 204
    sender.world.deliver()
    assert sender.state is ReplicaState.RESTARTING
    sender.send(old, cause="process", exit_status=1)
    assert "the token is for" in sender.reasons()[0]


def test_event_delivered_days_late_is_handled_if_published_in_time(sender: Sender) -> None:
    issued = NOW - timedelta(days=3)
    assert sender.send(sender.token(at=issued), published_at=issued + timedelta(minutes=50)) == 204
    assert sender.state is ReplicaState.RUNNING


def with_a_slice(sender: Sender, job_id: str, **more: str) -> Sender:
    """A job with a VM and a slice of one host."""
    image = {"imageUri": "us-docker.pkg.dev/my-project/training/trainer:1"}
    training = {"scaleTier": "CUSTOM", "masterType": "n1-standard-4", "masterConfig": image, "region": "us-central1"}
    tpu = {"workerType": "ct5lp-hightpu-4t", "workerCount": 1, "workerConfig": image}
    allowed = AllowedResources("my-project", (f"service_account={OWN}",))
    world = World(store=sender.world.store, bus=sender.world.bus, job_id=job_id, allowed=allowed)
    world.submit({"trainingInput": {**training, **tpu, **more}})
    world.deliver()
    world.bus.drain()
    return Sender(world, sender.issuer)


HOST: dict[str, Any] = {"project": "of-google-tp", "instance_name": "t1v-n-1-w-0", "instance_id": 1}
"""A host of a slice: a machine in a project of Google's, with a name of Google's."""


@pytest.fixture
def slice_sender(sender: Sender) -> Sender:
    return with_a_slice(sender, "slices_1")


def test_slice_of_one_host_is_authenticated_without_its_vm_name(slice_sender: Sender) -> None:
    """A slice of one host sends no host number, so only the stored job shows that it is a slice."""
    audience = "trainmaster/my-project/slices_1/1/worker/0/1"
    token = slice_sender.token(audience=audience, **HOST)
    assert slice_sender.send(token) == 204
    assert (slice_sender.state, slice_sender.reasons()) == (ReplicaState.RUNNING, [])


def test_vm_of_another_job_cannot_act_for_a_slice(slice_sender: Sender) -> None:
    """Any program may ask its VM's metadata server for a token with the audience of a slice."""
    audience = "trainmaster/my-project/slices_1/1/worker/0/1"
    before = slice_sender.world.ledger
    for name in ("vm_ready", "replica_exit"):
        slice_sender.name = name
        for host in (None, 0):
            token = slice_sender.token(audience=audience, instance_name=vm_name("attacker_1", CHIEF))
            slice_sender.send(token, host=host, cause="process", exit_status=0)
            assert "is not a host of a TPU slice" in slice_sender.reasons()[0]
    assert slice_sender.world.ledger == before


def test_token_that_names_no_machine_cannot_act_for_a_slice(slice_sender: Sender) -> None:
    """A token in the short format proves the service account only, which all jobs share."""
    audience = "trainmaster/my-project/slices_1/1/worker/0/1"
    vm = VmIdentity(ACCOUNT, "my-project", 1, "z", 1, "n", NOW)
    slice_sender.send(slice_sender.issuer.identity_token(vm, audience, full=False, now=NOW))
    assert "must name its machine" in slice_sender.reasons()[0]
    assert slice_sender.state is ReplicaState.WAITING


def test_host_of_another_slice_cannot_act_for_a_host_that_reported(slice_sender: Sender) -> None:
    audience = "trainmaster/my-project/slices_1/1/worker/0/1"
    slice_sender.send(slice_sender.token(audience=audience, **HOST))
    (pinned,) = slice_sender.world.replica(WORKER_0).host_vms
    assert pinned == HostVm(0, "of-google-tp/1")
    slice_sender.name = "replica_exit"
    before = slice_sender.world.ledger
    foreign = slice_sender.token(audience=audience, **{**HOST, "instance_id": 2})
    slice_sender.send(foreign, cause="process", exit_status=1)
    assert "host 0 runs on of-google-tp/1" in slice_sender.reasons()[0]
    assert slice_sender.world.ledger == before
    slice_sender.send(slice_sender.token(audience=audience, **HOST), cause="process", exit_status=1)
    assert (slice_sender.state, slice_sender.reasons()) != (ReplicaState.RUNNING, [])


def test_replaced_slice_reports_from_other_machines(slice_sender: Sender) -> None:
    audience = "trainmaster/my-project/slices_1/1/worker/0/{}"
    slice_sender.send(slice_sender.token(audience=audience.format(1), **HOST))
    slice_sender.name = "maintenance"
    slice_sender.send(slice_sender.token(audience=audience.format(1), **HOST), cause=LossCause.PREEMPTION.value)
    slice_sender.world.deliver()
    slice_sender.name = "vm_ready"
    slice_sender.send(slice_sender.token(audience=audience.format(2), **{**HOST, "instance_id": 2}))
    assert (slice_sender.state, slice_sender.reasons()) == (ReplicaState.RUNNING, [])
    assert slice_sender.world.replica(WORKER_0).host_vms == (HostVm(0, "of-google-tp/2"),)


def test_event_of_a_host_that_the_slice_does_not_have_is_refused(slice_sender: Sender) -> None:
    audience = "trainmaster/my-project/slices_1/1/worker/0/1"
    slice_sender.send(slice_sender.token(audience=audience, **HOST), host=1)
    assert "the event is of host 1, but the slice has 1" in slice_sender.reasons()[0]


@pytest.fixture
def own_account_sender(sender: Sender) -> Sender:
    """The job's VM and slice run as the job's own service account."""
    return with_a_slice(sender, "own_1", serviceAccount=OWN)


def test_vm_with_the_jobs_own_account_is_authenticated(own_account_sender: Sender) -> None:
    replica_id = own_account_sender.world.job.plan.primary
    subject, vm = own_account_sender.world.message_fields(replica_id), own_account_sender.world.vm(replica_id)
    assert vm is not None
    audience = f"trainmaster/my-project/own_1/1/{subject['task_type']}/0/1"
    token = own_account_sender.token(
        audience=audience, email=OWN, instance_name=vm.name, instance_id=int(vm.instance_id)
    )
    assert own_account_sender.post(json.dumps(subject).encode(), token, NOW, "s") == 204
    assert (own_account_sender.world.replica(replica_id).state, own_account_sender.reasons()) == (
        ReplicaState.RUNNING,
        [],
    )


def test_vm_with_the_workers_account_cannot_act_for_a_job_with_its_own(own_account_sender: Sender) -> None:
    replica_id = own_account_sender.world.job.plan.primary
    subject, vm = own_account_sender.world.message_fields(replica_id), own_account_sender.world.vm(replica_id)
    assert vm is not None
    audience = f"trainmaster/my-project/own_1/1/{subject['task_type']}/0/1"
    token = own_account_sender.token(audience=audience, instance_name=vm.name, instance_id=int(vm.instance_id))
    assert own_account_sender.post(json.dumps(subject).encode(), token, NOW, "s") == 204
    assert f"VMs run as '{OWN}'" in own_account_sender.reasons()[0]
    assert own_account_sender.world.replica(replica_id).state is ReplicaState.WAITING


def test_slice_must_have_the_jobs_own_account(own_account_sender: Sender) -> None:
    audience = "trainmaster/my-project/own_1/1/worker/0/1"
    own_account_sender.send(own_account_sender.token(audience=audience, **HOST))
    (reason,) = own_account_sender.reasons()
    assert f"VMs run as '{OWN}'" in reason
    own_account_sender.send(own_account_sender.token(audience=audience, email=OWN, **HOST))
    assert (own_account_sender.state, own_account_sender.reasons()) == (ReplicaState.RUNNING, [])


def test_host_number_in_an_event_does_not_make_a_vm_a_slice(sender: Sender) -> None:
    assert sender.send(sender.token(instance_name="t1v-n-1-w-0"), host=0) == 204
    assert "the token is of VM" in sender.reasons()[0]
    sender.send(sender.token(), host=0)
    assert "the token is of VM" in sender.reasons()[0]


def test_event_is_redelivered_while_googles_keys_are_not_available(
    sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINMASTER_IDENTITY_KEYS", "http://127.0.0.1:9/certs")
    settings.cache_clear()
    authentication.tokens.cache_clear()
    assert sender.send(sender.token()) == 503
    assert sender.reasons() == []


def test_unknown_key_id_fetches_keys_at_most_once_a_minute(
    keys: str, issuer: TokenIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    tokens = IdentityTokens(keys, clock=lambda: now[0])
    vm = VmIdentity(ACCOUNT, "my-project", 1, "z", 1, "n", NOW)
    assert tokens.claims(issuer.identity_token(vm, "a", full=True, now=NOW)).audience == "a"

    def fail_to_fetch(*_: object, **__: object) -> None:
        raise TransportError("unreachable")

    with monkeypatch.context() as patch:
        patch.setattr(tokens._keys, "_request", fail_to_fetch)
        with pytest.raises(TemporaryError, match="had not published a minute ago"):
            tokens.claims(TokenIssuer().identity_token(vm, "a", full=True, now=NOW))
        now[0] = 61.0
        with pytest.raises(TemporaryError, match="unreachable"):
            tokens.claims(TokenIssuer().identity_token(vm, "a", full=True, now=NOW))
    with pytest.raises(IdentityError):
        tokens.claims(TokenIssuer().identity_token(vm, "a", full=True, now=NOW))


def test_event_signed_with_a_key_of_the_last_minute_is_redelivered_and_then_handled(
    sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Google begins to sign with a new key just after the function fetched the keys."""
    tokens = authentication.tokens()
    assert isinstance(tokens, IdentityTokens)
    now = [0.0]
    monkeypatch.setattr(tokens._keys, "_clock", lambda: now[0])
    tokens.claims(sender.token())
    rotated = TokenIssuer()
    published = {**sender.issuer.certificates(), **rotated.certificates()}
    monkeypatch.setattr(sender.issuer, "certificates", lambda: published)
    assert sender.send(sender.token(issuer=rotated)) == 503
    now[0] = 61.0
    assert sender.send(sender.token(issuer=rotated)) == 204
    assert (sender.state, sender.reasons()) == (ReplicaState.RUNNING, [])


AUDIT_LOG = "projects/my-project/logs/cloudaudit.googleapis.com%2Fsystem_event"


def an_audit_log_entry(world: World, log: str = AUDIT_LOG) -> bytes:
    vm = world.vm(WORKER_0)
    assert vm is not None
    path = f"projects/my-project/zones/{vm.zone}/instances/{vm.name}"
    return json.dumps(
        {
            "logName": log,
            "protoPayload": {"methodName": "compute.instances.preempted", "resourceName": path},
            "resource": {"type": "gce_instance", "labels": {"instance_id": vm.instance_id}},
            "timestamp": NOW.isoformat(),
        }
    ).encode()


def test_audit_log_entry_is_accepted_only_on_its_own_topic(sender: Sender) -> None:
    sender.send(sender.token())
    sender.name = "maintenance"
    assert sender.post(an_audit_log_entry(sender.world), None, NOW, topics.MAINTENANCE) == 204
    assert (sender.state, len(sender.reasons())) == (ReplicaState.RUNNING, 1)
    assert sender.post(an_audit_log_entry(sender.world), None, NOW, topics.SYSTEM_EVENTS) == 204
    assert sender.state is ReplicaState.REPLACING


@pytest.mark.parametrize(
    "log",
    [
        "projects/my-project/logs/mine-cloudaudit.googleapis.com%2Fsystem_event",
        "projects/other/logs/cloudaudit.googleapis.com%2Fsystem_event",
        "projects/my-project/logs/cloudaudit.googleapis.com%2Fsystem_event-2",
        "",
    ],
)
def test_entry_of_a_log_that_a_program_may_write_reports_no_loss(sender: Sender, log: str) -> None:
    """Every VM may write to a log of its own choice, with any resource and any payload."""
    sender.send(sender.token())
    sender.name = "maintenance"
    before = sender.world.ledger
    assert sender.post(an_audit_log_entry(sender.world, log), None, NOW, topics.SYSTEM_EVENTS) == 204
    assert "the entry is in the log" in sender.reasons()[0]
    assert (sender.state, sender.world.ledger) == (ReplicaState.RUNNING, before)


def test_maintenance_message_of_an_agent_needs_its_token(sender: Sender) -> None:
    sender.name = "maintenance"
    sender.send(None, cause=LossCause.PREEMPTION.value)
    assert (sender.state, len(sender.reasons())) == (ReplicaState.WAITING, 1)
    sender.send(sender.token(), cause=LossCause.PREEMPTION.value)
    assert sender.state is ReplicaState.REPLACING


def test_event_of_one_replica_leaves_the_others_unchanged(sender: Sender) -> None:
    sender.send(sender.token())
    assert sender.world.replica(CHIEF).state is ReplicaState.WAITING


def test_dead_letter_is_replayed_as_of_its_publish_time(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first release cannot decode the event. By the time of the replay, its token has expired."""
    token = sender.token()
    with monkeypatch.context() as release:
        release.setattr(agent_messages, "decode_vm_ready", fail_to_decode)
        assert sender.send(token) == 204
    (dead_letter,) = [message for message in sender.world.bus.drain() if message.topic == topics.DEAD_LETTER]
    assert replay_agent_event(a_letter(dead_letter.attributes, dead_letter.data)) is True
    assert sender.state is ReplicaState.RUNNING


def test_dead_letter_with_forged_attributes_cannot_be_replayed(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sender may add attributes that look like those of a dead letter. The function overwrites or drops them."""
    then = NOW - timedelta(hours=3)
    old = sender.token(at=then)
    forged = {
        "published_at": then.isoformat(),
        f"{push.DEAD_LETTER_PREFIX}Subscription": topics.VM_READY,
        f"{push.DEAD_LETTER_PREFIX}TopicPublishTime": then.isoformat(),
    }
    with monkeypatch.context() as release:
        release.setattr(agent_messages, "decode_vm_ready", fail_to_decode)
        assert sender.send(old, attributes=forged) == 204
    (dead_letter,) = [message for message in sender.world.bus.drain() if message.topic == topics.DEAD_LETTER]
    with pytest.raises(IdentityError, match="was valid until"):
        replay_agent_event(a_letter(dead_letter.attributes, dead_letter.data))
    assert sender.state is not ReplicaState.RUNNING


def fail_to_decode(_: bytes) -> None:
    raise PermanentError("AgentMessage: version: unknown")


def a_letter(attributes: Mapping[str, str], data: bytes) -> DeadLetter:
    """Read the dead letter as its subscription delivers it."""
    message = PubsubMessage(data=data, attributes=dict(attributes), message_id="1", publish_time=NOW)
    return dead_letter_box._letter(message)
