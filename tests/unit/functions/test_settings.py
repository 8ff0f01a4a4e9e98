"""Settings from environment variables: values, and errors that name the setting and the fix."""

from __future__ import annotations

import re

import pytest
from pydantic import ValidationError

from trainmaster.core.model.money import read_money
from trainmaster.settings import Addressing, Settings, read_settings


@pytest.fixture(autouse=True)
def project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINMASTER_PROJECT", "my-project")


def settings() -> Settings:
    return read_settings()


def test_limits_are_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings().limits == {}
    monkeypatch.setenv("TRAINMASTER_LIMITS", "vcpus=450, nvidia-tesla-t4=8,")
    assert settings().limits == {"vcpus": 450, "nvidia-tesla-t4": 8}


def test_weight_of_a_team_is_at_least_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINMASTER_LIMITS", "vcpus=0,team:vision=2")
    assert settings().limits == {"vcpus": 0, "team:vision": 2}


@pytest.mark.parametrize(
    "text", ["team:vision=0", "team:=5", "team:Vision=5", "team:a b=5", "team:*=5", "team:a:b=5"]
)
def test_weight_of_what_is_no_team_is_rejected(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINMASTER_LIMITS", text)
    with pytest.raises(
        ValidationError, match=rf"'{re.escape(text)}' is not a weight of at least 1"
    ):
        settings()


@pytest.mark.parametrize(
    "name", ["vcpu", "gpu", "VCPUS", "NVIDIA_TESLA_T4", "disk", "teams", "v5e", "nvidia-t4"]
)
def test_limit_on_what_no_job_can_use_is_rejected(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINMASTER_LIMITS", f"gpus=8,{name}=5")
    with pytest.raises(
        ValidationError,
        match=rf"'{name}' is not a resource; known are vcpus, gpus, (.|\n)*team:NAME",
    ):
        settings()


@pytest.mark.parametrize(
    "text", ["vcpus", "vcpus=", "=4", "vcpus=-1", "vcpus=4.5", "vcpus=4,vcpus=5", "team:a=-1"]
)
def test_malformed_limit_is_rejected_with_an_example(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINMASTER_LIMITS", text)
    with pytest.raises(
        ValidationError, match=r"limits(.|\n)*is not RESOURCE=NUMBER, once each, such as vcpus=450"
    ):
        settings()


def test_boot_images_are_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings().boot_images == {}
    monkeypatch.setenv(
        "TRAINMASTER_BOOT_IMAGES",
        "debian-12=projects/p/global/images/family/mine, cu=projects/p/global/images/m1",
    )
    assert settings().boot_images == {
        "debian-12": "projects/p/global/images/family/mine",
        "cu": "projects/p/global/images/m1",
    }


@pytest.mark.parametrize(
    "text",
    ["mine", "debian-12=", "debian-12=mine", "=projects/p/global/images/m", "a=projects/p/b"],
)
def test_malformed_boot_image_is_rejected_with_its_form(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINMASTER_BOOT_IMAGES", text)
    with pytest.raises(
        ValidationError, match=r"boot_images(.|\n)*is not FAMILY=projects/P/global/images"
    ):
        settings()


def test_price_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings().ml_unit_price is None
    monkeypatch.setenv("TRAINMASTER_ML_UNIT_PRICE", "")
    assert settings().ml_unit_price is None
    monkeypatch.setenv("TRAINMASTER_ML_UNIT_PRICE", "0.49 USD")
    assert settings().ml_unit_price == read_money("0.49 USD")


@pytest.mark.parametrize(
    "text", ["0.49", "USD", "0,49 EUR", "-1 USD", "0.49USD", "1e3 USD", "0.49 usd"]
)
def test_malformed_price_is_rejected_with_an_example(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINMASTER_ML_UNIT_PRICE", text)
    with pytest.raises(
        ValidationError, match=r"ml_unit_price(.|\n)*must be AMOUNT CURRENCY, such as 0.49 USD"
    ):
        settings()


def test_every_setting_is_described() -> None:
    for name, field in Settings.model_fields.items():
        assert field.description or field.annotation is Addressing, name


def test_missing_project_is_named_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRAINMASTER_PROJECT")
    with pytest.raises(ValidationError, match="project"):
        settings()
