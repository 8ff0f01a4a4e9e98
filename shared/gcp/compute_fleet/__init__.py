"""The Fleet on Compute Engine (and its emulator): the only package that imports the Compute client.

fleet: the calls · properties: what an insert asks for · placement: VMs side by side · operations: how calls end ·
refusals: what Google's errors mean
"""

from shared.gcp.compute_fleet.fleet import ComputeFleet

__all__ = ["ComputeFleet"]
