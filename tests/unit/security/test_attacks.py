"""Attacks by strangers, users and programs of jobs that no other module tests. docs/security.md
lists all attacks.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from tests.integration.api.client import CUSTOM_JOBS, JOBS, OWNER, TOKENS, Api, an_app
from tests.support.jobs import a_spec
from tests.support.world import World
from trainmaster.agent.model.vm_config import AgentIdentity, VmConfig, VmRef
from trainmaster.agent.program.environment import command_of, environment_of
from trainmaster.agent.reporting.log_entry import entry_of
from trainmaster.agent.reporting.serial_console import Stream
from trainmaster.cli.logs import line_printer
from trainmaster.cli.output import Format, complain, print_table, say
from trainmaster.console.pages.labels_form import parse_labels
from trainmaster.core.intake.job_files import UploadedObject
from trainmaster.core.intake.named_resources import AllowedResources
from trainmaster.errors import PermanentError
from trainmaster.flows import upload
from trainmaster.flows.upload import FILE_BYTES_MAX
from trainmaster.jobspec.accept import accept
from trainmaster.jobspec.fields.job_id import JOB_ID
from trainmaster.jobspec.problems import InvalidJob
from trainmaster.presentation.log_reader import LogLine
from trainmaster.presentation.printable import make_visible
from trainmaster.wiring.fleet import agent_files
from trainmaster_local.memory.access import MemoryAccess
from trainmaster_local.memory.objects import MemoryObjects

TUNING_JOBS: Final = CUSTOM_JOBS.replace("customJobs", "hyperparameterTuningJobs")
METACHARACTERS: Final = (
    "$(touch pwned)",
    "`touch pwned`",
    "; touch pwned;",
    "a' || touch pwned #",
    'a"\n#!/bin/sh\n',
)

JOB: Final[dict[str, Any]] = {
    "jobId": "digits_1",
    "labels": {"team": "vision"},
    "trainingInput": {
        **a_spec()["trainingInput"],  # type: ignore[dict-item]
        "pythonVersion": "3.7",
        "serviceAccount": "trainer@my-project.iam.gserviceaccount.com",
        "network": "projects/123/global/networks/default",
        "masterConfig": {
            "acceleratorConfig": {"type": "NVIDIA_TESLA_T4", "count": "1"},
            "diskConfig": {"bootDiskType": "pd-ssd"},
        },
        "encryptionConfig": {
            "kmsKeyName": "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k",
        },
        "scheduling": {"maxRunningTime": "3600s"},
    },
    "trainmaster": {
        "zones": ["us-central1-a"],
        "spot": "workers",
        "env": {"LEVEL": "debug"},
        "secrets": {"API_KEY": "projects/p/secrets/key/versions/latest"},
        "image": "projects/p/global/images/family/i",
        "reservation": "mine",
        "checkpointSignal": "SIGTERM",
        "exitPolicy": {"preset": "restart", "fail": ["3"]},
    },
}
FREE_TEXT_FIELDS: Final = {
    "trainingInput.args.0",
    "trainingInput.args.1",
    "trainingInput.jobDir",
    "trainmaster.env.LEVEL",
}
"""Fields with free text: an argument, an environment variable, an object's name."""


