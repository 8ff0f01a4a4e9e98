"""Prices, cost and advice on the command line, with the emulated price catalogue, and with Cloud
Storage in memory.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from datetime import datetime

import pytest
from typer.testing import CliRunner, Result

from tests.support.cost_jobs import a_job_with_three_losses, start
from tests.support.jobs import CHIEF, a_spec
from tests.support.serving import serving
from tests.support.study import Study
from tests.support.world import World
from trainmaster.cli.main import app
from trainmaster.cost.checkpoint_times import CheckpointTimes
from trainmaster.settings import settings
from trainmaster.wiring import objects as object_wiring
from trainmaster.wiring import price_list as price_wiring
from trainmaster.wiring import prices as cost_wiring
from trainmaster_emulators.billing.server import BillingServer
from trainmaster_emulators.rest.server import listen
from trainmaster_local.memory.objects import MemoryObjects


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryObjects]:
    """The installation's bucket in memory, and the emulated catalogue."""
    found = MemoryObjects()
    with serving(listen("127.0.0.1", 0, BillingServer())) as address:
        monkeypatch.setenv("TRAINMASTER_PROJECT", "my-project")
        monkeypatch.setenv("TRAINMASTER_BUCKET", "installation")
        monkeypatch.setenv("TRAINMASTER_BILLING_ENDPOINT", address)
        monkeypatch.setattr(object_wiring, "objects", lambda *_: found)
        monkeypatch.setattr(price_wiring, "objects", lambda *_: found)
        monkeypatch.setattr(cost_wiring, "checkpoint_times", lambda: CheckpointTimes(lambda: found))
        settings.cache_clear()
        price_wiring.price_list.cache_clear()
        yield found
    settings.cache_clear()
    price_wiring.price_list.cache_clear()
    logging.disable(logging.NOTSET)  # as `jobs advise` leaves it


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), catch_exceptions=False)


