"""The local stack: the whole system on one machine.

    stack                start, find and stop a stack
      parent_watchdog    kills every process of the stack when the parent ends
        supervisor       starts the services and restarts those that may be restarted
          services       Firestore, Pub/Sub, Cloud Storage, Cloud Logging, Compute Engine with Cloud TPU,
                         the googleapis proxy, the scheduler, and one functions host per function

The stack runs Google's own emulators and the real functions, agents and programs. Google has no emulators of Compute
Engine, Cloud TPU and Cloud Logging: those are `compute/`, `tpu/` and `logging/`.
"""
