"""An emulator of the Compute Engine REST API whose VMs are real processes.

Google offers no such emulator.

`docs/interfaces.md` section 6 is the contract. Start it with `python -m
trainmaster_emulators.compute --help`.

    HTTP        server (routes, errors) · api (calls and lists) · batch
                list_filter · field_mask · pages
                control (calls that Google does not have: faults, addresses, keys)
    API         cloud (the methods) · bulk_insert
                properties, scheduling (checks of a request)
                instances, resource_policies (resources) · operations
                catalog (zones, machine types, images)
    over time   lifecycle (requests and faults) · vm_transitions (states)
                maintenance_schedule · injected_faults · system_events (the audit log)
    the VM      vm_power (on and off) · powered_vm (disk, processes)
                vm_init (its first process) · vm_container_engine
                metadata_server, metadata_tree, vm_metadata · vm_tokens · addresses

The modules that are not in this package are in `machines` and `process`; the Cloud TPU emulator
uses them, too.
"""