def use(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the commands see this world, at its time."""

    class WorldTime(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return world.now

    for module in ("trainmaster.cli.jobs", "trainmaster_local.cli.advise", "trainmaster.cli.cost"):
        monkeypatch.setattr(f"{module}.open_store", lambda: world.store)
        monkeypatch.setattr(f"{module}.datetime", WorldTime)


def test_prices_are_fetched_stored_and_listed(bucket: MemoryObjects) -> None:
    result = run("prices", "update")
    assert result.exit_code == 0, result.output
    assert "gs://installation/prices/v1.json: prices of " in result.stdout
    assert " in 4 regions, in USD" in result.stdout
    table = run(
        "prices", "list", "n1-standard-4", "g2-standard-8", "v5litepod", "m3-ultramem-32"
    ).stdout
    lines = {line.split()[0]: line.split()[1:] for line in table.splitlines()[2:]}
    assert lines["n1-standard-4"] == ["0.1900", "USD", "0.0400", "USD"]
    assert lines["g2-standard-8"][:2] == ["0.8536", "USD"]
    assert lines["v5litepod"] == ["1.2000", "USD", "0.5400", "USD"]
    assert "certain" in lines["m3-ultramem-32"]


def test_list_without_arguments_shows_all_machines_with_a_price(bucket: MemoryObjects) -> None:
    run("prices", "update")
    view = json.loads(run("prices", "list", "--region", "europe-west4", "--format", "json").stdout)
    names = {row["machine"] for row in view["prices"]}
    assert {"n1-standard-4", "g2-standard-4", "a2-highgpu-1g", "nvidia-l4", "v6e"} <= names
    assert not any(name.startswith("pd-") for name in names)
    refused = str(CliRunner().invoke(app, ["prices", "list", "--region", "mars"]).exception)
    assert refused.startswith("--region: no price in 'mars' is stored, but in ")
    assert "europe-west4" in refused


def test_list_before_an_update_says_what_to_do(bucket: MemoryObjects) -> None:
    result = CliRunner().invoke(app, ["prices", "list"])
    assert "trainmaster prices update" in str(result.exception)


def test_describe_and_wait_show_cost_goodput_and_lost_work(
    bucket: MemoryObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("prices", "update")
    use(a_job_with_three_losses(bucket), monkeypatch)
    text = run("jobs", "describe", "digits_1").stdout
    assert "lost work: " in text
    assert "from the times of objects in gs://bucket/digits" in text
    assert "paid " in text
    assert " USD at list prices of " in text
    assert "cost of attempt 1: setting up " in text
    assert "control plane: " in text
    view = json.loads(run("jobs", "describe", "digits_1", "--format", "json").stdout)["trainmaster"]
    assert float(view["cost"]["amount"]) > 0
    assert view["cost"]["currency"] == "USD"
    assert view["controlPlane"]["invocations"] > 10
    last = run("jobs", "wait", "digits_1").stdout.splitlines()[-1]
    assert "machine-hours paid, goodput " in last
    assert " USD at list prices of " in last


def test_compare_shows_jobs_side_by_side_and_what_differs(
    bucket: MemoryObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("prices", "update")
    world = a_job_with_three_losses(bucket)
    world.job_id = "digits_2"
    world.submit(
        {**a_spec(args=["--epochs", "9"]), "trainmaster": {"spot": "all"}},
        source="gs://b/jobs/digits_2.yaml#1",
    )
    use(world, monkeypatch)
    lines = run("jobs", "compare", "digits_1", "digits_2", "digits_1").stdout.splitlines()
    rows = {line.split("  ")[0]: line.split()[1:] for line in lines}
    assert lines[0].split() == ["DIGITS_1", "DIGITS_2"]
    assert rows["state"] == [world.store.load("digits_1").state.job.state, "QUEUED"]  # type: ignore[union-attr]
    assert "from the times of objects in gs://bucket/digits" in next(
        line for line in lines if "lost work" in line
    )
    assert [line.split() for line in lines[-2:]] == [
        ["SPEC", "DIGITS_1", "DIGITS_2"],
        ["trainingInput.args", "--epochs", "5", "9"],
    ]
    found = json.loads(run("jobs", "compare", "digits_1", "digits_2", "--format", "json").stdout)
    assert found["jobs"] == ["digits_1", "digits_2"]
    assert found["spec"] == {"trainingInput.args --epochs": ["5", "9"]}
    assert found["facts"]["ran"][1] is None
    same = run("jobs", "compare", "digits_1").stdout
    assert "The specs do not differ." not in same, "there is no other job to differ from"


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        (["digits_9"], "there is no job digits_9"),
        ([f"digits_{n}" for n in range(7)], "1 to 6 jobs can be compared; 7 are named"),
    ],
)
def test_compare_names_a_wrong_choice_of_jobs(
    bucket: MemoryObjects, monkeypatch: pytest.MonkeyPatch, ids: list[str], words: str
) -> None:
    use(World(), monkeypatch)
    result = CliRunner().invoke(app, ["jobs", "compare", *ids])
    assert words in str(result.exception)


def test_describe_without_prices_says_so(
    bucket: MemoryObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    start(world)
    use(world, monkeypatch)
    assert (
        "cost: price not known: there is no price list; `trainmaster prices update`"
        in run("jobs", "describe", "digits_1").stdout
    )


def test_invalid_price_list_does_not_break_describe(
    bucket: MemoryObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.write("gs://installation/prices/v1.json", b"{", content_type="application/json")
    world = World()
    start(world)
    use(world, monkeypatch)
    result = run("jobs", "describe", "digits_1")
    assert result.exit_code == 0
    assert "the price list is invalid" in result.stdout


def test_advice_of_a_job_with_enough_data_has_figures(
    bucket: MemoryObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("prices", "update")
    use(a_job_with_three_losses(bucket, every_s=3000), monkeypatch)
    monkeypatch.setattr("trainmaster_local.cli.advise.RUNS_MIN", 1)
    monkeypatch.setattr("trainmaster_local.cli.advise.RUNS_MAX", 1)
    lines = run("jobs", "advise", "digits_1", "--save-time", "30s").stdout.splitlines()
    advice = {line.partition(": ")[0]: line.partition(": ")[2] for line in lines}
    assert advice["measured"].startswith("3 interruptions in 12.")
    assert advice["checkpoint interval"].startswith("save every ")
    assert "with Spot VMs" in advice["Spot VMs"]
    assert advice["Spot VMs"].startswith("keep them: ")
    assert "succeed" in advice["restart policy"]


def test_advice_of_a_job_with_too_little_data_says_what_is_missing(
    bucket: MemoryObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    start(world)
    world.wait(3600)
    use(world, monkeypatch)
    view = json.loads(run("jobs", "advise", "digits_1", "--format", "json").stdout)
    assert all(not advice["text"] for advice in view["advice"])
    missing = {advice["topic"]: advice["missing"] for advice in view["advice"]}
    assert "interruptions: 0 in 1.0 hours" in missing["checkpoint interval"]
    assert "the job had none" in missing["Spot VMs"]


def test_costs_are_summed_by_user_and_by_label(
    bucket: MemoryObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    use(world, monkeypatch)
    runs = (("anna", "vision", 1), ("boris", "vision", 2), ("anna", "", 4))
    anna_hours, boris_hours, vision_hours, no_team_hours = 1 + 4, 2, 1 + 2, 4
    for number, (user, team, hours) in enumerate(runs):
        world.job_id = f"job_{number}"
        document = {**a_spec(), "labels": {"team": team} if team else {}}
        world.submit(document, f"cli:{number}/{user}@example.com")
        world.deliver()
        world.report_all_ready()
        world.wait(hours * 3600)
        world.exit_program(CHIEF, 0)
        world.deliver()
    table = run("jobs", "cost").stdout.splitlines()
    jobs_without_price = [line.split()[-1] for line in table[1:]]
    assert jobs_without_price == ["2", "1"], "all of anna's, and boris's"
    run("prices", "update")
    price_wiring.price_list.cache_clear()
    users = json.loads(run("jobs", "cost", "--format", "json").stdout)
    assert [(row["value"], row["jobs"]) for row in users] == [
        ("anna@example.com (unverified)", 2),
        ("boris@example.com (unverified)", 1),
    ]
    assert float(users[0]["cost"]) == pytest.approx(
        anna_hours / boris_hours * float(users[1]["cost"]), rel=0.05
    )
    teams = json.loads(run("jobs", "cost", "--by", "team", "--format", "json").stdout)
    assert [(row["value"], row["jobs"], row["notKnown"]) for row in teams] == [
        ("-", 1, 0),
        ("vision", 2, 0),
    ]
    assert float(teams[0]["cost"]) == pytest.approx(
        no_team_hours / vision_hours * float(teams[1]["cost"]), rel=0.05
    )
    assert "raise `--limit`" in run("jobs", "cost", "--limit", "2").stderr
    jobs = json.loads(run("jobs", "cost", "--by", "job", "--format", "json").stdout)
    assert [(row["value"], row["jobs"]) for row in jobs] == [
        ("job_2", 1),
        ("job_1", 1),
        ("job_0", 1),
    ]
    for key in ("jobs", "cost", "currency"):  # labels that are named like a column
        (row,) = json.loads(run("jobs", "cost", "--by", key, "--format", "json").stdout)
        assert (row["by"], row["value"], row["jobs"], row["currency"]) == (key, "-", 3, "USD")
    assert "None of these 3 jobs has the label nope." in run("jobs", "cost", "--by", "nope").stderr
    assert len(run("jobs", "cost", "--user", "boris@example.com").stdout.splitlines()) == 2


def test_cost_of_a_tuning_job_is_that_of_its_trials(
    bucket: MemoryObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = Study()
    use(study, monkeypatch)
    run("prices", "update")
    price_wiring.price_list.cache_clear()
    study.start_tuning()
    study.report_ready(1)
    study.wait(3600)
    (row,) = json.loads(run("jobs", "cost", "--format", "json").stdout)
    assert row["jobs"] == 1
    assert row["machineHours"] >= 1.0
