"""The program, with the heartbeats that NVIDIA's Resiliency Extension asks for."""

import signal
import sys

import steps
from nvidia_resiliency_ext.fault_tolerance import RankMonitorClient

signal.signal(signal.SIGTERM, steps.ask)
monitor = RankMonitorClient()
monitor.init_workload_monitoring()
steps.run(*sys.argv[1:], beat=monitor.send_heartbeat)
