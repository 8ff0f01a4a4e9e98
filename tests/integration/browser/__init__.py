"""The console in Chromium.

A package, so that the browser ends after its last test: it keeps an event loop running.
"""
