"""The HTTP API of the old service, so that its clients work as they are: `ml` v1, and Vertex AI's custom jobs.

    request ──► door: route, token, permission ──► jobs, custom_jobs, projects ──► flows, store
                  └── every capacity error in Google's form (errors)

It holds no state and decides nothing about jobs: what changes one goes through the same flows as any event.
"""
