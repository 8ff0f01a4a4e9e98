"""An emulator of the Compute Engine REST API whose VMs are real processes.

Google has none. `docs/interfaces.md` section 6 is the contract; `python -m emulators.compute --help` the way in.

    server          HTTP: routes, batch, errors            control      what Google has no API for: faults, addresses
    cloud           the API's verbs: check, then act       lifecycle    a VM's states over time, and its faults
    instances       the resource as Google shows it        operations   long-running operations
    catalog         zones, machine types, images           filters      list filters and paging
    vm, vm_init     a VM's processes                       metadata_server, identity    what a VM asks about itself
    containers      a VM's container engine
"""
