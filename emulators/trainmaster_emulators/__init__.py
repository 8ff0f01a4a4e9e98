"""The local stack: the whole system on one machine.

    stack                start, find and stop a stack
      parent_watchdog    kills every process of the stack when the parent ends
        supervisor       starts the services and restarts those that may be restarted
          services       Firestore, Pub/Sub, Cloud Storage, Cloud Logging, Compute Engine with
                         Cloud TPU, the googleapis proxy, Cloud Scheduler, and one functions host
                         per function

The stack runs Google's own emulators and the real functions, agents and programs. Google offers no
emulators of Compute Engine, Cloud TPU, Cloud Logging, Cloud Monitoring, Cloud Scheduler and Cloud
Billing's catalogue. `compute/`, `tpu/`, `logging/`, `monitoring/`, `scheduler/` and `billing/`
emulate them.
"""
