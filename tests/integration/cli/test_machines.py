"""`trainmaster machines`: the table alone, and with the zones and prices of an installation."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner, Result
from werkzeug.wrappers import Request, Response

from tests.support.serving import serving
from tests.unit.cost.price_lists import price_file
from trainmaster.cli.main import app
from trainmaster.core.machines.machine_types import MACHINE_TYPES
from trainmaster.core.machines.tpus import TPU_VMS
from trainmaster.cost.price_list import OBJECT_NAME, write_price_list
from trainmaster.errors import PermanentError
from trainmaster.settings import settings
from trainmaster.wiring import price_list as price_wiring
from trainmaster_emulators.compute.pages import take_page
from trainmaster_emulators.machines.catalog import Catalog, Links
from trainmaster_emulators.machines.compute_errors import ApiError
from trainmaster_emulators.rest.server import listen
from trainmaster_local.memory.objects import MemoryObjects

PAGE_SIZE = "50"
"""Smaller than Compute Engine's, so that a zone has several pages."""


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["machines", *arguments], catch_exceptions=False)


def rows(*arguments: str) -> dict[str, dict[str, Any]]:
    found = json.loads(run(*arguments, "--format", "json").stdout)["machines"]
    return {row["machine"]: row for row in found}


@Request.application
def compute(request: Request) -> Response:
    """Answer with the emulator's catalogue, page by page."""
    match = re.fullmatch(
        r"/compute/v1/projects/my-project/zones/([a-z0-9-]+)/(machine|accelerator)Types",
        request.path,
    )
    assert match is not None, request.path
    catalog = Catalog(Links("http://localhost/compute/v1", "my-project"))
    try:
        items = (
            catalog.machine_types(match[1])
            if match[2] == "machine"
            else catalog.accelerator_types(match[1])
        )
    except ApiError as error:
        return Response(json.dumps(error.body()), error.code, content_type="application/json")
    named = sorted({str(item["name"]): item for item in items}.items())
    page, token = take_page(named, PAGE_SIZE, request.args.get("pageToken") or None)
    answer = {"items": page} | ({"nextPageToken": token} if token else {})
    return Response(json.dumps(answer), content_type="application/json")


@pytest.fixture
def installation(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryObjects]:
    """An installation whose zones are those of the emulator's catalogue.

    Its bucket is in memory.
    """
    objects = MemoryObjects()
    with serving(listen("127.0.0.1", 0, compute)) as address:
        monkeypatch.setenv("TRAINMASTER_PROJECT", "my-project")
        monkeypatch.setenv("TRAINMASTER_BUCKET", "installation")
        monkeypatch.setenv("TRAINMASTER_COMPUTE_ENDPOINT", address)
        monkeypatch.setattr(price_wiring, "objects", lambda *_: objects)
        settings.cache_clear()
        price_wiring.price_list.cache_clear()
        yield objects
    settings.cache_clear()
    price_wiring.price_list.cache_clear()


@pytest.fixture
def no_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise PermanentError("no installation: set TRAINMASTER_PROJECT")

    monkeypatch.setattr("trainmaster.cli.machines.choose_installation", fail)


@pytest.mark.usefixtures("no_installation")
def test_table_without_an_installation_has_all_machines_and_says_what_is_not_known() -> None:
    result = run()

    assert result.exit_code == 0
    assert "Prices and zones are not known: no installation" in result.stderr
    lines = {line.split()[0]: line for line in result.stdout.splitlines()}
    assert {*MACHINE_TYPES, *TPU_VMS} <= set(lines)
    assert re.search(
        r"208 +1872 +8 x nvidia-h100-80gb +6000 +5 +on demand, Spot, reservation$",
        lines["a3-highgpu-8g"],
    )
    assert "us-south1-a" in lines["ct5lp-hightpu-4t"]
    assert "n2-standard-8" in result.stdout.splitlines()[-1]


