"""Composition: which adapter stands behind which port.

Everything is built once per process, at its first use.

There is one module for each set of client libraries, because a function pays for every library that
it imports:

    core_services   Firestore, Pub/Sub, Cloud Logging      every function
    intake_deps     the same, and Cloud Storage            submit, upload, api
    objects         Cloud Storage                          upload, and the creation of jobs
    fleet           Compute Engine, Cloud TPU              provision
    authentication  public keys of identity tokens         vm_ready, replica_exit, maintenance
    api             Google's IAM                           api
    log_reader      entries of Cloud Logging               the command line, console
    metrics         time series of Cloud Monitoring        the command line, console, provision
    console         Firestore, Pub/Sub, Cloud Logging, IAP the command line, console
    price_list      Cloud Storage                          the command line, console, creation of
                                                           jobs
    prices          Cloud Billing, Cloud Storage           the command line
    installation,   none                                   the command line, the Python client
    folders
"""
