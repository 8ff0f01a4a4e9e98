"""What VMs and TPU hosts share: machines that are real processes, with metadata servers, power and
faults.
"""