@pytest.mark.usefixtures("no_installation")
@pytest.mark.parametrize(
    ("text", "names"),
    [
        (
            "H100",
            {*(f"a3-highgpu-{gpus}g" for gpus in (1, 2, 4, 8)), "a3-megagpu-8g", "a3-edgegpu-8g"},
        ),
        ("tesla-t4", {"n1 + nvidia-tesla-t4"}),
        ("v6e", {"ct6e-standard-1t", "ct6e-standard-4t", "ct6e-standard-8t"}),
        ("n2-standard-8", {"n2-standard-8"}),
        ("c5-highmem-16", {"c5-highmem-16"}),
    ],
)
def test_name_selects_machines_and_accelerators(text: str, names: set[str]) -> None:
    assert set(rows(text)) == names


@pytest.mark.usefixtures("no_installation")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("a9-ultragpu-8g",),
            (
                "a9-ultragpu-8g: it is an accelerator-optimized machine type that this release"
                " does not"
            ),
        ),
        (("a4x-highgpu-4g",), "Arm"),
        (
            ("nothing",),
            (
                "nothing: no machine type, GPU or TPU has a name like it; `trainmaster machines`"
                " lists all"
            ),
        ),
        (
            ("h100", "--region", "us-central9"),
            "--region us-central9: not a region, such as us-central1",
        ),
    ],
)
def test_machine_or_region_that_jobs_cannot_use_is_an_error(
    arguments: tuple[str, ...], message: str
) -> None:
    with pytest.raises(PermanentError, match=re.escape(message)):
        run(*arguments)


def test_zones_and_prices_are_those_of_the_installation(installation: MemoryObjects) -> None:
    installation.write(
        f"gs://installation/{OBJECT_NAME}",
        write_price_list(price_file()),
        content_type="application/json",
    )

    found = rows("--region", "us-central1")

    all_zones = ["us-central1-a", "us-central1-b", "us-central1-c", "us-central1-f"]
    assert found["n1-standard-4"]["zones"] == all_zones
    assert found["n2-highmem-128"]["zones"] == all_zones, "it is not on the first page"
    assert (found["n1-standard-4"]["onDemand"], found["n1-standard-4"]["spot"]) == (
        "0.1900",
        "0.0400",
    )
    assert found["n1 + nvidia-tesla-t4"]["onDemand"] == "0.3500"
    assert found["n1 + nvidia-tesla-t4"]["zones"] == all_zones
    assert found["ct5lp-hightpu-8t"]["onDemand"] == "9.6000"
    assert found["ct5lp-hightpu-8t"]["zones"] == ["us-central1-a"]
    assert found["a4-highgpu-8g"]["onDemand"] is None
    assert found["a3-highgpu-1g"]["onDemand"] is None, "it is not sold on demand"
    table = run("g2-standard-8", "--region", "us-central1").stdout.splitlines()
    assert "0.8536" in table[1]
    assert re.fullmatch(
        r"list prices of \d{4}-\d\d-\d\d in us-central1, USD per hour, without boot disks", table[2]
    )


@pytest.mark.usefixtures("installation")
def test_regions_are_those_of_the_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINMASTER_REGIONS", "europe-west4,us-newest1")
    settings.cache_clear()

    result = run("g2-standard-4", "--format", "json")

    view = json.loads(result.stdout)
    assert view["regions"] == ["europe-west4", "us-newest1"]
    assert view["machines"][0]["zones"] == ["europe-west4-a", "europe-west4-b", "europe-west4-c"]
    assert "Prices are not known: there is no price list" in result.stderr


@pytest.mark.usefixtures("installation")
def test_zones_are_not_known_if_compute_engine_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TRAINMASTER_COMPUTE_ENDPOINT", "http://127.0.0.1:9")
    settings.cache_clear()

    result = run("g2-standard-4", "--format", "json")

    assert json.loads(result.stdout)["machines"][0]["zones"] is None
    assert "Zones are not known: " in result.stderr
