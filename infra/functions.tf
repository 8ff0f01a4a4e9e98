locals {
  # `topics` are those whose messages are pushed to the function; the function `api` is called by clients instead. `memory` is
  # the measured use plus a reserve for concurrent events (docs/decisions/0026-google-clients.md).
  functions = {
    upload       = { topics = ["upload"], memory = "512Mi", timeout_s = 60, concurrency = 8, max_instances = 10 }
    submit       = { topics = ["submit"], memory = "512Mi", timeout_s = 60, concurrency = 8, max_instances = 10 }
    vm_ready     = { topics = ["vm-ready"], memory = "512Mi", timeout_s = 60, concurrency = 16, max_instances = 20 }
    replica_exit = { topics = ["replica-exit"], memory = "512Mi", timeout_s = 60, concurrency = 16, max_instances = 20 }
    maintenance  = { topics = ["maintenance", "system-events"], memory = "512Mi", timeout_s = 60, concurrency = 16, max_instances = 20 }
    sweep        = { topics = ["sweep"], memory = "512Mi", timeout_s = 120, concurrency = 1, max_instances = 1 }
    provision    = { topics = ["provision"], memory = "1Gi", timeout_s = 300, concurrency = 4, max_instances = 20 }
    tune         = { topics = ["tune"], memory = "512Mi", timeout_s = 120, concurrency = 4, max_instances = 10 }
    api          = { topics = [], memory = "512Mi", timeout_s = 60, concurrency = 16, max_instances = 10 }
  }

  # The settings are described in docs/settings.md.
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
  topics            = [for topic in each.value.topics : google_pubsub_topic.this[topic].name]
  source_bucket     = google_storage_bucket.stage.name
  source_object     = google_storage_bucket_object.source[each.key].name
  service_account   = google_service_account.function[each.key].email
  pusher            = google_service_account.pusher.email
  pubsub_agent      = local.pubsub_agent
  dead_letter_topic = google_pubsub_topic.dead_letter.id
  environment       = local.environment
  memory            = each.value.memory
  timeout_s         = each.value.timeout_s
  concurrency       = each.value.concurrency
  max_instances     = each.value.max_instances
  builder           = google_service_account.builder.name

  depends_on = [google_project_iam_member.builder, google_firestore_database.this]
}

# Clients call the API with their own access tokens. The function checks their permissions in the project's IAM.
resource "google_cloud_run_service_iam_member" "api_clients" {
  # checkov:skip=CKV_GCP_102:External clients send access tokens, which Cloud Run's own check does not accept. The function verifies the token and checks permissions.
  location = var.region
  service  = module.function["api"].name
  role     = "roles/run.invoker"
  member   = "allUsers"
}
