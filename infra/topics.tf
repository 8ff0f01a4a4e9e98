locals {
  # Publishers and subscribers of each topic are listed in docs/interfaces.md, section 1. Compute Engine's log has its own topic,
  # system-events, to which no VM may publish: otherwise any VM could report that another one is gone.
  topics = toset(["upload", "submit", "vm-ready", "replica-exit", "maintenance", "system-events", "provision", "tune", "sweep", "job-state"])

  # job-state: its subscribers are systems of the users, which rely on its format.
  schema_topics = setunion(local.worker_topics, ["job-state"])
}

# Pub/Sub rejects messages that do not match the schema. Each change of a schema adds a revision; a schema has at most 20.
# Pub/Sub accepts messages of all revisions, so that agents of several releases can run at the same time.
resource "google_pubsub_schema" "this" {
  for_each   = var.schemas ? local.schema_topics : toset([])
  name       = "${local.name}-${each.key}"
  type       = "PROTOCOL_BUFFER"
  definition = file("${path.module}/schemas/${each.key}.proto")

  depends_on = [time_sleep.apis]
}

resource "google_pubsub_topic" "this" {
  # checkov:skip=CKV_GCP_83:Google's keys encrypt it unless kms_key is set. A key of one's own could be revoked while jobs run.
  for_each                   = local.topics
  name                       = "${local.name}-${each.key}"
  message_retention_duration = "604800s" # a week, so that messages can be replayed after a bad release
  kms_key_name               = var.kms_key

  dynamic "schema_settings" {
    for_each = [for topic, schema in google_pubsub_schema.this : schema.name if topic == each.key]
    content {
      schema   = "projects/${var.project}/schemas/${schema_settings.value}"
      encoding = "JSON"
    }
  }

  depends_on = [time_sleep.apis]
}

resource "google_pubsub_topic" "dead_letter" {
  # checkov:skip=CKV_GCP_83:Same as the topics above.
  name                       = "${local.name}-dead-letter"
  message_retention_duration = "2678400s" # the maximum of 31 days
  kms_key_name               = var.kms_key

  depends_on = [time_sleep.apis]
}

# A dead-letter topic without a subscription loses its messages.
resource "google_pubsub_subscription" "dead_letter" {
  name                       = "${local.name}-dead-letter"
  topic                      = google_pubsub_topic.dead_letter.id
  message_retention_duration = "2678400s"
  retain_acked_messages      = false
  ack_deadline_seconds       = 60

  expiration_policy {
    ttl = "" # never
  }
}

# Pub/Sub's service agent moves undeliverable messages to the dead-letter topic.
resource "google_pubsub_topic_iam_member" "dead_letter_by_pubsub" {
  topic  = google_pubsub_topic.dead_letter.id
  role   = "roles/pubsub.publisher"
  member = local.pubsub_agent

  depends_on = [time_sleep.identities]
}

locals {
  pubsub_agent = "serviceAccount:service-${data.google_project.this.number}@gcp-sa-pubsub.iam.gserviceaccount.com"
}
