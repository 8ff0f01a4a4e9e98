"""Google Cloud behind the ports: the only importer of google.*. The same code talks to the emulators.

compute_fleet imports the Compute client, which costs over a second: only `provision` may import it.
"""
