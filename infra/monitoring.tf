# What must not stay unseen. Each alert's documentation is the first page of its runbook: docs/runbooks/.

resource "google_monitoring_notification_channel" "email" {
  display_name = "Trainmaster"
  type         = "email"
  labels       = { email_address = var.notify }

  depends_on = [google_project_service.this]
}

locals {
  alerts = {
    dead-letters = {
      title    = "Trainmaster: messages in the dead letter"
      filter   = "metric.type=\"pubsub.googleapis.com/subscription/num_undelivered_messages\" AND resource.type=\"pubsub_subscription\" AND resource.labels.subscription_id=\"${google_pubsub_subscription.dead_letter.name}\""
      aligner  = "ALIGN_MAX"
      above    = 0
      for_s    = 0
      period_s = 300
      says     = "A message could not be handled. Nothing is lost: see what it says, repair, replay it. docs/runbooks/dead-letters.md"
    }
    sweep-silent = {
      title    = "Trainmaster: the sweep does not run"
      filter   = "metric.type=\"pubsub.googleapis.com/subscription/oldest_unacked_message_age\" AND resource.type=\"pubsub_subscription\" AND resource.labels.subscription_id=\"${module.function["sweep"].subscription}\""
      aligner  = "ALIGN_MAX"
      above    = 600
      for_s    = 300
      period_s = 300
      says     = "Nobody looks for lost VMs and deadlines. Training goes on, and every VM has its fuse. docs/runbooks/sweep.md"
    }
    backlog = {
      title    = "Trainmaster: events wait for more than ten minutes"
      filter   = "metric.type=\"pubsub.googleapis.com/subscription/oldest_unacked_message_age\" AND resource.type=\"pubsub_subscription\" AND resource.labels.subscription_id=starts_with(\"trainmaster-\") AND NOT resource.labels.subscription_id=\"${google_pubsub_subscription.dead_letter.name}\""
      aligner  = "ALIGN_MAX"
      above    = 600
      for_s    = 300
      period_s = 300
      says     = "A function answers 503 or 500 again and again. docs/runbooks/backlog.md"
    }
    errors = {
      title    = "Trainmaster: a function fails"
      filter   = "metric.type=\"run.googleapis.com/request_count\" AND resource.type=\"cloud_run_revision\" AND resource.labels.service_name=starts_with(\"trainmaster-\") AND metric.labels.response_code_class=\"5xx\""
      aligner  = "ALIGN_DELTA"
      above    = 20
      for_s    = 0
      period_s = 300
      says     = "More than 20 answers of 5xx in five minutes. docs/runbooks/backlog.md"
    }
  }
}

resource "google_monitoring_alert_policy" "this" {
  for_each              = local.alerts
  display_name          = each.value.title
  combiner              = "OR"
  notification_channels = [google_monitoring_notification_channel.email.id]

  conditions {
    display_name = each.value.title

    condition_threshold {
      filter          = each.value.filter
      comparison      = "COMPARISON_GT"
      threshold_value = each.value.above
      duration        = "${each.value.for_s}s"

      aggregations {
        alignment_period   = "${each.value.period_s}s"
        per_series_aligner = each.value.aligner
      }
    }
  }

  documentation {
    content   = each.value.says
    mime_type = "text/markdown"
  }
}

# `provision` says so in its log when it finds a VM without a living owner.
resource "google_logging_metric" "orphans" {
  name        = "trainmaster/orphans"
  description = "Times that a VM without a living owner was found"
  filter      = "resource.type=\"cloud_run_revision\" resource.labels.service_name=\"${module.function["provision"].name}\" jsonPayload.message:\"orphan found\""

  metric_descriptor {
    metric_kind = "DELTA"
    value_type  = "INT64"
  }
}

resource "google_monitoring_alert_policy" "orphans" {
  display_name          = "Trainmaster: a VM without an owner was found"
  combiner              = "OR"
  notification_channels = [google_monitoring_notification_channel.email.id]

  conditions {
    display_name = "VMs without an owner"

    condition_threshold {
      filter          = "metric.type=\"logging.googleapis.com/user/${google_logging_metric.orphans.name}\" AND resource.type=\"cloud_run_revision\""
      comparison      = "COMPARISON_GT"
      threshold_value = 0
      duration        = "0s"

      aggregations {
        alignment_period   = "300s"
        per_series_aligner = "ALIGN_DELTA"
      }
    }
  }

  documentation {
    content   = "It is deleted when it was seen twice. Somebody made it, or removed its job: docs/runbooks/orphans.md"
    mime_type = "text/markdown"
  }
}

resource "google_monitoring_dashboard" "this" {
  dashboard_json = jsonencode({
    displayName = "Trainmaster"
    gridLayout = {
      columns = 2
      widgets = [for title, metric in {
        "Events waiting, oldest (s)" = "pubsub.googleapis.com/subscription/oldest_unacked_message_age\" resource.type=\"pubsub_subscription"
        "Events delivered"           = "pubsub.googleapis.com/subscription/push_request_count\" resource.type=\"pubsub_subscription"
        "Calls of functions"         = "run.googleapis.com/request_count\" resource.type=\"cloud_run_revision"
        "Instances of functions"     = "run.googleapis.com/container/instance_count\" resource.type=\"cloud_run_revision"
        } : {
        title = title
        xyChart = {
          dataSets = [{
            timeSeriesQuery = {
              timeSeriesFilter = {
                filter      = "metric.type=\"${metric}\""
                aggregation = { alignmentPeriod = "60s", perSeriesAligner = "ALIGN_MAX" }
              }
            }
          }]
        }
      }]
    }
  })

  depends_on = [google_project_service.this]
}
