"""The Fleet on Cloud TPU and its emulator: a replica's VM is a node, which is a slice of one or
more hosts.

fleet: the port's methods · listing: nodes and queued resources · node_creation: all nodes of a gang
· queued_resources: nodes from Cloud TPU's queue · operations: long-running operations · nodes,
queued_resource_spec: requests and what they become · errors: the meaning of Google's errors

docs/decisions/0012-tpu-nodes.md explains why nodes are used, and how a node is deleted when its
time is over; 0021 explains when a queued resource is used.
"""

from trainmaster.gcp.tpu_fleet.fleet import TpuFleet

__all__ = ["TpuFleet"]
