# One function: what it may do, and a push subscription for each topic that it reads, with retry policy and dead letter.

terraform {
  required_providers {
    google = {
      source = "hashicorp/google"
    }
  }
}

resource "google_cloudfunctions2_function" "this" {
  # checkov:skip=CKV_GCP_124:Only the API is open to external clients. Functions that read a topic allow internal traffic only (tests/infra/test_plan.py).
  name        = "${var.installed.prefix}-${replace(var.name, "_", "-")}"
  location    = var.installed.region
  description = coalesce(var.description, "Trainmaster: functions/${coalesce(var.entry_point, var.name)}.py")

  build_config {
    runtime           = "python311"
    entry_point       = coalesce(var.entry_point, var.name)
    service_account   = var.installed.builder
    docker_repository = var.installed.repository

    source {
      storage_source {
        bucket = var.installed.source_bucket
        object = var.source_object
      }
    }
  }

  service_config {
    service_account_email            = var.account.email
    available_memory                 = var.memory
    available_cpu                    = var.cpu
    timeout_seconds                  = var.timeout_s
    max_instance_request_concurrency = var.concurrency
    min_instance_count               = 0 # no cost without events
    max_instance_count               = var.max_instances
    # The default of functions-framework is four threads per CPU. Further concurrent requests would wait inside the instance.
    environment_variables = merge(var.environment, { LOG_EXECUTION_ID = "true", THREADS = tostring(max(var.concurrency, 4)) })
    # Pub/Sub of the same project counts as internal traffic; clients of the API do not.
    ingress_settings               = length(var.topics) == 0 ? "ALLOW_ALL" : "ALLOW_INTERNAL_ONLY"
    all_traffic_on_latest_revision = true

    dynamic "secret_environment_variables" {
      for_each = var.secrets
      content {
        key        = secret_environment_variables.key
        project_id = var.installed.project
        secret     = secret_environment_variables.value
        version    = "latest"
      }
    }
  }

  depends_on = [var.ready]
}

# Decisions are also lines of a job's log, so whoever writes to the database writes logs.
resource "google_project_iam_member" "state" {
  count   = var.state == null ? 0 : 1
  project = var.installed.project
  role    = "roles/datastore.${var.state}"
  member  = var.account.member

  # Source: Firestore, "Configure per-database access permissions".
  condition {
    title      = "own database only"
    expression = "resource.name == '${var.installed.database}'"
  }

  # Functions that run always have one of the two grants while an upgrade changes the condition.
  lifecycle {
    create_before_destroy = true
  }

  depends_on = [var.installed]
}

resource "google_project_iam_member" "logs" {
  count   = var.state == "user" ? 1 : 0
  project = var.installed.project
  role    = "roles/logging.logWriter"
  member  = var.account.member

  depends_on = [var.installed]
}

resource "google_pubsub_topic_iam_member" "publishes" {
  for_each = var.publishes
  topic    = each.value
  role     = "roles/pubsub.publisher"
  member   = var.account.member

  depends_on = [var.installed]
}

resource "google_cloud_run_service_iam_member" "pusher" {
  count    = length(var.topics) == 0 ? 0 : 1
  project  = var.installed.project
  location = var.installed.region
  service  = google_cloudfunctions2_function.this.name
  role     = "roles/run.invoker"
  member   = "serviceAccount:${var.installed.pusher}"
}

resource "google_pubsub_subscription" "this" {
  for_each                   = toset(var.topics)
  name                       = "${each.key}${var.subscription_suffix}"
  topic                      = each.key
  filter                     = var.filter
  ack_deadline_seconds       = var.timeout_s
  message_retention_duration = "604800s"

  push_config {
    push_endpoint = google_cloudfunctions2_function.this.service_config[0].uri

    oidc_token {
      service_account_email = var.installed.pusher
      audience              = google_cloudfunctions2_function.this.service_config[0].uri
    }
  }

  retry_policy {
    minimum_backoff = "1s"
    maximum_backoff = "60s"
  }

  dead_letter_policy {
    dead_letter_topic     = var.installed.dead_letter_topic
    max_delivery_attempts = 100 # at one per minute, enough for a failure of more than an hour
  }

  expiration_policy {
    ttl = "" # never
  }
}

resource "google_pubsub_subscription_iam_member" "moved_by_pubsub" {
  for_each     = google_pubsub_subscription.this
  subscription = each.value.name
  role         = "roles/pubsub.subscriber"
  member       = var.installed.pubsub_agent
}
