"""Thousands of jobs through the real flows, in virtual time, under the limits of Google Cloud.

    virtual_time    the clock, and the invocations that wait for it
    google          Firestore, Compute Engine, Pub/Sub and Cloud Functions: times and limits
    jobs            the agents and programs of the jobs, and what a user submits
    __main__        the scenarios, and what they print

Every flow, rule and store operation is the product's. Only the services are models, in memory.
"""
