"""Number ranges: the short form of lists of numbered texts in a VM's config (docs/interfaces.md section 3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def expand(texts: Any) -> list[str]:
    """Return the texts of a number range; a list is returned as it is. Raises KeyError or TypeError for anything
    else."""
    if isinstance(texts, list):
        return texts
    first, count = int(texts["first"]), int(texts["count"])
    return [f"{texts['head']}{number}{texts['tail']}" for number in range(first, first + count)]


def expand_cluster(spec: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return TF_CONFIG or CLUSTER_SPEC with the addresses of all replicas; None if the program gets none."""
    if spec is None or "cluster" not in spec:
        return None if spec is None else dict(spec)
    return {**spec, "cluster": {role: expand(addresses) for role, addresses in spec["cluster"].items()}}
