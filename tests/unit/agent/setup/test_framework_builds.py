"""When pip installs packages of a job, it keeps the builds of frameworks that the VM image has,
such as the one for its GPUs, under all names of the framework.
"""

from __future__ import annotations

import pytest

from trainmaster.agent.setup.framework_builds import is_framework, versions_to_keep

OF_TENSORFLOW = (
    "tensorflow",
    "tensorflow-tpu",
    "tensorflow-cpu",
    "tensorflow-gpu",
    "tensorflow-intel",
    "tf-nightly",
)


@pytest.mark.parametrize(
    ("installed", "kept"),
    [
        ({"tensorflow-tpu": "2.20.0", "numpy": "2.1"}, dict.fromkeys(OF_TENSORFLOW, "2.20.0")),
        ({"tensorflow": "2.21.0"}, dict.fromkeys(OF_TENSORFLOW, "2.21.0")),
        (
            {"torch": "2.9.0+cu129", "torchvision": "0.24.0+cu129"},
            {"torch": "2.9.0+cu129", "torchvision": "0.24.0+cu129"},
        ),
        ({"xgboost-cpu": "3.2.0"}, {}),
        (
            {"xgboost": "3.2.0", "xgboost-cpu": "3.1.0"},
            {"xgboost": "3.2.0", "xgboost-cpu": "3.1.0"},
        ),
        ({"numpy": "2.1"}, {}),
    ],
)
def test_every_name_of_an_installed_framework_keeps_its_build(
    installed: dict[str, str], kept: dict[str, str]
) -> None:
    assert versions_to_keep(installed) == kept


@pytest.mark.parametrize(
    ("requirement", "expected"),
    [
        ("tensorflow[and-cuda]==2.21.*", True),
        ("TensorFlow_TPU==2.20.*", True),
        ("torch_xla[tpu]==2.9.*", True),
        (" torch>=2", True),
        ("tf_keras==2.20.*", False),
        ("torchmetrics", False),
        ("tensorflow-hub", False),
    ],
)
def test_requirement_of_a_framework_is_recognized_in_every_spelling(
    requirement: str, expected: bool
) -> None:
    assert is_framework(requirement) is expected
