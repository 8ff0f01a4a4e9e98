"""What makes the local stack as slow and as unreliable as Google Cloud: `trainmaster local up --realistic`.

`profile` names the figures with their sources; the other modules are behaviours that the emulators compose.
"""
