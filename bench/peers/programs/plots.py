"""Draw the plots of docs/benchmarks.md: `plots.py DATA FOLDER`, in an environment with
matplotlib.
"""

import json
import re
import statistics
import sys
from pathlib import Path

import matplotlib.pyplot as plt

PLOTS = {
    "exit": ("SIGKILL of a process", "seconds until"),
    "machine": ("loss of a machine", "seconds until"),
    "idle": ("idle", ""),
    "capacity": ("capacity", "time until the gang is ready, over the best possible"),
}
SIZED = {
    "gang-time": ("time", "replicas", "seconds"),
}
# The same data give the same, small file.
plt.rcParams |= {
    "svg.hashsalt": "trainmaster",
    "svg.fonttype": "none",
}


def save(name: str) -> None:
    plt.tight_layout()
    plt.savefig(Path(sys.argv[2], f"bench-{name}.svg"), metadata={"Date": None})
    plt.close()


rows = json.loads(Path(sys.argv[1]).read_text())["rows"]
for name, (prefix, label) in PLOTS.items():
    found = {
        row["name"].partition(": ")[2]: row["values"]
        for row in rows
        if row["name"].startswith(f"{prefix}: ")
    }
    if not found:
        continue
    figure, axes = plt.subplots(1, len(found), figsize=(3 * len(found), 3))
    for axis, (title, values) in zip(
        [axes] if len(found) == 1 else axes, found.items(), strict=True
    ):
        medians = {system: statistics.median(one) for system, one in values.items()}
        axis.barh(list(medians), list(medians.values()))
        axis.set_title(title, fontsize=9)
        axis.invert_yaxis()
    figure.suptitle(f"{prefix}, {label}" if label else prefix)
    save(name)
for name, (words, x_label, y_label) in SIZED.items():
    lines: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        if match := re.fullmatch(rf"(\w+): {words} N=(\d+)", row["name"]):
            lines.setdefault(match[1], []).append((int(match[2]), row["values"]["Trainmaster"][0]))
    if not lines:
        continue
    for phase, line in lines.items():
        plt.loglog(*zip(*sorted(line), strict=True), marker="o", label=phase)
    plt.xlabel(x_label)
    plt.ylabel(y_label)
    plt.legend()
    save(name)
