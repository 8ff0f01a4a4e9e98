"""The one line of an error's message."""

from __future__ import annotations

import pytest

from trainmaster.core.events import ProgramError


@pytest.mark.parametrize(
    ("message", "headline"),
    [
        ("'missing'", "'missing'"),
        ("", ""),
        ("invalid literal:\n", "invalid literal"),
        (
            "1 validation error for Settings\nlr\n  field required",
            "1 validation error for Settings",
        ),
        (
            "in user code:\n\n    File 'a.py', line 2, in build\n    ValueError: no shape\n",
            "in user code: ValueError: no shape",
        ),
        (
            "Exception encountered when calling Dense.call().\n\nShapes differ.\n\nArguments: …",
            "Exception encountered when calling Dense.call(). Shapes differ.",
        ),
        (
            "Exception encountered when calling layer 'a'.\n\nin user code:\n\n    ValueError: b\n",
            "Exception encountered when calling layer 'a'. ValueError: b",
        ),
        (
            "backend='inductor' raised:\nRuntimeError: no compiler\n\nSet TORCH_LOGS",
            "backend='inductor' raised: RuntimeError: no compiler",
        ),
        (
            'Error(s) in loading state_dict for Net:\n\tMissing key(s): "fc.bias".',
            'Error(s) in loading state_dict for Net: Missing key(s): "fc.bias".',
        ),
    ],
)
def test_headline_says_what_is_wrong(message: str, headline: str) -> None:
    assert ProgramError("RuntimeError", message, "a.py:1 in <module>").headline == headline
