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
            "1 validation error for Settings: lr: field required",
        ),
        (
            "2 validation errors for Config\nfit.lr\n  Not a number [type=x, input_value='fast']\n",
            "2 validation errors for Config: fit.lr: Not a number",
        ),
        (
            "fake tensor call\n  Explanation: it ran f(*(Fake(...),)): got OSError('a')\n  Hint",
            "fake tensor call: OSError('a')",
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


@pytest.mark.parametrize(
    ("message", "headline"),
    [
        (
            "while scanning for the next token\nfound character '@'\n  in \"c.yaml\", line 3",
            "found character '@' in \"c.yaml\", line 3",
        ),
        (
            'while parsing a mapping\n  in "c.yaml", line 1\nexpected ","\n  in "c.yaml", line 2',
            'expected "," in "c.yaml", line 2',
        ),
        ('mapping values are not allowed here\n  in "c.yaml", line 1', "mapping values are not"),
        ("while loading the batch\nsecond line", "while loading the batch"),
    ],
)
def test_headline_of_a_yaml_error_says_what_is_wrong_and_where(message: str, headline: str) -> None:
    error = ProgramError("yaml.scanner.ScannerError", message, frame="")
    assert error.headline.startswith(headline)
