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
    TRAINMASTER_INSTALLATION           = var.installation
    TRAINMASTER_BUCKET                 = google_storage_bucket.this.name
    TRAINMASTER_AGENT                  = "gs://${google_storage_bucket.stage.name}/${google_storage_bucket_object.agent.name}"
    TRAINMASTER_ALGORITHMS             = "gs://${google_storage_bucket.stage.name}/${google_storage_bucket_object.algorithms.name}"
    TRAINMASTER_GCSFUSE                = join("", [for tool in google_storage_bucket_object.gcsfuse : "gs://${google_storage_bucket.stage.name}/${tool.name}"])
    TRAINMASTER_WORKER_SERVICE_ACCOUNT = google_service_account.worker.email
    TRAINMASTER_NETWORK                = local.network
    TRAINMASTER_SUBNETWORK             = local.subnetwork
    TRAINMASTER_ACCOUNT_NETWORKS       = join(",", [for name, wall in var.walled_accounts : "${wall.service_account}=${google_compute_network.walled[name].name}"])
    TRAINMASTER_TPU                    = tostring(var.tpu)
    TRAINMASTER_ALLOWED_RESOURCES      = join(",", var.allowed_resources)
    TRAINMASTER_REGIONS                = join(",", keys(local.worker_regions))
    TRAINMASTER_SERIAL_PORT_LOGGING    = tostring(var.serial_port_logging)
    TRAINMASTER_METRICS                = var.metrics
    TRAINMASTER_PACKAGE_INDEX          = var.package_mirror ? "https://${var.region}-python.pkg.dev/${var.project}/${local.name}-pypi/simple/" : ""
    TRAINMASTER_BOOT_IMAGES            = join(",", [for family, image in var.boot_images : "${family}=${image}"])
    TRAINMASTER_NOTIFICATIONS          = tostring(local.notifications)
    TRAINMASTER_SSH                    = tostring(length(var.ssh_users) > 0)
    TRAINMASTER_LIMITS                 = join(",", [for name, limit in var.limits : "${name}=${limit}"])
  }
}

# Values that all functions share, also the consoles and the webhooks.
locals {
  installed = {
    prefix            = local.name
    project           = var.project
    region            = var.region
    source_bucket     = google_storage_bucket.stage.name
    pusher            = google_service_account.pusher.email
    pubsub_agent      = local.pubsub_agent
    dead_letter_topic = google_pubsub_topic.dead_letter.id
    builder           = google_service_account.builder.name
    repository        = "projects/${var.project}/locations/${var.region}/repositories/${google_artifact_registry_repository.functions.repository_id}"
    database          = "projects/${var.project}/databases/${local.database}"
    identities        = time_sleep.identities.id
  }
}

module "function" {
  source   = "./modules/event_function"
  for_each = local.functions

  installed     = local.installed
  name          = each.key
  topics        = [for topic in each.value.topics : google_pubsub_topic.this[topic].name]
  source_object = google_storage_bucket_object.source[each.key].name
  account       = google_service_account.function[each.key]
  # `upload` checks whether a job id is in use, and reads the trials of a tuning job that a new one continues.
  state         = each.key == "upload" ? "viewer" : "user"
  publishes     = merge({ for topic in local.publishes[each.key] : topic => google_pubsub_topic.this[topic].id }, { dead_letter = google_pubsub_topic.dead_letter.id })
  environment   = local.environment
  memory        = each.value.memory
  timeout_s     = each.value.timeout_s
  concurrency   = each.value.concurrency
  max_instances = each.value.max_instances

  # A query without its index fails, so functions wait for all indexes that they query.
  ready = [
    time_sleep.grants, google_firestore_database.this, google_firestore_index.replicas, google_firestore_index.round_ends,
    google_firestore_index.jobs, google_firestore_index.job_lists, google_firestore_field.pending, google_firestore_field.failing,
    google_firestore_field.open_notifications,
  ]
}

# Clients call the API with their own access tokens, which Cloud Run's own check does not accept. The function verifies the token and
# asks IAM whether the caller may read or act as the account `trainmaster-callers` (docs/decisions/0008-the-old-services-api.md, 0042-api-access.md).
resource "google_cloud_run_service_iam_member" "api_clients" {
  count = var.api_access == "allUsers" ? 1 : 0
  # checkov:skip=CKV_GCP_102:External clients send access tokens, which Cloud Run's own check does not accept. The function verifies the token and checks permissions.
  location = var.region
  service  = module.function["api"].name
  role     = "roles/run.invoker"
  member   = "allUsers"
}

# Google's provider cannot set Cloud Run's check on a function. A deployment can set it back, so each deployment repeats the command.
resource "terraform_data" "invoker_check" {
  input            = var.api_access == "no-invoker-check" ? "--no-invoker-iam-check" : "--invoker-iam-check"
  triggers_replace = [var.api_access, google_storage_bucket_object.source["api"].name, local.environment, local.functions["api"]]

  provisioner "local-exec" {
    command = "gcloud run services update ${module.function["api"].name} --project ${var.project} --region ${var.region} ${self.input}"
  }
}
