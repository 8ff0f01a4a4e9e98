"""Hostile input: documents of a kind that an entrance accepts, changed at random places, or nothing
but a shape.

Most changes leave a value of the same type, or words of another document of the entrance:
such inputs pass the first checks, and meet those behind them.

An input follows from its number alone. It has at most `BYTES_MAX` bytes, more than any entrance
accepts. Most inputs are small, so that an hour has room for many.
"""

from __future__ import annotations

import base64
import copy
import json
import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

BYTES_MAX: Final = 4_000_000
WORD: Final = re.compile(rb"\w+|\W")
WORDY_BYTES_MAX: Final = 10_000
"""Longer inputs are not separated into words."""
SCALARS: Final[tuple[Any, ...]] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    2**31,
    2**63,
    -(2**63) - 1,
    10**30,
    10**400,
    0.1,
    -0.0,
    1e308,
    1e-320,
    "",
    " ",
    "\0",
    "\n",
    "a" * 300,
    "a" * 100_000,
    "é",
    "\u202e",
    "\u2028",
    "\x1b[2J",
    "<script>",
    "{time:%Y}",
    "{time:%9999d}",
    "../..",
    "a/b",
    "gs://b/o",
    "gs://b/o#1",
    "2026-11-21T03:00:00Z",
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59-14:00",
    "1e999999999",
    "9" * 5000,
    "projects/p/secrets/s",
    "x@p.iam.gserviceaccount.com",
    [],
    {},
    [[]],
    {"": ""},
    {"a": {"a": {"a": []}}},
)
WORDS: Final = (
    "jobId",
    "trainingInput",
    "trainmaster",
    "jobSpec",
    "workerPoolSpecs",
    "args",
    "env",
    "secrets",
    "labels",
    "region",
    "scaleTier",
    "hyperparameters",
    "params",
    "metric",
    "earlier",
    "error",
    "causes",
    "protoPayload",
    "apiVersion",
    "kind",
    "spec",
    "replicaSpecs",
    "metadata",
    "annotations",
    "attempt",
    "measurements",
    "version",
)


def shapes(random: Random) -> bytes:
    """Return a shape that is expensive for some parser: deep, wide, long, repeated, or not text at
    all.
    """
    size = int(10 ** (6 * random.random() ** 4))
    made: tuple[Callable[[], bytes], ...] = (
        lambda: (
            random.choice(
                (
                    b"[",
                    b"{",
                    b'{"a":',
                    b"- ",
                    b"(",
                    b"NOT ",
                    b"\\",
                    b'"',
                    b"*",
                    b"%",
                    b"&a ",
                    b"!!",
                    b"? ",
                )
            )
            * size
        ),
        lambda: b"[" * size + b"]" * size,
        lambda: b"[" + b"{}," * size + b"{}]",
        lambda: b"[" + b"1," * size + b"1]",
        lambda: b'{"metric":{"value":1,"earlier":[' + b"{}," * size + b"{}]}}",
        lambda: b"{" + b",".join(b'"%d":%d' % (n, n) for n in range(min(size, 50_000))) + b"}",
        lambda: b"".join(
            b"a%d: &a%d [*a%d, *a%d]\n" % (n, n, n - 1, n - 1) for n in range(1, min(size, 5000))
        ),
        lambda: b"trainingInput: {args: [" + b"x, " * size + b"]}",
        lambda: b'jobId="' + b"a" * size + b'" AND (' * min(size, 1000),
        lambda: b" AND ".join([b'state="RUNNING"'] * min(size, 50_000)),
        lambda: b"9" * size,
        lambda: b"0." + b"1" * size + b"e" + b"9" * min(size, 400),
        lambda: random.randbytes(min(size, 100_000)),
        lambda: b"\xff\xfe" + b"\0" * size,
        lambda: ".".join([base64.urlsafe_b64encode(b"[" * size).decode()] * 3).encode(),
    )
    return random.choice(made)()[:BYTES_MAX]


