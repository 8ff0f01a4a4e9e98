"""An emulator of the Cloud TPU API (v2, REST) whose slices are real processes: every host is an emulated VM.

Google has none. The Compute emulator's process serves it, so that hosts share its images, identity keys, addresses and
faults; `docs/interfaces.md` section 6 is the contract.

    server   HTTP: routes, errors              api         a call's arguments and the shape of its answer
    cloud    the API's verbs: check, then act  lifecycle   a node's states over time, and its faults
    nodes    the resource as Google shows it   hosts       the VMs of a slice, and what they are told of it
    catalog  zones, types, runtime versions    operations  long-running operations
    queue    queued resources over time        queued      the resource as Google shows it
"""
