"""The local stack: the whole system on one machine, with real parts wherever a real part exists.

stack (start, find, stop) → guard (nothing outlives its parent) → supervisor (starts, restarts) → a process per part:
firestore · pubsub · storage · logging · compute · googleapis_proxy · scheduler · one functions host per function
"""