def hostile(random: Random, seeds: Sequence[object]) -> bytes:
    """Return one input: a shape, or a changed seed as JSON or damaged bytes.

    `seeds`: documents that the entrance accepts, as JSON values or bytes.
    """
    if random.random() < 0.1:
        return shapes(random)
    seed = random.choice(seeds)
    if isinstance(seed, bytes):
        return damage(random, seed, seeds)
    text = json.dumps(seed)
    for _ in range(random.choices((0, 1, 2, 3, 4), (1, 10, 4, 1, 1))[0]):
        # Parsed each time: the copies that `change` makes of a part are one object, so that a
        # second change within it would be made in each of them, up to gigabytes.
        try:
            text = json.dumps(change(random, json.loads(text)))
        except RecursionError:
            break
        if len(text) > BYTES_MAX:
            break
    data = text.encode()[:BYTES_MAX]
    return data if random.random() < 0.8 else damage(random, data, seeds)


def change(random: Random, part: Any, depth: int = 0) -> Any:
    """Return the document with a random part replaced, removed, added, repeated or nested."""
    if isinstance(part, (dict, list)) and part and depth < 12 and random.random() < 0.85:
        key = random.choice(list(part) if isinstance(part, dict) else range(len(part)))
        choice = random.random()
        if choice < 0.1:
            part.pop(key)
        elif choice < 0.2 and isinstance(part, list):
            times = random.choices((1, 10, 20_000 if depth < 3 else 100), (10, 10, 1))[0]
            repeated = json.dumps(part[key])
            copied = json.loads(repeated)  # to parse each copy would take longer than most inputs
            part.extend([copied] * min(times, BYTES_MAX // len(repeated)))
        elif choice < 0.3 and isinstance(part, dict):
            part[other_name(random)] = part[key]
        else:
            part[key] = change(random, part[key], depth + 1)
        return part
    if random.random() < 0.7:
        return similar(random, part)
    value = copy.deepcopy(random.choice(SCALARS))
    for _ in range(random.choices((0, 1, 3, 40, 1500), (60, 20, 20, 8, 1))[0]):
        value = [value] if random.random() < 0.5 else {"a": value}
    try:
        json.dumps(value)
    except RecursionError:
        return []
    return value


def other_name(random: Random) -> str:
    """Return a name for a member of an object: mostly one that job files know."""
    if random.random() < 0.7:
        return random.choice(WORDS)
    return str(random.choice(SCALARS))[:2000]


def similar(random: Random, value: Any) -> Any:
    """Return another value of the same type; of a list or an object the value itself."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return random.choice((value + 1, value - 1, value * 2, -value, value // 2, str(value)))
    if isinstance(value, str) and value:
        place = random.randrange(len(value))
        letter = random.choice("aZ09_-./:@ é'\"${}<>\\\n")
        rest = value[place + random.randrange(2) :]
        return random.choice((value * 2, value[place:], value[:place] + letter + rest))
    return value


def damage(random: Random, data: bytes, seeds: Sequence[object] = ()) -> bytes:
    """Return the bytes with a part of them removed, repeated, replaced by random bytes, or, if they
    are text, with a word in another place or of another seed.
    """
    if random.random() < 0.5 and len(data) < WORDY_BYTES_MAX:
        return with_other_words(random, data, seeds)
    start = random.randrange(len(data) + 1)
    end = min(len(data), start + random.choice((1, 2, 8, 64)))
    middle = random.choice(
        (
            b"",
            random.randbytes(end - start),
            data[start:end] * random.choice((2, 50)),
            bytes([random.randrange(256)]),
        )
    )
    return (data[:start] + middle + data[end:])[:BYTES_MAX]


def with_other_words(random: Random, data: bytes, seeds: Sequence[object]) -> bytes:
    """Return the bytes with up to three words replaced, repeated or removed."""
    words = WORD.findall(data)
    others = [word for seed in seeds if isinstance(seed, bytes) for word in WORD.findall(seed)]
    for _ in range(random.randint(1, 3)):
        if not words:
            break
        place = random.randrange(len(words))
        words[place : place + random.randrange(2)] = random.choice(
            ([], [random.choice(words)], [random.choice(others or words)])
        )
    return b"".join(words)[:BYTES_MAX]
