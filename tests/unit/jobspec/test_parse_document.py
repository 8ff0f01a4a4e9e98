"""Parsing of bytes: what is accepted, what is refused, and which place the message names."""

from __future__ import annotations

import json
import time
import tracemalloc
from typing import Any, cast

import pytest

from trainmaster.jobspec.problems import InvalidJob
from trainmaster.jobspec.reading.parse_document import DOCUMENT_BYTES_MAX, parse_document


def problem_of(data: bytes, name: str = "jobs/job.yaml") -> str:
    with pytest.raises(InvalidJob) as caught:
        parse_document(data, name)
    problem = caught.value.problems[0]
    assert problem.example
    return problem.problem


def test_same_document_in_yaml_and_json_is_parsed_equally() -> None:
    document = {
        "jobId": "a",
        "trainingInput": {"workerCount": 2, "args": ["--x", "1"], "scaleTier": None},
    }

    as_json = json.dumps(document).encode()
    as_yaml = b"jobId: a\ntrainingInput:\n  workerCount: 2\n  args: [--x, '1']\n  scaleTier:\n"

    assert parse_document(as_json, "job.json") == document
    assert parse_document(as_json, "job.yaml") == document
    assert parse_document(b"\xef\xbb\xbf" + as_json, "message") == document
    assert parse_document(as_yaml, "job.yaml") == document


def test_yaml_mapping_in_braces_is_parsed_as_yaml() -> None:
    assert parse_document(b"{jobId: a, labels: {b: c}}", "job.yaml") == {
        "jobId": "a",
        "labels": {"b": "c"},
    }


def test_yaml_values_without_json_type_stay_strings() -> None:
    document = parse_document(
        b"a: 2024-01-02\nb: 1:30:00\nc: 0010\nd: .inf\ne: 0x1F\nf: =\n", "job.yaml"
    )

    assert document == {
        "a": "2024-01-02",
        "b": "1:30:00",
        "c": "0010",
        "d": ".inf",
        "e": "0x1F",
        "f": "=",
    }


def test_yaml_scalars_are_parsed_as_by_the_services_client() -> None:
    document = parse_document(
        b"a: yes\nb: Off\nc: 2.11\nd: -7\ne: ~\nf: 1e3\ng: '2.11'\nh: !!str 2.10\n", "job.yaml"
    )

    assert document == {
        "a": True,
        "b": False,
        "c": 2.11,
        "d": -7,
        "e": None,
        "f": 1000.0,
        "g": "2.11",
        "h": "2.10",
    }


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"a: &x [*x]\n", "line 1, column 8: the alias *x contains itself"),
        (b"a: *x\n", "line 1, column 4: is not YAML: found undefined alias"),
        (b"a: {<<: 1}\n", "expected a mapping or list of mappings for merging"),
        (b"a: {<<: {}, <<: {}}\n", "the name '<<' is given twice"),
        (b"a: 1\nb: 2\na: 3\n", "line 3, column 1: is not YAML: the name 'a' is given twice"),
        (b"a:\n  b: 1\n  b: 2\n", "line 3, column 3"),
        (b"a: [1, 2\nb: 3\n", "line 2, column"),
        (b"a: b: c\n", "line 1, column 5"),
        (
            b"a: !!python/object/apply:os.system [ls]\n",
            "the tag tag:yaml.org,2002:python/object/apply:os.system",
        ),
        (b"a: !!timestamp nonsense\n", "line 1, column 4: the tag"),
        (b"a: !!binary aGk=\n", "line 1, column 4: the tag"),
        (b"a:\n\tb: 1\n", "line 2, column 1: is indented with a tab"),
        (b"a:\n  b: 1\n\tc: 2\n", "line 3, column 1: is indented with a tab"),
        (b"a: 1\n---\nb: 2\n", "line 2, column 1"),
        (b"? [1]\n: 2\n", "unhashable"),
        (b"", "is empty"),
        (b"# only a comment\n", "is empty"),
        (b"- a\n- b\n", "must hold a mapping with a trainingInput, not a list"),
        (b"just words", "not a string"),
        (b"42", "not a number"),
        (b"a: \xff\xfe\n", "line 1, column 4: is not UTF-8"),
        (b"a: 1\nb: \x07\n", "control character"),
        (b"a: " + b"9" * 5000, "digits"),
        (b"a: 99999999999999999999\n", "64 bits"),
        (b"1: a\n", "names must be strings"),
        (b"a: " + b"[" * 60 + b"]" * 60, "nested more than"),
        (b"[" * 200_000, "nested more than"),
        (b"a: [" + b"1," * 200_000 + b"]", "more than 50000 values"),
        (b" " * (DOCUMENT_BYTES_MAX + 1), "bytes"),
    ],
)
def test_wrong_yaml_is_refused_with_its_place(data: bytes, message: str) -> None:
    assert message in problem_of(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"a": 1, "a": 2}', "'a' is given twice"),
        (b'{\n "a": 1,,\n}', "line 3, column 1: is not JSON"),
        (b'{\n // nightly\n "a": 1}', "line 2, column 2: is a comment, which JSON does not have"),
        (b'{"a": 1 /* two */, "b": 3,}', "column 9: is a comment"),
        (b'{"a": 1} # b', "column 10: is a comment"),
        (b'{"a": NaN}', "NaN is not a JSON number"),
        (b'{"a": 1e999}', "not a finite number"),
        (b'{"a": "\\ud800"}', "half a surrogate pair"),
        (b'{"a": "\\u0000"}', "NUL"),
        (b'{"a": ' + b"[" * 100_000, "nested more than"),
        (b'{"a": ' + b"[" * 60 + b"]" * 60 + b"}", "nested more than"),
        (b'{"a": ' + b"9" * 5000 + b"}", "digits"),
        (b'{"a": [' + b"1," * 60_000 + b"1]}", "more than 50000 values"),
        (b"null", "is empty"),
        (b"[]", "not a list"),
    ],
)
def test_wrong_json_is_refused_with_its_place(data: bytes, message: str) -> None:
    assert message in problem_of(data, "job.json")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '{"trainingInput": {"scaleTier": "CUSTOM",},\n}',
            {"trainingInput": {"scaleTier": "CUSTOM"}},
        ),
        ('{"args": ["a,]", "b,}", ] }', {"args": ["a,]", "b,}"]}),
        ('{"a": "\\",}",}', {"a": '",}'}),
    ],
)
def test_json_may_have_a_comma_behind_a_last_value_as_gcloud_reads_it(
    text: str, expected: dict[str, object]
) -> None:
    assert parse_document(text.encode(), "config.json") == expected


