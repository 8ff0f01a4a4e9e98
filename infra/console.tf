# The console for a team behind Identity-Aware Proxy (IAP), if the variable `console` is true: two services that are
# built from one archive. `console` is read-only. With `console_operator`, users can also change jobs. docs/decisions/0072-hosted-console.md

variable "console" {
  description = "Whether the console for a team is installed, behind Identity-Aware Proxy."
  type        = bool
  default     = false
}

variable "console_viewers" {
  description = "IAM members that may open the read-only console, such as group:ml@example.com."
  type        = set(string)
  default     = []
}

variable "console_operators" {
  description = "IAM members that may open the console in which jobs can be cancelled, submitted, labelled and deleted."
  type        = set(string)
  default     = []
}

locals {
  # `publishes`: the topics that the console publishes to when its users act.
  consoles = {
    console          = { acts = false, publishes = [] }
    console_operator = { acts = true, publishes = ["provision", "tune", "submit", "job-state"] }
  }
  installed_consoles = { for name, console in local.consoles : name => console if var.console }

  # IAP calls the services as its service agent.
  iap_agent = "serviceAccount:service-${data.google_project.this.number}@gcp-sa-iap.iam.gserviceaccount.com"
}

resource "google_project_service" "iap" {
  count              = var.console ? 1 : 0
  service            = "iap.googleapis.com"
  disable_on_destroy = false

  depends_on = [time_sleep.apis]
}

resource "google_service_account" "console" {
  for_each     = local.installed_consoles
  account_id   = "${local.name}-${replace(each.key, "_", "-")}"
  display_name = "${local.title} ${replace(each.key, "_", " ")}"

  depends_on = [time_sleep.apis]
}

resource "google_storage_bucket_object" "console" {
  count  = var.console ? 1 : 0
  bucket = google_storage_bucket.stage.name
  name   = "console-${filemd5("${var.stage}/console.zip")}.zip"
  source = "${var.stage}/console.zip"
}

module "console" {
  source   = "./modules/event_function"
  for_each = local.installed_consoles

  installed     = local.installed
  name          = each.key
  entry_point   = "console"
  topics        = []
  source_object = google_storage_bucket_object.console[0].name
  account       = google_service_account.console[each.key]
  state         = each.value.acts ? "user" : "viewer"
  publishes     = { for topic in each.value.publishes : topic => google_pubsub_topic.this[topic].id }
  environment = merge(local.environment, {
    TRAINMASTER_CONSOLE_AUDIENCE = "/projects/${data.google_project.this.number}/locations/${var.region}/services/${local.name}-${replace(each.key, "_", "-")}"
    TRAINMASTER_CONSOLE_ACTS     = tostring(each.value.acts)
  })
  memory        = "512Mi"
  timeout_s     = 60
  concurrency   = 16
  max_instances = 2
  ready         = [time_sleep.grants, google_firestore_database.this]
}

# This version of Google's provider cannot switch IAP on for a service. Until the command has run, Cloud Run's own check refuses all users, and
# the console refuses every request without IAP's assertion. A deployment can reset the switch, so each deployment repeats the command.
resource "terraform_data" "iap" {
  for_each         = local.installed_consoles
  triggers_replace = [google_storage_bucket_object.console[0].name, local.environment, each.value]

  provisioner "local-exec" {
    command = join(" && ", [
      "gcloud beta services identity create --service iap.googleapis.com --project ${var.project}",
      "gcloud beta run services update ${module.console[each.key].name} --project ${var.project} --region ${var.region} --iap",
    ])
  }

  depends_on = [google_project_service.iap]
}

resource "google_cloud_run_service_iam_member" "iap" {
  for_each = local.installed_consoles
  location = var.region
  service  = module.console[each.key].name
  role     = "roles/run.invoker"
  member   = local.iap_agent

  depends_on = [terraform_data.iap] # which creates the service agent
}

resource "google_iap_web_cloud_run_service_iam_member" "viewers" {
  for_each               = var.console ? var.console_viewers : toset([])
  location               = var.region
  cloud_run_service_name = module.console["console"].name
  role                   = "roles/iap.httpsResourceAccessor"
  member                 = each.value

  depends_on = [terraform_data.iap]
}

resource "google_iap_web_cloud_run_service_iam_member" "operators" {
  for_each               = var.console ? var.console_operators : toset([])
  location               = var.region
  cloud_run_service_name = module.console["console_operator"].name
  role                   = "roles/iap.httpsResourceAccessor"
  member                 = each.value

  depends_on = [terraform_data.iap]
}

# Both consoles show the logs of jobs. Google has no role for these logs only.
resource "google_project_iam_member" "console_reads_logs" {
  for_each = local.installed_consoles
  project  = var.project
  role     = "roles/logging.viewer"
  member   = google_service_account.console[each.key].member

  depends_on = [time_sleep.identities]
}

# The resources page shows what the machines of a job use.
resource "google_project_iam_member" "console_reads_metrics" {
  for_each = local.installed_consoles
  project  = var.project
  role     = "roles/monitoring.viewer"
  member   = google_service_account.console[each.key].member

  depends_on = [time_sleep.identities]
}

# Pages show what machines cost. The list of prices is the only object that the consoles read.
resource "google_storage_bucket_iam_member" "console_reads_prices" {
  for_each = local.installed_consoles
  bucket   = google_storage_bucket.this.name
  role     = "roles/storage.objectViewer"
  member   = google_service_account.console[each.key].member

  condition {
    title      = "price list only"
    expression = "resource.name.startsWith('${local.objects}/prices/')"
  }

  depends_on = [time_sleep.identities]
}

output "console" {
  description = "Addresses of the consoles. Commands link to TRAINMASTER_CONSOLE_ADDRESS."
  value       = { for name, console in module.console : name => console.uri }
}
