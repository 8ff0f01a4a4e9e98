# One function and, where it reads a topic, the push subscription that calls it: retry and dead letter said outright.

terraform {
  required_providers {
    google = {
      source = "hashicorp/google"
    }
  }
}

resource "google_cloudfunctions2_function" "this" {
  # checkov:skip=CKV_GCP_124:Only the API is open, to clients outside; what reads a topic is called from inside alone (tests/infra/test_plan.py).
  name        = "trainmaster-${replace(var.name, "_", "-")}"
  location    = var.region
  description = "Trainmaster: functions/${var.name}.py"

  build_config {
    runtime         = "python311"
    entry_point     = var.name
    service_account = var.builder

    source {
      storage_source {
        bucket = var.source_bucket
        object = var.source_object
      }
    }
  }

  service_config {
    service_account_email            = var.service_account
    available_memory                 = var.memory
    available_cpu                    = var.cpu
    timeout_seconds                  = var.timeout_s
    max_instance_request_concurrency = var.concurrency
    min_instance_count               = 0 # nothing is paid for while nothing happens
    max_instance_count               = var.max_instances
    # functions-framework has four threads for a CPU unless told otherwise: of more requests than that, some would wait inside.
    environment_variables = merge(var.environment, { LOG_EXECUTION_ID = "true", THREADS = tostring(max(var.concurrency, 4)) })
    # Pub/Sub of the same project counts as internal; clients of the API come from outside.
    ingress_settings               = var.topic == null ? "ALLOW_ALL" : "ALLOW_INTERNAL_ONLY"
    all_traffic_on_latest_revision = true
  }
}

resource "google_cloud_run_service_iam_member" "pusher" {
  count    = var.topic == null ? 0 : 1
  project  = var.project
  location = var.region
  service  = google_cloudfunctions2_function.this.name
  role     = "roles/run.invoker"
  member   = "serviceAccount:${var.pusher}"
}

resource "google_pubsub_subscription" "this" {
  count                      = var.topic == null ? 0 : 1
  name                       = google_cloudfunctions2_function.this.name
  topic                      = var.topic
  ack_deadline_seconds       = var.timeout_s
  message_retention_duration = "604800s"

  push_config {
    push_endpoint = google_cloudfunctions2_function.this.service_config[0].uri

    oidc_token {
      service_account_email = var.pusher
      audience              = google_cloudfunctions2_function.this.service_config[0].uri
    }
  }

  retry_policy {
    minimum_backoff = "1s"
    maximum_backoff = "60s"
  }

  dead_letter_policy {
    dead_letter_topic     = var.dead_letter_topic
    max_delivery_attempts = 100 # with a minute between them: more than an hour of trouble is survived
  }

  expiration_policy {
    ttl = "" # never
  }
}
