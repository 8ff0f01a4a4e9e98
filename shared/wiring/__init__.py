"""Which adapter stands behind which port. One module per set of imports, so that a light function stays light:

light (Firestore, Pub/Sub) · objects (Cloud Storage) · machines (Compute; over a second of import)

Everything is made once per process, at the first event.
"""
