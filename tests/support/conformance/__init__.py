"""The calls of the product, and the answers of its emulators, against Google's discovery documents.

documents    the documents in google-api-python-client, and the method that a call belongs to
checker      what a document does not allow in one exchange
recorder     the pytest plugin: it checks every HTTP exchange of the test process, and fails the
             test it belongs to
changes      what differs between two releases of the documents, for the methods that are used
             (`make lock`)
"""
