locals {
  # Published to by whom, and read by which function: docs/interfaces.md section 1.
  topics = toset(["upload", "submit", "vm-ready", "replica-exit", "maintenance", "system-events", "provision", "tune", "sweep"])
}

# The agents' topics alone: Pub/Sub refuses there what is no message of theirs. A change commits a revision, of which there
# are 20 at most; all of them are taken, so that agents of several releases are understood side by side.
resource "google_pubsub_schema" "this" {
  for_each   = var.schemas ? local.worker_topics : toset([])
  name       = "trainmaster-${each.key}"
  type       = "PROTOCOL_BUFFER"
  definition = file("${path.module}/schemas/${each.key}.proto")

  depends_on = [google_project_service.this]
}

resource "google_pubsub_topic" "this" {
  # checkov:skip=CKV_GCP_83:Google's own keys encrypt it; without a key of one's own, none can be revoked under running jobs.
  for_each                   = local.topics
  name                       = "trainmaster-${each.key}"
  message_retention_duration = "604800s" # a week: what was delivered can be replayed after a bad release

  dynamic "schema_settings" {
    for_each = [for topic, schema in google_pubsub_schema.this : schema.name if topic == each.key]
    content {
      schema   = "projects/${var.project}/schemas/${schema_settings.value}"
      encoding = "JSON"
    }
  }

  depends_on = [google_project_service.this]
}

resource "google_pubsub_topic" "dead_letter" {
  # checkov:skip=CKV_GCP_83:As the topics above.
  name                       = "trainmaster-dead-letter"
  message_retention_duration = "2678400s" # the longest there is: 31 days

  depends_on = [google_project_service.this]
}

# A dead-letter topic without a subscription loses its messages.
resource "google_pubsub_subscription" "dead_letter" {
  name                       = "trainmaster-dead-letter"
  topic                      = google_pubsub_topic.dead_letter.id
  message_retention_duration = "2678400s"
  retain_acked_messages      = false
  ack_deadline_seconds       = 60

  expiration_policy {
    ttl = "" # never
  }
}

# Pub/Sub itself moves undeliverable messages, as its service agent.
resource "google_pubsub_topic_iam_member" "dead_letter_by_pubsub" {
  topic  = google_pubsub_topic.dead_letter.id
  role   = "roles/pubsub.publisher"
  member = local.pubsub_agent
}

locals {
  pubsub_agent = "serviceAccount:service-${data.google_project.this.number}@gcp-sa-pubsub.iam.gserviceaccount.com"
}
