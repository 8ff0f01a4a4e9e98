"""The HTTP API of AI Platform Training (`ml` v1) and of Vertex AI's training jobs.

    request ──► handler: route, token, permission, quota
                  ├──► jobs, custom_jobs, tuning_jobs, training_pipelines, projects ──► flows, store
                  └──► every error in Google's form (errors)

Clients of both services work unchanged.

It holds no state and makes no decisions about jobs: changes go through the same flows as every
event.
"""
