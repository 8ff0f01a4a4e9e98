"""Processes of the local stack: start and stop, ports, certificates, and what a running stack
records.
"""
