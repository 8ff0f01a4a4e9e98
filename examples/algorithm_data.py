"""Write the data of an algorithm example as CSV files, as the built-in algorithms read them.

    python examples/algorithm_data.py algorithm_boosted_trees OUT_DIR

The files have no header and the target in the first column. Their paths below OUT_DIR are those
that the job file names in the bucket. Needs scikit-learn.
"""

import argparse
import csv
import random
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

Row = Sequence[object]

SEED: Final = 20
SUBSCRIBERS: Final = 3_000
MISSING: Final = 0.2
"""Share of the rows with a missing value."""


def main(argv: list[str] | None = None) -> int:
    """Write the files of the examples, and print their paths."""
    parser = argparse.ArgumentParser(
        prog="python examples/algorithm_data.py", description="Write an example's data."
    )
    parser.add_argument(
        "examples", nargs="+", choices=sorted(TABLES), metavar="EXAMPLE", help=", ".join(TABLES)
    )
    parser.add_argument("out_dir", type=Path)
    options = parser.parse_args(argv)
    for example, name, rows in _files(options.examples):
        path = options.out_dir / "data" / example / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)
        print(path)
    return 0


def _files(examples: Iterable[str]) -> Iterator[tuple[str, str, Iterable[Row]]]:
    """Yield example, name and rows of each file."""
    for example in examples:
        for name, rows in TABLES[example]().items():
            yield example, name, rows


def wine() -> dict[str, Iterable[Row]]:
    """Return scikit-learn's wines: 178 rows, 3 classes, 13 numbers."""
    from sklearn.datasets import load_wine

    return {"wine.csv": _rows(*load_wine(return_X_y=True))}


def diabetes() -> dict[str, Iterable[Row]]:
    """Return scikit-learn's diabetes patients: 442 rows, the progression of the disease, 10
    numbers.
    """
    from sklearn.datasets import load_diabetes

    return {"diabetes.csv": _rows(*load_diabetes(return_X_y=True))}


def breast_cancer() -> dict[str, Iterable[Row]]:
    """Return scikit-learn's tumours: 569 rows, 2 classes, 30 numbers."""
    from sklearn.datasets import load_breast_cancer

    return {"breast_cancer.csv": _rows(*load_breast_cancer(return_X_y=True))}


def digits() -> dict[str, Iterable[Row]]:
    """Return scikit-learn's digits: 1,797 rows, 10 classes, 64 numbers, in six files for training
    and three others.
    """
    from sklearn.datasets import load_digits

    rows = _rows(*load_digits(return_X_y=True))
    random.Random(SEED).shuffle(rows)  # noqa: S311 - no secret
    validation = rows[:360]
    training = rows[360:]
    parts: dict[str, Iterable[Row]] = {}
    for number in range(6):
        parts[f"training/part-{number}.csv"] = training[number::6]
    for number in range(3):
        parts[f"validation/part-{number}.csv"] = validation[number::3]
    return parts


def subscribers() -> dict[str, Iterable[Row]]:
    """Return invented subscribers: a unique id, categories of text and of number, missing values, a
    constant.

    Plan, city, age and months decide whether a subscriber leaves, with some noise. A row misses at
    most one of its ten features, because preprocessing drops rows that miss more than 10 %.
    """
    chance = random.Random(SEED)  # noqa: S311 - no secret
    return {"subscribers.csv": [_subscriber(number, chance) for number in range(SUBSCRIBERS)]}


def _subscriber(number: int, chance: random.Random) -> Row:
    plan = chance.choice(["basic", "family", "student", "business"])
    city = f"city {chance.randrange(120)}"
    rooms = chance.randrange(1, 7)
    age = chance.randrange(18, 90)
    months = chance.randrange(1, 400)
    score = {"basic": 1.0, "family": -1.0, "student": 0.4, "business": -0.8}[plan]
    score += 1.5 if city.endswith("7") else -0.3
    score += (45 - age) / 30 - months / 150 + chance.gauss(0, 0.4) + 0.8
    target = "leaves" if score > 0 else "stays"
    measures = [f"{chance.gauss(0, 1):.3f}" for _ in range(5)]
    cells: list[object] = [plan, city, rooms, age, f"{months}.0", *measures, "EUR"]
    if chance.random() < MISSING:
        cells[chance.randrange(10)] = ""
    return [target, 100_000 + number, *cells]


def _rows(features: Iterable[Sequence[float]], targets: Iterable[float]) -> list[Row]:
    """Return rows with the target first.

    Numbers of features have a point, so that none is taken for a category.
    """
    return [[target, *map(float, row)] for target, row in zip(targets, features, strict=True)]


TABLES: Final = {
    "algorithm_boosted_trees": wine,
    "algorithm_xgboost_dist": digits,
    "algorithm_linear_learner": diabetes,
    "algorithm_wide_deep_learner": subscribers,
    "algorithm_tab_net": breast_cancer,
}


if __name__ == "__main__":
    sys.exit(main())
