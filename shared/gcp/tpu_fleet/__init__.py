"""The Fleet on Cloud TPU (and its emulator): a replica is a node, which is a slice of one or more hosts.

fleet: the calls · making: a gang of nodes at once · queue: a node that is waited for · operations: what became of it
nodes, queued: what a node and a queued resource ask for and say of themselves · refusals: what Google's errors mean

docs/decisions/0012-tpu-nodes.md says why nodes, and what stands in for the fuse; 0021 when a queued resource.
"""

from shared.gcp.tpu_fleet.fleet import TpuFleet

__all__ = ["TpuFleet"]