def string_paths(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Return the paths of all string values in a document."""
    if isinstance(value, Mapping):
        return [
            inner for name, member in value.items() for inner in string_paths(member, (*path, name))
        ]
    if isinstance(value, list):
        return [
            inner
            for index, item in enumerate(value)
            for inner in string_paths(item, (*path, index))
        ]
    return [path] if isinstance(value, str) else []


def job_with(path: tuple[str | int, ...], text: str) -> dict[str, Any]:
    """Return `JOB` with this text as the value at the path, or as the object's name of a URI."""
    document: Any = copy.deepcopy(JOB)
    place = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = text if path[-1] != "jobDir" else f"gs://bucket/{text}"
    result: dict[str, Any] = document
    return result


def dotted(path: tuple[str | int, ...]) -> str:
    return ".".join(map(str, path))


def test_job_of_this_module_is_valid_and_has_free_text_fields() -> None:
    assert accept(JOB, default_job_id=None).plan.groups
    assert {dotted(path) for path in string_paths(JOB)} >= FREE_TEXT_FIELDS


@pytest.mark.parametrize("text", METACHARACTERS)
@pytest.mark.parametrize(
    "path", [path for path in string_paths(JOB) if dotted(path) not in FREE_TEXT_FIELDS]
)
def test_fields_with_a_format_reject_shell_metacharacters(
    path: tuple[str | int, ...], text: str
) -> None:
    """The text replaces the field's value, or is appended to it."""
    value: Any = JOB
    for step in path:
        value = value[step]
    for hostile in (text, f"{value}{text}"):
        with pytest.raises(InvalidJob):
            accept(job_with(path, hostile), default_job_id=None)


@pytest.mark.parametrize("text", METACHARACTERS)
def test_free_text_reaches_the_program_unchanged_and_never_a_shell(text: str) -> None:
    """The agent passes it to `execve` in an argv and an environment.

    The shell reads only a static script.
    """
    document = job_with(("trainmaster", "env", "LEVEL"), text)
    document["trainingInput"]["args"] = [text, "--name", text]
    world = World(allowed=AllowedResources("my-project", ("*",)))
    world.submit(document)
    world.deliver()
    vm = world.vms[0]
    metadata = dict(world.fleet.metadata(vm.name))
    config = VmConfig.parse(metadata.pop("trainmaster-vm-config"))
    assert "pwned" not in json.dumps(metadata), (
        "only the VM config, which the agent parses as JSON, contains it"
    )
    identity = AgentIdentity(
        VmRef(vm.name, vm.zone, vm.instance_id), config, VmRef(vm.name, vm.zone, vm.instance_id)
    )
    assert command_of(config)[3:] == [text, "--name", text, "--job-dir", "gs://bucket/digits"]
    assert environment_of(identity, {})["LEVEL"] == text


def test_startup_script_is_static_and_does_not_evaluate_metadata() -> None:
    script = agent_files("gs://b/agent/0.zip")["startup-script"]
    assert script == Path("shared/trainmaster/agent/startup.sh").read_text(encoding="utf-8")
    code = [line for line in script.splitlines() if not line.lstrip().startswith("#")]
    assert not [
        line
        for line in code
        if "eval " in line or "trainmaster-vm-config" in line or "trainmaster-directive" in line
    ]


@pytest.mark.parametrize(
    "uri",
    [
        "gs://bucket/..",
        "gs://bucket/../other/p.tar.gz",
        "gs://bucket/a/../../p.tar.gz",
        "gs://bucket/./p.tar.gz",
        "gs://../p.tar.gz",
        "gs://bucket//etc/passwd",
        "file:///etc/passwd",
        "/etc/passwd",
        "https://example.com/p.tar.gz",
        "gs://bucket/p.tar.gz\n--index-url=http://example.com",
        "gs://bucket/p.tar.gz --index-url http://example.com",
        "git+https://example.com/p",
    ],
)
def test_package_uri_outside_its_bucket_or_with_options_is_rejected(uri: str) -> None:
    with pytest.raises(InvalidJob) as caught:
        accept(
            {**JOB, "trainingInput": {**JOB["trainingInput"], "packageUris": [uri]}},
            default_job_id=None,
        )
    assert {problem.field for problem in caught.value.problems} == {"trainingInput.packageUris[0]"}


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Api:
    world, access = World(), MemoryAccess(TOKENS)
    return Api(world, access, an_app(world, access, monkeypatch).test_client())


@pytest.mark.parametrize(
    "job_id",
    [
        "..",
        ".",
        "../jobs/other",
        "..%2Fother",
        "a%2Fb",
        "a/b",
        "__all__",
        "a b",
        "a%00b",
        "%2e%2e",
        "a" * 129,
        "-1",
        "ä",
    ],
)
@pytest.mark.parametrize("parent", [JOBS, CUSTOM_JOBS, TUNING_JOBS])
@pytest.mark.parametrize(
    ("method", "verb"), [("GET", ""), ("POST", ":cancel"), ("DELETE", ""), ("PATCH", "")]
)
def test_invalid_job_id_is_never_looked_up_in_the_store(
    api: Api, monkeypatch: pytest.MonkeyPatch, method: str, verb: str, parent: str, job_id: str
) -> None:
    job_ids: list[str] = []
    monkeypatch.setattr(api.world.store, "load", lambda name, *_, **__: job_ids.append(name))
    answer = api.http.open(
        f"{parent}/{job_id}{verb}",
        method=method,
        headers={"Authorization": f"Bearer {OWNER}"},
        data=b"{}",
    )
    assert answer.status_code in {400, 404}
    assert all(JOB_ID.fullmatch(name) for name in job_ids), job_ids


@pytest.mark.parametrize("verb", ["DELETE", "PATCH", "PUT", "POST", "get"])
def test_method_override_header_on_a_post_is_not_found(api: Api, verb: str) -> None:
    """Only a GET may be sent as a POST, and it needs the GET's permission."""
    api.create()
    for path in (f"{JOBS}/digits_1", f"{CUSTOM_JOBS}/digits_1"):
        answer = api.http.post(
            path,
            headers={"Authorization": f"Bearer {OWNER}", "X-HTTP-Method-Override": verb},
            data=b"updateMask=labels",
        )
        assert answer.status_code == 404
    assert api.get()["state"] == "QUEUED"


@pytest.mark.parametrize(
    "key", ["trainmaster-job", "trainmaster-task", "trainmaster-vm-generation", "trainmaster-x"]
)
def test_labels_with_the_reserved_prefix_are_rejected(api: Api, key: str) -> None:
    """`provision` and the search for orphans identify VMs by these labels."""
    created = api.send_refused(
        "POST", JOBS, {"jobId": "digits_1", **a_spec(), "labels": {key: "other"}}
    )
    assert created["code"] == 400
    api.create()
    changed = api.send_refused(
        "PATCH", f"{JOBS}/digits_1", {"labels": {key: "other"}}, updateMask="labels"
    )
    assert changed["code"] == 400
    assert "is reserved: Trainmaster sets" in changed["message"]
    assert api.world.job.labels == ()


def test_labels_with_the_reserved_prefix_are_rejected_in_the_console() -> None:
    with pytest.raises(InvalidJob, match="is reserved: Trainmaster sets"):
        parse_labels("team=vision\ntrainmaster-job=other")


@pytest.mark.parametrize(
    "name",
    ["TF_CONFIG", "CLUSTER_SPEC", "RANK", "MASTER_ADDR", "CLOUD_ML_JOB_ID", "TRAINMASTER_PROJECT"],
)
@pytest.mark.parametrize("kind", ["env", "secrets"])
def test_reserved_environment_variables_are_rejected(kind: str, name: str) -> None:
    value = "{}" if kind == "env" else "projects/p/secrets/key/versions/latest"
    with pytest.raises(InvalidJob):
        accept(
            {**JOB, "trainmaster": {**JOB["trainmaster"], kind: {name: value}}}, default_job_id=None
        )


def test_second_submission_with_another_job_changes_nothing() -> None:
    """The sender chooses the source of a message, so a known source neither allows a change nor
    hides a submission.
    """
    world = World()
    world.submit(source="gs://b/jobs/digits.yaml#1")
    before = world.job
    for source in ("gs://b/jobs/digits.yaml#1", "cli:4711"):
        with pytest.raises(PermanentError, match="already exists"):
            world.submit(a_spec(args=["--other-flag"]), source=source)
    assert world.job == before
    world.check()


def test_huge_job_file_is_read_to_its_limit_only(monkeypatch: pytest.MonkeyPatch) -> None:
    world, objects, limits = World(), MemoryObjects(), []
    read = objects.read

    def limited(uri: str, *, generation: int | None = None, max_bytes: int) -> bytes | None:
        limits.append(max_bytes)
        return read(uri, generation=generation, max_bytes=max_bytes)

    monkeypatch.setattr(objects, "read", limited)
    objects.write("gs://b/jobs/huge.yaml", b"x" * (5 << 20), content_type="text/yaml")
    assert upload.handle(UploadedObject("b", "jobs/huge.yaml", 1), objects, world.deps) is None
    answer = objects.read("gs://b/jobs/huge.yaml.error.json", max_bytes=1 << 20)
    assert answer is not None
    assert f"more than {FILE_BYTES_MAX}" in answer.decode()
    assert limits[0] == FILE_BYTES_MAX + 1
    assert world.store.recent_jobs(1) == ()


@pytest.mark.parametrize(
    "fields",
    [{"labels": {"ml.googleapis.com/job_id": "other"}}, {"insertId": "1"}, {"logName": "x"}],
)
def test_printed_log_line_cannot_set_labels_or_log_name(fields: dict[str, object]) -> None:
    """The whole line becomes the entry's payload, whatever its field names."""
    entry = entry_of(json.dumps({"message": "m", **fields}), Stream.STDOUT)
    assert entry == {"jsonPayload": {"message": "m", **fields}, "severity": "INFO"}


def test_escape_sequences_in_a_log_are_shown_but_not_sent_to_the_terminal() -> None:
    hostile = "\x1b]0;owned\x07\x1b[2Jloss \x1b[31m0.5\x1b[0m\r\x9b31m\u202eend"
    assert (
        make_visible(hostile)
        == "\ufffd]0;owned\ufffd\ufffd[2Jloss \x1b[31m0.5\x1b[0m\ufffd\ufffd31m\ufffdend"
    )
    assert make_visible("\tloss 0.5 é 你好") == "\tloss 0.5 é 你好"


@pytest.mark.parametrize("hiding", ["8", "0;8", "38;5;7;8", "30;40", "48;5;0", "7", "38;5", "1;"])
def test_log_cannot_hide_text_from_the_user(hiding: str) -> None:
    """Terminals can conceal text, or give it the colour of its background."""
    assert make_visible(f"\x1b[{hiding}mpassword:\x1b[0m") == f"\ufffd[{hiding}mpassword:\x1b[0m"


@pytest.mark.parametrize(
    "style", ["", "0", "1;31", "01;31", "38;5;208", "38;2;255;128;0", "4;94", "22;39"]
)
def test_text_colours_of_a_log_reach_the_terminal(style: str) -> None:
    assert make_visible(f"\x1b[{style}mloss") == f"\x1b[{style}mloss"


@pytest.mark.parametrize("form", Format)
@pytest.mark.parametrize("is_terminal", [True, False])
def test_no_text_of_a_program_sends_control_characters(
    form: Format,
    is_terminal: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A program can write log entries with its VM's token, and so choose all their fields."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal)
    monkeypatch.setattr("sys.stderr.isatty", lambda: is_terminal)
    control_characters = map(chr, [*range(32), *range(127, 160)])
    right_to_left = "\u202e\u2066"
    bad = "".join(control_characters) + right_to_left + "\x1b[2J\x1b]0;owned\x1b[8m"
    line_printer(form, raw=False)(
        [
            LogLine(
                "2026-11-21T03:00:00.123Z", bad, f"{bad}worker", bad, bad, f"{bad}text", payload={}
            )
        ]
    )
    say(bad)
    complain(bad)
    print_table(["a"], [[bad]])
    output = capsys.readouterr()
    assert "worker" in output.out
    without_colours = re.sub(r"\x1b\[[0-9;]*m", "", output.out + output.err)
    assert {char for char in set(without_colours) & set(bad) if not char.isprintable()} <= {
        "\n",
        "\t",
    }
    assert "\x1b[8m" not in output.out + output.err


def test_raw_log_is_printed_as_the_program_wrote_it(capsys: pytest.CaptureFixture[str]) -> None:
    line_printer(Format.TABLE, raw=True)(
        [LogLine("2026-11-21T03:00:00.123Z", "1", "w", "vm", "INFO", "\x1b[1mbold", payload={})]
    )
    assert "\x1b[1mbold" in capsys.readouterr().out


def test_table_shows_markup_as_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """rich would interpret [/tmp] as a closing tag and [bold] as a style."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    print_table(["why"], [["no [/tmp] [bold]x \x1b[2J"]])
    out = capsys.readouterr().out
    assert "no [/tmp] [bold]x \ufffd[2J" in out


@pytest.mark.parametrize("is_terminal", [False, True])
@pytest.mark.parametrize("end", ["\n", "\r", "\x0b", "\x85", "\u2028"])
def test_display_name_adds_no_row_to_a_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, end: str, is_terminal: bool
) -> None:
    """Scripts read lines of `trainmaster list`, and people its rows."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal)
    print_table(["job_id", "name"], [["a", f"x{end}forged_1  SUCCEEDED"]])
    assert len(capsys.readouterr().out.splitlines()) == 2
