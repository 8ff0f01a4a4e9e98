"""The one table of machines: Compute Engine's machine types and GPUs, and Cloud TPU's slices.

Facts, no decisions.

gpus.py          types of GPUs: prices, drivers, how many can be attached
families.py      machine families: memory, GPUs, disks, ways of sale, placement, network, prices
machine_types.py one machine type by its name, and why a name is refused
tpus.py          generations of Cloud TPUs: slices, hosts, zones, prices
"""
