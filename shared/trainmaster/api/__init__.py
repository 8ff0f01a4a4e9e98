"""The HTTP API of AI Platform Training (`ml` v1) and of Vertex AI's custom jobs, so that their
clients work unchanged.

    request ──► handler: route, token, permission, quota ──► jobs, custom_jobs, tuning_jobs, projects ──► flows, store
                  └── every error in Google's form (errors)

It holds no state and makes no decisions about jobs: changes go through the same flows as every
event.
"""
