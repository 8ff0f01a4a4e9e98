"""An emulator of the Cloud TPU API (v2, REST) in which every host of a slice is an emulated VM.

The Compute emulator's process serves it, so that hosts share its images, identity keys, addresses
and faults. `docs/interfaces.md` section 6 is the contract.

    server    HTTP: routes, errors                  api              arguments of the calls, format of the responses
    cloud     the methods of nodes                  lifecycle        the states of nodes over time, and faults
    nodes     the node resource                     hosts            the VMs of a slice, and their metadata
    catalog   zones, types, runtime versions        operations       long-running operations
    resource_queue   queued resources over time     queued_resource  the queued resource
    control   faults of a slice                     fields           the fields of each version of the API
"""
