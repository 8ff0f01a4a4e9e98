# Google Cloud applies some changes with a delay, and answers 403 or 400 until then. The first apply therefore waits; later ones
# do not. Each wait is as long as Google's documentation states (tests/infra/test_first_apply.py).

# Enabled APIs are usable after up to a minute.
resource "time_sleep" "apis" {
  create_duration = "60s"

  depends_on = [google_project_service.this]
}

# A new service account can be missing for up to 30 seconds for the service that a grant is made in.
resource "time_sleep" "identities" {
  create_duration = "30s"

  depends_on = [
    google_service_account.builder,
    google_service_account.callers,
    google_service_account.console,
    google_service_account.function,
    google_service_account.pusher,
    google_service_account.tests,
    google_service_account.webhook,
    google_service_account.worker,
    google_logging_project_sink.system_events,
    data.google_storage_project_service_account.this,
  ]
}

# A grant is effective after two minutes, typically. Builds read the source archives as the builder, and a bucket's notification is
# refused while Cloud Storage's service agent may not publish.
resource "time_sleep" "grants" {
  create_duration = "120s"

  depends_on = [
    google_project_iam_member.builder_logs,
    google_project_iam_member.builder_sources,
    google_storage_bucket_iam_member.builder_archives,
    google_artifact_registry_repository_iam_member.builder_images,
    google_pubsub_topic_iam_member.upload_by_storage,
  ]
}
