locals {
  # Memory: what each was measured to take, with room for its events (docs/decisions/0018-cold-starts.md). Only `provision`
  # knows of machines.
  functions = {
    upload       = { topic = "upload", memory = "512Mi", timeout_s = 60, concurrency = 8, max_instances = 10 }
    submit       = { topic = "submit", memory = "512Mi", timeout_s = 60, concurrency = 8, max_instances = 10 }
    vm_ready     = { topic = "vm-ready", memory = "512Mi", timeout_s = 60, concurrency = 16, max_instances = 20 }
    replica_exit = { topic = "replica-exit", memory = "512Mi", timeout_s = 60, concurrency = 16, max_instances = 20 }
    maintenance  = { topic = "maintenance", memory = "512Mi", timeout_s = 60, concurrency = 16, max_instances = 20 }
    sweep        = { topic = "sweep", memory = "512Mi", timeout_s = 120, concurrency = 1, max_instances = 1 }
    provision    = { topic = "provision", memory = "1Gi", timeout_s = 300, concurrency = 4, max_instances = 20 }
    tune         = { topic = "tune", memory = "512Mi", timeout_s = 120, concurrency = 4, max_instances = 10 }
    api          = { topic = null, memory = "512Mi", timeout_s = 60, concurrency = 16, max_instances = 10 }
  }

  # docs/interfaces.md section 5.
  environment = {
    TRAINMASTER_PROJECT                = var.project
    TRAINMASTER_BUCKET                 = google_storage_bucket.this.name
    TRAINMASTER_WORKER_SERVICE_ACCOUNT = google_service_account.worker.email
    TRAINMASTER_NETWORK                = google_compute_network.this.id
    TRAINMASTER_SUBNETWORK             = "projects/${var.project}/regions/{region}/subnetworks/trainmaster-{region}"
    TRAINMASTER_TPU                    = "true"
    TRAINMASTER_LIMITS                 = join(",", [for name, limit in var.limits : "${name}=${limit}"])
  }
}

module "function" {
  source   = "./modules/event_function"
  for_each = local.functions

  name              = each.key
  project           = var.project
  region            = var.region
  topic             = each.value.topic == null ? null : google_pubsub_topic.this[each.value.topic].name
  source_bucket     = google_storage_bucket.stage.name
  source_object     = google_storage_bucket_object.source[each.key].name
  service_account   = google_service_account.function[each.key].email
  pusher            = google_service_account.pusher.email
  dead_letter_topic = google_pubsub_topic.dead_letter.id
  environment       = local.environment
  memory            = each.value.memory
  timeout_s         = each.value.timeout_s
  concurrency       = each.value.concurrency
  max_instances     = each.value.max_instances
  builder           = google_service_account.builder.name

  depends_on = [google_project_iam_member.builder, google_firestore_database.this]
}

# Compute's log has a topic of its own, which no VM may publish to: any could say of any other that it is gone.
resource "google_pubsub_subscription" "system_events" {
  name                       = "trainmaster-system-events"
  topic                      = google_pubsub_topic.this["system-events"].id
  ack_deadline_seconds       = local.functions["maintenance"].timeout_s
  message_retention_duration = "604800s"

  push_config {
    push_endpoint = module.function["maintenance"].uri

    oidc_token {
      service_account_email = google_service_account.pusher.email
      audience              = module.function["maintenance"].uri
    }
  }

  retry_policy {
    minimum_backoff = "1s"
    maximum_backoff = "60s"
  }

  dead_letter_policy {
    dead_letter_topic     = google_pubsub_topic.dead_letter.id
    max_delivery_attempts = 100
  }

  expiration_policy {
    ttl = "" # never
  }
}

resource "google_pubsub_subscription_iam_member" "system_events_moved_by_pubsub" {
  subscription = google_pubsub_subscription.system_events.name
  role         = "roles/pubsub.subscriber"
  member       = local.pubsub_agent
}

# Clients of the API call it with their own token; what each may do is the project's own IAM, which the function asks.
resource "google_cloud_run_service_iam_member" "api_clients" {
  # checkov:skip=CKV_GCP_102:Clients come from outside with tokens for Google's APIs, which Cloud Run's own check does not take; the function asks Google who calls, and IAM what he may.
  location = var.region
  service  = module.function["api"].name
  role     = "roles/run.invoker"
  member   = "allUsers"
}

resource "google_pubsub_subscription_iam_member" "moved_by_pubsub" {
  for_each     = { for name, function in local.functions : name => function if function.topic != null }
  subscription = module.function[each.key].subscription
  role         = "roles/pubsub.subscriber"
  member       = local.pubsub_agent
}
