"""The Fleet on Cloud TPU (and its emulator): a replica is a node, which is a slice of one or more hosts.

fleet: the calls · nodes: what a node asks for and says of itself · operations: what became of a create
refusals: what Google's errors mean

docs/decisions/0012-tpu-nodes.md says why nodes and not queued resources, and what stands in for the fuse.
"""

from shared.gcp.tpu_fleet.fleet import TpuFleet

__all__ = ["TpuFleet"]
