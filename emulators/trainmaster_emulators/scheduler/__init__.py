"""An emulator of Cloud Scheduler: jobs that publish a message or send a request at times given by a
cron expression.

    server ──► job_store ◄── clock ──► dispatch ──► Pub/Sub emulator, or an HTTP target
                  │            └── execution
               jobs.sqlite, which outlives a restart of this process

server         the REST API that gcloud and google-cloud-scheduler call
resources      the job resource, its limits, and changes to it
field_formats  durations, crontab expressions and the like
execution      pure decisions about one job, from its stored state and the time: when it runs next,
               and whether a failed attempt is repeated
"""
