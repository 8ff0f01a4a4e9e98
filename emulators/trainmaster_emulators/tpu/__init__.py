"""An emulator of the Cloud TPU API (v2, REST) in which every host of a slice is an emulated VM.

The Compute emulator's process serves it, so that hosts share its images, identity keys, addresses
and faults. `docs/interfaces.md` section 6 is the contract.

    server             HTTP: routes, errors
    api                arguments of the calls, format of the responses
    fields             the fields of each version of the API
    cloud              the methods of nodes
    nodes              the node resource
    lifecycle          the states of nodes over time, and faults
    hosts              the VMs of a slice, and their metadata
    resource_queue     queued resources over time
    queued_resource    the queued resource
    operations         long-running operations
    catalog            zones, types, runtime versions
    control            faults of a slice
    tpu_errors         the errors and their texts
"""
