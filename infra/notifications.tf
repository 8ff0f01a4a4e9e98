# Receivers of the notifications of jobs: webhooks, and e-mails about failed jobs. Both are off by default. docs/notifications.md
# The topic is in topics.tf, and the publishers are in iam.tf.

locals {
  notifications = var.notifications || length(var.notification_webhooks) > 0
  webhooks      = { for webhook in var.notification_webhooks : "job-${webhook.name}" => webhook }
}

resource "google_storage_bucket_object" "webhook" {
  for_each = local.webhooks
  name     = "webhook-${filemd5("${var.stage}/webhook.zip")}.zip"
  bucket   = google_storage_bucket.stage.name
  source   = "${var.stage}/webhook.zip"
}

resource "google_service_account" "webhook" {
  for_each     = local.webhooks
  account_id   = "${local.name}-${each.value.name}"
  display_name = "${local.title}: posts notifications to a webhook"

  depends_on = [time_sleep.apis]
}

# The secret is the user's own: Terraform's state does not contain the webhook's address.
resource "google_secret_manager_secret_iam_member" "webhook" {
  for_each  = local.webhooks
  project   = var.project
  secret_id = each.value.secret
  role      = "roles/secretmanager.secretAccessor"
  member    = google_service_account.webhook[each.key].member

  depends_on = [time_sleep.identities]
}

module "webhook" {
  source   = "./modules/event_function"
  for_each = local.webhooks

  installed   = local.installed
  name        = each.key
  entry_point = "post_notification"
  description = "${local.title}: posts notifications of jobs to a webhook"
  topics      = [google_pubsub_topic.this["job-state"].name]
  filter      = each.value.filter
  # A subscription has the name of its topic; the second one of a topic needs another name.
  subscription_suffix = each.value.name == "webhook" ? "" : "-${each.value.name}"
  source_object       = google_storage_bucket_object.webhook[each.key].name
  account             = google_service_account.webhook[each.key]
  environment         = { CONSOLE_ADDRESS = each.value.console }
  secrets             = { WEBHOOK_ADDRESS = each.value.secret }
  memory              = "256Mi"
  cpu                 = "0.333"
  timeout_s           = 60
  concurrency         = 1
  max_instances       = 3
  ready               = [time_sleep.grants, google_secret_manager_secret_iam_member.webhook]
}

# Every function logs each decision once: a redelivered event has duplicate = true.
resource "google_monitoring_alert_policy" "failed_job" {
  count                 = var.mail_failed_jobs ? 1 : 0
  display_name          = "${local.title}: a job failed"
  combiner              = "OR"
  notification_channels = [google_monitoring_notification_channel.email.id]

  conditions {
    display_name = "a job failed"

    condition_matched_log {
      filter = "resource.type=\"cloud_run_revision\" resource.labels.service_name=~\"^${local.name}-\" jsonPayload.action=\"fail_job\" jsonPayload.duplicate=false"
      # Programs can write entries with these fields (roles/logging.logWriter), and so send mails, but none with a sentence of theirs.
      label_extractors = { job = "REGEXP_EXTRACT(jsonPayload.job_id, \"^([A-Za-z][A-Za-z0-9_-]*)$\")", reason = "REGEXP_EXTRACT(jsonPayload.reason, \"^([a-z_]+)$\")" }
    }
  }

  alert_strategy {
    auto_close = "1800s"

    notification_rate_limit {
      period = "300s"
    }
  }

  documentation {
    subject   = "Job $${log.extracted_label.job} failed: $${log.extracted_label.reason}"
    content   = "`trainmaster why $${log.extracted_label.job}` shows the reason. docs/notifications.md"
    mime_type = "text/markdown"
  }
}
