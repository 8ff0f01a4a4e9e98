"""The Fleet on Compute Engine and its emulator: the only package that imports the Compute client.

fleet: the port's methods · properties, hardware: the request of an insert · listing: VMs in
listings · directives: metadata and labels of directives · placement: placement policies ·
operations: long-running operations · errors: the meaning of Google's errors
"""

from trainmaster.gcp.compute_fleet.fleet import ComputeFleet

__all__ = ["ComputeFleet"]
