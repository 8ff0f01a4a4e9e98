"""A replica speaks only for itself: tokens that Google would sign, through the functions' own door."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import functions_framework
import pytest
from flask.testing import FlaskClient
from google.auth import jwt
from google.pubsub_v1.types import PubsubMessage

from cli.dead_letter_replay import judged_here
from emulators.compute.vm_tokens import TokenIssuer, VmIdentity
from shared.agent.reporting.publisher import ATTRIBUTE_BYTES, in_pieces
from shared.core.events import LossCause
from shared.core.model.job import ReplicaState
from shared.core.reconcile.plan import vm_name
from shared.errors import PermanentError, TemporaryError
from shared.flows import sender_identity
from shared.gcp import dead_letter_box
from shared.gcp.dead_letter_box import DeadLetter
from shared.gcp.identity_tokens import IdentityTokens
from shared.messaging import codec, push, topics
from shared.settings import settings
from shared.wiring import authenticate as wiring
from shared.wiring import core_services
from tests.support.jobs import CHIEF, WORKER_0, WORKER_1
from tests.support.serving import serving
from tests.support.world import World

FUNCTIONS = Path(__file__).parents[3] / "functions"
ACCOUNT = "trainmaster-worker@my-project.iam.gserviceaccount.com"
NOW = datetime.now(UTC).replace(microsecond=0)


@pytest.fixture(scope="module")
def issuer() -> TokenIssuer:
    return TokenIssuer()


@pytest.fixture
def keys(issuer: TokenIssuer) -> Iterator[str]:
    """Where Google publishes them."""

    class Keys(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Cache-Control", "public, max-age=20000, must-revalidate")
            self.end_headers()
            self.wfile.write(json.dumps(issuer.certificates()).encode())

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Keys)
    with serving(server) as address:
        yield f"{address}/certs"


@dataclass
class Door:
    """The functions, with a job whose chief and workers wait for their VMs."""

    world: World
    issuer: TokenIssuer
    name: str = "vm_ready"
    clients: dict[str, FlaskClient] = field(default_factory=dict)

    def token(self, *, issuer: TokenIssuer | None = None, at: datetime = NOW, audience: str = "", **who: object) -> str:
        subject = self.world.subject(WORKER_0)
        vm = self.world.vm(WORKER_0)
        assert vm is not None
        speaker = VmIdentity(ACCOUNT, "my-project", 1234, vm.zone, int(vm.instance_id), vm.name, NOW)
        desired = f"trainmaster/my-project/digits_1/{subject['attempt']}/worker/0/{subject['incarnation']}"
        return (issuer or self.issuer).identity_token(
            replace(speaker, **who),  # type: ignore[arg-type]
            audience or desired,
            full=True,
            now=at,
        )

    def tell(
        self,
        token: str | None,
        *,
        told_at: datetime = NOW,
        subscription: str = "s",
        attributes: Mapping[str, str] | None = None,
        **body: object,
    ) -> int:
        data = json.dumps({**self.world.subject(WORKER_0), **body}).encode()
        return self.post(data, token, told_at, subscription, attributes or {})

    def post(
        self,
        data: bytes,
        token: str | None,
        told_at: datetime,
        subscription: str,
        attributes: Mapping[str, str] | None = None,
    ) -> int:
        if self.name not in self.clients:
            app = functions_framework.create_app(self.name, str(FUNCTIONS / f"{self.name}.py"), "http")
            self.clients[self.name] = app.test_client()
        message = {
            "data": base64.b64encode(data).decode(),
            "attributes": {**(attributes or {}), **in_pieces(token or "")},
            "messageId": "17",
            "publishTime": told_at.isoformat().replace("+00:00", "Z"),
        }
        envelope = {"message": message, "subscription": f"projects/p/subscriptions/{subscription}"}
        return self.clients[self.name].post("/", json=envelope).status_code

    @property
    def state(self) -> ReplicaState:
        return self.world.replica(WORKER_0).state

    def reasons(self) -> list[str]:
        found = [message for message in self.world.bus.drain() if message.topic == topics.DEAD_LETTER]
        return [message.attributes["reason"] for message in found]


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch, issuer: TokenIssuer, keys: str) -> Iterator[Door]:
    world = World()
    monkeypatch.setattr(core_services, "deps", lambda: world.deps)
    monkeypatch.setattr(core_services, "bus", lambda: world.bus)
    monkeypatch.setenv("TRAINMASTER_PROJECT", "my-project")
    monkeypatch.setenv("TRAINMASTER_WORKER_SERVICE_ACCOUNT", ACCOUNT)
    monkeypatch.setenv("TRAINMASTER_IDENTITY_KEYS", keys)
    settings.cache_clear()
    wiring.tokens.cache_clear()
    world.submit()
    world.deliver()
    world.bus.drain()
    yield Door(world, issuer)
    settings.cache_clear()
    wiring.tokens.cache_clear()


def test_the_replica_itself_is_heard(door: Door) -> None:
    assert door.tell(door.token()) == 204
    assert (door.state, door.reasons()) == (ReplicaState.RUNNING, [])


def test_a_token_is_longer_than_pubsub_takes_in_one_value_and_comes_inin_pieces(door: Door) -> None:
    token = door.token()
    sent = in_pieces(token)
    assert len(token) > ATTRIBUTE_BYTES
    assert max(len(each.encode()) for each in sent.values()) <= ATTRIBUTE_BYTES
    assert sender_identity.token_of(sent) == token
    assert in_pieces("") == {}


def test_an_agent_of_the_last_release_sends_a_token_whole(door: Door) -> None:
    assert sender_identity.token_of({"identity": door.token(), "other": "x"}) == door.token()


FORGERIES: list[tuple[str, Callable[[Door], str | None], str]] = [
    ("absent", lambda _: None, "carries no token"),
    ("not a token", lambda _: "eyJhbGciOiJub25lIn0.e30.", "no token that Google signed"),
    ("signed by somebody else", lambda door: door.token(issuer=TokenIssuer()), "no token that Google signed"),
    ("expired", lambda door: door.token(at=NOW - timedelta(hours=2)), "was valid until"),
    ("of the future", lambda door: door.token(at=NOW + timedelta(hours=2)), "was valid until"),
    ("of another VM", lambda door: door.token(instance_name=vm_name("digits_1", WORKER_1)), "the token is of VM"),
    ("of another VM of that name", lambda door: door.token(instance_id=4711), "the token is of VM"),
    ("of another project", lambda door: door.token(project="your-project"), "the token is of VM"),
    ("of another account", lambda door: door.token(email="x@my-project.iam.gserviceaccount.com"), "VMs run as"),
    (
        "for another incarnation",
        lambda door: door.token(audience="trainmaster/my-project/digits_1/1/worker/0/2"),
        "the token is for",
    ),
    ("for another job", lambda door: door.token(audience="trainmaster/my-project/j/1/worker/0/1"), "the token is for"),
    ("for somebody else", lambda door: door.token(audience="https://example.com"), "the token is for"),
]


@pytest.mark.parametrize(("what", "token", "reason"), FORGERIES, ids=[story for story, _, _ in FORGERIES])
def test_a_token_that_proves_nothing_is_recorded_and_changes_nothing(
    door: Door, what: str, token: Callable[[Door], str | None], reason: str
) -> None:
    before = door.world.ledger
    assert door.tell(token(door)) == 204, what
    (said,) = door.reasons()
    assert said.startswith("identity: ")
    assert reason in said
    assert door.world.ledger == before


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
def test_a_token_that_google_signed_for_something_else_proves_nothing(door: Door, changes: dict[str, object]) -> None:
    claims = {**jwt.decode(door.token(), verify=False), **changes}
    said = {name: value for name, value in claims.items() if value is not None}
    forged: bytes = jwt.encode(door.issuer._signer, said)
    before = door.world.ledger
    assert door.tell(forged.decode()) == 204
    (reason,) = door.reasons()
    assert reason.startswith("identity: ")
    assert door.world.ledger == before


def test_a_replayed_token_of_a_past_life_is_refused_for_the_next(door: Door) -> None:
    old = door.token()
    door.tell(old)
    door.name = "replica_exit"
    assert door.tell(door.token(), cause="process", exit_status=1) == 204
    door.world.deliver()
    assert door.state is ReplicaState.RESTARTING
    door.tell(old, cause="process", exit_status=1)
    assert "the token is for" in door.reasons()[0]


def test_an_event_that_is_delivered_days_late_was_told_in_time(door: Door) -> None:
    told = NOW - timedelta(days=3)
    assert door.tell(door.token(at=told), told_at=told + timedelta(minutes=50)) == 204
    assert door.state is ReplicaState.RUNNING


def with_a_slice(door: Door, job_id: str, **more: str) -> Door:
    """A job with a slice of one host beside a VM."""
    image = {"imageUri": "us-docker.pkg.dev/my-project/training/trainer:1"}
    training = {"scaleTier": "CUSTOM", "masterType": "n1-standard-4", "masterConfig": image, "region": "us-central1"}
    tpu = {"workerType": "ct5lp-hightpu-4t", "workerCount": 1, "workerConfig": image}
    world = World(store=door.world.store, bus=door.world.bus, job_id=job_id)
    world.submit({"trainingInput": {**training, **tpu, **more}})
    world.deliver()
    world.bus.drain()
    return Door(world, door.issuer)


@pytest.fixture
def slice_door(door: Door) -> Door:
    return with_a_slice(door, "slices_1")


def test_a_slice_of_one_host_is_heard_though_google_named_its_host(slice_door: Door) -> None:
    """It does not say which of its hosts it is: there is one."""
    audience = "trainmaster/my-project/slices_1/1/worker/0/1"
    token = slice_door.token(audience=audience, project="of-google-tp", instance_name="t1v-n-1-w-0", instance_id=1)
    assert slice_door.tell(token) == 204
    assert (slice_door.state, slice_door.reasons()) == (ReplicaState.RUNNING, [])


OWN = "trainer@my-project.iam.gserviceaccount.com"


@pytest.fixture
def own_door(door: Door) -> Door:
    """Its job's VM and its slice run as an account of the job's own."""
    return with_a_slice(door, "own_1", serviceAccount=OWN)


def test_a_vm_with_its_jobs_own_account_is_heard(own_door: Door) -> None:
    replica_id = own_door.world.job.plan.primary
    subject, vm = own_door.world.subject(replica_id), own_door.world.vm(replica_id)
    assert vm is not None
    audience = f"trainmaster/my-project/own_1/1/{subject['task_type']}/0/1"
    token = own_door.token(audience=audience, email=OWN, instance_name=vm.name, instance_id=int(vm.instance_id))
    assert own_door.post(json.dumps(subject).encode(), token, NOW, "s") == 204
    assert (own_door.world.replica(replica_id).state, own_door.reasons()) == (ReplicaState.RUNNING, [])


def test_nobody_but_its_jobs_own_account_speaks_for_a_slice(own_door: Door) -> None:
    audience = "trainmaster/my-project/own_1/1/worker/0/1"
    own_door.tell(own_door.token(audience=audience, instance_name="t1v-n-1-w-0"))
    (reason,) = own_door.reasons()
    assert f"VMs run as '{OWN}'" in reason
    own_door.tell(own_door.token(audience=audience, instance_name="t1v-n-1-w-0", email=OWN))
    assert (own_door.state, own_door.reasons()) == (ReplicaState.RUNNING, [])


def test_nobody_becomes_a_slice_by_saying_so(door: Door) -> None:
    assert door.tell(door.token(instance_name="t1v-n-1-w-0"), host=0) == 204
    assert "the token is of VM" in door.reasons()[0]
    door.tell(door.token(), host=0)
    assert "the token is of VM" in door.reasons()[0]


def test_keys_that_cannot_be_had_now_are_asked_for_again_later(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINMASTER_IDENTITY_KEYS", "http://127.0.0.1:9/certs")
    settings.cache_clear()
    wiring.tokens.cache_clear()
    assert door.tell(door.token()) == 503
    assert door.reasons() == []


def test_a_stranger_cannot_make_us_ask_for_keys_without_end(keys: str, issuer: TokenIssuer) -> None:
    """Each token of an unknown key may ask once a minute."""
    now = [0.0]
    tokens = IdentityTokens(keys, clock=lambda: now[0])
    vm = VmIdentity(ACCOUNT, "my-project", 1, "z", 1, "n", NOW)
    assert tokens.claims(issuer.identity_token(vm, "a", full=True, now=NOW)).audience == "a"
    tokens._url = "http://127.0.0.1:9/certs"  # a second request would fail
    with pytest.raises(sender_identity.IdentityError):
        tokens.claims(TokenIssuer().identity_token(vm, "a", full=True, now=NOW))
    now[0] = 61.0
    with pytest.raises(TemporaryError):
        tokens.claims(TokenIssuer().identity_token(vm, "a", full=True, now=NOW))


def an_entry(world: World) -> bytes:
    vm = world.vm(WORKER_0)
    assert vm is not None
    path = f"projects/my-project/zones/{vm.zone}/instances/{vm.name}"
    return json.dumps(
        {
            "protoPayload": {"methodName": "compute.instances.preempted", "resourceName": path},
            "resource": {"type": "gce_instance", "labels": {"instance_id": vm.instance_id}},
            "timestamp": NOW.isoformat(),
        }
    ).encode()


def test_computes_log_is_believed_on_its_own_topic_alone(door: Door) -> None:
    door.tell(door.token())
    door.name = "maintenance"
    assert door.post(an_entry(door.world), None, NOW, topics.MAINTENANCE) == 204
    assert (door.state, len(door.reasons())) == (ReplicaState.RUNNING, 1)
    assert door.post(an_entry(door.world), None, NOW, topics.SYSTEM_EVENTS) == 204
    assert door.state is ReplicaState.REPLACING


def test_an_agents_own_word_of_its_end_needs_its_token(door: Door) -> None:
    door.name = "maintenance"
    door.tell(None, cause=LossCause.PREEMPTION.value)
    assert (door.state, len(door.reasons())) == (ReplicaState.WAITING, 1)
    door.tell(door.token(), cause=LossCause.PREEMPTION.value)
    assert door.state is ReplicaState.REPLACING


def test_the_chief_is_not_touched_by_any_of_it(door: Door) -> None:
    door.tell(door.token())
    assert door.world.replica(CHIEF).state is ReplicaState.WAITING


def test_an_event_in_the_dead_letter_is_judged_as_of_when_it_was_told(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A release that could not read it put it there; a week later, with another one, its token has long ended."""
    token = door.token()
    with monkeypatch.context() as release:
        release.setattr(codec, "vm_ready", refuses)
        assert door.tell(token) == 204
    (buried,) = [each for each in door.world.bus.drain() if each.topic == topics.DEAD_LETTER]
    assert judged_here(a_letter(buried.attributes, buried.data)) is True
    assert door.state is ReplicaState.RUNNING


def test_a_forged_event_in_the_dead_letter_stays_there(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever tells it says when, and where it came from, too: what the function knows stands in their place."""
    then = NOW - timedelta(hours=3)
    old = door.token(at=then)
    forged = {
        "told_at": then.isoformat(),
        f"{push.MOVED}Subscription": topics.VM_READY,
        f"{push.MOVED}TopicPublishTime": then.isoformat(),
    }
    with monkeypatch.context() as release:
        release.setattr(codec, "vm_ready", refuses)
        assert door.tell(old, attributes=forged) == 204
    (buried,) = [each for each in door.world.bus.drain() if each.topic == topics.DEAD_LETTER]
    with pytest.raises(sender_identity.IdentityError, match="was valid until"):
        judged_here(a_letter(buried.attributes, buried.data))
    assert door.state is not ReplicaState.RUNNING


def refuses(_: bytes) -> None:
    raise PermanentError("LifeMessage: version: not known here")


def a_letter(attributes: Mapping[str, str], data: bytes) -> DeadLetter:
    """As the box reads it."""
    message = PubsubMessage(data=data, attributes=dict(attributes), message_id="1", publish_time=NOW)
    return dead_letter_box._letter(message)