def test_long_text_of_commas_and_open_strings_is_refused_in_linear_time() -> None:
    for text in ("{" + ", " * 300_000, '{"' + '\\"' * 300_000):
        assert "is not JSON" in problem_of(text.encode(), "job.json")


def test_yaml_bomb_is_refused_by_the_size_that_it_stands_for() -> None:
    lines = ["a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    assert "more than 50000 values" in problem_of("\n".join(lines).encode())
    merged = ["a0: &a0 {k: lol}"]
    merged += [f"a{n}: &a{n} {{x: *a{n - 1}, y: *a{n - 1}, <<: *a{n - 1}}}" for n in range(1, 30)]
    assert "more than 50000 values" in problem_of("\n".join(merged).encode())


def test_depth_is_that_of_the_document_without_aliases() -> None:
    lines = ["a0: &a0 [x]", *[f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 60)]]
    assert "line 32, column 12: nested more than" in problem_of("\n".join(lines).encode())


def test_aliases_and_merge_keys_are_what_they_name() -> None:
    """As kubectl and gcloud read them: own names win, and then the first of several."""
    document = parse_document(
        b"a: &a {x: 1, y: {z: 2}}\n"
        b"b: {<<: *a, x: 3}\n"
        b"c: [*a, *a]\n"
        b"d: {<<: [{x: 9}, *a]}\n"
        b"e: {inner: &n {<<: {k: 1}, k: 2}}\n"
        b"f: {<<: *n, k: 3}\n",
        "job.yaml",
    )
    a = {"x": 1, "y": {"z": 2}}
    assert document == {
        "a": a,
        "b": {**a, "x": 3},
        "c": [a, a],
        "d": {**a, "x": 9},
        "e": {"inner": {"k": 2}},
        "f": {"k": 3},
    }
    first, second = cast("list[Any]", document["c"])
    first["y"]["z"] = 4
    assert second == a, "each alias is a value of its own"


@pytest.mark.parametrize("part", ["x", '\\"', "\\\\", ", "], ids=repr)
def test_long_string_takes_a_few_times_its_own_memory(part: str) -> None:
    data = json.dumps({"a": part * (1_000_000 // len(json.dumps(part)))}).encode()
    tracemalloc.start()
    try:
        parse_document(data, "job.json")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 << 20


@pytest.mark.parametrize("end", ["", "\\", '"', "\\\\"], ids=repr)
def test_string_without_an_end_is_refused_in_a_time_that_grows_with_its_length(end: str) -> None:
    data = ('{"a": "' + '\\"' * 25_000 + end).encode()
    began = time.process_time()
    with pytest.raises(InvalidJob, match="is not JSON"):
        parse_document(data, "job.json")
    assert time.process_time() - began < 1.0
