"""Machines that are real processes, with metadata servers, power and faults. VMs and TPU hosts
share them.
"""
