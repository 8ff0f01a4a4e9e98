locals {
  # Published to by whom, and read by which function: docs/interfaces.md section 1.
  topics = toset(["upload", "submit", "vm-ready", "replica-exit", "maintenance", "system-events", "provision", "sweep"])
}

resource "google_pubsub_topic" "this" {
  # checkov:skip=CKV_GCP_83:Google's own keys encrypt it; without a key of one's own, none can be revoked under running jobs.
  for_each                   = local.topics
  name                       = "trainmaster-${each.key}"
  message_retention_duration = "604800s" # a week: what was delivered can be replayed after a bad release

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
